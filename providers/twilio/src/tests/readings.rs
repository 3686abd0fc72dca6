use hookfast_webhook::signature::sha256_hex;

use super::*;
use crate::content::with_body_hash;

fn read(form: &str) -> Reading {
    let mut readings = judge(signed(URL, form)).expect("genuine");
    assert_eq!(readings.len(), 1);
    readings.remove(0)
}

fn key(form: &str) -> String {
    read(form).dedupe_key
}

fn key_with_token(form: &str, token: &'static str) -> String {
    let mut request = signed(URL, form);
    set(&mut request, HeaderName::from_static("i-twilio-idempotency-token"), token);
    judge(request).expect("genuine").remove(0).dedupe_key
}

fn read_json(body: &str) -> Result<Vec<Reading>, Unreadable> {
    provider().read(&request(&with_body_hash(URL, &sha256_hex(body.as_bytes())), body))
}

#[test]
fn a_message_is_known_by_its_sid() {
    for form in [
        "MessageSid=SM1&SmsStatus=received&AccountSid=AC1&Body=x",
        "SmsMessageSid=SM1&AccountSid=AC1",
        "SmsSid=SM1&SmsStatus=received&AccountSid=AC1",
    ] {
        let reading = read(form);
        assert_eq!(
            (reading.event_id.as_deref(), reading.event_type.as_str()),
            (Some("SM1"), "message.received"),
            "{form}"
        );
        assert_eq!(reading.object_id.as_deref(), Some("SM1"));
        assert_eq!(reading.account.as_deref(), Some("AC1"));
        assert_eq!(reading.body, form);
    }
}

#[test]
fn each_status_of_a_message_is_an_event() {
    let reading = read("MessageSid=SM1&SmsSid=SM1&MessageStatus=failed&SmsStatus=failed&ErrorCode=30003");
    assert_eq!((reading.event_type.as_str(), reading.event_id), ("message.failed", None));
    assert_eq!(reading.object_id.as_deref(), Some("SM1"));
    assert_eq!(read("SmsSid=SM1&SmsStatus=sent").event_type, "message.sent", "as it was before `MessageStatus`");
    assert_eq!(read("MessageSid=SM1&MessageStatus=read&EventType=READ").event_type, "message.read");
    assert_ne!(key("MessageSid=SM1&MessageStatus=sent"), key("MessageSid=SM1&MessageStatus=delivered"));
}

#[test]
fn each_status_of_a_call_is_an_event() {
    let reading = read(
        "CallSid=CA1&CallStatus=completed&SequenceNumber=3&CallbackSource=call-progress-events&AccountSid=AC1&\
         Timestamp=Thu%2C+09+Oct+2025+08%3A53%3A12+%2B0000",
    );
    assert_eq!((reading.event_type.as_str(), reading.event_id), ("call.completed", None));
    assert_eq!(reading.object_id.as_deref(), Some("CA1"));
    assert_eq!(reading.occurred_at.map(OffsetDateTime::unix_timestamp), Some(1_759_999_992));
}

#[test]
fn two_steps_of_a_call_in_one_status_are_two_events() {
    let one = "CallSid=CA1&CallStatus=in-progress&Digits=1";
    assert_ne!(key(one), key("CallSid=CA1&CallStatus=in-progress&Digits=2"));
    assert_eq!(key(one), key_with_token(one, "a"), "the call is known by what is signed");
}

#[test]
fn a_message_of_a_conversation_can_have_many_events() {
    let added = read("EventType=onMessageAdded&MessageSid=IM1&ConversationSid=CH1");
    let updated = read("EventType=onMessageUpdated&MessageSid=IM1&ConversationSid=CH1");
    assert_eq!((added.event_type.as_str(), updated.event_type.as_str()), ("onMessageAdded", "onMessageUpdated"));
    assert_ne!(added.dedupe_key, updated.dedupe_key);
    assert_eq!(added.object_id.as_deref(), Some("IM1"));
}

#[test]
fn the_word_for_it_is_the_type_of_everything_else_that_has_one() {
    let joined = "ConferenceSid=CF1&CallSid=CA1&StatusCallbackEvent=participant-join&SequenceNumber=2";
    assert_eq!(read(joined).event_type, "participant-join");
    let room = read("RoomSid=RM1&StatusCallbackEvent=room-created&Timestamp=2025-10-09T08%3A53%3A12Z");
    assert_eq!(room.occurred_at.map(OffsetDateTime::unix_timestamp), Some(1_759_999_992));
    let task = read("EventType=task.created&Sid=EV1&Timestamp=1759999992");
    assert_eq!(task.occurred_at, room.occurred_at);
}

#[test]
fn the_token_which_is_not_signed_makes_no_other_event() {
    for form in ["RecordingSid=RE1&RecordingStatus=completed&CallSid=CA1", "MessageSid=SM1", "a=1"] {
        assert_eq!(key_with_token(form, "a"), key_with_token(form, "b"), "{form}");
        assert_eq!(key_with_token(form, "a"), key(form), "{form}");
    }
    assert_ne!(key_with_token("a=1", "a"), key_with_token("a=2", "a"));
}

#[test]
fn the_same_signed_text_cut_otherwise_is_the_same_event() {
    let key_of = |url: &str, form: &str| judge(signed(url, form)).expect("genuine").remove(0).dedupe_key;
    let whole = key("Body=hello&From=%2B1&MessageSid=SM1&SmsStatus=received");
    for split in [
        "Body=helloFrom%2B1&MessageSid=SM1&SmsStatus=received",
        "Body=hello&From=%2B1MessageSidSM1&SmsStatus=received",
        "Bodyhello=&From=%2B1&MessageSid=SM1&SmsStatus=received",
        "BodyhelloFrom%2B1MessageSidSM1SmsStatusreceived=",
    ] {
        assert_eq!(key(split), whole, "{split}");
    }
    let query = key_of(&format!("{URL}?MessageSid=SM1"), "");
    assert_eq!(key_of(URL, "%3FMessageSid%3DSM1="), query, "a query that was moved into a form");
    assert_eq!(key_of(&format!("{URL}?Message"), "Sid%3DSM1="), query);
    assert_ne!(key_of(&format!("{URL}?MessageSid=SM2"), ""), query);
}

#[test]
fn what_leaves_the_signature_good_leaves_the_event_the_same() {
    let genuine = signed(URL, "MessageSid=SM1&Body=a+b&AccountSid=AC1");
    for same in ["AccountSid=AC1&MessageSid=SM1&Body=a%20b", "MessageSid=SM1&MessageSid=SM1&Body=a+b&AccountSid=AC1&&"]
    {
        let changed = Request { body: same.into(), ..genuine.clone() };
        let [changed, genuine] = [changed, genuine.clone()].map(|request| judge(request).expect("genuine").remove(0));
        assert_eq!(changed.dedupe_key, genuine.dedupe_key, "{same}");
    }
    let call = signed(URL, "CallSid=CA1&CallStatus=ringing");
    let changed = Request { body: "CallStatus=ringing&CallSid=CA1&CallSid=CA1".into(), ..call.clone() };
    let key = |request| judge(request).expect("genuine").remove(0).dedupe_key;
    assert_eq!(key(call), key(changed));
}

#[test]
fn a_name_with_two_values_says_nothing() {
    let reading = read("MessageSid=SM1&MessageSid=SM2&AccountSid=AC1&AccountSid=AC2");
    assert_eq!((reading.event_type.as_str(), reading.account), ("request", None));
}

#[test]
fn odd_times_do_not_lose_the_event() {
    for time in ["", "x", "Thu%2C+99+Oct", "((((((((", &"(".repeat(100_000)] {
        assert_eq!(read(&format!("CallSid=CA1&CallStatus=x&SequenceNumber=0&Timestamp={time}")).occurred_at, None);
    }
}

#[test]
fn a_query_is_an_event_with_the_query_as_its_body() {
    let request = Request { method: Method::GET, ..signed(&format!("{URL}?MessageSid=SM1&Body=hello%20there"), "") };
    let reading = judge(request).expect("genuine").remove(0);
    assert_eq!((reading.event_id.as_deref(), reading.event_type.as_str()), (Some("SM1"), "message.received"));
    assert_eq!(reading.body, "MessageSid=SM1&Body=hello%20there");
    assert!(judge(signed(URL, "")).expect("genuine").remove(0).body.is_empty());
}

#[test]
fn the_query_of_a_form_is_not_read() {
    let reading =
        judge(signed(&format!("{URL}?AccountSid=AC9&MessageSid=SM9"), "SmsSid=SM1")).expect("genuine").remove(0);
    assert_eq!((reading.event_id.as_deref(), reading.account), (Some("SM1"), None));
}

#[test]
fn each_cloud_event_of_a_batch_is_an_event() {
    let first = r#"{"id":"EZ1","type":"com.twilio.a","time":"2025-10-09T08:53:12Z","data":{"accountSid":"AC1","messageSid":"SM1"}}"#;
    let second = r#"{"id":"EZ2","type":"com.twilio.b","data":{"AccountSid":"AC2","CallSid":"CA2"}}"#;
    let readings = read_json(&format!(" [{first} ,\n{second}] ")).expect("readable");
    let [one, two] = readings.try_into().expect("two events");
    assert_eq!((one.body.as_ref(), two.body.as_ref()), (first.as_bytes(), second.as_bytes()));
    assert_eq!((one.dedupe_key.as_str(), one.event_id.as_deref()), ("EZ1", Some("EZ1")));
    assert_eq!((one.account.as_deref(), one.object_id.as_deref()), (Some("AC1"), Some("SM1")));
    assert_eq!(one.occurred_at.map(OffsetDateTime::unix_timestamp), Some(1_759_999_992));
    assert_eq!((two.account.as_deref(), two.object_id.as_deref()), (Some("AC2"), Some("CA2")));
    assert_eq!((two.event_type.as_str(), two.occurred_at), ("com.twilio.b", None));
    assert_eq!(read_json("[]"), Ok(vec![]));
}

#[test]
fn a_json_object_is_one_event() {
    let object = |body: &str| read_json(body).expect("readable").remove(0);
    assert_eq!(object(r#"{"id":"EZ1","type":"t","data":[1]}"#).dedupe_key, "EZ1");
    let named = object(r#"{"Sid":"XX1","EventType":"done","AccountSid":"AC1"}"#);
    assert_eq!((named.event_id.as_deref(), named.object_id.as_deref()), (Some("XX1"), Some("XX1")));
    assert_eq!((named.event_type.as_str(), named.account.as_deref()), ("done", Some("AC1")));
    let later = object(r#"{"Sid":"XX1","EventType":"undone","AccountSid":"AC1"}"#);
    assert_ne!(named.dedupe_key, later.dedupe_key, "much can happen to one thing");
    assert_eq!(object(r#"{"a":1}"#).event_type, "request");
    assert_ne!(object(r#"{"a":1}"#).dedupe_key, object(r#"{"a":2}"#).dedupe_key);
}

#[test]
fn json_that_is_none_is_kept_whole_and_not_quoted() {
    for body in ["", "canary", "7", "[", r#"["canary"]"#, r#"{"id":"canary","id":"canary"}"#, r#"{"id":"canary""#] {
        let problem = read_json(body).expect_err("unreadable").to_string();
        assert!(!problem.contains("canary"), "{problem}");
    }
}

use super::*;

fn answer(style: AnswerStyle, request: &Request) -> Answer {
    Twilio::new(&Config { answer: style, ..Config::default() }).answer(request)
}

#[test]
fn calls_and_messages_are_told_to_do_nothing_more() {
    let twiml = Answer::ok("text/xml", r#"<?xml version="1.0" encoding="UTF-8"?><Response/>"#);
    for form in ["MessageSid=SM1&SmsStatus=received", "CallSid=CA1&CallStatus=ringing"] {
        assert_eq!(answer(AnswerStyle::Twiml, &request(URL, form)), twiml, "{form}");
        assert_eq!(answer(AnswerStyle::Twiml, &request(&format!("{URL}?{form}"), "")), twiml, "{form}");
        assert_eq!(answer(AnswerStyle::Empty, &request(URL, form)), Answer::EMPTY_OK, "{form}");
    }
}

#[test]
fn what_only_tells_is_answered_without_a_body() {
    for form in [
        "MessageSid=SM1&MessageStatus=sent",
        "CallSid=CA1&CallStatus=completed&SequenceNumber=0",
        "CallSid=CA1&CallStatus=completed&CallbackSource=call-progress-events",
        "EventType=onMessageAdded&MessageSid=IM1",
        "a=b",
    ] {
        assert_eq!(answer(AnswerStyle::Twiml, &request(URL, form)), Answer::EMPTY_OK, "{form}");
    }
    let batch = provider().sample(&order("event-streams", &secret())).expect("a kind");
    assert_eq!(answer(AnswerStyle::Twiml, &batch), Answer::EMPTY_OK);
}

#[test]
fn settings_are_read_by_twilios_words() {
    let config = |text: &str| serde_json::from_str::<Config>(text);
    let shared = config(r#"{"answer":"empty","algorithm":"HMAC_SHA256","key_id":"k"}"#).expect("legal");
    let expected =
        Config { answer: AnswerStyle::Empty, algorithm: SignatureAlgorithm::HmacSha256, key_id: Some("k".into()) };
    assert_eq!(shared, expected);
    assert_eq!(config("{}").expect("all have defaults"), Config::default());
    for bad in [r#"{"answer":"xml"}"#, r#"{"algorithm":"HMAC_MD5"}"#, r#"{"keyid":"k"}"#] {
        assert!(config(bad).is_err(), "{bad}");
    }
}

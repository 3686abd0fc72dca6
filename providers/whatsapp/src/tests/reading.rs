use super::*;

fn read(body: &str) -> Result<Vec<Reading>, Unreadable> {
    provider().read(&sign(URL, &Secret::new("s").expect("not blank"), body.into()))
}

/// A body with one change of the field `messages`.
fn with_value(value: &str) -> String {
    format!(r#"{{"entry":[{{"id":"7","changes":[{{"field":"messages","value":{value}}}]}}]}}"#)
}

fn keys(body: &str) -> Vec<String> {
    read(body).expect("readable").into_iter().map(|reading| reading.dedupe_key).collect()
}

fn types(body: &str) -> Vec<String> {
    read(body).expect("readable").into_iter().map(|reading| reading.event_type).collect()
}

const METADATA: &str = r#""metadata":{"phone_number_id":"8"}"#;

#[test]
fn a_message_alone_in_its_change_keeps_what_stands_around_it() {
    let change = format!(
        r#"{{"value": {{{METADATA},"contacts":[{{"profile":{{"name":"Sara"}}}}],"messages":[ {{"id":"a","type":"text"}} ]}},"field":"messages"}}"#
    );
    let readings = read(&format!(r#"{{"entry":[{{"id":"7","changes":[ {change} ]}}]}}"#)).expect("readable");
    assert_eq!(readings.len(), 1);
    assert_eq!(readings[0].body, change);
    assert_eq!(readings[0].account.as_deref(), Some("8"));
}

#[test]
fn messages_and_statuses_that_share_a_change_get_their_own_bytes_in_the_order_of_the_body() {
    let (first, second) = (r#"{"id":"a", "status":"read"}"#, r#"{"id":"b","type":"text","timestamp":"1759999997"}"#);
    for (value, expected) in [
        (format!(r#"{{"statuses":[{first}],"messages":[{second}]}}"#), [first, second]),
        (format!(r#"{{"messages":[{second}],{METADATA},"statuses":[{first}]}}"#), [second, first]),
    ] {
        let readings = read(&with_value(&value)).expect("readable");
        assert_eq!(readings.iter().map(|reading| &reading.body[..]).collect::<Vec<_>>(), expected.map(str::as_bytes));
    }
}

#[test]
fn bodies_are_parts_of_the_request_and_no_copies() {
    let request =
        sign(URL, &Secret::new("s").expect("not blank"), with_value(r#"{"messages":[{"id":"a"},{"id":"b"}]}"#));
    let whole = request.body.as_ptr_range();
    for reading in provider().read(&request).expect("readable") {
        assert!(whole.contains(&reading.body.as_ptr()));
    }
}

#[test]
fn a_key_names_the_message_or_the_message_and_what_became_of_it() {
    let value =
        r#"{"messages":[{"id":"a","type":"text"}],"statuses":[{"id":"a","status":"sent"},{"id":"a","status":"read"}]}"#;
    assert_eq!(keys(&with_value(value)), ["message:a", "status:a:sent", "status:a:read"]);
    assert_eq!(types(&with_value(value)), ["messages.text", "statuses.sent", "statuses.read"]);
}

#[test]
fn a_message_to_a_group_is_read_by_each_participant_for_himself() {
    let status = |member: &str| format!(r#"{{"id":"a","status":"read","recipient_type":"group",{member}}}"#);
    let statuses = [
        status(r#""recipient_participant_id":"966500000001""#),
        status(r#""recipient_participant_id":"966500000002""#),
        status(r#""recipient_participant_user_id":"US.1""#),
    ];
    let keys = keys(&with_value(&format!(r#"{{"statuses":[{}]}}"#, statuses.join(","))));
    assert_eq!(keys, ["status:a:read:966500000001", "status:a:read:966500000002", "status:a:read:US.1"]);
}

#[test]
fn a_change_without_messages_and_statuses_is_still_an_event() {
    for value in [
        format!(r#"{{{METADATA},"errors":[{{"code":131000}}]}}"#),
        format!(r#"{{{METADATA},"messages":[],"statuses":null}}"#),
    ] {
        let readings = read(&with_value(&value)).expect("readable");
        assert_eq!(readings.len(), 1);
        assert_eq!((readings[0].event_type.as_str(), readings[0].account.as_deref()), ("messages", Some("8")));
        assert!(readings[0].dedupe_key.starts_with("change:messages:"));
    }
    for value in ["null", "[]", "\"new\"", "{}"] {
        let readings = read(&with_value(value)).expect("readable");
        assert_eq!((readings.len(), readings[0].account.as_deref()), (1, Some("7")), "{value}");
    }
}

#[test]
fn other_fields_are_one_event_each_whatever_they_hold() {
    let change = r#"{"field":"smb_message_echoes","value":{"metadata":{"phone_number_id":"8"},"messages":[{"id":"a"},{"id":"b"}]}}"#;
    let readings =
        read(&format!(r#"{{"entry":[{{"id":7,"time":1759999990,"changes":[{change}]}}]}}"#)).expect("readable");
    assert_eq!(readings.len(), 1);
    let Reading { event_id, event_type, account, occurred_at, body, .. } = &readings[0];
    assert_eq!((event_id.as_deref(), event_type.as_str(), account.as_deref()), (None, "smb_message_echoes", Some("7")));
    assert_eq!(occurred_at.map(OffsetDateTime::unix_timestamp), Some(1_759_999_990));
    assert_eq!(body, change);
}

#[test]
fn what_has_no_id_is_known_by_its_account_its_time_and_its_bytes() {
    let key = |id: &str, time: &str, value: &str| {
        let body = format!(r#"{{"entry":[{{"id":"{id}",{time}"changes":[{{"field":"f","value":{value}}}]}}]}}"#);
        keys(&body).remove(0)
    };
    let first = key("1", r#""time":5,"#, "1");
    assert_eq!(key("1", r#""time":5,"#, "1"), first);
    for other in
        [key("2", r#""time":5,"#, "1"), key("1", r#""time":6,"#, "1"), key("1", "", "1"), key("1", r#""time":5,"#, "2")]
    {
        assert_ne!(other, first);
    }
}

#[test]
fn a_message_without_id_or_type_and_a_status_without_word_are_still_events() {
    let body =
        with_value(r#"{"messages":[{"from":"1"},{"from":"2"},{"id":"a"}],"statuses":[{"id":"a"},{"status":"read"}]}"#);
    let found = keys(&body);
    assert_eq!(found.iter().collect::<std::collections::HashSet<_>>().len(), 5);
    assert_eq!(types(&body), ["messages", "messages", "messages", "statuses", "statuses.read"]);
    assert_eq!(found[2], "message:a");
    assert!(found[3].starts_with("statuses:"), "its id is that of a message: {}", found[3]);
}

#[test]
fn another_object_and_new_members_pass() {
    let body =
        r#"{"object":"page","new":{},"entry":[{"id":"1","new":1,"changes":[{"field":"feed","value":1,"new":[]}]}]}"#;
    assert_eq!(types(body), ["feed"]);
}

#[test]
fn another_shape_is_left_whole() {
    let entry = |entry: &str| format!(r#"{{"entry":[{entry}]}}"#);
    let good = r#"{"id":"1","changes":[{"field":"f"}]}"#;
    assert!(read(&entry(good)).is_ok());
    for body in [
        String::new(),
        "null".into(),
        "[]".into(),
        "{}".into(),
        r#"{"entry":{}}"#.into(),
        entry(""),
        entry("1"),
        entry(&format!(r#"{good},{{"id":"1"}}"#)),
        entry(&format!(r#"{good},{{"id":"1","messaging":[{{}}]}}"#)),
        entry(r#"{"id":"1","changes":[]}"#),
        entry(r#"{"id":"1","changes":[{"value":{}}]}"#),
        entry(r#"{"id":"1","changes":[{"field":"f","field":"g"}]}"#),
        with_value(r#"{"messages":{}}"#),
        with_value(r#"{"messages":[1]}"#),
        with_value(r#"{"messages":[{"id":"a","id":"b"}]}"#),
        with_value(r#"{"messages":[],"messages":[]}"#),
    ] {
        assert!(read(&body).is_err(), "{body}");
    }
}

#[test]
fn there_is_an_end_to_the_number_of_events() {
    let list = |count: usize| vec![r#"{"id":"a"}"#; count].join(",");
    let half = json::EVENTS_MAX / 2;
    let value =
        |more: usize| with_value(&format!(r#"{{"messages":[{}],"statuses":[{}]}}"#, list(half), list(half + more)));
    assert_eq!(read(&value(0)).map(|readings| readings.len()), Ok(json::EVENTS_MAX));
    assert!(read(&value(1)).is_err());
}

#[test]
fn a_long_account_is_not_copied_into_every_event() {
    let list = vec!["{}"; 1000].join(",");
    let value = format!(r#"{{"metadata":{{"phone_number_id":"{}"}},"messages":[{list}]}}"#, "8".repeat(100_000));
    assert!(read(&with_value(&value)).expect("readable").iter().all(|reading| reading.account.as_deref() == Some("7")));
}

#[test]
fn deep_nesting_is_read_without_recursion() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    assert!(read(&with_value(&format!(r#"{{"messages":[{{"id":"a","text":{deep}}}],"new":{deep}}}"#))).is_ok());
}

#[test]
fn the_reason_for_unreadability_quotes_nothing_of_the_payload() {
    for body in [r#"{"entry":"canary"}"#.into(), with_value(r#"{"messages":["canary"]}"#), with_value("{\"canary")] {
        let problem = read(&body).expect_err("unreadable").to_string();
        assert!(!problem.contains("canary"), "{problem}");
    }
}

/// Random JSON that resembles what Meta sends.
fn disorder() -> impl Strategy<Value = Value> {
    let name = proptest::sample::select(vec![
        "entry",
        "changes",
        "field",
        "value",
        "metadata",
        "phone_number_id",
        "messages",
        "statuses",
        "id",
        "type",
        "status",
        "timestamp",
        "time",
        "contacts",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        Just(Value::from("messages")),
    ];
    leaf.prop_recursive(8, 64, 6, move |inner| {
        let list = proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from);
        let object = proptest::collection::btree_map(name.clone(), inner, 0..6);
        let object =
            object.prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
        prop_oneof![list, object.prop_map(Value::Object)]
    })
}

proptest! {
    #[test]
    fn whatever_stands_in_a_message_its_event_is_a_part_of_the_body(
        messages in proptest::collection::vec(disorder(), 0..4),
        statuses in proptest::collection::vec(disorder(), 0..4),
        others in proptest::collection::vec(disorder(), 0..3),
    ) {
        let changes: Vec<_> = others
            .into_iter()
            .chain([serde_json::json!({"field": "messages", "value": {"messages": messages, "statuses": statuses}})])
            .collect();
        let body = serde_json::json!({"entry": [{"id": "1", "changes": changes}]}).to_string();
        if let Ok(readings) = read(&body) {
            prop_assert!(!readings.is_empty());
            for reading in readings {
                prop_assert!(!reading.event_type.is_empty());
                prop_assert!(body.contains(std::str::from_utf8(&reading.body).expect("a part of the text")));
            }
        }
    }

    #[test]
    fn no_json_makes_it_panic(body in disorder()) {
        let _ = read(&body.to_string());
    }
}

use hookfast_webhook::moment;

use super::*;

fn text<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector[name].as_str().unwrap_or_else(|| panic!("`{name}` is text"))
}

fn request(vector: &Value) -> Request {
    let headers = vector["headers"].as_array().into_iter().flatten().map(|pair| {
        let part = |index: usize| pair[index].as_str().expect("headers are pairs of text");
        (HeaderName::try_from(part(0)).expect("a name"), HeaderValue::try_from(part(1)).expect("a value"))
    });
    Request {
        method: text(vector, "method").parse().expect("a method"),
        url: text(vector, "url").into(),
        headers: headers.collect(),
        body: text(vector, "body").to_owned().into(),
    }
}

fn judge(vector: &Value) -> Result<Verified, Refusal> {
    let config: Config = serde_json::from_value(vector["config"].clone()).expect("our settings");
    let held: Vec<_> = vector["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let now = OffsetDateTime::from_unix_timestamp(vector["now"].as_i64().expect("a number")).expect("a time");
    verify(&WhatsApp::new(&config).expect("good settings"), request(vector), &secrets(&held), now)
}

fn check_reading(id: &str, reading: &Reading, expected: &Value) {
    assert_eq!(reading.event_id.as_deref(), expected["event_id"].as_str(), "{id}");
    assert_eq!(Some(reading.event_type.as_str()), expected["event_type"].as_str(), "{id}");
    if let Some(account) = expected.get("account") {
        assert_eq!(reading.account.as_deref(), account.as_str(), "{id}");
    }
    if let Some(time) = expected.get("occurred_at") {
        let time = moment::from_text(time.as_str().expect("text"));
        assert_eq!(reading.occurred_at, Some(time.expect("a time")), "{id}");
    }
}

#[test]
fn every_vector_gets_its_verdict() {
    let file: Value = serde_json::from_str(include_str!("../../fixtures/vectors.json")).expect("JSON");
    let vectors = file["vectors"].as_array().expect("a list");
    assert!(!vectors.is_empty());
    for vector in vectors {
        let id = text(vector, "id");
        let verdict = judge(vector);
        assert_eq!(verdict.is_ok(), vector["expect"] == "valid", "{id}: {verdict:?}");
        match verdict {
            Ok(Verified::Genuine(genuine)) => {
                let readings = genuine.readings(&provider()).expect("readable");
                if let Some(items) = vector["extract"]["items"].as_array() {
                    assert_eq!(readings.len(), items.len(), "{id}");
                    readings.iter().zip(items).for_each(|(reading, item)| check_reading(id, reading, item));
                }
            }
            Ok(Verified::Handshake(answer)) => {
                assert_eq!(vector["expect_response"]["status"], answer.status.as_u16(), "{id}");
                assert_eq!(answer.body, text(&vector["expect_response"], "body"), "{id}");
            }
            Err(refusal) => {
                let is_handshake = vector["kind"] == "handshake";
                assert_eq!(is_handshake, refusal == Refusal::WrongVerifyToken, "{id}: {refusal}");
            }
        }
    }
}

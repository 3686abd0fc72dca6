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
    let held = vector["secrets"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let held = Secrets::new(held.map(|text| Secret::new(text).expect("not blank")).collect());
    let now = OffsetDateTime::from_unix_timestamp(vector["now"].as_i64().expect("a number")).expect("a time");
    verify(&Daily::new(&config), request(vector), &held, now)
}

fn check_reading(id: &str, reading: &Reading, expected: &Value) {
    assert_eq!(reading.event_id.as_deref(), expected["event_id"].as_str(), "{id}");
    assert_eq!(Some(reading.event_type.as_str()), expected["event_type"].as_str(), "{id}");
    assert_eq!(reading.account.as_deref(), expected["account"].as_str(), "{id}");
    let occurred_at = moment::from_text(&expected["occurred_at"].to_string()).expect("a time");
    assert_eq!(reading.occurred_at, Some(occurred_at), "{id}");
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
                assert_eq!(readings.len(), 1, "{id}");
                if let Some(expected) = vector.get("extract") {
                    check_reading(id, &readings[0], expected);
                }
            }
            Ok(Verified::Handshake(answer)) => {
                assert_eq!(vector["expect_response"]["status"], answer.status.as_u16(), "{id}");
            }
            Err(_) => assert_ne!(vector["kind"], "handshake", "{id}"),
        }
    }
}

use serde_json::Value;

use super::*;

#[test]
fn the_vectors_agree() {
    let file: Value = serde_json::from_str(include_str!("../../fixtures/vectors.json")).expect("JSON");
    for vector in file["vectors"].as_array().expect("an array") {
        check(vector);
    }
}

fn check(vector: &Value) {
    let id = &vector["id"];
    let config: Config = serde_json::from_value(vector["config"].clone()).expect("settings");
    let secrets = texts(&vector["secrets"]).map(|text| Secret::new(text).expect("not blank")).collect();
    let now = OffsetDateTime::from_unix_timestamp(vector["now"].as_i64().expect("seconds")).expect("a time");
    let provider = Twilio::new(&config);
    match verify(&provider, request_of(vector), &Secrets::new(secrets), now) {
        Ok(Verified::Genuine(genuine)) => {
            assert_eq!(vector["expect"], "valid", "{id}");
            let readings = genuine.readings(&provider).expect("readable");
            assert!(!readings.is_empty(), "{id}");
            compare(&vector["extract"], &readings, id);
        }
        other => assert_eq!(vector["expect"], "invalid", "{id}: {other:?}"),
    }
}

fn texts(array: &Value) -> impl Iterator<Item = &str> {
    array.as_array().into_iter().flatten().map(|text| text.as_str().expect("text"))
}

fn request_of(vector: &Value) -> Request {
    let text = |name: &str| vector[name].as_str().expect("text").to_owned();
    let mut headers = HeaderMap::new();
    for pair in vector["headers"].as_array().expect("an array") {
        let [name, value] = [0, 1].map(|index| pair[index].as_str().expect("text"));
        headers.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
    }
    Request { method: text("method").parse().expect("a method"), url: text("url"), headers, body: text("body").into() }
}

fn compare(extract: &Value, readings: &[Reading], id: &Value) {
    let items = match &extract["items"] {
        Value::Array(items) => items.as_slice(),
        _ if extract.is_null() => return,
        _ => std::slice::from_ref(extract),
    };
    assert_eq!(items.len(), readings.len(), "{id}");
    for (item, reading) in items.iter().zip(readings) {
        for (name, expected) in item.as_object().expect("an object") {
            let found = match name.as_str() {
                "event_id" => reading.event_id.clone(),
                "event_type" => Some(reading.event_type.clone()),
                "account" => reading.account.clone(),
                "object_id" => reading.object_id.clone(),
                "occurred_at" => reading.occurred_at.map(|time| time.unix_timestamp().to_string()),
                _ => panic!("{id}: `{name}` is unknown"),
            };
            assert_eq!(found.as_deref(), expected.as_str(), "{id}: {name}");
        }
    }
}

//! Requests signed by the providers' own packages: what they sign is accepted, what is changed after it is refused.

use std::process::Command;

use hookfast_harness::{Database, Ended, Gateway};
use serde_json::Value;

use crate::patient;

const SIGN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/e2e/sign.py");

/// A source of each, with secrets as the providers write them.
const SOURCES: &str = r#"
[sources.twilio]
provider = "twilio"
secrets = ["0123456789abcdef0123456789abcdef"]
[sources.standardwebhooks]
provider = "standardwebhooks"
secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
[sources.slack]
provider = "slack"
secrets = ["8f742231b10e8888abcd99yyyzzz85a5"]
"#;

fn start() -> Gateway {
    patient(Database::Sqlite).ingest("public_url = \"https://hooks.example.com\"").sections(SOURCES).start()
}

/// What the package called `package` makes of an event.
fn signed(package: &str, secret: &str) -> Value {
    let python = std::env::var("TEST_SDK_PYTHON").expect("run the tests with `tests/run`, which installs the packages");
    let url = format!("https://hooks.example.com/webhooks/{}", package.trim_end_matches("-json"));
    let ended = Ended::of(Command::new(python).args([SIGN, package, secret, &url]));
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.json()
}

fn send(gateway: &Gateway, request: &Value, body: &str) -> u16 {
    let headers = request["headers"].as_object().unwrap();
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {}\r\n", value.as_str().unwrap())).collect();
    let path = request["url"].as_str().unwrap().trim_start_matches("https://hooks.example.com");
    let head = format!("POST {path} HTTP/1.1\r\nhost: internal\r\n{headers}content-length: {}\r\n\r\n", body.len());
    gateway.client().raw([head.as_bytes(), body.as_bytes()].concat().as_slice()).unwrap().status
}

fn accepted_and_tampered_refused(package: &str, secret: &str, event_type: &str) {
    let gateway = start();
    let request = signed(package, secret);
    let body = request["body"].as_str().unwrap();
    let tampered = body.replacen("2599", "2598", 1);
    assert_ne!(tampered, body, "there is something to change in {body}");
    assert_eq!(send(&gateway, &request, &tampered), 401);
    assert_eq!(send(&gateway, &signed(package, &secret.replacen('a', "b", 1)), body), 401);
    assert_eq!(gateway.events().len(), 0);
    assert_eq!(send(&gateway, &request, body), 200);
    let events = gateway.events();
    assert_eq!(events.iter().map(|event| event.event_type.as_str()).collect::<Vec<_>>(), [event_type]);
}

#[test]
fn stripe() {
    accepted_and_tampered_refused("stripe", hookfast_harness::SECRET, "invoice.paid");
}

#[test]
fn twilio_form() {
    accepted_and_tampered_refused("twilio", "0123456789abcdef0123456789abcdef", "message.received");
}

#[test]
fn twilio_json() {
    accepted_and_tampered_refused(
        "twilio-json",
        "0123456789abcdef0123456789abcdef",
        "com.twilio.messaging.message.sent",
    );
}

#[test]
fn standardwebhooks() {
    accepted_and_tampered_refused("standardwebhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "invoice.paid");
}

#[test]
fn slack() {
    accepted_and_tampered_refused("slack", "8f742231b10e8888abcd99yyyzzz85a5", "app_mention");
}

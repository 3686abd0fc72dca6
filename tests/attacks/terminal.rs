//! Hostile text in what the commands print beside events: dead letters, files of vectors, verdicts on a request.

use std::fs;
use std::path::Path;

use hookfast_harness::{SECRET, hookfast};
use serde_json::json;

use super::logs::{NASTY, deceives};
use super::{BINARY, assert_serves, gateway, now, printed, run, signature_of, signed_bytes};

/// Text that would be a line of its own.
const FORGED: &str = "x\nFORGED";

fn nasty() -> impl Iterator<Item = &'static str> {
    NASTY.into_iter().chain([FORGED])
}

/// Nothing that a terminal obeys or hides, and no line that the text has made.
fn assert_harmless(text: &str) {
    assert!(!text.chars().any(|character| character != '\n' && deceives(character)), "{text:?}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("FORGED")), "{text}");
}

#[test]
fn case_76_dead_letters_do_not_deceive_a_terminal() {
    let gateway = gateway();
    for (number, text) in nasty().enumerate() {
        let event = json!({"id": format!("evt_{number}{text}"), "type": text, "account": text, "created": 1});
        assert_eq!(gateway.client().send(&signed_bytes(event.to_string().as_bytes())).unwrap().status, 200);
    }
    // As a handler does that puts what it was sent into the message of its failure.
    for (text, event) in nasty().zip(gateway.events()) {
        let (text, id) = (text.replace(['\'', '\0'], ""), event.id.0.simple());
        let job = format!("event_id = x'{id}'");
        gateway.sql(&format!(
            "UPDATE jobs SET state = 'dead_letter', reason = 'refused', attempts = 1, finished_at = 1 WHERE {job};
             INSERT INTO attempts (event_id, handler, number, started_at, duration_us, failure, message, worker)
             VALUES (x'{id}', 'ledger', 1, 1, 1, 'refused', '{text}', '{text}')"
        ));
    }
    let listed = run(gateway.folder(), &["dead-letters", "list", "--limit", "100"], &[]);
    assert!(printed(&listed).contains("11 of 11 dead letters"), "{}", printed(&listed));
    for form in [&[][..], &["--json"]] {
        assert_harmless(&printed(&run(gateway.folder(), &[&["dead-letters", "list"], form].concat(), &[])));
        for event in gateway.events() {
            let id = event.id.to_string();
            let shown = run(gateway.folder(), &[&["dead-letters", "show", &id], form].concat(), &[]);
            assert!(shown.status.success());
            assert_harmless(&printed(&shown));
        }
    }
    assert_serves(&gateway);
}

/// A file of vectors in which every text is this one.
fn vectors(text: &str, provider: &str, expect: &str) -> String {
    let vector = json!({
        "id": text, "name": text, "level": text, "secrets": [text, SECRET], "method": "POST", "url": text,
        "headers": [["stripe-signature", text]], "body": text, "now": 0, "expect": expect,
        "extract": {"event_type": text},
        "expect_response": {"status": 299, "body": text, "content_type": text},
    });
    json!({"provider": provider, "vectors": [vector]}).to_string()
}

fn verify(folder: &Path, content: &str) {
    let file = folder.join("vectors.json");
    fs::write(&file, content).unwrap();
    for form in [&[][..], &["--json"]] {
        let arguments = [&["verify", "--vectors", "vectors.json"], form].concat();
        let output = hookfast(BINARY, folder).args(arguments).output().unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{}", printed(&output));
        assert_harmless(&printed(&output));
    }
}

#[test]
fn case_76_files_of_vectors_do_not_deceive_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for text in nasty() {
        verify(folder.path(), &vectors(text, "stripe", "valid"));
        verify(folder.path(), &vectors(text, text, "valid"));
        verify(folder.path(), &vectors(text, "stripe", text));
        verify(folder.path(), &json!({"provider": "stripe", "vectors": text}).to_string());
        verify(folder.path(), text);
    }
}

#[test]
fn case_76_verdicts_do_not_deceive_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    for text in nasty() {
        let readable = json!({"id": text, "type": text, "account": text, "created": 1}).to_string();
        for body in [readable, text.to_owned()] {
            fs::write(folder.path().join("body"), &body).unwrap();
            let time = now().to_string();
            let header = format!("stripe-signature: t={time},v1={}", signature_of(SECRET, &time, body.as_bytes()));
            for form in [&[][..], &["--json"]] {
                let request = ["verify", "--provider", "stripe", "--secret", SECRET, "--header", &header];
                let output = run(folder.path(), &[&request[..], &["--body-file", "body"], form].concat(), &[]);
                assert!(output.status.success(), "{}", printed(&output));
                assert_harmless(&printed(&output));
            }
        }
    }
}

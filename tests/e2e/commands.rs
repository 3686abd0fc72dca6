//! What operators type.

use std::fs;

use hookfast_harness::{Database, sample};
use serde_json::Value;

use crate::{patient, setup};

fn events_are_listed_newest_first(database: Database) {
    let gateway = patient(database).start();
    let empty = gateway.command(&["events", "list"]);
    assert_eq!((empty.code, empty.output.starts_with("No events yet.")), (0, true));
    for serial in [1, 2, 1] {
        assert_eq!(gateway.client().send(&sample(serial)).unwrap().status, 200);
    }
    let table = gateway.command(&["events", "list"]);
    let lines: Vec<_> = table.output.lines().collect();
    assert_eq!((table.code, lines.len()), (0, 3));
    assert!(lines[0].starts_with("ID ") && lines[1].contains(" 1x ") && lines[2].contains(" 2x "), "{lines:#?}");

    let json = gateway.command(&["events", "list", "--json", "--limit", "1"]).json();
    assert_eq!((&json["dedupe_key"], &json["job_count"]), (&"evt_sample_2".into(), &1.into()));
    assert_eq!(json["id"], gateway.events()[0].id.to_string());
}

fn an_event_is_shown_for_people_for_machines_and_byte_for_byte(database: Database) {
    let gateway = patient(database).start();
    let request = sample(1);
    assert_eq!(gateway.client().send(&request).unwrap().status, 200);
    let event = gateway.events().remove(0);
    let id = event.id.to_string();

    let shown = gateway.command(&["events", "show", &id]);
    assert_eq!(shown.code, 0);
    for part in
        ["evt_sample_1", "ledger: pending after 0 attempts", "POST http://", "host: hooks.example.com", "127.0.0.1"]
    {
        assert!(shown.output.contains(part), "{part}: {}", shown.output);
    }
    assert_eq!(gateway.command(&["events", "show", &id, "--raw"]).output.as_bytes(), request.body);

    let json = gateway.command(&["events", "show", &id, "--json"]).json();
    assert_eq!((json["type"].as_str(), json["method"].as_str()), (Some("invoice.paid"), Some("POST")));
    assert_eq!((&json["jobs"][0]["handler"], &json["jobs"][0]["state"]), (&"ledger".into(), &"pending".into()));
    let signature = request.headers["stripe-signature"].to_str().unwrap();
    assert!(json["headers"].as_array().unwrap().contains(&Value::from(vec!["stripe-signature", signature])));
    assert!(json["body_base64"].as_str().is_some_and(|body| !body.is_empty()));
}

fn an_event_that_does_not_exist_is_said_so(database: Database) {
    let gateway = patient(database).start();
    let ended = gateway.command(&["events", "show", "01890000-0000-7000-8000-000000000000"]);
    assert_eq!(ended.code, 3);
    assert!(ended.errors.contains("there is no event 01890000-0000-7000-8000-000000000000"), "{}", ended.errors);
}

on_both! {
    events_are_listed_newest_first
    an_event_is_shown_for_people_for_machines_and_byte_for_byte
    an_event_that_does_not_exist_is_said_so
}

#[test]
fn a_server_that_does_not_answer_has_a_code_of_its_own() {
    let ended = setup(Database::Sqlite).store("postgres://app@127.0.0.1:1/events").command(&["events", "list"]);
    assert_eq!(ended.code, 5, "{}", ended.errors);
}

#[test]
fn a_good_configuration_is_called_so() {
    let setup = setup(Database::Sqlite);
    let ended = setup.command(&["config", "check"]);
    let said = "The configuration is fine. Sources: 1. Handlers: 1.\n";
    assert_eq!((ended.code, ended.output.as_str(), ended.errors.as_str()), (0, said, ""));
    let json = setup.command(&["config", "check", "--json"]).json();
    assert_eq!(json, serde_json::json!({"ok": true, "problems": []}));
    assert!(!setup.folder().join("hookfast.db").exists(), "a check changes nothing");
}

#[test]
fn every_value_is_shown_with_where_it_comes_from_and_no_secret() {
    let setup = setup(Database::Sqlite).variable("HOOKFAST_WORK__THREADS", "3");
    let ended = setup.command(&["config", "show"]);
    assert_eq!(ended.code, 0, "{}", ended.errors);
    let line = |key: &str| ended.output.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap_or_default();
    assert!(line("work.threads").ends_with("# the variable HOOKFAST_WORK__THREADS"), "{}", ended.output);
    assert!(line("work.lease").starts_with("work.lease = \"30s\"") && line("work.lease").ends_with("# default"));
    assert!(line("sources.stripe.secrets").contains("[\"(redacted)\"]"), "{}", ended.output);
    assert!(line("sources.stripe.provider").contains("# hookfast.toml:"), "{}", ended.output);
    let json = setup.command(&["config", "show", "--json"]);
    let threads =
        serde_json::json!({"key": "work.threads", "value": 3, "origin": "the variable HOOKFAST_WORK__THREADS"});
    let is_threads = |line: &str| serde_json::from_str::<Value>(line).unwrap() == threads;
    assert!(json.output.lines().any(is_threads), "{}", json.output);
}

#[test]
fn problems_of_a_configuration_are_also_said_to_machines() {
    let setup = setup(Database::Sqlite).variable("HOOKFAST_INGEST__LISTEN", "nowhere");
    let ended = setup.command(&["config", "check", "--json"]);
    assert_eq!(ended.code, 2);
    let problems = ended.json()["problems"].clone();
    assert_eq!(problems[0]["origin"], "the variable HOOKFAST_INGEST__LISTEN");
    assert_eq!((problems[0]["key"].as_str(), problems.as_array().map(Vec::len)), (Some("ingest.listen"), Some(1)));
}

#[test]
fn the_file_can_be_named() {
    let setup = setup(Database::Sqlite);
    fs::write(setup.folder().join("other.toml"), "[ingest]\nlisten = 1\n").unwrap();
    for ended in [
        setup.command(&["config", "check", "--config", "other.toml"]),
        setup.variable("HOOKFAST_CONFIG", "other.toml").command(&["config", "check"]),
    ] {
        assert_eq!(ended.code, 2);
        assert!(ended.errors.contains("other.toml:2: `ingest.listen`"), "{}", ended.errors);
    }
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let ended = setup(Database::Sqlite).command(&["config", "check", "--config", "missing.toml"]);
    assert_eq!(ended.code, 2);
    assert!(ended.errors.contains("missing.toml: cannot be read"), "{}", ended.errors);
}

/// As in `hookfast events list | head`: no panic, no complaint.
#[test]
fn a_closed_output_is_no_error() {
    let gateway = patient(Database::Sqlite).start();
    let listing = format!("{} events list | true", env!("CARGO_BIN_EXE_hookfast"));
    let ended = std::process::Command::new("sh").args(["-c", &listing]).current_dir(gateway.folder()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
}

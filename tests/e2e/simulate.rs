//! `hookfast simulate` against `hookfast serve`, for every provider there is.

use hookfast_harness::{Database, Ended, Gateway, eventually};
use serde_json::Value;

use crate::setup;

/// Those of whose proof the body is no part.
const UNPROTECTED_BODY: [&str; 3] = ["garmin", "gitlab", "mailgun"];

fn development() -> Gateway {
    setup(Database::Sqlite).without_config().variable("HOOKFAST_INGEST__ANSWER_DEADLINE", "20s").start()
}

fn simulate(gateway: &Gateway, arguments: &[&str]) -> Ended {
    let url = format!("http://{}", gateway.ingest);
    gateway.command(&[&["simulate", "--gateway", &url], arguments].concat())
}

fn providers(gateway: &Gateway) -> Vec<String> {
    let listed = gateway.command(&["providers", "--json"]);
    let name = |line: &str| serde_json::from_str::<Value>(line).unwrap()["name"].as_str().unwrap().to_owned();
    listed.output.lines().map(name).collect()
}

#[test]
fn every_provider_gets_only_2xx_one_event_for_each_and_its_duplicates_counted() {
    let gateway = development();
    let providers = providers(&gateway);
    assert!(providers.len() >= 28, "{providers:?}");
    for name in &providers {
        let arguments =
            [name, "--count", "12", "--duplicates", "25%", "--connections", "3", "--out-of-order", "--json"];
        let ended = simulate(&gateway, &arguments);
        assert_eq!(ended.code, 0, "{name}: {ended:?}");
        let report = ended.json();
        assert_eq!((&report["requests"], &report["accepted"]), (&15.into(), &15.into()), "{name}: {report}");
        let series = |series: &str| gateway.metric(&format!("{series}{{source=\"{name}\"}}"));
        let events = report["events"].as_f64().unwrap();
        assert!(events >= 12.0, "{name}: {report}");
        assert_eq!(series("hookfast_events_total"), events, "{name}");
        assert_eq!(series("hookfast_duplicates_total"), events / 4.0, "{name}");
        assert_eq!(series("hookfast_unreadable_total"), 0.0, "{name}");
    }
    let recorded = gateway.events();
    for name in &providers {
        let of_provider = recorded.iter().filter(|event| event.source == *name).count() as f64;
        assert_eq!(of_provider, gateway.metric(&format!("hookfast_events_total{{source=\"{name}\"}}")), "{name}");
    }
}

#[test]
fn every_kind_of_every_provider_is_taken() {
    let gateway = development();
    for name in providers(&gateway) {
        let unknown = simulate(&gateway, &[&name, "no such kind"]);
        assert_eq!(unknown.code, 2);
        let kinds = unknown.errors.split_once("there is: ").expect("the kinds are named").1.trim().to_owned();
        for kind in kinds.split(", ") {
            let ended = simulate(&gateway, &[&name, kind]);
            assert_eq!(ended.code, 0, "{name} {kind}: {ended:?}");
        }
    }
    assert!(!gateway.log().contains("unreadable"), "{}", gateway.log());
}

#[test]
fn tampered_requests_are_all_refused() {
    let gateway = development();
    for name in providers(&gateway).iter().filter(|name| !UNPROTECTED_BODY.contains(&name.as_str())) {
        let ended = simulate(&gateway, &[name, "--count", "3", "--tamper", "--json"]);
        assert_eq!((ended.code, &ended.json()["answers"]["401"]), (0, &3.into()), "{name}: {ended:?}");
    }
    assert_eq!(gateway.events().len(), 0);
}

#[test]
fn stale_requests_are_refused_where_the_time_is_signed() {
    let gateway = development();
    for name in ["stripe", "slack", "standardwebhooks", "paddle", "linear", "mailgun"] {
        let ended = simulate(&gateway, &[name, "--stale", "--json"]);
        assert_eq!(ended.json()["answers"]["401"], 1, "{name}: {ended:?}");
    }
    assert_eq!(gateway.events().len(), 0);
    assert!(gateway.log().contains("is 24 hours off"));
}

#[test]
fn challenges_are_answered_with_what_was_asked() {
    let gateway = development();
    let said = simulate(&gateway, &["strava", "challenge"]).output;
    assert!(said.contains("{\"hub.challenge\":\""), "{said}");
    let said = simulate(&gateway, &["whatsapp", "challenge"]).output;
    assert!(said.lines().any(|line| line.strip_prefix("said      ").is_some_and(|text| !text.is_empty())), "{said}");
    for source in ["strava", "whatsapp"] {
        let query = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=guessed";
        let request = format!("GET /webhooks/{source}?{query} HTTP/1.1\r\nhost: x\r\n\r\n");
        let answer = gateway.client().raw(request.as_bytes()).unwrap();
        assert_eq!(answer.status, 403);
        assert!(!answer.text().contains("1158201444"));
    }
    assert_eq!(gateway.events().len(), 0);
    eventually("both are counted", || gateway.metric("hookfast_handshakes_total{source=\"strava\"}") == 1.0);
}

#[test]
fn what_fails_for_a_while_is_sent_again() {
    let gateway = setup(Database::Sqlite).ingest("answer_deadline = \"300ms\"").start();
    let url = format!("http://{}", gateway.ingest);
    let hold = gateway.hold_writes();
    let report = std::thread::scope(|scope| {
        let simulated = scope.spawn(|| gateway.command(&["simulate", "stripe", "--gateway", &url, "--json"]));
        eventually("it was refused once", || {
            gateway.metric("hookfast_ingest_requests_total{source=\"stripe\",outcome=\"late\"}") >= 1.0
        });
        drop(hold);
        simulated.join().unwrap().json()
    });
    assert_eq!(report["accepted"], 1, "{report}");
    assert!(report["retries"].as_u64() >= Some(1), "{report}");
    assert_eq!(gateway.events().len(), 1);
}

#[test]
fn what_cannot_be_played_is_said_in_one_sentence() {
    let gateway = development();
    for (arguments, code, words) in [
        (&["nobody"][..], 2, "there is no provider `nobody`"),
        (&["stripe", "--source", "other"], 2, "no such source of the provider `stripe`"),
        (&["stripe", "--gateway", "ftp://x"], 2, "such as http://127.0.0.1:8080"),
        (&["stripe", "--duplicates", "many"], 2, "such as 10%"),
        (&["stripe", "--gateway", "http://127.0.0.1:1"], 5, "Is `hookfast serve` running"),
        (&["discord", "--signing-key", "00"], 2, "cannot be signed"),
    ] {
        let ended = gateway.command(&[&["simulate"], arguments].concat());
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.errors.contains(words), "{ended:?}");
    }
}

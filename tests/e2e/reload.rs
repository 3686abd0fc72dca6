//! Rotating secrets without a restart: SIGHUP.

use std::fs;

use hookfast_harness::{Database, Gateway, SECRET, Signal, eventually, sample};
use hookfast_stripe::sign;
use hookfast_webhook::{Request, Secret};
use time::OffsetDateTime;

use crate::database::get;
use crate::patient;

const NEW: &str = "whsec_rotated_in";

fn signed_with(secret: &str, serial: u64) -> Request {
    let body = String::from_utf8(sample(serial).body.to_vec()).unwrap();
    let now = OffsetDateTime::now_utc().unix_timestamp();
    sign("http://hooks.example.com/webhooks/stripe", &Secret::new(secret).unwrap(), now, body)
}

fn status(gateway: &Gateway, secret: &str, serial: u64) -> u16 {
    gateway.client().send(&signed_with(secret, serial)).unwrap().status
}

/// A gateway whose secrets of `stripe` stand in a file.
fn start() -> Gateway {
    let setup = patient(Database::Sqlite);
    let file = setup.folder().join("secret");
    fs::write(&file, SECRET).unwrap();
    let secrets = format!("[sources.rotating]\nprovider = \"stripe\"\nsecrets = [\"file:{}\"]", file.display());
    setup.sections(&secrets).start()
}

fn change_config(gateway: &Gateway, from: &str, to: &str) {
    let file = gateway.folder().join("hookfast.toml");
    let config = fs::read_to_string(&file).unwrap();
    assert!(config.contains(from), "{config}");
    fs::write(&file, config.replace(from, to)).unwrap();
}

fn reload(gateway: &Gateway, words: &str) {
    let before = gateway.log().matches(words).count();
    gateway.signal(Signal::Hangup);
    eventually("it says what became of the reload", || gateway.log().matches(words).count() > before);
}

#[test]
fn an_added_secret_counts_at_once_and_the_metric_shows_when_the_old_one_is_idle() {
    let gateway = start();
    assert_eq!((status(&gateway, SECRET, 1), status(&gateway, NEW, 2)), (200, 401));
    change_config(&gateway, &format!("secrets = [\"{SECRET}\"]"), &format!("secrets = [\"{NEW}\", \"{SECRET}\"]"));
    reload(&gateway, "the configuration was reloaded");
    assert_eq!((status(&gateway, NEW, 2), status(&gateway, SECRET, 3)), (200, 200));
    let matches =
        |number: u8| gateway.metric(&format!("hookfast_secret_matches_total{{source=\"stripe\",secret=\"{number}\"}}"));
    // The first counted the old secret before the reload, and the new one after it.
    assert_eq!((matches(1), matches(2)), (2.0, 1.0));
    change_config(&gateway, &format!(", \"{SECRET}\"]"), "]");
    reload(&gateway, "the configuration was reloaded");
    assert_eq!((status(&gateway, NEW, 4), status(&gateway, SECRET, 5)), (200, 401));
    assert_eq!(gateway.events().len(), 4);
}

#[test]
fn a_file_of_secrets_is_read_again() {
    let gateway = start();
    let to_rotating = |request: Request| Request { url: request.url.replace("/stripe", "/rotating"), ..request };
    let status =
        |secret: &str, serial| gateway.client().send(&to_rotating(signed_with(secret, serial))).unwrap().status;
    assert_eq!((status(SECRET, 1), status(NEW, 2)), (200, 401));
    fs::write(gateway.folder().join("secret"), NEW).unwrap();
    assert_eq!(status(NEW, 2), 401, "nothing changes before the signal");
    reload(&gateway, "the configuration was reloaded");
    assert_eq!((status(NEW, 2), status(SECRET, 3)), (200, 401));
    assert!(!gateway.log().contains("take effect at the next start"), "nothing else was changed");
}

#[test]
fn a_bad_configuration_is_refused_as_a_whole() {
    let gateway = start();
    change_config(&gateway, &format!("secrets = [\"{SECRET}\"]"), &format!("secrets = [\"{NEW}\"]\nrat = 1"));
    reload(&gateway, "everything stays as it was");
    assert!(gateway.log().contains("`sources.stripe.rat`: there is no such key"), "{}", gateway.log());
    assert_eq!((status(&gateway, SECRET, 1), status(&gateway, NEW, 2)), (200, 401));
}

#[test]
fn a_change_that_needs_a_restart_is_named_in_the_log() {
    let gateway = start();
    change_config(&gateway, "[ingest]\n", "[ingest]\nqueue_requests = 7\n");
    reload(&gateway, "take effect at the next start: ingest.queue_requests");
    assert_eq!(status(&gateway, SECRET, 1), 200);
}

#[test]
fn requests_under_way_finish_while_the_configuration_changes() {
    let gateway = start();
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..4)
            .map(|thread| {
                let gateway = &gateway;
                scope.spawn(move || (0..50).all(|number| status(gateway, SECRET, thread * 1000 + number) == 200))
            })
            .collect();
        for _ in 0..5 {
            reload(&gateway, "the configuration was reloaded");
        }
        assert!(senders.into_iter().all(|sender| sender.join().unwrap()));
    });
    assert_eq!(gateway.events().len(), 200);
}

/// It would accept what is signed with development secrets, and nothing else.
#[test]
fn a_configured_gateway_without_its_file_is_not_one_for_development() {
    let gateway = start();
    fs::remove_file(gateway.folder().join("hookfast.toml")).unwrap();
    reload(&gateway, "everything stays as it was");
    assert_eq!((status(&gateway, SECRET, 1), status(&gateway, NEW, 2)), (200, 401));
    assert!(!gateway.folder().join("hookfast.dev-secrets.toml").exists());
}

#[test]
fn a_handler_that_a_reload_adds_runs_and_the_jobs_of_a_removed_one_are_named() {
    let old = "[handlers.old]\nrun = \"log\"\npaused = true\n";
    let gateway = patient(Database::Sqlite).sections(old).start();
    assert_eq!(status(&gateway, SECRET, 1), 200);
    change_config(&gateway, old, "[handlers.new]\nrun = \"log\"\n");
    reload(&gateway, "the configuration was reloaded");
    assert_eq!(status(&gateway, SECRET, 2), 200);
    let line = "jobs of `old`, which is not in the configuration: 1 pending";
    eventually("the jobs of the removed one are named", || get(&gateway, "/readyz?verbose").text().contains(line));
    eventually("the new one runs", || {
        gateway.query("SELECT count(*) FROM jobs WHERE handler = 'new' AND state = 'succeeded'") == [["1"]]
    });
}

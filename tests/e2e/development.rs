//! The first five minutes: an empty folder, no configuration.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use hookfast_harness::{Database, Ended, Gateway, Setup, Signal, eventually};

use crate::setup;

fn development() -> Setup {
    setup(Database::Sqlite).without_config().variable("HOOKFAST_INGEST__ANSWER_DEADLINE", "20s")
}

fn secrets_file(gateway: &Gateway) -> String {
    fs::read_to_string(gateway.folder().join("hookfast.dev-secrets.toml")).unwrap()
}

#[test]
fn the_printed_command_is_accepted_and_the_printed_advice_shows_the_event() {
    let gateway = development().start();
    eventually("it has said everything", || gateway.printed().contains("Then look: hookfast events list"));
    let printed = gateway.printed();
    assert!(printed.contains(&format!("  ingest  http://{}/webhooks/{{source}}", gateway.ingest)), "{printed}");
    assert!(printed.contains(&format!("  admin   http://{}/metrics", gateway.admin)), "{printed}");
    assert!(printed.contains("  store   sqlite:hookfast.db"), "{printed}");

    let curl = printed.lines().find(|line| line.trim().starts_with("curl ")).expect("there is a command to try");
    let ended = Ended::of(Command::new("sh").args(["-c", curl]));
    assert!(ended.output.starts_with("HTTP/1.1 200 OK"), "{ended:?}");
    let listed = gateway.command(&["events", "list"]);
    assert!(listed.code == 0 && listed.output.contains("invoice.paid"), "{listed:?}");
}

#[test]
fn that_no_handler_is_configured_is_said_at_the_start() {
    let gateway = development().start();
    assert!(gateway.log().contains("no handler is configured"), "{}", gateway.log());
    let with_one = development().variable("HOOKFAST_HANDLERS__AUDIT__RUN", "log").start();
    assert!(!with_one.log().contains("no handler is configured"), "{}", with_one.log());
}

#[test]
fn secrets_are_made_once_and_for_their_owner_alone() {
    let mut gateway = development().start();
    let secrets = secrets_file(&gateway);
    let secret = secrets.lines().find_map(|line| line.strip_prefix("stripe = \"")).unwrap().trim_end_matches('"');
    assert!(secret.starts_with("whsec_") && secret.len() == 70, "{secrets}");
    let mode = fs::metadata(gateway.folder().join("hookfast.dev-secrets.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!gateway.log().contains(secret) && !gateway.printed().contains(secret));
    assert!(gateway.log().contains("development secret"));

    gateway.signal(Signal::Term);
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(secrets_file(&gateway.restart()), secrets);
}

#[test]
fn no_other_command_makes_secrets_or_a_database() {
    let setup = development();
    assert_eq!(setup.command(&["config", "check"]).code, 0);
    let ended = setup.command(&["simulate", "stripe"]);
    assert!(ended.code == 1 && ended.errors.contains("start `hookfast serve` here first"), "{ended:?}");
    let ended = setup.command(&["events", "list"]);
    assert_eq!(ended.code, 3);
    assert_eq!(ended.errors, "error: there is no database hookfast.db yet. `hookfast serve` makes one\n");
    assert_eq!(fs::read_dir(setup.folder()).unwrap().count(), 0);
}

#[test]
fn a_source_that_has_its_secret_from_a_variable_needs_no_development_secret() {
    let gateway = development().variable("HOOKFAST_SOURCES__STRIPE__SECRETS", "[\"whsec_own\"]").start();
    let secrets = secrets_file(&gateway);
    assert!(!secrets.contains("stripe = ") && secrets.contains("github = "), "{secrets}");
}

#[test]
fn a_damaged_file_of_secrets_is_said_and_left_alone() {
    let setup = development();
    let file = setup.folder().join("hookfast.dev-secrets.toml");
    for (content, problem) in [("stripe = ", "is damaged"), ("stripe = \" \"", "`stripe` is no secret")] {
        setup.write_private("hookfast.dev-secrets.toml", content);
        let ended = setup.start_in_vain();
        assert_eq!(ended.code, 1);
        assert!(ended.errors.contains(problem), "{}", ended.errors);
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
    }
}

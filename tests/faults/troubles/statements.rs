//! A handler's statement that takes too long, or that the driver cannot make sense of, is that handler's failure and no
//! outage of the store.

use hookfast_harness::{Database, Gateway, eventually_within};

use super::{SOON, failures, send, setup};

/// Longer than a statement may take.
const TOO_LONG: u32 = 6000;

fn gateway(database: Database, retry: &str) -> Gateway {
    setup(database).handlers(&format!("[handlers.actor]\nretry = {retry}")).start()
}

fn wait_for_dead_letters(gateway: &Gateway, reason: &str, expected: usize) {
    let what = format!("{expected} dead letters of kind {reason}");
    eventually_within(SOON * 2, &what, || {
        gateway.count(&format!("jobs WHERE state = 'dead_letter' AND reason = '{reason}'")) == expected
    });
}

fn dies_after_its_attempts(act: &str, reason: &str) {
    dies_after_its_attempts_on(Database::Postgres, act, reason);
}

fn dies_after_its_attempts_on(database: Database, act: &str, reason: &str) {
    let gateway = gateway(database, r#"["1s", "1s"]"#);
    send(&gateway, "invoice.paid", "evt_1", act);
    wait_for_dead_letters(&gateway, reason, 1);
    assert_eq!((failures(&gateway, reason), gateway.count("attempts")), (3, 3), "each attempt is the handler's own");
    assert_eq!(gateway.count("done"), 0);
}

#[test]
fn a_statement_that_takes_too_long_is_a_dead_letter_in_the_end() {
    dies_after_its_attempts(&format!(r#"{{"statement_ms":{TOO_LONG}}}"#), "timeout");
}

#[test]
fn a_shared_statement_that_takes_too_long_is_a_dead_letter_in_the_end() {
    dies_after_its_attempts(&format!(r#"{{"write":true,"statement_ms":{TOO_LONG}}}"#), "timeout");
}

/// There is one writer for all, so a transaction may not last for longer than a statement.
#[test]
fn a_transaction_that_lasts_too_long_on_sqlite_is_a_dead_letter_in_the_end() {
    dies_after_its_attempts_on(Database::Sqlite, &format!(r#"{{"sleep_in_effect_ms":{TOO_LONG}}}"#), "timeout");
}

#[test]
fn a_fetch_without_columns_is_the_handlers_own_failure() {
    dies_after_its_attempts(r#"{"no_columns":true}"#, "internal");
}

/// The good ones share their commits with the bad ones.
#[test]
fn statements_that_take_too_long_cost_their_neighbours_no_run() {
    let gateway = gateway(Database::Postgres, r#"["1s"]"#);
    for number in 0..400 {
        if number % 100 == 50 {
            let act = format!(r#"{{"write":true,"statement_ms":{TOO_LONG}}}"#);
            send(&gateway, "invoice.paid", &format!("bad_{number}"), &act);
        }
        send(&gateway, "invoice.paid", &format!("good_{number}"), r#"{"write":true}"#);
    }
    wait_for_dead_letters(&gateway, "timeout", 4);
    let of_good = "JOIN events ON events.id = event_id WHERE dedupe_key LIKE 'good%'";
    eventually_within(SOON, "all good ones are done", || {
        gateway.count(&format!("jobs {of_good} AND state = 'succeeded'")) == 400
    });
    let failed = gateway.query(&format!("SELECT dedupe_key, failure FROM attempts {of_good} AND failure IS NOT NULL"));
    assert_eq!(failed, Vec::<Vec<String>>::new(), "no run of a good one was noted as failed");
    assert_eq!(gateway.count("done"), 400);
}

/// A trigger says what a server says that is shut down, but the server is there. Whether that is taken for an outage or for the
/// handler's own failure: it ends, and the others are done.
#[test]
fn an_error_that_looks_like_an_outage_is_a_dead_letter_in_the_end() {
    let gateway = setup(Database::Postgres)
        .handlers("[handlers.actor]\nretry = [\"1s\"]")
        .variable("HOOKFAST_WORK__INTERRUPTION_LIMIT", "3")
        .start();
    gateway.wait_for_table("done");
    gateway.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF NEW.event LIKE 'bad%' THEN RAISE EXCEPTION 'away' USING ERRCODE = '57P03'; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER refuse BEFORE INSERT ON done FOR EACH ROW EXECUTE FUNCTION refuse()",
    );
    for number in 0..3 {
        send(&gateway, "invoice.paid", &format!("good_{number}"), r#"{"write":true}"#);
        send(&gateway, "invoice.paid", &format!("bad_{number}"), r#"{"write":true}"#);
    }
    send(&gateway, "invoice.paid", "bad_alone", "{}");
    eventually_within(SOON * 2, "each ends", || gateway.count("jobs WHERE finished_at IS NULL") == 0);
    assert_eq!(gateway.count("jobs WHERE state = 'dead_letter'"), 4);
    assert_eq!(gateway.count("done WHERE event LIKE 'good%'"), 3);
}

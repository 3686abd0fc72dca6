//! Deploys, a store that stands still and a run that lasts are no crash: the job says that it was interrupted, and runs again.

use std::thread;
use std::time::Duration;

use hookfast_harness::{
    Database, Gateway, Link, PrivatePostgres, Proxy, Setup, Signal, eventually_within, fresh_database,
};

use super::{SOON, failures, nats, send, send_many, setup, tell, wait_for_jobs};

#[test]
fn deploys_are_no_crash_on_sqlite() {
    deploys_are_no_crash(setup(Database::Sqlite));
}

#[test]
fn deploys_are_no_crash_on_postgres_and_jetstream() {
    let nats = nats();
    deploys_are_no_crash(setup(Database::Postgres).queue(&nats.url()));
}

/// As many orderly restarts as crashes make a dead letter, each while the same job runs.
fn deploys_are_no_crash(setup: Setup) {
    let mut gateway = setup
        .handlers("[handlers.actor]\ndeadline = \"1h\"")
        .sections("[work]\nlease = \"5s\"\nshutdown_timeout = \"1s\"\n")
        .start();
    send(&gateway, "invoice.paid", "evt_1", r#"{"until_told":true}"#);
    for deploys in 0..3 {
        eventually_within(SOON, "it runs again", || {
            gateway.count("jobs WHERE state = 'processing'") == 1 && cut_short(&gateway) >= deploys
        });
        gateway = gateway.restart_in_order();
    }
    tell(&gateway);
    wait_for_jobs(&gateway, "actor", "succeeded", 1);
    assert_eq!(gateway.count("attempts WHERE failure IS NULL"), 1);
    assert_eq!((failures(&gateway, "interrupted"), failures(&gateway, "crash")), (3, 0));
    assert_eq!(gateway.count("jobs WHERE crashes = 0 AND attempts = 1"), 1, "it kept its budget");
    assert_eq!(gateway.count("done"), 1);
}

fn cut_short(gateway: &Gateway) -> usize {
    gateway.count("attempts WHERE failure IS NOT NULL")
}

/// As often as crashes make a dead letter, and longer than a lease each time.
#[test]
fn a_postgres_that_stands_still_is_no_crash() {
    const EACH_TIME: usize = 20;
    let postgres = PrivatePostgres::start(&[]);
    let mut gateway = setup(Database::Sqlite)
        .store(&postgres.database())
        .handlers("[handlers.actor]")
        .sections("[work]\nlease = \"4s\"\n")
        .start();
    let pid = gateway.pid();
    for time in 0..3 {
        let act = r#"{"sleep_ms":1500,"sleep_in_effect_ms":200,"sleep_after_ms":500}"#;
        send_many(&gateway, "invoice.paid", &format!("evt_{time}"), EACH_TIME, act);
        eventually_within(SOON, "jobs are on board", || gateway.count("jobs WHERE state = 'processing'") > 5);
        let frozen = postgres.freeze();
        // More than two leases: that it lasts is what this is about.
        thread::sleep(Duration::from_secs(9));
        drop(frozen);
        wait_for_jobs(&gateway, "actor", "succeeded", EACH_TIME * (time + 1));
    }
    assert!(gateway.is_running() && gateway.pid() == pid, "the process ran on");
    let counted = gateway.query("SELECT failure, count(*) FROM attempts GROUP BY 1 ORDER BY 1");
    assert_eq!((failures(&gateway, "crash"), failures(&gateway, "timeout")), (0, 0), "{counted:?}");
    assert_eq!(gateway.count("jobs WHERE crashes > 0 OR state <> 'succeeded'"), 0);
    assert_eq!(gateway.count("done"), EACH_TIME * 3);
}

/// The link is cut during the claim, so that its worker does not hear of it, and is whole again before the claim is
/// committed. The lease would last for an hour.
#[test]
fn a_claim_whose_answer_is_lost_is_handed_back() {
    const SLOW_CLAIMS: &str = "
        CREATE TABLE slow_claims (yes boolean);
        INSERT INTO slow_claims VALUES (true);
        CREATE FUNCTION slow_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF EXISTS (SELECT FROM slow_claims) THEN PERFORM pg_sleep(3); END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER slow_claim AFTER UPDATE ON jobs FOR EACH ROW
        WHEN (NEW.state = 'processing') EXECUTE FUNCTION slow_claim();";
    let store = fresh_database();
    let link = Proxy::to_server_of(&store);
    let receiver = setup(Database::Sqlite).store(&store).handlers("").role("receive", &[]).start();
    receiver.sql(SLOW_CLAIMS);
    let worker = setup(Database::Sqlite).store(&link.through(&store)).handlers("").role("work", &[]);
    let _worker = worker.sections("[work]\nlease = \"1h\"\n").start();
    send(&receiver, "invoice.paid", "evt_1", "{}");
    eventually_within(SOON, "it is being claimed", || {
        receiver.count("pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
    });
    link.set(Link::Cut);
    receiver.sql("DELETE FROM slow_claims");
    link.set(Link::Whole);
    wait_for_jobs(&receiver, "actor", "succeeded", 1);
    assert_eq!(receiver.count("jobs WHERE attempts = 1 AND crashes = 0 AND interruptions = 0"), 1);
    assert_eq!((receiver.count("attempts"), receiver.count("done")), (1, 1));
}

/// The store comes back in the middle of the shutdown, later than a worker waits for one statement.
#[test]
fn a_run_that_ends_while_the_store_is_away_is_settled_by_the_shutdown() {
    let store = fresh_database();
    let link = Proxy::to_server_of(&store);
    let receiver = setup(Database::Sqlite).store(&store).handlers("").role("receive", &[]).start();
    let worker = setup(Database::Sqlite).store(&link.through(&store)).handlers("").role("work", &[]);
    let mut worker = worker.sections("[work]\nlease = \"1h\"\n").start();
    send(&receiver, "invoice.paid", "evt_1", r#"{"sleep_ms":1000,"effects":0}"#);
    eventually_within(SOON, "it runs", || receiver.count("jobs WHERE state = 'processing'") == 1);
    link.set(Link::Cut);
    worker.signal(Signal::Term);
    thread::sleep(Duration::from_secs(7));
    assert!(worker.is_running(), "it waits for the store");
    link.set(Link::Whole);
    assert!(worker.wait().success());
    assert_eq!(receiver.count("jobs WHERE state = 'succeeded' AND attempts = 1 AND crashes = 0"), 1);
    assert_eq!(receiver.count("attempts"), 1);
}

/// Each effect holds the job's row while its renewal is due, and the sweeper looks in between.
#[test]
fn a_long_run_made_of_effects_keeps_its_lease() {
    let gateway = setup(Database::Postgres)
        .handlers("[handlers.actor]\ndeadline = \"1h\"")
        .sections("[work]\nlease = \"3s\"\nsweep_every = \"20ms\"\n")
        .start();
    let act = r#"{"effects":10,"sleep_in_effect_ms":1150,"sleep_between_ms":100}"#;
    send_many(&gateway, "invoice.paid", "evt", 4, act);
    wait_for_jobs(&gateway, "actor", "succeeded", 4);
    let failed = gateway.query("SELECT failure, message FROM attempts WHERE failure IS NOT NULL");
    assert_eq!(failed, Vec::<Vec<String>>::new(), "no run lost its lease");
    assert_eq!(gateway.count("done"), 40);
}

/// A dead worker's jobs run again after its leases, also where their messages wait to be acknowledged.
#[test]
fn jobs_of_a_killed_worker_run_again_after_its_lease_on_jetstream() {
    const LEASE: Duration = Duration::from_secs(12);
    let nats = nats();
    let mut gateway = setup(Database::Postgres)
        .queue(&nats.url())
        .handlers("[handlers.actor]\ndeadline = \"1h\"")
        .sections(&format!("[work]\nlease = \"{}s\"\n", LEASE.as_secs()))
        .start();
    send_many(&gateway, "invoice.paid", "evt", 5, r#"{"until_told":true}"#);
    wait_for_jobs(&gateway, "actor", "processing", 5);
    gateway.signal(Signal::Kill);
    gateway.wait();
    let killed = std::time::Instant::now();
    tell(&gateway);
    let gateway = gateway.restart();
    wait_for_jobs(&gateway, "actor", "succeeded", 5);
    let took = killed.elapsed();
    // A lease, a sweep and a few seconds; twice the lease is what messages that wait for themselves would take.
    assert!(took < LEASE * 3 / 2, "it took {took:?}");
    assert_eq!(failures(&gateway, "crash"), 5, "a kill is a crash");
}

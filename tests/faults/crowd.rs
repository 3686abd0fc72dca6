//! Experiments 21 and 22: very many jobs at once. They are copies of one event, written straight into the database.

use std::time::Duration;

use hookfast_harness::{Database, Gateway, NatsVersion, PrivateNats, Setup, TestEvent, eventually_within};

use crate::rig::{BINARY, unhurried};

/// A gateway on Postgres and JetStream, with a crowd before it.
struct Crowded {
    gateway: Gateway,
    nats: PrivateNats,
    jobs: usize,
}

impl Crowded {
    fn new(actor: &str, work: &str, act: &str, jobs: usize) -> Self {
        let nats = PrivateNats::start(NatsVersion::Current);
        let gateway = unhurried(Setup::new(BINARY, Database::Postgres))
            .queue(&nats.url())
            .handlers(&format!("[handlers.actor]\n{actor}"))
            .sections(work)
            .start();
        assert_eq!(TestEvent::new("evt_first", act).send_to(gateway.ingest).unwrap().status, 200);
        let crowded = Self { gateway, nats, jobs: jobs + 1 };
        crowded.invite(jobs);
        crowded
    }

    /// Copies the first event, and makes all jobs due at once.
    fn invite(&self, jobs: usize) {
        self.gateway.sql(&format!(
            "CREATE INDEX done_by_ordering ON done (ordering);
             CREATE TEMP SEQUENCE number;
             CREATE TEMP TABLE copies AS SELECT events.* FROM events, generate_series(1, {jobs});
             UPDATE copies SET id = gen_random_uuid(), dedupe_key = 'evt_' || nextval('number');
             UPDATE copies SET body = convert_to(replace(convert_from(body, 'UTF8'), 'evt_first', dedupe_key), 'UTF8');
             INSERT INTO events TABLE copies;
             INSERT INTO jobs (event_id, handler, due_at) SELECT id, 'actor', clock_timestamp() FROM copies;"
        ));
    }

    /// Lets the sweeper look at all jobs this many times.
    fn let_sweep(&self, rounds: usize) {
        eventually_within(Duration::from_secs(1800), "everybody was dispatched again and again", || {
            self.gateway.metric("hookfast_sweeper_dispatched_total") > (self.jobs * rounds) as f64
        });
    }

    /// Takes away that a job waits in the stream only once.
    fn let_messages_multiply(&self) {
        const STREAM: &str = "hookfast-hints-actor";
        let info = self.nats.ask(&format!("$JS.API.STREAM.INFO.{STREAM}"), &"".into());
        let mut config = info["config"].clone();
        config["max_msgs_per_subject"] = (-1).into();
        config["discard_new_per_subject"] = false.into();
        let answer = self.nats.ask(&format!("$JS.API.STREAM.UPDATE.{STREAM}"), &config);
        assert!(answer["error"].is_null(), "{answer}");
    }

    fn wait_for_the_end(&self) {
        eventually_within(Duration::from_secs(1800), "all jobs are finished", || {
            self.gateway.count("jobs WHERE finished_at IS NULL") == 0
        });
    }
}

/// The job that is served first keeps the only place, so that no other is.
fn without_a_worker(jobs: usize) -> Crowded {
    let work = "[work]\nsweep_every = \"100ms\"\ndispatch_again_after = \"500ms\"\n";
    Crowded::new("concurrency = 1\ndeadline = \"10h\"", work, r#"{"sleep_ms":36000000}"#, jobs)
}

/// Usually all jobs are looked at once a minute: these are ten minutes.
const ROUNDS: usize = 10;

#[test]
#[ignore = "nightly: 100,000 jobs are dispatched ten times"]
fn a_hundred_thousand_jobs_without_a_worker_are_a_hundred_thousand_messages() {
    let crowded = without_a_worker(100_000);
    crowded.let_sweep(ROUNDS);
    let messages = crowded.nats.messages();
    // Those that were claimed may have been acknowledged.
    assert!((99_900..=100_001).contains(&messages), "{messages} messages");
}

#[test]
fn without_the_limit_of_one_message_for_a_job_a_backlog_multiplies() {
    let crowded = without_a_worker(100);
    crowded.let_messages_multiply();
    crowded.let_sweep(ROUNDS);
    assert!(crowded.nats.messages() > 200, "only {} messages", crowded.nats.messages());
}

/// More than this at once, and the other side breaks down.
const FRAGILE: &str = r#"{"fragile":8,"key":"evt_first","sleep_after_ms":5}"#;

#[test]
#[ignore = "nightly: 50,000 jobs are done"]
fn a_herd_does_not_trample_a_fragile_handler() {
    let crowded = Crowded::new("concurrency = 8\nretry = [\"1s\"]", "", FRAGILE, 50_000);
    crowded.wait_for_the_end();
    assert_eq!(crowded.gateway.count("jobs WHERE state = 'succeeded'"), 50_001);
    assert_eq!(crowded.gateway.count("attempts WHERE failure IS NOT NULL"), 0, "never too many at once");
    assert_eq!(
        (crowded.gateway.count("done"), crowded.gateway.count("(SELECT DISTINCT event FROM done) AS them")),
        (50_001, 50_001)
    );
}

#[test]
fn without_a_limit_of_its_own_a_fragile_handler_is_trampled() {
    let crowded = Crowded::new("concurrency = 32\nretry = [\"1s\"]", "", FRAGILE, 500);
    crowded.wait_for_the_end();
    assert!(crowded.gateway.count("attempts WHERE failure IS NOT NULL") > 0, "it stood it");
}

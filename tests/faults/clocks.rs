//! Experiment 25: workers whose clocks are wrong, and jump. Leases, due times and the order of events go by the store's clock.

use std::time::Duration;

use hookfast_harness::{
    Database, NatsVersion, PrivateNats, PrivatePostgres, Setup, TO_THE_END, TestEvent, WrongClock, eventually,
    eventually_within,
};

use crate::rig::{BINARY, apart, unhurried};

const WRONG_BY_S: i64 = 600;
const EVENTS: usize = 200;
const KEYS: usize = 10;

/// Leases that are not lost because the machine is busy, and yet are shorter than some jobs.
const SETTINGS: &str = "[work]\nlease = \"10s\"\nsweep_every = \"200ms\"\ndispatch_again_after = \"3s\"\n";
const LONGER_THAN_THE_LEASE: &str = r#"{"sleep_ms":13000}"#;

const RETRY_AFTER_S: u32 = 2;
const HANDLER: &str = "ordering = \"computed\"\njitter = 0.0\nretry = [\"2s\", \"2s\"]";

fn with_clock(setup: Setup, clock: &WrongClock) -> Setup {
    clock.variables().iter().fold(setup, |setup, (name, value)| setup.variable(name, value))
}

#[test]
#[ignore = "nightly: waits for leases"]
fn workers_with_wrong_clocks_keep_leases_due_times_and_order() {
    let clocks = [WRONG_BY_S, -WRONG_BY_S, 0].map(WrongClock::new);
    let rig = apart(PrivateNats::start(NatsVersion::Current), SETTINGS, HANDLER, "");
    let _workers = clocks.each_ref().map(|clock| with_clock(rig.worker_setup(), clock).start());
    for number in 0..3 {
        rig.send(&format!("long_{number}"), LONGER_THAN_THE_LEASE);
    }
    for number in 0..EVENTS {
        let (key, fail_times) = ((number % KEYS).to_string(), usize::from(number % 7 == 0));
        let act = format!(r#"{{"key":"{key}","fail_times":{fail_times},"sleep_ms":20}}"#);
        rig.send_event(&TestEvent { ordering: Some(key), ..TestEvent::new(&format!("evt_{number:04}"), &act) });
    }
    let mut steps = [WRONG_BY_S, -WRONG_BY_S].into_iter().cycle();
    eventually_within(TO_THE_END, "every job is finished, while a clock jumps", || {
        clocks[2].set(steps.next().unwrap());
        std::thread::sleep(Duration::from_secs(2));
        rig.count("jobs WHERE finished_at IS NULL") == 0
    });

    rig.assert_kept();
    assert_eq!(rig.count("attempts WHERE failure = 'crash'"), 0, "a lease was lost");
    let too_early = format!(
        "attempts JOIN jobs USING (event_id) JOIN events ON id = event_id \
         WHERE failure IS NOT NULL AND jobs.finished_at < received_at + interval '{RETRY_AFTER_S} seconds'"
    );
    assert_eq!(rig.count(&too_early), 0, "a retry came too early");
    for wrong in ["started_at > finished_at + interval '5 min'", "started_at < finished_at - interval '5 min'"] {
        assert!(rig.count(&format!("attempts JOIN jobs USING (event_id) WHERE {wrong}")) > 0, "no clock was wrong");
    }
}

/// The negative control: the clock that counts jumps. The lease ends early, which shows that the check above can fail; and yet
/// nothing is doubled.
#[test]
#[ignore = "nightly: waits for leases"]
fn when_the_clock_of_the_store_jumps_a_lease_is_lost_and_nothing_is_doubled() {
    let clock = WrongClock::new(0);
    let postgres = PrivatePostgres::start_with(&[], &clock.variables());
    let gateway = unhurried(Setup::new(BINARY, Database::Sqlite))
        .store(&postgres.database())
        .handlers("[handlers.actor]")
        .sections(SETTINGS)
        .start();
    let answer = TestEvent::new("evt_1", LONGER_THAN_THE_LEASE).send_to(gateway.ingest).unwrap();
    assert_eq!(answer.status, 200);
    eventually("it is at work", || gateway.count("jobs WHERE state = 'processing'") == 1);
    clock.set(WRONG_BY_S);
    eventually("the lease is lost", || gateway.count("attempts WHERE failure = 'crash'") > 0);
    eventually_within(TO_THE_END, "it is done", || gateway.count("jobs WHERE state = 'succeeded'") == 1);
    assert_eq!(gateway.count("done"), 1);
}

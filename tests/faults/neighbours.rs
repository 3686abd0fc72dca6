//! Experiment 24: one source or one handler in trouble does not hold up the others.

use hookfast_harness::{Client, Database, Gateway, SECRET, Setup, eventually, signed};
use hookfast_webhook::Request;

use crate::rig::{BINARY, unhurried};

/// How many jobs run at once.
const PLACES: usize = 32;

/// More jobs than there are places, and each would take for ever.
const NOISE: usize = 200;

/// Two sources, each with a handler of its own.
fn neighbours(noisy_handler: &str, noisy_source: &str) -> Gateway {
    unhurried(Setup::new(BINARY, Database::Postgres))
        .source(noisy_source)
        .handlers(&format!(
            "[handlers.actor]\nsource = \"stripe\"\ndeadline = \"1h\"\n{noisy_handler}\n\
             [handlers.quiet]\nrun = \"log\"\nsource = \"quiet\""
        ))
        .sections(&format!(
            "[sources.quiet]\nprovider = \"stripe\"\nsecrets = [\"{SECRET}\"]\n\
             [work]\nconcurrency = {PLACES}\nsweep_every = \"200ms\""
        ))
        .start()
}

fn send(gateway: &Gateway, source: &str, id: &str) -> u16 {
    let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1,"act":{{"sleep_ms":3600000}}}}"#);
    let request = Request { url: format!("http://hooks.example.com/webhooks/{source}"), ..signed(&body) };
    Client::connect(gateway.ingest).send(&request).unwrap().status
}

fn make_noise(gateway: &Gateway, held: usize) {
    for number in 0..NOISE {
        assert_eq!(send(gateway, "stripe", &format!("evt_noise_{number}")), 200);
    }
    eventually("the noisy handler is busy", || gateway.count_jobs("actor", "processing") >= held);
}

#[test]
fn a_handler_that_never_ends_does_not_hold_up_another() {
    let gateway = neighbours("concurrency = 16", "");
    make_noise(&gateway, 16);
    for number in 0..50 {
        assert_eq!(send(&gateway, "quiet", &format!("evt_{number}")), 200);
    }
    eventually("the other handler is served", || gateway.count_jobs("quiet", "succeeded") == 50);
    assert_eq!(gateway.count_jobs("actor", "succeeded"), 0, "the noise goes on");
}

#[test]
fn without_a_limit_of_its_own_a_handler_holds_up_another() {
    let gateway = neighbours(&format!("concurrency = {PLACES}"), "");
    make_noise(&gateway, PLACES);
    assert_eq!(send(&gateway, "quiet", "evt_1"), 200);
    let sweeps = || gateway.metric("hookfast_sweeper_dispatched_total");
    let before = sweeps();
    eventually("noise is dispatched again and again", || {
        sweeps() > before || gateway.count_jobs("quiet", "succeeded") > 0
    });
    assert_eq!(gateway.count_jobs("quiet", "succeeded"), 0, "it found a place");
}

#[test]
fn a_source_that_sends_too_much_does_not_hold_up_another() {
    let gateway = neighbours("paused = true", "rate = \"5/s\"");
    let noise: Vec<_> = (0..NOISE).map(|number| send(&gateway, "stripe", &format!("evt_noise_{number}"))).collect();
    assert!(noise.contains(&429) && noise.iter().all(|status| matches!(status, 200 | 429)), "{noise:?}");
    let quiet: Vec<_> = (0..50).map(|number| send(&gateway, "quiet", &format!("evt_{number}"))).collect();
    assert!(quiet.iter().all(|status| *status == 200), "{quiet:?}");
}

#[test]
fn without_a_limit_a_source_may_send_what_it_wants() {
    let gateway = neighbours("paused = true", "");
    assert!((0..NOISE).all(|number| send(&gateway, "stripe", &format!("evt_noise_{number}")) == 200));
}

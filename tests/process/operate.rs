//! What operators do while the gateway is at work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::{On, rig, send};

fn a_replay_beside_traffic_runs_nothing_twice_that_came_later(on: On) {
    let rig = rig(on, "");
    for number in 0..5 {
        rig.send(&format!("old_{number}"), "{}");
    }
    for number in 0..5 {
        rig.wait_for(&format!("old_{number}"), "succeeded");
    }
    let (ended, mut client) = (AtomicBool::new(false), rig.gateway().client());
    let (replayed, sent) = thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let numbers = (0..).take_while(|_| !ended.load(Ordering::Relaxed));
            numbers.inspect(|number| send(&mut client, &format!("live_{number}"), "{}")).count()
        });
        let line = "replay --succeeded --handler actor --force-effects --why practice --rate 4/s --yes --json";
        let replayed = rig.gateway().command(&line.split(' ').collect::<Vec<_>>());
        ended.store(true, Ordering::Relaxed);
        (replayed.json(), traffic.join().expect("the traffic ends well"))
    });
    assert_eq!(replayed["done"], true, "{replayed}");
    let audit = rig.gateway().command(&["audit", "list", "--json"]).json();
    let last = audit["filter"]["selection"]["last_event"].as_str().expect("the last event is noted").to_owned();
    let ids = rig.gateway().events();
    let later: Vec<_> = ids.iter().filter(|event| event.id.to_string() > last).collect();
    assert!(!later.is_empty(), "of {sent} that were sent meanwhile some came after the preview");
    for event in later {
        rig.wait_for(&event.dedupe_key, "succeeded");
        assert_eq!(rig.effects(&event.dedupe_key).len(), 1, "{}", event.dedupe_key);
    }
    assert!(replayed["changed"].as_u64() >= Some(5), "{replayed}");
}

on_all! {
    a_replay_beside_traffic_runs_nothing_twice_that_came_later
}

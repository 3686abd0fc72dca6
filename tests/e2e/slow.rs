//! Clients that take their time, and clients that do not stay.

use hookfast_harness::{Database, eventually, post, sample};

use crate::patient;

fn a_body_that_comes_in_drips_is_accepted(database: Database) {
    let gateway = patient(database).ingest("header_timeout = \"10m\"\nbody_timeout = \"10m\"").start();
    let request = sample(1);
    let mut client = gateway.client();
    for drip in post(&request).chunks(40) {
        client.write(drip).unwrap();
        client.wait_until_read();
    }
    assert_eq!(client.read_answer().unwrap().status, 200);
    assert_eq!(gateway.event(gateway.events()[0].id).body, request.body);
}

fn a_body_that_does_not_come_in_time_is_given_up(database: Database) {
    for deadline in ["body_timeout", "idle_timeout"] {
        let gateway = patient(database).ingest(&format!("{deadline} = \"200ms\"")).start();
        let whole = post(&sample(1));
        let mut client = gateway.client();
        client.write(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(client.read_answer().unwrap().status, 408, "{deadline}");
        assert!(client.is_closed(), "{deadline}");
        assert!(gateway.events().is_empty());
        assert_eq!(gateway.metric(r#"hookfast_ingest_requests_total{source="stripe",outcome="body_timeout"}"#), 1.0);
    }
}

fn a_head_that_does_not_come_in_time_is_given_up(database: Database) {
    let gateway = patient(database).ingest("header_timeout = \"200ms\"").start();
    let mut client = gateway.client();
    client.write(b"POST /webhooks/stripe HTTP/1.1\r\nhost: hooks.").unwrap();
    assert!(client.is_closed());
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
}

fn half_a_body_is_nothing(database: Database) {
    let gateway = patient(database).start();
    let whole = post(&sample(1));
    let mut client = gateway.client();
    client.write(&whole[..whole.len() - 1]).unwrap();
    client.wait_until_read();
    drop(client);
    eventually("the gateway notices", || gateway.metric("hookfast_connections") == 0.0);
    assert!(gateway.events().is_empty());
}

fn a_caller_who_hangs_up_does_not_stop_the_commit(database: Database) {
    let gateway = patient(database).start();
    let hold = gateway.hold_writes();
    let mut client = gateway.client();
    client.write(&post(&sample(1))).unwrap();
    client.wait_until_read();
    drop(client);
    eventually("the gateway notices", || gateway.metric("hookfast_connections") == 0.0);
    drop(hold);
    eventually("it is recorded all the same", || gateway.events().len() == 1);
    assert_eq!(gateway.events()[0].jobs, 1);
    assert_eq!(gateway.metric(r#"hookfast_ingest_requests_total{source="stripe",outcome="accepted"}"#), 0.0);
}

on_both! {
    a_body_that_comes_in_drips_is_accepted
    a_body_that_does_not_come_in_time_is_given_up
    a_head_that_does_not_come_in_time_is_given_up
    half_a_body_is_nothing
    a_caller_who_hangs_up_does_not_stop_the_commit
}

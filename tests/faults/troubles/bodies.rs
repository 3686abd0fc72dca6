//! Large bodies, over a narrow link and in the memory of a worker.

use hookfast_harness::{Client, Database, Gateway, Link, Proxy, eventually_within, fresh_database, signed};

use super::{SOON, send_many, setup, wait_for_jobs};

const MEGABYTE: usize = 1_000_000;

fn send_large(gateway: &Gateway, id: &str, bytes: usize) {
    let filler = "x".repeat(bytes);
    let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1,"filler":"{filler}"}}"#);
    assert_eq!(Client::connect(gateway.ingest).send(&signed(&body)).unwrap().status, 200, "{id}");
}

/// All bodies together take longer than a statement may, each alone does not. Small events of the same handler come behind.
#[test]
fn bodies_that_are_too_much_at_once_for_a_narrow_link_are_handled() {
    const LARGE: usize = 8;
    let store = fresh_database();
    let link = Proxy::to_server_of(&store);
    let receiver = setup(Database::Sqlite).store(&store).handlers("").role("receive", &[]).start();
    for number in 0..LARGE {
        send_large(&receiver, &format!("large_{number}"), 4 * MEGABYTE + MEGABYTE / 2);
    }
    let worker = setup(Database::Sqlite).store(&link.through(&store)).handlers("").role("work", &[]);
    link.set(Link::Narrow(6 * MEGABYTE as u64));
    let _worker = worker.start();
    send_many(&receiver, "invoice.paid", "small", 5, "{}");
    wait_for_jobs(&receiver, "actor", "succeeded", LARGE + 5);
}

/// A worker holds no more bodies at once than it has memory for, however many handlers want them.
#[test]
fn the_memory_of_a_worker_is_bounded_with_large_bodies() {
    const LARGE: usize = 30;
    let handlers = "[handlers.actor]\n[handlers.aa]\nrun = \"log\"\n[handlers.bb]\nrun = \"log\"\n";
    let receiver = setup(Database::Postgres).handlers(handlers).role("receive", &[]).start();
    for number in 0..LARGE {
        send_large(&receiver, &format!("large_{number}"), 9 * MEGABYTE + MEGABYTE / 2);
    }
    let worker = setup(Database::Sqlite).store(receiver.store_url()).handlers(handlers).role("work", &[]).start();
    let mut peak = 0;
    eventually_within(SOON * 2, "all are done", || {
        peak = peak.max(worker.peak_memory_bytes());
        ["actor", "aa", "bb"].iter().all(|handler| receiver.count_jobs(handler, "succeeded") == LARGE)
    });
    // 256 MiB of bodies, each of which a run reads into values of its own, and the process itself.
    assert!(peak < 700 * MEGABYTE, "the worker took {} MB", peak / MEGABYTE);
}

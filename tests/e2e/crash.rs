//! Ending without being asked: every 2xx is in the database all the same.

use hookfast_harness::{Database, Signal, eventually, sample};

use crate::load::{Ledger, Load};
use crate::patient;

fn every_promise_survives_a_kill(database: Database) {
    let mut gateway = patient(database).start();
    let mut ledger = Ledger::default();
    for round in 1..=3 {
        let load = Load::start(gateway.ingest, 8);
        load.wait_for_promises(100 * round);
        gateway.signal(Signal::Kill);
        gateway.wait();
        ledger.promised.extend(load.end().promised);
        gateway = gateway.restart();
        ledger.assert_kept(&gateway);
    }
    let kept = ledger.promised.len();
    for key in ledger.promised.iter().take(10) {
        let serial = key.trim_start_matches("evt_sample_").parse().unwrap();
        assert_eq!(gateway.client().send(&sample(serial)).unwrap().status, 200);
    }
    assert!(gateway.events().len() >= kept);
    ledger.assert_kept(&gateway);
}

on_both! {
    every_promise_survives_a_kill
}

/// The disk dies, or fails once and then seems to work again: what the failed fsync should have written is lost either
/// way, so no later commit may be trusted.
#[test]
fn after_an_io_error_nothing_more_is_promised() {
    for failing in ["30+", "30"] {
        let inject = format!("inject=fsync,fdatasync:error=EIO:when={failing}");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", &inject];
        let mut gateway = patient(Database::Sqlite).under(&strace).start();
        let load = Load::start(gateway.ingest, 8);
        assert_eq!(gateway.wait().code(), Some(1));
        let ledger = load.end();
        assert!(!ledger.promised.is_empty() && !ledger.others.is_empty());
        assert_eq!(ledger.promised_after_refusal, Vec::<String>::new());
        for answer in &ledger.others {
            assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text());
        }
        let said =
            "error: the store had an I/O error, so nothing more can be promised. Look at the disk, then start again";
        assert_eq!(gateway.log().lines().last(), Some(said));
        let gateway = gateway.restart();
        ledger.assert_kept(&gateway);
        eventually("it works again", || gateway.client().send(&sample(u64::MAX)).unwrap().status == 200);
    }
}

/// Commits only write the log of the database; the file itself is written by checkpoints, and its disk can die too.
#[test]
fn after_an_io_error_in_a_checkpoint_nothing_more_is_promised() {
    let setup = patient(Database::Sqlite);
    let file = setup.folder().join("hookfast.db").display().to_string();
    let inject = "inject=fsync,fdatasync:error=EIO:when=3+";
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", &file, "-e", "trace=fsync,fdatasync", "-e", inject];
    let mut gateway = setup.under(&strace).start();
    let load = Load::start(gateway.ingest, 2);
    assert_eq!(gateway.wait().code(), Some(1));
    let ledger = load.end();
    assert!(!ledger.promised.is_empty());
    assert_eq!(ledger.promised_after_refusal, Vec::<String>::new());
    ledger.assert_kept(&gateway.restart());
}

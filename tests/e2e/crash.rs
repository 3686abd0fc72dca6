//! The disk fails: every 2xx before that is in the database, and there is none after it. `tests/faults` has the kills.

use std::thread::sleep;
use std::time::Duration;

use hookfast_harness::{Database, Senders, eventually, sample};

use crate::patient;

/// The disk dies, or fails once and then seems to work again: what the failed fsync should have written is lost either
/// way, so no later commit may be trusted.
#[test]
fn after_an_io_error_nothing_more_is_promised() {
    // The start makes some forty flushes of its own, most of them for the tables.
    for failing in ["60+", "60"] {
        let inject = format!("inject=fsync,fdatasync:error=EIO:when={failing}");
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e", &inject];
        let mut gateway = patient(Database::Sqlite).under(&strace).start();
        let load = Senders::of_samples(&gateway.address(), 8);
        assert_eq!(gateway.wait().code(), Some(1));
        let ledger = load.end();
        assert!(ledger.promised() > 0 && !ledger.refusals.is_empty());
        assert_eq!(ledger.promised_after_refusal, Vec::<String>::new());
        for answer in &ledger.refusals {
            assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{}", answer.text());
        }
        let said =
            "error: the store had an I/O error, so nothing more can be promised. Look at the disk, then start again";
        assert_eq!(gateway.log().lines().last(), Some(said));
        let gateway = gateway.restart();
        ledger.assert_recorded(gateway.store_url());
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
    let load = Senders::of_samples(&gateway.address(), 2);
    assert_eq!(gateway.wait().code(), Some(1));
    let ledger = load.end();
    assert!(ledger.promised() > 0);
    assert_eq!(ledger.promised_after_refusal, Vec::<String>::new());
    ledger.assert_recorded(gateway.restart().store_url());
}

/// What notices the error may be a claim, a renewal or a checkpoint, and no request may come for hours.
#[test]
fn after_an_io_error_an_idle_gateway_ends_too() {
    let setup = patient(Database::Sqlite);
    let file = setup.folder().join("hookfast.db").display().to_string();
    // The start flushes the file, too.
    let inject = "inject=fsync,fdatasync:error=EIO:when=3+";
    let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", &file, "-e", "trace=fsync,fdatasync", "-e", inject];
    let mut gateway = setup.under(&strace).start();
    let mut recorded = 0;
    while gateway.is_running() && recorded < 100 {
        // No request sees the error: a checkpoint follows each, and the process ends before the next one.
        assert_eq!(gateway.client().send(&sample(recorded)).unwrap().status, 200);
        recorded += 1;
        sleep(Duration::from_secs(1));
    }
    assert_eq!(gateway.wait().code(), Some(1));
    let said = "error: the store had an I/O error, so nothing more can be promised. Look at the disk, then start again";
    assert_eq!(gateway.log().lines().last(), Some(said));
    assert_eq!(gateway.restart().events().len() as u64, recorded);
}

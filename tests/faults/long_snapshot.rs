//! Experiment 28: a client keeps a transaction open for minutes, and with it every old version of every row. The queue goes
//! on. There is no control, because no protection of the gateway is at work here. Instead the test checks that the
//! transaction did keep old versions.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hookfast_harness::{Rig, TO_THE_END, eventually_within, program};

use crate::rig::{Halves, rig};

/// A session with an old view of everything, until it is dropped.
struct Snapshot {
    session: Child,
}

impl Snapshot {
    fn of(store: &str) -> Self {
        let mut session = Command::new(program("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--dbname", store])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("psql starts");
        let view = "BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 'seen' FROM (SELECT count(*) FROM jobs) AS jobs;\n";
        session.stdin.as_mut().expect("piped").write_all(view.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(session.stdout.as_mut().expect("piped")).read_line(&mut line).unwrap();
        assert_eq!(line, "seen\n");
        Self { session }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        drop(self.session.stdin.take());
        let _ = self.session.wait();
    }
}

/// Sends and works for this long; every event is done soon after it came.
fn work_for(rig: &Rig, time: Duration) {
    let start = Instant::now();
    let mut number = rig.ledger().promised();
    while start.elapsed() < time {
        for _ in 0..50 {
            number += 1;
            rig.send(&format!("evt_{number}"), &format!(r#"{{"key":"{number}"}}"#));
        }
        eventually_within(TO_THE_END, "the queue goes on", || rig.count("jobs WHERE finished_at IS NULL") == 0);
    }
}

/// Old versions of jobs that even a vacuum leaves where they are.
fn old_versions_after_vacuum(rig: &Rig) -> usize {
    rig.gateway().sql("VACUUM jobs");
    let rows = rig.gateway().query("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'jobs'");
    rows[0][0].parse().unwrap()
}

#[test]
#[ignore = "nightly: it lasts five minutes"]
fn an_old_snapshot_does_not_stop_the_queue() {
    let mut rig = rig(Halves::Apart, "", "");
    rig.work("");
    work_for(&rig, Duration::from_secs(1));
    let snapshot = Snapshot::of(rig.gateway().store_url());
    work_for(&rig, Duration::from_secs(300));
    let held = old_versions_after_vacuum(&rig);
    drop(snapshot);
    rig.wait_for_the_end();
    let left = old_versions_after_vacuum(&rig);
    assert!(held > 10 * left.max(100), "the snapshot held nothing back: {held} versions with it, {left} without");
    rig.assert_kept();
}

//! Experiment 6: a worker stands still past its lease and then goes on. It can write nothing about jobs that are no longer
//! its own.

use hookfast_harness::{Gateway, Rig, Signal, eventually};

use crate::rig::{Halves, rig};

/// How many jobs are caught at each place.
const JOBS: usize = 10;

/// Two workers, of which the first stands still while it holds the jobs, until the second has taken them over.
struct Haunted {
    rig: Rig,
    zombie: Gateway,
    heir: Gateway,
}

impl Haunted {
    /// `is_there` says when the first worker is where it shall stand still.
    fn new(act: &str, without: &'static str, is_there: impl Fn(&Rig) -> bool) -> Self {
        let rig = rig(Halves::Apart, "", without);
        let zombie = rig.another_worker("");
        for number in 0..JOBS {
            rig.send(&format!("evt_{number}"), act);
        }
        eventually("the worker is there", || is_there(&rig));
        zombie.signal(Signal::Stop);
        let heir = rig.another_worker("");
        Self { rig, zombie, heir }
    }

    /// Jobs that were claimed a second time.
    fn taken_over(&self) -> usize {
        self.rig.count("jobs WHERE attempts = 2")
    }

    /// Lets the first worker go on.
    fn wake_up(&self) {
        self.zombie.signal(Signal::Continue);
    }

    /// It finds out that its leases are lost, or that its outcomes do not count. Shutting it down takes all its jobs to an end.
    fn wait_for_the_zombies_last_word(&mut self) {
        self.zombie.signal(Signal::Term);
        assert!(self.zombie.wait().success());
    }

    fn done_in_attempt(&self, attempt: u32) -> usize {
        self.rig.count(&format!("done WHERE attempt = {attempt}"))
    }
}

fn all_are_held(rig: &Rig) -> bool {
    rig.count("jobs WHERE state = 'processing'") == JOBS
}

fn all_effects_are_done(rig: &Rig) -> bool {
    rig.count("done") == JOBS
}

#[test]
fn a_zombie_before_its_effects_commits_none() {
    commits_none(r#"{"sleep_ms":1000}"#);
}

#[test]
fn a_zombie_before_effects_that_share_their_commits_commits_none() {
    commits_none(r#"{"sleep_ms":1000,"write":true}"#);
}

fn commits_none(act: &str) {
    let mut haunted = Haunted::new(act, "", all_are_held);
    eventually("the other took over", || haunted.taken_over() == JOBS);
    haunted.wake_up();
    haunted.rig.assert_kept();
    haunted.wait_for_the_zombies_last_word();
    assert_eq!((haunted.done_in_attempt(1), haunted.done_in_attempt(2)), (0, JOBS));
    let ended_well = haunted.rig.gateway().query("SELECT DISTINCT number FROM attempts WHERE failure IS NULL");
    assert_eq!(ended_well, [["2"]], "what the zombie did is in no history");
    assert_eq!(
        haunted.heir.metric("hookfast_jobs_processed_total{handler=\"actor\",source=\"stripe\",result=\"succeeded\"}"),
        JOBS as f64
    );
}

#[test]
fn a_zombie_between_effect_and_settle_settles_nothing() {
    let mut haunted = Haunted::new(r#"{"sleep_after_ms":1500}"#, "", all_effects_are_done);
    eventually("the other took over", || haunted.taken_over() == JOBS);
    haunted.wake_up();
    haunted.rig.assert_kept();
    haunted.wait_for_the_zombies_last_word();
    assert_eq!(haunted.done_in_attempt(1), JOBS, "its effects were good, and are not repeated");
    let ended_well = haunted.rig.gateway().query("SELECT DISTINCT number FROM attempts WHERE failure IS NULL");
    assert_eq!(ended_well, [["2"]], "what the zombie did is in no history");
}

/// Its transactions hold the jobs, so that no other worker can take them over.
#[test]
fn a_zombie_in_the_middle_of_an_effect_keeps_its_job_or_loses_all_of_it() {
    let haunted = Haunted::new(r#"{"sleep_in_effect_ms":1500}"#, "", |rig| {
        let waiting = rig.gateway().query(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()",
        );
        waiting[0][0].parse::<usize>().unwrap() == JOBS
    });
    eventually("all leases have ended", || haunted.rig.count("jobs WHERE due_at < now()") == JOBS);
    haunted.wake_up();
    haunted.rig.assert_kept();
}

#[test]
fn a_zombie_that_waited_for_its_turn_begins_nothing() {
    // Eight run, and two wait on board.
    let rig = rig(Halves::Apart, "concurrency = 8", "");
    let mut zombie = rig.another_worker("");
    for number in 0..JOBS {
        rig.send(&format!("evt_{number}"), r#"{"sleep_ms":1000}"#);
    }
    eventually("all are on board", || all_are_held(&rig));
    zombie.signal(Signal::Stop);
    let _heir = rig.another_worker("");
    eventually("the other took over", || rig.count("jobs WHERE attempts = 2") == JOBS);
    zombie.signal(Signal::Continue);
    rig.assert_kept();
    zombie.signal(Signal::Term);
    assert!(zombie.wait().success());
    assert_eq!(rig.count("done WHERE attempt = 1"), 0);
}

/// When all workers have the same token, the zombie writes about a job that another one holds.
#[test]
fn without_the_fence_a_zombie_writes() {
    let haunted = Haunted::new(r#"{"sleep_ms":1000}"#, "Fence", all_are_held);
    eventually("the other took over", || haunted.taken_over() == JOBS);
    haunted.wake_up();
    haunted.rig.wait_for_the_end();
    assert!(haunted.done_in_attempt(1) > 0, "the zombie wrote nothing");
}

//! Several handlers in one storm, most of them in trouble, with the limits that the product has by itself.

use std::thread;
use std::time::Duration;

use hookfast_harness::{Address, Ended, Ledger, Senders, Setup, TO_THE_END, TestEvent, eventually_within, query};

use super::provider::event;

/// Which handlers of the program take part beside `actor`.
pub(crate) const PROGRAM: &str = "slow,poisoned,ordered,innocent";

/// The product's limits on crashes and attempts; its times in their proportions, ten times as short.
pub(crate) const WORK: &str = "[work]\nlease = \"3s\"\nsweep_every = \"100ms\"\ndispatch_again_after = \"6s\"\n\
                               shutdown_timeout = \"2500ms\"\n";

/// Less room than the slow and the paused handler have jobs.
pub(crate) const QUEUE_CAPACITY: &str = "50";

/// The handlers that the deploy leaves.
pub(crate) const AFTER_DEPLOY: &str = r#"
[handlers.actor]
types = ["invoice.*"]
ordering = "per_account"
deadline = "10s"
retry = ["200ms", "500ms", "1s", "2s"]
[handlers.innocent]
[handlers.slow]
concurrency = 1
[handlers.poisoned]
retry = ["200ms", "200ms"]
[handlers.ordered]
ordering = "per_event_type"
dead_letters = "block"
[handlers.paused]
run = "log"
paused = true
"#;

/// It is removed by the deploy, and leaves jobs behind.
pub(crate) const REMOVED: &str = "[handlers.removed]\nrun = \"log\"\nconcurrency = 1\npaused = true\n";

/// Unfinished jobs that an operator can list a reason for: their handler is paused, or is not configured, or they are blocked
/// by a dead letter.
pub(crate) const WITH_A_REASON: &str = "handler IN ('paused', 'removed') OR handler = 'ordered' AND EXISTS (\
     SELECT 1 FROM jobs AS earlier WHERE earlier.handler = jobs.handler AND earlier.ordering_key = jobs.ordering_key \
     AND earlier.event_id < jobs.event_id AND earlier.state = 'dead_letter')";

/// How much later than alone the innocent handler may be done, and what is never too late on a busy machine.
const LATER: u32 = 10;
const NEVER_TOO_LATE: Duration = Duration::from_secs(5);

/// Sends events of the innocent handler one after the other, and waits until they are done.
pub(crate) fn probe(receiver: &Address, store: &str, name: &str) -> Ledger {
    const EVENTS: usize = 50;
    let events = (0..EVENTS).map(|number| event(&format!("{name}_{number}"), "innocent.came", ""));
    let ledger = deliver(receiver, events.collect());
    eventually_within(TO_THE_END, &format!("the innocent handler is done with all of {name}"), || {
        lags(store, name).len() == EVENTS
    });
    ledger
}

/// More than the slow handler has room for in the queue.
pub(crate) fn slow_backlog(receiver: &Address) -> Ledger {
    deliver(
        receiver,
        (0..100).map(|number| event(&format!("slow_{number}"), "slow.came", r#""sleep_ms":250"#)).collect(),
    )
}

/// Sends each event until it is promised.
fn deliver(receiver: &Address, events: Vec<TestEvent>) -> Ledger {
    let senders = Senders::start(receiver, 1, move |sender| {
        for event in &events {
            eventually_within(TO_THE_END, "it is taken", || sender.send(event));
        }
    });
    senders.end()
}

/// What 99 of 100 of these events took at most, from receiving to the end of their job.
pub(crate) fn p99_lag(store: &str, name: &str) -> Duration {
    let mut lags = lags(store, name);
    lags.sort_unstable();
    lags[lags.len() * 99 / 100]
}

fn lags(store: &str, name: &str) -> Vec<Duration> {
    let micros = match store.starts_with("sqlite:") {
        true => "finished_at - received_at",
        false => "(extract(epoch FROM finished_at - received_at) * 1000000)::bigint",
    };
    let rows = query(
        store,
        &format!(
            "SELECT {micros} FROM jobs JOIN events ON events.id = jobs.event_id WHERE handler = 'innocent' \
             AND finished_at IS NOT NULL AND dedupe_key LIKE '{name}%'"
        ),
    );
    rows.iter().map(|row| Duration::from_micros(row[0].parse::<i64>().unwrap().max(0).unsigned_abs())).collect()
}

/// Says so if the innocent handler suffers from the others beyond the factor.
pub(crate) fn judge_lag(alone: Duration, beside: Duration) -> Option<String> {
    eprintln!("the innocent handler's p99 lag: alone {alone:?}, beside the others {beside:?}");
    let bound = (alone * LATER).max(NEVER_TOO_LATE);
    (beside > bound).then(|| format!("the innocent handler's p99 lag is {beside:?} and not within {bound:?}"))
}

/// An operator who replays dead letters and finished jobs during the storm.
pub(crate) struct Operator(pub(crate) Setup);

impl Operator {
    /// Replays until `is_over`, and says how often that went through.
    pub(crate) fn replay_until(&self, is_over: impl Fn() -> bool) -> usize {
        let mut replays = 0;
        while !is_over() {
            let dead = self.replay(&["--handler", "actor"]);
            let succeeded = self.replay(&["--handler", "innocent", "--succeeded", "--limit", "20"]);
            replays += [dead, succeeded].iter().filter(|ended| ended.code == 0).count();
            thread::sleep(Duration::from_secs(2));
        }
        replays
    }

    /// Runs that were killed too often are visibly dead, and get another chance.
    pub(crate) fn replay_crashed(&self) {
        let ended = self.replay(&["--failure", "crash"]);
        assert_eq!(ended.code, 0, "{ended:?}");
    }

    fn replay(&self, what: &[&str]) -> Ended {
        self.0.command(&[&["replay", "--yes", "--json", "--why", "the storm"], what].concat())
    }
}

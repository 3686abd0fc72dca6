//! Everything at once: while providers send, processes and servers are killed and stand still and links break, at times
//! that follow from a seed. When it is over, every promise is kept.
//!
//! The seed is printed first; `FAULT_SEED` makes the same storm again, as far as a machine can be made to repeat itself.

mod blows;
mod crowd;
mod provider;
mod verdict;
mod victims;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hookfast_harness::{
    Address, Database, Ledger, NatsVersion, PrivateNats, PrivatePostgres, Senders, Setup, TO_THE_END, query,
};

use crate::rig::{BINARY, Halves, seed};
use blows::{Fault, Weather};
use crowd::Operator;
use provider::{Provider, Receivers};
use verdict::Verdict;
use victims::{Process, Victim, Way, convalesce, suffer};

const SENDERS: u64 = 4;

/// Leases that are shorter than many a fault: a job is taken over after one, and its message is delivered again after two.
/// A process that was killed did nothing wrong.
const WORK: &str =
    "[work]\nlease = \"1s\"\nsweep_every = \"200ms\"\ndispatch_again_after = \"2s\"\ncrash_limit = 1000000\n";

/// Patient, so that nothing is dead but what gives up.
const ACTOR: &str = "[handlers.actor]\nordering = \"per_account\"\ndeadline = \"10s\"\nmax_attempts = 1000000\n\
                     retry = { base = \"500ms\", factor = 1.0, cap = \"500ms\" }";

#[test]
fn a_storm_over_postgres_and_jetstream_breaks_no_promise() {
    Storm::new(Halves::Apart, "").rage(Weather::MIXED).assert_kept();
}

#[test]
fn a_storm_over_sqlite_breaks_no_promise() {
    // There is only one victim.
    let weather = Weather { calm: (100, 2500), ..Weather::MIXED };
    Storm::new(Halves::Together, "").rage(weather).assert_kept();
}

/// With the product's own limits, and handlers of which one is paused, one slow, one poisoned, one blocked behind a dead
/// letter and one removed by a deploy in the middle, while an operator replays.
#[test]
fn a_storm_over_a_crowd_on_postgres_and_jetstream_breaks_no_promise() {
    Storm::of_a_crowd(Halves::Apart).rage(Weather::WITH_A_DEPLOY).assert_kept();
}

#[test]
fn a_storm_over_a_crowd_on_sqlite_breaks_no_promise() {
    // Fewer than kill the same job three times for certain.
    let weather = Weather { calm: (1000, 8000), ..Weather::WITH_A_DEPLOY };
    Storm::of_a_crowd(Halves::Together).rage(weather).assert_kept();
}

/// Kills fall between an effect and its settling.
#[test]
fn without_the_marker_a_storm_doubles_effects() {
    let killed =
        Weather { calm: (200, 1000), lasts: (10, 50), ..only(|who, fault| is_worker(who) && fault == Fault::Kill) };
    Storm::new(Halves::Apart, "Marker").rage(killed).assert_noticed("effect-0 of ");
}

/// A worker stands still until the other has taken over, and then goes on beside it.
#[test]
fn without_the_fence_a_storm_lets_the_late_write() {
    let length = Duration::from_secs(18);
    let stopped = only(|who, fault| who == "worker 1" && fault == Fault::Stop);
    // The other takes over after two seconds.
    let stopped = Weather { length, calm: (500, 900), lasts: (2200, 2700), ..stopped };
    Storm::new(Halves::Apart, "Fence").rage(stopped).assert_noticed("a late run");
}

/// Messages are lost with the server's disk, and jobs with their workers.
#[test]
fn without_the_sweeper_a_storm_leaves_jobs_behind() {
    let lost = Weather {
        calm: (500, 1500),
        lasts: (100, 500),
        ..only(|who, fault| fault == Fault::Wipe || is_worker(who) && fault == Fault::Kill)
    };
    Storm::new(Halves::Apart, "Sweeper").rage(lost).assert_noticed("and not succeeded");
}

/// What is sent twice is recorded twice.
#[test]
fn without_the_unique_key_a_storm_doubles_events() {
    let storm = Storm::new(Halves::Apart, "");
    query(&storm.store, "ALTER TABLE dedupe_keys DROP CONSTRAINT dedupe_keys_pkey");
    storm.rage(only(|who, fault| is_worker(who) && fault == Fault::Kill)).assert_noticed("was recorded 2 times");
}

/// A short storm with one kind of fault.
fn only(allows: fn(&str, Fault) -> bool) -> Weather {
    Weather { length: Duration::from_secs(12), allows, ..Weather::MIXED }
}

fn is_worker(name: &str) -> bool {
    name.starts_with("worker") && !name.contains(" to ")
}

/// All that the storm strikes.
struct Storm {
    seed: u64,
    victims: Vec<Box<dyn Victim>>,
    /// The way to the database that no storm reaches.
    store: String,
    receiver: Address,
    crowd: Option<Crowd>,
}

/// What there is to know about a crowd of handlers.
struct Crowd {
    operator: Operator,
    receivers: Receivers,
    /// The p99 lag of the innocent handler before the others are in trouble.
    lag_alone: Duration,
}

/// What is left of it.
struct Aftermath {
    storm: Storm,
    ledger: Ledger,
}

impl Storm {
    fn new(halves: Halves, without: &str) -> Self {
        match halves {
            Halves::Together => Self::over_sqlite(&|| setup(without)),
            Halves::Apart => Self::over_postgres_and_jetstream(&|| setup(without)),
        }
    }

    fn of_a_crowd(halves: Halves) -> Self {
        let mut storm = match halves {
            Halves::Together => Self::over_sqlite(&crowded),
            Halves::Apart => Self::over_postgres_and_jetstream(&crowded),
        };
        // It sees the handlers that are left after the deploy.
        let operator = Operator(crowded().store(&storm.store).handlers(crowd::AFTER_DEPLOY));
        let receivers = Receivers::Crowd { on_postgres: halves == Halves::Apart };
        storm.crowd = Some(Crowd { operator, receivers, lag_alone: Duration::ZERO });
        storm
    }

    fn over_sqlite(setup: &dyn Fn() -> Setup) -> Self {
        let gateway = setup().start();
        let store = gateway.store_url().to_owned();
        let faults = [Fault::Kill, Fault::Stop, Fault::Lock, Fault::Deploy];
        let process = Process::new("gateway", gateway, &faults, crowd::AFTER_DEPLOY);
        Self { seed: seed(), store, receiver: process.address(), victims: vec![Box::new(process)], crowd: None }
    }

    fn over_postgres_and_jetstream(setup: &dyn Fn() -> Setup) -> Self {
        let (postgres, nats) =
            (PrivatePostgres::start(&["max_connections=300"]), PrivateNats::start(NatsVersion::Current));
        let (store, queue) = (postgres.database(), nats.url());
        let mut victims: Vec<Box<dyn Victim>> = Vec::new();
        let mut start = |name: &'static str, role: &str| {
            let (to_postgres, store) = Way::new(&format!("{name} to postgres"), &store);
            let (to_nats, queue) = Way::new(&format!("{name} to nats"), &queue);
            victims.extend([Box::new(to_postgres) as Box<dyn Victim>, Box::new(to_nats)]);
            let gateway = setup().store(&store).queue(&queue).role(role, &[]).start();
            Process::new(name, gateway, &[Fault::Kill, Fault::Stop, Fault::Deploy], crowd::AFTER_DEPLOY)
        };
        let receiver = start("receiver", "receive");
        let workers = [start("worker 1", "work"), start("worker 2", "work")];
        let address = receiver.address();
        victims.push(Box::new(receiver));
        victims.extend(workers.map(|worker| Box::new(worker) as Box<dyn Victim>));
        victims.push(Box::new(victims::Database::new(postgres)));
        victims.push(Box::new(nats));
        Self { seed: seed(), victims, store, receiver: address, crowd: None }
    }

    /// Lets it rage while providers send, and waits until every victim is well and the last event was taken.
    fn rage(mut self, weather: Weather) -> Aftermath {
        let mut chance = Rng::with_seed(self.seed);
        let mut ledger = self.prepare_crowd();
        let receivers = self.crowd.as_ref().map_or(Receivers::Actor, |crowd| crowd.receivers);
        let seeds: Vec<_> = (0..SENDERS).map(|_| chance.u64(..)).collect();
        let senders = Senders::start(&self.receiver, SENDERS, move |sender| {
            Provider::new(sender.number, seeds[sender.number as usize], receivers).run(sender);
        });
        let start = Instant::now();
        let replays = AtomicUsize::new(0);
        thread::scope(|scope| {
            for victim in &mut self.victims {
                let blows = weather.blows(victim.name(), &victim.faults(), &mut chance);
                scope.spawn(move || suffer(&mut **victim, &blows, start, weather.length));
            }
            if let Some(Crowd { operator, .. }) = &self.crowd {
                let is_over = || start.elapsed() > weather.length;
                let replays = &replays;
                scope.spawn(move || replays.store(operator.replay_until(is_over), Relaxed));
            }
            scope.spawn(|| thread::sleep(weather.length));
        });
        eprintln!("{:6.2} s: the storm is over, {replays:?} replays", start.elapsed().as_secs_f64());
        for victim in &mut self.victims {
            convalesce(&mut **victim);
        }
        ledger.add(senders.end());
        Aftermath { storm: self, ledger }
    }

    /// How late the innocent handler is alone; and then a backlog for the slow one.
    fn prepare_crowd(&mut self) -> Ledger {
        let Some(crowd) = &mut self.crowd else { return Ledger::default() };
        let mut ledger = crowd::probe(&self.receiver, &self.store, "alone");
        crowd.lag_alone = crowd::p99_lag(&self.store, "alone");
        ledger.add(crowd::slow_backlog(&self.receiver));
        ledger
    }

    /// Gives those another chance that were killed too often, and then sees whether the innocent handler is as fast as before.
    fn healed(&self, crowd: &Crowd, ledger: &mut Ledger, verdict: &Verdict<'_>, patience: Duration) -> Option<String> {
        if verdict.crashed() > 0 {
            eprintln!("{} jobs are dead after crashes, and are replayed", verdict.crashed());
            crowd.operator.replay_crashed();
            wait_for_the_end(verdict, patience);
        }
        ledger.add(crowd::probe(&self.receiver, &self.store, "beside"));
        crowd::judge_lag(crowd.lag_alone, crowd::p99_lag(&self.store, "beside"))
    }
}

impl Aftermath {
    fn assert_kept(mut self) {
        let (sent, in_vain, promised) = (self.ledger.sent(), self.ledger.in_vain(), self.ledger.promised());
        eprintln!("{sent} events were sent, {in_vain} times in vain, and {promised} promised");
        let broken = self.broken_promises(TO_THE_END);
        let lost = query(&self.storm.store, "SELECT count(*) FROM attempts WHERE failure = 'crash'");
        eprintln!("{} runs were cut short", lost[0][0]);
        assert!(broken.is_empty(), "FAULT_SEED={} breaks promises:\n{}", self.storm.seed, broken.join("\n"));
        assert!(promised > SENDERS as usize * 10, "only {promised} got through, which proves little");
    }

    fn assert_noticed(mut self, what: &str) {
        let broken = self.broken_promises(TO_THE_END / 6);
        let noticed = broken.iter().any(|broken| broken.contains(what));
        assert!(noticed, "FAULT_SEED={}: nothing like `{what}` in:\n{}", self.storm.seed, broken.join("\n"));
    }

    /// Everything that does not hold once all jobs are finished, or the patience is at its end.
    fn broken_promises(&mut self, patience: Duration) -> Vec<String> {
        let Self { storm, ledger } = self;
        let verdict = Verdict { store: &storm.store };
        wait_for_the_end(&verdict, patience);
        let late = storm.crowd.as_ref().and_then(|crowd| storm.healed(crowd, ledger, &verdict, patience));
        let misdeeds = storm.victims.iter().flat_map(|victim| victim.misdeeds()).cloned();
        let broken = [ledger.broken_promises(&storm.store), verdict.broken_promises()].concat();
        broken.into_iter().chain(late).chain(misdeeds).collect()
    }
}

fn wait_for_the_end(verdict: &Verdict<'_>, patience: Duration) {
    let start = Instant::now();
    while verdict.unfinished() > 0 && start.elapsed() < patience {
        thread::sleep(Duration::from_millis(200));
    }
}

fn setup(without: &str) -> Setup {
    patient().handlers(ACTOR).sections(WORK).variable("FAULT_WITHOUT", without)
}

fn crowded() -> Setup {
    patient()
        .handlers(&format!("{}{}", crowd::AFTER_DEPLOY, crowd::REMOVED))
        .sections(crowd::WORK)
        .variable("TEST_HANDLERS", crowd::PROGRAM)
        .variable("HOOKFAST_QUEUE__CAPACITY", crowd::QUEUE_CAPACITY)
}

fn patient() -> Setup {
    Setup::new(BINARY, Database::Sqlite).ingest("answer_deadline = \"2s\"")
}

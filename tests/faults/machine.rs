//! Experiment 11: the life of a job as a property. Random steps of workers, sweepers and operators are done to a store and
//! to a plain model of it; after each one both must have answered the same, and the database must hold what the model holds.
//!
//! Whoever wants to write about a job shows any token that was ever handed out. Nobody waits: leases and delays are zero or
//! an hour, and hours pass by a statement. `FAULT_SEED` does a sequence again that failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use hookfast_store::sqlx::postgres::PgConnectOptions;
use hookfast_store::sqlx::{self, Connection, PgConnection, SqliteConnection};
use hookfast_store::{
    Act, Audit, BegunEffect, Claim, Config, DeadLetters, EffectError, EffectKey, EffectKind, Filter, JobId, Migrate,
    NewJob, Outcome, Recorded, Resolution, Routed, Settlement, Store, Sweep, Token, Which,
};
use hookfast_stripe::{Stripe, sign};
use hookfast_webhook::{
    Arrival, Event, EventId, FailureKind, HandlerName, Priority, RequestId, Secret, Secrets, SourceName, verify,
};
use time::OffsetDateTime;
use uuid::Uuid;

/// In each of four parts.
const SEQUENCES: usize = 250;
const STEPS: usize = 25;
/// Few, so that the steps get in each other's way.
const EVENTS: usize = 4;
const HANDLERS: usize = 2;
const HOUR: Duration = Duration::from_secs(3600);

/// What an intruder's step says in the list of steps.
const INTRUDES: &str = "by somebody who does not hold the job";
const DISAGREE: &str = "the store (left) and the model (right) disagree";

/// In parts that run side by side, so that none takes long.
macro_rules! parts {
    ($($part:ident)*) => {
        $(mod $part {
            #[tokio::test]
            async fn sqlite_does_what_the_model_does() {
                super::follow_the_model_on_sqlite().await;
            }

            #[tokio::test]
            async fn postgres_does_what_the_model_does() {
                super::follow_the_model_on_postgres().await;
            }
        })*
    };
}

parts! { part_1 part_2 part_3 part_4 }

#[test]
fn without_the_fence_sqlite_does_not_do_what_the_model_does() {
    assert_intruded("machine::part_1::sqlite_does_what_the_model_does");
}

#[test]
fn without_the_fence_postgres_does_not_do_what_the_model_does() {
    assert_intruded("machine::part_1::postgres_does_what_the_model_does");
}

/// Runs a test of this program without the fence: it must fail, and at a step that the fence is for.
fn assert_intruded(test: &str) {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env("FAULT_WITHOUT", "Fence").env_remove("FAULT_SEED");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(DISAGREE), "{said}");
    let last_step = said.lines().rfind(|line| line.starts_with("step ")).expect("the steps are listed");
    assert!(last_step.ends_with(INTRUDES), "{said}");
}

async fn follow_the_model_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("test.db").display());
    let reader = Reader::Sqlite(SqliteConnection::connect(&format!("{url}?mode=rwc")).await.unwrap());
    follow_the_model(&url, reader).await;
}

async fn follow_the_model_on_postgres() {
    let url = hookfast_harness::fresh_database();
    // As the store does it, or Postgres would go on as if the tables were still empty.
    let settings = [("enable_seqscan", "off"), ("jit", "off"), ("plan_cache_mode", "force_generic_plan")];
    let options = PgConnectOptions::from_str(&url).unwrap().options(settings);
    let reader = Reader::Postgres(PgConnection::connect_with(&options).await.unwrap());
    follow_the_model(&url, reader).await;
}

async fn follow_the_model(url: &str, mut reader: Reader) {
    let config = Config {
        url: url.parse().unwrap(),
        parallel_batches: 1,
        worker_connections: 2,
        dispatch_grace: Duration::ZERO,
    };
    let store = hookfast_store::open(&config, Migrate::Run).await.unwrap();
    // Without a unique index, so that doing it twice shows.
    let table = "CREATE TABLE done (event TEXT NOT NULL, handler TEXT NOT NULL); CREATE INDEX done_by ON done (event)";
    store.prepare(table).await.unwrap();
    for (number, seed) in seeds().into_iter().enumerate() {
        let mut sequence = Sequence::new(&store, &mut reader, number, seed);
        sequence.take(Step::Record(vec![0, 1])).await;
        for _ in 0..STEPS {
            let step = sequence.any_step();
            sequence.take(step).await;
        }
        sequence.come_to_the_end().await;
    }
    store.close().await;
}

fn seeds() -> Vec<u64> {
    match std::env::var("FAULT_SEED") {
        Ok(seed) => vec![seed.parse().expect("a seed is a number")],
        Err(_) => std::iter::repeat_with(|| fastrand::u64(..)).take(SEQUENCES).collect(),
    }
}

/// A job: the numbers of its event and of its handler. Events are numbered in the order of their ids.
type Place = (usize, usize);

/// Somebody who says that a job became theirs with this claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    job: Place,
    claim: usize,
}

/// When something is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    None,
    Hour,
}

impl Wait {
    fn length(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Hour => HOUR,
        }
    }

    fn is_over(self) -> bool {
        self == Self::None
    }
}

#[derive(Debug)]
enum Step {
    Record(Vec<usize>),
    Claim { handler: usize, events: Vec<usize>, lease: Wait, dead_letters: DeadLetters, crashes_below: Option<u32> },
    Settle(Vec<(Run, Outcome)>),
    Renew(Vec<Run>, Wait),
    HandBack(Vec<Run>),
    Sweep { handlers: Vec<usize>, look_again: Wait, look_at_suspects: Wait, crash_limit: u32 },
    LookAgain(Vec<usize>),
    OwnEffect { run: Run, commits: bool },
    BeginOutside { run: Run, commits: bool },
    FinishOutside(Run),
    Replay { jobs: Vec<Place>, force_effects: bool },
    Resolve(Vec<Place>),
    HoursPass,
}

impl Step {
    /// Those who want to write about a job.
    fn runs(&self) -> Vec<Run> {
        match self {
            Self::Settle(runs) => runs.iter().map(|(run, _)| *run).collect(),
            Self::Renew(runs, _) | Self::HandBack(runs) => runs.clone(),
            Self::OwnEffect { run, .. } | Self::BeginOutside { run, .. } | Self::FinishOutside(run) => vec![*run],
            _ => Vec::new(),
        }
    }
}

/// Some steps on events and handlers of their own, in a store that others have used before.
struct Sequence<'a> {
    store: &'a Arc<dyn Store>,
    reader: &'a mut Reader,
    random: Rng,
    model: Model,
    /// Made in the beginning and recorded in any order, so that an earlier one may come to light after a later one.
    events: Vec<Event>,
    handlers: Vec<HandlerName>,
    /// The tokens by the number of their claim. The first was never handed out.
    tokens: Vec<Token>,
    /// Jobs that somebody was told to look at.
    hints: BTreeSet<Place>,
    diary: Diary,
}

/// What was done, for when it goes wrong.
struct Diary {
    seed: u64,
    steps: Vec<String>,
}

impl Drop for Diary {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("To do it again: FAULT_SEED={}\n{}", self.seed, self.steps.join("\n"));
        }
    }
}

impl<'a> Sequence<'a> {
    fn new(store: &'a Arc<dyn Store>, reader: &'a mut Reader, number: usize, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let handler = |index| HandlerName::new(&format!("handler-{index}-{number}")).unwrap();
        let handlers: Vec<_> = (0..HANDLERS).map(handler).collect();
        let events: Vec<_> = (0..EVENTS).map(|index| event(&format!("evt_{index}_{number}"))).collect();
        let model = Model::new(&mut random);
        let plan = format!("routes {:?}\nkeys {:?}\nkeeps order {:?}", model.routes, model.keys, model.keeps_order);
        Self {
            store,
            reader,
            random,
            model,
            events,
            handlers,
            tokens: vec![Token(Uuid::new_v4())],
            hints: BTreeSet::new(),
            diary: Diary { seed, steps: vec![plan] },
        }
    }

    fn any_step(&mut self) -> Step {
        match self.random.u8(0..30) {
            0..3 => Step::Record(self.some(EVENTS)),
            3..9 => Step::Claim {
                handler: self.random.usize(0..HANDLERS),
                events: self.some(EVENTS),
                lease: self.wait(),
                dead_letters: if self.random.bool() { DeadLetters::Block } else { DeadLetters::StepOver },
                crashes_below: self.random.bool().then(|| self.random.u32(1..=3)),
            },
            9..13 => Step::Settle(self.runs().into_iter().map(|run| (run, self.outcome())).collect()),
            13..15 => Step::Renew(self.runs_of_different_jobs(), self.wait()),
            15 => Step::HandBack(self.runs()),
            16..19 => Step::Sweep {
                handlers: self.some(HANDLERS),
                look_again: self.wait(),
                look_at_suspects: self.wait(),
                crash_limit: self.random.u32(1..=4),
            },
            19 => Step::LookAgain(self.some(HANDLERS)),
            20..23 => Step::OwnEffect { run: self.run(), commits: self.random.bool() },
            23..25 => Step::BeginOutside { run: self.run(), commits: self.random.bool() },
            25 => Step::FinishOutside(self.run()),
            26..28 => Step::Replay { jobs: self.places(), force_effects: self.random.bool() },
            28 => Step::Resolve(self.places()),
            _ => Step::HoursPass,
        }
    }

    /// Some of the numbers below `count`, at least one, in any order.
    fn some(&mut self, count: usize) -> Vec<usize> {
        let wanted = self.random.usize(1..=count);
        self.random.choose_multiple(0..count, wanted)
    }

    fn places(&mut self) -> Vec<Place> {
        let wanted = self.random.usize(1..=4);
        let all = (0..EVENTS).flat_map(|event| (0..HANDLERS).map(move |handler| (event, handler)));
        self.random.choose_multiple(all, wanted)
    }

    fn wait(&mut self) -> Wait {
        if self.random.bool() { Wait::None } else { Wait::Hour }
    }

    /// Mostly somebody who holds a job, if there is one; otherwise any job with any token.
    fn run(&mut self) -> Run {
        let holders = self.model.holders();
        match self.random.choice(&holders) {
            Some(holder) if self.random.u8(0..3) > 0 => *holder,
            _ => Run {
                job: (self.random.usize(0..EVENTS), self.random.usize(0..HANDLERS)),
                claim: self.random.usize(0..self.tokens.len()),
            },
        }
    }

    fn runs(&mut self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..self.random.u8(1..=3) {
            let run = self.run();
            if !runs.contains(&run) {
                runs.push(run);
            }
        }
        runs
    }

    /// A process renews one run of a job at most: the latest that it knows of.
    fn runs_of_different_jobs(&mut self) -> Vec<Run> {
        let by_job: BTreeMap<_, _> = self.runs().into_iter().map(|run| (run.job, run)).collect();
        by_job.into_values().collect()
    }

    fn outcome(&mut self) -> Outcome {
        let (message, retry_in) = ("as the test wants it".to_owned(), self.wait().length());
        match self.random.u8(0..4) {
            0 => Outcome::Succeeded,
            1 => Outcome::Failed { kind: FailureKind::Network, message, retry_in },
            2 => Outcome::Dead { kind: FailureKind::Refused, message },
            _ => Outcome::Interrupted { message, retry_in },
        }
    }

    /// Does a step to both, and compares.
    async fn take(&mut self, step: Step) {
        let intrudes = step.runs().iter().any(|run| !self.model.holds(*run));
        let number = self.diary.steps.len();
        self.diary.steps.push(format!("step {number}: {step:?} {}", if intrudes { INTRUDES } else { "" }));
        match step {
            Step::Record(events) => self.record(&events).await,
            Step::Claim { handler, events, lease, dead_letters, crashes_below } => {
                let ordering = self.model.keeps_order[handler].then_some(dead_letters);
                self.claim(handler, &events, lease, ordering, crashes_below).await;
            }
            Step::Settle(runs) => self.settle(&runs).await,
            Step::Renew(runs, lease) => self.renew(&runs, lease).await,
            Step::HandBack(runs) => self.hand_back(&runs).await,
            Step::Sweep { handlers, look_again, look_at_suspects, crash_limit } => {
                self.sweep(&handlers, look_again, look_at_suspects, crash_limit).await;
            }
            Step::LookAgain(handlers) => {
                let changed = self.store.look_again(&self.names(&handlers), 1000).await.unwrap();
                agree("how many pending jobs were not due", &changed, &self.model.look_again(&handlers));
            }
            Step::OwnEffect { run, commits } => {
                self.own_effect(run, commits).await;
                self.reader.wait_for(self.events[run.job.0].id()).await;
            }
            Step::BeginOutside { run, commits } => {
                self.begin_outside(run, commits).await;
                self.reader.wait_for(self.events[run.job.0].id()).await;
            }
            Step::FinishOutside(run) => self.finish_outside(run).await,
            Step::Replay { jobs, force_effects } => self.replay(&jobs, force_effects).await,
            Step::Resolve(jobs) => self.resolve(&jobs).await,
            Step::HoursPass => {
                self.reader.let_hours_pass(self.events[0].id()).await;
                self.model.let_hours_pass();
            }
        }
        self.model.assert_promises();
        self.compare().await;
    }

    async fn compare(&mut self) {
        let mut found = self.reader.rows(self.events[0].id()).await;
        let job = |(event, handler): Place| format!("{} {}", self.key(event), self.handlers[handler]);
        let mut expected = self.model.rows(job);
        found.sort();
        expected.sort();
        let (left, right) = (found.join("\n"), expected.join("\n"));
        assert!(found == expected, "{DISAGREE} about the rows:\n{left}\n\n{right}\n");
    }

    async fn record(&mut self, events: &[usize]) {
        let routed: Vec<_> = events.iter().map(|event| self.routed(*event)).collect();
        let recorded = self.store.record(&routed).await.unwrap();
        let expected: Vec<_> = events.iter().map(|event| self.model.record(*event)).collect();
        agree("what is new", &recorded, &expected);
    }

    /// The event as it comes the first time, or another with the same key.
    fn routed(&self, number: usize) -> Routed {
        let is_known = self.model.recorded.contains(&number);
        let event = if is_known { event(self.key(number)) } else { self.events[number].clone() };
        let jobs = self.model.routes[number].iter().map(|handler| self.new_job((number, *handler))).collect();
        Routed { event, jobs }
    }

    async fn claim(
        &mut self,
        handler: usize,
        events: &[usize],
        lease: Wait,
        ordering: Option<DeadLetters>,
        crashes_below: Option<u32>,
    ) {
        let number = self.tokens.len();
        let ids: Vec<_> = events.iter().map(|event| self.events[*event].id()).collect();
        let claim = Claim {
            handler: &self.handlers[handler],
            events: &ids,
            worker: &worker(number),
            lease: lease.length(),
            ordering,
            crashes_below,
        };
        let claimed = self.store.claim(&claim).await.unwrap();
        let expected = self.model.claim(number, handler, events, lease, ordering, crashes_below);
        let seen = |claimed: &hookfast_store::Claimed| (claimed.job.clone(), claimed.attempt, claimed.crashes);
        let model = |place: &Place| {
            let job = &self.model.jobs[place];
            (self.id(*place), job.attempts, job.crashes)
        };
        let expected: Vec<_> = expected.iter().map(model).collect();
        agree("what is claimed", &claimed.iter().map(seen).collect::<Vec<_>>(), &expected);
        self.tokens.push(claimed.first().map_or_else(|| Token(Uuid::new_v4()), |claimed| claimed.token));
    }

    async fn settle(&mut self, runs: &[(Run, Outcome)]) {
        let settlement = |(run, outcome): &(Run, Outcome)| Settlement {
            job: self.id(run.job),
            token: self.tokens[run.claim],
            attempt: self.model.jobs.get(&run.job).map_or(0, |job| job.attempts),
            started_at: OffsetDateTime::now_utc(),
            duration: Duration::from_millis(3),
            worker: worker(run.claim).into(),
            outcome: outcome.clone(),
        };
        let settlements: Vec<_> = runs.iter().map(settlement).collect();
        let settled = self.store.settle(&settlements).await.unwrap();
        let (stale, next) = self.model.settle(runs);
        agree("who may not settle", &sorted(settled.stale), &self.ids(&stale));
        let ready = settled.next.into_iter().map(|ready| ready.job).collect();
        agree("who is next", &sorted(ready), &self.ids(&next));
        self.hints.extend(next);
    }

    async fn renew(&mut self, runs: &[Run], lease: Wait) {
        let lost = self.store.renew(&self.held(runs), lease.length()).await.unwrap();
        let expected = self.model.renew(runs, lease);
        agree("who has lost the lease", &sorted(lost), &self.ids(&expected));
    }

    async fn hand_back(&mut self, runs: &[Run]) {
        self.store.hand_back(&self.held(runs)).await.unwrap();
        self.model.hand_back(runs);
    }

    async fn sweep(&mut self, handlers: &[usize], look_again: Wait, look_at_suspects: Wait, crash_limit: u32) {
        let sweep = Sweep {
            handlers: &self.names(handlers),
            limit: 1000,
            look_again_in: look_again.length(),
            look_at_suspects_in: look_at_suspects.length(),
            crash_limit,
        };
        let swept = self.store.sweep(&sweep).await.unwrap();
        let expected = self.model.sweep(handlers, look_again, look_at_suspects, crash_limit);
        agree("how many are due", &swept.due, &expected.due);
        let ready = swept.ready.into_iter().map(|ready| ready.job).collect();
        agree("who is ready", &sorted(ready), &self.ids(&expected.ready));
        agree("who is a suspect", &sorted(swept.suspects), &self.ids(&expected.suspects));
        agree("who crashed", &sorted(swept.crashed), &self.ids(&expected.crashed));
        agree("who is buried", &sorted(swept.buried), &self.ids(&expected.buried));
        self.hints.extend(expected.ready);
        self.hints.extend(expected.suspects);
    }

    /// As the SDK does it: what is done is not done again, and what is not committed leaves nothing.
    async fn own_effect(&mut self, run: Run, commits: bool) {
        let job = self.id(run.job);
        let effect = EffectKey { job: &job, token: self.tokens[run.claim], key: OWN, kind: EffectKind::Own };
        let Some(mut begun) = self.begin(run, &effect).await else { return };
        if begun.is_done {
            return;
        }
        let (event, handler) = run.job;
        let values = vec![self.key(event).into(), self.handlers[handler].as_str().into()];
        begun.transaction.execute("INSERT INTO done (event, handler) VALUES ($1, $2)", values).await.unwrap();
        if commits {
            let result = self.random.bool().then(|| run.claim.to_string());
            begun.transaction.commit(&effect, result.as_deref()).await.unwrap();
            self.model.do_own(run.job, begun.id, result);
        }
    }

    async fn begin_outside(&mut self, run: Run, commits: bool) {
        let job = self.id(run.job);
        let effect = EffectKey { job: &job, token: self.tokens[run.claim], key: OUTSIDE, kind: EffectKind::Outside };
        let Some(begun) = self.begin(run, &effect).await else { return };
        if commits && !begun.is_done {
            begun.transaction.commit_begun().await.unwrap();
            self.model.begin_outside(run.job, begun.id);
        }
    }

    /// Begins an effect, and compares what its marker says.
    async fn begin(&self, run: Run, effect: &EffectKey<'_>) -> Option<BegunEffect> {
        let begun = match self.store.begin_effect(effect).await {
            Ok(begun) => Some(begun),
            Err(EffectError::LostLease) => None,
            Err(error) => panic!("{error}"),
        };
        agree("who may begin an effect", &begun.is_some(), &self.model.holds(run));
        let begun = begun?;
        let marker = self.model.jobs[&run.job].markers.get(effect.key);
        if let Some(marker) = marker {
            agree("the id of a marker", &begun.id, &marker.id);
        }
        agree("what is done", &begun.is_done, &marker.is_some_and(|marker| marker.is_done));
        agree("what came of it", &begun.result, &marker.and_then(|marker| marker.result.clone()));
        Some(begun)
    }

    async fn finish_outside(&mut self, run: Run) {
        let job = self.id(run.job);
        let effect = EffectKey { job: &job, token: self.tokens[run.claim], key: OUTSIDE, kind: EffectKind::Outside };
        let result = run.claim.to_string();
        let is_finished = match self.store.finish_effect(&effect, Some(&result)).await {
            Ok(()) => true,
            Err(EffectError::LostLease) => false,
            Err(error) => panic!("{error}"),
        };
        agree("who may finish an effect", &is_finished, &self.model.finish_outside(run, result));
    }

    async fn replay(&mut self, places: &[Place], force_effects: bool) {
        let jobs: Vec<_> = places.iter().map(|place| (self.events[place.0].id(), self.new_job(*place))).collect();
        let replayed = self.act("replay", Act::Replay { jobs: &jobs, force_effects }).await;
        agree("how many are replayed", &replayed, &self.model.replay(places, force_effects));
    }

    async fn resolve(&mut self, places: &[Place]) {
        let jobs = self.ids(places);
        let resolved = self.act("resolve", Act::Resolve { jobs: &jobs, resolution: Resolution::ManualFix }).await;
        agree("how many are resolved", &resolved, &self.model.resolve(places));
    }

    async fn act(&self, action: &str, act: Act<'_>) -> u64 {
        let audit = Audit {
            id: Uuid::now_v7(),
            at: OffsetDateTime::now_utc(),
            who: "test".into(),
            action: action.into(),
            why: None,
            filter: "{}".into(),
            jobs: 0,
            next_after: None,
            is_done: false,
        };
        self.store.begin_act(&audit).await.unwrap();
        self.store.act(&hookfast_store::Step { audit: audit.id, act, next_after: None, is_last: true }).await.unwrap()
    }

    /// Nothing is broken any more, and every message is lost. Whoever only does what the sweeper says brings every job to
    /// its end, with its effect done once.
    async fn come_to_the_end(&mut self) {
        self.hints.clear();
        let open = self.model.open();
        for _ in 0..open.len() {
            if self.model.open().is_empty() {
                break;
            }
            self.take(Step::HoursPass).await;
            let handlers = (0..HANDLERS).collect();
            let (look_again, look_at_suspects) = (Wait::Hour, Wait::Hour);
            self.take(Step::Sweep { handlers, look_again, look_at_suspects, crash_limit: 3 }).await;
            self.follow_hints().await;
        }
        assert_eq!(self.model.open(), [], "somebody was never told to look at these");
        for place in open {
            let job = &self.model.jobs[&place];
            assert!(job.state != State::Succeeded || job.times_done() == 1, "{place:?} succeeded without its effect");
        }
        self.compare_counts().await;
    }

    /// Does what the hints say and those that come up meanwhile.
    async fn follow_hints(&mut self) {
        while let Some((_, handler)) = self.hints.first().copied() {
            let events = self.hints.extract_if(.., |hint| hint.1 == handler).map(|(event, _)| event).collect();
            let dead_letters = DeadLetters::StepOver;
            self.take(Step::Claim { handler, events, lease: Wait::Hour, dead_letters, crashes_below: None }).await;
            for run in self.model.holders() {
                self.take(Step::OwnEffect { run, commits: true }).await;
            }
            let done = self.model.holders().into_iter().map(|run| (run, Outcome::Succeeded)).collect();
            self.take(Step::Settle(done)).await;
        }
    }

    /// The states add up, as operators count them.
    async fn compare_counts(&self) {
        for (number, handler) in self.handlers.iter().enumerate() {
            let filter = Filter { handler: Some(handler.to_string()), ..Filter::default() };
            let states: Vec<_> = self.model.jobs.iter().filter(|((_, of), _)| *of == number).collect();
            let dead = states.iter().filter(|(_, job)| job.state == State::DeadLetter).count();
            let count = async |which| self.store.count(which, &filter).await.unwrap();
            agree("how many are finished", &count(Which::Finished).await, &(states.len() as u64));
            agree("how many are dead", &count(Which::DeadLetters).await, &(dead as u64));
        }
    }

    /// An event's dedupe key.
    fn key(&self, event: usize) -> &str {
        self.events[event].dedupe_key().as_str()
    }

    fn new_job(&self, (event, handler): Place) -> NewJob {
        NewJob {
            handler: self.handlers[handler].clone(),
            priority: Priority::Normal,
            ordering_key: self.model.keys[event].map(str::to_owned),
        }
    }

    fn id(&self, (event, handler): Place) -> JobId {
        JobId { event: self.events[event].id(), handler: self.handlers[handler].clone() }
    }

    fn ids(&self, places: &[Place]) -> Vec<JobId> {
        sorted(places.iter().map(|place| self.id(*place)).collect())
    }

    fn names(&self, handlers: &[usize]) -> Vec<HandlerName> {
        handlers.iter().map(|handler| self.handlers[*handler].clone()).collect()
    }

    fn held(&self, runs: &[Run]) -> Vec<(JobId, Token)> {
        runs.iter().map(|run| (self.id(run.job), self.tokens[run.claim])).collect()
    }
}

fn agree<T: Debug + PartialEq>(what: &str, store: &T, model: &T) {
    assert_eq!(store, model, "{DISAGREE} about {what}");
}

fn sorted(mut jobs: Vec<JobId>) -> Vec<JobId> {
    jobs.sort();
    jobs
}

fn worker(claim: usize) -> String {
    format!("w{claim}")
}

fn event(key: &str) -> Event {
    let (secret, received_at) = (Secret::new("whsec_machine").unwrap(), OffsetDateTime::now_utc());
    let body = format!(r#"{{"id":"{key}","type":"invoice.paid","created":1759999996}}"#);
    let request = sign("https://h.example/webhooks/stripe", &secret, received_at.unix_timestamp(), body);
    let stripe = Stripe::new(&Default::default());
    let genuine = verify(&stripe, request, &Secrets::new(vec![secret]), received_at).unwrap();
    let arrival = Arrival {
        request_id: RequestId::new(),
        source: SourceName::new("stripe").unwrap(),
        remote_address: "2001:db8::7".parse().unwrap(),
        received_at,
    };
    genuine.genuine().expect("no handshake").read(&stripe, arrival).0.remove(0)
}

/// The key of the effect in the database, and of the one elsewhere.
const OWN: &str = "own";
const OUTSIDE: &str = "outside";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Pending,
    /// With the number of the claim that it is held by.
    Processing(usize),
    Failed,
    Succeeded,
    DeadLetter,
    Resolved,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing(_) => "processing",
            Self::Failed => "failed",
            Self::Succeeded => "succeeded",
            Self::DeadLetter => "dead_letter",
            Self::Resolved => "resolved",
        }
    }

    fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::DeadLetter | Self::Resolved)
    }
}

/// The marker of an effect.
struct Marker {
    id: Uuid,
    runs: u32,
    is_done: bool,
    result: Option<String>,
}

struct Job {
    state: State,
    attempts: u32,
    crashes: u32,
    is_due: bool,
    /// Why it is dead, or how it was resolved.
    reason: &'static str,
    /// Number, failure and claim of each run that ended.
    history: Vec<(u32, &'static str, usize)>,
    markers: BTreeMap<&'static str, Marker>,
    /// How often the effect in the database was done, in all and before an operator had it forgotten.
    done: usize,
    done_and_forgotten: usize,
}

impl Job {
    fn new() -> Self {
        Self {
            state: State::Pending,
            attempts: 0,
            crashes: 0,
            is_due: true,
            reason: "-",
            history: Vec::new(),
            markers: BTreeMap::new(),
            done: 0,
            done_and_forgotten: 0,
        }
    }

    fn times_done(&self) -> usize {
        self.done - self.done_and_forgotten
    }

    fn settle(&mut self, claim: usize, outcome: &Outcome) {
        let (state, failure) = match outcome {
            Outcome::Succeeded => (State::Succeeded, "-"),
            Outcome::Failed { .. } => (State::Failed, "network"),
            Outcome::Dead { .. } => (State::DeadLetter, "refused"),
            Outcome::Interrupted { .. } => (State::Failed, "pipeline"),
        };
        self.history.push((self.attempts, failure, claim));
        (self.state, self.reason) = (state, failure);
        if let Outcome::Failed { retry_in, .. } | Outcome::Interrupted { retry_in, .. } = outcome {
            self.is_due = retry_in.is_zero();
        }
        match outcome {
            Outcome::Interrupted { .. } => self.attempts -= 1,
            _ => self.crashes = 0,
        }
    }

    /// The lease has ended. Says whether that was once too often.
    fn crash(&mut self, claim: usize, crash_limit: u32) -> bool {
        self.history.push((self.attempts, "crash", claim));
        self.crashes += 1;
        let is_buried = self.crashes >= crash_limit;
        if is_buried {
            (self.state, self.reason) = (State::DeadLetter, "crash");
        }
        is_buried
    }

    fn replay(&mut self, force_effects: bool) {
        (self.state, self.attempts, self.crashes, self.is_due) = (State::Pending, 0, 0, true);
        if force_effects {
            self.markers.clear();
            self.done_and_forgotten = self.done;
        }
    }
}

/// What the sweeper should find.
#[derive(Default)]
struct Swept {
    due: usize,
    ready: Vec<Place>,
    suspects: Vec<Place>,
    crashed: Vec<Place>,
    buried: Vec<Place>,
}

/// What a store should do, as simply as it can be said.
struct Model {
    /// The handlers of each event.
    routes: Vec<Vec<usize>>,
    /// The ordering key of each event's jobs.
    keys: Vec<Option<&'static str>>,
    /// Which handlers claim in order.
    keeps_order: Vec<bool>,
    recorded: BTreeSet<usize>,
    jobs: BTreeMap<Place, Job>,
}

impl Model {
    fn new(random: &mut Rng) -> Self {
        let mut any = |choices: &[&[usize]]| choices[random.usize(0..choices.len())].to_vec();
        let routes = (0..EVENTS).map(|_| any(&[&[0], &[1], &[0, 1]])).collect();
        let keys = [None, Some("a"), Some("a"), Some("b")];
        Self {
            routes,
            keys: (0..EVENTS).map(|_| keys[random.usize(0..keys.len())]).collect(),
            keeps_order: (0..HANDLERS).map(|_| random.u8(0..3) > 0).collect(),
            recorded: BTreeSet::new(),
            jobs: BTreeMap::new(),
        }
    }

    fn holds(&self, run: Run) -> bool {
        self.jobs.get(&run.job).is_some_and(|job| job.state == State::Processing(run.claim))
    }

    /// The job, if the run holds it.
    fn held(&mut self, run: Run) -> Option<&mut Job> {
        self.jobs.get_mut(&run.job).filter(|job| job.state == State::Processing(run.claim))
    }

    fn holders(&self) -> Vec<Run> {
        let holder = |(job, of): (&Place, &Job)| match of.state {
            State::Processing(claim) => Some(Run { job: *job, claim }),
            _ => None,
        };
        self.jobs.iter().filter_map(holder).collect()
    }

    /// What is not finished.
    fn open(&self) -> Vec<Place> {
        self.jobs.iter().filter(|(_, job)| !job.state.is_finished()).map(|(place, _)| *place).collect()
    }

    /// The other jobs of the same handler with the same ordering key.
    fn same_key(&self, place: Place) -> impl Iterator<Item = (usize, State)> {
        let others = self.jobs.iter().filter(move |((event, handler), _)| {
            *event != place.0
                && *handler == place.1
                && self.keys[place.0].is_some()
                && self.keys[*event] == self.keys[place.0]
        });
        others.map(|((event, _), job)| (*event, job.state))
    }

    fn record(&mut self, event: usize) -> Recorded {
        if !self.recorded.insert(event) {
            return Recorded::Duplicate;
        }
        for handler in &self.routes[event] {
            self.jobs.insert((event, *handler), Job::new());
        }
        Recorded::New
    }

    fn claim(
        &mut self,
        claim: usize,
        handler: usize,
        events: &[usize],
        lease: Wait,
        ordering: Option<DeadLetters>,
        crashes_below: Option<u32>,
    ) -> Vec<Place> {
        let wanted: BTreeSet<Place> = events.iter().map(|event| (*event, handler)).collect();
        let can_go = |place: &Place| {
            let is_free =
                |job: &Job| job.state == State::Pending && crashes_below.is_none_or(|crashes| job.crashes < crashes);
            self.jobs.get(place).is_some_and(is_free)
                && ordering.is_none_or(|dead_letters| self.is_its_turn(*place, dead_letters))
        };
        let taken: Vec<_> = wanted.into_iter().filter(can_go).collect();
        for place in &taken {
            let job = self.jobs.get_mut(place).unwrap();
            (job.state, job.is_due) = (State::Processing(claim), lease.is_over());
            job.attempts += 1;
        }
        taken
    }

    fn is_its_turn(&self, place: Place, dead_letters: DeadLetters) -> bool {
        self.same_key(place).all(|(event, state)| match state {
            State::Processing(_) => false,
            State::Pending | State::Failed => event > place.0,
            State::DeadLetter => event > place.0 || dead_letters == DeadLetters::StepOver,
            State::Succeeded | State::Resolved => true,
        })
    }

    /// Gives the jobs that nothing was written for, and those that waited behind one that is finished now.
    fn settle(&mut self, runs: &[(Run, Outcome)]) -> (Vec<Place>, Vec<Place>) {
        let mut settled = Vec::new();
        for (run, outcome) in runs {
            if let Some(job) = self.held(*run) {
                job.settle(run.claim, outcome);
                settled.push(run.job);
            }
        }
        let stale = runs.iter().map(|(run, _)| run.job).filter(|job| !settled.contains(job)).collect();
        let finished = settled.iter().filter(|job| self.jobs[*job].state.is_finished());
        (stale, finished.filter_map(|job| self.first_behind(*job)).collect())
    }

    fn first_behind(&self, place: Place) -> Option<Place> {
        let mut behind = self.same_key(place).filter(|(event, state)| *event > place.0 && *state == State::Pending);
        behind.next().map(|(event, _)| (event, place.1))
    }

    fn renew(&mut self, runs: &[Run], lease: Wait) -> Vec<Place> {
        let mut lost = Vec::new();
        for run in runs {
            match self.held(*run) {
                Some(job) => job.is_due = lease.is_over(),
                None => lost.push(run.job),
            }
        }
        lost
    }

    fn hand_back(&mut self, runs: &[Run]) {
        for run in runs {
            if let Some(job) = self.held(*run) {
                (job.state, job.is_due) = (State::Pending, true);
                job.attempts -= 1;
            }
        }
    }

    fn sweep(&mut self, handlers: &[usize], look_again: Wait, look_at_suspects: Wait, crash_limit: u32) -> Swept {
        let mut swept = Swept::default();
        let due =
            |(place, job): &(&Place, &mut Job)| handlers.contains(&place.1) && job.is_due && !job.state.is_finished();
        for (place, job) in self.jobs.iter_mut().filter(due) {
            swept.due += 1;
            if let State::Processing(claim) = job.state {
                swept.crashed.push(*place);
                if job.crash(claim, crash_limit) {
                    swept.buried.push(*place);
                    continue;
                }
            }
            job.state = State::Pending;
            job.is_due = if job.crashes > 0 { look_at_suspects } else { look_again }.is_over();
            let is_suspect = job.crashes > 0 && job.crashes + 1 >= crash_limit;
            if is_suspect { &mut swept.suspects } else { &mut swept.ready }.push(*place);
        }
        let is_first =
            |place: &Place| self.same_key(*place).all(|(event, state)| event > place.0 || state.is_finished());
        swept.ready.retain(is_first);
        swept.suspects.retain(is_first);
        swept
    }

    fn look_again(&mut self, handlers: &[usize]) -> u64 {
        let mut changed = 0;
        for ((_, handler), job) in &mut self.jobs {
            if handlers.contains(handler) && job.state == State::Pending && !job.is_due {
                job.is_due = true;
                changed += 1;
            }
        }
        changed
    }

    fn do_own(&mut self, place: Place, id: Uuid, result: Option<String>) {
        let job = self.jobs.get_mut(&place).unwrap();
        job.markers.insert(OWN, Marker { id, runs: 1, is_done: true, result });
        job.done += 1;
    }

    fn begin_outside(&mut self, place: Place, id: Uuid) {
        let new = Marker { id, runs: 0, is_done: false, result: None };
        self.jobs.get_mut(&place).unwrap().markers.entry(OUTSIDE).or_insert(new).runs += 1;
    }

    fn finish_outside(&mut self, run: Run, result: String) -> bool {
        let Some(marker) = self.held(run).and_then(|job| job.markers.get_mut(OUTSIDE)) else { return false };
        (marker.is_done, marker.result) = (true, Some(result));
        true
    }

    fn replay(&mut self, places: &[Place], force_effects: bool) -> u64 {
        let mut replayed = 0;
        for place in places.iter().filter(|(event, _)| self.recorded.contains(event)) {
            match self.jobs.get_mut(place) {
                Some(job) if !job.state.is_finished() => continue,
                Some(job) => job.replay(force_effects),
                None => _ = self.jobs.insert(*place, Job::new()),
            }
            replayed += 1;
        }
        replayed
    }

    fn resolve(&mut self, places: &[Place]) -> u64 {
        let mut resolved = Vec::new();
        for place in places {
            if let Some(job) = self.jobs.get_mut(place).filter(|job| job.state == State::DeadLetter) {
                (job.state, job.reason) = (State::Resolved, "manual_fix");
                resolved.push(*place);
            }
        }
        for place in &resolved {
            if let Some(behind) = self.first_behind(*place) {
                self.jobs.get_mut(&behind).unwrap().is_due = true;
            }
        }
        resolved.len() as u64
    }

    fn let_hours_pass(&mut self) {
        for job in self.jobs.values_mut() {
            job.is_due = true;
        }
    }

    fn assert_promises(&self) {
        for (place, job) in &self.jobs {
            assert!(job.times_done() <= 1, "the effect of {place:?} was done twice");
            let is_held = matches!(job.state, State::Processing(_)) && self.keeps_order[place.1];
            let mut others = self.same_key(*place);
            assert!(
                !is_held || !others.any(|(_, state)| matches!(state, State::Processing(_))),
                "{place:?} and another with its key run at the same time",
            );
        }
    }

    /// What the database should hold; see [`rows`]. `name` gives what a job is called there.
    fn rows(&self, name: impl Fn(Place) -> String) -> Vec<String> {
        let mut rows = Vec::new();
        for (place, job) in &self.jobs {
            let (name, Job { attempts, crashes, .. }) = (name(*place), job);
            let state = match job.state {
                State::DeadLetter | State::Resolved => format!("{} {}", job.state.word(), job.reason),
                State::Processing(claim) => format!("processing {} held", worker(claim)),
                state => state.word().into(),
            };
            let due = match (job.state.is_finished(), job.is_due) {
                (true, _) => "finished",
                (false, true) => "due",
                (false, false) => "later",
            };
            rows.push(format!("job {name} {state} {due} attempts {attempts} crashes {crashes}"));
            for (number, failure, claim) in &job.history {
                rows.push(format!("attempt {name} {number} {failure} {}", worker(*claim)));
            }
            for (key, Marker { runs, is_done, result, .. }) in &job.markers {
                let (done, result) = (if *is_done { "done" } else { "begun" }, result.as_deref().unwrap_or("-"));
                rows.push(format!("effect {name} {key} runs {runs} {done} {result}"));
            }
            rows.extend(std::iter::repeat_n(format!("done {name}"), job.done));
        }
        rows
    }
}

/// Everything about the jobs of events from `$1` on, as texts. Due is what is due within half an hour, because everything is
/// due now or in an hour; what is due much later would be forgotten. `CROSS JOIN` keeps SQLite from reading whole tables.
macro_rules! rows {
    ($in_half_an_hour:literal, $in_two_hours:literal) => {
        concat!(
            "SELECT 'job ' || dedupe_key || ' ' || handler || ' ' || state
                 || CASE WHEN state IN ('dead_letter', 'resolved') THEN ' ' || coalesce(reason, '-') ELSE '' END
                 || coalesce(' ' || worker, '')
                 || CASE WHEN token IS NULL THEN '' ELSE ' held' END
                 || CASE WHEN finished_at IS NOT NULL THEN ' finished'
                         WHEN due_at < ",
            $in_half_an_hour,
            " THEN ' due' WHEN due_at < ",
            $in_two_hours,
            " THEN ' later' ELSE ' forgotten' END
                 || ' attempts ' || attempts || ' crashes ' || crashes
             FROM events CROSS JOIN jobs WHERE jobs.event_id = events.id AND events.id >= $1
             UNION ALL
             SELECT 'attempt ' || dedupe_key || ' ' || handler || ' ' || number || ' ' || coalesce(failure, '-') || ' '
                 || worker
             FROM events CROSS JOIN attempts WHERE attempts.event_id = events.id AND events.id >= $1
             UNION ALL
             SELECT 'effect ' || dedupe_key || ' ' || handler || ' ' || key || ' runs ' || runs
                 || CASE WHEN is_done AND done_at IS NOT NULL THEN ' done ' ELSE ' begun ' END || coalesce(result, '-')
             FROM events CROSS JOIN effects WHERE effects.event_id = events.id AND events.id >= $1
             UNION ALL
             SELECT 'done ' || dedupe_key || ' ' || handler
             FROM events CROSS JOIN done WHERE done.event = events.dedupe_key AND events.id >= $1"
        )
    };
}

/// A connection beside the store.
enum Reader {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Reader {
    async fn rows(&mut self, first: EventId) -> Vec<String> {
        const ON_SQLITE: &str = rows!("(unixepoch() + 1800) * 1000000", "(unixepoch() + 7200) * 1000000");
        const ON_POSTGRES: &str =
            rows!("clock_timestamp() + interval '30 minutes'", "clock_timestamp() + interval '2 hours'");
        match self {
            Self::Sqlite(connection) => sqlx::query_scalar(ON_SQLITE).bind(first.0).fetch_all(connection).await,
            Self::Postgres(connection) => sqlx::query_scalar(ON_POSTGRES).bind(first.0).fetch_all(connection).await,
        }
        .unwrap()
    }

    /// Waits until no transaction holds the jobs of an event. On Postgres one that was dropped ends in its own time, and
    /// sweeps and renewals pass over what it holds; on SQLite the next writer waits for it.
    async fn wait_for(&mut self, event: EventId) {
        if let Self::Postgres(connection) = self {
            let lock = "SELECT FROM jobs WHERE event_id = $1 FOR UPDATE";
            sqlx::query(lock).bind(event.0).execute(connection).await.unwrap();
        }
    }

    async fn let_hours_pass(&mut self, first: EventId) {
        const ON_SQLITE: &str = "UPDATE jobs SET due_at = due_at - 7200000000 WHERE event_id >= $1";
        const ON_POSTGRES: &str = "UPDATE jobs SET due_at = due_at - interval '2 hours' WHERE event_id >= $1";
        match self {
            Self::Sqlite(connection) => {
                sqlx::query(ON_SQLITE).bind(first.0).execute(connection).await.unwrap();
            }
            Self::Postgres(connection) => {
                sqlx::query(ON_POSTGRES).bind(first.0).execute(connection).await.unwrap();
            }
        }
    }
}

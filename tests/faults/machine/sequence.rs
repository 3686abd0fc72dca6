//! A sequence of random steps, done to a store and to the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use hookfast_store::{DeadLetters, Filter, Interruption, JobId, NewJob, Outcome, Store, Token, Which};
use hookfast_stripe::{Stripe, sign};
use hookfast_webhook::{
    Arrival, Event, FailureKind, HandlerName, Priority, RequestId, Secret, Secrets, SourceName, verify,
};
use time::OffsetDateTime;
use uuid::Uuid;

use super::job::State;
use super::model::Model;
use super::reader::Reader;
use super::steps::{Place, Run, Step, Wait};
use super::verbs::{agree, sorted};
use super::{DISAGREE, EVENTS, HANDLERS, INTRUDES};

/// Some steps on events and handlers of their own, in a store that others have used before.
pub(super) struct Sequence<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) reader: &'a mut Reader,
    pub(super) random: Rng,
    pub(super) model: Model,
    /// Made in the beginning and recorded in any order, so that an earlier one may come to light after a later one.
    pub(super) events: Vec<Event>,
    pub(super) handlers: Vec<HandlerName>,
    /// The tokens by the number of their claim. The first was never handed out.
    pub(super) tokens: Vec<Token>,
    /// Jobs that a worker was told to look at.
    pub(super) hints: BTreeSet<Place>,
    pub(super) diary: Diary,
}

/// What was done, for when it goes wrong.
pub(super) struct Diary {
    pub(super) seed: u64,
    pub(super) steps: Vec<String>,
}

impl Drop for Diary {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("To do it again: FAULT_SEED={}\n{}", self.seed, self.steps.join("\n"));
        }
    }
}

impl<'a> Sequence<'a> {
    pub(super) fn new(store: &'a Arc<dyn Store>, reader: &'a mut Reader, number: usize, seed: u64) -> Self {
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

    pub(super) fn any_step(&mut self) -> Step {
        match self.random.u8(0..30) {
            0..3 => Step::Record(self.some(EVENTS)),
            3..9 => Step::Claim {
                handler: self.random.usize(0..HANDLERS),
                events: self.some(EVENTS),
                lease: self.wait(),
                dead_letters: self.dead_letters(),
                crashes_below: self.random.bool().then(|| self.random.u32(1..=3)),
            },
            9..13 => Step::Settle(self.runs().into_iter().map(|run| (run, self.outcome())).collect()),
            13..15 => Step::Renew(self.runs_of_different_jobs(), self.wait()),
            15 => Step::HandBack(self.runs()),
            16..18 => Step::Sweep {
                handlers: self.some(HANDLERS),
                crash_limit: self.random.u32(1..=4),
                judges_leases: self.random.u8(0..3) > 0,
            },
            18 => Step::Pardon(self.lost_runs()),
            19 => Step::DueJobs {
                handler: self.random.usize(0..HANDLERS),
                dead_letters: self.dead_letters(),
                page: self.random.u32(1..=4),
            },
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

    /// Mostly one that lost its lease, as its process would say it, and any others.
    fn lost_runs(&mut self) -> Vec<Run> {
        let crashed = self.model.crashed();
        let mut by_job: BTreeMap<_, _> = self.runs().into_iter().map(|run| (run.job, run)).collect();
        if let Some(run) = self.random.choice(&crashed) {
            by_job.insert(run.job, *run);
        }
        by_job.into_values().collect()
    }

    fn dead_letters(&mut self) -> DeadLetters {
        if self.random.bool() { DeadLetters::Block } else { DeadLetters::StepOver }
    }

    /// Mostly a worker that holds a job, if there is one; otherwise any job with any token.
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
            _ if self.random.bool() => Outcome::Snoozed { message, retry_in },
            _ if self.random.bool() => Outcome::Interrupted { by: Interruption::Store, message, retry_in },
            _ => Outcome::Interrupted { by: Interruption::Process, message, retry_in },
        }
    }

    /// Does a step to both, and compares.
    pub(super) async fn take(&mut self, step: Step) {
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
            Step::Pardon(runs) => self.pardon(&runs).await,
            Step::Sweep { handlers, crash_limit, judges_leases } => {
                self.sweep(&handlers, crash_limit, judges_leases).await;
            }
            Step::DueJobs { handler, dead_letters, page } => {
                let ordering = self.model.keeps_order[handler].then_some(dead_letters);
                self.due_jobs(handler, ordering, page).await;
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

    /// Nothing is broken any more, and every message is lost. Whoever only does what the sweeper says brings every job to
    /// its end, with its effect done once.
    pub(super) async fn come_to_the_end(&mut self) {
        self.hints.clear();
        let open = self.model.open();
        for _ in 0..open.len() {
            if self.model.open().is_empty() {
                break;
            }
            self.take(Step::HoursPass).await;
            let handlers = (0..HANDLERS).collect();
            self.take(Step::Sweep { handlers, crash_limit: 3, judges_leases: true }).await;
            for handler in 0..HANDLERS {
                self.take(Step::DueJobs { handler, dead_letters: DeadLetters::StepOver, page: 2 }).await;
            }
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
    pub(super) fn key(&self, event: usize) -> &str {
        self.events[event].dedupe_key().as_str()
    }

    pub(super) fn new_job(&self, (event, handler): Place) -> NewJob {
        NewJob {
            handler: self.handlers[handler].clone(),
            priority: Priority::Normal,
            ordering_key: self.model.keys[event].map(str::to_owned),
        }
    }

    pub(super) fn id(&self, (event, handler): Place) -> JobId {
        JobId { event: self.events[event].id(), handler: self.handlers[handler].clone() }
    }

    pub(super) fn ids(&self, places: &[Place]) -> Vec<JobId> {
        sorted(places.iter().map(|place| self.id(*place)).collect())
    }

    pub(super) fn names(&self, handlers: &[usize]) -> Vec<HandlerName> {
        handlers.iter().map(|handler| self.handlers[*handler].clone()).collect()
    }

    pub(super) fn held(&self, runs: &[Run]) -> Vec<(JobId, Token)> {
        runs.iter().map(|run| (self.id(run.job), self.tokens[run.claim])).collect()
    }
}

pub(super) fn event(key: &str) -> Event {
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
        trace_id: None,
    };
    genuine.genuine().expect("no handshake").read(&stripe, arrival).0.remove(0)
}

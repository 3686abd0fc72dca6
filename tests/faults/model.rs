//! Experiment 12: the protocol of claim, effect, settle and sweep as a model, and every state that it can get into.
//!
//! One job with one effect, two workers, a queue that loses and repeats. At any moment a worker may die or stand still past
//! its lease and go on, and the store may lose the claim it wrote last, as in a power cut without sync. Whatever happens, the
//! promises hold; and with any one protection taken away, the search finds how they break.

use std::collections::{HashMap, HashSet, VecDeque};

/// How many claims there are at most: enough for each worker to hold the job twice, and few enough to search them all.
const CLAIMS_MAX: u8 = 4;
const MESSAGES_MAX: u8 = 2;
const CRASH_LIMIT: u8 = 3;

/// What keeps the promises. All of it in the real thing.
#[derive(Debug, Clone, Copy)]
struct Protections {
    /// Effects and outcomes need the job's current token.
    fence: bool,
    /// An effect that is marked as done is not done again.
    marker: bool,
    /// Unfinished jobs are looked at again.
    sweeper: bool,
    /// A token is never given out twice.
    random_token: bool,
    /// A job that takes its process with it is given up.
    crash_limit: bool,
}

const ALL: Protections =
    Protections { fence: true, marker: true, sweeper: true, random_token: true, crash_limit: true };

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Job {
    Pending,
    /// With the token of the worker that holds it.
    Processing(u8),
    Failed,
    Succeeded,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Told,
    /// It has a token, and has not done the effect.
    Holding(u8),
    /// It has done it.
    Done(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct State {
    job: Job,
    /// How many claims were made, which is also where tokens come from.
    claims: u8,
    crashes: u8,
    is_marked: bool,
    /// How often the effect was done.
    effects: u8,
    messages: u8,
    workers: [Worker; 2],
    /// A worker without the current token wrote something.
    intruded: bool,
}

const START: State = State {
    job: Job::Pending,
    claims: 0,
    crashes: 0,
    is_marked: false,
    effects: 0,
    messages: 0,
    workers: [Worker::Idle; 2],
    intruded: false,
};

impl State {
    fn is_finished(&self) -> bool {
        matches!(self.job, Job::Succeeded | Job::Dead)
    }

    /// Everything that can happen next.
    fn next(&self, with: Protections) -> Vec<Self> {
        let mut next = Vec::new();
        self.queue(&mut next);
        if with.sweeper {
            next.extend(self.sweep(with));
        }
        if !with.random_token && matches!(self.job, Job::Processing(_)) {
            // The claim is lost in a power cut, and the number is given out again.
            next.push(Self { job: Job::Pending, claims: self.claims - 1, ..*self });
        } else if matches!(self.job, Job::Processing(_)) {
            next.push(Self { job: Job::Pending, ..*self });
        }
        for index in 0..self.workers.len() {
            self.work(index, with, &mut next);
        }
        next
    }

    fn queue(&self, next: &mut Vec<Self>) {
        if self.messages > 0 {
            next.push(Self { messages: self.messages - 1, ..*self });
        }
        if (1..MESSAGES_MAX).contains(&self.messages) {
            next.push(Self { messages: self.messages + 1, ..*self });
        }
    }

    /// A lease may end at any moment, because a worker may stand still for any time.
    fn sweep(&self, with: Protections) -> Option<Self> {
        let tell = |state: Self| Self { messages: (self.messages + 1).min(MESSAGES_MAX), ..state };
        match self.job {
            Job::Pending | Job::Failed => Some(tell(Self { job: Job::Pending, ..*self })),
            Job::Processing(_) => {
                let crashes = (self.crashes + 1).min(CRASH_LIMIT);
                if with.crash_limit && crashes == CRASH_LIMIT {
                    return Some(Self { job: Job::Dead, crashes, ..*self });
                }
                Some(tell(Self { job: Job::Pending, crashes, ..*self }))
            }
            Job::Succeeded | Job::Dead => None,
        }
    }

    fn work(&self, index: usize, with: Protections, next: &mut Vec<Self>) {
        let becomes = |worker: Worker, state: Self| {
            let mut workers = state.workers;
            workers[index] = worker;
            Self { workers, ..state }
        };
        let worker = self.workers[index];
        if worker != Worker::Idle {
            // It dies.
            next.push(becomes(Worker::Idle, *self));
        }
        match worker {
            Worker::Idle => {
                if self.messages > 0 {
                    // The message stays until it is acknowledged, or is gone, as the queue likes.
                    next.push(becomes(Worker::Told, *self));
                }
            }
            Worker::Told => {
                if self.job == Job::Pending && self.claims < CLAIMS_MAX {
                    let token = self.claims;
                    let claimed = Self { job: Job::Processing(token), claims: self.claims + 1, ..*self };
                    next.push(becomes(Worker::Holding(token), claimed));
                }
                next.push(becomes(Worker::Idle, *self));
            }
            Worker::Holding(token) => match self.may_write(token, with) {
                Some(intruded) => {
                    let does_it = !(with.marker && self.is_marked);
                    let effects = self.effects + u8::from(does_it && self.effects < 2);
                    next.push(becomes(Worker::Done(token), Self { is_marked: true, effects, intruded, ..*self }));
                    next.push(becomes(Worker::Idle, Self { job: Job::Failed, intruded, ..*self }));
                }
                None => next.push(becomes(Worker::Idle, *self)),
            },
            Worker::Done(token) => {
                let settled = match self.may_write(token, with) {
                    Some(intruded) => Self { job: Job::Succeeded, intruded, ..*self },
                    None => *self,
                };
                next.push(becomes(Worker::Idle, settled));
            }
        }
    }

    /// Whether a worker with this token can write, and if so, whether by now a worker has written that should not have.
    fn may_write(&self, token: u8, with: Protections) -> Option<bool> {
        let is_its_own = self.job == Job::Processing(token) && !self.is_held_by_another(token);
        let passes = if with.fence { self.job == Job::Processing(token) } else { true };
        passes.then_some(self.intruded || !is_its_own)
    }

    /// Two workers with one token: only possible where tokens are given out twice.
    fn is_held_by_another(&self, token: u8) -> bool {
        self.workers
            .iter()
            .filter(|worker| matches!(worker, Worker::Holding(of) | Worker::Done(of) if *of == token))
            .count()
            > 1
    }

    fn claimed_by_somebody_who_dies(self) -> Self {
        match self.job {
            Job::Pending => Self { job: Job::Processing(0), ..self },
            _ => self,
        }
    }

    fn broken_promise(&self) -> Option<&'static str> {
        if self.effects > 1 {
            return Some("an effect was done twice");
        }
        if self.job == Job::Succeeded && self.effects != 1 {
            return Some("a job succeeded without its effect");
        }
        self.intruded.then_some("a worker without the current token wrote something")
    }
}

/// Searches every state. Gives the promises that can be broken, and whether a job can get stuck.
fn search(with: Protections) -> (HashSet<&'static str>, usize) {
    let mut found = HashMap::from([(START, Vec::new())]);
    let mut open = VecDeque::from([START]);
    while let Some(state) = open.pop_front() {
        let next = state.next(with);
        for state in &next {
            if !found.contains_key(state) {
                found.insert(*state, Vec::new());
                open.push_back(*state);
            }
        }
        found.insert(state, next);
    }
    let mut broken: HashSet<_> = found.keys().filter_map(State::broken_promise).collect();
    if !can_all_finish(&found) {
        broken.insert("a job is never finished");
    }
    (broken, found.len())
}

/// Whether from every state there is a way to the end. States that have used up the claims that the model allows are
/// exempt: reality allows more.
fn can_all_finish(found: &HashMap<State, Vec<State>>) -> bool {
    let mut finishing: HashSet<State> =
        found.keys().filter(|state| state.is_finished() || state.claims == CLAIMS_MAX).copied().collect();
    loop {
        let before = finishing.len();
        for (state, next) in found {
            if next.iter().any(|state| finishing.contains(state)) {
                finishing.insert(*state);
            }
        }
        if finishing.len() == before {
            return finishing.len() == found.len();
        }
    }
}

/// Whether a job that takes every process with it goes round for ever: then it is never visibly dead.
fn poison_ends(with: Protections) -> bool {
    let mut state = START;
    for _ in 0..100 {
        let Some(swept) = state.sweep(with) else { return true };
        state = swept.claimed_by_somebody_who_dies();
    }
    false
}

#[test]
fn whatever_happens_every_promise_holds() {
    let (broken, states) = search(ALL);
    assert!(broken.is_empty(), "{broken:?}");
    assert!(states > 1000, "the search saw only {states} states");
    assert!(poison_ends(ALL));
}

#[test]
fn without_any_one_protection_a_promise_breaks() {
    let broken = |with| search(with).0;
    assert!(broken(Protections { fence: false, ..ALL }).contains("a worker without the current token wrote something"));
    assert!(broken(Protections { marker: false, ..ALL }).contains("an effect was done twice"));
    assert!(broken(Protections { sweeper: false, ..ALL }).contains("a job is never finished"));
    assert!(
        broken(Protections { random_token: false, ..ALL })
            .contains("a worker without the current token wrote something")
    );
    assert!(!poison_ends(Protections { crash_limit: false, ..ALL }));
}

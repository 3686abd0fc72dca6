//! What a store should do, as simply as it can be said.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use hookfast_store::{DeadLetters, Outcome, Recorded};
use uuid::Uuid;

use super::job::{Job, Marker, OUTSIDE, OWN, State, worker};
use super::steps::{Place, Run, Wait};
use super::{EVENTS, HANDLERS};

/// What the sweeper should find.
#[derive(Default)]
pub(super) struct Swept {
    pub(super) changed: usize,
    pub(super) crashed: Vec<Place>,
    pub(super) buried: Vec<Place>,
}

/// What a store should do, as simply as it can be said.
pub(super) struct Model {
    /// The handlers of each event.
    pub(super) routes: Vec<Vec<usize>>,
    /// The ordering key of each event's jobs.
    pub(super) keys: Vec<Option<&'static str>>,
    /// Which handlers claim in order.
    pub(super) keeps_order: Vec<bool>,
    pub(super) recorded: BTreeSet<usize>,
    pub(super) jobs: BTreeMap<Place, Job>,
}

impl Model {
    pub(super) fn new(random: &mut Rng) -> Self {
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

    pub(super) fn holds(&self, run: Run) -> bool {
        self.jobs.get(&run.job).is_some_and(|job| job.state == State::Processing(run.claim))
    }

    /// The job, if the run holds it.
    pub(super) fn held(&mut self, run: Run) -> Option<&mut Job> {
        self.jobs.get_mut(&run.job).filter(|job| job.state == State::Processing(run.claim))
    }

    pub(super) fn holders(&self) -> Vec<Run> {
        let holder = |(job, of): (&Place, &Job)| match of.state {
            State::Processing(claim) => Some(Run { job: *job, claim }),
            _ => None,
        };
        self.jobs.iter().filter_map(holder).collect()
    }

    /// What is not finished.
    pub(super) fn open(&self) -> Vec<Place> {
        self.jobs.iter().filter(|(_, job)| !job.state.is_finished()).map(|(place, _)| *place).collect()
    }

    /// The other jobs of the same handler with the same ordering key.
    pub(super) fn same_key(&self, place: Place) -> impl Iterator<Item = (usize, State)> {
        let others = self.jobs.iter().filter(move |((event, handler), _)| {
            *event != place.0
                && *handler == place.1
                && self.keys[place.0].is_some()
                && self.keys[*event] == self.keys[place.0]
        });
        others.map(|((event, _), job)| (*event, job.state))
    }

    pub(super) fn record(&mut self, event: usize) -> Recorded {
        if !self.recorded.insert(event) {
            return Recorded::Duplicate;
        }
        for handler in &self.routes[event] {
            self.jobs.insert((event, *handler), Job::new());
        }
        Recorded::New
    }

    pub(super) fn claim(
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

    pub(super) fn is_its_turn(&self, place: Place, dead_letters: DeadLetters) -> bool {
        self.same_key(place).all(|(event, state)| match state {
            State::Processing(_) => false,
            State::Pending | State::Failed => event > place.0,
            State::DeadLetter => event > place.0 || dead_letters == DeadLetters::StepOver,
            State::Succeeded | State::Resolved => true,
        })
    }

    /// Gives the jobs that nothing was written for, and the first ones that wait with the key of one that is finished now.
    pub(super) fn settle(&mut self, runs: &[(Run, Outcome)]) -> (Vec<Place>, Vec<Place>) {
        let mut settled = Vec::new();
        for (run, outcome) in runs {
            if let Some(job) = self.held(*run) {
                job.settle(run.claim, outcome);
                settled.push(run.job);
            }
        }
        let stale = runs.iter().map(|(run, _)| run.job).filter(|job| !settled.contains(job)).collect();
        let finished = settled.iter().filter(|job| self.jobs[*job].state.is_finished());
        (stale, finished.filter_map(|job| self.first_pending(*job)).collect())
    }

    fn first_pending(&self, place: Place) -> Option<Place> {
        let mut pending = self.same_key(place).filter(|(_, state)| *state == State::Pending);
        pending.next().map(|(event, _)| (event, place.1))
    }

    pub(super) fn first_behind(&self, place: Place) -> Option<Place> {
        let mut behind = self.same_key(place).filter(|(event, state)| *event > place.0 && *state == State::Pending);
        behind.next().map(|(event, _)| (event, place.1))
    }

    pub(super) fn renew(&mut self, runs: &[Run], lease: Wait) -> Vec<Place> {
        let mut lost = Vec::new();
        for run in runs {
            match self.held(*run) {
                Some(job) => job.is_due = lease.is_over(),
                None => lost.push(run.job),
            }
        }
        lost
    }

    pub(super) fn hand_back(&mut self, runs: &[Run]) {
        for run in runs {
            if let Some(job) = self.held(*run) {
                (job.state, job.is_due) = (State::Pending, true);
                job.attempts -= 1;
            }
        }
    }

    pub(super) fn pardon(&mut self, runs: &[Run]) {
        for run in runs {
            if let Some(job) = self.jobs.get_mut(&run.job) {
                job.pardon(run.claim);
            }
        }
    }

    pub(super) fn sweep(&mut self, handlers: &[usize], crash_limit: u32, judges_leases: bool) -> Swept {
        let mut swept = Swept::default();
        let due = |(place, job): &(&Place, &mut Job)| handlers.contains(&place.1) && job.is_due;
        for (place, job) in self.jobs.iter_mut().filter(due) {
            match job.state {
                State::Failed => {}
                State::Processing(claim) if judges_leases => {
                    swept.crashed.push(*place);
                    if job.crash(claim, crash_limit) {
                        swept.buried.push(*place);
                        swept.changed += 1;
                        continue;
                    }
                }
                _ => continue,
            }
            job.state = State::Pending;
            swept.changed += 1;
        }
        swept
    }

    /// Runs whose lease has ended, as the sweeper saw it.
    pub(super) fn crashed(&self) -> Vec<Run> {
        let runs = self.jobs.iter().flat_map(|(job, of)| of.history.iter().map(move |run| (*job, run)));
        runs.filter(|(_, run)| run.1 == "crash").map(|(job, run)| Run { job, claim: run.2 }).collect()
    }

    /// The pending jobs that are due: with their crashes, and whether it is their turn.
    pub(super) fn due_jobs(&self, handler: usize, dead_letters: Option<DeadLetters>) -> Vec<(Place, u32, bool)> {
        let due = self.jobs.iter().filter(|((_, of), job)| *of == handler && job.is_due && job.state == State::Pending);
        let blocks = |state: State| match state {
            State::DeadLetter => dead_letters == Some(DeadLetters::Block),
            state => !state.is_finished(),
        };
        due.map(|(place, job)| {
            let is_ready = !self.same_key(*place).any(|(event, state)| event < place.0 && blocks(state));
            (*place, job.crashes, is_ready)
        })
        .collect()
    }

    pub(super) fn do_own(&mut self, place: Place, id: Uuid, result: Option<String>) {
        let job = self.jobs.get_mut(&place).unwrap();
        job.markers.insert(OWN, Marker { id, runs: 1, is_done: true, result });
        job.done += 1;
    }

    pub(super) fn begin_outside(&mut self, place: Place, id: Uuid) {
        let new = Marker { id, runs: 0, is_done: false, result: None };
        self.jobs.get_mut(&place).unwrap().markers.entry(OUTSIDE).or_insert(new).runs += 1;
    }

    pub(super) fn finish_outside(&mut self, run: Run, result: String) -> bool {
        let Some(marker) = self.held(run).and_then(|job| job.markers.get_mut(OUTSIDE)) else { return false };
        (marker.is_done, marker.result) = (true, Some(result));
        true
    }

    pub(super) fn replay(&mut self, places: &[Place], force_effects: bool) -> u64 {
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

    pub(super) fn resolve(&mut self, places: &[Place]) -> u64 {
        let mut resolved = Vec::new();
        for place in places {
            if let Some(job) = self.jobs.get_mut(place).filter(|job| job.state == State::DeadLetter) {
                job.state = State::Resolved;
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

    pub(super) fn let_hours_pass(&mut self) {
        for job in self.jobs.values_mut() {
            job.is_due = true;
        }
    }

    pub(super) fn assert_promises(&self) {
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
    pub(super) fn rows(&self, name: impl Fn(Place) -> String) -> Vec<String> {
        let mut rows = Vec::new();
        for (place, job) in &self.jobs {
            let (name, Job { attempts, crashes, interruptions, .. }) = (name(*place), job);
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
            rows.push(format!("job {name} {state} {due} attempts {attempts} crashes {crashes} spoilt {interruptions}"));
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

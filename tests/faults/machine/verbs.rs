//! Each step as the verb of the store that it is, with what the model says to it.

use std::fmt::Debug;
use std::time::Duration;

use hookfast_store::{
    Act, Action, Audit, BegunEffect, Claim, Claimed, Crash, DeadLetters, DueJobs, EffectError, EffectKey, EffectKind,
    JobId, LostRun, Outcome, Resolution, Routed, Settlement, Sweep, Token,
};
use time::OffsetDateTime;
use uuid::Uuid;

use super::DISAGREE;
use super::job::{OUTSIDE, OWN, worker};
use super::sequence::{Sequence, event};
use super::steps::{Place, Run, Wait};

impl Sequence<'_> {
    pub(super) async fn record(&mut self, events: &[usize]) {
        let routed: Vec<_> = events.iter().map(|event| self.routed(*event)).collect();
        let recorded = self.store.record(&routed).await.unwrap();
        let expected: Vec<_> = events.iter().map(|event| self.model.record(*event)).collect();
        agree("what is new", &recorded, &expected);
    }

    /// The event as it comes the first time, or another with the same key.
    pub(super) fn routed(&self, number: usize) -> Routed {
        let is_known = self.model.recorded.contains(&number);
        let event = if is_known { event(self.key(number)) } else { self.events[number].clone() };
        let jobs = self.model.routes[number].iter().map(|handler| self.new_job((number, *handler))).collect();
        Routed { event, jobs }
    }

    pub(super) async fn claim(
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
            token: Token::new(),
            lease: lease.length(),
            ordering,
            crashes_below,
        };
        let claimed = self.store.claim(&claim).await.unwrap();
        let expected = self.model.claim(number, handler, events, lease, ordering, crashes_below);
        let seen = |claimed: &Claimed| (claimed.job.clone(), claimed.attempt, claimed.crashes, claimed.interruptions);
        let model = |place: &Place| {
            let job = &self.model.jobs[place];
            (self.id(*place), job.attempts, job.crashes, job.interruptions)
        };
        let expected: Vec<_> = expected.iter().map(model).collect();
        agree("what is claimed", &claimed.iter().map(seen).collect::<Vec<_>>(), &expected);
        self.tokens.push(claimed.first().map_or_else(|| Token(Uuid::new_v4()), |claimed| claimed.token));
    }

    pub(super) async fn settle(&mut self, runs: &[(Run, Outcome)]) {
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

    pub(super) async fn renew(&mut self, runs: &[Run], lease: Wait) {
        let renewed = self.store.renew(&self.held(runs), lease.length()).await.unwrap();
        let expected = self.model.renew(runs, lease);
        agree("who has lost the lease", &sorted(renewed.lost), &self.ids(&expected));
        agree("whom an effect holds", &renewed.passed_over, &Vec::new());
    }

    pub(super) async fn hand_back(&mut self, runs: &[Run]) {
        self.store.hand_back(&self.held(runs)).await.unwrap();
        self.model.hand_back(runs);
    }

    pub(super) async fn pardon(&mut self, runs: &[Run]) {
        let lost = |run: &Run| {
            let history = self.model.jobs.get(&run.job).map(|job| &job.history);
            let noted = history.and_then(|history| history.iter().find(|(_, _, claim)| *claim == run.claim));
            let attempt = noted.map_or(1, |(number, _, _)| *number);
            LostRun { job: self.id(run.job), attempt, worker: worker(run.claim).into() }
        };
        let lost: Vec<_> = runs.iter().map(lost).collect();
        self.store.pardon(&lost).await.unwrap();
        self.model.pardon(runs);
    }

    pub(super) async fn sweep(&mut self, handlers: &[usize], crash_limit: u32, judges_leases: bool) {
        let sweep = Sweep {
            handlers: &self.names(handlers),
            limit: 1000,
            crash_limit,
            judge_leases_within: judges_leases.then_some(Duration::MAX),
        };
        let swept = self.store.sweep(&sweep).await.unwrap();
        let expected = self.model.sweep(handlers, crash_limit, judges_leases);
        agree("how many are swept", &swept.changed, &expected.changed);
        let jobs = |crashes: &[Crash]| sorted(crashes.iter().map(|crash| crash.job.clone()).collect());
        let buried: Vec<_> = swept.crashed.iter().filter(|crash| crash.is_buried).cloned().collect();
        agree("who crashed", &jobs(&swept.crashed), &self.ids(&expected.crashed));
        agree("who is buried", &jobs(&buried), &self.ids(&expected.buried));
    }

    /// Page by page. That it changes nothing shows when the rows are compared.
    pub(super) async fn due_jobs(&mut self, handler: usize, ordering: Option<DeadLetters>, page: u32) {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let due = DueJobs { handler: &self.handlers[handler], after, limit: page, ordering };
            let part = self.store.due_jobs(&due).await.unwrap();
            assert!(part.len() <= page as usize, "more than asked for: {part:?}");
            let Some(last) = part.last() else { break };
            after = Some(last.place);
            found.extend(part);
        }
        assert!(found.is_sorted_by_key(|job| job.place), "the longest due is first: {found:?}");
        found.sort_by_key(|job| job.place.event);
        let found: Vec<_> = found.iter().map(|job| (job.place.event, job.crashes, job.is_ready)).collect();
        let expected = self.model.due_jobs(handler, ordering);
        let id = |(place, crashes, is_ready): &(Place, u32, bool)| (self.events[place.0].id(), *crashes, *is_ready);
        agree("what is due", &found, &expected.iter().map(id).collect::<Vec<_>>());
        self.hints.extend(expected.iter().filter(|(_, _, is_ready)| *is_ready).map(|(place, _, _)| *place));
    }

    /// As the SDK does it: what is done is not done again, and what is not committed leaves nothing.
    pub(super) async fn own_effect(&mut self, run: Run, commits: bool) {
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

    pub(super) async fn begin_outside(&mut self, run: Run, commits: bool) {
        let job = self.id(run.job);
        let effect = EffectKey { job: &job, token: self.tokens[run.claim], key: OUTSIDE, kind: EffectKind::Outside };
        let Some(begun) = self.begin(run, &effect).await else { return };
        if commits && !begun.is_done {
            begun.transaction.commit_begun().await.unwrap();
            self.model.begin_outside(run.job, begun.id);
        }
    }

    /// Begins an effect, and compares what its marker says.
    pub(super) async fn begin(&self, run: Run, effect: &EffectKey<'_>) -> Option<BegunEffect> {
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

    pub(super) async fn finish_outside(&mut self, run: Run) {
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

    pub(super) async fn replay(&mut self, places: &[Place], force_effects: bool) {
        let jobs: Vec<_> = places.iter().map(|place| (self.events[place.0].id(), self.new_job(*place))).collect();
        let replayed = self.act(Action::Replay, Act::Replay { jobs: &jobs, force_effects }).await;
        agree("how many are replayed", &replayed, &self.model.replay(places, force_effects));
    }

    pub(super) async fn resolve(&mut self, places: &[Place]) {
        let jobs = self.ids(places);
        let resolved = self.act(Action::Resolve, Act::Resolve { jobs: &jobs, resolution: Resolution::ManualFix }).await;
        agree("how many are resolved", &resolved, &self.model.resolve(places));
    }

    pub(super) async fn act(&self, action: Action, act: Act<'_>) -> u64 {
        let audit = Audit {
            id: Uuid::now_v7(),
            at: OffsetDateTime::now_utc(),
            who: "test".into(),
            action,
            why: None,
            filter: "{}".into(),
            jobs: 0,
            next_after: None,
            is_done: false,
        };
        self.store.begin_act(&audit).await.unwrap();
        self.store
            .act(&hookfast_store::Step { audit: audit.id, act, next_after: None, is_last: true, as_of: None })
            .await
            .unwrap()
    }
}

pub(super) fn agree<T: Debug + PartialEq>(what: &str, store: &T, model: &T) {
    assert_eq!(store, model, "{DISAGREE} about {what}");
}

pub(super) fn sorted(mut jobs: Vec<JobId>) -> Vec<JobId> {
    jobs.sort();
    jobs
}

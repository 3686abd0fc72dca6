//! Replay: jobs become pending again, or are made for another handler.

use std::time::Duration;

use hookfast_store::{Act, Action, Audit, Found, Moment, NewJob, Operate, Step, StoreError, Which};
use hookfast_webhook::EventId;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::pages::{Page, Pages};
use super::{ActError, BATCH_MAX, Outcome, Progress, Selection, Targets, begin, is_blank};

/// What is replayed, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay {
    /// The jobs to replay.
    pub selection: Selection,
    /// The operator.
    pub who: String,
    /// The operator's reason.
    pub why: Option<String>,
    /// Delete the markers of their effects, so that the effects are done a second time.
    pub force_effects: bool,
    /// The most jobs per second.
    pub rate: Option<f64>,
    /// The number of jobs in a step, up to [`BATCH_MAX`].
    pub batch: u32,
}

/// What the audit row stores: everything that is needed to resume.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    selection: Selection,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    force_effects: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate_per_second: Option<f64>,
}

/// The action of the audit row.
const ACTION: Action = Action::Replay;

/// Replays the selected jobs, until all are done or `stop` is cancelled. Jobs that changed after the selection's
/// moment, or after this call if it has none, are left alone. `progress` is called after every step.
pub async fn replay(
    store: &dyn Operate,
    replay: &Replay,
    handlers: &Targets,
    progress: impl FnMut(Progress),
    stop: &CancellationToken,
) -> Result<Outcome, ActError> {
    check(replay, handlers)?;
    let replay = &Replay { selection: replay.selection.clone().as_of_now(store).await?, ..replay.clone() };
    let what = Written {
        selection: replay.selection.clone(),
        force_effects: replay.force_effects,
        rate_per_second: replay.rate,
    };
    let audit = begin(store, ACTION, &replay.who, replay.why.as_deref(), &what).await?;
    let start = Start { audit, after: None, jobs_before: 0 };
    go_on(store, replay, start, handlers, progress, stop).await
}

/// Continues an interrupted replay after its last finished step.
pub async fn resume(
    store: &dyn Operate,
    audit: Uuid,
    rate: Option<f64>,
    handlers: &Targets,
    progress: impl FnMut(Progress),
    stop: &CancellationToken,
) -> Result<Outcome, ActError> {
    let (audit, mut replay) = unfinished(store, audit).await?;
    replay.rate = rate.or(replay.rate);
    check(&replay, handlers)?;
    let start = Start { audit: audit.id, after: audit.next_after, jobs_before: audit.jobs };
    go_on(store, &replay, start, handlers, progress, stop).await
}

/// A replay that was begun and not finished.
pub async fn unfinished(store: &dyn Operate, id: Uuid) -> Result<(Audit, Replay), ActError> {
    let audit = store.audit(id).await?.ok_or(ActError::NoAct(id))?;
    let not_resumable = |why: String| Err(ActError::NotResumable(id, why));
    if audit.action != ACTION {
        return not_resumable(format!("it is not a replay but a {}", audit.action));
    }
    if audit.is_done {
        return not_resumable("it is finished".into());
    }
    let written: Written = match serde_json::from_str(&audit.filter) {
        Ok(written) => written,
        Err(error) => return not_resumable(format!("this program does not understand what it is about: {error}")),
    };
    let mut selection = written.selection;
    // Earlier versions stored no moment. The start of the act is the earliest that it can be.
    selection.filter.as_of.get_or_insert(Moment::at(audit.at));
    let replay = Replay {
        selection,
        who: audit.who.clone(),
        why: audit.why.clone(),
        force_effects: written.force_effects,
        rate: written.rate_per_second,
        batch: BATCH_MAX,
    };
    Ok((audit, replay))
}

fn check(replay: &Replay, handlers: &Targets) -> Result<(), ActError> {
    if replay.force_effects && is_blank(replay.why.as_deref()) {
        return Err(ActError::NoReason("doing effects a second time"));
    }
    match &replay.selection.onto {
        None if replay.selection.which == Which::Unhandled => Err(ActError::NoTarget),
        Some(onto) => handlers.check_target(onto),
        None => Ok(()),
    }
}

/// How far an act has come before this run.
pub(super) struct Start {
    pub(super) audit: Uuid,
    pub(super) after: Option<EventId>,
    pub(super) jobs_before: u64,
}

async fn go_on(
    store: &dyn Operate,
    replay: &Replay,
    start: Start,
    handlers: &Targets,
    mut report: impl FnMut(Progress),
    stop: &CancellationToken,
) -> Result<Outcome, ActError> {
    let Start { audit, after, jobs_before } = start;
    let broken = ActError::broken(audit);
    let limit = replay.selection.limit.unwrap_or(u64::MAX);
    let mut pages = Pages::after(store, &replay.selection, after);
    let mut pace = Pace::new(replay.rate);
    let mut progress = Progress::default();
    loop {
        if !pace.wait(stop).await {
            return Ok(Outcome { audit, progress, is_done: false });
        }
        let left = limit.saturating_sub(jobs_before + progress.changed);
        let page = if left == 0 {
            Page::last()
        } else {
            pages.next(step_size(replay.batch, replay.rate), left).await.map_err(broken)?
        };
        let jobs = jobs(store, replay, handlers, &page.found).await.map_err(|error| broken(error.into()))?;
        let act = Act::Replay { jobs: &jobs.made, force_effects: replay.force_effects };
        let as_of = replay.selection.filter.as_of.map(|moment| moment.at);
        let step = Step { audit, act, next_after: page.next_after, is_last: page.is_last, as_of };
        progress.changed += store.act(&step).await.map_err(|error| broken(error.into()))?;
        progress.found += page.found.len() as u64;
        progress.skipped += jobs.skipped;
        report(progress);
        if page.is_last {
            return Ok(Outcome { audit, progress, is_done: true });
        }
        pace.did(jobs.made.len());
    }
}

/// The changes for one page.
struct Jobs {
    made: Vec<(EventId, NewJob)>,
    skipped: u64,
}

async fn jobs(store: &dyn Operate, replay: &Replay, handlers: &Targets, found: &[Found]) -> Result<Jobs, StoreError> {
    let mut jobs = Jobs { made: Vec::new(), skipped: 0 };
    for found in found {
        match handlers.job(store, replay.selection.onto.as_ref(), found).await? {
            Some(job) => jobs.made.push((found.event, job)),
            None => jobs.skipped += 1,
        }
    }
    // Several jobs of one event become one job of the other handler.
    jobs.made.dedup_by(|(event, job), (event_before, before)| event == event_before && job.handler == before.handler);
    Ok(jobs)
}

/// With a rate, a step has at most the jobs of half a second, so that jobs do not come in bursts.
fn step_size(batch: u32, rate: Option<f64>) -> u32 {
    let half_a_second = rate.map_or(BATCH_MAX, |rate| (rate / 2.0) as u32);
    batch.min(BATCH_MAX).min(half_a_second).max(1)
}

/// Delays the steps of a replay with a rate. The first step starts at once, each later one after the time that the jobs
/// of the step before may take.
struct Pace {
    rate: Option<f64>,
    next_at: Instant,
}

impl Pace {
    fn new(rate: Option<f64>) -> Self {
        Self { rate, next_at: Instant::now() }
    }

    /// Waits until the next step may start. False if the replay must stop.
    async fn wait(&self, stop: &CancellationToken) -> bool {
        tokio::select! {
            biased;
            () = stop.cancelled() => false,
            () = sleep_until(self.next_at) => true,
        }
    }

    fn did(&mut self, jobs: usize) {
        // After a slow step, the next ones do not go faster than the rate.
        self.next_at = self.next_at.max(Instant::now()) + worth(jobs, self.rate);
    }
}

fn worth(jobs: usize, rate: Option<f64>) -> Duration {
    let seconds = rate.map_or(0.0, |rate| jobs as f64 / rate);
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_a_rate_a_step_is_half_a_seconds_worth() {
        assert_eq!(step_size(200, None), 200);
        assert_eq!(step_size(1000, None), BATCH_MAX);
        assert_eq!(step_size(200, Some(50.0)), 25);
        assert_eq!(step_size(10, Some(50.0)), 10);
        assert_eq!(step_size(200, Some(0.1)), 1);
        assert_eq!(step_size(0, None), 1);
    }

    #[test]
    fn a_step_is_worth_the_time_that_its_jobs_take_at_the_rate() {
        assert_eq!(worth(25, Some(50.0)), Duration::from_millis(500));
        assert_eq!(worth(3, Some(0.5)), Duration::from_secs(6));
        assert_eq!(worth(200, None), Duration::ZERO);
        assert_eq!(worth(0, Some(1.0)), Duration::ZERO);
    }
}

//! Unfinished jobs of handlers that are no longer configured. Operators count them here, and move them to another
//! handler or resolve them.

use std::collections::BTreeMap;

use hookfast_store::{Act, Action, Audit, Found, JobId, Measure, NewJob, Operate, Resolution, Step, StoreError, Which};
use hookfast_webhook::{HandlerName, JobState};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::pages::{Page, Pages};
use super::replay::Start;
use super::{ActError, BATCH_MAX, Outcome, Progress, Selection, Targets, begin, is_blank};

/// The number of unfinished jobs and dead letters of one handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerJobs {
    /// The handler.
    pub handler: String,
    /// Whether it is configured here.
    pub is_configured: bool,
    /// The number of jobs in each state.
    pub by_state: BTreeMap<JobState, u64>,
}

impl HandlerJobs {
    /// The number of jobs that still have to run.
    pub fn unfinished(&self) -> u64 {
        self.by_state.iter().filter(|(state, _)| state.is_unfinished()).map(|(_, count)| count).sum()
    }
}

/// The numbers for every handler that has such jobs, sorted by handler.
pub async fn summary(store: &dyn Measure, handlers: &Targets) -> Result<Vec<HandlerJobs>, StoreError> {
    let mut by_handler: BTreeMap<String, BTreeMap<JobState, u64>> = BTreeMap::new();
    for (handler, state, count) in store.backlog().await?.jobs {
        *by_handler.entry(handler).or_default().entry(state).or_default() += count;
    }
    let of_one = |(handler, by_state)| {
        let is_configured = handlers.names().any(|name| name.as_str() == handler);
        HandlerJobs { handler, is_configured, by_state }
    };
    Ok(by_handler.into_iter().map(of_one).collect())
}

/// Moves or resolves the unfinished jobs of a handler that is not configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandon {
    /// The jobs. If the selection names a handler in `onto`, they are moved to it; otherwise they are resolved.
    pub selection: Selection,
    /// How the jobs are resolved, if they are not moved.
    pub resolution: Option<Resolution>,
    /// The operator.
    pub who: String,
    /// The operator's reason.
    pub why: String,
}

/// What the audit row stores: everything that is needed to resume.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    selection: Selection,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolution: Option<String>,
}

impl Abandon {
    /// The action of the audit row.
    fn action(&self) -> Action {
        if self.selection.onto.is_some() { Action::Move } else { Action::Resolve }
    }

    /// Fails if the act would be refused.
    pub fn check(&self, handlers: &Targets) -> Result<(), ActError> {
        let Selection { filter, onto, .. } = &self.selection;
        let from = filter.handler.as_deref().ok_or(ActError::NoOrigin)?;
        if handlers.names().any(|name| name.as_str() == from) {
            return Err(ActError::StillConfigured(from.into()));
        }
        match onto {
            Some(onto) => handlers.check_target(onto),
            None if is_blank(Some(&self.why)) => Err(ActError::NoReason("resolving jobs")),
            None => Ok(()),
        }
    }
}

/// Moves or resolves the selected jobs, until all are done or `stop` is cancelled. Jobs that changed after the
/// selection's moment, or after this call if it has none, are left alone.
pub async fn abandon(
    store: &dyn Operate,
    order: &Abandon,
    handlers: &Targets,
    progress: impl FnMut(Progress),
    stop: &CancellationToken,
) -> Result<Outcome, ActError> {
    order.check(handlers)?;
    let order = &Abandon { selection: order.selection.clone().as_of_now(store).await?, ..order.clone() };
    let resolution = order.resolution.map(|resolution| resolution.to_string());
    let what = Written { selection: order.selection.clone(), resolution };
    let why = Some(order.why.as_str()).filter(|why| !is_blank(Some(why)));
    let audit = begin(store, order.action(), &order.who, why, &what).await?;
    go_on(store, order, Start { audit, after: None, jobs_before: 0 }, handlers, progress, stop).await
}

/// Continues an interrupted act after its last finished step.
pub async fn resume_abandon(
    store: &dyn Operate,
    audit: Uuid,
    handlers: &Targets,
    progress: impl FnMut(Progress),
    stop: &CancellationToken,
) -> Result<Outcome, ActError> {
    let (audit, order) = unfinished(store, audit).await?;
    order.check(handlers)?;
    let start = Start { audit: audit.id, after: audit.next_after, jobs_before: audit.jobs };
    go_on(store, &order, start, handlers, progress, stop).await
}

async fn unfinished(store: &dyn Operate, id: Uuid) -> Result<(Audit, Abandon), ActError> {
    let audit = store.audit(id).await?.ok_or(ActError::NoAct(id))?;
    let not_resumable = |why: String| Err(ActError::NotResumable(id, why));
    if audit.is_done {
        return not_resumable("it is finished".into());
    }
    let written: Written = match serde_json::from_str(&audit.filter) {
        Ok(written) => written,
        Err(_) if audit.action == Action::Replay => {
            return not_resumable("it is a replay: `hookfast replay --resume` continues it".into());
        }
        Err(error) => return not_resumable(format!("this program does not understand what it is about: {error}")),
    };
    if written.selection.which != Which::Unfinished {
        return not_resumable(format!("it is a {} of finished jobs", audit.action));
    }
    let resolution = match written.resolution.as_deref() {
        None => None,
        Some(word) => match word.parse() {
            Err(problem) => return not_resumable(problem),
            Ok(resolution) => Some(resolution),
        },
    };
    let (who, why) = (audit.who.clone(), audit.why.clone().unwrap_or_default());
    Ok((audit, Abandon { selection: written.selection, resolution, who, why }))
}

async fn go_on(
    store: &dyn Operate,
    order: &Abandon,
    start: Start,
    handlers: &Targets,
    mut report: impl FnMut(Progress),
    stop: &CancellationToken,
) -> Result<Outcome, ActError> {
    let Start { audit, after, jobs_before } = start;
    let broken = ActError::broken(audit);
    let mut pages = Pages::after(store, &order.selection, after);
    let mut progress = Progress::default();
    while !stop.is_cancelled() {
        let limit = order.selection.limit.unwrap_or(u64::MAX);
        let left = limit.saturating_sub(jobs_before + progress.changed);
        let page = if left == 0 { Page::last() } else { pages.next(BATCH_MAX, left).await.map_err(broken)? };
        let step = step(store, order, handlers, audit, &page).await?;
        progress.changed += step.changed;
        progress.skipped += step.skipped;
        progress.found += page.found.len() as u64;
        report(progress);
        if page.is_last {
            return Ok(Outcome { audit, progress, is_done: true });
        }
    }
    Ok(Outcome { audit, progress, is_done: false })
}

/// The result of one page.
struct Stepped {
    changed: u64,
    skipped: u64,
}

async fn step(
    store: &dyn Operate,
    order: &Abandon,
    handlers: &Targets,
    audit: Uuid,
    page: &Page,
) -> Result<Stepped, ActError> {
    let broken = |error: StoreError| ActError::Broken { audit, source: error.into() };
    let act = async |act| {
        let step = Step { audit, act, next_after: page.next_after, is_last: page.is_last, as_of: None };
        store.act(&step).await.map_err(broken)
    };
    if let Some(resolution) = order.resolution {
        let jobs: Vec<_> = page.found.iter().filter_map(job_id).collect();
        return Ok(Stepped { changed: act(Act::Abandon { jobs: &jobs, resolution }).await?, skipped: 0 });
    }
    let mut jobs: Vec<(JobId, NewJob)> = Vec::new();
    for found in &page.found {
        let new = handlers.job(store, order.selection.onto.as_ref(), found).await.map_err(broken)?;
        jobs.extend(job_id(found).zip(new));
    }
    let skipped = (page.found.len() - jobs.len()) as u64;
    Ok(Stepped { changed: act(Act::Move { jobs: &jobs }).await?, skipped })
}

fn job_id(found: &Found) -> Option<JobId> {
    let handler: HandlerName = found.handler.clone()?;
    Some(JobId { event: found.event, handler })
}

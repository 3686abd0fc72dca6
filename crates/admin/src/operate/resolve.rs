//! Resolving marks dead letters that need not run again. Reopening undoes that.

use hookfast_store::{Act, Action, Filter, Found, JobId, Operate, Resolution, Step, Which};
use hookfast_webhook::JobState;
use serde::Serialize;
use uuid::Uuid;

use super::pages::Pages;
use super::{ActError, BATCH_MAX, Outcome, Progress, Selection, begin, is_blank};

/// Which dead letters are resolved, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    /// The dead letters to resolve.
    pub filter: Filter,
    /// The most dead letters to resolve.
    pub limit: Option<u64>,
    /// What was done about them.
    pub resolution: Resolution,
    /// The operator.
    pub who: String,
    /// The operator's reason.
    pub why: String,
}

/// What the audit row stores.
#[derive(Serialize)]
struct Written<'a> {
    selection: &'a Selection,
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<&'static str>,
}

impl Resolve {
    /// The dead letters to resolve, as a selection.
    pub fn selection(&self) -> Selection {
        Selection { which: Which::DeadLetters, filter: self.filter.clone(), onto: None, limit: self.limit }
    }
}

/// Resolves the dead letters that were there at the filter's moment, or are there now if it has none. An interrupted
/// call can simply be repeated, because resolved jobs are no longer dead letters.
pub async fn resolve(
    store: &dyn Operate,
    resolve: &Resolve,
    mut report: impl FnMut(Progress),
) -> Result<Outcome, ActError> {
    if is_blank(Some(&resolve.why)) {
        return Err(ActError::NoReason("resolving dead letters"));
    }
    let selection = resolve.selection().as_of_now(store).await?;
    let what = Written { selection: &selection, resolution: Some(resolve.resolution.as_str()) };
    let audit = begin(store, Action::Resolve, &resolve.who, Some(&resolve.why), &what).await?;
    let resolution = resolve.resolution;
    act_on_all(store, &selection, audit, |jobs| Act::Resolve { jobs, resolution }, &mut report).await
}

/// Which resolved jobs become dead letters again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reopen {
    /// The resolved jobs to reopen.
    pub filter: Filter,
    /// The most jobs to reopen.
    pub limit: Option<u64>,
    /// The operator.
    pub who: String,
    /// The operator's reason.
    pub why: String,
}

impl Reopen {
    /// The resolved jobs to reopen, as a selection.
    pub fn selection(&self) -> Selection {
        let filter = Filter { state: Some(JobState::Resolved), ..self.filter.clone() };
        Selection { which: Which::Finished, filter, onto: None, limit: self.limit }
    }
}

/// Makes resolved jobs dead letters again, which keep the reason and time of their death. An interrupted call can
/// simply be repeated.
pub async fn reopen(
    store: &dyn Operate,
    reopen: &Reopen,
    mut report: impl FnMut(Progress),
) -> Result<Outcome, ActError> {
    if is_blank(Some(&reopen.why)) {
        return Err(ActError::NoReason("reopening dead letters"));
    }
    let selection = reopen.selection().as_of_now(store).await?;
    let what = Written { selection: &selection, resolution: None };
    let audit = begin(store, Action::Reopen, &reopen.who, Some(&reopen.why), &what).await?;
    act_on_all(store, &selection, audit, |jobs| Act::Reopen { jobs }, &mut report).await
}

/// Goes through the selected jobs page by page.
async fn act_on_all(
    store: &dyn Operate,
    selection: &Selection,
    audit: Uuid,
    act: impl for<'a> Fn(&'a [JobId]) -> Act<'a>,
    report: &mut impl FnMut(Progress),
) -> Result<Outcome, ActError> {
    let broken = ActError::broken(audit);
    let mut pages = Pages::after(store, selection, None);
    let mut progress = Progress::default();
    let mut is_done = false;
    while !is_done {
        let left = selection.limit.unwrap_or(u64::MAX).saturating_sub(progress.found);
        let page = pages.next(BATCH_MAX, left).await.map_err(broken)?;
        is_done = page.is_last || page.found.len() as u64 == left;
        let id = |found: &Found| Some(JobId { event: found.event, handler: found.handler.clone()? });
        let jobs: Vec<_> = page.found.iter().filter_map(id).collect();
        let as_of = selection.filter.as_of.map(|moment| moment.at);
        let step = Step { audit, act: act(&jobs), next_after: page.next_after, is_last: is_done, as_of };
        progress.changed += store.act(&step).await.map_err(|error| broken(error.into()))?;
        progress.found += page.found.len() as u64;
        report(progress);
    }
    Ok(Outcome { audit, progress, is_done: true })
}

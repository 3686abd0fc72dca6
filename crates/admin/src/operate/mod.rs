//! What operators do to jobs: replay, resolve, move. Each is one function, for the command line now and an admin API
//! later.
//!
//! An act writes its audit row before it begins, and then works in steps. Each step changes its jobs and its audit row
//! in one transaction. So an act that was interrupted can continue after its last finished step.

mod jobs;
mod pages;
mod preview;
mod replay;
mod resolve;
mod selection;
mod targets;
#[cfg(test)]
mod tests;

use hookfast_store::{Action, AskError, Audit, Operate, StoreError};
use hookfast_webhook::HandlerName;
use serde::Serialize;
use time::OffsetDateTime;
use uuid::Uuid;

pub use jobs::{Abandon, HandlerJobs, abandon, resume_abandon, summary};
pub use preview::{Count, Preview, how_many, preview};
pub use replay::{Replay, replay, resume, unfinished};
pub use resolve::{Reopen, Resolve, reopen, resolve};
pub use selection::{Selection, UnreadableSelection};
pub use targets::Targets;

/// The most jobs in one step. A step is one transaction, and other transactions should not wait long for it.
pub const BATCH_MAX: u32 = 200;

/// How far an act has come in this run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many selected jobs were processed.
    pub found: u64,
    /// How many jobs were changed or made.
    pub changed: u64,
    /// How many were left out, because no configured handler wants them.
    pub skipped: u64,
}

/// How an act ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The id of the audit row.
    pub audit: Uuid,
    /// What this run did.
    pub progress: Progress,
    /// Whether the act is finished. If not, [`resume`] continues it.
    pub is_done: bool,
}

/// An act that was refused or did not finish.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// This act requires a reason.
    #[error("{0} needs a reason")]
    NoReason(&'static str),
    /// The selected events have no handler, so the act must name one.
    #[error("these events have no handler: name the handler that they are replayed for")]
    NoTarget,
    /// The handler is not configured.
    #[error("there is no handler `{name}`; there is: {known}")]
    NoHandler {
        /// The handler that was named.
        name: String,
        /// The handlers that are configured.
        known: String,
    },
    /// Only the program with the handler's code knows which events the handler subscribes to.
    #[error(
        "the code of the handler `{0}` is not in this program, so its subscriptions are not known: use the program that has \
         it, or write `types` into its section of the configuration"
    )]
    Foreign(String),
    /// The act names no handler, so it would change the jobs of all handlers.
    #[error("name the handler whose jobs are meant")]
    NoOrigin,
    /// The jobs of a configured handler are still run.
    #[error(
        "the handler `{0}` is configured here, so its unfinished jobs still run. Remove it from the configuration first, or \
         wait: jobs that give up become dead letters, which can be replayed for another handler or resolved"
    )]
    StillConfigured(String),
    /// The audit has no such act.
    #[error("there is no act {0}")]
    NoAct(Uuid),
    /// The act is finished, or of another kind.
    #[error("the act {0} cannot be resumed: {1}")]
    NotResumable(Uuid, String),
    /// The store failed before the act began.
    #[error(transparent)]
    Store(#[from] AskError),
    /// The store failed during the act. [`resume`] continues it.
    #[error("{source}")]
    Broken {
        /// The id of the audit row.
        audit: Uuid,
        /// The error of the store.
        source: AskError,
    },
}

impl From<StoreError> for ActError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.into())
    }
}

impl ActError {
    fn broken(audit: Uuid) -> impl Fn(AskError) -> Self + Copy {
        move |source| Self::Broken { audit, source }
    }

    fn no_handler(name: &HandlerName, handlers: &Targets) -> Self {
        let known: Vec<_> = handlers.names().map(HandlerName::as_str).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        Self::NoHandler { name: name.to_string(), known }
    }
}

/// Writes the audit row of an act that begins.
async fn begin(
    store: &dyn Operate,
    action: Action,
    who: &str,
    why: Option<&str>,
    what: &impl Serialize,
) -> Result<Uuid, ActError> {
    let audit = Audit {
        id: Uuid::now_v7(),
        at: OffsetDateTime::now_utc(),
        who: who.into(),
        action,
        why: why.map(Into::into),
        filter: serde_json::to_string(what).map_err(|error| StoreError::Rejected(error.to_string()))?,
        jobs: 0,
        next_after: None,
        is_done: false,
    };
    store.begin_act(&audit).await?;
    Ok(audit.id)
}

fn is_blank(why: Option<&str>) -> bool {
    why.is_none_or(|why| why.trim().is_empty())
}

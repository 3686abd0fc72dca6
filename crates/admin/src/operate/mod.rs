//! What operators do to jobs: replay, resolve, move. Each is one function with two doors, the command line and the admin API.
//!
//! An act is noted in the audit before it begins, and goes on in steps. Each step is done and noted in one transaction, so an
//! act that was interrupted goes on after its last finished step.

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

/// The most jobs in one step: a step is one transaction, and no other should wait long for it.
pub const BATCH_MAX: u32 = 200;

/// How far an act has got in this run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many were looked at.
    pub found: u64,
    /// How many jobs were changed or made.
    pub changed: u64,
    /// How many were left out, because no handler here wants them.
    pub skipped: u64,
}

/// How an act ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The act in the audit.
    pub audit: Uuid,
    /// What this run came to.
    pub progress: Progress,
    /// Whether it got to its end. If not, [`resume`] goes on.
    pub is_done: bool,
}

/// An act that was not done, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Who does something that cannot be undone says why.
    #[error("{0} needs a reason")]
    NoReason(&'static str),
    /// They have no handler, so one must be named.
    #[error("events without a handler need one to be given to")]
    NoTarget,
    /// The handler is not configured.
    #[error("there is no handler `{name}`; there is: {known}")]
    NoHandler {
        /// The one that was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Only its own program knows what the handler subscribes to.
    #[error(
        "the code of the handler `{0}` is not in this program, so what it subscribes to is not known: use the program that \
         has it, or write `types` into its section of the configuration"
    )]
    Foreign(String),
    /// It would be about the jobs of all handlers.
    #[error("say whose jobs it is about")]
    NoOrigin,
    /// Its jobs are run.
    #[error(
        "the handler `{0}` is configured here, so its unfinished jobs are run. Remove it from the configuration first, or \
         wait for them: what gives up is a dead letter, which can be replayed for another handler or resolved"
    )]
    StillConfigured(String),
    /// There is nothing to go on with.
    #[error("there is no act {0}")]
    NoAct(Uuid),
    /// There is nothing to go on with.
    #[error("the act {0} cannot be resumed: {1}")]
    NotResumable(Uuid, String),
    /// The store failed before anything was begun.
    #[error(transparent)]
    Store(#[from] AskError),
    /// The store failed in the middle; [`resume`] goes on.
    #[error("{source}")]
    Broken {
        /// The act in the audit.
        audit: Uuid,
        /// What went wrong.
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

/// Notes that an act begins.
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

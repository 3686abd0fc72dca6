//! Read models: what operators see of the store. One function makes each, and each has one JSON form. The command line
//! prints them with `--json`, and an API and pages can show the same later.

mod act;
mod audit;
mod event;
mod job;
mod spool;
#[cfg(test)]
mod tests;

pub use act::{OutcomeView, PreviewView};
pub use audit::AuditView;
pub use event::{ArrivalView, EventJobView, EventSummaryView, EventView, jobs_of};
pub use job::{
    AttemptView, DeadLetterView, DeadLettersView, EffectView, HandlerJobsView, JobView, ListedJobView, ReviewView,
    dead_letters_of,
};
pub use spool::{SetAsideView, SpoolView};

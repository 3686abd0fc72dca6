//! What an operator sees of the store: read models, made by one function each and written as JSON in one way. The command line
//! prints them with `--json`; an API and pages show the same.

mod audit;
mod event;
mod job;
#[cfg(test)]
mod tests;

pub use audit::AuditView;
pub use event::{ArrivalView, EventJobView, EventSummaryView, EventView, jobs_of};
pub use job::{AttemptView, DeadLetterView, EffectView, JobView, ListedJobView, ReviewView, dead_letters_of};

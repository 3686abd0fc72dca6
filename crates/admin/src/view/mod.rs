//! What an operator sees of the store: read models, made by one function each and written as JSON in one way. The command line
//! prints them with `--json`; an API and pages show the same.

mod audit;
mod event;
mod job;
#[cfg(test)]
mod tests;

pub use audit::Audit;
pub use event::{Arrival, Event, EventJob, EventSummary, jobs_of};
pub use job::{Attempt, DeadLetter, Effect, Job, ListedJob, dead_letters_of};

//! Where events become durable.
//!
//! Each consumer has a trait of its own, whose verbs are atomic steps, in a file of its own with the types in them:
//!
//! | trait | who asks | what for |
//! | --- | --- | --- |
//! | [`Record`] | ingest | events become durable, with a job for each handler |
//! | [`Behind`] | the drainer of a spool | events that waited in a [`Spool`] become durable in Postgres |
//! | [`Work`] | workers and sweeper | jobs are claimed, run, settled and swept; effects happen once |
//! | [`Operate`] | operators | events and jobs are found, replayed, resolved, audited |
//!
//! What several of them ask is in [`Check`] and [`Measure`]. A [`Store`] does all of it: [`open()`] gives one for a URL. Its
//! holder hands it on as the narrow trait that the consumer needs. SQLite and Postgres implement the traits side by side,
//! and one suite (`tests/conformance.rs`) runs every verb on both.
//!
//! The one thing to know: when [`Record::record`] returns `Ok`, the events survive a crash and a power cut.
//!
//! No driver leaves this crate, but through `driver`, behind the feature of this name.

mod decode;
#[cfg(feature = "driver")]
pub mod driver;
mod effect;
mod error;
mod event_row;
mod faults;
mod head;
mod headers;
mod job;
mod large_body;
mod late_store;
mod lent;
mod migrations;
mod open;
mod operate;
mod postgres;
mod private;
mod record;
mod shared;
mod shared_sql;
mod spool;
mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;
mod work;

use async_trait::async_trait;

pub use effect::{BegunEffect, EffectError, EffectKey, EffectKind, EffectTransaction, EffectWrite, Value, Written};
pub use error::{AskError, OpenError, StatementError, StoreError};
pub use headers::StoredHeaders;
pub use job::{JobId, NewJob, Token};
pub use large_body::LARGE_BYTES;
pub use late_store::LateStore;
pub use open::{Config, Migrate, PostgresUrl, StoreUrl, open};
pub use operate::{
    Act, Action, Attempt, Audit, ByHandler, Cursor, Effect, EventSummary, Filter, Found, JobSummary, KeptArrival,
    Moment, Operate, QUESTION_MAX, Resolution, Review, Step, StoredEvent, Which,
};
pub use private::problem_of_private_file;
pub use record::{Record, Recorded, Routed};
pub use shared::{Backlog, Check, Measure};
pub use spool::{Behind, NotTaken, SetAside, SpoolConfig, SpoolStatus, Spooled};
pub use sqlite::Spool;
pub use work::{
    Claim, Claimed, ClaimedEvent, Crash, DeadLetters, DueJob, DueJobs, DuePlace, Interruption, LostRun, Outcome, Ready,
    Renewed, Settled, Settlement, Sweep, Swept, Work,
};

/// A database that can do all of it.
#[async_trait]
pub trait Store: Record + Work + Operate {
    /// Waits until the store promises nothing more, because of an I/O error, and says what happened. On Postgres that is
    /// never: its server ends itself then.
    async fn broken(&self) -> String {
        std::future::pending().await
    }

    /// Lets go of the database after what is under way has ended.
    async fn close(&self);
}

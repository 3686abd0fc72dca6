//! The receiving half: a webhook comes in over HTTP, is made durable, and only then answered.
//!
//! `stages` is the path of a webhook, each stage turning one type into the next:
//!
//! - `limit` refuses before any work is done, `body` reads within bounds;
//! - verify and read are the provider's, through `hookfast_webhook`;
//! - `route` says which handlers want an event;
//! - `record` lets many requests share one commit;
//! - `spool` keeps events on this machine while the store cannot take them, and `drain` hands them on;
//! - `dispatch` tells the workers;
//! - `answer` says it, or what became of the request instead.
//!
//! `listener`, `caps` and `connection` hold what hyper leaves to us: deadlines and caps.

mod address;
mod answer;
mod background;
mod body;
mod caps;
mod config;
mod connection;
mod dispatch;
mod drain;
mod faults;
mod health;
mod limit;
mod listener;
mod log_limit;
mod metrics;
mod path;
mod record;
mod route;
mod source;
mod spool;
mod stages;
mod trace;

pub use address::AddressRange;
pub use config::{Config, Rate, SourceLimits, UnsignedType};
pub use health::Details;
pub use listener::{Ingest, Recording, Running, Table};
pub use metrics::describe as describe_metrics;
pub use source::Source;
pub use spool::SpoolWay;

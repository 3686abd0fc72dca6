//! The receiving half: a webhook comes in over HTTP, is made durable, and only then answered.
//!
//! `stages` is the path of a webhook, each stage turning one type into the next:
//!
//! - `admit` refuses before any work is done, `body` reads within bounds and `memory`;
//! - verify and read are the provider's, through `hookfast_webhook`;
//! - `route` says which handlers want an event;
//! - `commit` lets many requests share one commit;
//! - `spool` keeps events on this machine while the store cannot take them, and `spool::drain` hands them on;
//! - `dispatch` tells the workers;
//! - `answer` is what the sender hears.
//!
//! `http` holds what hyper leaves to us: the accept loop, deadlines and caps.

mod address;
mod admit;
mod answer;
mod background;
mod body;
mod commit;
mod config;
mod dispatch;
mod faults;
mod health;
mod http;
mod log_limit;
mod memory;
mod metrics;
mod route;
mod source;
mod spool;
mod stages;
mod trace;
mod weight;

pub use address::AddressRange;
pub use config::{Config, Rate, SourceLimits, UnsignedType};
pub use health::Details;
pub use http::listener::{Ingest, Recording, Running, Table};
pub use metrics::describe as describe_metrics;
pub use source::Source;
pub use spool::SpoolWay;

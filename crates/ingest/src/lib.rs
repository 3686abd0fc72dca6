//! The receiving half: a webhook comes in over HTTP, is made durable, and only then answered.
//!
//! `stages` is the path of a webhook. Each step has a file: `admit`, `body`, `verify`, `read`, `route`, `record`,
//! `answer`. The steps use:
//!
//! - `shared` holds what all requests share, such as the table of sources;
//! - `memory` limits the memory that all bodies use together, and `weight` computes how much is kept for a request;
//! - `commit` lets many requests share one commit;
//! - `spool` keeps events on this machine while the store cannot take them, and `spool::drain` moves them to the store;
//! - `dispatch` tells the workers about new jobs;
//! - `observe` writes metrics and log lines.
//!
//! `http` has the accept loop with its deadlines and connection caps, and turns answers into HTTP responses. `running`
//! starts and stops all of it.

mod address;
mod admit;
mod answer;
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
mod observe;
mod read;
mod record;
mod rejection;
mod route;
mod running;
mod shared;
mod source;
mod spool;
mod stages;
mod trace;
mod verify;
mod weight;

pub use address::AddressRange;
pub use config::{Config, Rate, SourceLimits, UnsignedType};
pub use health::Details;
pub use metrics::describe as describe_metrics;
pub use running::{Recording, Running};
pub use shared::{CurrentTable, Ingest, Table};
pub use source::Source;
pub use spool::SpoolWay;

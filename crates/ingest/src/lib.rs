//! The receiving half: a webhook comes in over HTTP, is made durable, and only then answered.
//!
//! `stages` is the path of a webhook. Each step has a file: `admit`, `body`, `verify`, `read`, `route`, `record`, `answer`. The
//! steps use:
//!
//! - `memory` bounds the memory of all bodies, and `weight` says what is kept for a request;
//! - `commit` lets many requests share one commit;
//! - `spool` keeps events on this machine while the store cannot take them, and `spool::drain` hands them on;
//! - `dispatch` tells the workers;
//! - `observe` writes metrics and log.
//!
//! `http` is the edge: the accept loop with its deadlines and caps, and what answers look like. `running` starts and ends it all.

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
mod observe;
mod read;
mod record;
mod rejection;
mod route;
mod running;
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
pub use source::Source;
pub use spool::SpoolWay;
pub use stages::{Ingest, Table};

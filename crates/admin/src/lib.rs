//! What operators see and do. The listener serves the metrics, on an address of its own that must not be reachable from
//! outside. [`operate`] has the acts of operators: the command line calls them now, and an admin API can call them
//! later. [`view`] has the read models that commands print.

mod config;
mod listener;
pub mod operate;
pub mod view;

pub use config::Config;
pub use listener::{HostName, Running, start};

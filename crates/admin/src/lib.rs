//! What operators look at, on a listener of its own that the outside never reaches, for now the metrics; and what they do
//! ([`operate`]), which is the same function whether it is asked for on the command line or, later, here.

mod config;
mod listener;
pub mod operate;
pub mod view;

pub use config::Config;
pub use listener::{HostName, Running, start};

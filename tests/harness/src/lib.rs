//! What the end-to-end tests and the benchmarks share: private servers, the real binary, and a plain HTTP client that can
//! misbehave.
//!
//! Everything fails by panicking with a sentence: this is test code.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod client;
mod clock;
mod database;
mod disk;
mod disturbed;
mod ended;
mod event;
mod gateway;
mod ledger;
mod nats;
mod postgres;
mod process;
mod proxy;
mod rig;
mod senders;
mod setup;
mod stripe;

pub use client::{Answer, Client, eventually, eventually_within};
pub use clock::WrongClock;
pub use database::{Hold, query};
pub use disk::Disk;
pub use disturbed::Disturbed;
pub use ended::{Ended, hookfast};
pub use event::{Fate, TestEvent};
pub use gateway::Gateway;
pub use ledger::Ledger;
pub use nats::{NatsVersion, PrivateNats};
pub use postgres::{Frozen, PrivatePostgres, fresh_database, program, warm_up_shared_server};
pub use process::{Signal, signal};
pub use proxy::{Link, Proxy};
pub use rig::{Rig, TO_THE_END};
pub use senders::{Address, Sender, Senders};
pub use setup::{Database, Setup};
pub use stripe::{SECRET, post, sample, sample_at, sample_key, signed};

//! What is broken on purpose, and must not break a promise. docs/testing.md lists the experiments; each
//! has a negative control, which takes a protection away and sees the promise break.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bad_disks;
mod bad_rows;
mod clocks;
mod crash_points;
mod crowd;
mod duplicates;
mod failover;
mod kills;
mod long_snapshot;
mod machine;
mod model;
mod nats;
mod neighbours;
mod network;
mod overload;
mod poison;
mod power;
mod rig;
mod rolling;
mod spool;
mod storm;
mod sudden_ends;
mod troubles;
mod zombies;

//! The real binary over HTTP, on both databases.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod receive;

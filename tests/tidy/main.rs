//! What the tree says about itself must be true.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

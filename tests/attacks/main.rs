//! Attacks that must fail, by the numbers of `docs/threat-model.md`.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

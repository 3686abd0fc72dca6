//! The real binary over HTTP, on both databases.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

/// Runs each test on SQLite and on Postgres.
macro_rules! on_both {
    ($($test:ident)*) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                super::$test(hookfast_harness::Database::Sqlite);
            })*
        }

        mod postgres {
            $(#[test]
            fn $test() {
                super::$test(hookfast_harness::Database::Postgres);
            })*
        }
    };
}

mod commands;
mod crash;
mod database;
mod development;
mod duplicates;
mod operate;
mod overload;
mod providers;
mod receive;
mod refuse;
mod reload;
mod sdk;
mod shutdown;
mod simulate;
mod slow;
mod spool;
mod start;
mod transcripts;
mod verify;

use hookfast_harness::{Database, Setup};

const BINARY: &str = env!("CARGO_BIN_EXE_hookfast");

/// A gateway whose answers may take as long as a busy machine needs. Tests about deadlines set their own.
fn patient(database: Database) -> Setup {
    setup(database).ingest("answer_deadline = \"20s\"")
}

fn setup(database: Database) -> Setup {
    Setup::new(BINARY, database)
}

//! Runs a command with a private Postgres beside it: `with-postgres COMMAND…`. The server's URL is in
//! `TEST_POSTGRES_URL`.

use std::process::{Command, ExitCode};

use hookfast_harness::PrivatePostgres;

fn main() -> ExitCode {
    let postgres = PrivatePostgres::start(&["max_connections=300"]);
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next().expect("usage: with-postgres COMMAND…");
    let status = Command::new(program).args(arguments).env("TEST_POSTGRES_URL", postgres.url()).status();
    drop(postgres);
    let code = status.expect("the command starts").code().unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

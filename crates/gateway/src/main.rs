//! The one binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    hookfast::run(hookfast::Handlers::new())
}

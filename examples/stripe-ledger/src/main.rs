//! The gateway with the order ledger in it: `cargo run -p hookfast-example-stripe-ledger -- serve`.

use std::process::ExitCode;

use hookfast::Handlers;
use hookfast_example_stripe_ledger::OrderLedger;

fn main() -> ExitCode {
    hookfast::run(Handlers::new().with(OrderLedger))
}

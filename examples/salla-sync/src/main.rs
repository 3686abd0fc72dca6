//! The gateway with the order sync in it: `cargo run -p hookfast-example-salla-sync -- serve`.

use std::env;
use std::process::ExitCode;

use hookfast::Handlers;
use hookfast_example_salla_sync::{HttpWarehouse, OrderSync};

fn main() -> ExitCode {
    let address = env::var("WAREHOUSE").unwrap_or_else(|_| "127.0.0.1:9090".into());
    hookfast::run(Handlers::new().with(OrderSync { warehouse: HttpWarehouse { address } }))
}

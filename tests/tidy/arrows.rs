//! Dependencies point one way: see ARCHITECTURE.md. Manifests say what a crate may name, and sources what it names: a crate
//! that is handed on by another one stands in no manifest. What only tests need may point anywhere.

use std::collections::BTreeSet;
use std::process::Command;

use crate::manifests::packages;
use crate::root;
use crate::syntax::{Source, sources};

/// The crates that keep a dependency away from all others. `driver` is the module in which the store hands on its drivers.
const KEEPERS: [(&str, &[&str]); 5] = [
    ("sqlx", &["crates/store"]),
    ("rusqlite", &["crates/store"]),
    ("driver", &["crates/store"]),
    ("axum", &["crates/admin", "crates/ingest", "examples/axum"]),
    ("async-nats", &["crates/queue"]),
];

/// The crates that hand on the drivers to handlers, and the condition under which they may name them.
const ESCAPE_HATCH: [&str; 2] = ["crates/handler", "crates/gateway"];
const WITH_DRIVER: &str = "feature = \"driver\"";

/// What does I/O, so that pure code has no use for it.
const IO: [&str; 6] = ["tokio", "sqlx", "rusqlite", "hyper", "axum", "reqwest"];

/// Which packages of ours a package may know; `None` is all but the tests.
fn may_know(folder: &str) -> Result<Option<&'static [&'static str]>, String> {
    Ok(Some(match folder {
        "crates/webhook" | "crates/parts" => &[],
        "crates/store" => &["hookfast-webhook"],
        "crates/queue" => &["hookfast-webhook", "hookfast-parts"],
        "crates/handler" => &["hookfast-webhook", "hookfast-store"],
        "crates/processor" => {
            &["hookfast-webhook", "hookfast-handler", "hookfast-store", "hookfast-queue", "hookfast-parts"]
        }
        "crates/ingest" | "crates/admin" => &["hookfast-webhook", "hookfast-store", "hookfast-queue", "hookfast-parts"],
        // A destination is a handler that is data.
        "crates/forward" => &["hookfast-webhook", "hookfast-handler", "hookfast-store"],
        // What runs once per deployment.
        "crates/keep" => &["hookfast-webhook", "hookfast-store", "hookfast-parts"],
        "crates/gateway" => return Ok(None),
        _ if folder.starts_with("providers/") => &["hookfast-webhook"],
        // It shows what can be done without the gateway.
        "examples/axum" => &["hookfast-webhook", "hookfast-catalog", "hookfast-stripe"],
        // They are what a team writes, and a team has one dependency.
        "examples/stripe-ledger" | "examples/salla-sync" => &["hookfast"],
        _ if folder.starts_with("modules/") => &["hookfast"],
        _ => return Err(format!("{folder}: no rule says which crates it may know; add one here")),
    }))
}

/// What is wrong with the dependencies of a package.
fn wrong_arrows(folder: &str, dependencies: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut forbid = |dependency: &str, why: &str| wrong.push(format!("{folder} must not know {dependency}: {why}"));
    for (kept, keepers) in KEEPERS {
        if dependencies.contains(&kept) && !keepers.contains(&folder) {
            forbid(kept, "it is kept in another crate");
        }
    }
    let is_pure = folder == "crates/webhook" || folder.starts_with("providers/");
    for dependency in dependencies.iter().filter(|dependency| is_pure && IO.contains(dependency)) {
        forbid(dependency, "this code does no I/O");
    }
    if folder.starts_with("tests/") {
        return wrong;
    }
    let allowed = match may_know(folder) {
        Ok(allowed) => allowed,
        Err(problem) => return vec![problem],
    };
    for dependency in dependencies.iter().filter(|dependency| dependency.starts_with("hookfast")) {
        let is_for_tests = ["hookfast-harness", "hookfast-bench"].contains(dependency);
        if is_for_tests || allowed.is_some_and(|allowed| !allowed.contains(dependency)) {
            forbid(dependency, "the arrow points the wrong way");
        }
    }
    wrong
}

/// What is wrong with the crates that a source names.
fn wrong_names(folder: &str, source: &Source) -> Vec<String> {
    let conditions: &[&str] = if ESCAPE_HATCH.contains(&folder) { &["test", WITH_DRIVER] } else { &["test"] };
    let names: Vec<_> = source.path_names_without(conditions).iter().map(|name| name.replace('_', "-")).collect();
    let of_a_border = |name: &str| {
        let is_kept = KEEPERS.iter().any(|(kept, _)| *kept == name);
        let is_own = folder.rsplit('/').next().is_some_and(|last| name.ends_with(&format!("-{last}")));
        is_kept || (name.starts_with("hookfast") && !is_own)
    };
    let dependencies: Vec<_> = names.iter().map(String::as_str).filter(|name| of_a_border(name)).collect();
    let wrong = wrong_arrows(folder, &dependencies);
    wrong.into_iter().map(|problem| format!("{}: {problem}", source.path.display())).collect()
}

/// Whether the source belongs to the package of this folder and is built without tests.
fn is_built(source: &Source, folder: &str) -> bool {
    source.path.starts_with(folder) && !source.is_for_tests() && !source.path.starts_with("tests")
}

#[test]
fn all_arrows_point_one_way_in_the_sources() {
    let sources = sources();
    let mut wrong = Vec::new();
    for folder in packages().iter().map(|package| &package.folder) {
        let own = sources.iter().filter(|source| is_built(source, folder));
        wrong.extend(own.flat_map(|source| wrong_names(folder, source)));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_name_from_beyond_a_border_is_noticed_in_a_source() {
    for (folder, text, name) in [
        ("crates/ingest", "use hookfast_processor::Running;", "hookfast-processor"),
        ("crates/ingest", "fn f() { sqlx::query(\"\"); }", "sqlx"),
        ("crates/ingest", "fn f() -> hookfast_store::driver::SqliteConnection {}", "driver"),
        ("crates/processor", "#[cfg(feature = \"driver\")] use hookfast_store::driver;", "driver"),
        ("crates/processor", "use hookfast_store::{Work, driver as d};", "driver"),
        ("crates/admin", "use hookfast_store::{driver::*, Operate};", "driver"),
        ("crates/admin", "use hookfast_store::postgres::sqlx as s;", "sqlx"),
        ("crates/handler", "pub use hookfast_store::driver;", "driver"),
        ("crates/handler", "#[cfg(not(feature = \"driver\"))] pub use hookfast_store::driver;", "driver"),
        ("crates/handler", "impl T { fn sqlite(&mut self) -> rusqlite::Connection {} }", "rusqlite"),
        ("crates/gateway", "#[cfg(feature = \"testing\")] pub use hookfast_handler::driver;", "driver"),
        ("crates/forward", "type Pool = async_nats::Client;", "async-nats"),
        ("crates/keep", "use hookfast_ingest as receiving;", "hookfast-ingest"),
        ("modules/health", "use hookfast_store::Store;", "hookfast-store"),
        ("providers/stripe", "macro_rules! m { () => { hookfast_store::open() } }", "hookfast-store"),
        ("examples/stripe-ledger", "use hookfast::driver as d;", "driver"),
    ] {
        let source = Source::parse(format!("{folder}/src/lib.rs").into(), text.into());
        let wrong = wrong_names(folder, &source);
        assert!(wrong.len() == 1 && wrong[0].contains(name), "{folder}: {text}: {wrong:?}");
    }
    for (folder, text) in [
        ("crates/handler", "#[cfg(feature = \"driver\")] pub use hookfast_store::driver;"),
        (
            "crates/handler",
            "impl T { #[cfg(feature = \"driver\")] fn sqlite(&mut self) -> driver::SqliteConnection {} }",
        ),
        ("crates/gateway", "#[cfg(feature = \"driver\")] pub use hookfast_handler::driver;"),
        ("crates/store", "use sqlx::Row; use hookfast_webhook::Event;"),
        ("crates/ingest", "#[cfg(test)] mod tests { use hookfast_stripe::Stripe; }"),
        ("modules/health", "use hookfast::{Effects, Event};"),
    ] {
        let source = Source::parse(format!("{folder}/src/lib.rs").into(), text.into());
        assert_eq!(wrong_names(folder, &source), Vec::<String>::new(), "{folder}: {text}");
    }
}

/// Our crates in the program that hand on a driver, if the program is built with these features and without other packages of
/// the workspace: the benchmark turns the feature on, and in a build of the whole workspace it is on for all.
fn with_driver(features: &str) -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--package=hookfast", "--edges=normal", "--prefix=none", "--format={p} {f}"]);
    let output = cargo.arg("--features").arg(features).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let with_driver = |line: &&str| {
        let features = line.rsplit(' ').find(|part| *part != "(*)").unwrap_or_default();
        line.starts_with("hookfast") && features.split(',').any(|feature| feature == "driver")
    };
    let names: BTreeSet<_> = tree.lines().filter(with_driver).filter_map(|line| line.split(' ').next()).collect();
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn no_driver_leaves_the_store_unless_it_is_asked_for() {
    assert_eq!(with_driver(""), Vec::<String>::new());
    assert_eq!(with_driver("driver"), ["hookfast", "hookfast-handler", "hookfast-store"]);
}

#[test]
fn all_arrows_point_one_way_in_the_manifests() {
    let wrong: Vec<_> = packages()
        .iter()
        .flat_map(|package| {
            let dependencies = package.dependencies();
            wrong_arrows(&package.folder, &dependencies.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn an_arrow_that_points_the_wrong_way_is_noticed() {
    for (folder, dependency) in [
        ("crates/webhook", "hookfast-store"),
        ("crates/webhook", "tokio"),
        ("crates/store", "hookfast-ingest"),
        ("crates/store", "axum"),
        ("crates/queue", "hookfast-store"),
        ("crates/ingest", "hookfast-admin"),
        ("crates/ingest", "hookfast-stripe"),
        ("crates/ingest", "sqlx"),
        ("crates/admin", "hookfast"),
        ("crates/processor", "hookfast-ingest"),
        ("crates/processor", "async-nats"),
        ("crates/handler", "hookfast-processor"),
        ("crates/handler", "hookfast-queue"),
        ("crates/handler", "hookfast-parts"),
        ("crates/parts", "hookfast-store"),
        ("crates/parts", "axum"),
        ("crates/forward", "hookfast-queue"),
        ("crates/keep", "hookfast-ingest"),
        ("modules/health", "hookfast-store"),
        ("crates/gateway", "sqlx"),
        ("crates/gateway", "hookfast-harness"),
        ("providers/stripe", "hookfast-store"),
        ("providers/stripe", "hookfast-other"),
        ("providers/stripe", "reqwest"),
        ("examples/axum", "hookfast"),
        ("examples/axum", "hookfast-ingest"),
        ("examples/axum", "hookfast-store"),
        ("examples/stripe-ledger", "hookfast-processor"),
        ("examples/stripe-ledger", "hookfast-stripe"),
        ("examples/stripe-ledger", "sqlx"),
        ("examples/salla-sync", "hookfast-webhook"),
        ("examples/salla-sync", "hookfast-store"),
        ("examples/salla-sync", "axum"),
        ("tests/harness", "sqlx"),
    ] {
        let wrong = wrong_arrows(folder, &["bytes", "hookfast-webhook", dependency]);
        assert!(wrong.iter().any(|wrong| wrong.contains(dependency)), "{folder} on {dependency}: {wrong:?}");
    }
    for folder in ["crates/new", "examples/new"] {
        assert!(wrong_arrows(folder, &[])[0].contains("no rule"), "{folder}");
    }
}

#[test]
fn arrows_that_point_the_right_way_pass() {
    for (folder, dependencies) in [
        ("crates/webhook", &["bytes", "hmac"][..]),
        ("crates/store", &["hookfast-webhook", "sqlx", "tokio"]),
        ("crates/ingest", &["hookfast-webhook", "hookfast-store", "hyper"]),
        ("crates/admin", &["hookfast-store", "axum"]),
        ("crates/parts", &["metrics", "tokio"]),
        ("crates/processor", &["hookfast-handler", "hookfast-store", "hookfast-queue", "hookfast-parts"]),
        ("crates/forward", &["hookfast-handler", "hyper"]),
        ("modules/health", &["hookfast", "serde"]),
        ("crates/gateway", &["hookfast-webhook", "hookfast-stripe", "hookfast-ingest", "hookfast-admin"]),
        ("providers/stripe", &["hookfast-webhook", "serde_json"]),
        ("examples/axum", &["hookfast-webhook", "hookfast-catalog", "axum", "tokio"]),
        ("examples/stripe-ledger", &["hookfast", "serde"]),
        ("examples/salla-sync", &["hookfast", "hyper", "serde", "tokio"]),
        ("tests/harness", &["hookfast-store", "hookfast-stripe", "tokio"]),
    ] {
        assert_eq!(wrong_arrows(folder, dependencies), Vec::<String>::new());
    }
}

//! Dependencies point one way: see ARCHITECTURE.md. What only tests need may point anywhere.

use crate::manifests::packages;

/// Who keeps a dependency away from all others.
const KEEPERS: [(&str, &[&str]); 4] = [
    ("sqlx", &["crates/store"]),
    ("rusqlite", &["crates/store"]),
    ("axum", &["crates/admin", "crates/ingest", "examples/axum"]),
    ("async-nats", &["crates/queue"]),
];

/// What does I/O, so that pure code has no use for it.
const IO: [&str; 6] = ["tokio", "sqlx", "rusqlite", "hyper", "axum", "reqwest"];

/// Which packages of ours a package may know; `None` is all but the tests.
fn may_know(folder: &str) -> Result<Option<&'static [&'static str]>, String> {
    Ok(Some(match folder {
        "crates/webhook" => &[],
        "crates/store" | "crates/queue" => &["hookfast-webhook"],
        "crates/ingest" | "crates/admin" | "crates/processor" => {
            &["hookfast-webhook", "hookfast-store", "hookfast-queue"]
        }
        "crates/gateway" => return Ok(None),
        _ if folder.starts_with("providers/") => &["hookfast-webhook"],
        // It shows what can be done without the gateway.
        "examples/axum" => &["hookfast-webhook", "hookfast-catalog", "hookfast-stripe"],
        // They are what a team writes, and a team has one dependency.
        "examples/stripe-ledger" | "examples/salla-sync" => &["hookfast"],
        _ => return Err(format!("{folder}: no rule says whom it may know; add one here")),
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

#[test]
fn all_arrows_point_one_way() {
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

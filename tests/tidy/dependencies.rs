//! What we depend on: nothing unused, licences that we may pass on, one registry, and no further double versions.
//!
//! `cargo machete` and `cargo deny` check the same. They are 76 and 211 crates to build before the first test of a new machine,
//! and these rules fit on a page, over what `cargo metadata` says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::manifests::packages;
use crate::syntax::{Source, sources};
use crate::{read, root};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The licences under which we may pass on a program that holds such code.
const LICENCES: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Crates that are there in several versions, because crates of others want different ones. May only shrink.
const DOUBLE: [&str; 20] = [
    "block-buffer",
    "const-oid",
    "cpufeatures",
    "crypto-common",
    "curve25519-dalek",
    "der",
    "digest",
    "ed25519",
    "ed25519-dalek",
    "getrandom",
    "hashbrown",
    "pkcs8",
    "rand",
    "rand_chacha",
    "rand_core",
    "sha2",
    "signature",
    "spki",
    "syn",
    "untrusted",
];

/// Dependencies that no source of a package names, and why they are there.
const UNNAMED: [(&str, &str); 1] =
    [("examples/axum: time", "for the examples in the pages that its documentation includes")];

/// What Cargo says about every crate that we build on Linux.
fn metadata() -> Vec<Value> {
    let mut cargo = Command::new(env!("CARGO"));
    let arguments = ["metadata", "--locked", "--format-version=1", "--filter-platform=x86_64-unknown-linux-gnu"];
    let output = cargo.args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Value::Array(packages) = metadata["packages"].take() else { panic!("there are packages") };
    packages
}

fn text<'a>(package: &'a Value, key: &str) -> &'a str {
    package[key].as_str().unwrap_or_default()
}

/// Whether an expression such as `(MIT OR GPL-2.0) AND ISC` can be met with our licences. `OR` binds weaker than `AND`.
fn is_licensed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    any_alternative(&split_outside(&expression, " OR "))
}

fn any_alternative(alternatives: &[&str]) -> bool {
    alternatives.iter().any(|alternative| split_outside(alternative, " AND ").iter().all(|part| is_one_licence(part)))
}

fn is_one_licence(part: &str) -> bool {
    let part = part.trim();
    match part.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_licensed(inner),
        None => LICENCES.contains(&part),
    }
}

/// Splits where the separator stands outside of brackets.
fn split_outside<'a>(text: &'a str, separator: &str) -> Vec<&'a str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (place, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && place >= start && text[place..].starts_with(separator) => {
                parts.push(&text[start..place]);
                start = place + separator.len();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The crates that are there in several versions.
fn doubles(packages: &[Value]) -> BTreeSet<&str> {
    let mut versions = BTreeMap::<_, BTreeSet<_>>::new();
    for package in packages {
        versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
    }
    versions.into_iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| name).collect()
}

/// Whether a source names a crate.
fn names(source: &Source, dependency: &str) -> bool {
    let name = dependency.replace('-', "_");
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    source.text.match_indices(&name).any(|(place, _)| {
        let (before, after) = (&source.text[..place], &source.text[place + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[test]
fn every_dependency_is_used() {
    let sources = sources();
    let mut unused = Vec::new();
    for package in packages() {
        let folders = package.source_folders();
        let own: Vec<_> =
            sources.iter().filter(|one| folders.iter().any(|folder| one.path.starts_with(folder))).collect();
        let wanted = package.all_dependencies();
        let unnamed = wanted.iter().filter(|dependency| !own.iter().any(|source| names(source, dependency)));
        let unnamed = unnamed.map(|dependency| format!("{}: {dependency}", package.folder));
        unused.extend(unnamed.filter(|dependency| !UNNAMED.iter().any(|(explained, _)| explained == dependency)));
    }
    assert!(unused.is_empty(), "remove them: {unused:#?}");
}

#[test]
fn every_version_at_the_top_is_used_by_a_package() {
    let top: toml::Table = read("Cargo.toml").parse().unwrap();
    let used: BTreeSet<_> = packages().iter().flat_map(|package| package.all_dependencies()).collect();
    let listed = top["workspace"]["dependencies"].as_table().unwrap().keys();
    let unused: Vec<_> = listed.filter(|name| !used.contains(*name)).collect();
    assert!(unused.is_empty(), "remove them from Cargo.toml: {unused:?}");
}

#[test]
fn every_crate_may_be_passed_on_and_comes_from_the_registry() {
    let packages = metadata();
    let wrong = packages.iter().filter(|package| !is_licensed(text(package, "license")));
    let wrong: Vec<_> = wrong.map(|package| format!("{}: {}", text(package, "name"), package["license"])).collect();
    assert!(wrong.is_empty(), "read the licence, and add it to LICENCES if we may pass it on: {wrong:#?}");
    let from = |package: &Value| package["source"].as_str().is_none_or(|source| source == REGISTRY);
    let elsewhere: Vec<_> = packages.iter().filter(|package| !from(package)).map(|one| text(one, "id")).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:?}");
}

#[test]
fn no_further_crate_is_there_in_two_versions() {
    let packages = metadata();
    let (now, known) = (doubles(&packages), BTreeSet::from(DOUBLE));
    let new: Vec<_> = now.difference(&known).collect();
    assert!(new.is_empty(), "`cargo tree --duplicates` says who wants them: {new:?}");
    let gone: Vec<_> = known.difference(&now).collect();
    assert!(gone.is_empty(), "there is one version now: remove them from DOUBLE: {gone:?}");
}

#[test]
fn licences_are_read_as_they_are_meant() {
    for good in
        ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-2.0) AND Unicode-3.0", "ISC AND (Apache-2.0 OR ISC)"]
    {
        assert!(is_licensed(good), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-2.0) OR LGPL-2.1", "MIT WITH surprise"] {
        assert!(!is_licensed(bad), "{bad}");
    }
}

#[test]
fn a_crate_is_named_by_a_whole_word() {
    let source = |text: &str| Source::parse(Path::new("crates/x/src/lib.rs").into(), text.into());
    assert!(names(&source("use serde_json::Value;"), "serde-json"));
    assert!(!names(&source("use serde_json::Value;"), "serde"));
    assert!(!names(&source("use my_time::now;"), "time"));
}

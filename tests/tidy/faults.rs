//! The switches that take protections away for the fault tests are in no program that is built for release.
//!
//! `cargo build --release --workspace` turns on the feature `faults`, because the worker of the tests has it. So the feature
//! alone opens nothing: the switches are there only with `debug_assertions`, which no release profile has.

use toml::Table;

use crate::syntax::sources;
use crate::{files, read};

/// The only conditions under which a switch may be built or left out.
const ON: &str = "all(feature = \"faults\", debug_assertions)";

/// The profiles whose programs people use.
const RELEASES: [&str; 2] = ["release", "dist"];

/// The conditions on the feature in a file that hold in a build for release, too.
fn open_switches(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.contains("feature = \"faults\"") && !line.contains(ON));
    lines.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn every_switch_needs_debug_assertions() {
    let mut wrong = Vec::new();
    for source in sources().iter().filter(|source| !source.path.starts_with("tests/tidy")) {
        wrong.extend(open_switches(&source.text).iter().map(|line| format!("{}: {line}", source.path.display())));
    }
    assert!(wrong.is_empty(), "write {ON}: {wrong:#?}");
}

#[test]
fn the_variables_of_the_switches_are_read_in_guarded_functions_alone() {
    let switches: Vec<_> = files(".rs").into_iter().filter(|path| path.starts_with("crates")).collect();
    for path in switches {
        let text = read(&path);
        for (place, _) in text.match_indices("var(\"FAULT_") {
            let item = text[..place].rfind("#[cfg(").map(|start| text[start..].lines().next().unwrap_or_default());
            assert!(
                item.is_some_and(|line| line.contains(ON) && !line.contains("not(")),
                "{}: {item:?}",
                path.display()
            );
        }
    }
}

#[test]
fn no_release_profile_has_debug_assertions() {
    let manifest: Table = read("Cargo.toml").parse().unwrap();
    let profiles = manifest["profile"].as_table().unwrap();
    for name in RELEASES {
        let Some(profile) = profiles.get(name).and_then(toml::Value::as_table) else { continue };
        assert_eq!(profile.get("debug-assertions"), None, "[profile.{name}]");
        let inherits = profile.get("inherits").and_then(toml::Value::as_str).unwrap_or("release");
        assert!(RELEASES.contains(&inherits), "[profile.{name}] inherits {inherits}");
    }
}

#[test]
fn a_switch_without_its_guard_is_noticed() {
    let text = format!("#[cfg(feature = \"faults\")]\nfn a() {{}}\n#[cfg(not({ON}))]\n#[cfg({ON})]\n");
    assert_eq!(open_switches(&text), ["#[cfg(feature = \"faults\")]"]);
}

/// The names of the protections in `crates/*/src/faults.rs`.
fn protections() -> Vec<String> {
    let switches = files("faults.rs").into_iter().filter(|path| path.starts_with("crates")).map(read);
    let bodies =
        switches.filter_map(|text| Some(text.split_once("enum Protection {\n")?.1.split('}').next()?.to_owned()));
    let names = |body: String| -> Vec<_> {
        body.lines().filter_map(|line| line.trim().strip_suffix(',').map(str::to_owned)).collect()
    };
    bodies.flat_map(names).collect()
}

#[test]
fn the_page_about_testing_lists_every_protection() {
    let (page, names) = (read("docs/testing.md"), protections());
    assert!(names.len() >= 7, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(&format!("\n| `{name}` | "))).collect();
    assert!(missing.is_empty(), "add them to docs/testing.md: {missing:?}");
}

/// The experiments that comments of a file of `tests/faults` name, such as 3 and 4.
fn experiments(text: &str) -> Vec<u32> {
    let named = text.lines().filter_map(|line| line.trim_start_matches(['/', '!', ' ']).strip_prefix("Experiment"));
    let before_colon = named.filter_map(|rest| rest.trim_start_matches('s').split(':').next());
    before_colon.flat_map(|numbers| numbers.split([' ', ','])).filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_page_about_testing_explains_the_number_of_every_experiment() {
    let page = read("docs/testing.md");
    let explains = |number: u32, file: &str| {
        page.lines().filter(|line| line.ends_with(&format!("| `{file}` |"))).any(|row| {
            let numbers = row.split('|').nth(1).unwrap_or_default();
            numbers.split(',').any(|cell| cell.trim() == number.to_string())
        })
    };
    let mut missing = Vec::new();
    for path in files(".rs").iter().filter(|path| path.parent() == Some("tests/faults".as_ref())) {
        let file = path.file_stem().unwrap().to_string_lossy();
        missing.extend(experiments(&read(path)).into_iter().filter(|number| !explains(*number, &file)));
    }
    assert!(missing.is_empty(), "add these experiments to docs/testing.md: {missing:?}");
    assert_eq!(experiments("//! Experiments 3, 4 and 15: of 2 machines\n/// Experiment 30: more"), [3, 4, 15, 30]);
}

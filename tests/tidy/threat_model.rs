//! `docs/threat-model.md` and `tests/attacks` name the same cases.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn document() -> String {
    fs::read_to_string(root().join("docs/threat-model.md")).unwrap()
}

/// The names of cases in a text, each where `prefix` stands before it.
fn cases(text: &str, prefix: &str) -> BTreeSet<String> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mark = format!("{prefix}case_");
    let found = text.split(&*mark).skip(1);
    found.map(|rest| format!("case_{}", rest.split(|character| !is_name(character)).next().unwrap())).collect()
}

fn cases_in_tests() -> BTreeSet<String> {
    let files = fs::read_dir(root().join("tests/attacks")).unwrap().map(|entry| entry.unwrap().path());
    files.flat_map(|file| cases(&fs::read_to_string(file).unwrap(), "\nfn ")).collect()
}

#[test]
fn every_case_of_the_threat_model_that_is_tested_has_its_test() {
    let (named, tested) = (cases(&document(), "`"), cases_in_tests());
    let missing: Vec<_> = named.difference(&tested).collect();
    let untold: Vec<_> = tested.difference(&named).collect();
    assert!(missing.is_empty(), "docs/threat-model.md names tests that are not in tests/attacks: {missing:?}");
    assert!(untold.is_empty(), "docs/threat-model.md does not name these tests of tests/attacks: {untold:?}");
}

#[test]
fn every_case_of_the_threat_model_has_a_state() {
    let document = document();
    let entries: Vec<_> = document.split("\n- **").skip(1).collect();
    for (number, entry) in (1..).zip(&entries) {
        let (found, text) = entry.split_once("** ").unwrap();
        assert_eq!(found, number.to_string(), "the cases stand in order");
        assert_ne!(text.contains("Tested"), text.contains("Not yet"), "case {number} is either tested or not yet");
        assert_eq!(text.contains("Tested"), text.contains("`case_"), "case {number} names its tests");
    }
    assert_eq!(entries.len(), 84);
}

/// A test is numbered as the first case that names it.
#[test]
fn a_test_stands_under_its_number() {
    let document = document();
    for case in cases_in_tests() {
        let (before, _) = document.split_once(&format!("`{case}`")).unwrap();
        let (_, entry) = before.rsplit_once("\n- **").unwrap();
        let number: u8 = entry.split_once("**").unwrap().0.parse().unwrap();
        assert!(case.starts_with(&format!("case_{number:02}_")), "{case} stands under {number}");
    }
}

//! The transcripts in the README are what the program prints.
//!
//! A block of code that is marked `console` is run: after `$ ` stands a command, and below it what it prints. Words are compared
//! and not the blanks between them. `…` stands for what changes: a part of a word, or any words of the line. The blocks
//! share a folder without a configuration file, in which a gateway runs; `$ hookfast serve` shows what that printed.

use std::fs;
use std::path::Path;
use std::process::Command;

use hookfast_harness::{Database, Gateway, eventually};

use crate::{BINARY, setup};

const PAGE: &str = "README.md";

/// A command and what the page says that it prints.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    command: String,
    output: Vec<String>,
}

fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::<Step>::new();
    for block in page.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.into(), output: Vec::new() }),
                (None, Some(step)) => step.output.push(line.into()),
                (None, None) => panic!("a block of console begins with a command: {line}"),
            }
        }
    }
    steps
}

/// Whether a line is what was expected.
fn is_as_expected(expected: &str, printed: &str) -> bool {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (expected, printed) = (words(expected), words(printed));
    matches(&expected, &printed, &|word, other| {
        let (parts, letters) = (characters(word), characters(other));
        matches(&parts, &letters, &|part, letter| part == letter)
    })
}

fn characters(word: &str) -> Vec<String> {
    word.chars().map(String::from).collect()
}

/// Whether a list is as expected, in which `…` stands for any part of it.
fn matches(expected: &[String], found: &[String], is_same: &dyn Fn(&str, &str) -> bool) -> bool {
    match expected.split_first() {
        None => found.is_empty(),
        Some((any, rest)) if any == "…" => (0..=found.len()).any(|skipped| matches(rest, &found[skipped..], is_same)),
        Some((first, rest)) => {
            found.split_first().is_some_and(|(begin, others)| is_same(first, begin) && matches(rest, others, is_same))
        }
    }
}

/// What a command of the page printed.
fn output(gateway: &Gateway, command: &str) -> String {
    // What the page shows is on its default ports.
    let as_documented = |text: &str| {
        let text = text.replace(&gateway.ingest.to_string(), "127.0.0.1:8080");
        text.replace(&gateway.admin.to_string(), "127.0.0.1:8081")
    };
    if command == "hookfast serve" {
        eventually("it has said everything", || gateway.printed().contains("Then look: hookfast events list"));
        return as_documented(&gateway.printed());
    }
    let folder = Path::new(BINARY).parent().unwrap();
    let search = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let ended = Command::new("bash")
        .args(["-c", command])
        .current_dir(gateway.folder())
        .env("PATH", search)
        .env("HOOKFAST_INGEST__LISTEN", gateway.ingest.to_string())
        .output()
        .unwrap();
    as_documented(&format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr)))
}

/// The README's reader pastes the printed line twice.
fn paste_the_printed_command(gateway: &Gateway) {
    let printed = gateway.printed();
    let curl = printed.lines().find(|line| line.trim().starts_with("curl ")).expect("there is a command to try");
    for _ in 0..2 {
        assert!(Command::new("sh").args(["-c", curl]).output().unwrap().status.success());
    }
}

/// Where a page differs from what the program prints.
fn difference(gateway: &Gateway, step: &Step) -> Option<String> {
    let printed = output(gateway, &step.command);
    let lines: Vec<_> = printed.lines().collect();
    let same = step.output.len() == lines.len()
        && step.output.iter().zip(&lines).all(|(expected, line)| is_as_expected(expected, line));
    let told = |lines: &[String]| lines.join("\n");
    (!same).then(|| format!("$ {}\n{}\nbut it prints\n{printed}", step.command, told(&step.output)))
}

#[test]
fn every_transcript_is_what_the_program_prints() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let steps = steps(&fs::read_to_string(top.join(PAGE)).unwrap());
    assert!(steps.len() >= 5, "{PAGE} has transcripts");
    let patient = setup(Database::Sqlite).variable("HOOKFAST_INGEST__ANSWER_DEADLINE", "20s");
    let gateway = patient.without_config().start();
    for step in &steps {
        let difference = difference(&gateway, step);
        assert!(difference.is_none(), "{PAGE}: {}", difference.unwrap_or_default());
        if step.command == "hookfast serve" {
            paste_the_printed_command(&gateway);
        }
    }
}

#[test]
fn a_transcript_that_is_not_what_is_printed_is_noticed() {
    let found = steps("a\n```console\n$ one --two\nout 1\nout 2\n$ three\n```\n```text\n$ four\n```\n");
    let commands: Vec<_> = found.iter().map(|step| (step.command.as_str(), step.output.len())).collect();
    assert_eq!(commands, [("one --two", 2), ("three", 0)]);
    for (expected, printed) in [
        ("a b", "a   b"),
        ("… b", "x y b"),
        ("t=…,v1=… c", "t=12,v1=ab c"),
        ("sources a, …", "sources a, b, c"),
        ("p50 … ms", "p50 3.2 ms"),
    ] {
        assert!(is_as_expected(expected, printed), "{expected}: {printed}");
    }
    for (expected, printed) in [("a b", "a c"), ("a", "a b"), ("t=…,v1", "t=12,v2"), ("… b", "b c"), ("a b", "a")] {
        assert!(!is_as_expected(expected, printed), "{expected}: {printed}");
    }
}

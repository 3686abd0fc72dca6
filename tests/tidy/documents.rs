//! Documents and what they speak of.

use std::collections::BTreeSet;
use std::fs;

use hookfast_catalog::Description;
use hookfast_webhook::{Failure, FailureKind, Next, RetryPolicy};

use crate::{files, read, root};

#[test]
fn the_page_about_configuration_holds_the_reference_as_it_is() {
    let page = read("docs/configuration.md");
    let (_, block) = page.split_once("```toml\n").expect("there is a block of TOML");
    let (block, _) = block.split_once("```").expect("the block has an end");
    assert!(block == read("deploy/hookfast.toml"), "copy deploy/hookfast.toml into docs/configuration.md");
}

#[test]
fn the_page_about_providers_holds_the_example_as_it_is() {
    let (page, example) = (read("docs/providers.md"), read("tests/e2e/fixtures/acme.toml"));
    let copy = format!("```toml\n{example}```\n");
    assert!(page.contains(&copy), "copy tests/e2e/fixtures/acme.toml into docs/providers.md");
    Description::parse(&example).unwrap_or_else(|problem| panic!("acme.toml: {problem}"));
}

/// Each section of a file of the catalog: its heading on the page, and the beginning of a file with a wrong key in it.
const CATALOG_SECTIONS: [(&str, &str); 11] = [
    ("At the top", "wrong = 1"),
    ("`[[signature]]`", "[[signature]]\nwrong = 1"),
    ("`list`", "[[signature]]\nlist = { wrong = 1 }"),
    ("`key`", "[[signature]]\nkey = { wrong = 1 }"),
    ("`[token]`", "[token]\nwrong = 1"),
    ("`[freshness]`", "[freshness]\nwrong = 1"),
    ("`[event]`", "[event]\nwrong = 1"),
    ("`[[handshake]]`", "[[handshake]]\nwrong = 1"),
    ("`[answer]`", "[answer]\nwrong = 1"),
    ("`[answer]`", "[[handshake]]\nanswer = { wrong = 1 }"),
    ("`[[sample]]`", "[[sample]]\nwrong = 1"),
];

#[test]
fn the_page_about_providers_explains_every_key_and_no_other() {
    let page = read("docs/providers.md");
    for (heading, file) in CATALOG_SECTIONS {
        let (_, section) = page.split_once(&format!("\n### {heading}\n")).unwrap_or_else(|| panic!("{heading}"));
        let section = section.split("\n#").next().unwrap();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        assert_eq!(rows.collect::<BTreeSet<_>>(), words(&allowed(file)), "under {heading}");
    }
}

#[test]
fn the_page_about_providers_lists_every_word_that_is_allowed() {
    let page = read("docs/providers.md");
    for (key, file) in [
        ("encoding", "[[signature]]\nencoding = \"wrong\""),
        ("algorithm", "[[signature]]\nalgorithm = \"wrong\""),
        ("encoding", "[[signature]]\nkey = { encoding = \"wrong\" }"),
    ] {
        let allowed = allowed(file);
        let explains = |line: &str| line.starts_with(&format!("| `{key}`")) && words(&allowed).is_subset(&words(line));
        assert!(page.lines().any(explains), "{key}: {allowed}");
    }
}

#[test]
fn the_page_about_providers_lists_every_place_and_what_else_stands_in_braces() {
    let page = read("docs/providers.md");
    let problem = Description::parse("[[signature]]\nsigned = \"{wrong}\"").expect_err("it is wrong").problem;
    let (_, allowed) = problem.split_once("allowed: ").unwrap();
    let (places, others) = allowed.split_once(", and in braces also ").unwrap();
    let rows = places.split(", ").map(str::to_owned).chain(others.split(", ").map(|word| format!("{{{word}}}")));
    let missing: Vec<_> = rows.filter(|row| !page.contains(&format!("\n| `{row}` |"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(
        page.contains(&problem.replace("wrong", "boddy")),
        "the example of a broken file is another one: {problem}"
    );
}

/// What the message about a wrong file says would be right.
fn allowed(file: &str) -> String {
    let problem = Description::parse(file).expect_err("it is wrong").problem;
    problem.split_once("expected ").unwrap_or_else(|| panic!("{problem}")).1.to_owned()
}

/// The words in backticks.
fn words(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_page_about_handlers_quotes_the_examples() {
    let page = read("docs/handlers.md");
    let first = read("examples/stripe-ledger/examples/paid-invoices.rs");
    assert!(page.contains(&format!("```rust\n{first}```\n")), "copy paid-invoices.rs into docs/handlers.md");
    let examples: Vec<_> = files(".rs").into_iter().filter(|path| path.starts_with("examples")).map(read).collect();
    for quote in page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        assert!(examples.iter().any(|example| example.contains(quote)), "in no example:\n{quote}");
    }
}

#[test]
fn the_page_about_handlers_lists_every_kind_of_failure_with_its_least_delay() {
    let page = read("docs/handlers.md");
    let at_once = RetryPolicy { max_attempts: 2, ..RetryPolicy::list(Vec::new()) };
    for kind in FailureKind::ALL {
        let Next::RetryIn(least) = at_once.after(1, &Failure::retry(kind, ""), 0.0) else { panic!("it gives up") };
        let delay = if least.is_zero() { "none".into() } else { format!("{} s", least.as_secs()) };
        let row = format!("\n| `{kind}` | {delay} |");
        assert!(page.contains(&row), "{row}");
    }
}

#[test]
fn the_page_about_handlers_lists_every_retry_policy() {
    let page = read("docs/handlers.md");
    for name in RetryPolicy::PRESETS {
        let policy = RetryPolicy { jitter: 0.0, ..RetryPolicy::preset(name).unwrap() };
        let failure = Failure::retry(FailureKind::Internal, "");
        let delays = (1..).map_while(|attempt| match policy.after(attempt, &failure, 0.0) {
            Next::RetryIn(delay) => Some(in_units(delay.as_secs())),
            Next::GiveUp => None,
        });
        let row = format!("\n| `{name}` | {} |\n", delays.collect::<Vec<_>>().join(", "));
        assert!(page.contains(&row), "{row}");
    }
}

/// As the configuration writes it.
fn in_units(seconds: u64) -> String {
    match (seconds % 3600, seconds % 60) {
        (0, _) => format!("{}h", seconds / 3600),
        (_, 0) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}

#[test]
fn the_readme_of_the_library_lists_every_provider_by_how_it_was_tested() {
    let readme = read("crates/webhook/README.md");
    let (tested, untested): (Vec<_>, Vec<_>) =
        hookfast_catalog::EMBEDDED.iter().partition(|description| description.vector_tested);
    let names = |of: Vec<&std::sync::Arc<Description>>| of.iter().map(|one| one.name.clone()).collect::<BTreeSet<_>>();
    let folders = fs::read_dir(root().join("providers")).unwrap().map(|folder| folder.unwrap().file_name());
    let crates = folders.map(|folder| folder.into_string().unwrap()).filter(|folder| folder != "catalog");
    for (before, expected) in [
        ("where its documentation is unclear:\n\n", crates.collect()),
        ("tested with test vectors:\n\n", names(tested)),
        ("documentation, without test vectors:\n\n", names(untested)),
    ] {
        let (_, list) = readme.split_once(before).unwrap_or_else(|| panic!("{before}"));
        let listed = words(list.split("\n\n").next().unwrap()).into_iter().map(str::to_owned);
        assert_eq!(listed.collect::<BTreeSet<_>>(), expected, "after {before:?}");
    }
}

#[test]
fn every_link_to_a_file_leads_somewhere() {
    let mut broken = Vec::new();
    for page in files(".md") {
        let folder = root().join(page.parent().unwrap());
        let dead = file_links(&read(&page)).into_iter().filter(|link| !folder.join(link).exists());
        broken.extend(dead.map(|link| format!("{}: {link}", page.display())));
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The targets of `[text](target)` that are files, without the place within the file. Blocks of code hold no links.
fn file_links(page: &str) -> Vec<String> {
    let prose = page.split("```").step_by(2);
    let targets = prose.flat_map(|text| text.split("](").skip(1).filter_map(|rest| rest.split(')').next()));
    let files = targets.map(|target| target.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains(':')).map(str::to_owned).collect()
}

#[test]
fn links_are_found_where_they_are() {
    let page = "[a](a.md) and [b](../b.rs#L7), [c](https://c.example/x), [d](#here)\n```\nx[0](e.md)\n```\n[f](f/)";
    assert_eq!(file_links(page), ["a.md", "../b.rs", "f/"]);
}

/// `tests/run bench` writes the page. A number without its command, or a cell without anything, would be an edit by hand.
#[test]
fn the_page_about_benchmarks_is_as_it_was_written() {
    let pages = files(".md").into_iter().filter(|path| path.ends_with("docs/benchmarks.md"));
    for page in pages.map(read) {
        assert!(page.contains("| `tests/run bench"), "the command is missing");
        assert_eq!(empty_cells(&page), Vec::<&str>::new());
    }
}

/// The rows of tables in which something is missing.
fn empty_cells(page: &str) -> Vec<&str> {
    let rows = page.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    rows.filter(|row| row.split('|').any(|cell| cell.trim().is_empty())).collect()
}

#[test]
fn an_empty_cell_is_noticed() {
    assert_eq!(empty_cells("| a | b |\n| --- | --: |\n| 1 |  |\n| 2 | - |\n"), [" 1 |  "]);
}

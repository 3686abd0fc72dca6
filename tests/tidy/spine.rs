//! The spine in ARCHITECTURE.md is true: its files exist, say what comes before and after them, and name what exists.

use std::collections::BTreeSet;

use crate::syntax::{Source, sources};
use crate::{read, root};

const PAGE: &str = "ARCHITECTURE.md";

/// What the first lines of a file of the spine must say.
const SAYS: [&str; 2] = ["Before it", "After it"];

/// The functions and modules of the workspace.
#[derive(Default)]
struct Known {
    functions: BTreeSet<String>,
    /// As `Type::function`, also for traits.
    methods: BTreeSet<String>,
    modules: BTreeSet<String>,
}

impl Known {
    fn of(sources: &[Source]) -> Self {
        let mut known = Self::default();
        for source in sources {
            for method in source.methods() {
                known.functions.extend(method.rsplit("::").next().map(str::to_owned));
                known.methods.insert(method);
            }
            known.functions.extend(source.functions().into_iter().map(|function| function.name));
            let parts = source.path.with_extension("");
            known.modules.extend(parts.iter().map(|part| part.to_string_lossy().into_owned()));
        }
        known
    }

    /// Whether this exists: `Type::function`, `module::function`, `module::module`, `module`, or `function`.
    fn has(&self, name: &str) -> bool {
        let mut segments = name.rsplit("::");
        let last = segments.next().unwrap_or_default();
        match segments.next() {
            Some(of) if is_type(of) => self.methods.contains(&format!("{of}::{last}")),
            Some(module) => {
                self.modules.contains(module) && (self.modules.contains(last) || self.functions.contains(last))
            }
            None => self.modules.contains(last) || self.functions.contains(last),
        }
    }
}

fn is_type(name: &str) -> bool {
    name.starts_with(|character: char| character.is_ascii_uppercase())
}

/// The section about the spine: its list of stations, and what stands below the list.
fn section(page: &str) -> [&str; 2] {
    let (_, section) = page.split_once("\n## The spine").expect("there is a section about the spine");
    let section = section.split("\n## ").next().unwrap_or_default();
    let list = section.find("\n1. ").expect("it has a list");
    let end = section[list..].find("\n\n").map_or(section.len(), |end| list + end);
    [&section[list..end], &section[end..]]
}

/// The files that a text links to.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The comment at the top of a file as one line, without the code in it.
fn first_comment(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let comment = lines.collect::<Vec<_>>().join("\n");
    let prose: String = comment.split("```").step_by(2).collect();
    prose.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The functions and modules that a text names in backticks. A word alone counts only if it ends with `()`.
fn names(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let names = quoted.filter_map(|quoted| match quoted.strip_suffix("()") {
        Some(function) => Some(function),
        None => quoted.contains("::").then_some(quoted),
    });
    names.filter(|name| !is_type(name.rsplit("::").next().unwrap_or_default())).collect()
}

/// What is wrong with the first comment of a file of the spine.
fn wrong_with(path: &str, text: &str, known: &Known) -> Vec<String> {
    let comment = first_comment(text);
    let unsaid = SAYS.iter().filter(|says| !comment.contains(*says));
    let unsaid = unsaid.map(|says| format!("{path}: its first lines do not say {says:?}"));
    unsaid.chain(unknown_in(path, &comment, known)).collect()
}

fn unknown_in(path: &str, text: &str, known: &Known) -> Vec<String> {
    let unknown = names(text).into_iter().filter(|name| !known.has(name));
    unknown.map(|name| format!("{path}: there is no `{name}`")).collect()
}

#[test]
fn every_file_of_the_spine_says_what_comes_before_and_after_it() {
    let (page, known) = (read(PAGE), Known::of(&sources()));
    let [list, below] = section(&page);
    let (missing, files): (Vec<_>, Vec<_>) = links(list).into_iter().partition(|link| !root().join(link).is_file());
    let mut wrong: Vec<_> = missing.iter().map(|link| format!("{PAGE}: there is no file {link}")).collect();
    wrong.extend(files.iter().flat_map(|path| wrong_with(path, &read(path), &known)));
    wrong.extend([list, below].iter().flat_map(|text| unknown_in(PAGE, text, &known)));
    assert!(files.len() >= 8, "the stations are found: {files:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_is_wrong_in_the_spine_is_noticed() {
    let text = "pub trait Record { fn record(&self); } impl<'a> Batch<'a> { fn commit() {} } fn alone() {}";
    let known = Known::of(&[Source::parse("crates/ingest/src/commit.rs".into(), text.into())]);
    let right =
        "//! Before it, `Batch::commit` and `ingest::commit`. After it, [`Record::record`], `alone()`, `Kind::Own`.";
    assert_eq!(wrong_with("a.rs", right, &known), Vec::<String>::new());
    let wrong =
        "//! Before it, `Batch::record` and `gone::commit`. A word `x` alone, ```text\n//! `c::d` ```\n\n//! After it.";
    assert_eq!(
        wrong_with("a.rs", wrong, &known),
        [
            "a.rs: its first lines do not say \"After it\"",
            "a.rs: there is no `Batch::record`",
            "a.rs: there is no `gone::commit`",
        ]
    );
    let page = "a\n## The spine\n\nText `e::f`\n\n1. [b](b.rs). Then\n   [c](c.rs).\n2. [d](d.rs)\n\nBelow [e](e.rs).\n\n## Next\n[f](f.rs)";
    assert_eq!(section(page).map(links), [vec!["b.rs", "c.rs", "d.rs"], vec!["e.rs"]]);
}

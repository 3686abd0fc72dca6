//! One word has one meaning: a word of the glossary is one type, and no two crates have a public type of the same name.

use std::collections::{BTreeMap, BTreeSet};

use crate::read;
use crate::syntax::{Source, sources};

/// The words of the glossary that are types, and the crate in which each of them is defined, once.
const TYPES: [(&str, &str); 20] = [
    ("Arrival", "crates/webhook"),
    ("Attempt", "crates/store"),
    ("Claim", "crates/store"),
    ("Effect", "crates/store"),
    ("Effects", "crates/handler"),
    ("Event", "crates/webhook"),
    ("Genuine", "crates/webhook"),
    ("Handler", "crates/handler"),
    ("Hint", "crates/queue"),
    ("Interruption", "crates/store"),
    ("Proof", "crates/webhook"),
    ("Provider", "crates/webhook"),
    ("Refusal", "crates/webhook"),
    ("Rejection", "crates/ingest"),
    ("Reopen", "crates/admin"),
    ("Replay", "crates/admin"),
    ("Request", "crates/webhook"),
    ("Resolve", "crates/admin"),
    ("Source", "crates/ingest"),
    ("Spool", "crates/store"),
];

/// Names that several crates have, and why.
const SHARED: [(&str, &str); 7] = [
    ("Config", "every component and every provider has its own settings"),
    ("Event", "`Event<Payload>` is the event as a handler sees it"),
    ("Problem", "what is wrong in a file that somebody wrote: the configuration, or one of the catalog"),
    ("Running", "every component that runs gives back one of these"),
    ("Protection", "every crate with switches for the fault tests has its own list of them"),
    // These are two meanings, and one of each is to get another name.
    ("Handlers", "those of a program, and those that an operator chose"),
    ("Outcome", "how a run ended, how an act of an operator ended, and what a test vector expects"),
];

/// Where the name of a type stands, by name.
type Places = BTreeMap<String, BTreeSet<String>>;

/// The files that define types of each name. `examples` and `tests` have names of their own for what only they do.
fn places(sources: &[Source], only_public: bool) -> Places {
    let mut places = Places::new();
    let ours = |source: &&Source| ["crates", "providers", "modules"].iter().any(|top| source.path.starts_with(top));
    for source in sources.iter().filter(ours).filter(|source| !source.is_for_tests()) {
        for found in source.types().into_iter().filter(|found| found.is_public || !only_public) {
            places.entry(found.name).or_default().insert(source.path.display().to_string());
        }
    }
    places
}

/// The names of which two crates have a public type.
fn doubles(places: &Places) -> Vec<String> {
    let crate_of = |path: &String| path.split("/src/").next().unwrap_or_default().to_owned();
    let several = places.iter().filter(|(_, files)| files.iter().map(crate_of).collect::<BTreeSet<_>>().len() > 1);
    let unexplained = several.filter(|(name, _)| !SHARED.iter().any(|(shared, _)| shared == name));
    unexplained.map(|(name, files)| format!("{name}: {files:?}")).collect()
}

/// The words of the glossary that have a second type, or none where they should.
fn second_meanings(places: &Places) -> Vec<String> {
    let allowed = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    let files = |name: &str| places.get(name).cloned().unwrap_or_default();
    let is_wrong = |(name, home): &&(&str, &str)| {
        let (here, elsewhere): (BTreeSet<_>, BTreeSet<_>) =
            files(name).into_iter().partition(|file| file.starts_with(&format!("{home}/")));
        here.len() != 1 || !(elsewhere.is_empty() || allowed(name))
    };
    TYPES.iter().filter(is_wrong).map(|(name, home)| format!("{name} belongs into {home}: {:?}", files(name))).collect()
}

#[test]
fn no_two_crates_have_a_public_type_of_the_same_name() {
    let wrong = doubles(&places(&sources(), true));
    assert!(wrong.is_empty(), "rename one, or say in SHARED why both are right: {wrong:#?}");
}

#[test]
fn a_word_of_the_glossary_is_one_type() {
    let wrong = second_meanings(&places(&sources(), false));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A type that is called like a word of the glossary is what the glossary says.
#[test]
fn every_type_that_is_called_like_a_word_of_the_glossary_is_listed() {
    let (words, places) = (glossary(), places(&sources(), true));
    let unlisted: Vec<_> = words
        .iter()
        .filter(|word| places.contains_key(*word) && !TYPES.iter().any(|(name, _)| name == word))
        .map(|word| format!("{word}: {:?}", places[word]))
        .collect();
    assert!(unlisted.is_empty(), "add them to TYPES: {unlisted:#?}");
}

/// The words of the glossary, written as types are.
fn glossary() -> BTreeSet<String> {
    let page = read("ARCHITECTURE.md");
    let (_, section) = page.split_once("\n## Words\n").expect("there is a glossary");
    let rows = section.split("\n## ").next().unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| "));
    let words = rows.filter_map(|row| row.split(" |").next()).flat_map(|cell| cell.split(", "));
    let capital = |word: &str| word.split(' ').map(capitalized).collect::<String>();
    words.filter(|word| !["word", "---"].contains(word)).map(capital).collect()
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(1.min(word.len()));
    first.to_uppercase() + rest
}

#[test]
fn the_glossary_is_found() {
    let words = glossary();
    for word in ["Provider", "Event", "DeadLetter", "Spool", "Drain"] {
        assert!(words.contains(word), "{word} in {words:?}");
    }
}

#[test]
fn a_second_meaning_is_noticed() {
    let source = |path: &str, text: &str| Source::parse(path.into(), text.into());
    let second = [
        source("crates/queue/src/lib.rs", "pub struct Parcel; pub struct Hint;"),
        source("crates/webhook/src/event.rs", "pub struct Parcel; pub struct Event;"),
        source("crates/ingest/src/hints.rs", "pub(crate) struct Hint; pub struct Config;"),
        source("crates/store/src/open.rs", "pub struct Config;"),
    ];
    let doubles = doubles(&places(&second, true));
    assert!(doubles.len() == 1 && doubles[0].starts_with("Parcel: "), "{doubles:?}");
    let meanings = second_meanings(&places(&second, false)).join("\n");
    assert!(meanings.contains("Hint belongs into crates/queue: {\"crates/ingest/src/hints.rs\", "));
    assert!(!meanings.contains("Event belongs"), "{meanings}");
}

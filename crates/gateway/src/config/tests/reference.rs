//! `deploy/hookfast.toml` says what the code does.

use hookfast_ingest::SourceLimits;
use hookfast_processor::HandlerConfig;
use hookfast_webhook::{Interest, Pattern, Priority, RetryPolicy, SourceName};

use super::super::SECTIONS;
use super::load_text;

const REFERENCE: &str = include_str!("../../../../../deploy/hookfast.toml");

/// The keys of the reference that have no default, so that an unset one means something of its own.
const WITHOUT_DEFAULT: [&str; 3] = ["public_url", "rate_per_address", "credentials"];

/// `# [section]` and `# key = value`, but not prose.
fn uncommented(line: &str) -> &str {
    let Some(content) = line.strip_prefix("# ") else { return line };
    let is_key = content.split_once(" = ").is_some_and(|(key, _)| key.bytes().all(is_key_byte));
    if content.starts_with('[') || is_key { content } else { line }
}

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte == b'_'
}

/// Everything in the reference switched on. The variable that it names for a secret is one that every process has.
fn complete() -> String {
    let text = REFERENCE.replace("env:STRIPE_WEBHOOK_SECRET", "env:PATH");
    text.lines().map(uncommented).collect::<Vec<_>>().join("\n")
}

/// Its sections, each with its keys in order.
fn sections() -> Vec<(String, Vec<String>)> {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    for line in complete().lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            sections.push((name.trim_end_matches(']').into(), Vec::new()));
        } else if let Some((key, _)) = line.split_once(" = ") {
            sections.last_mut().expect("no key stands before the first section").1.push(key.into());
        }
    }
    sections
}

#[test]
fn as_it_stands_it_says_what_an_empty_file_says() {
    let config = load_text(REFERENCE).expect("the reference is right");
    assert_eq!(config.ingest, hookfast_ingest::Config::default());
    assert_eq!(config.admin, hookfast_admin::Config::default());
    assert_eq!(config.work, hookfast_processor::Config::default());
    assert!(config.sources.is_empty() && config.handlers.is_empty());
    assert_eq!(format!("{config:?}"), format!("{:?}", load_text("").expect("nothing is right")));
}

#[test]
fn whatever_has_a_default_stands_there_with_it() {
    let commented = |line: &&str| uncommented(line) != *line;
    let before_sources = REFERENCE.lines().take_while(|line| !line.starts_with("# [")).filter(commented);
    let keys: Vec<_> = before_sources.map(|line| uncommented(line).split(' ').next().unwrap_or_default()).collect();
    assert_eq!(keys, WITHOUT_DEFAULT);

    let config = load_text(&complete()).expect("the complete reference is right");
    let source = &config.sources[&SourceName::new("stripe").expect("a name")];
    assert_eq!(source.limits.body_limit, SourceLimits::default().body_limit);
    let tolerance = hookfast_stripe::Config::default().tolerance_seconds;
    assert!(REFERENCE.contains(&format!("\n# tolerance_seconds = {tolerance}\n")));
}

#[test]
fn with_everything_switched_on_it_has_no_problem() {
    let config = load_text(&complete()).expect("the complete reference is right");
    assert_eq!((config.sources.len(), config.handlers.len()), (1, 1));
    assert_eq!(config.ingest.public_url.as_deref(), Some("https://hooks.example.com"));
    let handler = &config.handlers[0];
    let interest = |types| Interest { source: Some(SourceName::new("stripe").expect("a name")), types };
    let wanted = [Pattern::Exactly("invoice.paid".into()), Pattern::Prefix("charge.".into())].map(interest);
    assert_eq!(handler.subscription.interests, wanted);
    // What stands there as a comment is what it is without.
    assert_eq!(handler.config, HandlerConfig::default());
    assert_eq!((handler.subscription.priority, handler.is_paused), (Some(Priority::Normal), false));
    assert_eq!(handler.config.retry, RetryPolicy::default());
}

/// The reader says which keys it knows when it meets one that it does not know.
#[test]
fn it_holds_every_key_that_is_known_in_order_and_no_other() {
    let text = complete().replace("]\n# ", "]\nunknown_key = 1\n# ");
    let expected: Vec<_> = sections()
        .iter()
        .map(|(name, keys)| {
            (format!("{name}.unknown_key"), format!("there is no such key; allowed here: {}", keys.join(", ")))
        })
        .collect();
    let found = load_text(&text).expect_err("there is an unknown key in every section");
    assert_eq!(found.into_iter().map(|found| (found.key, found.problem)).collect::<Vec<_>>(), expected);
}

#[test]
fn it_holds_every_section_that_is_known_in_order_and_no_other() {
    let mut names: Vec<_> =
        sections().iter().map(|(name, _)| name.split('.').next().unwrap_or_default().to_owned()).collect();
    names.dedup();
    assert_eq!(names, SECTIONS);
}

mod reference;

use hookfast_store::DeadLetters;
use hookfast_webhook::{Ordering, Priority};

use super::document::Document;
use super::*;

fn load_text(text: &str) -> Result<Config, Vec<Problem>> {
    load_with(text, &[])
}

fn load_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, Vec<Problem>> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    read(Document::parse("hookfast.toml", text, variables)?, &Handlers::new())
}

/// The problems, as they are printed.
fn problems(text: &str) -> Vec<String> {
    let problems = load_text(text).expect_err("there are problems");
    problems.iter().map(ToString::to_string).collect()
}

/// A source that is right, apart from what a test is about.
const SOURCE: &str = "[sources.stripe]\nprovider = \"stripe\"\nsecrets = [\"whsec_1\"]\n";

#[test]
fn all_problems_are_said_at_once_each_with_its_place() {
    let text = r#"[ingest]
listen = "8080"
answer_deadline = 450
queue_requests = 0
batch_bytes = "many"
conceal_sources = "no"
public_url = "https://hooks.example.com/webhooks"
trusted_proxies = ["10.0.0.0/33"]
rate_per_address = "100/h"
lisen = 1

[store]
url = "mysql://localhost"

[sources.Stripe]
provider = "stripe"
secrets = ["whsec_1"]

[sources.a]
secrets = ["whsec_1"]

[sources.b]
provider = "strip"
secrets = ["whsec_1"]

[sources.c]
provider = "stripe"
tolerance_seconds = "long"

[handlers.ledger]
run = "log"
source = "stripe-eu"
types = ["a*b"]
retry = "never"
ordering = "alphabetical"

[handlers.mail]
types = ["a"]

[sinks]
"#;
    let expected = [
        (2, "ingest.listen", "such as \"127.0.0.1:8080\""),
        (7, "ingest.public_url", "without a path"),
        (3, "ingest.answer_deadline", "\"450ms\""),
        (4, "ingest.queue_requests", "from 1 on"),
        (5, "ingest.batch_bytes", "\"10MiB\""),
        (8, "ingest.trusted_proxies", "\"10.0.0.0/8\""),
        (9, "ingest.rate_per_address", "\"100/s\""),
        (6, "ingest.conceal_sources", "true or false"),
        (10, "ingest.lisen", "allowed here: listen, public_url"),
        (13, "store.url", "`sqlite:PATH`"),
        (15, "sources.Stripe", "lower-case letters"),
        (19, "sources.a.provider", "is missing"),
        (23, "sources.b.provider", "there is: asana, calendly"),
        (28, "sources.c.tolerance_seconds", "u32"),
        (26, "sources.c.secrets", "is missing"),
        (32, "handlers.ledger.source", "there is: Stripe, a, b, c"),
        (33, "handlers.ledger.types", "\"invoice.*\""),
        (34, "handlers.ledger.retry", "default, patient, quick"),
        (35, "handlers.ledger.ordering", "\"per_account\""),
        (37, "handlers.mail", "`run = \"log\"`"),
        (40, "sinks", "there is: ingest, admin, store, queue, work, catalog, sources, handlers"),
    ];
    let found = problems(text);
    for ((line, key, allowed), found) in expected.iter().zip(&found) {
        assert!(found.starts_with(&format!("hookfast.toml:{line}: `{key}`: ")), "{found}");
        assert!(found.contains(allowed), "{found}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn a_handler_can_have_all_its_jobs_in_one_order() {
    let config = load_text("[handlers.audit]\nrun = \"log\"\nordering = \"strict\"").expect("it is right");
    let handler = &config.handlers[0];
    assert!(matches!(handler.subscription.ordering, Ordering::Strict));
    assert_eq!(handler.config.ordering, Some(DeadLetters::StepOver), "its workers run one job at a time");
}

#[test]
fn the_priorities_of_a_source_are_rules_by_type() {
    let text = "[sources.shop]\nprovider = \"stripe\"\nsecrets = [\"whsec_1\"]\npriority = ";
    let rules =
        |value: &str| load_text(&format!("{text}{value}")).map(|config| config.sources["shop"].limits.priority.clone());
    let found = rules(r#"{ "order.*" = "high", "order.viewed" = "low" }"#).expect("it is right");
    assert_eq!((found.of("order.paid"), found.of("order.viewed")), (Some(Priority::High), Some(Priority::Low)));
    assert_eq!(found.of("customer.created"), None);
    for (wrong, allowed) in [
        ("\"high\"", "write a table of types and priorities"),
        (r#"{ "order.*" = "urgent" }"#, "\"high\", \"normal\" or \"low\""),
        (r#"{ "*.paid" = "high" }"#, "\"invoice.*\""),
    ] {
        let found = rules(wrong).expect_err("it is wrong");
        assert!(found[0].key == "sources.shop.priority" && found[0].problem.contains(allowed), "{found:?}");
    }
}

#[test]
fn a_source_that_would_refuse_everything_is_a_problem() {
    let refusing = |keys: &str| {
        let text = format!("[sources.a]\nsecrets = [\"s3cret-token\"]\nunsigned_type = \"refuse\"\n{keys}");
        load_text(&text).err().unwrap_or_default().iter().map(|found| found.key.clone()).collect::<Vec<_>>()
    };
    for never in [
        "provider = \"garmin\"\nclient_id = \"c\"",
        "provider = \"strava\"\nverify_token = \"v\"\nsubscription_id = 1\nmode = \"unsigned\"",
        "provider = \"salla\"\nstrategy = \"token\"",
        "provider = \"github\"",
        "provider = \"gitlab\"",
    ] {
        assert!(refusing(never).contains(&"sources.a.unsigned_type".to_owned()), "{never}: {:?}", refusing(never));
    }
    for signs in [
        "provider = \"stripe\"",
        "provider = \"strava\"\nverify_token = \"v\"\nsubscription_id = 1",
        "provider = \"salla\"\nstrategy = \"signature\"",
        "provider = \"twilio\"",
        "provider = \"whatsapp\"\nverify_token = \"v\"",
        "provider = \"linear\"",
    ] {
        assert!(!refusing(signs).contains(&"sources.a.unsigned_type".to_owned()), "{signs}: {:?}", refusing(signs));
    }
}

#[test]
fn what_is_not_toml_is_a_problem_with_its_line() {
    let found = problems("[ingest]\nlisten = \"127.0.0.1:8080\n");
    assert!(found.len() == 1 && found[0].starts_with("hookfast.toml:2: this is not TOML: "), "{found:?}");
}

#[test]
fn what_is_said_twice_is_named_with_both_places() {
    let found = problems("[ingest]\nlisten = \"127.0.0.1:1\"\n[admin]\n[ingest] # again\n");
    let said =
        "hookfast.toml:4: the section `[ingest]` stands here a second time; it begins in line 1: put its keys there";
    assert_eq!(found, [said]);
    let found = problems("[admin]\nlisten = \"a\"\n[ingest]\nlisten = \"b\"\n\nlisten = \"c\"\n");
    assert_eq!(found, ["hookfast.toml:6: the key `listen` is set here a second time; it is first set in line 4"]);
}

#[test]
fn a_value_where_a_section_belongs_is_a_problem() {
    let found = problems("ingest = 1\nsources = []\nhandlers.ledger = true\n");
    for (line, key, found) in [(1, "ingest", &found[0]), (2, "sources", &found[1]), (3, "handlers.ledger", &found[2])] {
        assert_eq!(
            *found,
            format!("hookfast.toml:{line}: `{key}`: must be a section: write `[{key}]` and its keys below")
        );
    }
}

#[test]
fn a_source_needs_a_secret_that_can_be_read_and_is_not_blank() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let blank = folder.path().join("blank");
    std::fs::write(&blank, "\n").expect("it can be written");
    let blank = format!("[\"file:{}\"]", blank.display());
    for (secrets, problem) in [
        ("[]", "is empty"),
        ("\"whsec_1\"", "in a list"),
        ("[7]", "in a list"),
        ("[\" \"]", "the text is blank"),
        (&blank, "is blank"),
        ("[\"env:HOOKFAST_TEST_UNSET\"]", "the variable HOOKFAST_TEST_UNSET is not set"),
        ("[\"file:/nowhere/secret\"]", "the file /nowhere/secret cannot be read"),
        ("[\"whsec_canary\", \"\"]", "the text is blank"),
        ("[\"env:\"]", "a name is missing behind `env:`"),
        ("[\"$STRIPE_SECRET\"]", "write \"env:STRIPE_SECRET\""),
        ("[\"${STRIPE_SECRET}\"]", "write \"env:STRIPE_SECRET\""),
    ] {
        let found = problems(&format!("[sources.stripe]\nprovider = \"stripe\"\nsecrets = {secrets}\n"));
        assert!(found.len() == 1 && found[0].starts_with("hookfast.toml:3: `sources.stripe.secrets`: "), "{found:?}");
        assert!(found[0].contains(problem) && !found[0].contains("canary"), "{found:?}");
    }
}

#[test]
fn a_secret_is_a_variable_a_file_or_the_text_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "whsec_file\r\n").expect("it can be written");
    let secrets = format!("[\"whsec_text\", \"file:{}\", \"env:PATH\"]", file.display());
    let config = load_text(&SOURCE.replace("[\"whsec_1\"]", &secrets)).expect("all are there");
    let source = config.sources.values().next().expect("there is one");
    let found: Vec<_> = source.secrets.iter().map(hookfast_webhook::Secret::expose).collect();
    assert_eq!(found, ["whsec_text", "whsec_file", &std::env::var("PATH").expect("every process has one")]);
}

#[test]
fn operators_need_neither_secrets_nor_the_handlers_code() {
    let text = r#"[store]
url = "sqlite:there.db"

[queue]
url = "env:HOOKFAST_TEST_UNSET"

[sources.stripe]
provider = "stripe"
secrets = ["env:HOOKFAST_TEST_UNSET"]

[sources.garmin]
provider = "garmin"
client_id = "env:HOOKFAST_TEST_UNSET"

[handlers.refunds]
source = "stripe"
ordering = "computed"

[handlers.mail]
types = ["invoice.*"]

[handlers.audit]
run = "log"
"#;
    load_text(text).expect_err("a gateway needs all of it");
    let for_operators = |text: &str| {
        let document = Document::parse("hookfast.toml", text, std::iter::empty())?;
        read_for_operators(document, &Handlers::new())
    };
    let config = for_operators(text).unwrap_or_else(|problems| panic!("{problems:?}"));
    assert_eq!(config.sources, ["garmin", "stripe"]);
    let mut names: Vec<_> = config.handlers.names().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["audit", "mail", "refunds"]);

    for (wrong, key) in [
        ("[store]\nurl = \"mysql://x\"", "store.url"),
        ("[stor]", "stor"),
        ("[ingest]\nlisen = 1", "ingest.lisen"),
        ("[sources.a]\nprovider = \"strip\"", "sources.a.provider"),
        ("[handlers.refunds]\nsource = \"nope\"", "handlers.refunds.source"),
        ("[handlers.refunds]\nordring = \"none\"", "handlers.refunds.ordring"),
    ] {
        let problems = for_operators(wrong).err().expect("what is asked for must be right");
        assert_eq!(problems.iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(), [key]);
    }
}

#[test]
fn variables_override_the_file_and_are_written_as_in_the_file() {
    let file = format!("[ingest]\nlisten = \"127.0.0.1:1\"\nqueue_requests = 1\n{SOURCE}");
    let variables = [
        ("HOOKFAST_INGEST__LISTEN", "127.0.0.1:9999"),
        ("HOOKFAST_INGEST__QUEUE_REQUESTS", "7"),
        ("HOOKFAST_INGEST__CONCEAL_SOURCES", "true"),
        ("HOOKFAST_ADMIN__LISTEN", "\"127.0.0.1:9998\""),
        ("HOOKFAST_SOURCES__STRIPE__SECRETS", "[\"whsec_new\", \"whsec_old\"]"),
        ("HOOKFAST_LOG", "debug"),
        ("OTHER", "left alone"),
    ];
    let config = load_with(&file, &variables).expect("all are right");
    assert_eq!(config.ingest.listen.to_string(), "127.0.0.1:9999");
    assert_eq!((config.ingest.queue_requests, config.ingest.conceal_sources), (7, true));
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9998");
    assert_eq!(config.sources.values().next().map(|source| source.secrets.iter().count()), Some(2));
}

#[test]
fn a_wrong_variable_is_a_problem_that_names_it() {
    let variables = [
        ("HOOKFAST_INGEST__LISEN", "1"),
        ("HOOKFAST_INGEST__QUEUE_REQUESTS", "many"),
        ("HOOKFAST_STORAGE__URL", "sqlite:x"),
        ("HOOKFAST_ADMIN__LISTEN__PORT", "1"),
    ];
    let file = "[admin]\nlisten = \"127.0.0.1:0\"\n";
    let found: Vec<_> =
        load_with(file, &variables).expect_err("all are wrong").iter().map(ToString::to_string).collect();
    for (name, _) in variables {
        assert!(found.iter().any(|found| found.starts_with(&format!("the variable {name}: "))), "{name}: {found:?}");
    }
    assert_eq!(found.len(), variables.len(), "{found:?}");
}

#[test]
fn the_admin_listener_must_not_be_reachable_from_outside() {
    for address in ["0.0.0.0:8081", "[::]:8081", "192.0.2.1:8081"] {
        let found = problems(&format!("[admin]\nlisten = \"{address}\"\n"));
        assert!(
            found.len() == 1 && found[0].starts_with("hookfast.toml:2: `admin.listen`: must be a loopback"),
            "{found:?}"
        );
    }
    load_text("[admin]\nlisten = \"[::1]:8081\"\n").expect("loopback has two families");
}

#[test]
fn only_without_a_file_may_secrets_be_missing() {
    let config = read(Document::for_development(std::iter::empty()).expect("it is TOML"), &Handlers::new())
        .expect("it is right");
    assert!(config.sources.values().all(|source| source.secrets.is_empty()) && !config.sources.is_empty());
    let blank = [("HOOKFAST_SOURCES__STRIPE__SECRETS".to_owned(), "[\"\"]".to_owned())];
    read(Document::for_development(blank.into_iter()).expect("it is TOML"), &Handlers::new())
        .expect_err("a blank one is still wrong");
}

#[test]
fn there_is_a_spool_before_postgres_unless_it_is_switched_off() {
    let with = |url: &str, lines: &str| load_text(&format!("[store]\nurl = \"{url}\"\n{lines}"));
    let spool = |url, lines| with(url, lines).expect("it is right").spool.map(|spool| spool.file.path);
    assert_eq!(spool("postgres://h/d", ""), Some("hookfast-spool.db".into()));
    assert_eq!(
        spool("postgres://h/d", "spool = \"/var/lib/hookfast/spool.db\""),
        Some("/var/lib/hookfast/spool.db".into())
    );
    assert_eq!(spool("postgres://h/d", "spool = false"), None);
    assert_eq!(spool("sqlite:a.db", "spool = \"b.db\""), None, "SQLite needs none");
    for wrong in ["spool = true", "spool = \"\"", "spool_max = \"10KiB\"", "spool_after = 150"] {
        with("postgres://h/d", wrong).expect_err(wrong);
    }
}

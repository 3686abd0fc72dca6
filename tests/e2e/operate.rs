//! What operators ask and do, beside a gateway that receives.

use std::fs;

use hookfast_harness::{Database, Ended, Gateway, sample};
use serde_json::{Value, json};

use crate::{patient, setup};

/// A gateway with this many events, whose jobs wait.
fn with_events(database: Database, count: u64) -> Gateway {
    let gateway = patient(database).start();
    for serial in 1..=count {
        assert_eq!(gateway.client().send(&sample(serial)).unwrap().status, 200);
    }
    gateway
}

fn lines(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn said(ended: &Ended, code: i32, part: &str) {
    assert!(ended.code == code && (ended.output.contains(part) || ended.errors.contains(part)), "{part}: {ended:?}");
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn jobs_of_a_handler_that_is_gone_are_listed_moved_and_resolved(database: Database) {
    let gateway = with_events(database, 4);
    let run = |line: &str| gateway.command(&words(line));
    assert_eq!(lines(&run("jobs list --json"))[0]["configured"], true);
    gateway.sql("UPDATE jobs SET handler = 'gone'");

    let listed = run("jobs list");
    said(&listed, 0, "gone (not configured)");
    said(&listed, 0, "4 of 4 jobs");
    said(&listed, 0, "hookfast jobs move --from-handler gone --handler NAME");
    let summary = lines(&run("jobs summary --json"));
    assert_eq!(summary, [json!({"handler": "gone", "configured": false, "jobs": {"pending": 4}})]);
    assert_eq!(lines(&run("jobs list --json --state failed")).len(), 0);
    assert_eq!(
        lines(&run("jobs list --json --handler gone --newest --limit 1"))[0]["event_id"],
        gateway.events()[0].id.to_string()
    );

    said(&run("jobs move --from-handler ledger --handler ledger"), 2, "is configured here");
    said(&run("jobs move --from-handler gone --handler ledger"), 2, "this would move 4 unfinished jobs: add --yes");
    said(&run("jobs move --from-handler gone --handler ledger --dry-run"), 0, "4 unfinished jobs; nothing was changed");
    let moved = run("jobs move --from-handler gone --handler ledger --limit 1 --yes --json").json();
    assert_eq!((&moved["changed"], &moved["done"]), (&1.into(), &true.into()), "{moved}");
    gateway.sql(held(database));
    let warned = run("jobs resolve --handler gone --as ignored --why removed");
    said(&warned, 2, "warning: a worker runs jobs of `gone` at this moment");
    gateway.sql("UPDATE jobs SET state = 'pending' WHERE state = 'processing'");
    let resolved = run("jobs resolve --handler gone --as ignored --why removed --who ann --yes --json").json();
    assert_eq!(resolved["changed"], 3, "{resolved}");
    let states = gateway.query(
        "SELECT handler, state, resolution, count(*) FROM jobs GROUP BY handler, state, resolution ORDER BY resolution, handler",
    );
    let states: Vec<_> = states.iter().map(|row| row.join(" ")).collect();
    assert_eq!(states.len(), 3, "{states:?}");
    for state in ["gone resolved ignored 3", "gone resolved moved 1"] {
        assert!(states.iter().any(|found| found == state), "{states:?}");
    }
    assert_eq!(gateway.query("SELECT count(*) FROM jobs WHERE handler = 'ledger' AND state = 'pending'"), [["1"]]);
    let audits = lines(&run("audit list --json"));
    let seen = audits.iter().map(|audit| (audit["action"].as_str().unwrap(), audit["jobs"].as_u64().unwrap()));
    assert_eq!(seen.collect::<Vec<_>>(), [("resolve", 3), ("move", 1)]);
    said(&run(&format!("jobs resume {}", audits[0]["id"].as_str().unwrap())), 1, "it is finished");
}

/// As if a worker had taken the jobs of `gone` for a day.
fn held(database: Database) -> &'static str {
    match database {
        Database::Sqlite => {
            "UPDATE jobs SET state = 'processing', due_at = 32503680000000000 WHERE handler = 'gone' AND finished_at IS NULL"
        }
        Database::Postgres => {
            "UPDATE jobs SET state = 'processing', due_at = now() + interval '1 day' WHERE handler = 'gone' AND finished_at IS NULL"
        }
    }
}

fn a_typo_in_a_filter_is_refused_with_what_there_is(database: Database) {
    let gateway = with_events(database, 1);
    let run = |line: &str| gateway.command(&words(line));
    for command in ["dead-letters list", "jobs list --state failed", "replay --dry-run", "replay"] {
        said(&run(&format!("{command} --source nope")), 2, "there is no source `nope`; there is: stripe");
        said(&run(&format!("{command} --handler nope")), 2, "there is no handler `nope`; there is: ledger");
        said(&run(&format!("{command} --type *create")), 2, "invoice.*");
        assert_eq!(run(&format!("{command} --source stripe --handler ledger")).code, 0, "{command}");
    }
    said(&run("dead-letters resolve --handler nope --as ignored --why x"), 2, "there is no handler `nope`");
    said(&run("jobs resolve --handler nope --as ignored --why x"), 2, "there is no handler `nope`; there is: ledger");
    // What is not configured any more, and once was, is no typo.
    gateway.sql(
        "UPDATE jobs SET handler = 'old', state = 'succeeded', finished_at = (SELECT min(received_at) FROM events)",
    );
    said(&run("dead-letters list --handler old"), 0, "No dead letter matches.");
}

fn operators_need_neither_secrets_nor_the_teams_own_program(database: Database) {
    let gateway = with_events(database, 2);
    gateway.sql("UPDATE jobs SET handler = 'refunds', state = 'dead_letter', finished_at = (SELECT min(received_at) FROM events), reason = 'timeout'");
    let file = gateway.folder().join("hookfast.toml");
    let config = fs::read_to_string(&file).unwrap();
    let store = config.lines().find(|line| line.starts_with("url = ")).unwrap();
    let elsewhere = format!(
        "[store]\n{store}\nspool = false\n[sources.stripe]\nprovider = \"stripe\"\nsecrets = [\"env:NOT_HERE\"]\n\
         [handlers.refunds]\nordering = \"computed\"\n[handlers.ledger]\nrun = \"log\"\n"
    );
    fs::write(gateway.folder().join("bastion.toml"), elsewhere).unwrap();
    let run = |line: &str| gateway.command(&[&["--config", "bastion.toml"], &words(line)[..]].concat());
    said(&run("config check"), 2, "NOT_HERE is not set");
    said(&run("serve"), 2, "this program has no handler of that name");
    for command in ["events list", "jobs list", "audit list", "migrate", "dead-letters list", "replay --dry-run"] {
        assert_eq!(run(command).code, 0, "{command}: {}", run(command).errors);
    }
    said(
        &run("replay --finished --from-handler ledger --handler refunds"),
        2,
        "the code of the handler `refunds` is not in",
    );
    let replayed = run("replay --handler refunds --yes --json").json();
    assert_eq!(replayed["changed"], 2, "{replayed}");
}

on_both! {
    jobs_of_a_handler_that_is_gone_are_listed_moved_and_resolved
    a_typo_in_a_filter_is_refused_with_what_there_is
    operators_need_neither_secrets_nor_the_teams_own_program
}

#[test]
fn a_replay_that_no_worker_takes_up_says_so() {
    let gateway = with_events(Database::Sqlite, 2);
    gateway.sql("UPDATE jobs SET state = 'dead_letter', finished_at = 1, reason = 'timeout'");
    let replayed = gateway.command(&["replay", "--yes"]);
    said(&replayed, 0, "Replayed 2 jobs.");
    said(&replayed, 0, "none of the first jobs has begun");
}

#[test]
fn the_newest_dead_letters_can_come_first() {
    let gateway = with_events(Database::Sqlite, 3);
    gateway.sql("UPDATE jobs SET state = 'dead_letter', finished_at = 1, reason = 'timeout'");
    let ids = |line: &str| -> Vec<_> {
        lines(&gateway.command(&words(line))).iter().map(|line| line["event_id"].clone()).collect()
    };
    let mut oldest_first = ids("dead-letters list --json");
    oldest_first.reverse();
    assert_eq!(ids("dead-letters list --newest --limit 2 --json"), oldest_first[..2]);
}

#[test]
fn what_is_done_already_is_said_with_the_command_that_runs_it_again() {
    let gateway = with_events(Database::Sqlite, 1);
    gateway.sql("UPDATE jobs SET state = 'succeeded', finished_at = 1");
    let id = gateway.events()[0].id.to_string();
    said(&gateway.command(&["replay", &id]), 0, &format!("To run them again: hookfast replay --finished {id}"));
}

#[test]
fn more_than_were_looked_at_are_counted_and_what_was_looked_at_is_said() {
    let gateway = with_events(Database::Sqlite, 1);
    gateway.sql(
        "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers LIMIT 1200)
         INSERT INTO jobs (event_id, handler, state, due_at, finished_at, reason)
         SELECT event_id, 'h' || number, 'dead_letter', 0, 1, 'timeout' FROM jobs CROSS JOIN numbers",
    );
    let seen = gateway.command(&words("dead-letters resolve --source stripe --as ignored --why x --dry-run"));
    said(&seen, 0, "1200 dead letters; nothing was changed.\nOf the first 1000:\n");
    let refused = gateway.command(&words("dead-letters resolve --source stripe --as ignored --why x"));
    said(&refused, 2, "this would resolve 1200 dead letters: add --yes");
}

#[test]
fn wrong_arguments_are_refused_in_plain_words() {
    let setup = setup(Database::Sqlite);
    for (line, part) in [
        ("events list --limit 0", "0 is not in 1.."),
        ("dead-letters list --limit 0", "0 is not in 1.."),
        ("events show foo", "an id is 36 characters long"),
        ("replay foo", "an id is 36 characters long"),
        ("dead-letters list --since yesterday", "a day such as 2026-07-01"),
        ("verify --provider stripe --body-file - --now noon", "unix seconds"),
        ("simulate stripe --rate fast", "such as 50/s"),
        ("simulate github", "no source of this configuration has the provider `github`; there is: stripe (stripe)"),
        (
            "simulate stripe --source nope",
            "`nope` is no such source of the provider `stripe`; there is: stripe (stripe)",
        ),
    ] {
        said(&setup.command(&words(line)), 2, part);
    }
}

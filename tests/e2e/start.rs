//! Starting, and the reasons not to.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use hookfast_harness::{Database, Hold, PrivatePostgres, Signal, eventually, fresh_database, query, sample, signal};

use crate::{BINARY, setup};

#[test]
fn postgres_is_migrated_only_when_asked() {
    let setup = setup(Database::Postgres).without_migrate();
    let ended = setup.start_in_vain();
    assert_eq!(ended.code, 1, "{}", ended.errors);
    let all = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../migrations/postgres")).unwrap().count();
    let sentence = format!("lacks {all} of {all} migrations. Run `hookfast migrate`");
    assert!(ended.errors.contains(&sentence), "{}", ended.errors);

    for _ in 0..2 {
        let ended = setup.command(&["migrate"]);
        assert_eq!((ended.code, ended.output.as_str()), (0, "The tables are up to date.\n"), "{}", ended.errors);
    }
    let gateway = setup.ingest("answer_deadline = \"20s\"").start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
}

#[test]
fn sqlite_is_migrated_at_the_start_because_one_process_owns_it() {
    let gateway = setup(Database::Sqlite).without_migrate().ingest("answer_deadline = \"20s\"").start();
    assert_eq!(gateway.client().send(&sample(1)).unwrap().status, 200);
}

/// An operator who waits for it is told why.
#[test]
fn an_upgrade_is_announced() {
    for database in [Database::Sqlite, Database::Postgres] {
        let mut gateway = setup(database).start();
        gateway.signal(Signal::Term);
        assert!(gateway.wait().success());
        let migrate = || gateway.command(&["migrate"]);
        let announcement = "1 of its migrations is missing. With many events an upgrade can take minutes";
        assert!(!migrate().errors.contains(announcement), "nothing is missing");
        let newest = "SELECT max(version) FROM _sqlx_migrations";
        assert_eq!(gateway.query(newest), [["13"]], "undo the newest migration here");
        ["large_bodies", "body_parts"].iter().for_each(|table| gateway.sql(&format!("DROP TABLE {table}")));
        gateway.sql("DELETE FROM _sqlx_migrations WHERE version = 13");
        let ended = migrate();
        assert_eq!((ended.code, ended.output.as_str()), (0, "The tables are up to date.\n"), "{}", ended.errors);
        assert!(ended.errors.contains(announcement), "{}", ended.errors);
        let contracts = ended.errors.contains("13 (contract large bodies). Stop all `serve` and `work`");
        assert_eq!(contracts, database == Database::Postgres, "one process owns an SQLite: {}", ended.errors);
    }
}

#[test]
fn a_postgres_that_may_lose_commits_is_refused() {
    for (setting, sentence) in [
        ("fsync", "fsync is `off`, but without it a power cut destroys the database."),
        ("full_page_writes", "full_page_writes is `off`, but without it a power cut can leave half-written pages."),
    ] {
        let postgres = PrivatePostgres::start(&[&format!("{setting}=off")]);
        let ended = setup(Database::Sqlite).store(&postgres.database()).start_in_vain();
        assert_eq!(ended.code, 1, "{}", ended.errors);
        assert!(ended.errors.contains(&format!("error: {sentence} Set it to `on`")), "{}", ended.errors);
    }
}

#[test]
fn a_postgres_that_is_not_there_is_named_without_its_password() {
    let ended = setup(Database::Sqlite).store("postgres://app:canary@127.0.0.1:1/events").start_in_vain();
    assert_eq!(ended.code, 5, "{}", ended.errors);
    let sentence = "error: cannot reach the Postgres database `events` at 127.0.0.1:1: ";
    assert!(ended.errors.contains(sentence) && !ended.errors.contains("canary"), "{}", ended.errors);
    assert!(ended.errors.contains("Connection refused"), "{}", ended.errors);
}

#[test]
fn a_password_that_is_not_percent_encoded_is_refused_and_not_shown() {
    let ended = setup(Database::Sqlite).store("postgres://app:p@ss/canary@127.0.0.1:1/events").start_in_vain();
    assert_eq!(ended.code, 2, "{}", ended.errors);
    assert!(ended.errors.contains("`@` as `%40`") && !ended.errors.contains("canary"), "{}", ended.errors);
}

#[test]
fn a_postgres_that_does_not_let_us_in_says_why() {
    let postgres = PrivatePostgres::start(&[]);
    let url = postgres.database();
    let missing = setup(Database::Sqlite).store(&format!("{}/nowhere", postgres.url())).start_in_vain();
    assert!(missing.errors.ends_with("database \"nowhere\" does not exist\n"), "{}", missing.errors);

    assert_eq!(setup(Database::Sqlite).store(&url).command(&["migrate"]).code, 0);
    postgres.sql("CREATE ROLE stranger LOGIN");
    let strangers = url.replacen("postgres@", "stranger@", 1);
    assert_ne!(strangers, url);
    let refused = setup(Database::Sqlite).store(&strangers).start_in_vain();
    assert_eq!(refused.code, 5, "{}", refused.errors);
    assert!(refused.errors.contains("permission denied for table _sqlx_migrations. Grant"), "{}", refused.errors);
}

#[test]
fn a_file_that_is_no_database_is_named() {
    let setup = setup(Database::Sqlite);
    setup.write_private("hookfast.db", &"garbage ".repeat(2000));
    for ended in [setup.start_in_vain(), setup.command(&["events", "list"])] {
        assert_eq!(ended.code, 1, "{}", ended.errors);
        assert!(ended.errors.contains("is damaged, or is no SQLite database"), "{}", ended.errors);
        assert!(ended.errors.contains("Restore a backup"), "{}", ended.errors);
    }
}

#[test]
fn a_damaged_database_is_not_said_to_lack_migrations() {
    let mut gateway = setup(Database::Sqlite).start();
    gateway.signal(Signal::Term);
    assert!(gateway.wait().success());
    let file = gateway.folder().join("hookfast.db");
    let mut bytes = fs::read(&file).unwrap();
    bytes[8192..].fill(0xff);
    fs::write(&file, bytes).unwrap();
    let ended = gateway.command(&["events", "list"]);
    assert_eq!(ended.code, 1, "{}", ended.errors);
    assert!(ended.errors.contains("is damaged") && !ended.errors.contains("lacks"), "{}", ended.errors);
}

#[test]
fn another_programs_database_is_left_alone() {
    let setup = setup(Database::Sqlite);
    setup.write_private("hookfast.db", "");
    let url = format!("sqlite:{}", setup.folder().join("hookfast.db").display());
    query(&url, "CREATE TABLE users (id INTEGER)");
    for ended in [setup.start_in_vain(), setup.command(&["events", "list"])] {
        assert_eq!(ended.code, 1, "{}", ended.errors);
        assert!(ended.errors.contains("another program's database, with a table `users`"), "{}", ended.errors);
    }
    assert_eq!(query(&url, "SELECT name FROM sqlite_schema"), [["users"]]);

    let postgres = fresh_database();
    query(&postgres, "CREATE TABLE events (id INTEGER)");
    let ended = crate::setup(Database::Sqlite).store(&postgres).start_in_vain();
    assert!(ended.errors.contains("another program's database, with a table `events`"), "{}", ended.errors);
}

#[test]
fn a_folder_that_is_missing_is_said_to_be() {
    for command in [&["serve"][..], &["migrate"]] {
        let ended = setup(Database::Sqlite).store("sqlite:no/such/hookfast.db").command(command);
        assert_eq!(ended.code, 1, "{}", ended.errors);
        assert!(ended.errors.contains("Make the folder no/such first"), "{}", ended.errors);
    }
}

fn an_older_gateway_starts_beside_a_newer_schema_unless_that_takes_something_away(database: Database) {
    let mut gateway = setup(database).start();
    let checksum = if matches!(database, Database::Sqlite) { "x'00'" } else { "'\\x00'" };
    gateway.sql(&format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9001, 'more room', true, {checksum}, 0)"
    ));
    gateway.signal(Signal::Term);
    gateway.wait();
    let mut gateway = gateway.restart();
    assert!(gateway.log().contains("has migrations of a newer hookfast: [9001]"), "{}", gateway.log());
    assert_eq!(gateway.command(&["events", "list"]).code, 0);
    gateway.sql("UPDATE _sqlx_migrations SET description = 'contract old states' WHERE version = 9001");
    gateway.signal(Signal::Term);
    gateway.wait();
    let ended = gateway.command(&["events", "list"]);
    assert_eq!(ended.code, 1, "{}", ended.errors);
    assert!(ended.errors.contains("migration 9001 (contract old states)"), "{}", ended.errors);
}

on_both! {
    an_older_gateway_starts_beside_a_newer_schema_unless_that_takes_something_away
}

#[test]
fn a_second_gateway_on_one_sqlite_file_is_refused_and_commands_are_not() {
    let mut gateway = setup(Database::Sqlite).start();
    let lock = gateway.folder().join("hookfast.db.lock");
    assert_eq!(lock.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let url = gateway.store_url().to_owned();
    let second = || setup(Database::Sqlite).store(&url).start_in_vain();
    let refused = second();
    assert_eq!(refused.code, 1, "{}", refused.errors);
    let sentence = format!("another process is using it, which holds {}. SQLite is for one gateway", lock.display());
    assert!(refused.errors.contains(&sentence), "{}", refused.errors);
    for arguments in [&["events", "list"][..], &["dead-letters", "list"], &["migrate"]] {
        assert_eq!(gateway.command(arguments).code, 0, "{arguments:?}");
    }
    gateway.signal(Signal::Kill);
    gateway.wait();

    let elsewhere = gateway.folder().join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    fs::remove_file(&lock).unwrap();
    symlink(&elsewhere, &lock).unwrap();
    assert!(second().errors.contains("cannot be created"), "a link may be another user's");
    fs::remove_file(&lock).unwrap();
    let _gateway = gateway.restart();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
}

#[test]
fn a_signal_is_heard_while_the_start_waits_for_a_lock() {
    let url = fresh_database();
    let setup = setup(Database::Postgres).store(&url);
    assert_eq!(setup.command(&["migrate"]).code, 0);
    let _hold = Hold::with(&url, "BEGIN; LOCK TABLE _sqlx_migrations;");
    let log = setup.folder().join("log");
    let mut gateway = Command::new(BINARY)
        .args(["serve", "--migrate"])
        .current_dir(setup.folder())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    eventually("the log says what is waited for", || {
        fs::read_to_string(&log).unwrap().contains("still waiting for the store")
    });
    signal(&gateway, Signal::Term);
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
}

#[test]
fn a_port_in_use_is_said_with_the_key_to_change() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for section in ["ingest", "admin"] {
        let variable = format!("HOOKFAST_{}__LISTEN", section.to_uppercase());
        let ended = setup(Database::Sqlite).variable(&variable, &address).start_in_vain();
        assert_eq!(ended.code, 1, "{}", ended.errors);
        let sentence = format!("error: cannot listen on {address}: ");
        let remedy = format!("Choose another address with `listen` in `[{section}]`\n");
        assert!(ended.errors.contains(&sentence) && ended.errors.ends_with(&remedy), "{}", ended.errors);
    }
}

#[test]
fn a_wrong_configuration_is_refused_with_all_its_problems() {
    let setup = setup(Database::Sqlite).ingest("queue_requests = 0").source("tolerance = 1");
    for ended in [setup.start_in_vain(), setup.command(&["config", "check"]), setup.command(&["events", "list"])] {
        assert_eq!((ended.code, ended.output.as_str()), (2, ""));
        let lines: Vec<_> = ended.errors.lines().collect();
        assert_eq!(lines[0], "error: the configuration has 2 problems:");
        assert_eq!(lines[1], "  hookfast.toml:3: `ingest.queue_requests`: write a number from 1 on");
        assert!(lines[2].starts_with("  hookfast.toml:12: `sources.stripe.tolerance`: there is no such key;"));
    }
    assert!(!setup.folder().join("hookfast.db").exists(), "nothing was begun");
}

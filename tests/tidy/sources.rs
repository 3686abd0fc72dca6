//! What no file of code or SQL may do.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{files, read};

#[test]
fn migrations_have_the_same_numbers_and_names_on_both_databases() {
    let names = |folder: &str| -> BTreeSet<String> {
        let ours = files(".sql").into_iter().filter(|path| path.starts_with(Path::new("migrations").join(folder)));
        ours.map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
    };
    assert!(!names("sqlite").is_empty());
    assert_eq!(names("sqlite"), names("postgres"));
    let numbers: BTreeSet<_> = names("sqlite").iter().map(|name| name[..4].parse::<u32>().unwrap()).collect();
    assert!(numbers.iter().copied().eq(1..=names("sqlite").len() as u32), "numbers have no gap: {numbers:?}");
}

/// sqlx takes only text that is known when the program is built, unless a call swears that other text is safe. One place does,
/// for many statements in one round trip; it quotes every value, and has tests for that.
#[test]
fn no_sql_is_put_together_while_running() {
    // In two parts, or this file would be found.
    let oath = ["AssertSql", "Safe"].concat();
    let swearing: Vec<_> = files(".rs").into_iter().filter(|path| read(path).contains(&oath)).collect();
    assert_eq!(swearing, [Path::new("crates/store/src/postgres/writes.rs")]);
}

/// What `--json` prints has a type, and its fields are fixed by it: most stand in `hookfast_admin::view`.
#[test]
fn no_json_is_put_together_by_hand_in_a_command() {
    let commands = ["commands", "simulate", "verify"].map(|name| Path::new("crates/gateway/src").join(name));
    let by_hand = |path: &&std::path::PathBuf| read(path).contains("json!");
    let of_commands = files(".rs").into_iter().filter(|path| commands.iter().any(|folder| path.starts_with(folder)));
    let of_commands: Vec<_> = of_commands.collect();
    assert!(!of_commands.is_empty());
    let wrong: Vec<_> = of_commands.iter().filter(by_hand).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

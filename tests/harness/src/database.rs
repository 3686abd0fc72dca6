//! What a test does to a database behind the gateway's back, through the databases' own command-line programs.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::Ended;
use crate::postgres::program;

/// Runs SQL.
pub(crate) fn run(url: &str, statements: &str) {
    let mut command = shell(url);
    let ended = Ended::of(command.arg(if is_sqlite(url) { "-cmd" } else { "--command" }).arg(statements));
    assert!(ended.code == 0, "{statements}: {}", ended.errors);
}

/// The rows of a query, each with its columns as text.
pub fn query(url: &str, statement: &str) -> Vec<Vec<String>> {
    const BETWEEN: char = '\u{1f}';
    let mut command = shell(url);
    if is_sqlite(url) {
        command.args(["-separator", "\u{1f}"]).arg(statement);
    } else {
        command.args(["--no-align", "--tuples-only", "--field-separator", "\u{1f}", "--command", statement]);
    }
    let ended = Ended::of(&mut command);
    assert!(ended.code == 0, "{statement}: {}", ended.errors);
    ended.output.lines().map(|line| line.split(BETWEEN).map(str::to_owned).collect()).collect()
}

/// A session that keeps all others from writing, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    session: Child,
}

impl Hold {
    pub(crate) fn on(url: &str) -> Self {
        let hold = if is_sqlite(url) { ".timeout 10000\nBEGIN IMMEDIATE;" } else { "BEGIN;\nLOCK TABLE dedupe_keys;" };
        Self::with(url, hold)
    }

    /// A session that has run these statements and keeps what they locked.
    pub fn with(url: &str, statements: &str) -> Self {
        let mut session = shell(url).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let hold = format!("{statements}\n{} held\n", if is_sqlite(url) { ".print" } else { "\\echo" });
        session.stdin.as_mut().expect("piped").write_all(hold.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(session.stdout.as_mut().expect("piped")).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self { session }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The end of its input ends the session, and that the transaction.
        drop(self.session.stdin.take());
        let _ = self.session.wait();
    }
}

fn is_sqlite(url: &str) -> bool {
    url.starts_with("sqlite:")
}

fn shell(url: &str) -> Command {
    match url.strip_prefix("sqlite:") {
        Some(path) => {
            let mut command = Command::new("sqlite3");
            command.args(["-batch", "-bail", "-cmd", ".timeout 10000"]).arg(path);
            command
        }
        None => {
            let mut command = Command::new(program("psql"));
            command.args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", url]);
            command
        }
    }
}

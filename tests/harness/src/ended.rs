//! A command that has run to its end.

use std::path::Path;
use std::process::Command;

/// How a command ended and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// What it printed.
    pub output: String,
    /// What it said on the standard error, log included.
    pub errors: String,
}

impl Ended {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Self {
        let output = command.output().expect("the command starts");
        Self {
            code: output.status.code().expect("it was not ended by a signal"),
            output: String::from_utf8(output.stdout).expect("text"),
            errors: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// What it printed, as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("not JSON: {error}: {self:?}"))
    }
}

/// The command, to be run in `folder`.
pub fn hookfast(binary: &str, folder: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(folder);
    command
}

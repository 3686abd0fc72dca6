//! Signals by process id, never by name.

use std::process::{Child, Command};

/// A signal.
#[derive(Debug, Clone, Copy)]
pub enum Signal {
    /// Ask to end.
    Term,
    /// Ctrl-C.
    Interrupt,
    /// End at once.
    Kill,
    /// Stand still.
    Stop,
    /// Go on.
    Continue,
}

/// Sends a signal to a process that we started.
pub fn signal(child: &Child, signal: Signal) {
    let name = match signal {
        Signal::Term => "-TERM",
        Signal::Interrupt => "-INT",
        Signal::Kill => "-KILL",
        Signal::Stop => "-STOP",
        Signal::Continue => "-CONT",
    };
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("`kill` runs");
    assert!(status.success(), "kill {name} {}", child.id());
}

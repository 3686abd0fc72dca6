//! Signals by process id, never by name.

use std::fs;
use std::process::{Child, Command, Stdio};

/// A signal.
#[derive(Debug, Clone, Copy)]
pub enum Signal {
    /// Ask to end.
    Term,
    /// Ctrl-C.
    Interrupt,
    /// End at once.
    Kill,
    /// Read the configuration again.
    Hangup,
    /// Stand still.
    Stop,
    /// Go on.
    Continue,
}

/// Sends a signal to a process that we started.
pub fn signal(child: &Child, signal: Signal) {
    assert!(try_signal(child.id(), signal), "{signal:?} could not be sent to {}", child.id());
}

/// Sends a signal, and says whether the process was still there.
pub(crate) fn try_signal(pid: u32, signal: Signal) -> bool {
    let name = match signal {
        Signal::Term => "-TERM",
        Signal::Interrupt => "-INT",
        Signal::Kill => "-KILL",
        Signal::Hangup => "-HUP",
        Signal::Stop => "-STOP",
        Signal::Continue => "-CONT",
    };
    Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status().expect("`kill` runs").success()
}

/// The processes that a process of ours has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().map(|child| child.parse().expect("a process id")).collect()
}

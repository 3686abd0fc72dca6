//! Signals by process id, never by name.

use std::fs;
use std::process::{Child, Command, Stdio};

/// A signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Ask to end.
    Term,
    /// Ctrl-C.
    Interrupt,
    /// End at once.
    Kill,
    /// Crash, with a core file where that is allowed.
    Abort,
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
        Signal::Abort => "-ABRT",
        Signal::Hangup => "-HUP",
        Signal::Stop => "-STOP",
        Signal::Continue => "-CONT",
    };
    let kill = Command::new("kill").args([name, &pid.to_string()]).stderr(Stdio::null()).status();
    let was_there = kill.expect("`kill` runs").success();
    if was_there && signal == Signal::Stop {
        crate::eventually("it stands still", || stands_still(pid));
    }
    was_there
}

/// Whether all threads of a process have been reached by the signal; until then they go on.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name in brackets may hold anything; the state is the first field after it.
        stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with(['T', 't', 'Z', 'X']))
    })
}

/// The processes that a process of ours has started.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().map(|child| child.parse().expect("a process id")).collect()
}

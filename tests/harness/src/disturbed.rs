//! System calls that fail or take long, in processes that run already.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::{Signal, eventually, signal};

/// Processes whose flushes are disturbed, until this is dropped. What they start is disturbed, too.
#[derive(Debug)]
pub struct Disturbed {
    strace: Child,
}

impl Disturbed {
    /// `how` is in strace's words: `error=EIO:when=3` is the third flush of each thread, counted from now.
    pub fn flushes_of(processes: &[u32], how: &str) -> Self {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync"]);
        strace.args(["-e", &format!("inject=fsync,fdatasync:{how}")]);
        strace.args(processes.iter().flat_map(|process| ["-p".into(), process.to_string()]));
        // It has something to say about processes that end while it comes to them.
        let strace = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace can be run");
        let disturbed = Self { strace };
        eventually("strace is at work", || processes.iter().all(|process| is_traced(*process)));
        disturbed
    }
}

/// All threads are, or have ended.
fn is_traced(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        fs::read_to_string(thread.path().join("status")).map_or(true, |status| !status.contains("TracerPid:\t0\n"))
    })
}

impl Drop for Disturbed {
    fn drop(&mut self) {
        // It lets go of all processes. If they have all ended, so has it.
        signal(&self.strace, Signal::Term);
        let _ = self.strace.wait();
    }
}

//! A crash leaves no core file: that holds the memory of the process, and with it every secret and body.

use rlimit::Resource;

/// The size of a core file that means none at all. With 0, the kernel would still hand the memory to a program, where one is
/// set up to take core files.
const NONE: u64 = 1;

/// Takes away the leave to write core files. The hard limit stays, so that an operator can give it back to a process that
/// runs: `prlimit --core=unlimited --pid PID`.
pub(crate) fn forbid() {
    let Ok((_, hard)) = Resource::CORE.get() else { return };
    // One that is below already cannot be raised, and need not be.
    let _ = Resource::CORE.set(NONE.min(hard), hard);
}

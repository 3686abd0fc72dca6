//! A file belongs to one process: a lock beside it says so.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::open::how_to_create;
use crate::OpenError;

/// Words for people about a file that is locked.
pub(super) struct Words {
    /// What the file is, such as "the spool".
    pub(super) what: &'static str,
    /// What to do when another process has it.
    pub(super) taken: &'static str,
    /// What to do when there can be no lock.
    pub(super) impossible: &'static str,
}

/// Locks a file, until what is given back is dropped. The lock stands in a file of its own, because SQLite loses its locks when
/// anything in the process closes the database file.
pub(super) fn lock(path: &Path, words: &Words) -> Result<File, OpenError> {
    let beside = PathBuf::from(format!("{}.lock", path.display()));
    let refuse = |problem: String| OpenError::File(format!("{} {}: {problem}", words.what, path.display()));
    let mut options = OpenOptions::new();
    // Another user's link could lead to any file of ours.
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(&beside).map_err(|error| {
        let remedy = how_to_create(&beside, &error);
        refuse(format!("{} cannot be created: {error}. {remedy}{}", beside.display(), words.impossible))
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(refuse(format!("another process is using it, which holds {}. {}", beside.display(), words.taken)))
        }
        Err(TryLockError::Error(error)) => Err(refuse(format!("{} cannot be locked: {error}", beside.display()))),
    }
}

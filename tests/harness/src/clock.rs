//! A clock that is wrong, for processes that are started with it.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// A clock that can be set while it is in use.
#[derive(Debug)]
pub struct WrongClock {
    folder: TempDir,
}

impl WrongClock {
    /// A clock that is wrong by this many seconds.
    pub fn new(seconds: i64) -> Self {
        let clock = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        clock.set(seconds);
        clock
    }

    /// Makes it wrong by this many seconds; every process notices within a second.
    pub fn set(&self, seconds: i64) {
        // Renamed into its place: a file that is half written would be no time at all.
        let next = self.folder.path().join("next");
        fs::write(&next, format!("{seconds:+}\n")).unwrap();
        fs::rename(next, self.file()).unwrap();
    }

    /// The variables that make a program use it. Time that is only measured and not told goes on as it does.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            // `$LIB` is for the dynamic linker, which knows what it is called here.
            ("LD_PRELOAD", "/usr/$LIB/faketime/libfaketime.so.1".into()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_CACHE_DURATION", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }
}

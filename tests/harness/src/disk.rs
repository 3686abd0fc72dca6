//! A disk of our own, whose power can be cut: ext4 in a file, mounted through a loop device.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{Ended, eventually};

/// Waits for the end of its input and then tells ext4 to stop at once and flush nothing.
const SWITCH: &str = "import fcntl, os, struct, sys\n\
    sys.stdin.read()\n\
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// A mounted disk; it is gone when dropped.
#[derive(Debug)]
pub struct Disk {
    folder: TempDir,
    /// A process that waits for the order to cut, so that a cut takes no time.
    switch: Option<Child>,
}

impl Disk {
    /// A disk of this size with nothing on it.
    pub fn new(megabytes: u64) -> Self {
        let folder = tempfile::Builder::new().prefix("hookfast-disk-").tempdir().expect("a temporary folder");
        // A server on it may run as another user than the test.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut disk = Self { folder, switch: None };
        fs::create_dir(disk.path()).unwrap();
        fs::File::create(disk.image()).unwrap().set_len(megabytes << 20).unwrap();
        // Without room kept for root: a full disk is then full for every user.
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(disk.image()));
        disk.mount();
        disk
    }

    /// The folder that is on this disk.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Cuts the power: what was not flushed is lost, and processes that still run get errors.
    pub fn cut_power(&mut self) {
        let mut switch = self.switch.take().expect("the power is on");
        drop(switch.stdin.take());
        assert!(switch.wait().unwrap().success(), "the power could not be cut");
    }

    /// Switches the power on again. Processes that used the disk must have ended.
    pub fn power_on(&mut self) {
        eventually("nobody uses the disk", || Ended::of(Command::new("umount").arg(self.path())).code == 0);
        // The kernel lets go of the file a little later; mounted through two devices it would be damaged.
        eventually("the loop device is free", || {
            run(Command::new("losetup").arg("--associated").arg(self.image())).is_empty()
        });
        self.mount();
    }

    /// Flushes everything, for what was prepared without flushing.
    pub fn flush(&self) {
        run(Command::new("sync").arg("--file-system").arg(self.path()));
    }

    /// Takes all the room that is left.
    pub fn fill(&self) {
        let mut ballast = fs::File::create(self.ballast()).unwrap();
        for chunk in [1 << 20, 1 << 12, 1] {
            while ballast.write_all(&vec![b'x'; chunk]).is_ok() {}
        }
        self.flush();
    }

    /// Gives it back.
    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    fn mount(&mut self) {
        let ended = Ended::of(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.path()));
        assert!(
            ended.code == 0,
            "a disk whose power can be cut needs root, the right to mount and a free /dev/loop device: {}",
            ended.errors
        );
        let mut switch = Command::new("python3");
        switch.args(["-c", SWITCH]).arg(self.path()).stdin(Stdio::piped());
        self.switch = Some(switch.spawn().expect("python3 can be run"));
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(mut switch) = self.switch.take() {
            drop(switch.stdin.take());
            let _ = switch.wait();
        }
        // Lazily: after a panic a process may still have a file open.
        let _ = Command::new("umount").args(["--quiet", "--lazy"]).arg(self.path()).output();
    }
}

/// Runs a command that must succeed, and gives what it printed.
fn run(command: &mut Command) -> String {
    let ended = Ended::of(command);
    assert!(ended.code == 0, "{command:?}: {}", ended.errors);
    ended.output
}

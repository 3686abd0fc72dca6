//! Files that hold payloads or secrets. The gateway uses one only if no other user could have written it.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

/// The rights of all users, in the mode of a file. The group may have access: Kubernetes gives it to the group of a volume
/// (`fsGroup`).
const OF_ALL_USERS: u32 = 0o007;

/// Says why the gateway must not keep its data in this file: it is a link, another user owns it, or all users have access to it.
/// `None` if it is private, or missing.
pub fn problem_of_private_file(path: &Path) -> Option<String> {
    problem(path, |file| file.uid() != geteuid().as_raw())
}

/// The same for a command that only asks: root may look into the file of a gateway that runs as another user.
pub(crate) fn problem_of_file_of_gateway(path: &Path) -> Option<String> {
    problem(path, |file| !geteuid().is_root() && file.uid() != geteuid().as_raw())
}

fn problem(path: &Path, is_foreign: impl Fn(&Metadata) -> bool) -> Option<String> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(error.to_string()),
    };
    let (path, us, owner, mode) = (path.display(), geteuid().as_raw(), file.uid(), file.mode() & 0o777);
    if file.is_symlink() {
        Some("it is a symbolic link, which another user could have made. Name the file itself".into())
    } else if !file.is_file() {
        Some("it is not a file".into())
    } else if is_foreign(&file) {
        Some(format!(
            "it belongs to user {owner}, and this is user {us}. Run hookfast as user {owner}; or, if no other program uses \
             the file and you trust what is in it: chown {us} {path}"
        ))
    } else if mode & OF_ALL_USERS != 0 {
        Some(format!("every user of this machine has access to it (mode {mode:o}). If you trust it: chmod o= {path}"))
    } else {
        None
    }
}

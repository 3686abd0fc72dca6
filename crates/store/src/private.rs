//! Files that are for us alone.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

/// What others may do with a file, in its mode. The group may be there: Kubernetes lets it in when a volume has an `fsGroup`.
const OF_OTHERS: u32 = 0o007;

/// Says what is wrong with a file that should be ours: what somebody else can write is not what we wrote, and what all can read
/// is no secret. Nothing, if there is no such file.
pub fn problem_of_private_file(path: &Path) -> Option<String> {
    let found = fs::symlink_metadata(path).ok()?;
    let (path, us) = (path.display(), geteuid().as_raw());
    if found.is_symlink() {
        Some("it is a symbolic link, and whoever made it could be somebody else. Name the file itself".into())
    } else if !found.is_file() {
        Some("it is not a file".into())
    } else if found.uid() != us {
        let owner = found.uid();
        Some(format!(
            "it belongs to user {owner}, and this is user {us}. If you trust what is in it: chown {us} {path}"
        ))
    } else if found.mode() & OF_OTHERS != 0 {
        let mode = found.mode() & 0o777;
        Some(format!("every user of this machine has access to it (mode {mode:o}). If you trust it: chmod o= {path}"))
    } else {
        None
    }
}

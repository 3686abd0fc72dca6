//! What the tree says about itself must be true.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod arrows;
mod dependencies;
mod documents;
mod faults;
mod manifests;
mod scripts;
mod sizes;
mod sources;
mod spine;
mod syntax;
mod threat_model;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// The top of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files of ours whose names end so, by path from the top.
fn files(ending: &str) -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.is_file() && name.ends_with(ending) {
                found.push(path.strip_prefix(&root).unwrap().to_owned());
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "there are files that end with {ending}");
    found
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

//! The keys of `[store]` about the spool, in which events wait while Postgres is away.

use std::path::PathBuf;
use std::time::Duration;

use hookfast_store::SpoolConfig;
use toml::Value;

use super::section::Section;
use super::{SpoolSettings, parse};

pub(super) fn read(section: &mut Section<'_>) -> Option<SpoolSettings> {
    let path = section.value("spool", spool_path, Some("hookfast-spool.db".into()));
    let max_bytes = section.value("spool_max", spool_max, 1 << 30);
    let after = section.value("spool_after", parse::duration, Duration::from_millis(150));
    Some(SpoolSettings { file: SpoolConfig { path: path?, max_bytes }, after })
}

/// The path of a file, or `false`.
fn spool_path(value: &Value) -> Result<Option<PathBuf>, String> {
    match value {
        Value::Boolean(false) => Ok(None),
        Value::String(path) if !path.is_empty() => Ok(Some(path.into())),
        _ => Err("write the path of a file in quotes, or false for none".into()),
    }
}

/// Less would hold its tables and hardly an event.
fn spool_max(value: &Value) -> Result<u64, String> {
    let size = parse::size(value)?;
    if size >= 1 << 20 { Ok(size) } else { Err("write a size of at least \"1MiB\"".into()) }
}

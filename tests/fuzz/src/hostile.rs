//! stub
use crate::HostileArguments;
pub(crate) fn run(_a: &HostileArguments) -> anyhow::Result<bool> { Ok(true) }

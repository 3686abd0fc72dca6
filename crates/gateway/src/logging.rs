//! Logs go to the standard error: for people on a terminal, as JSON otherwise.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::cli::{LogArguments, LogFormat};

/// Starts logging. A person who watches sees every webhook; a machine gets what needs attention.
pub(crate) fn start(arguments: &LogArguments) {
    let terminal = io::stderr().is_terminal();
    // The NATS client tells of every attempt to connect; that the queue is away is said once, by us.
    let default = if terminal { "info,async_nats=error,hookfast_ingest=debug" } else { "info,async_nats=error" };
    let wanted = arguments.filter.as_deref().unwrap_or(default);
    let (filter, problem) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(default), Some(error)),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let json = match arguments.format {
        LogFormat::Auto => !terminal,
        LogFormat::Human => false,
        LogFormat::Json => true,
    };
    if json {
        lines.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
    } else {
        lines.with_ansi(terminal && std::env::var_os("NO_COLOR").is_none()).with_target(false).init();
    }
    if let Some(problem) = problem {
        tracing::warn!(%problem, "the log filter `{wanted}` cannot be read; using `{default}`");
    }
}

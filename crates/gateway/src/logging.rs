//! Logs go to the standard error: for people on a terminal, as JSON otherwise.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal};
use std::panic::{self, PanicHookInfo};

use tracing_subscriber::EnvFilter;

use crate::log_lines::{self, LineWriter};
use clap::{Args, ValueEnum};

/// Writes the rest of the log when it is dropped.
#[must_use]
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    /// What to log, such as `info` or `debug,hookfast_store=trace`
    #[arg(long = "log", global = true, env = "HOOKFAST_LOG", value_name = "FILTER")]
    pub(crate) filter: Option<String>,

    /// How to log
    #[arg(
        long = "log-format",
        global = true,
        env = "HOOKFAST_LOG_FORMAT",
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(crate) format: LogFormat,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Human on a terminal, JSON otherwise
    #[default]
    Auto,
    /// Lines for people
    Human,
    /// One JSON object a line
    Json,
}

pub(crate) struct FlushAtEnd;

impl Drop for FlushAtEnd {
    fn drop(&mut self) {
        log_lines::flush();
    }
}

/// Starts logging. A person who watches sees every webhook; a machine gets what needs attention.
pub(crate) fn start(arguments: &LogArguments) -> FlushAtEnd {
    log_lines::start().expect("a process that cannot start a thread cannot run");
    panic::set_hook(Box::new(log_panic));
    let terminal = io::stderr().is_terminal();
    // The NATS client tells of every attempt to connect; that the queue is away is said once, by us.
    let default = if terminal { "info,async_nats=error,hookfast_ingest=debug" } else { "info,async_nats=error" };
    let wanted = arguments.filter.as_deref().unwrap_or(default);
    let (filter, problem) = match EnvFilter::try_new(wanted) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(default), Some(error)),
    };
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| LineWriter).log_internal_errors(false);
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
    FlushAtEnd
}

/// Panics go the way of all lines: the usual hook would wait for a log that is not read.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let why = panic.payload_as_str().unwrap_or("without a message");
    let at = panic.location().map(ToString::to_string);
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    tracing::error!(thread = thread.name(), at, backtrace, "panicked: {}", why.escape_debug());
}

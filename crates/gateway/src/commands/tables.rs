//! What several commands print: jobs and events as tables, times, and lines that fit the terminal.

use std::env;
use std::io::{self, IsTerminal};

use hookfast_admin::view::AttemptView;
use hookfast_store::Found;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::printable::plain;

/// Jobs as a table; the sender of the event may have written its type and had a hand in the message.
pub(crate) fn print_dead_letters(found: &[Found]) {
    let head = ["ID", "HANDLER", "TYPE", "SOURCE", "REASON", "ATTEMPTS", "DIED", "MESSAGE"];
    print_row(head.map(str::to_owned));
    for found in found {
        print_row([
            found.event.to_string(),
            handler(found).to_owned(),
            plain(&found.event_type),
            found.source.clone(),
            found.reason.clone().unwrap_or_else(|| "-".into()),
            found.attempts.to_string(),
            found.finished_at.map_or("-".into(), to_the_second),
            plain(found.message.as_deref().unwrap_or("-")),
        ]);
    }
}

fn print_row([id, handler, event_type, source, reason, attempts, died, message]: [String; 8]) {
    let row = format!(
        "{id:36}  {handler:16}  {event_type:28}  {source:12}  {reason:12}  {attempts:>8}  {died:20}  {message}"
    );
    outln!("{}", cut_to_width(&row));
}

fn handler(found: &Found) -> &str {
    found.handler.as_ref().map_or("-", |handler| handler.as_str())
}

pub(crate) fn print_unhandled(found: &[Found]) {
    outln!("{:36}  {:20}  {:16}  TYPE", "ID", "RECEIVED", "SOURCE");
    for found in found {
        let Found { event, source, .. } = found;
        let received = to_the_second(found.received_at);
        outln!("{event}  {received:20}  {source:16}  {}", plain(&found.event_type));
    }
}

/// A run in one line. The sender of the event may have had a hand in the message.
pub(crate) fn attempt_line(attempt: &AttemptView) -> String {
    let AttemptView { number, started_at, duration_ms, failure, message, worker } = attempt;
    let outcome = match (failure, message) {
        (None, _) => "succeeded".into(),
        (Some(failure), None) => failure.clone(),
        (Some(failure), Some(message)) => format!("{failure}: {}", plain(message)),
    };
    let took = format!("{:.3} s", duration_ms / 1000.0);
    format!("#{number}  {}  {took:>9}  {}  {outcome}", to_the_second(*started_at), plain(worker))
}

/// As much of a line as the terminal shows.
pub(crate) fn cut_to_width(row: &str) -> String {
    cut(row, width())
}

/// How wide a line may be: as the shell says, or wide enough for the beginning of a message. A pipe has no width.
fn width() -> usize {
    const USUAL: usize = 220;
    if !io::stdout().is_terminal() {
        return usize::MAX;
    }
    env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(USUAL)
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.trim_end().into();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A read model as a line of JSON.
pub(crate) fn print_json(view: &impl Serialize) {
    match serde_json::to_string(view) {
        Ok(line) => outln!("{line}"),
        Err(error) => tracing::error!(%error, "this cannot be written as JSON"),
    }
}

pub(crate) fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

pub(crate) fn to_the_second(time: OffsetDateTime) -> String {
    rfc3339(time.replace_nanosecond(0).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        assert_eq!(cut("größer", 6), "größer");
        assert_eq!(cut("größer", 4), "grö…");
        assert_eq!(cut("short   ", 80), "short");
    }
}

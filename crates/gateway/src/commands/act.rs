//! What replay, resolve and move have in common: their flags, the question before many jobs, progress and interruption.

use std::io::{self, BufRead, IsTerminal};

use clap::{Args, ValueEnum};
use hookfast_admin::operate::{ActError, Count, Preview, Progress, Selection, how_many};
use hookfast_admin::view::{OutcomeView, PreviewView};
use hookfast_store::{Filter, Operate, Resolution, Which};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::tables::{print_dead_letters, print_json, print_unhandled};
use crate::exit::Exit;
use crate::log_lines;
use crate::printable::plain;

/// What every act on many jobs has.
#[derive(Debug, Default, Args)]
pub(crate) struct ActArguments {
    /// Stop after this many jobs
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Print how many jobs it would change, and some of them; change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,

    /// The name that the audit keeps [default: this user at this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResolveAs {
    /// The work is not needed
    Ignored,
    /// An operator did the work by hand
    ManualFix,
}

pub(crate) fn resolution(said: ResolveAs) -> Resolution {
    match said {
        ResolveAs::Ignored => Resolution::Ignored,
        ResolveAs::ManualFix => Resolution::ManualFix,
    }
}

/// From this many jobs on an act is confirmed, whatever was said about which.
pub(super) const MANY: u64 = 1000;

/// How many a dry run shows.
pub(crate) const SAMPLE: usize = 10;

pub(crate) fn progress_bar(length: Count, hidden: bool) -> ProgressBar {
    let target = if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let known = length.is_exact().then_some(length.at_least());
    let bar = ProgressBar::with_draw_target(known, target);
    let (with_end, without_end) = ("{bar:40} {pos} of {len}, {per_sec}, {eta} left", "{pos} so far, {per_sec}");
    match ProgressStyle::with_template(if known.is_some() { with_end } else { without_end }) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

pub(crate) fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_position(progress.found);
}

/// The first signal lets the step under way end; a second one does not wait.
pub(crate) fn stop_at_signal() -> Result<CancellationToken, Exit> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Exit::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Exit::failed)?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if stopping.is_cancelled() {
                log_lines::flush();
                std::process::exit(130);
            }
            stopping.cancel();
        }
    });
    Ok(stop)
}

/// What is done stays done, so the operator is told how to do the rest.
pub(crate) fn with_way_on(error: ActError, command: &str) -> Exit {
    let ActError::Broken { audit, source } = error else { return error.into() };
    let way_on = format!("`{command} {audit}` continues it");
    match Exit::from(source) {
        Exit::Unreachable(problem) => Exit::Unreachable(format!("{problem}. {way_on}")),
        Exit::Failed(problem) => Exit::Failed(format!("{problem}. {way_on}")),
        other => other,
    }
}

/// Says that there is nothing to do, and why that may be. An event that does not exist is a mistake.
pub(crate) async fn say_nothing_found(store: &dyn Operate, selection: &Selection, as_json: bool) -> Result<(), Exit> {
    for event in &selection.filter.events {
        if store.event(*event).await?.is_none() {
            return Err(Exit::NotFound(format!("there is no event {event}. `hookfast events list` shows the newest")));
        }
    }
    let finished = how_many(store, Which::Finished, &selection.filter, 0, 0).await?.at_least();
    if as_json {
        print_json(&OutcomeView::nothing_found());
        return Ok(());
    }
    outln!("Nothing to do: there are no {} like that.", words(selection.which));
    if !selection.filter.events.is_empty() && finished > 0 {
        let ids: Vec<_> = selection.filter.events.iter().map(ToString::to_string).collect();
        let ids = ids.join(" ");
        outln!("Finished jobs of these events: {finished}. To run them again: hookfast replay --finished {ids}");
    }
    Ok(())
}

pub(crate) fn jobs(count: u64) -> String {
    if count == 1 { "1 job".into() } else { format!("{count} jobs") }
}

fn words(which: Which) -> &'static str {
    match which {
        Which::DeadLetters => "dead letters",
        Which::Succeeded => "jobs that succeeded",
        Which::Finished => "finished jobs",
        Which::Unfinished => "unfinished jobs",
        Which::Unhandled => "events without a handler",
    }
}

/// Whether an act needs confirmation: it changes [`MANY`] jobs or more, several jobs without a filter, or several
/// unfinished jobs.
pub(super) fn is_sweeping(selection: &Selection, count: Count) -> bool {
    let said = Filter { as_of: None, ..selection.filter.clone() };
    let nothing_said = said == Filter::default() && selection.onto.is_none();
    let is_unfinished = selection.which == Which::Unfinished;
    count.at_least() >= MANY || (count.at_least() > 1 && (nothing_said || is_unfinished))
}

/// Asks before an act on much. Where there is no terminal to ask on, `--yes` must have been said.
pub(crate) fn confirm(selection: &Selection, count: Count, verb: &str, yes: bool) -> Result<(), Exit> {
    if yes || !is_sweeping(selection, count) {
        return Ok(());
    }
    let all = format!("{verb} {count} {}", words(selection.which));
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let problem = format!("this would {all}: add --yes if that is meant, or say which with a filter or --limit");
        return Err(Exit::usage("--yes", problem));
    }
    log_lines::add(&format!("This would {all}. Go on? [y/N] "));
    log_lines::flush();
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Exit::failed)?;
    if answer.trim().eq_ignore_ascii_case("y") { Ok(()) } else { Err(Exit::Failed("nothing was changed".into())) }
}

/// What an act would be about.
pub(crate) fn print_preview(seen: &Preview, selection: &Selection, as_json: bool) {
    if as_json {
        print_json(&PreviewView::from(seen));
        return;
    }
    let Preview { count, looked_at, skipped, by_handler, by_reason, by_type, sample } = seen;
    outln!("{count} {}; nothing was changed.", words(selection.which));
    if count.at_least() > *looked_at || !count.is_exact() {
        outln!("Of the first {looked_at}:");
    }
    if *skipped > 0 {
        outln!("{skipped} would be left out: no handler of this configuration subscribes to their events.");
    }
    for (name, tally) in [("by handler", by_handler), ("by reason", by_reason), ("by type", by_type)] {
        if !tally.is_empty() {
            let parts: Vec<_> = tally.iter().map(|(word, count)| format!("{count} x {}", plain(word))).collect();
            outln!("{name:10}  {}", parts.join(", "));
        }
    }
    if !sample.is_empty() {
        outln!("");
        let print = if selection.which == Which::Unhandled { print_unhandled } else { print_dead_letters };
        print(sample);
    }
}

//! `hookfast replay`

use std::io::{self, BufRead, IsTerminal};
use std::time::{Duration, Instant};

use hookfast_admin::operate::{
    ActError, BATCH_MAX, Count, Handlers, Outcome, Preview, Progress, Replay, Selection, how_many, preview, replay,
    resume, unfinished,
};
use hookfast_store::{Filter, Found, Store, Which};
use hookfast_webhook::{HandlerName, JobState};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::audit::who;
use crate::cli::ReplayArguments;
use crate::config::OperatorConfig;
use crate::dead_letters::print_table;
use crate::events::{found_json, open_existing, plain, print_unhandled};
use crate::exit::Exit;
use crate::known::refuse_unknown;
use crate::log_lines;

/// How an interrupted replay goes on.
const RESUME: &str = "hookfast replay --resume";

/// How many a dry run shows.
pub(crate) const SAMPLE: usize = 10;

pub(crate) async fn run(config: OperatorConfig, arguments: ReplayArguments) -> Result<(), Exit> {
    let handlers = &config.handlers;
    check_handler(arguments.handler.as_ref(), handlers)?;
    let store = open_existing(&config).await?;
    let outcome = match arguments.resume {
        Some(audit) => Some(go_on(&*store, audit, &arguments, handlers).await?),
        None => begin(&*store, &config, &arguments).await?,
    };
    store.close().await;
    outcome.map_or(Ok(()), |outcome| report(&outcome, arguments.act.json))
}

/// A name that was mistyped would otherwise look like a handler without dead letters.
fn check_handler(name: Option<&HandlerName>, handlers: &Handlers) -> Result<(), Exit> {
    let Some(name) = name.filter(|name| !handlers.has(name)) else { return Ok(()) };
    let known: Vec<_> = handlers.names().map(HandlerName::as_str).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Err(Exit::usage("--handler", format!("there is no handler `{name}`; there is: {known}")))
}

fn selection(arguments: &ReplayArguments) -> Selection {
    let ReplayArguments { handler, from_handler, .. } = arguments;
    let which = match (arguments.succeeded, arguments.unhandled, arguments.finished) {
        (true, ..) => Which::Succeeded,
        (_, true, _) => Which::Unhandled,
        (.., true) => Which::Finished,
        _ => Which::DeadLetters,
    };
    let (of, onto) = match from_handler {
        _ if arguments.unhandled => (None, handler.clone()),
        Some(other) => (Some(other.as_str()), handler.clone()),
        None => (handler.as_ref().map(HandlerName::as_str), None),
    };
    Selection { which, filter: arguments.filter.filter(&arguments.events, of), onto, limit: arguments.act.limit }
}

/// Begins a replay, if there is something to replay and it is really wanted.
async fn begin(
    store: &dyn Store,
    config: &OperatorConfig,
    arguments: &ReplayArguments,
) -> Result<Option<Outcome>, Exit> {
    let (act, handlers) = (&arguments.act, &config.handlers);
    let selection = selection(arguments).as_of_now(store).await?;
    if let Some(onto) = &selection.onto {
        handlers.check_target(onto)?;
    }
    let wants = |found: &_| handlers.want(selection.onto.as_ref(), found);
    let seen = preview(store, &selection, wants, SAMPLE).await?;
    if seen.looked_at == 0 {
        let flag = if arguments.from_handler.is_some() { "--from-handler" } else { "--handler" };
        refuse_unknown(store, config, &selection.filter, flag).await?;
    }
    if act.dry_run {
        print_preview(&seen, &selection, act.json);
        return Ok(None);
    }
    if seen.looked_at == 0 {
        return say_nothing_found(store, &selection, act.json).await.map(|()| None);
    }
    confirm(&selection, seen.count, "replay", act.yes)?;
    let order = Replay {
        selection,
        who: who(act.who.as_deref()),
        why: arguments.why.clone(),
        force_effects: arguments.force_effects,
        rate: arguments.rate,
        batch: BATCH_MAX,
    };
    let bar = progress_bar(seen.count, act.json);
    let stop = stop_at_signal()?;
    let outcome = replay(store, &order, handlers, |progress| show(&bar, progress), &stop).await;
    bar.finish_and_clear();
    let outcome = outcome.map_err(|error| with_way_on(error, RESUME))?;
    if outcome.progress.changed > 0 && !act.json {
        warn_if_nothing_begins(store, &order.selection, &seen.sample).await?;
    }
    Ok(Some(outcome))
}

/// How long to wait for the first of them to begin: the sweeper looks every second.
const BEGINS_WITHIN: Duration = Duration::from_secs(5);

/// A replay makes jobs due and runs none of them. Where no worker runs, that looks like success.
async fn warn_if_nothing_begins(store: &dyn Store, selection: &Selection, sample: &[Found]) -> Result<(), Exit> {
    let end = Instant::now() + BEGINS_WITHIN;
    while Instant::now() < end {
        for found in sample {
            let Some(handler) = selection.onto.as_ref().or(found.handler.as_ref()) else { continue };
            let jobs = store.jobs_of(found.event).await?;
            if jobs.iter().any(|job| job.handler == handler.as_str() && job.state != JobState::Pending) {
                return Ok(());
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
    errln!(
        "warning: none of the first jobs has begun after {} s. Does a worker run (`hookfast serve` or `hookfast work`), and is \
         the handler not paused? The jobs wait until then.",
        BEGINS_WITHIN.as_secs()
    );
    Ok(())
}

async fn go_on(
    store: &dyn Store,
    audit: Uuid,
    arguments: &ReplayArguments,
    handlers: &Handlers,
) -> Result<Outcome, Exit> {
    let (_, order) = unfinished(store, audit).await?;
    let left = how_many(store, order.selection.which, &order.selection.filter, 0, 0).await?;
    let bar = progress_bar(left, arguments.act.json);
    let stop = stop_at_signal()?;
    let outcome = resume(store, audit, arguments.rate, handlers, |progress| show(&bar, progress), &stop).await;
    bar.finish_and_clear();
    outcome.map_err(|error| with_way_on(error, RESUME))
}

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
    let way_on = format!("`{command} {audit}` goes on where it ended");
    match Exit::from(source) {
        Exit::Unreachable(problem) => Exit::Unreachable(format!("{problem}. {way_on}")),
        Exit::Failed(problem) => Exit::Failed(format!("{problem}. {way_on}")),
        other => other,
    }
}

fn report(outcome: &Outcome, as_json: bool) -> Result<(), Exit> {
    let Outcome { audit, progress: Progress { found, changed, skipped }, is_done } = *outcome;
    if as_json {
        let audit = audit.to_string();
        outln!("{}", json!({"audit": audit, "found": found, "replayed": changed, "skipped": skipped, "done": is_done}));
    }
    if !is_done {
        let way_on = format!("`{RESUME} {audit}` goes on where it ended");
        return Err(Exit::Interrupted(format!("interrupted after {}. {way_on}", jobs(changed))));
    }
    if !as_json {
        outln!("Replayed {}. Noted in the audit as {audit}.", jobs(changed));
        if skipped > 0 {
            outln!("{skipped} were left out: no handler of this configuration wants them.");
        }
        let same = found.saturating_sub(changed + skipped);
        if same > 0 {
            outln!("{same} needed nothing: they are under way, or their event has such a job already.");
        }
    }
    Ok(())
}

/// Says that there is nothing to do, and why that may be. An event that does not exist is a mistake.
pub(crate) async fn say_nothing_found(store: &dyn Store, selection: &Selection, as_json: bool) -> Result<(), Exit> {
    for event in &selection.filter.events {
        if store.event(*event).await?.is_none() {
            return Err(Exit::NotFound(format!("there is no event {event}. `hookfast events list` shows the newest")));
        }
    }
    let finished = how_many(store, Which::Finished, &selection.filter, 0, 0).await?.at_least();
    store.close().await;
    if as_json {
        outln!("{}", json!({"found": 0}));
        return Ok(());
    }
    outln!("Nothing to do: there are no {} like that.", words(selection.which));
    if !selection.filter.events.is_empty() && finished > 0 {
        let (jobs, ids) = (jobs(finished), &selection.filter.events);
        let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
        let ids = ids.join(" ");
        outln!("But {jobs} succeeded, died or came to rest. To run them again: hookfast replay --finished {ids}");
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

/// From this many jobs on an act is confirmed, whatever was said about which.
const MANY: u64 = 1000;

/// Whether it is about several and nothing was said about which, or about many.
fn is_sweeping(selection: &Selection, count: Count) -> bool {
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
    let Preview { count, looked_at, skipped, by_handler, by_reason, by_type, sample } = seen;
    if as_json {
        let sample: Vec<_> = sample.iter().map(found_json).collect();
        outln!(
            "{}",
            json!({
                "dry_run": true, "found": count.at_least(), "found_is_exact": count.is_exact(), "looked_at": looked_at, "skipped": skipped,
                "by_handler": by_handler, "by_reason": by_reason, "by_type": by_type, "sample": sample,
            })
        );
        return;
    }
    outln!("{count} {}; nothing was changed.", words(selection.which));
    if count.at_least() > *looked_at || !count.is_exact() {
        outln!("Of the first {looked_at}:");
    }
    if *skipped > 0 {
        outln!("{skipped} would be left out: no handler of this configuration wants them.");
    }
    for (name, tally) in [("by handler", by_handler), ("by reason", by_reason), ("by type", by_type)] {
        if !tally.is_empty() {
            let parts: Vec<_> = tally.iter().map(|(word, count)| format!("{count} x {}", plain(word))).collect();
            outln!("{name:10}  {}", parts.join(", "));
        }
    }
    if !sample.is_empty() {
        outln!("");
        let print = if selection.which == Which::Unhandled { print_unhandled } else { print_table };
        print(sample);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use clap::Parser;
    use hookfast_webhook::FailureKind;

    use super::*;
    use crate::cli::{Cli, Command};

    fn arguments(line: &str) -> Result<ReplayArguments, clap::Error> {
        let words = ["hookfast", "replay"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Replay(arguments) => Ok(arguments),
            other => panic!("{other:?}"),
        }
    }

    fn selected(line: &str) -> Selection {
        selection(&arguments(line).unwrap())
    }

    fn of(which: Which, handler: Option<&str>, onto: Option<&str>) -> Selection {
        let filter = Filter { handler: handler.map(Into::into), ..Filter::default() };
        Selection { which, filter, onto: onto.map(|onto| HandlerName::new(onto).unwrap()), limit: None }
    }

    #[test]
    fn the_handler_is_the_one_that_is_to_run_them() {
        assert_eq!(selected(""), of(Which::DeadLetters, None, None));
        assert_eq!(selected("--handler ledger"), of(Which::DeadLetters, Some("ledger"), None));
        assert_eq!(selected("--succeeded --handler ledger"), of(Which::Succeeded, Some("ledger"), None));
        assert_eq!(selected("--finished"), of(Which::Finished, None, None));
        assert_eq!(selected("--unhandled --handler ledger"), of(Which::Unhandled, None, Some("ledger")));
        assert_eq!(
            selected("--from-handler mail --handler ledger"),
            of(Which::DeadLetters, Some("mail"), Some("ledger"))
        );
    }

    #[test]
    fn ids_and_flags_are_conditions() {
        let id = Uuid::now_v7();
        let selection = selected(&format!("{id} --source stripe --type invoice.* --failure timeout --limit 3"));
        assert_eq!(selection.filter.events, [hookfast_webhook::EventId(id)]);
        assert_eq!(selection.filter.source.as_deref(), Some("stripe"));
        assert_eq!(selection.filter.event_type.as_deref(), Some("invoice.*"));
        assert_eq!((selection.filter.failure, selection.limit), (Some(FailureKind::Timeout), Some(3)));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let id = Uuid::now_v7();
        for bad in [
            "--unhandled".to_owned(),
            "--from-handler mail".into(),
            "--unhandled --from-handler mail --handler ledger".into(),
            "--succeeded --finished".into(),
            "--succeeded --failure timeout".into(),
            "--failure bad-luck".into(),
            "--force-effects".into(),
            "--handler No/Name".into(),
            "--rate 50/h".into(),
            "--limit 0".into(),
            "--type *create".into(),
            "--since yesterday".into(),
            "evt_1".into(),
            format!("--resume {id} --source stripe"),
            format!("--resume {id} {id}"),
            format!("--resume {id} --succeeded"),
        ] {
            assert!(arguments(&bad).is_err(), "{bad}");
        }
        for good in [format!("--resume {id} --rate 5/s --json"), "--force-effects --why because".into()] {
            assert!(arguments(&good).is_ok(), "{good}");
        }
    }

    #[test]
    fn an_act_is_sweeping_unless_something_was_said_about_which() {
        assert!(is_sweeping(&selected(""), Count::Exactly(2)));
        assert!(is_sweeping(&selected("--limit 5 --succeeded"), Count::Exactly(2)));
        assert!(!is_sweeping(&selected(""), Count::Exactly(1)));
        for some in ["--source stripe", "--handler ledger", "--unhandled --handler ledger", "--since 2h"] {
            assert!(!is_sweeping(&selected(some), Count::Exactly(2)), "{some}");
        }
        for some in ["--source stripe", "--limit 5000", "--unhandled --handler ledger"] {
            assert!(is_sweeping(&selected(some), Count::Exactly(MANY)), "{some}");
            assert!(is_sweeping(&selected(some), Count::MoreThan(MANY)), "{some}");
        }
        assert!(confirm(&selected(""), Count::Exactly(2), "replay", true).is_ok());
    }
}

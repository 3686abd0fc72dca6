//! `hookfast replay`

use std::time::{Duration, Instant};

use clap::Args;
use hookfast_admin::operate::{
    BATCH_MAX, Outcome, Progress, Replay, Selection, Targets, how_many, preview, replay, resume, unfinished,
};
use hookfast_admin::view::OutcomeView;
use hookfast_store::{Found, Operate, Which};
use hookfast_webhook::{HandlerName, JobState};
use tokio::time::sleep;
use uuid::Uuid;

use super::act::{
    ActArguments, SAMPLE, confirm, jobs, print_preview, progress_bar, say_nothing_found, show, stop_at_signal,
    with_way_on,
};
use super::filter::{self, FilterArguments};
use super::known::refuse_unknown;
use super::open_existing;
use super::tables::print_json;
use super::who::who;
use crate::config::OperatorConfig;
use crate::exit::Exit;

#[derive(Debug, Default, Args)]
pub(crate) struct ReplayArguments {
    /// Only these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// Only jobs of this handler; with --from-handler or --unhandled: the handler that gets the jobs
    #[arg(long, value_name = "NAME", value_parser = filter::handler_name)]
    pub(crate) handler: Option<HandlerName>,

    /// Take the events of this handler's jobs and give them to the handler that --handler names
    #[arg(long, value_name = "NAME", requires = "handler", conflicts_with = "unhandled")]
    pub(crate) from_handler: Option<String>,

    /// Replay jobs that succeeded instead of dead letters
    #[arg(long, group = "state", conflicts_with = "failure")]
    pub(crate) succeeded: bool,

    /// Give events without a handler to the handler that --handler names, if it subscribes to them
    #[arg(long, group = "state", requires = "handler", conflicts_with = "failure")]
    pub(crate) unhandled: bool,

    /// Replay all finished jobs: dead letters, succeeded ones and resolved ones
    #[arg(long, group = "state")]
    pub(crate) finished: bool,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// Limit on jobs a second or a minute, such as `50/s` [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = filter::per_second)]
    pub(crate) rate: Option<f64>,

    /// Forget that the effects of these jobs are done, so that each is done a second time
    #[arg(long, requires = "why")]
    pub(crate) force_effects: bool,

    /// The reason, which is kept in the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,

    /// Continue the interrupted replay with this id
    #[arg(long, value_name = "AUDIT_ID", value_parser = filter::id, conflicts_with_all = [
        "events", "handler", "from_handler", "state", "FilterArguments", "force_effects", "why", "limit", "dry_run", "who",
    ])]
    pub(crate) resume: Option<Uuid>,

    #[command(flatten)]
    pub(crate) act: ActArguments,
}

/// How an interrupted replay goes on.
const RESUME: &str = "hookfast replay --resume";

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
fn check_handler(name: Option<&HandlerName>, handlers: &Targets) -> Result<(), Exit> {
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

fn order(arguments: &ReplayArguments, selection: Selection) -> Replay {
    Replay {
        selection,
        who: who(arguments.act.who.as_deref()),
        why: arguments.why.clone(),
        force_effects: arguments.force_effects,
        rate: arguments.rate,
        batch: BATCH_MAX,
    }
}

/// Begins a replay, if there is something to replay and it is really wanted.
async fn begin(
    store: &dyn Operate,
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
    let order = order(arguments, selection);
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
async fn warn_if_nothing_begins(store: &dyn Operate, selection: &Selection, sample: &[Found]) -> Result<(), Exit> {
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
    store: &dyn Operate,
    audit: Uuid,
    arguments: &ReplayArguments,
    handlers: &Targets,
) -> Result<Outcome, Exit> {
    let (_, order) = unfinished(store, audit).await?;
    let left = how_many(store, order.selection.which, &order.selection.filter, 0, 0).await?;
    let bar = progress_bar(left, arguments.act.json);
    let stop = stop_at_signal()?;
    let outcome = resume(store, audit, arguments.rate, handlers, |progress| show(&bar, progress), &stop).await;
    bar.finish_and_clear();
    outcome.map_err(|error| with_way_on(error, RESUME))
}

fn report(outcome: &Outcome, as_json: bool) -> Result<(), Exit> {
    let Outcome { audit, progress: Progress { found, changed, skipped }, is_done } = *outcome;
    if as_json {
        print_json(&OutcomeView::from(outcome));
    }
    if !is_done {
        let way_on = format!("`{RESUME} {audit}` continues it");
        return Err(Exit::Interrupted(format!("interrupted after {}. {way_on}", jobs(changed))));
    }
    if !as_json {
        outln!("Replayed {}. Noted in the audit as {audit}.", jobs(changed));
        if skipped > 0 {
            outln!("{skipped} were left out: no handler of this configuration subscribes to their events.");
        }
        let same = found.saturating_sub(changed + skipped);
        if same > 0 {
            outln!("{same} needed nothing: they are under way, or their event has such a job already.");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use clap::error::ErrorKind;
    use clap::{CommandFactory, Parser};
    use hookfast_admin::operate::Count;
    use hookfast_store::Filter;
    use hookfast_webhook::FailureKind;

    use super::super::act::{MANY, is_sweeping};
    use super::super::{Cli, Command};
    use super::*;

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
            format!("--resume {id} --key evt_1"),
            format!("--resume {id} --resolution ignored"),
        ] {
            assert!(arguments(&bad).is_err(), "{bad}");
        }
        for good in [format!("--resume {id} --rate 5/s --json"), "--force-effects --why because".into()] {
            assert!(arguments(&good).is_ok(), "{good}");
        }
    }

    /// The audit has the selection of an interrupted replay. A flag that were ignored would look as if it narrowed that.
    #[test]
    fn a_resumed_replay_takes_no_flag_that_selects_jobs() {
        let conflicts = |flag: &str, value: &str| {
            let line = format!("--resume {} --{flag} {value}", Uuid::nil());
            arguments(&line).is_err_and(|error| error.kind() == ErrorKind::ArgumentConflict)
        };
        let cli = Cli::command();
        let replay = cli.find_subcommand("replay").unwrap();
        let flags = replay.get_arguments().filter_map(clap::Arg::get_long);
        // One of these values is right for each flag.
        let is_taken = |flag: &&str| {
            !["", "1", "x", "2h", "high", "ignored", "timeout"].iter().any(|value| conflicts(flag, value))
        };
        assert_eq!(flags.filter(is_taken).collect::<Vec<_>>(), ["rate", "yes", "json"]);
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

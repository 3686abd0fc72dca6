//! `hookfast jobs`: what is not done yet, and what becomes of the jobs of a handler that is not configured any more.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use hookfast_admin::operate::{
    Abandon, HandlerJobs, Outcome, Progress, Selection, Targets, abandon, how_many, preview, resume_abandon, summary,
};
use hookfast_admin::view::{HandlerJobsView, JobView, ListedJobView, OutcomeView};
use hookfast_store::{Filter, Found, Operate, Which};
use hookfast_webhook::{HandlerName, JobState};
use uuid::Uuid;

use super::act::{
    ActArguments, ResolveAs, SAMPLE, confirm, jobs, print_preview, progress_bar, resolution, say_nothing_found, show,
    stop_at_signal, with_way_on,
};
use super::filter::{self, FilterArguments};
use super::known::refuse_unknown;
use super::open_existing;
use super::tables::{cut_to_width, print_json, to_the_second};
use super::who::who;
use crate::config::OperatorConfig;
use crate::exit::Exit;
use crate::printable::plain;

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// List unfinished jobs, the oldest event first; marks jobs of handlers that are not configured
    List(ListArguments),
    /// Count the unfinished jobs and dead letters of each handler
    Summary {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Give the waiting jobs of a handler that is not configured to another handler
    Move(MoveArguments),
    /// Mark the waiting jobs of a handler that is not configured as settled without running them
    Resolve(ResolveArguments),
    /// Continue an interrupted move or resolve
    Resume {
        /// The id of the act in the audit
        #[arg(value_name = "AUDIT_ID", value_parser = filter::id)]
        id: Uuid,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Start with the newest event
    #[arg(long)]
    pub(crate) newest: bool,

    /// Only jobs in this state [default: pending, processing and failed]
    #[arg(long, value_name = "STATE", value_parser = job_state())]
    pub(crate) state: Option<JobState>,

    /// Only jobs of this handler
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// Print at most this many
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = filter::at_least_one())]
    pub(crate) limit: u32,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MoveArguments {
    /// Only these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// The handler that is not configured any more
    #[arg(long, value_name = "NAME")]
    pub(crate) from_handler: String,

    /// The handler that gets the jobs; events that it does not subscribe to are left out
    #[arg(long, value_name = "NAME", value_parser = filter::handler_name)]
    pub(crate) handler: HandlerName,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// The reason, which is kept in the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,

    #[command(flatten)]
    pub(crate) act: ActArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArguments {
    /// Only these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// The handler that is not configured any more
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: String,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// How the operator settled them
    #[arg(long = "as", value_enum, value_name = "HOW")]
    pub(crate) resolution: ResolveAs,

    /// The reason, which is kept in the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,

    #[command(flatten)]
    pub(crate) act: ActArguments,
}

/// The states, with their meanings for `--help`.
fn job_state() -> impl TypedValueParser<Value = JobState> {
    let states = JobState::ALL.map(|state| {
        PossibleValue::new(state.as_str()).help(match state {
            JobState::Pending => "Waiting for a worker",
            JobState::Processing => "A worker runs it",
            JobState::Failed => "Waiting for its next attempt",
            JobState::Succeeded => "Done",
            JobState::DeadLetter => "Given up",
            JobState::Resolved => "Ended by an operator without a run",
        })
    });
    PossibleValuesParser::new(states).try_map(|word| word.parse())
}

/// How many jobs that may be held are looked at.
const SAMPLE_OF_HELD: u32 = 100;

/// How an interrupted act goes on.
const RESUME: &str = "hookfast jobs resume";

pub(crate) async fn run(config: OperatorConfig, command: JobsCommand) -> Result<(), Exit> {
    let (config, handlers) = (&config, &config.handlers);
    let store = open_existing(config).await?;
    match command {
        JobsCommand::List(arguments) => list(&*store, config, &arguments).await?,
        JobsCommand::Summary { json } => print_summary(&summary(&*store, handlers).await?, json),
        JobsCommand::Move(arguments) => move_jobs(&*store, config, &arguments).await?,
        JobsCommand::Resolve(arguments) => resolve(&*store, config, &arguments).await?,
        JobsCommand::Resume { id, json } => go_on(&*store, id, handlers, json).await?,
    }
    store.close().await;
    Ok(())
}

/// Which jobs a state means, and the state to look for among them.
fn which(state: Option<JobState>) -> (Which, Option<JobState>) {
    match state {
        None => (Which::Unfinished, None),
        Some(JobState::Pending | JobState::Processing | JobState::Failed) => (Which::Unfinished, state),
        Some(JobState::DeadLetter) => (Which::DeadLetters, None),
        Some(JobState::Succeeded) => (Which::Succeeded, None),
        Some(JobState::Resolved) => (Which::Finished, state),
    }
}

async fn list(store: &dyn Operate, config: &OperatorConfig, arguments: &ListArguments) -> Result<(), Exit> {
    let handlers = &config.handlers;
    let (which, state) = which(arguments.state);
    let mut filter = arguments.filter.filter(&[], arguments.handler.as_deref());
    filter.state = state;
    let found = if arguments.newest {
        store.find_newest(which, &filter, arguments.limit).await?
    } else {
        store.find(which, &filter, None, arguments.limit).await?
    };
    if found.is_empty() {
        refuse_unknown(store, config, &filter, "--handler").await?;
    }
    let listed = |found| ListedJobView { job: JobView::from(found), configured: is_configured(found, handlers) };
    if arguments.json {
        found.iter().for_each(|found| print_json(&listed(found)));
        return Ok(());
    }
    let count = how_many(store, which, &filter, found.len(), arguments.limit).await?;
    if found.is_empty() {
        outln!("No job matches.");
    } else {
        print_table(&found, handlers);
        outln!("\n{} of {count} jobs. `hookfast jobs summary` counts them by handler.", found.len());
    }
    say_what_nothing_runs(&summary(store, handlers).await?);
    Ok(())
}

fn is_configured(found: &Found, handlers: &Targets) -> bool {
    found.handler.as_ref().is_some_and(|handler| handlers.has(handler))
}

fn print_table(found: &[Found], handlers: &Targets) {
    let row = |[id, handler, state, event_type, source, attempts, since, due, message]: [&str; 9]| {
        let row = format!(
            "{id:36}  {handler:24}  {state:11}  {event_type:28}  {source:12}  {attempts:>8}  {since:20}  {due:20}  {message}"
        );
        outln!("{}", cut_to_width(&row));
    };
    row(["ID", "HANDLER", "STATE", "TYPE", "SOURCE", "ATTEMPTS", "SINCE", "DUE", "MESSAGE"]);
    for found in found {
        let name = found.handler.as_ref().map_or("-", |handler| handler.as_str());
        let mark = if is_configured(found, handlers) { "" } else { " (not configured)" };
        let is_due = found.finished_at.is_none();
        row([
            &found.event.to_string(),
            &format!("{name}{mark}"),
            found.state.map_or("-", JobState::as_str),
            &plain(&found.event_type),
            &found.source,
            &found.attempts.to_string(),
            &to_the_second(found.finished_at.or(found.claimed_at).unwrap_or(found.received_at)),
            &found.due_at.filter(|_| is_due).map_or("-".into(), to_the_second),
            &plain(found.message.as_deref().unwrap_or("-")),
        ]);
    }
}

fn print_summary(all: &[HandlerJobs], as_json: bool) {
    if as_json {
        all.iter().for_each(|jobs| print_json(&HandlerJobsView::from(jobs)));
        return;
    }
    if all.is_empty() {
        outln!("No job is unfinished, and there are no dead letters.");
        return;
    }
    outln!("{:24}  {:>10}  {:>10}  {:>10}  {:>12}", "HANDLER", "PENDING", "PROCESSING", "FAILED", "DEAD LETTERS");
    for HandlerJobs { handler, is_configured, by_state } in all {
        let count = |state| by_state.get(&state).copied().unwrap_or_default();
        let (pending, processing, failed) =
            (count(JobState::Pending), count(JobState::Processing), count(JobState::Failed));
        let mark = if *is_configured { "" } else { "  not configured" };
        outln!(
            "{handler:24}  {pending:>10}  {processing:>10}  {failed:>10}  {:>12}{mark}",
            count(JobState::DeadLetter)
        );
    }
    say_what_nothing_runs(all);
}

/// Jobs that wait for a handler that this configuration does not have, and what can be done about it.
fn say_what_nothing_runs(all: &[HandlerJobs]) {
    for HandlerJobs { handler, .. } in all.iter().filter(|jobs| !jobs.is_configured && jobs.unfinished() > 0) {
        outln!("\n`{handler}` is not in this configuration: unless another gateway runs it, nothing runs its jobs.");
        outln!("  hookfast jobs move --from-handler {handler} --handler NAME         gives them to another handler");
        outln!("  hookfast jobs resolve --handler {handler} --as ignored --why TEXT  marks them as settled");
    }
}

async fn move_jobs(store: &dyn Operate, config: &OperatorConfig, arguments: &MoveArguments) -> Result<(), Exit> {
    let selection = Selection {
        which: Which::Unfinished,
        filter: arguments.filter.filter(&arguments.events, Some(&arguments.from_handler)),
        onto: Some(arguments.handler.clone()),
        limit: arguments.act.limit,
    };
    let (who, why) = (who(arguments.act.who.as_deref()), arguments.why.clone().unwrap_or_default());
    let order = Abandon { selection, resolution: None, who, why };
    begin(store, config, order, &arguments.act).await
}

async fn resolve(store: &dyn Operate, config: &OperatorConfig, arguments: &ResolveArguments) -> Result<(), Exit> {
    let selection = Selection {
        which: Which::Unfinished,
        filter: arguments.filter.filter(&arguments.events, Some(&arguments.handler)),
        onto: None,
        limit: arguments.act.limit,
    };
    let (who, why) = (who(arguments.act.who.as_deref()), arguments.why.clone());
    let order = Abandon { selection, resolution: Some(resolution(arguments.resolution)), who, why };
    begin(store, config, order, &arguments.act).await
}

/// Begins, if there is something to do and it is really wanted.
async fn begin(
    store: &dyn Operate,
    config: &OperatorConfig,
    mut order: Abandon,
    act: &ActArguments,
) -> Result<(), Exit> {
    let handlers = &config.handlers;
    order.check(handlers)?;
    order.selection = order.selection.as_of_now(store).await?;
    let selection = &order.selection;
    let wants = |found: &Found| selection.onto.as_ref().is_none_or(|onto| handlers.want(Some(onto), found));
    let seen = preview(store, selection, wants, SAMPLE).await?;
    if seen.looked_at == 0 {
        let flag = if selection.onto.is_some() { "--from-handler" } else { "--handler" };
        refuse_unknown(store, config, &selection.filter, flag).await?;
    }
    if act.dry_run {
        print_preview(&seen, selection, act.json);
        return Ok(());
    }
    if seen.looked_at == 0 {
        return say_nothing_found(store, selection, act.json).await;
    }
    warn_if_run_elsewhere(store, &selection.filter).await?;
    let verb = if selection.onto.is_some() { "move" } else { "resolve" };
    confirm(selection, seen.count, verb, act.yes)?;
    let bar = progress_bar(seen.count, act.json);
    let stop = stop_at_signal()?;
    let outcome = abandon(store, &order, handlers, |progress| show(&bar, progress), &stop).await;
    bar.finish_and_clear();
    report(&outcome.map_err(|error| with_way_on(error, RESUME))?, selection.onto.as_ref(), act.json)
}

/// Another gateway may have the handler in its own configuration.
async fn warn_if_run_elsewhere(store: &dyn Operate, filter: &Filter) -> Result<(), Exit> {
    let state = Some(JobState::Processing);
    let held = Filter { handler: filter.handler.clone(), state, ..Filter::default() };
    let now = store.moment().await?.at;
    let found = store.find(Which::Unfinished, &held, None, SAMPLE_OF_HELD).await?;
    if found.iter().any(|found| found.due_at.is_some_and(|lease_ends| lease_ends > now)) {
        let name = filter.handler.as_deref().unwrap_or_default();
        errln!("warning: a worker runs jobs of `{name}` at this moment, with another configuration than this one.");
    }
    Ok(())
}

async fn go_on(store: &dyn Operate, audit: Uuid, handlers: &Targets, as_json: bool) -> Result<(), Exit> {
    let stop = stop_at_signal()?;
    let outcome = resume_abandon(store, audit, handlers, |_| {}, &stop).await;
    report(&outcome.map_err(|error| with_way_on(error, RESUME))?, None, as_json)
}

fn report(outcome: &Outcome, onto: Option<&HandlerName>, as_json: bool) -> Result<(), Exit> {
    let Outcome { audit, progress: Progress { found, changed, skipped }, is_done } = *outcome;
    if as_json {
        print_json(&OutcomeView::from(outcome));
    }
    if !is_done {
        let way_on = format!("`{RESUME} {audit}` continues it");
        return Err(Exit::Interrupted(format!("interrupted after {}. {way_on}", jobs(changed))));
    }
    if !as_json {
        let what = onto.map_or("Done with".into(), |onto| format!("Moved to {onto}:"));
        outln!("{what} {}. Noted in the audit as {audit}.", jobs(changed));
        if skipped > 0 {
            outln!("{skipped} were left as they are: that handler does not subscribe to such events.");
        }
        let held = found.saturating_sub(changed + skipped);
        if held > 0 {
            outln!("{held} were left as they are: a worker has them, or they ended meanwhile.");
        }
    }
    Ok(())
}

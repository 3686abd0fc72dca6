//! `hookfast dead-letters`

use clap::{Args, Subcommand};
use hookfast_admin::operate::{Reopen, Resolve, how_many, preview, reopen as reopen_all, resolve as resolve_all};
use hookfast_admin::view::{DeadLetterView, DeadLettersView, EffectView, JobView, OutcomeView, dead_letters_of};
use hookfast_store::{Operate, Which};
use hookfast_webhook::EventId;
use uuid::Uuid;

use super::act::{ActArguments, ResolveAs, SAMPLE, confirm, print_preview, resolution, say_nothing_found};
use super::filter::{self, FilterArguments};
use super::known::refuse_unknown;
use super::open_existing;
use super::tables::{attempt_line, print_dead_letters, print_json, rfc3339};
use super::who::who;
use crate::config::OperatorConfig;
use crate::exit::Exit;
use crate::printable::plain;

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// List dead letters, the oldest event first
    List(ListArguments),
    /// Show why the jobs of an event died, and the commands that replay or resolve them
    Show(ShowArguments),
    /// Mark dead letters as settled without running them again
    Resolve(ResolveArguments),
    /// Make resolved jobs dead letters again
    Reopen(ReopenArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ReopenArguments {
    /// Of these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id, required = true)]
    pub(crate) events: Vec<Uuid>,

    /// Only jobs of this handler
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,

    /// The reason, which is kept in the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,

    /// The person in the audit [default: the user at this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Start with the newest event
    #[arg(long)]
    pub(crate) newest: bool,

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
pub(crate) struct ShowArguments {
    /// The event's id
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) event: Uuid,

    /// Only the job of this handler
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArguments {
    /// Only these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// Only jobs of this handler
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,

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

pub(crate) async fn run(config: OperatorConfig, command: DeadLettersCommand) -> Result<(), Exit> {
    match command {
        DeadLettersCommand::List(arguments) => list(config, &arguments).await,
        DeadLettersCommand::Show(arguments) => show(config, &arguments).await,
        DeadLettersCommand::Resolve(arguments) => resolve(config, arguments).await,
        DeadLettersCommand::Reopen(arguments) => reopen(config, arguments).await,
    }
}

async fn list(config: OperatorConfig, arguments: &ListArguments) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let filter = arguments.filter.filter(&[], arguments.handler.as_deref());
    let found = if arguments.newest {
        store.find_newest(Which::DeadLetters, &filter, arguments.limit).await?
    } else {
        store.find(Which::DeadLetters, &filter, None, arguments.limit).await?
    };
    if found.is_empty() {
        refuse_unknown(&*store, &config, &filter, "--handler").await?;
    }
    let count = how_many(&*store, Which::DeadLetters, &filter, found.len(), arguments.limit).await?;
    store.close().await;
    if arguments.json {
        found.iter().for_each(|found| print_json(&JobView::from(found)));
    } else if found.is_empty() {
        outln!("No dead letter matches.");
    } else {
        print_dead_letters(&found);
        outln!("\n{} of {count} dead letters.", found.len());
        outln!("`hookfast dead-letters show ID` says why one died, `hookfast replay ID` runs it again,");
        outln!("`hookfast dead-letters resolve ID --as ignored --why TEXT` marks it as settled.");
    }
    Ok(())
}

async fn reopen(config: OperatorConfig, arguments: ReopenArguments) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let order = Reopen {
        filter: FilterArguments::default().filter(&arguments.events, arguments.handler.as_deref()),
        limit: None,
        who: who(arguments.who.as_deref()),
        why: arguments.why,
    };
    let outcome = reopen_all(&*store, &order, |_| {}).await?;
    store.close().await;
    if arguments.json {
        print_json(&OutcomeView::from(&outcome));
    } else {
        outln!("Reopened: {}. Noted in the audit as {}.", outcome.progress.changed, outcome.audit);
    }
    Ok(())
}

async fn show(config: OperatorConfig, arguments: &ShowArguments) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let dead_letters = dead_letters_of(&*store, EventId(arguments.event), arguments.handler.as_deref()).await?;
    if dead_letters.is_empty() {
        return Err(none_of(&*store, arguments).await?);
    }
    store.close().await;
    if arguments.json {
        print_json(&DeadLettersView { event_id: arguments.event.to_string(), dead_letters });
    } else {
        dead_letters.iter().for_each(print);
    }
    Ok(())
}

async fn resolve(config: OperatorConfig, arguments: ResolveArguments) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let act = &arguments.act;
    let mut order = Resolve {
        filter: arguments.filter.filter(&arguments.events, arguments.handler.as_deref()),
        limit: act.limit,
        resolution: resolution(arguments.resolution),
        who: who(act.who.as_deref()),
        why: arguments.why,
    };
    let selection = order.selection().as_of_now(&*store).await?;
    order.filter = selection.filter.clone();
    let seen = preview(&*store, &selection, |_| true, SAMPLE).await?;
    if seen.looked_at == 0 {
        refuse_unknown(&*store, &config, &selection.filter, "--handler").await?;
    }
    if act.dry_run {
        print_preview(&seen, &selection, act.json);
        return Ok(());
    }
    if seen.looked_at == 0 {
        say_nothing_found(&*store, &selection, act.json).await?;
        store.close().await;
        return Ok(());
    }
    confirm(&selection, seen.count, "resolve", act.yes)?;
    let outcome = resolve_all(&*store, &order, |_| {}).await?;
    store.close().await;
    if act.json {
        print_json(&OutcomeView::from(&outcome));
    } else {
        outln!(
            "Resolved as {}: {}. Noted in the audit as {}.",
            order.resolution,
            outcome.progress.changed,
            outcome.audit
        );
    }
    Ok(())
}

/// Why there is nothing to show.
async fn none_of(store: &dyn Operate, arguments: &ShowArguments) -> Result<Exit, Exit> {
    let event = arguments.event;
    Ok(Exit::NotFound(match store.event(EventId(event)).await? {
        None => format!("there is no event {event}. `hookfast dead-letters list` shows what died"),
        Some(_) => {
            format!("no such job of the event {event} is a dead letter. `hookfast events show {event}` shows them all")
        }
    }))
}

fn print(letter: &DeadLetterView) {
    let DeadLetterView { job, history, effects } = letter;
    let (event, handler) = (&job.event_id, job.handler.as_deref().unwrap_or("-"));
    let line = |name: &str, value: &str| outln!("{name:10}  {value}");
    line("event", event);
    line("handler", handler);
    line("type", &plain(&job.event_type));
    line("source", &job.source);
    line("account", &job.account.as_deref().map_or("-".into(), plain));
    line("received", &rfc3339(job.received_at));
    line("died", &job.finished_at.map_or("-".into(), rfc3339));
    line("reason", job.reason.as_deref().unwrap_or("-"));
    line("message", &job.message.as_deref().map_or("-".into(), plain));
    history.iter().for_each(|attempt| line("attempt", &attempt_line(attempt)));
    effects.iter().for_each(|effect| line("effect", &effect_line(effect)));
    outln!("\nRun it again:  hookfast replay {event} --handler {handler}");
    outln!("Resolve it:    hookfast dead-letters resolve {event} --handler {handler} --as ignored --why TEXT");
    outln!("The request:   hookfast events show {event}\n");
}

fn effect_line(effect: &EffectView) -> String {
    let EffectView { key, idempotency_key: id, runs, done, .. } = effect;
    let state = if *done { "done" } else { "begun, not known to be done" };
    format!("{}: {state}, begun {runs}x, idempotency key {id}", plain(key))
}

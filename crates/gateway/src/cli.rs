//! What can be typed.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use hookfast_webhook::{HandlerName, JobState};
use uuid::Uuid;

use crate::filter::{self, FilterArguments};

/// An inbound webhook gateway: verifies, makes durable, answers, and sees to it that every event is handled.
#[derive(Debug, Parser)]
#[command(name = "hookfast", version)]
pub(crate) struct Cli {
    /// The configuration file [default: hookfast.toml if it is there]
    #[arg(long, global = true, env = "HOOKFAST_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) log: LogArguments,

    #[command(subcommand)]
    pub(crate) command: Command,
}

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

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the gateway; without a configuration file, with development secrets on a SQLite file in this folder
    Serve(ServeArguments),
    /// Receive only: verify, record, answer; workers run elsewhere
    Receive(ServeArguments),
    /// Work only: run handlers
    Work(WorkArguments),
    /// Run one job in this process, as the gateway does with jobs that crashed before
    #[command(hide = true)]
    RunJob {
        /// The event
        event: Uuid,
        /// The handler
        #[arg(value_parser = filter::handler_name)]
        handler: HandlerName,
    },
    /// Create or update the tables of the configured database
    Migrate,
    /// Check a request, or files of test vectors, offline, and explain the verdict
    Verify(VerifyArguments),
    /// Play a provider against a running gateway: correctly signed requests, also as load
    Simulate(SimulateArguments),
    /// List the providers there are
    Providers(ProvidersArguments),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Say how many events wait in the spool of this machine for Postgres, and since when
    Spool {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Look at recorded events
    #[command(subcommand)]
    Events(EventsCommand),
    /// Look at jobs that are not done yet, and end those of a handler that is gone
    #[command(subcommand)]
    Jobs(JobsCommand),
    /// Look at the jobs that gave up, and resolve them
    #[command(subcommand, visible_alias = "dlq")]
    DeadLetters(DeadLettersCommand),
    /// Run jobs again: dead letters, unless something else is said
    Replay(ReplayArguments),
    /// Look at what operators did
    #[command(subcommand)]
    Audit(AuditCommand),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Run missing migrations on Postgres too; on SQLite they always run
    #[arg(long)]
    pub(crate) migrate: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WorkArguments {
    /// Run missing migrations on Postgres too; on SQLite they always run
    #[arg(long)]
    pub(crate) migrate: bool,

    /// Run only these, such as `ledger,mail` [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) handlers: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report all problems of the configuration at once
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show every value in effect and where it comes from: a default, a line of the file, or a variable
    Show {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// The newest events first
    List {
        /// How many
        #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = at_least_one())]
        limit: u32,
        /// Only events without a handler, the oldest first
        #[arg(long)]
        unhandled: bool,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// One event with its request, its jobs and their attempts
    Show {
        /// The event's id
        #[arg(value_parser = filter::id)]
        id: Uuid,
        /// Print the body alone, byte for byte
        #[arg(long, conflicts_with = "json")]
        raw: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// The jobs that gave up, the oldest event first
    List(DeadLettersListArguments),
    /// Why the jobs of an event gave up, and what to do about it
    Show(DeadLettersShowArguments),
    /// Let dead letters rest without running them again
    Resolve(ResolveArguments),
}

#[derive(Debug, Args)]
pub(crate) struct DeadLettersListArguments {
    /// The newest event first
    #[arg(long)]
    pub(crate) newest: bool,

    /// Of this handler
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// How many
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = at_least_one())]
    pub(crate) limit: u32,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DeadLettersShowArguments {
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
    /// Of these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// Of this handler
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// How they are resolved
    #[arg(long = "as", value_enum, value_name = "HOW")]
    pub(crate) resolution: ResolveAs,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,

    #[command(flatten)]
    pub(crate) act: ActArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// The jobs that are not done, the oldest event first; those of handlers that are not configured are marked
    List(JobsListArguments),
    /// How many unfinished jobs and dead letters each handler has
    Summary {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Give the waiting jobs of a handler that is not configured to another one
    Move(JobsMoveArguments),
    /// Let the waiting jobs of a handler that is not configured rest without running them
    Resolve(JobsResolveArguments),
    /// Go on with a move or a resolve that was interrupted
    Resume {
        /// Its id in the audit
        #[arg(value_name = "AUDIT_ID", value_parser = filter::id)]
        id: Uuid,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct JobsListArguments {
    /// The newest event first
    #[arg(long)]
    pub(crate) newest: bool,

    /// Only jobs in this state [default: pending, processing and failed]
    #[arg(long, value_name = "STATE", value_parser = job_state())]
    pub(crate) state: Option<JobState>,

    /// Of this handler
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: Option<String>,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// How many
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = at_least_one())]
    pub(crate) limit: u32,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct JobsMoveArguments {
    /// Of these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// The handler that is not configured any more
    #[arg(long, value_name = "NAME")]
    pub(crate) from_handler: String,

    /// The handler that is to run them; only what it subscribes to
    #[arg(long, value_name = "NAME", value_parser = filter::handler_name)]
    pub(crate) handler: HandlerName,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,

    #[command(flatten)]
    pub(crate) act: ActArguments,
}

#[derive(Debug, Args)]
pub(crate) struct JobsResolveArguments {
    /// Of these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// The handler that is not configured any more
    #[arg(long, value_name = "NAME")]
    pub(crate) handler: String,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// How they are resolved
    #[arg(long = "as", value_enum, value_name = "HOW")]
    pub(crate) resolution: ResolveAs,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,

    #[command(flatten)]
    pub(crate) act: ActArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResolveAs {
    /// It need not be done
    Ignored,
    /// It was done by hand
    ManualFix,
}

/// What every act on many jobs has.
#[derive(Debug, Default, Args)]
pub(crate) struct ActArguments {
    /// Stop after this many jobs
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Say how many and which, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,

    /// Who does it, for the audit [default: this user at this machine]
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Default, Args)]
pub(crate) struct ReplayArguments {
    /// Of these events
    #[arg(value_name = "EVENT_ID", value_parser = filter::id)]
    pub(crate) events: Vec<Uuid>,

    /// The handler that is to run them; without --from-handler and --unhandled, its own jobs
    #[arg(long, value_name = "NAME", value_parser = filter::handler_name)]
    pub(crate) handler: Option<HandlerName>,

    /// Give the jobs of this handler to the one that --handler names
    #[arg(long, value_name = "NAME", requires = "handler", conflicts_with = "unhandled")]
    pub(crate) from_handler: Option<String>,

    /// Jobs that succeeded, instead of dead letters
    #[arg(long, group = "state", conflicts_with = "failure")]
    pub(crate) succeeded: bool,

    /// Events without a handler, for the one that --handler names; only what it subscribes to
    #[arg(long, group = "state", requires = "handler", conflicts_with = "failure")]
    pub(crate) unhandled: bool,

    /// Dead letters, and jobs that succeeded or were resolved
    #[arg(long, group = "state")]
    pub(crate) finished: bool,

    #[command(flatten)]
    pub(crate) filter: FilterArguments,

    /// How many jobs a second or minute, such as `50/s` [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = filter::per_second)]
    pub(crate) rate: Option<f64>,

    /// Forget that their effects were done, so that they are done a second time
    #[arg(long, requires = "why")]
    pub(crate) force_effects: bool,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,

    /// Go on with a replay that was interrupted
    #[arg(long, value_name = "AUDIT_ID", value_parser = filter::id, conflicts_with_all = [
        "events", "handler", "from_handler", "state", "source", "event_type", "account", "failure", "since", "until",
        "force_effects", "why", "limit", "dry_run", "who",
    ])]
    pub(crate) resume: Option<Uuid>,

    #[command(flatten)]
    pub(crate) act: ActArguments,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// What operators did, the latest first
    List(AuditListArguments),
}

#[derive(Debug, Args)]
pub(crate) struct AuditListArguments {
    /// How many
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = at_least_one())]
    pub(crate) limit: u32,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProvidersArguments {
    #[command(subcommand)]
    pub(crate) command: Option<ProvidersCommand>,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ProvidersCommand {
    /// The contract of one provider, and how to set it up
    Show {
        /// Its name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArguments {
    /// The provider to play
    pub(crate) provider: String,

    /// What to send, such as `invoice.paid` or `challenge` [default: what the provider usually sends]
    pub(crate) event: Option<String>,

    /// The source to send to [default: the only one of this provider]
    #[arg(long)]
    pub(crate) source: Option<String>,

    /// The gateway, as scheme, host and port [default: `listen` of the configuration]
    #[arg(long, value_name = "URL")]
    pub(crate) gateway: Option<String>,

    /// How many different requests
    #[arg(long, default_value_t = 1)]
    pub(crate) count: u64,

    /// How many requests a second or minute, such as `50/s` [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = filter::per_second)]
    pub(crate) rate: Option<f64>,

    /// How many connections at once
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) connections: u16,

    /// How many of the requests are sent a second time, such as `10%`
    #[arg(long, default_value = "0%", value_name = "PERCENT", value_parser = percent)]
    pub(crate) duplicates: f64,

    /// Send them in another order than they were made in
    #[arg(long)]
    pub(crate) out_of_order: bool,

    /// Change a byte of every body after signing; a good gateway refuses them all
    #[arg(long)]
    pub(crate) tamper: bool,

    /// Sign every request as if it were a day old; a gateway refuses those of providers that sign a time
    #[arg(long)]
    pub(crate) stale: bool,

    /// The number of the first request: the same number is the same event [default: by the clock, so always new ones]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first: Option<u64>,

    /// The private key of a provider that signs with one: `env:NAME`, `file:PATH` or the text itself
    #[arg(long, value_name = "KEY")]
    pub(crate) signing_key: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
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

fn at_least_one() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    number
        .filter(|number| (0.0..=100.0).contains(number))
        .map(|number| number / 100.0)
        .ok_or_else(|| "write a share such as 10%".into())
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Files of test vectors to run instead of one request
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["provider", "secret", "header", "body_file"])]
    pub(crate) vectors: Vec<PathBuf>,

    /// The provider, such as `stripe`
    #[arg(long, required_unless_present = "vectors")]
    pub(crate) provider: Option<String>,

    /// A secret: `env:NAME`, `file:PATH` or the text itself; may be repeated
    #[arg(long)]
    pub(crate) secret: Vec<String>,

    /// A setting of the provider, such as `tolerance_seconds=600`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,

    /// The request's method
    #[arg(long, default_value = "POST")]
    pub(crate) method: http::Method,

    /// The URL the provider was given
    #[arg(long, default_value = "http://localhost/")]
    pub(crate) url: String,

    /// A header, as `Name: value`; may be repeated
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,

    /// The file with the body, byte for byte; `-` is the standard input
    #[arg(long, required_unless_present = "vectors", value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,

    /// The time to judge by: `2026-07-01T08:00:00Z`, a day, or unix seconds [default: now]
    #[arg(long, value_name = "TIME", value_parser = filter::unix_time)]
    pub(crate) now: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_well_formed() {
        Cli::command().debug_assert();
    }
}

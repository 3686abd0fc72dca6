//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use uuid::Uuid;

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
    /// Create or update the tables of the configured database
    Migrate,
    /// Check a request, or files of test vectors, offline, and explain the verdict
    Verify(VerifyArguments),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Look at recorded events
    #[command(subcommand)]
    Events(EventsCommand),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// Run missing migrations on Postgres too; on SQLite they always run
    #[arg(long)]
    pub(crate) migrate: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Report all problems of the configuration at once
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// The newest events first
    List {
        /// How many
        #[arg(long, default_value_t = 20)]
        limit: u32,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// One event with its request and its jobs
    Show {
        /// The event's id
        id: Uuid,
        /// Print the body alone, byte for byte
        #[arg(long, conflicts_with = "json")]
        raw: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
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
    #[arg(long, required_unless_present = "vectors")]
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

    /// The time to judge by, in unix seconds [default: now]
    #[arg(long, value_name = "UNIX")]
    pub(crate) now: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

//! `hookfast audit`

use clap::{Args, Subcommand};
use hookfast_admin::view;
use hookfast_store::{Action, Audit};

use super::tables::{print_json, to_the_second};
use super::{filter, open_existing};
use crate::config::OperatorConfig;
use crate::exit::Exit;
use crate::printable::plain;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List what operators did, the latest first
    List(ListArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Print at most this many
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = filter::at_least_one())]
    pub(crate) limit: u32,

    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) async fn run(config: OperatorConfig, command: AuditCommand) -> Result<(), Exit> {
    let AuditCommand::List(arguments) = command;
    list(config, &arguments).await
}

async fn list(config: OperatorConfig, arguments: &ListArguments) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let audits = store.latest_audits(arguments.limit).await?;
    store.close().await;
    if arguments.json {
        audits.iter().for_each(|audit| print_json(&view::AuditView::from(audit)));
    } else if audits.is_empty() {
        outln!("Nothing was replayed, resolved or moved yet.");
    } else {
        print_table(&audits);
    }
    Ok(())
}

fn print_table(audits: &[Audit]) {
    outln!("{:36}  {:20}  {:20}  {:7}  {:>8}  {:8}  WHAT AND WHY", "ID", "BEGAN", "WHO", "ACTION", "JOBS", "STATE");
    for audit in audits {
        let Audit { id, action, jobs, .. } = audit;
        let (began, who, state) = (to_the_second(audit.at), plain(&audit.who), state(audit));
        let why = audit.why.as_deref().map(|why| format!("  ({})", plain(why))).unwrap_or_default();
        outln!("{id}  {began:20}  {who:20}  {action:7}  {jobs:>8}  {state:8}  {}{why}", plain(&audit.filter));
    }
    let unfinished = |action: Action| audits.iter().any(|audit| !audit.is_done && audit.action == action);
    if unfinished(Action::Replay) {
        outln!("\n`hookfast replay --resume ID` goes on with a replay that was not finished.");
    }
    if unfinished(Action::Move) {
        outln!("\n`hookfast jobs resume ID` goes on with a move that was not finished.");
    }
}

fn state(audit: &Audit) -> &'static str {
    if audit.is_done { "done" } else { "not done" }
}

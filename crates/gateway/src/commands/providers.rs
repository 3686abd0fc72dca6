//! `hookfast providers` and `hookfast providers show NAME`.

use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::tables::print_json;
use crate::config;
use crate::exit::Exit;
use crate::providers::{Kind, Providers};

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
    /// Show the contract of one provider and how to set it up
    Show {
        /// The provider's name
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &ProvidersArguments, file: Option<&Path>) -> Result<(), Exit> {
    let providers = config::providers(file).map_err(Exit::Config)?;
    match &arguments.command {
        None => {
            list(&providers, arguments.json);
            Ok(())
        }
        Some(ProvidersCommand::Show { name, json }) => show(&providers, name, *json || arguments.json),
    }
}

fn list(providers: &Providers, as_json: bool) {
    let mut kinds: Vec<_> = providers.iter().collect();
    kinds.sort_by_key(|kind| kind.name());
    if as_json {
        kinds.iter().for_each(|kind| print_json(&summary(kind)));
        return;
    }
    let width = kinds.iter().map(|kind| kind.name().len()).max().unwrap_or_default();
    for kind in kinds {
        let tested = if kind.is_vector_tested() { "" } else { "  (from its documentation, no test vectors)" };
        outln!("{:width$}  {}{tested}", kind.name(), kind.scheme());
        outln!("{:width$}  dedupe: {}", "", kind.dedupe());
    }
    outln!("\nMore about one, and how to set it up: hookfast providers show NAME");
}

fn show(providers: &Providers, name: &str, as_json: bool) -> Result<(), Exit> {
    let kind = providers.find(name).map_err(Exit::NotFound)?;
    if as_json {
        print_json(&Summary { contract: Some(kind.contract()), ..summary(kind) });
    } else {
        outln!("{}", kind.contract().trim_end());
        let settings = kind.settings();
        if !settings.is_empty() {
            outln!("\nSettings of a source: {}", settings.join(", "));
        }
    }
    Ok(())
}

/// What `--json` prints of a provider.
#[derive(Serialize)]
struct Summary<'a> {
    name: &'a str,
    scheme: String,
    dedupe: String,
    settings: Vec<&'static str>,
    vector_tested: bool,
    /// Only `show` prints it.
    #[serde(skip_serializing_if = "Option::is_none")]
    contract: Option<String>,
}

fn summary(kind: &Kind) -> Summary<'_> {
    Summary {
        name: kind.name(),
        scheme: kind.scheme(),
        dedupe: kind.dedupe(),
        settings: kind.settings(),
        vector_tested: kind.is_vector_tested(),
        contract: None,
    }
}

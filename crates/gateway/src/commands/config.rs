//! `hookfast config`

use std::path::Path;

use clap::Subcommand;
use hookfast_handler::Handlers;
use serde::Serialize;

use super::tables::print_json;
use crate::config::{Problem, Settings, Shown, load, load_for_operators};
use crate::exit::Exit;

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

pub(crate) fn run(command: &ConfigCommand, file: Option<&Path>, handlers: &Handlers) -> Result<(), Exit> {
    match command {
        ConfigCommand::Check { json } => check(file, handlers, *json),
        ConfigCommand::Show { json } => {
            show(&load_for_operators(file, handlers).map_err(Exit::Config)?.settings, *json);
            Ok(())
        }
    }
}

/// What `hookfast config check --json` prints.
#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    problems: &'a [Problem],
}

/// `hookfast config check`
fn check(file: Option<&Path>, handlers: &Handlers, as_json: bool) -> Result<(), Exit> {
    let loaded = load(file, handlers);
    if as_json {
        let problems = loaded.as_ref().err().map_or(&[][..], Vec::as_slice);
        print_json(&Checked { ok: loaded.is_ok(), problems });
    }
    let config = loaded.map_err(Exit::Config)?;
    if !as_json {
        outln!("The configuration is fine. Sources: {}. Handlers: {}.", config.sources.len(), config.handlers.len());
    }
    Ok(())
}

/// `hookfast config show`: what it prints is TOML again, apart from the secrets.
fn show(settings: &Settings, as_json: bool) {
    for shown in settings.shown() {
        if as_json {
            print_json(&shown);
        } else {
            let Shown { key, value, origin } = shown;
            let line = format!("{key} = {value}");
            outln!("{line:60}  # {origin}");
        }
    }
}

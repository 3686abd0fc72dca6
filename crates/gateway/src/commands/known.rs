//! Whether what a filter names exists at all. A name that was mistyped must not look like good news.

use std::time::Duration;

use hookfast_admin::operate::{Targets, summary};
use hookfast_store::{Filter, Operate, Which};

use crate::config::OperatorConfig;
use crate::exit::Exit;

/// How long it may take to find out whether a handler that is not configured ever had a job.
const LOOKING_MAX: Duration = Duration::from_secs(1);

/// Refuses a source or a handler that is neither configured nor in the store. It is asked only after nothing was found, so that
/// it costs nothing otherwise. `handler_flag` is what the handler was named with.
pub(crate) async fn refuse_unknown(
    store: &dyn Operate,
    config: &OperatorConfig,
    filter: &Filter,
    handler_flag: &str,
) -> Result<(), Exit> {
    if let Some(source) = &filter.source {
        let mut known = store.sources().await?;
        known.extend(config.sources.iter().cloned());
        refuse("--source", "source", source, known)?;
    }
    match &filter.handler {
        Some(handler) if !is_handler(store, &config.handlers, handler).await? => {
            let mut known: Vec<_> = config.handlers.names().map(ToString::to_string).collect();
            known.extend(summary(store, &config.handlers).await?.into_iter().map(|jobs| jobs.handler));
            refuse(handler_flag, "handler", handler, known)
        }
        _ => Ok(()),
    }
}

/// Whether there is such a handler, or may once have been.
async fn is_handler(store: &dyn Operate, handlers: &Targets, name: &str) -> Result<bool, Exit> {
    if handlers.names().any(|known| known.as_str() == name) {
        return Ok(true);
    }
    let filter = Filter { handler: Some(name.into()), ..Filter::default() };
    if !store.find(Which::Unfinished, &filter, None, 1).await?.is_empty() {
        return Ok(true);
    }
    let finished = store.count_within(Which::Finished, &filter, LOOKING_MAX).await?;
    // It is not known in time: nothing false is said.
    Ok(finished != Some(0))
}

fn refuse(flag: &str, what: &str, name: &str, known: Vec<String>) -> Result<(), Exit> {
    if known.iter().any(|known| known == name) { Ok(()) } else { Err(no_such(flag, what, name, known)) }
}

/// Says that what the flag names does not exist, and what there is.
pub(crate) fn no_such(flag: &str, what: &str, name: &str, mut known: Vec<String>) -> Exit {
    known.sort();
    known.dedup();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Exit::usage(flag, format!("there is no {what} `{}`; there is: {known}", name.escape_debug()))
}

//! `hookfast dead-letters`

use std::env;
use std::io::{self, IsTerminal};

use hookfast_admin::operate::{Resolve, how_many, preview, resolve as resolve_all};
use hookfast_store::{Attempt, Effect, Found, JobId, Resolution, Store, Which};
use hookfast_webhook::EventId;
use serde_json::{Value, json};

use crate::audit::who;
use crate::cli::{DeadLettersListArguments, DeadLettersShowArguments, ResolveArguments, ResolveAs};
use crate::config::OperatorConfig;
use crate::events::{attempt_json, attempt_line, found_json, open_existing, plain, rfc3339, to_the_second};
use crate::exit::Exit;
use crate::filter::FilterArguments;
use crate::known::refuse_unknown;
use crate::replay::{SAMPLE, confirm, print_preview, say_nothing_found};

pub(crate) async fn list(config: OperatorConfig, arguments: &DeadLettersListArguments) -> Result<(), Exit> {
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
        found.iter().for_each(|found| outln!("{}", found_json(found)));
    } else if found.is_empty() {
        outln!("There are no dead letters like that.");
    } else {
        print_table(&found);
        outln!("\n{} of {count} dead letters.", found.len());
        outln!("`hookfast dead-letters show ID` says why one died, `hookfast replay ID` runs it again,");
        outln!("`hookfast dead-letters resolve ID --as ignored --why TEXT` lets it rest.");
    }
    Ok(())
}

pub(crate) async fn show(config: OperatorConfig, arguments: &DeadLettersShowArguments) -> Result<(), Exit> {
    let store = open_existing(&config).await?;
    let letters = letters(&*store, arguments).await?;
    if letters.is_empty() {
        return Err(none_of(&*store, arguments).await?);
    }
    store.close().await;
    if arguments.json {
        let letters: Vec<_> = letters.iter().map(Letter::json).collect();
        outln!("{}", json!({"event_id": arguments.event.to_string(), "dead_letters": letters}));
    } else {
        letters.iter().for_each(Letter::print);
    }
    Ok(())
}

pub(crate) async fn resolve(config: OperatorConfig, arguments: ResolveArguments) -> Result<(), Exit> {
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
        return say_nothing_found(&*store, &selection, act.json).await;
    }
    confirm(&selection, seen.count, "resolve", act.yes)?;
    let outcome = resolve_all(&*store, &order, |_| {}).await?;
    store.close().await;
    if act.json {
        outln!("{}", json!({"audit": outcome.audit.to_string(), "resolved": outcome.progress.changed}));
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

pub(crate) fn resolution(said: ResolveAs) -> Resolution {
    match said {
        ResolveAs::Ignored => Resolution::Ignored,
        ResolveAs::ManualFix => Resolution::ManualFix,
    }
}

/// Why there is nothing to show.
async fn none_of(store: &dyn Store, arguments: &DeadLettersShowArguments) -> Result<Exit, Exit> {
    let event = arguments.event;
    Ok(Exit::NotFound(match store.event(EventId(event)).await? {
        None => format!("there is no event {event}. `hookfast dead-letters list` shows what died"),
        Some(_) => {
            format!("no such job of the event {event} is a dead letter. `hookfast events show {event}` shows them all")
        }
    }))
}

/// A dead letter and its history.
struct Letter {
    found: Found,
    attempts: Vec<Attempt>,
    effects: Vec<Effect>,
}

/// More handlers than there can be.
const EVERY_HANDLER: u32 = 10_000;

async fn letters(store: &dyn Store, arguments: &DeadLettersShowArguments) -> Result<Vec<Letter>, Exit> {
    let filter = FilterArguments::default().filter(&[arguments.event], arguments.handler.as_deref());
    let mut letters = Vec::new();
    for found in store.find(Which::DeadLetters, &filter, None, EVERY_HANDLER).await? {
        let Some(handler) = found.handler.clone() else { continue };
        let job = JobId { event: found.event, handler };
        let (attempts, effects) = (store.attempts(&job).await?, store.effects(&job).await?);
        letters.push(Letter { found, attempts, effects });
    }
    Ok(letters)
}

impl Letter {
    fn print(&self) {
        let Self { found, attempts, effects } = self;
        let (event, handler) = (found.event, handler(found));
        let line = |name: &str, value: &str| outln!("{name:10}  {value}");
        line("event", &event.to_string());
        line("handler", handler);
        line("type", &plain(&found.event_type));
        line("source", &found.source);
        line("account", &found.account.as_deref().map_or("-".into(), plain));
        line("received", &rfc3339(found.received_at));
        line("died", &found.finished_at.map_or("-".into(), rfc3339));
        line("reason", found.reason.as_deref().unwrap_or("-"));
        line("message", &found.message.as_deref().map_or("-".into(), plain));
        attempts.iter().for_each(|attempt| line("attempt", &attempt_line(attempt)));
        effects.iter().for_each(|effect| line("effect", &effect_line(effect)));
        outln!("\nRun it again:  hookfast replay {event} --handler {handler}");
        outln!("Let it rest:   hookfast dead-letters resolve {event} --handler {handler} --as ignored --why TEXT");
        outln!("The request:   hookfast events show {event}\n");
    }

    fn json(&self) -> Value {
        let mut object = found_json(&self.found);
        object["history"] = self.attempts.iter().map(attempt_json).collect();
        object["effects"] = self.effects.iter().map(effect_json).collect();
        object
    }
}

fn effect_line(effect: &Effect) -> String {
    let Effect { key, id, runs, is_done, .. } = effect;
    let state = if *is_done { "done" } else { "begun, not known to be done" };
    format!("{}: {state}, begun {runs}x, idempotency key {id}", plain(key))
}

fn effect_json(effect: &Effect) -> Value {
    json!({
        "key": effect.key,
        "idempotency_key": effect.id.to_string(),
        "runs": effect.runs,
        "done": effect.is_done,
        "done_at": effect.done_at.map(rfc3339),
        "result": effect.result.as_deref().and_then(|result| serde_json::from_str::<Value>(result).ok()),
    })
}

fn handler(found: &Found) -> &str {
    found.handler.as_ref().map_or("-", |handler| handler.as_str())
}

/// Jobs as a table; the sender of the event may have written its type and had a hand in the message.
pub(crate) fn print_table(found: &[Found]) {
    let head = ["ID", "HANDLER", "TYPE", "SOURCE", "REASON", "ATTEMPTS", "DIED", "MESSAGE"];
    print_row(head.map(str::to_owned));
    for found in found {
        print_row([
            found.event.to_string(),
            handler(found).to_owned(),
            plain(&found.event_type),
            found.source.clone(),
            found.reason.clone().unwrap_or_else(|| "-".into()),
            found.attempts.to_string(),
            found.finished_at.map_or("-".into(), to_the_second),
            plain(found.message.as_deref().unwrap_or("-")),
        ]);
    }
}

fn print_row([id, handler, event_type, source, reason, attempts, died, message]: [String; 8]) {
    let row = format!(
        "{id:36}  {handler:16}  {event_type:28}  {source:12}  {reason:12}  {attempts:>8}  {died:20}  {message}"
    );
    outln!("{}", cut_to_width(&row));
}

/// As much of a line as the terminal shows.
pub(crate) fn cut_to_width(row: &str) -> String {
    cut(row, width())
}

/// How wide a line may be: as the shell says, or wide enough for the beginning of a message. A pipe has no width.
fn width() -> usize {
    const USUAL: usize = 220;
    if !io::stdout().is_terminal() {
        return usize::MAX;
    }
    env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).unwrap_or(USUAL)
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.trim_end().into();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_and_says_so() {
        assert_eq!(cut("größer", 6), "größer");
        assert_eq!(cut("größer", 4), "grö…");
        assert_eq!(cut("short   ", 80), "short");
    }
}

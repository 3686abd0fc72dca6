//! The sections `[handlers.NAME]`: what a handler gets and how it is run.

use std::sync::Arc;
use std::time::Duration;

use hookfast_admin::operate;
use hookfast_handler::{AnyHandler, Handler, Handlers};
use hookfast_processor::{Fail, HandlerConfig, Log};
use hookfast_store::DeadLetters;
use hookfast_webhook::{
    Delays, FailureKind, HandlerName, Interest, LeastWait, Ordering, Pattern, RetryPolicy, SourceName, Subscription,
};
use toml::Value;

use super::document::Document;
use super::parse;
use super::section::Section;

/// A handler that gets jobs.
#[derive(Clone)]
pub struct ConfiguredHandler {
    /// What it gets.
    pub subscription: Subscription,
    /// What it does.
    pub handler: Arc<dyn AnyHandler>,
    /// How it is run.
    pub config: HandlerConfig,
    /// Its jobs are recorded and wait.
    pub is_paused: bool,
}

impl std::fmt::Debug for ConfiguredHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { subscription, handler: _, config, is_paused } = self;
        f.debug_struct("ConfiguredHandler")
            .field("subscription", subscription)
            .field("config", config)
            .field("is_paused", is_paused)
            .finish()
    }
}

/// All handlers: those of the program, as the configuration changes them, and those that the configuration adds.
pub(super) fn read(document: &mut Document, sources: &[String], handlers: &Handlers) -> Vec<ConfiguredHandler> {
    let mut found = Vec::new();
    let mut configured = document.take("handlers");
    for (name, handler) in handlers.iter() {
        let value = configured.remove(name.as_str()).unwrap_or(Value::Table(toml::Table::new()));
        found.extend(read_one(document, name.as_str(), value, sources, Some(handler)));
    }
    let known: Vec<_> = handlers.iter().map(|(name, _)| name.as_str()).collect();
    for (name, value) in configured {
        if is_of_another_program(&value) {
            let problem = if known.is_empty() {
                "this program has no handler of that name, and none of its own. Write `run = \"log\"` for the built-in one, \
                 or put your handlers into a program: docs/handlers.md"
                    .into()
            } else {
                format!("this program has no handler of that name; it has: {}", known.join(", "))
            };
            document.problem(&format!("handlers.{name}"), problem);
            continue;
        }
        found.extend(read_one(document, &name, value, sources, None));
    }
    found
}

/// A section for code that this program does not have.
fn is_of_another_program(section: &Value) -> bool {
    section.get("run").is_none() && section.is_table()
}

/// The same for operators, who may use another program than the one that has the handlers: what is said about such a handler
/// is believed.
pub(super) fn read_for_operators(document: &mut Document, sources: &[String], handlers: &Handlers) -> operate::Targets {
    let mut foreign = Vec::new();
    let mut elsewhere = toml::Table::new();
    let mut here = toml::Table::new();
    for (name, value) in document.take("handlers") {
        let is_ours = handlers.get(&name).is_some() || !is_of_another_program(&value);
        if is_ours { &mut here } else { &mut elsewhere }.insert(name, value);
    }
    document.put_back("handlers", here);
    let mut found = read(document, sources, handlers);
    for (name, value) in elsewhere {
        let knows_order = value.get("ordering").and_then(Value::as_str) != Some("computed");
        let is_enough = value.get("types").is_some() && knows_order;
        let stand_in = HandlerName::new(&name).ok().and_then(|name| log(&name));
        match read_one(document, &name, value, sources, stand_in.as_ref()) {
            Some(handler) if is_enough => found.push(handler),
            handler => foreign.extend(handler.map(|handler| handler.subscription.handler)),
        }
    }
    let known = found.into_iter().map(|handler| handler.subscription);
    operate::Targets::new(known).with_foreign(foreign)
}

fn read_one(
    document: &mut Document,
    name: &str,
    value: Value,
    sources: &[String],
    own: Option<&Arc<dyn AnyHandler>>,
) -> Option<ConfiguredHandler> {
    let key = format!("handlers.{name}");
    let Value::Table(table) = value else {
        document.problem(&key, format!("must be a section: write `[{key}]` and its keys below"));
        return None;
    };
    let mut section = Section::new(document, &key, table);
    let name = HandlerName::new(name).map_err(|error| section.problem("", error.to_string())).ok();
    let built_in = section.optional("run", |value| built_in(value, own.is_some(), name.as_ref()));
    let source = section.optional("source", |value| known_source(sources, &parse::text::<String>(value)?));
    let types = section.optional("types", parse::list::<Pattern>);
    let default = HandlerConfig::default();
    let retry = read_retry(&mut section);
    let deadline = section.value("deadline", parse::duration, default.deadline);
    let concurrency = section.value("concurrency", parse::count, default.concurrency);
    let order = section.value("ordering", parse::text, Order::None);
    let dead_letters = section.value("dead_letters", dead_letters, DeadLetters::StepOver);
    let priority = section.optional("priority", parse::priority);
    let is_paused = section.value("paused", parse::flag, false);
    section.finish();

    let handler = built_in.or(own.cloned())?;
    let interests = interests(handler.interests(), source.as_ref(), types);
    let ordering = ordering(order, &handler);
    // Only a handler that keeps an order has something behind a dead letter.
    let blocking = (!matches!(ordering, Ordering::None)).then_some(dead_letters);
    Some(ConfiguredHandler {
        subscription: Subscription { handler: name?, interests, ordering, priority },
        handler,
        config: HandlerConfig { retry, deadline, concurrency, ordering: blocking },
        is_paused,
    })
}

fn ordering(order: Order, handler: &Arc<dyn AnyHandler>) -> Ordering {
    match order {
        Order::None => Ordering::None,
        Order::PerAccount => Ordering::PerAccount,
        Order::PerEventType => Ordering::PerEventType,
        Order::Computed => {
            let handler = Arc::clone(handler);
            Ordering::Computed(Arc::new(move |body| handler.ordering_key(body)))
        }
        Order::Strict => Ordering::Strict,
    }
}

/// What the program says a handler wants, narrowed or replaced by the configuration.
fn interests(own: &[Interest], source: Option<&SourceName>, types: Option<Vec<Pattern>>) -> Vec<Interest> {
    match types {
        Some(types) => types.into_iter().map(|types| Interest { source: source.cloned(), types }).collect(),
        None => own
            .iter()
            .map(|interest| Interest {
                source: source.cloned().or(interest.source.clone()),
                types: interest.types.clone(),
            })
            .collect(),
    }
}

fn built_in(value: &Value, is_own: bool, name: Option<&HandlerName>) -> Result<Arc<dyn AnyHandler>, String> {
    if is_own {
        return Err("this handler is the program's own; leave the key out".into());
    }
    match parse::text::<String>(value)?.as_str() {
        "log" => named(name, Log),
        "fail" => named(name, Fail),
        other => Err(format!("there is no built-in handler `{}`; there is: fail, log", other.escape_debug())),
    }
}

fn named<H: Handler>(name: Option<&HandlerName>, handler: H) -> Result<Arc<dyn AnyHandler>, String> {
    let name = name.ok_or("the handler has no usable name")?;
    Handlers::new().with_named(name, handler).get(name.as_str()).cloned().ok_or_else(|| "it was just added".into())
}

fn log(name: &HandlerName) -> Option<Arc<dyn AnyHandler>> {
    Handlers::new().with_named(name, Log).get(name.as_str()).cloned()
}

fn read_retry(section: &mut Section<'_>) -> RetryPolicy {
    let mut retry = section.value("retry", retry, RetryPolicy::default());
    let max_attempts = section.optional("max_attempts", parse::count);
    retry.max_attempts = max_attempts.map_or(retry.max_attempts, |count| u32::try_from(count).unwrap_or(u32::MAX));
    retry.jitter = section.value("jitter", share, retry.jitter);
    retry.least_wait = section.value("least_wait", least_wait, retry.least_wait);
    retry
}

/// `"quick"`, `["1m", "5m"]` or `{ base = "1s", factor = 2, cap = "1h" }`.
fn retry(value: &Value) -> Result<RetryPolicy, String> {
    const ALLOWED: &str = "write the name of a preset (default, patient, quick), a list of delays such as [\"1m\", \"5m\"], \
                           or { base = \"1s\", factor = 2.0, cap = \"1h\" }";
    match value {
        Value::String(name) => RetryPolicy::preset(name).ok_or_else(|| ALLOWED.into()),
        Value::Array(delays) if !delays.is_empty() => {
            Ok(RetryPolicy::list(delays.iter().map(parse::duration).collect::<Result<_, _>>()?))
        }
        Value::Table(table) => {
            if let Some(unknown) = table.keys().find(|key| !["base", "factor", "cap"].contains(&key.as_str())) {
                return Err(format!("`{unknown}` means nothing here: {ALLOWED}"));
            }
            let delay = |key: &str, default| table.get(key).map_or(Ok(default), parse::duration);
            let factor = table.get("factor").map_or(Some(2.0), number).filter(|factor| *factor >= 1.0);
            let delays = Delays::Exponential {
                base: delay("base", Duration::from_secs(1))?,
                factor: factor.ok_or(ALLOWED)?,
                cap: delay("cap", Duration::from_secs(3600))?,
            };
            Ok(RetryPolicy { delays, ..RetryPolicy::default() })
        }
        _ => Err(ALLOWED.into()),
    }
}

/// `{ rate_limited = "60s", timeout = "5s" }`: kinds that are not named keep their waits.
fn least_wait(value: &Value) -> Result<LeastWait, String> {
    let table = value.as_table().ok_or("write the kinds of failure with their waits: { rate_limited = \"60s\" }")?;
    table.iter().try_fold(LeastWait::default(), |waits, (kind, wait)| {
        Ok(waits.with(kind.parse::<FailureKind>()?, parse::duration(wait)?))
    })
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|number| number as f64))
}

fn share(value: &Value) -> Result<f64, String> {
    let percent = |text: &str| Some(text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0);
    let share = number(value).or_else(|| value.as_str().and_then(percent));
    let share = share.filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a share from \"0%\" to \"100%\", or a number from 0.0 to 1.0".into())
}

#[derive(Clone, Copy)]
enum Order {
    None,
    PerAccount,
    PerEventType,
    Computed,
    Strict,
}

impl std::str::FromStr for Order {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "per_account" => Ok(Self::PerAccount),
            "per_event_type" => Ok(Self::PerEventType),
            "computed" => Ok(Self::Computed),
            "strict" => Ok(Self::Strict),
            _ => Err("write \"none\", \"per_account\", \"per_event_type\", \"computed\" or \"strict\""),
        }
    }
}

fn dead_letters(value: &Value) -> Result<DeadLetters, String> {
    match value.as_str() {
        Some("block") => Ok(DeadLetters::Block),
        Some("step_over") => Ok(DeadLetters::StepOver),
        _ => Err("write \"block\" or \"step_over\"".into()),
    }
}

fn known_source(sources: &[String], name: &str) -> Result<SourceName, String> {
    if !sources.iter().any(|source| source == name) {
        let problem = format!("there is no source `{}`; there is: {}", name.escape_debug(), sources.join(", "));
        return Err(problem);
    }
    SourceName::new(name).map_err(|error| error.to_string())
}

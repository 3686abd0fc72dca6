//! A gateway whose handlers do whatever an event tells them to. Its one kind of effect is a plain INSERT into a table
//! without a unique index, so that doing it twice shows.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use hookfast::{Effects, Event, Failure, FailureKind, Handled, Handler, Handlers, values};
use serde::Deserialize;

/// Further handlers that do the same; `TEST_HANDLERS` says which of them this program has.
const NAMES: [&str; 5] = ["actor", "slow", "poisoned", "ordered", "innocent"];

/// The first takes every event, each of the others those of its own types.
const SUBSCRIPTIONS: [&[&str]; 5] = [&["*/*"], &["*/slow.*"], &["*/poisoned.*"], &["*/ordered.*"], &["*/innocent.*"]];

fn main() -> ExitCode {
    let wanted = std::env::var("TEST_HANDLERS").unwrap_or_default();
    let has = |number: usize| wanted.split(',').any(|name| name == NAMES[number]);
    let mut handlers = Handlers::new().with(Actor::<0>);
    if has(1) {
        handlers = handlers.with(Actor::<1>);
    }
    if has(2) {
        handlers = handlers.with(Actor::<2>);
    }
    if has(3) {
        handlers = handlers.with(Actor::<3>);
    }
    if has(4) {
        handlers = handlers.with(Actor::<4>);
    }
    hookfast::run(handlers)
}

/// What an event says; everything but the id may be left out.
#[derive(Debug, Deserialize)]
struct Script {
    id: String,
    #[serde(default)]
    act: Act,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Act {
    /// What it has in common with those it must be handled in order with.
    key: Option<String>,
    /// How many effects it has; one if it does not say.
    effects: Option<u32>,
    /// Its effects share their commits with those of others.
    write: bool,
    /// How long it takes before its effects.
    sleep_ms: u64,
    /// How long it keeps the transaction of an effect open.
    sleep_in_effect_ms: u64,
    /// How long it takes between two effects.
    sleep_between_ms: u64,
    /// How long it takes after its effects.
    sleep_after_ms: u64,
    /// It waits until there is a file `told` in the working folder.
    until_told: bool,
    /// How long the statement of its effect takes. On Postgres only.
    statement_ms: u64,
    /// It asks for the first column of a row without columns. On Postgres only.
    no_columns: bool,
    /// How many attempts fail, before their effects.
    fail_times: u32,
    /// It fails until there is a file `fixed` in the working folder.
    fail_until_fixed: bool,
    /// The other side asks for this wait.
    retry_after_ms: Option<u64>,
    /// It is put off by this time until there is a file `fixed` in the working folder.
    snooze_ms: Option<u64>,
    give_up: bool,
    panic: bool,
    /// It ends the process.
    abort: bool,
    /// It never comes back and never yields.
    endless: bool,
    /// The same in the middle of an effect.
    endless_in_effect: bool,
    /// It takes more memory than there is.
    memory: bool,
    /// It calls itself without end.
    stack: bool,
    /// It fails if more than this many run at once in this process.
    fragile: Option<usize>,
}

/// How many run in this process.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// One of them.
struct Running;

impl Running {
    /// One more, and how many that makes.
    fn begin() -> (Self, usize) {
        (Self, RUNNING.fetch_add(1, Relaxed) + 1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Relaxed);
    }
}

/// Two at a time with one key would get the same place.
const NOTE: &str = "INSERT INTO done (event, effect, ordering, place, attempt) \
     SELECT $1, $2, $3, (SELECT COUNT(*) FROM done WHERE ordering = $3), $4";

/// The same with a statement that takes long, on Postgres.
const NOTE_SLOWLY: &str = "INSERT INTO done (event, effect, ordering, place, attempt) \
     SELECT $1, $2, $3, (SELECT COUNT(*) FROM done WHERE ordering = $3), $4 FROM pg_sleep($5)";

struct Actor<const NUMBER: usize>;

impl<const NUMBER: usize> Handler for Actor<NUMBER> {
    const NAME: &'static str = NAMES[NUMBER];
    const SUBSCRIBES: &'static [&'static str] = SUBSCRIPTIONS[NUMBER];
    const TABLES: &'static str = "CREATE TABLE IF NOT EXISTS done \
         (event TEXT NOT NULL, effect TEXT NOT NULL, ordering TEXT NOT NULL, place BIGINT NOT NULL, attempt BIGINT NOT NULL)";
    type Payload = Script;

    async fn handle(&self, event: &Event<Script>, effects: &Effects) -> Handled {
        let Script { id, act } = &event.payload;
        let (_running, count) = Running::begin();
        if act.fragile.is_some_and(|limit| count > limit) {
            return Err(Failure::retry(FailureKind::Internal, format!("{count} at once are too many")));
        }
        tokio::time::sleep(Duration::from_millis(act.sleep_ms)).await;
        while act.until_told && !Path::new("told").exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        misbehave(act);
        if event.attempt <= act.fail_times || act.fail_until_fixed && !Path::new("fixed").exists() {
            return Err(match act.retry_after_ms {
                Some(wait) => Failure::retry_after(Duration::from_millis(wait), "asked to wait"),
                None => Failure::retry(FailureKind::Internal, format!("told to fail, attempt {}", event.attempt)),
            });
        }
        if let Some(wait) = act.snooze_ms
            && !Path::new("fixed").exists()
        {
            return Err(Failure::snooze(Duration::from_millis(wait), "it is not fixed yet"));
        }
        if act.give_up {
            return Err(Failure::give_up("told to give up"));
        }
        let ordering = act.key.clone().unwrap_or_default();
        for number in 0..act.effects.unwrap_or(1) {
            let effect = format!("effect-{number}");
            if number > 0 {
                tokio::time::sleep(Duration::from_millis(act.sleep_between_ms)).await;
            }
            let mut values = values![id.as_str(), effect.as_str(), ordering.as_str(), event.attempt];
            let note = if act.statement_ms > 0 { NOTE_SLOWLY } else { NOTE };
            if act.statement_ms > 0 {
                values.extend(values![act.statement_ms as f64 / 1000.0]);
            }
            if act.write {
                effects.write(&effect, note, values).await?;
                continue;
            }
            effects
                .once(&effect, async |tx| {
                    tx.execute(note, values).await?;
                    if act.no_columns {
                        tx.fetch("SELECT FROM (VALUES (1)) AS row_without_columns", values![]).await?;
                    }
                    if act.endless_in_effect {
                        spin();
                    }
                    tokio::time::sleep(Duration::from_millis(act.sleep_in_effect_ms)).await;
                    Ok(())
                })
                .await?;
        }
        tokio::time::sleep(Duration::from_millis(act.sleep_after_ms)).await;
        Ok(())
    }

    fn ordering_key(&self, payload: &Script) -> Option<String> {
        payload.act.key.clone()
    }
}

fn misbehave(act: &Act) {
    assert!(!act.panic, "told to panic");
    if act.abort {
        std::process::abort();
    }
    if act.endless {
        spin();
    }
    if act.memory {
        let mut hoard = Vec::new();
        loop {
            hoard.push(vec![1u8; 64 << 20]);
        }
    }
    if act.stack {
        descend(0);
    }
}

fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Deep enough for any stack; what it gives back keeps the compiler from turning it into a loop.
#[allow(unconditional_recursion, reason = "that is what it is for")]
fn descend(depth: u64) -> u64 {
    let room = [depth; 512];
    std::hint::black_box(&room);
    descend(depth + 1) + room[511]
}

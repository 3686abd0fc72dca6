//! Providers in a storm: they repeat what got no answer or a 5xx, send some things twice, and some do not try again.

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use hookfast_harness::{Fate, Sender, TestEvent};

/// Within this time after the storm, a provider that goes on trying has a 2xx.
pub(crate) const ACCEPTED_WITHIN: Duration = Duration::from_secs(60);

/// How long a provider waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// To whom events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receivers {
    Actor,
    /// Several handlers, most of them in trouble; some statements take long if the database can do that.
    Crowd {
        on_postgres: bool,
    },
}

/// One provider.
pub(crate) struct Provider {
    number: u64,
    chance: Rng,
    receivers: Receivers,
    /// How many events it has.
    events: usize,
    /// The one who keeps an order has a dead letter already.
    is_blocked: bool,
}

/// An event for the handler that its type begins with.
pub(crate) fn event(id: &str, kind: &str, act: &str) -> TestEvent {
    let handler = kind.split('.').next().unwrap_or_default().to_owned();
    let body = format!(r#"{{"id":"{id}","type":"{kind}","created":1,"act":{{{act}}}}}"#);
    TestEvent { handler, ..TestEvent::with_body(id, body) }
}

fn without_effects(event: TestEvent, fate: Fate) -> TestEvent {
    TestEvent { effects: 0, fate, ..event }
}

impl Provider {
    pub(crate) fn new(number: u64, seed: u64, receivers: Receivers) -> Self {
        Self { number, chance: Rng::with_seed(seed), receivers, events: 0, is_blocked: false }
    }

    /// Sends until the storm is over.
    pub(crate) fn run(mut self, sender: &mut Sender) {
        sender.patience = PATIENCE;
        while !sender.is_told_to_end() {
            self.send_one(sender);
            thread::sleep(Duration::from_millis(self.chance.u64(20..150)));
        }
        // Whatever happened before, this one must be taken.
        let last = self.next_event();
        self.deliver(sender, &last);
    }

    fn send_one(&mut self, sender: &mut Sender) {
        let event = self.next_event();
        let lucky = self.chance.u32(0..100);
        // Some do not try again.
        if lucky < 10 && event.handler != "ordered" {
            sender.send(&event);
            return;
        }
        self.deliver(sender, &event);
        match lucky {
            // Some send it twice, and some do so at once.
            10..20 => drop(sender.send(&event)),
            20..30 => sender.send_twice_at_once(&event),
            _ => {}
        }
    }

    /// Sends an event until there is a 2xx, or that is late.
    fn deliver(&mut self, sender: &mut Sender, event: &TestEvent) {
        while !sender.send(event) {
            if sender.is_late(ACCEPTED_WITHIN) {
                sender.complain(format!("{} was not accepted within {ACCEPTED_WITHIN:?}", event.id));
                break;
            }
            thread::sleep(Duration::from_millis(self.chance.u64(50..500)));
        }
    }

    fn next_event(&mut self) -> TestEvent {
        let id = format!("evt_{}_{:05}", self.number, self.events);
        self.events += 1;
        match (self.receivers, self.chance.u32(0..100)) {
            (Receivers::Actor, _) | (_, 0..70) => self.for_actor(&id),
            (_, 70..85) => event(&id, "innocent.came", ""),
            (_, 85..92) => self.in_order(&id),
            (_, 92..95) => event(&id, "slow.came", r#""sleep_ms":250"#),
            (Receivers::Crowd { on_postgres: true }, 95..97) => {
                without_effects(event(&id, "poisoned.came", r#""write":true,"statement_ms":6000"#), Fate::Dies)
            }
            _ => without_effects(event(&id, "poisoned.came", r#""panic":true"#), Fate::Dies),
        }
    }

    /// One in some gives up, and blocks all that come after it.
    fn in_order(&mut self, id: &str) -> TestEvent {
        let kind = format!("ordered.by_{}", self.number);
        if self.is_blocked {
            return without_effects(event(id, &kind, ""), Fate::Waits);
        }
        self.is_blocked = self.chance.u32(0..4) == 0;
        match self.is_blocked {
            true => without_effects(event(id, &kind, r#""give_up":true"#), Fate::Dies),
            false => event(id, &kind, ""),
        }
    }

    fn for_actor(&mut self, id: &str) -> TestEvent {
        let account = self.chance.bool().then(|| format!("acct_{}", self.number));
        let (act, effects, gives_up) = self.act(account.as_deref());
        let mut named = account.as_ref().map(|account| format!(r#","account":"{account}""#)).unwrap_or_default();
        if self.receivers != Receivers::Actor && self.chance.u32(0..20) == 0 {
            // Too large to come along with a claim.
            named += &format!(r#","filler":"{}""#, "x".repeat(100_000));
        }
        let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1{named},"act":{{{act}}}}}"#);
        let fate = if gives_up { Fate::Dies } else { Fate::Succeeds };
        TestEvent { effects, fate, ordering: account, ..TestEvent::with_body(id, body) }
    }

    /// What the handler shall do, how many effects that has, and whether it gives up.
    fn act(&mut self, account: Option<&str>) -> (String, usize, bool) {
        let key = account.map(|account| format!(r#""key":"{account}","#)).unwrap_or_default();
        let milliseconds = self.chance.u32(1..60);
        match self.chance.u32(0..100) {
            0..5 => (format!(r#"{key}"give_up":true"#), 0, true),
            5..12 => (format!(r#"{key}"fail_times":1,"sleep_after_ms":{milliseconds}"#), 1, false),
            12..20 => (format!(r#"{key}"effects":3,"sleep_in_effect_ms":{milliseconds}"#), 3, false),
            // Longer than most faults, where no other event waits behind it.
            20..80 if account.is_none() => (format!(r#""sleep_ms":{}"#, milliseconds * 40), 1, false),
            20..45 => (format!(r#"{key}"sleep_ms":{},"sleep_after_ms":{milliseconds}"#, milliseconds * 4), 1, false),
            80..90 => (format!(r#"{key}"write":true,"effects":2,"sleep_after_ms":{milliseconds}"#), 2, false),
            _ => (format!(r#"{key}"sleep_after_ms":{milliseconds}"#), 1, false),
        }
    }
}

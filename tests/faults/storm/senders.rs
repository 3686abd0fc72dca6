//! Providers in a storm: they sign, repeat what got no answer or a 5xx, send some things twice, and write down what they
//! were promised.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hookfast_harness::{Client, signed};

/// Within this time after the storm, a sender that goes on trying has a 2xx.
pub(crate) const ACCEPTED_WITHIN: Duration = Duration::from_secs(60);

/// How long a sender waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// An event that was sent at least once.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) body: String,
    /// Whose job is judged.
    pub(crate) handler: String,
    /// How many effects it has; a dead letter has none.
    pub(crate) effects: usize,
    pub(crate) fate: Fate,
    /// There was a 2xx.
    pub(crate) is_promised: bool,
}

/// What becomes of the job of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Succeeds,
    /// It is a dead letter.
    Dies,
    /// It waits behind a dead letter, and that is known.
    IsBlocked,
}

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
pub(crate) struct Sender {
    name: String,
    receiver: Arc<Mutex<SocketAddr>>,
    chance: Rng,
    /// Since when every victim is well again.
    over: Arc<OnceLock<Instant>>,
    receivers: Receivers,
    /// The one who keeps an order has a dead letter already.
    is_blocked: bool,
    ledger: Ledger,
}

/// What a provider can tell.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) sent: Vec<Sent>,
    /// How often there was no 2xx.
    pub(crate) in_vain: usize,
    pub(crate) misdeeds: Vec<String>,
}

impl Ledger {
    pub(crate) fn add(&mut self, other: Self) {
        self.sent.extend(other.sent);
        self.in_vain += other.in_vain;
        self.misdeeds.extend(other.misdeeds);
    }

    pub(crate) fn promised(&self) -> usize {
        self.sent.iter().filter(|sent| sent.is_promised).count()
    }
}

impl Sent {
    /// An event for the handler that its type begins with.
    fn new(id: String, kind: &str, act: &str, effects: usize, fate: Fate) -> Self {
        let handler = kind.split('.').next().unwrap_or_default().to_owned();
        let body = format!(r#"{{"id":"{id}","type":"{kind}","created":1,"act":{{{act}}}}}"#);
        Self { id, body, handler, effects, fate, is_promised: false }
    }

    /// One that is known to be taken, and succeeds.
    pub(crate) fn taken(id: &str, kind: &str, act: &str) -> Self {
        Self { is_promised: true, ..Self::new(id.into(), kind, act, 1, Fate::Succeeds) }
    }
}

impl Sender {
    pub(crate) fn new(
        name: &str,
        receiver: &Arc<Mutex<SocketAddr>>,
        seed: u64,
        over: &Arc<OnceLock<Instant>>,
        receivers: Receivers,
    ) -> Self {
        Self {
            name: name.into(),
            receiver: Arc::clone(receiver),
            chance: Rng::with_seed(seed),
            over: Arc::clone(over),
            receivers,
            is_blocked: false,
            ledger: Ledger::default(),
        }
    }

    /// Sends until the storm is over.
    pub(crate) fn run(mut self) -> Ledger {
        while self.over.get().is_none() {
            self.send_one();
            thread::sleep(Duration::from_millis(self.chance.u64(20..150)));
        }
        // Whatever happened before, this one must be taken.
        let last = self.next_event();
        self.deliver(last, false);
        self.ledger
    }

    fn send_one(&mut self) {
        let event = self.next_event();
        let (body, lucky) = (event.body.clone(), self.chance.u32(0..100));
        // Some do not try again.
        let may_give_up = lucky < 10 && event.handler != "ordered";
        self.deliver(event, may_give_up);
        match lucky {
            // Some send it twice, and some do so at once.
            10..20 => drop(self.post(&body)),
            20..30 => thread::scope(|scope| {
                scope.spawn(|| drop(self.post(&body)));
                scope.spawn(|| drop(self.post(&body)));
            }),
            _ => {}
        }
    }

    /// Sends an event until there is a 2xx.
    fn deliver(&mut self, mut event: Sent, may_give_up: bool) {
        while !event.is_promised {
            let answer = self.post(&event.body);
            event.is_promised = self.is_promise(&answer);
            self.ledger.in_vain += usize::from(!event.is_promised);
            let is_late = self.over.get().is_some_and(|since| since.elapsed() > ACCEPTED_WITHIN);
            if is_late && !event.is_promised {
                self.ledger
                    .misdeeds
                    .push(format!("{} was not accepted within {ACCEPTED_WITHIN:?}: {answer:?}", event.id));
            }
            if is_late || may_give_up {
                break;
            }
            if !event.is_promised {
                thread::sleep(Duration::from_millis(self.chance.u64(50..500)));
            }
        }
        self.ledger.sent.push(event);
    }

    fn is_promise(&mut self, answer: &io::Result<u16>) -> bool {
        match answer {
            Ok(200) => true,
            Ok(503) | Err(_) => false,
            Ok(other) => {
                self.ledger.misdeeds.push(format!("{} was answered {other}", self.name));
                false
            }
        }
    }

    fn post(&self, body: &str) -> io::Result<u16> {
        let receiver = *self.receiver.lock().unwrap();
        let mut client = Client::try_connect(receiver)?.with_patience(PATIENCE);
        client.send(&signed(body)).map(|answer| answer.status)
    }

    fn next_event(&mut self) -> Sent {
        let id = format!("evt_{}_{:05}", self.name, self.ledger.sent.len());
        match (self.receivers, self.chance.u32(0..100)) {
            (Receivers::Actor, _) | (_, 0..70) => self.for_actor(id),
            (_, 70..85) => Sent::new(id, "innocent.came", "", 1, Fate::Succeeds),
            (_, 85..92) => self.in_order(id),
            (_, 92..95) => Sent::new(id, "slow.came", r#""sleep_ms":250"#, 1, Fate::Succeeds),
            (Receivers::Crowd { on_postgres: true }, 95..97) => {
                Sent::new(id, "poisoned.came", r#""write":true,"statement_ms":6000"#, 0, Fate::Dies)
            }
            _ => Sent::new(id, "poisoned.came", r#""panic":true"#, 0, Fate::Dies),
        }
    }

    /// One in some gives up, and blocks all that come after it.
    fn in_order(&mut self, id: String) -> Sent {
        let kind = format!("ordered.by_{}", self.name);
        if self.is_blocked {
            return Sent::new(id, &kind, "", 0, Fate::IsBlocked);
        }
        self.is_blocked = self.chance.u32(0..4) == 0;
        match self.is_blocked {
            true => Sent::new(id, &kind, r#""give_up":true"#, 0, Fate::Dies),
            false => Sent::new(id, &kind, "", 1, Fate::Succeeds),
        }
    }

    fn for_actor(&mut self, id: String) -> Sent {
        let account = self.chance.bool().then(|| format!("acct_{}", self.name));
        let (act, effects, gives_up) = self.act(account.as_deref());
        let mut named = account.as_ref().map(|account| format!(r#","account":"{account}""#)).unwrap_or_default();
        if self.receivers != Receivers::Actor && self.chance.u32(0..20) == 0 {
            // Too large to come along with a claim.
            named += &format!(r#","filler":"{}""#, "x".repeat(100_000));
        }
        let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1{named},"act":{{{act}}}}}"#);
        let fate = if gives_up { Fate::Dies } else { Fate::Succeeds };
        Sent { id, body, handler: "actor".into(), effects, fate, is_promised: false }
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

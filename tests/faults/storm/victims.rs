//! Whom the storm strikes: processes, servers, and the links between them.

use std::time::{Duration, Instant};

use hookfast_harness::{
    Address, Frozen, Gateway, Hold, PrivateNats, PrivatePostgres, Proxy, Signal, eventually_within,
};

use super::blows::{Blow, Fault, link_faults};

/// How long a process may take until it runs again.
const TO_START: Duration = Duration::from_secs(90);

/// How long a process may take to end when it is asked to and what it needs is broken.
const TO_END: Duration = Duration::from_secs(90);

/// A process, server or link in the storm.
pub(crate) trait Victim: Send {
    fn name(&self) -> &str;

    /// What can happen to it.
    fn faults(&self) -> Vec<Fault>;

    fn strike(&mut self, fault: Fault);

    /// The blow is over.
    fn recover(&mut self, fault: Fault);

    /// What a supervisor does all the time. Says whether the victim is well.
    fn tend(&mut self) -> bool {
        true
    }

    /// What it did that it must not do.
    fn misdeeds(&self) -> &[String] {
        &[]
    }
}

/// Takes blow after blow until the storm is over. To recover takes time, too, so that there may be fewer than were meant.
pub(crate) fn suffer(victim: &mut dyn Victim, blows: &[Blow], start: Instant, length: Duration) {
    for Blow { calm, fault, lasts } in blows {
        if start.elapsed() + *calm > length {
            break;
        }
        let end = Instant::now() + *calm;
        while Instant::now() < end {
            victim.tend();
            std::thread::sleep(Duration::from_millis(50));
        }
        if victim.tend() {
            eprintln!("{:6.2} s: {} {fault:?} for {lasts:?}", start.elapsed().as_secs_f64(), victim.name());
            victim.strike(*fault);
            std::thread::sleep(*lasts);
            victim.recover(*fault);
        }
    }
}

/// Waits until it is well; there are no more blows.
pub(crate) fn convalesce(victim: &mut dyn Victim) {
    let what = format!("{} is well again", victim.name());
    eventually_within(TO_START, &what, || victim.tend());
}

/// A gateway and its supervisor.
pub(crate) struct Process {
    name: &'static str,
    gateway: Gateway,
    hold: Option<Hold>,
    faults: Vec<Fault>,
    /// The handlers that the deploy leaves.
    deploy: &'static str,
    misdeeds: Vec<String>,
    is_down: bool,
}

impl Process {
    pub(crate) fn new(name: &'static str, gateway: Gateway, faults: &[Fault], deploy: &'static str) -> Self {
        let (faults, misdeeds) = (faults.into(), Vec::new());
        Self { name, gateway, hold: None, faults, deploy, misdeeds, is_down: false }
    }

    /// Asks it to end and waits until it has; what it waits for may stand still.
    fn end_in_order(&mut self) {
        self.gateway.signal(Signal::Term);
        eventually_within(TO_END, "it ends when it is asked to", || !self.gateway.is_running());
    }

    pub(crate) fn address(&self) -> Address {
        self.gateway.address()
    }
}

impl Victim for Process {
    fn name(&self) -> &str {
        self.name
    }

    fn faults(&self) -> Vec<Fault> {
        self.faults.clone()
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => {
                self.gateway.signal(Signal::Kill);
                self.gateway.wait();
                self.is_down = true;
            }
            Fault::Deploy => {
                self.end_in_order();
                self.gateway.change_handlers(self.deploy);
                self.is_down = true;
            }
            Fault::Stop => self.gateway.signal(Signal::Stop),
            Fault::Lock => self.hold = Some(self.gateway.hold_writes()),
            Fault::Wipe | Fault::Break(_) => unreachable!("not for a process"),
        }
    }

    fn recover(&mut self, fault: Fault) {
        self.hold = None;
        if fault == Fault::Stop {
            self.gateway.signal(Signal::Continue);
        }
    }

    /// Starts it again if it is down. Something that it needs may still be away.
    fn tend(&mut self) -> bool {
        if !self.is_down && !self.gateway.is_running() {
            let log = self.gateway.log();
            let last = log.lines().last().unwrap_or_default();
            self.misdeeds.push(format!("{} ended by itself: {last}", self.name));
            self.is_down = true;
        }
        if self.is_down && self.gateway.try_restart() {
            self.is_down = false;
        }
        !self.is_down
    }

    fn misdeeds(&self) -> &[String] {
        &self.misdeeds
    }
}

/// A Postgres, and how it stands still.
pub(crate) struct Database {
    // First, so that it is also dropped first: a server that stands still does not end.
    frozen: Option<Frozen>,
    postgres: PrivatePostgres,
}

impl Database {
    pub(crate) fn new(postgres: PrivatePostgres) -> Self {
        Self { frozen: None, postgres }
    }
}

impl Victim for Database {
    fn name(&self) -> &str {
        "postgres"
    }

    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Kill, Fault::Stop]
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.postgres.kill(),
            _ => self.frozen = Some(self.postgres.freeze()),
        }
    }

    fn recover(&mut self, fault: Fault) {
        match fault {
            Fault::Kill => self.postgres.restart(),
            _ => self.frozen = None,
        }
    }
}

impl Victim for PrivateNats {
    fn name(&self) -> &str {
        "nats"
    }

    fn faults(&self) -> Vec<Fault> {
        vec![Fault::Kill, Fault::Stop, Fault::Wipe]
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Stop => self.stop(),
            _ => self.kill(),
        }
    }

    fn recover(&mut self, fault: Fault) {
        match fault {
            Fault::Stop => self.go_on(),
            Fault::Wipe => self.restart_empty(),
            _ => self.restart(),
        }
    }
}

/// The way from one process to one server.
pub(crate) struct Way {
    name: String,
    proxy: Proxy,
}

impl Way {
    /// A way to the server of this URL, and the URL that leads over it.
    pub(crate) fn new(name: &str, url: &str) -> (Self, String) {
        let proxy = Proxy::to_server_of(url);
        let through = proxy.through(url);
        (Self { name: name.into(), proxy }, through)
    }
}

impl Victim for Way {
    fn name(&self) -> &str {
        &self.name
    }

    fn faults(&self) -> Vec<Fault> {
        link_faults()
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Break(link) => self.proxy.set(link),
            _ => unreachable!("not for a link"),
        }
    }

    fn recover(&mut self, _: Fault) {
        self.proxy.heal();
    }
}

//! What happens to whom and when: all of it follows from the seed.

use std::time::Duration;

use fastrand::Rng;
use hookfast_harness::Link;

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is killed, and started again later.
    Kill,
    /// It stands still, and goes on later.
    Stop,
    /// It is asked to end, and started again with the configuration of the next deploy.
    Deploy,
    /// It is killed, and comes back with an empty disk.
    Wipe,
    /// Another session keeps the database from being written to.
    Lock,
    /// A link is no longer whole.
    Break(Link),
}

/// A fault, how long it is calm before, and how long it lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blow {
    pub(crate) calm: Duration,
    pub(crate) fault: Fault,
    pub(crate) lasts: Duration,
}

/// What a storm is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weather {
    pub(crate) length: Duration,
    /// Milliseconds of calm between two blows for the same victim.
    pub(crate) calm: (u64, u64),
    /// Milliseconds that a blow lasts.
    pub(crate) lasts: (u64, u64),
    /// Whether this may happen to the victim of this name.
    pub(crate) allows: fn(&str, Fault) -> bool,
    /// In the middle, each victim that can be is deployed anew.
    pub(crate) has_deploy: bool,
}

impl Weather {
    /// Everything happens to every victim.
    pub(crate) const MIXED: Self = Self {
        length: Duration::from_secs(40),
        calm: (500, 9000),
        lasts: (50, 4000),
        allows: |_, _| true,
        has_deploy: false,
    };

    /// The same with an orderly restart of all processes in the middle.
    pub(crate) const WITH_A_DEPLOY: Self = Self { has_deploy: true, ..Self::MIXED };

    /// The blows for one victim, until the storm is over.
    pub(crate) fn blows(&self, victim: &str, faults: &[Fault], chance: &mut Rng) -> Vec<Blow> {
        let can_deploy = self.has_deploy && faults.contains(&Fault::Deploy);
        let is_by_chance = |fault: &Fault| *fault != Fault::Deploy && (self.allows)(victim, *fault);
        let faults: Vec<_> = faults.iter().copied().filter(is_by_chance).collect();
        let mut blows = Vec::new();
        let mut time = Duration::ZERO;
        while let Some(fault) = chance.choice(&faults) {
            let blow = Blow { calm: between(self.calm, chance), fault: *fault, lasts: between(self.lasts, chance) };
            time += blow.calm + blow.lasts;
            if time > self.length {
                break;
            }
            blows.push(blow);
        }
        if can_deploy {
            let deploy = Blow { calm: Duration::ZERO, fault: Fault::Deploy, lasts: Duration::ZERO };
            blows.insert(blows.len() / 2, deploy);
        }
        blows
    }
}

/// What can happen to a link.
pub(crate) fn link_faults() -> Vec<Fault> {
    let slow = |milliseconds| Fault::Break(Link::Delayed(Duration::from_millis(milliseconds)));
    let mut faults = [
        Link::Cut,
        Link::Blackhole,
        Link::ClosedByClient,
        Link::ClosedByServer,
        Link::Dripping(Duration::from_micros(50)),
    ]
    .map(Fault::Break)
    .to_vec();
    faults.extend([slow(30), slow(300), Fault::Break(Link::Narrow(1_000_000))]);
    faults
}

fn between((least, most): (u64, u64), chance: &mut Rng) -> Duration {
    Duration::from_millis(chance.u64(least..=most))
}

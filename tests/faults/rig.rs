//! The rigs of the experiments: their settings and switches.

use hookfast_harness::{Database, NatsVersion, PrivateNats, Rig, Setup};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_hookfast-test-worker");

/// Leases that end soon, so that the jobs of the dead run again soon. All other limits are the product's own: a job that was
/// killed too often is visibly dead, and is replayed in the end.
pub(crate) const HASTY: &str = "[work]\nlease = \"2s\"\nsweep_every = \"200ms\"\ndispatch_again_after = \"3s\"\n";

/// Which processes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halves {
    /// One, on SQLite.
    Together,
    /// One that receives and one that works, on Postgres and JetStream.
    Apart,
}

/// A rig whose handler has these settings, and whose processes lack what `FAULT_WITHOUT` names.
pub(crate) fn rig(halves: Halves, actor: &'static str, without: &'static str) -> Rig {
    match halves {
        Halves::Together => Rig::together(settings(HASTY, actor, without)),
        Halves::Apart => apart(PrivateNats::start(NatsVersion::Current), HASTY, actor, without),
    }
}

/// A rig of several processes with this NATS server and these settings of the work.
pub(crate) fn apart(nats: PrivateNats, work: &'static str, actor: &'static str, without: &'static str) -> Rig {
    let url = nats.url();
    Rig::apart(move || settings(work, actor, without).queue(&url)).keeping(nats)
}

/// A rig of one process.
pub(crate) fn together(setup: Setup) -> Rig {
    Rig::together(unhurried(setup).handlers("[handlers.actor]").sections(HASTY))
}

/// Answers may take as long as a busy machine needs.
pub(crate) fn unhurried(setup: Setup) -> Setup {
    setup.ingest("answer_deadline = \"20s\"")
}

fn settings(work: &str, actor: &str, without: &str) -> Setup {
    unhurried(Setup::new(BINARY, Database::Sqlite))
        .handlers(&format!("[handlers.actor]\n{actor}"))
        .sections(work)
        .variable("FAULT_WITHOUT", without)
}

/// Numbers by chance, from `FAULT_SEED` if it is set: then the same ones again.
pub(crate) fn chance() -> fastrand::Rng {
    fastrand::Rng::with_seed(seed())
}

/// `FAULT_SEED`, or a new one. It is printed, so that a run can be repeated.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("FAULT_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a number"));
    eprintln!("To do it again: FAULT_SEED={seed}");
    seed
}

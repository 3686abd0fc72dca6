//! What the experiments share: a gateway in one or two processes, a sender, and what must hold in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use hookfast_harness::{Client, Database, Gateway, PrivateNats, Setup, eventually_within, signed};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_hookfast-test-worker");

/// Leases that end soon, so that the jobs of the dead run again soon. All other limits are the product's own: a job that was
/// killed too often is visibly dead, and is replayed in the end.
pub(crate) const HASTY: &str = "[work]\nlease = \"2s\"\nsweep_every = \"200ms\"\ndispatch_again_after = \"3s\"\n";

/// How long everything may take that is left to do once nothing is broken any more.
pub(crate) const TO_THE_END: Duration = Duration::from_secs(90);

/// Which processes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halves {
    /// One, on SQLite.
    Together,
    /// One that receives and one that works, on Postgres and JetStream.
    Apart,
}

/// The process that is killed, and the one that receives if that is another.
pub(crate) struct Rig {
    receiver: Option<Gateway>,
    worker: Option<Gateway>,
    store: String,
    nats: Option<PrivateNats>,
    work: &'static str,
    actor: &'static str,
    sent: BTreeSet<String>,
    /// The switches in the environment of every process.
    without: &'static str,
}

impl Rig {
    /// Starts the receiver; [`Rig::work`] starts the worker.
    pub(crate) fn new(halves: Halves, actor: &'static str, without: &'static str) -> Self {
        Self::on(halves, HASTY, actor, without, None)
    }

    /// The same with other settings and a server that is there already.
    pub(crate) fn on(
        halves: Halves,
        work: &'static str,
        actor: &'static str,
        without: &'static str,
        nats: Option<PrivateNats>,
    ) -> Self {
        let nats = nats
            .or_else(|| (halves == Halves::Apart).then(|| PrivateNats::start(hookfast_harness::NatsVersion::Current)));
        let mut rig = Self {
            receiver: None,
            worker: None,
            store: String::new(),
            nats,
            work,
            actor,
            sent: BTreeSet::new(),
            without,
        };
        match halves {
            Halves::Together => {
                let gateway = rig.setup(Database::Sqlite).start();
                gateway.wait_for_table("done");
                rig.worker = Some(gateway);
            }
            Halves::Apart => rig.receiver = Some(rig.setup(Database::Postgres).role("receive", &[]).start()),
        }
        rig.store = rig.gateway().store_url().into();
        rig
    }

    fn setup(&self, database: Database) -> Setup {
        let setup = Setup::new(BINARY, database)
            .ingest("answer_deadline = \"20s\"")
            .handlers(&format!("[handlers.actor]\n{}", self.actor))
            .sections(self.work)
            .variable("FAULT_WITHOUT", self.without);
        match &self.nats {
            Some(nats) => setup.queue(&nats.url()),
            None => setup,
        }
    }

    /// Another process that works on the same store.
    pub(crate) fn another_worker(&self, kill_at: &str) -> Gateway {
        let worker = self.worker_setup().variable("FAULT_KILL_AT", kill_at).start();
        worker.wait_for_table("done");
        worker
    }

    /// The same, yet to start.
    pub(crate) fn worker_setup(&self) -> Setup {
        assert!(self.receiver.is_some(), "SQLite is for one process");
        self.setup(Database::Postgres).store(&self.store).role("work", &[])
    }

    /// Another process that receives into the same store.
    pub(crate) fn another_receiver(&self) -> Gateway {
        self.setup(Database::Postgres).store(&self.store).role("receive", &[]).start()
    }

    /// How many messages the server holds.
    pub(crate) fn nats_messages(&self) -> u64 {
        self.nats.as_ref().expect("there is a server").messages()
    }

    /// Starts the worker anew, to be killed where `kill_at` says.
    pub(crate) fn work(&mut self, kill_at: &str) {
        self.worker = Some(match (self.worker.take(), &self.receiver) {
            (Some(worker), None) => worker.with_variable("FAULT_KILL_AT", kill_at).restart(),
            _ => self.another_worker(kill_at),
        });
    }

    pub(crate) fn worker(&mut self) -> &mut Gateway {
        self.worker.as_mut().expect("the worker was started")
    }

    pub(crate) fn nats(&mut self) -> &mut PrivateNats {
        self.nats.as_mut().expect("there is a server")
    }

    /// The process that receives.
    pub(crate) fn gateway(&self) -> &Gateway {
        self.receiver.as_ref().or(self.worker.as_ref()).expect("somebody receives")
    }

    /// Sends an event once. It counts only if it was promised.
    pub(crate) fn send(&mut self, id: &str, act: &str) -> bool {
        let body = format!(r#"{{"id":"{id}","type":"invoice.paid","created":1,"act":{act}}}"#);
        let answer = Client::try_connect(self.gateway().ingest).and_then(|mut client| client.send(&signed(&body)));
        let promised = answer.is_ok_and(|answer| answer.status == 200);
        if promised {
            self.sent.insert(id.into());
        }
        promised
    }

    /// Events that another client sent and that were promised.
    pub(crate) fn note_promises(&mut self, ids: &[String]) {
        self.sent.extend(ids.iter().cloned());
    }

    pub(crate) fn promised(&self) -> usize {
        self.sent.len()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.gateway().query(&format!("SELECT count(*) FROM {what}"))[0][0].parse().unwrap()
    }

    /// How often events came again.
    pub(crate) fn resends(&self) -> usize {
        self.gateway().query("SELECT sum(resends) FROM dedupe_keys")[0][0].parse().unwrap()
    }

    /// Waits until every job is finished.
    pub(crate) fn wait_for_the_end(&self) {
        eventually_within(TO_THE_END, "every job is finished", || {
            self.count("jobs WHERE state IN ('pending', 'processing', 'failed')") == 0
        });
    }

    /// Whatever was promised is there, and its effect once. Gives what is wrong.
    pub(crate) fn broken_promises(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let done = self.gateway().query("SELECT event, count(*) FROM done GROUP BY event");
        let done: std::collections::BTreeMap<_, _> =
            done.into_iter().map(|row| (row[0].clone(), row[1].parse::<usize>().unwrap())).collect();
        broken.extend(
            done.iter().filter(|(_, times)| **times > 1).map(|(id, times)| format!("{id} was done {times} times")),
        );
        broken.extend(self.sent.iter().filter(|id| !done.contains_key(*id)).map(|id| format!("{id} was not done")));
        broken
    }

    /// The end of every experiment in which nothing may be lost and nothing doubled.
    pub(crate) fn assert_kept(&self) {
        self.wait_for_the_end();
        if replay_crashed(self.gateway()) {
            self.wait_for_the_end();
        }
        assert_eq!(self.broken_promises(), Vec::<String>::new());
        assert_eq!(self.count("jobs WHERE state <> 'succeeded'"), 0);
    }
}

/// Gives jobs another chance that are dead because their processes were killed. Says whether there are any.
pub(crate) fn replay_crashed(gateway: &Gateway) -> bool {
    let crashed = gateway.query("SELECT count(*) FROM jobs WHERE state = 'dead_letter' AND reason = 'crash'");
    let is_needed = crashed != [["0"]];
    if is_needed {
        let ended = gateway.command(&["replay", "--failure", "crash", "--why", "they were killed", "--yes"]);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    is_needed
}

//! A gateway at work: one process that receives and works, or one that receives and others that work. It knows what was sent
//! to it, and what must hold in the end.

use std::cell::{Ref, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::{
    Gateway, Ledger, PrivateNats, Senders, Setup, Signal, TestEvent, eventually, eventually_within, fresh_database,
};

/// How long everything may take that is left to do once nothing is broken any more.
pub const TO_THE_END: Duration = Duration::from_secs(90);

/// The clients of a load.
const SENDERS: u64 = 4;

/// More than one sender sends in a round.
const EVENTS_IN_A_ROUND: u64 = 1_000_000;

/// The test worker in one or more processes, with the servers beside it.
pub struct Rig {
    /// The process that receives. It also works if there is no plan for others.
    gateway: Option<Gateway>,
    worker: Option<Gateway>,
    /// A process on the same store that is yet to start.
    plan: Option<Plan>,
    nats: Option<PrivateNats>,
    ledger: RefCell<Ledger>,
    rounds: u64,
}

type Plan = Box<dyn Fn() -> Setup>;

impl Rig {
    /// Starts one process that receives and works.
    pub fn together(setup: Setup) -> Self {
        let gateway = setup.start();
        gateway.wait_for_table("done");
        Self::with(gateway, None)
    }

    /// Starts a process that receives, on a new database of the shared Postgres. [`Rig::work`] starts one that works. `plan`
    /// gives the settings of all of them.
    pub fn apart(plan: impl Fn() -> Setup + 'static) -> Self {
        let store = fresh_database();
        let plan: Plan = Box::new(move || plan().store(&store));
        Self::with(plan().role("receive", &[]).start(), Some(plan))
    }

    fn with(gateway: Gateway, plan: Option<Plan>) -> Self {
        Self { gateway: Some(gateway), worker: None, plan, nats: None, ledger: RefCell::default(), rounds: 0 }
    }

    /// Keeps a server that the gateway uses as long as itself.
    pub fn keeping(mut self, nats: PrivateNats) -> Self {
        self.nats = Some(nats);
        self
    }

    /// The process that receives.
    pub fn gateway(&self) -> &Gateway {
        self.gateway.as_ref().expect("it was started")
    }

    /// The same, to be waited for.
    pub fn gateway_mut(&mut self) -> &mut Gateway {
        self.gateway.as_mut().expect("it was started")
    }

    /// The process that works.
    pub fn worker(&mut self) -> &mut Gateway {
        let worker = if self.plan.is_some() { &mut self.worker } else { &mut self.gateway };
        worker.as_mut().expect("the worker was started")
    }

    /// The NATS server.
    pub fn nats(&mut self) -> &mut PrivateNats {
        self.nats.as_mut().expect("there is a server")
    }

    /// How many messages it holds.
    pub fn nats_messages(&self) -> u64 {
        self.nats.as_ref().expect("there is a server").messages()
    }

    /// Starts the worker anew, to be killed where `kill_at` says, such as `AfterClaim:3`.
    pub fn work(&mut self, kill_at: &str) {
        if self.plan.is_some() {
            self.worker = Some(self.another_worker(kill_at));
        } else {
            self.gateway = self.gateway.take().map(|gateway| gateway.with_variable("FAULT_KILL_AT", kill_at).restart());
        }
    }

    /// Starts another process that works on the same store.
    pub fn another_worker(&self, kill_at: &str) -> Gateway {
        let worker = self.worker_setup().variable("FAULT_KILL_AT", kill_at).start();
        worker.wait_for_table("done");
        worker
    }

    /// The same, yet to start.
    pub fn worker_setup(&self) -> Setup {
        self.planned().role("work", &[])
    }

    /// Starts another process that receives into the same store.
    pub fn another_receiver(&self) -> Gateway {
        self.planned().role("receive", &[]).start()
    }

    fn planned(&self) -> Setup {
        self.plan.as_ref().expect("a rig apart has several processes")()
    }

    /// Kills the process that receives.
    pub fn kill(&mut self) {
        self.gateway_mut().signal(Signal::Kill);
        self.gateway_mut().wait();
    }

    /// Starts it again, after killing it if it runs.
    pub fn restart(&mut self) {
        self.gateway = self.gateway.take().map(Gateway::restart);
    }

    /// Sends an event to the test worker, which does what `act` says, and gets a promise.
    pub fn send(&self, id: &str, act: &str) {
        self.send_event(&TestEvent::new(id, act));
    }

    /// The same with any event.
    pub fn send_event(&self, event: &TestEvent) {
        assert!(self.try_send_event(event), "{} was not promised", event.id);
    }

    /// Sends an event once, and says whether it is promised.
    pub fn try_send(&self, id: &str, act: &str) -> bool {
        self.try_send_event(&TestEvent::new(id, act))
    }

    fn try_send_event(&self, event: &TestEvent) -> bool {
        let start = Instant::now();
        let answer = event.send_to(self.gateway().ingest);
        self.ledger.borrow_mut().note(event, start, answer)
    }

    /// Begins to send events that were never sent before. [`Rig::note`] ends it.
    pub fn load(&mut self) -> Senders {
        self.rounds += 1;
        self.load_of_round(self.rounds)
    }

    /// Begins to send the events of the first load again, as a provider does that got no answer.
    pub fn load_again(&self) -> Senders {
        self.load_of_round(1)
    }

    fn load_of_round(&self, round: u64) -> Senders {
        Senders::of(&self.gateway().address(), SENDERS, round * EVENTS_IN_A_ROUND, event_of_load)
    }

    /// Ends the sending and notes what the senders know.
    pub fn note(&self, senders: Senders) {
        let noted = senders.end();
        self.ledger.borrow_mut().add(noted);
    }

    /// What was sent and promised so far.
    pub fn ledger(&self) -> Ref<'_, Ledger> {
        self.ledger.borrow()
    }

    /// How many rows there are, such as of `jobs WHERE state = 'failed'`.
    pub fn count(&self, rows: &str) -> usize {
        self.gateway().count(rows)
    }

    /// The state of the job of an event, and how often it was tried.
    pub fn job(&self, id: &str) -> (String, u32) {
        let rows = self.gateway().query(&format!(
            "SELECT state, attempts FROM jobs WHERE event_id = (SELECT id FROM events WHERE dedupe_key = '{id}')"
        ));
        let [row] = &rows[..] else { panic!("one job for {id}, not {rows:?}") };
        (row[0].clone(), row[1].parse().unwrap())
    }

    /// Waits until the job of an event is in this state.
    pub fn wait_for(&self, id: &str, state: &str) {
        eventually(&format!("{id} is {state}"), || self.job(id).0 == state);
    }

    /// The effects of an event, in their order.
    pub fn effects(&self, id: &str) -> Vec<String> {
        self.gateway().query(&format!("SELECT effect FROM done WHERE event = '{id}' ORDER BY place")).concat()
    }

    /// Waits until nothing is left in the spool.
    pub fn wait_until_drained(&self) {
        eventually_within(TO_THE_END, "nothing waits in the spool", || {
            self.gateway().command(&["spool", "--json"]).json()["events"] == 0
        });
    }

    /// Waits until every job is finished.
    pub fn wait_for_the_end(&self) {
        eventually_within(TO_THE_END, "every job is finished", || {
            self.count("jobs WHERE state IN ('pending', 'processing', 'failed')") == 0
        });
    }

    /// How often each event was done, once every job is finished.
    pub fn done(&self) -> BTreeMap<String, usize> {
        self.wait_for_the_end();
        let rows = self.gateway().query("SELECT event, count(*) FROM done GROUP BY event");
        rows.into_iter().map(|row| (row[0].clone(), row[1].parse().unwrap())).collect()
    }

    /// What was promised and is not in the store.
    pub fn lost(&self) -> Vec<String> {
        self.ledger().lost(self.gateway().store_url())
    }

    /// Every promise so far is kept: the event is in the store.
    pub fn assert_nothing_is_lost(&self) {
        self.ledger().assert_recorded(self.gateway().store_url());
    }

    /// Everything that is wrong in the store once every job is finished.
    pub fn broken_promises(&self) -> Vec<String> {
        self.wait_for_the_end();
        self.ledger().broken_promises(self.gateway().store_url())
    }

    /// The end of every experiment in which nothing may be lost and nothing doubled. Jobs whose processes were killed too
    /// often are visibly dead, and get another chance.
    pub fn assert_kept(&self) {
        self.wait_for_the_end();
        if self.count("jobs WHERE state = 'dead_letter' AND reason = 'crash'") > 0 {
            let ended = self.gateway().command(&["replay", "--failure", "crash", "--why", "they were killed", "--yes"]);
            assert_eq!(ended.code, 0, "{ended:?}");
        }
        assert_eq!(self.broken_promises(), Vec::<String>::new());
        assert_eq!(self.count("jobs WHERE state <> 'succeeded'"), 0);
        assert_eq!(self.count("jobs"), self.count("events"), "every event has its job");
    }
}

/// Every other event has an effect that shares its commit with others.
fn event_of_load(serial: u64) -> TestEvent {
    TestEvent::new(&format!("evt_{serial}"), &format!(r#"{{"write":{}}}"#, serial.is_multiple_of(2)))
}

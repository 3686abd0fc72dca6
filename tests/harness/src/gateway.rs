//! The real binary at work.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hookfast_store::{EventSummary, Migrate, OpenError, Store, StoredEvent, open};
use hookfast_webhook::EventId;

use crate::setup::Started;
use crate::{Address, Client, Ended, Hold, Setup, Signal, database, process};

/// The request for the metrics.
const METRICS: &[u8] = b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// How long a gateway that stands still is waited for before its log is read as it is.
const LOOK_AT_METRICS_FOR: Duration = Duration::from_secs(5);

/// A running gateway; it is killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    setup: Setup,
    started: Started,
    address: Address,
    /// Where providers post.
    pub ingest: SocketAddr,
    /// Where operators look.
    pub admin: SocketAddr,
}

impl Gateway {
    pub(crate) fn new(setup: Setup, started: Started) -> Self {
        let address = Address::new(started.ingest);
        Self { setup, address, ingest: started.ingest, admin: started.admin, started }
    }

    /// Where providers post now, and after each further start.
    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// A connection to the ingest listener.
    pub fn client(&self) -> Client {
        Client::connect(self.ingest)
    }

    /// What the gateway logged so far. One that runs is given the time to write the lines that wait.
    pub fn log(&self) -> String {
        crate::eventually("the log is written", || self.waiting_log_lines().is_none_or(|lines| lines == 0.0));
        fs::read_to_string(&self.started.log).unwrap()
    }

    /// How many log lines wait to be written; none if it has ended, or stands still.
    fn waiting_log_lines(&self) -> Option<f64> {
        let mut client = Client::try_connect(self.admin).ok()?.with_patience(LOOK_AT_METRICS_FOR);
        let metrics = client.raw(METRICS).ok()?.text();
        metrics.lines().find_map(|line| line.strip_prefix("hookfast_log_lines_waiting ")?.parse().ok())
    }

    /// What it printed since it was last started.
    pub fn printed(&self) -> String {
        self.started.printed.lock().unwrap().clone()
    }

    /// The folder it runs in.
    pub fn folder(&self) -> &Path {
        self.setup.folder.path()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        let process = self.started.process.id();
        if self.setup.wrapper.is_empty() {
            return process;
        }
        process::children(process).first().copied().unwrap_or(process)
    }

    /// The most memory it ever had.
    pub fn peak_memory_bytes(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// The processor time it has used since it was started.
    pub fn cpu_time(&self) -> Duration {
        const TICK: Duration = Duration::from_millis(10);
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // The name in brackets may hold blanks; user and system time are the 12th and 13th field after it.
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |field: usize| fields[field].parse::<u32>().expect("a number");
        TICK * (ticks(11) + ticks(12))
    }

    /// The store's URL.
    pub fn store_url(&self) -> &str {
        &self.setup.store_url
    }

    /// What the metrics say, as text.
    pub fn metrics(&self) -> String {
        let mut client = Client::connect(self.admin);
        client.raw(METRICS).expect("metrics answer").text()
    }

    /// The value of one series, such as `hookfast_duplicates_total{source="stripe"}`.
    pub fn metric(&self, series: &str) -> f64 {
        let metrics = self.metrics();
        let value = metrics.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("no series {series} in:\n{metrics}"))
    }

    /// The value of one series if there is one.
    pub fn metric_if_any(&self, series: &str) -> Option<f64> {
        self.metrics().lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }

    /// Has the configuration read again, and waits until that is done.
    pub fn reload(&self) {
        const DONE: &str = "the configuration was reloaded";
        let before = self.log().matches(DONE).count();
        self.signal(Signal::Hangup);
        crate::eventually(DONE, || self.log().matches(DONE).count() > before);
    }

    /// Sends a signal.
    pub fn signal(&self, which: Signal) {
        assert!(process::try_signal(self.pid(), which), "{which:?} could not be sent to the gateway");
    }

    /// Waits for the process to end.
    pub fn wait(&mut self) -> ExitStatus {
        self.started.process.wait().expect("the process is ours")
    }

    /// Whether the process has not ended yet.
    pub fn is_running(&mut self) -> bool {
        self.started.process.try_wait().expect("the process is ours").is_none()
    }

    /// The number of the signal that ended the process, if one did.
    pub fn killed_by(&mut self) -> Option<i32> {
        self.wait().signal()
    }

    /// Sets a variable of its environment, for the next time it is started.
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.setup.set_variable(name, value);
        self
    }

    /// Writes a configuration with these sections of handlers, for SIGHUP or for the next time it is started.
    pub fn change_handlers(&mut self, sections: &str) {
        self.setup.change_handlers(sections);
    }

    /// Asks it to end, waits until it has, and starts it again on the same folder and store.
    pub fn restart_in_order(mut self) -> Self {
        self.signal(Signal::Term);
        let status = self.wait();
        assert!(status.success(), "it did not end well: {status}: {}", self.log());
        self.restart()
    }

    /// Starts the binary again on the same folder and store, without the wrapper, after killing it if it runs.
    pub fn restart(mut self) -> Self {
        self.end();
        self.setup.wrapper.clear();
        self.restart_wrapped()
    }

    /// The same, with the wrapper.
    pub fn restart_wrapped(mut self) -> Self {
        self.end();
        self.is_now(self.setup.spawn());
        self
    }

    /// Kills it, unless it has ended.
    fn end(&mut self) {
        if let Ok(None) = self.started.process.try_wait() {
            process::try_signal(self.pid(), Signal::Kill);
            let _ = self.started.process.wait();
        }
    }

    /// Starts the binary again after its end, and says whether it became ready. Where something it needs is away, it may
    /// not.
    pub fn try_restart(&mut self) -> bool {
        self.setup.try_spawn().map(|started| self.is_now(started)).is_some()
    }

    fn is_now(&mut self, started: Started) {
        (self.ingest, self.admin) = (started.ingest, started.admin);
        self.address.set(started.ingest);
        self.started = started;
    }

    /// Runs another command, such as `["events", "list"]`, with the same configuration.
    pub fn command(&self, arguments: &[&str]) -> Ended {
        self.setup.command(arguments)
    }

    /// Runs SQL on its database, beside it.
    pub fn sql(&self, statements: &str) {
        database::run(self.store_url(), statements);
    }

    /// The rows of a query on its database, each with its columns as text.
    pub fn query(&self, statement: &str) -> Vec<Vec<String>> {
        database::query(self.store_url(), statement)
    }

    /// How many rows there are, such as of `jobs WHERE state = 'failed'`.
    pub fn count(&self, rows: &str) -> usize {
        self.query(&format!("SELECT count(*) FROM {rows}"))[0][0].parse().expect("a number")
    }

    /// How many jobs of a handler are in a state.
    pub fn count_jobs(&self, handler: &str, state: &str) -> usize {
        self.count(&format!("jobs WHERE handler = '{handler}' AND state = '{state}'"))
    }

    /// Waits until a table is there. A gateway is ready before its handlers have theirs, because receiving does not wait.
    pub fn wait_for_table(&self, name: &str) {
        let tables = match self.store_url().starts_with("sqlite:") {
            true => "sqlite_master WHERE type = 'table' AND name",
            false => "pg_tables WHERE tablename",
        };
        let statement = format!("SELECT count(*) FROM {tables} = '{name}'");
        crate::eventually(&format!("the table {name} is there"), || self.query(&statement) == [["1"]]);
    }

    /// Keeps every gateway on this database from recording until the hold is dropped.
    pub fn hold_writes(&self) -> Hold {
        Hold::on(self.store_url())
    }

    /// Everything in the store, newest first.
    pub fn events(&self) -> Vec<EventSummary> {
        self.with_store(async |store| store.latest_events(u32::MAX >> 1).await.expect("the store answers"))
    }

    /// One event, whole.
    pub fn event(&self, id: EventId) -> StoredEvent {
        self.with_store(async move |store| store.event(id).await.expect("the store answers").expect("it is there"))
    }

    /// The handlers that have a job for an event.
    pub fn jobs(&self, id: EventId) -> Vec<String> {
        let jobs = self.with_store(async move |store| store.jobs_of(id).await.expect("the store answers"));
        jobs.into_iter().map(|job| job.handler).collect()
    }

    fn with_store<T>(&self, ask: impl AsyncFnOnce(&dyn Store) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = self.setup.store_url.parse().expect("a store's URL");
            let config = hookfast_store::Config::new(url);
            let store = open_in_the_end(&config).await;
            let answer = ask(&*store).await;
            store.close().await;
            answer
        })
    }
}

/// The store's own patience is too short for a busy machine.
async fn open_in_the_end(config: &hookfast_store::Config) -> Arc<dyn Store> {
    let start = Instant::now();
    loop {
        match open(config, Migrate::Never).await {
            Err(OpenError::Unreachable { .. }) if start.elapsed() < Duration::from_secs(30) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return opened.expect("the store opens"),
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}

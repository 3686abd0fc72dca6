//! Experiments that take minutes: every attack at once, and each attack beside genuine traffic. Times depend on the machine,
//! so `tests/run attacks --siege` runs them alone, on a release build, in a network of their own.

use std::fs;
use std::io::{PipeReader, Read, pipe};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use hookfast_harness::{Database, Gateway, Setup, eventually, eventually_within, query};

use super::BINARY;
use super::arsenal::{OPEN_SOURCE, arsenal};
use super::attackers::{Attack, Attackers, Origin};
use super::good_traffic::{GoodTraffic, Served};

/// Genuine requests in a second.
const GOOD_PER_SECOND: u32 = 200;

/// How fast the log of a besieged gateway is read.
const LOG_BYTES_PER_SECOND: usize = 20_000;

/// The defaults of `body_memory` and `connections`, and what is allowed beside them.
const BODY_MEMORY_BYTES: usize = 256 << 20;
const OTHER_MEMORY_BYTES: usize = 150_000_000;
const CONNECTIONS: usize = 4_096;
const OTHER_FILES: usize = 128;

/// When all attackers have gone, this many files more than before may be open: those of the store's own connections.
const FILES_LEFT: usize = 64;

/// What data files may have beside ten times the size of what was taken: the log of a database.
const LOG_OF_DATABASE_BYTES: u64 = 128 << 20;

/// How long things last, unless `SIEGE_SECONDS` says otherwise: a siege, and each part of the comparison.
const SIEGE: Duration = Duration::from_secs(600);
const COMPARED: Duration = Duration::from_secs(10);

fn length(usual: Duration) -> Duration {
    let told = std::env::var("SIEGE_SECONDS").ok();
    told.map_or(usual, |seconds| Duration::from_secs(seconds.parse().expect("SIEGE_SECONDS is a number")))
}

/// The gateway of `TEST_SIEGE_BINARY`, which may be built for release, with the limits that it has by default.
fn setup_on(database: Database) -> Setup {
    let binary = std::env::var("TEST_SIEGE_BINARY").unwrap_or_else(|_| BINARY.into());
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    Setup::new(&binary, database)
        .spool("spool = \"hookfast-spool.db\"")
        .handlers("[handlers.ledger]\nrun = \"log\"")
        .sections(OPEN_SOURCE)
}

/// What was seen of a siege.
struct Siege {
    served: Served,
    /// At most, while it lasted.
    open_files: usize,
    connections: usize,
    files_before: usize,
}

fn open_files(gateway: &Gateway) -> usize {
    fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap().count()
}

fn connections(gateway: &Gateway) -> usize {
    gateway.metric("hookfast_connections") as usize
}

/// Reads slowly, to the end.
fn read_slowly(mut log: PipeReader) {
    let mut buffer = vec![0; LOG_BYTES_PER_SECOND / 10];
    while log.read(&mut buffer).is_ok_and(|count| count > 0) {
        thread::sleep(Duration::from_millis(100));
    }
}

/// Every attack at once for this time, each from several addresses of its own, while genuine requests come in.
fn besiege(gateway: &Gateway, length: Duration) -> Siege {
    let good = GoodTraffic::start(gateway.ingest, GOOD_PER_SECOND, 0);
    thread::sleep(Duration::from_secs(1));
    let files_before = open_files(gateway);
    let attacks = (1..).zip(arsenal()).map(|(block, attack)| (attack, Origin::addresses(block, 4))).collect();
    let attackers = Attackers::start(gateway.ingest, gateway.admin, attacks);
    let (start, mut most) = (Instant::now(), (0, 0));
    while start.elapsed() < length {
        thread::sleep(Duration::from_millis(250));
        most = (most.0.max(open_files(gateway)), most.1.max(connections(gateway)));
    }
    let served = good.end();
    eprintln!("{}", attackers.end());
    Siege { served, open_files: most.0, connections: most.1, files_before }
}

impl Siege {
    /// What does not hold, in words. Nothing, if the gateway withstood.
    fn problems(&self, gateway: &Gateway) -> Vec<String> {
        let Self { served, open_files: most_files, connections: most_connections, .. } = self;
        let (refused, p99, memory) =
            (served.refused_percent(), served.percentile_ms(0.99), gateway.peak_memory_bytes());
        eprintln!(
            "good: {} requests, {refused:.2} % refused {:?}, p50 {:.1} ms, p99 {p99:.1} ms, max {:.1} ms\n\
             gateway: peak memory {} MB, at most {most_files} files and {most_connections} connections",
            served.requests(),
            served.refused,
            served.percentile_ms(0.5),
            served.percentile_ms(1.0),
            memory / 1_000_000,
        );
        let judged = [
            (refused <= 1.0, format!("{refused:.2} % of genuine requests were refused: {:?}", served.refused)),
            (p99 < 500.0, format!("the p99 of genuine requests was {p99:.0} ms")),
            (memory < BODY_MEMORY_BYTES + OTHER_MEMORY_BYTES, format!("memory reached {memory} bytes")),
            (*most_connections <= CONNECTIONS, format!("{most_connections} connections were open")),
            (*most_files <= CONNECTIONS + OTHER_FILES, format!("{most_files} files were open")),
        ];
        judged.into_iter().filter(|(holds, _)| !holds).map(|(_, problem)| problem).collect()
    }
}

/// Connections and files are back where they were before the siege.
fn assert_recovers(gateway: &Gateway, siege: &Siege) {
    eventually("connections are back", || connections(gateway) < 50);
    let allowed = siege.files_before + FILES_LEFT;
    eventually("files are closed", || open_files(gateway) <= allowed);
}

/// Every event that was promised is there once, and is handled.
fn assert_promises_kept(gateway: &Gateway, served: &Served) {
    const PATIENCE: Duration = Duration::from_secs(120);
    eventually_within(PATIENCE, "the spool is drained", || {
        gateway.metric_if_any("hookfast_spool_events").is_none_or(|events| events == 0.0)
    });
    let mut keys: Vec<_> = gateway.events().into_iter().map(|event| (event.source, event.dedupe_key)).collect();
    let stored = keys.len();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), stored, "every event is there once");
    let is_stored = |key: &String| keys.binary_search(&("stripe".into(), key.clone())).is_ok();
    let lost: Vec<_> = served.promised.iter().filter(|key| !is_stored(key)).collect();
    assert!(lost.is_empty(), "{} of {} promised events are lost: {lost:?}", lost.len(), served.promised.len());
    eventually_within(PATIENCE, "every event is handled", || {
        gateway.query("SELECT count(*) FROM jobs WHERE state <> 'succeeded'") == [["0"]]
    });
}

fn size_of_files(folder: &Path, prefix: &str) -> u64 {
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let ours = files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix));
    ours.map(|file| file.metadata().unwrap().len()).sum()
}

/// What was taken costs at most ten times its size; a spool keeps its bound.
fn assert_data_within_bounds(gateway: &Gateway, database: Database) {
    let taken: f64 = ["stripe", "garmin"].map(|source| gateway.metric(&taken_bytes(source))).iter().sum();
    let store = match database {
        Database::Sqlite => size_of_files(gateway.folder(), "hookfast.db"),
        Database::Postgres => {
            query(gateway.store_url(), "SELECT pg_database_size(current_database())")[0][0].parse().unwrap()
        }
    };
    let spool = size_of_files(gateway.folder(), "hookfast-spool.db");
    eprintln!(
        "data: {:.1} MB of bodies taken, store {} MB, spool {} MB",
        taken / 1e6,
        store / 1_000_000,
        spool / 1_000_000
    );
    assert!(store < 10 * taken as u64 + LOG_OF_DATABASE_BYTES, "the store has {store} bytes for {taken} bytes");
    assert!(spool < (1 << 30) + LOG_OF_DATABASE_BYTES, "the spool has {spool} bytes");
}

/// The bodies that a source took.
fn taken_bytes(source: &str) -> String {
    format!("hookfast_ingest_payload_bytes_sum{{source=\"{source}\"}}")
}

fn withstands(database: Database) {
    let (log, writer) = pipe().unwrap();
    thread::spawn(move || read_slowly(log));
    let gateway = setup_on(database).log_into(writer).start();
    let siege = besiege(&gateway, length(SIEGE));
    let problems = siege.problems(&gateway);
    assert_recovers(&gateway, &siege);
    assert_promises_kept(&gateway, &siege.served);
    assert_data_within_bounds(&gateway, database);
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
#[ignore = "takes ten minutes: tests/run attacks --siege"]
fn sqlite_withstands_a_siege() {
    withstands(Database::Sqlite);
}

#[test]
#[ignore = "takes ten minutes: tests/run attacks --siege"]
fn postgres_withstands_a_siege() {
    withstands(Database::Postgres);
}

/// With few places, and attackers that count as trusted, the same siege refuses genuine requests: it can be lost.
#[test]
#[ignore = "needs a quiet machine: tests/run attacks --siege"]
fn without_its_limits_a_gateway_falls() {
    let limits = "connections = 8\ntrusted_proxies = [\"127.0.0.0/8\"]";
    let gateway = setup_on(Database::Sqlite).ingest(limits).start();
    let siege = besiege(&gateway, Duration::from_secs(20));
    let problems = siege.problems(&gateway);
    assert!(problems.iter().any(|problem| problem.contains("were refused")), "{problems:?}");
    assert_promises_kept(&gateway, &siege.served);
}

/// Genuine requests while this attack is under way, or none is, and what the attack got.
fn beside(gateway: &Gateway, first: u64, attack: Option<(Attack, Origin)>) -> (Served, String) {
    let attackers = Attackers::start(gateway.ingest, gateway.admin, attack.into_iter().collect());
    // An attack has its full weight only after some time.
    thread::sleep(Duration::from_secs(1));
    let good = GoodTraffic::start(gateway.ingest, GOOD_PER_SECOND, first);
    thread::sleep(length(COMPARED));
    (good.end(), attackers.end())
}

/// Alone, an attack may have more connections and a higher rate than as one of many.
fn alone(attack: Attack) -> Attack {
    Attack { connections: 4 * attack.connections, per_second: 4.0 * attack.per_second, ..attack }
}

/// Each attack from one IPv4 address, from one IPv6 network of /48 and from ten addresses, with the limits at their
/// defaults. Refusals are bounded; how much slower genuine requests become is shown, because that is a matter of the cores
/// that attackers and gateway share here.
#[test]
#[ignore = "takes ten minutes: tests/run attacks --siege"]
fn one_attacker_costs_others_little() {
    let gateway = setup_on(Database::Sqlite).variable("HOOKFAST_INGEST__LISTEN", "[::]:0").start();
    let origins = [("one IPv4 address", 1.0), ("one IPv6 /48", 1.0), ("ten IPv4 addresses", 5.0)];
    let make = |origin: &str| match origin {
        "one IPv4 address" => Origin::addresses(100, 1),
        "one IPv6 /48" => Origin::network(),
        _ => Origin::addresses(100, 10),
    };
    let mut serials = (1..).map(|number: u64| number * 1_000_000);
    let mut measure = |attack| beside(&gateway, serials.next().unwrap(), attack);
    let quiet = measure(None).0;
    let show = |name: &str, origin: &str, served: &Served| {
        let (refused, p99) = (served.refused_percent(), served.percentile_ms(0.99));
        let slower = if p99 < 2.0 * quiet.percentile_ms(0.99) { "" } else { "more than doubled" };
        let p50 = served.percentile_ms(0.5);
        eprintln!("{name:<20} {origin:<20} refused {refused:>6.2} %  p50 {p50:>6.1} ms  p99 {p99:>7.1} ms  {slower}");
    };
    show("no attack", "", &quiet);
    let mut missed = Vec::new();
    for (origin, allowed_percent) in origins {
        for attack in arsenal().into_iter().filter(|attack| !attack.at_admin) {
            let name = attack.name;
            let (served, told) = measure(Some((alone(attack), make(origin))));
            show(name, origin, &served);
            eprint!("{}", told.lines().skip(1).map(|line| format!("    {line}\n")).collect::<String>());
            if served.refused_percent() >= allowed_percent {
                missed.push(format!("{name} from {origin}: {:?}", served.refused));
            }
        }
    }
    assert_eq!(missed, Vec::<String>::new());
}

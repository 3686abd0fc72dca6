use super::*;
use crate::bodies::{self, Bodies};
use crate::footprint::{self, Footprint};
use crate::ingest::{Ingest, Latency, Throughput};
use crate::machine::Machine;
use crate::process::{self, Process, Setup};
use crate::server::Store;
use crate::statistics::Percentiles;
use crate::stored::{self, Stored};
use crate::workplace::Kind;

fn machine() -> Machine {
    Machine {
        command: "tests/run bench --quick".into(),
        date: "2026-11-16".into(),
        commit: "0123456789ab".into(),
        processor: "A Processor @ 2 GHz".into(),
        cores: 2,
        memory: "8.0 GB".into(),
        kernel: "6.1.0".into(),
        load_before: "0.05".into(),
        median_fsync_ms: 0.25,
        postgres: "15.1".into(),
        nats_server: "2.15.1".into(),
        graphile_worker: "0.18.0".into(),
    }
}

fn percentiles(p50_ms: f64) -> Percentiles {
    Percentiles { p50_ms, p99_ms: p50_ms * 4.0, p999_ms: p50_ms * 10.0 }
}

/// The p99 of SQLite is within its target (4 x 0.8 + 4 x 0.25 = 4.2), the one of Postgres is not.
fn ingest() -> Ingest {
    let throughput = |setup, store, per_second| Throughput {
        setup,
        store,
        per_second,
        ratio_to_floor: per_second / 80_000.0,
        latency: percentiles(2.0),
        cpu_us: 45.0,
        refused: 0,
    };
    let latency = |store, p50_ms| Latency {
        store,
        share_of_capacity: 0.5,
        per_second: 10_000.0,
        gateway: percentiles(p50_ms),
        floor: percentiles(0.2),
        refused: 3,
    };
    Ingest {
        throughput: vec![
            throughput("floor", None, 80_000.0),
            throughput("SQLite", Some(Store::Sqlite), 44_000.0),
            throughput("Postgres", Some(Store::Postgres), 24_000.0),
        ],
        latency: vec![latency(Store::Sqlite, 1.0), latency(Store::Postgres, 1.1)],
        median_fsync_ms: 0.25,
    }
}

/// A backlog of a million, but not ten million events.
fn stored() -> Stored {
    let row = |events, jobs_waiting, ratio_to_empty| stored::Row {
        store: Store::Sqlite,
        events,
        jobs_waiting,
        per_second: 44_000.0 * ratio_to_empty,
        ratio_to_empty,
        refused: 0,
    };
    Stored { rows: vec![row(0, 0, 1.0), row(1_000_000, 0, 0.97), row(1_000_000, 1_000_000, 0.8)] }
}

fn process() -> Process {
    let row = |setup, jobs_per_second: f64, live_jobs_per_second| process::Row {
        setup,
        jobs_per_second,
        ratio_to_graphile: Some(jobs_per_second / 2000.0),
        ratio_to_ingest: Some(jobs_per_second / 20_000.0),
        live_jobs_per_second,
    };
    Process {
        rows: vec![row(Setup::Graphile, 2000.0, None), row(Setup::Work(Kind::Jetstream), 12_000.0, Some(11_000.0))],
    }
}

fn footprint() -> Footprint {
    let row = |store, idle_mb| footprint::Row {
        store,
        idle_mb,
        full_load_mb: 90.0,
        ready_ms: 35.0,
        bytes_per_event: 1850.0,
        refused: 0,
    };
    Footprint { rows: vec![row(Store::Sqlite, 25.0), row(Store::Postgres, 41.0)], binary_bytes: 20_000_000 }
}

fn bodies() -> Bodies {
    let row = bodies::Row {
        bodies: "16 KB",
        store: Some(Store::Postgres),
        connections: 256,
        per_second: 6000.0,
        megabytes_per_second: 98.3,
        ratio_to_floor: 0.15,
        refused: 0,
    };
    Bodies { rows: vec![row] }
}

fn report() -> Report {
    Report {
        ingest: Some(ingest()),
        bodies: Some(bodies()),
        stored: Some(stored()),
        process: Some(process()),
        footprint: Some(footprint()),
        ..Report::new(machine())
    }
}

/// Without the text about the method, which may be put better at any time.
fn without_methods(page: &str) -> String {
    let (start, sections) = page.split_once("\n## Receiving\n").unwrap_or((page, ""));
    let is_result = |line: &&str| line.starts_with(['|', '#']) || *line == "Not measured.";
    let results: Vec<_> = sections.lines().filter(is_result).collect();
    let (_, tables) = start.split_once("\n## ").unwrap_or_default();
    format!("## {tables}\n## Receiving\n{}\n", results.join("\n"))
}

#[test]
fn the_page_holds_what_was_measured_and_says_what_was_not() {
    let page = without_methods(&write(&report()));
    assert_eq!(page, include_str!("golden.md"), "if it should be so now, it is the new golden.md:\n{page}");
}

#[test]
fn a_page_about_nothing_claims_nothing() {
    let page = write(&Report::new(machine()));
    assert!(!page.contains("| met") && !page.contains("| not met"), "{page}");
    assert_eq!(page.matches("\nNot measured.\n").count(), 7);
    assert!(page.contains("| `tests/run bench --quick`"));
}

#[test]
fn the_summary_holds_only_what_was_measured() {
    let summary = summary(&Report { footprint: Some(footprint()), ..Report::new(machine()) });
    assert!(summary.contains("Memory, start and disk:\n\n| store"), "{summary}");
    assert!(!summary.contains("Receiving"), "{summary}");
}

#[test]
fn programs_get_numbers_and_verdicts() -> serde_json::Result<()> {
    let everything: serde_json::Value = serde_json::from_str(&json(&report())?)?;
    assert_eq!(everything["machine"]["cores"], 2);
    assert_eq!(everything["ingest"]["throughput"][1]["store"], "sqlite");
    assert_eq!(everything["mixed"], serde_json::Value::Null);
    assert_eq!(everything["targets"][0]["verdict"], "met");
    assert_eq!(everything["targets"][1]["verdict"], "not met");
    Ok(())
}

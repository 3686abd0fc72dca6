//! Experiment 11: the life of a job as a property. Random steps of workers, sweepers and operators are done to a store and
//! to a plain model of it; after each one both must have answered the same, and the database must hold what the model holds.
//!
//! Whoever wants to write about a job shows any token that was ever handed out. Nobody waits: leases and delays are zero or
//! an hour, and hours pass by a statement. `FAULT_SEED` does a sequence again that failed.

mod job;
mod model;
mod reader;
mod sequence;
mod steps;
mod verbs;

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use hookfast_store::driver::sqlx::postgres::PgConnectOptions;
use hookfast_store::driver::sqlx::{Connection, PgConnection, SqliteConnection};
use hookfast_store::{Config, Migrate};

use reader::Reader;
use sequence::Sequence;
use steps::Step;

/// In each of eight parts.
const SEQUENCES: usize = 125;
const STEPS: usize = 25;
/// Few, so that the steps get in each other's way.
const EVENTS: usize = 4;
const HANDLERS: usize = 2;

/// What an intruder's step says in the list of steps.
const INTRUDES: &str = "by somebody who does not hold the job";
const DISAGREE: &str = "the store (left) and the model (right) disagree";

/// In parts that run side by side, so that none takes long.
macro_rules! parts {
    ($($part:ident)*) => {
        $(mod $part {
            #[tokio::test]
            async fn sqlite_does_what_the_model_does() {
                super::follow_the_model_on_sqlite(&std::env::temp_dir()).await;
            }

            #[tokio::test]
            async fn postgres_does_what_the_model_does() {
                super::follow_the_model_on_postgres().await;
            }
        })*
    };
}

parts! { part_1 part_2 part_3 part_4 part_5 part_6 part_7 part_8 }

/// Experiment 30: as many as a night has time for, on a file that is no more than memory.
#[tokio::test]
#[ignore = "nightly: 20,000 sequences"]
async fn sqlite_does_what_the_model_does_in_twenty_thousand_sequences() {
    for _ in 0..20_000 / SEQUENCES {
        follow_the_model_on_sqlite(Path::new("/dev/shm")).await;
    }
}

#[test]
fn without_the_fence_sqlite_does_not_do_what_the_model_does() {
    assert_intruded("machine::part_1::sqlite_does_what_the_model_does");
}

#[test]
fn without_the_fence_postgres_does_not_do_what_the_model_does() {
    assert_intruded("machine::part_1::postgres_does_what_the_model_does");
}

/// Runs a test of this program without the fence: it must fail, and at a step that the fence is for.
fn assert_intruded(test: &str) {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", test, "--nocapture"]).env("FAULT_WITHOUT", "Fence").env_remove("FAULT_SEED");
    let output = again.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(DISAGREE), "{said}");
    let last_step = said.lines().rfind(|line| line.starts_with("step ")).expect("the steps are listed");
    assert!(last_step.ends_with(INTRUDES), "{said}");
}

async fn follow_the_model_on_sqlite(folder: &Path) {
    let folder = tempfile::tempdir_in(folder).unwrap();
    let path = folder.path().join("test.db");
    let url = format!("sqlite:{}", path.display());
    // The store refuses a file that all users have access to.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap();
    let reader = Reader::Sqlite(SqliteConnection::connect(&url).await.unwrap());
    follow_the_model(&url, reader).await;
}

async fn follow_the_model_on_postgres() {
    let url = hookfast_harness::fresh_database();
    // As the store does it, or Postgres would go on as if the tables were still empty.
    let settings = [("enable_seqscan", "off"), ("jit", "off"), ("plan_cache_mode", "force_generic_plan")];
    let options = PgConnectOptions::from_str(&url).unwrap().options(settings);
    let reader = Reader::Postgres(PgConnection::connect_with(&options).await.unwrap());
    follow_the_model(&url, reader).await;
}

async fn follow_the_model(url: &str, mut reader: Reader) {
    let config = Config {
        parallel_batches: 1,
        worker_connections: 2,
        dispatch_grace: Duration::ZERO,
        ..Config::new(url.parse().unwrap())
    };
    let store = hookfast_store::open(&config, Migrate::Run).await.unwrap();
    // Without a unique index, so that doing it twice shows.
    let table = "CREATE TABLE done (event TEXT NOT NULL, handler TEXT NOT NULL); CREATE INDEX done_by ON done (event)";
    store.prepare(table).await.unwrap();
    for (number, seed) in seeds().into_iter().enumerate() {
        let mut sequence = Sequence::new(&store, &mut reader, number, seed);
        sequence.take(Step::Record(vec![0, 1])).await;
        for _ in 0..STEPS {
            let step = sequence.any_step();
            sequence.take(step).await;
        }
        sequence.come_to_the_end().await;
    }
    store.close().await;
}

fn seeds() -> Vec<u64> {
    match std::env::var("FAULT_SEED") {
        Ok(seed) => vec![seed.parse().expect("a seed is a number")],
        Err(_) => std::iter::repeat_with(|| fastrand::u64(..)).take(SEQUENCES).collect(),
    }
}

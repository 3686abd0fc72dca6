//! The spool, and what Postgres does with what was in it.

use std::sync::Arc;
use std::time::Duration;

use hookfast_store::{
    Behind, Check, Config, LateStore, Migrate, NewJob, NotTaken, OpenError, Recorded, Routed, Spool, SpoolConfig,
    Spooled, Store, StoreError,
};
use hookfast_webhook::Priority;
use sqlx::Connection;

use crate::database::{
    Database, batch, claim_one, event, event_with_body, job_of, make_private, new_job, paid, routed,
};
use crate::heads::assert_has_head;
use crate::upgrade::only;

pub(crate) const WITHIN: Duration = Duration::from_secs(5);

pub(crate) struct Rig {
    folder: tempfile::TempDir,
    pub(crate) postgres: Database,
    pub(crate) late: Arc<LateStore>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let (folder, postgres) = (tempfile::tempdir().unwrap(), Database::postgres());
        let late = LateStore::new(&Config::new(postgres.url.parse().unwrap()), Migrate::Run).unwrap();
        late.open().await.unwrap();
        Self { folder, postgres, late: Arc::new(late) }
    }

    pub(crate) fn config(&self) -> SpoolConfig {
        SpoolConfig { path: self.folder.path().join("spool.db"), max_bytes: 8 << 20 }
    }

    pub(crate) async fn spool(&self) -> Spool {
        Spool::open(&self.config()).await.unwrap()
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        self.postgres.open().await
    }

    /// A connection to the file of the spool, past the spool.
    pub(crate) async fn file(&self) -> sqlx::SqliteConnection {
        let url = format!("sqlite:{}?mode=rwc", self.config().path.display());
        sqlx::SqliteConnection::connect(&url).await.unwrap()
    }

    async fn heads_in_spool(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM request_heads").fetch_one(&mut self.file().await).await.unwrap()
    }
}

fn keys(events: &[Spooled], routed: &[Routed]) -> Vec<usize> {
    let place = |event: &Spooled| routed.iter().position(|routed| routed.event.id() == event.id()).unwrap();
    events.iter().map(place).collect()
}

#[tokio::test]
async fn what_goes_through_the_spool_is_in_postgres_as_if_it_had_gone_there_directly() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let jobs = |id: &str| {
        let keyed = NewJob { ordering_key: Some("acct_1".into()), priority: Priority::High, ..new_job("ledger") };
        Routed { event: event("stripe", id), jobs: vec![keyed, new_job("mail")] }
    };
    let (direct, spooled) = (jobs("evt_1"), jobs("evt_2"));
    store.record(std::slice::from_ref(&direct)).await.unwrap();
    spool.add(std::slice::from_ref(&spooled)).await.unwrap();
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN).await.unwrap(), [Recorded::New]);

    let mut expected = store.event(direct.event.id()).await.unwrap().unwrap();
    let found = store.event(spooled.event.id()).await.unwrap().unwrap();
    let body = String::from_utf8(expected.body).unwrap().replace("evt_1", "evt_2").into_bytes();
    expected.summary.id = found.summary.id;
    (expected.summary.dedupe_key, expected.provider_event_id) = ("evt_2".into(), Some("evt_2".into()));
    (expected.body, expected.request_id) = (body, found.request_id);
    // Another body has another signature.
    assert_eq!(found.headers.iter().count(), expected.headers.iter().count());
    expected.headers = found.headers.clone();
    assert_eq!(found, expected);
    assert_eq!(found.request_id, spooled.event.delivery().arrival.request_id.0);
    let jobs = rig.postgres.number(
        "SELECT count(*) FROM jobs AS one JOIN jobs AS other USING (handler, priority, state)
         WHERE one.event_id < other.event_id AND one.ordering_key IS NOT DISTINCT FROM other.ordering_key",
    );
    assert_eq!(jobs.await, 2);
}

#[tokio::test]
async fn the_oldest_come_first_and_no_more_than_asked_for() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    let events: Vec<_> = (0..600).map(|number| paid(&format!("evt_{number}"))).collect();
    spool.add(&events[..599]).await.unwrap();
    spool.add(&events[599..]).await.unwrap();
    let first = spool.oldest(10, u64::MAX).await.unwrap();
    assert_eq!(keys(&first, &events), (0..10).collect::<Vec<_>>());
    assert_eq!(spool.oldest(10, 0).await.unwrap().len(), 1, "one that is larger than allowed comes alone");
    spool.remove(&first).await.unwrap();
    let rest = spool.oldest(1000, u64::MAX).await.unwrap();
    assert_eq!(keys(&rest, &events), (10..600).collect::<Vec<_>>());
    assert!(rest.iter().all(|event| event.jobs().len() == 1));
}

#[tokio::test]
async fn the_head_of_a_request_goes_with_each_part_of_its_events() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let events = [batch(&["evt_1", "evt_2", "evt_3"]), vec![paid("evt_4")], batch(&["evt_5", "evt_6"])].concat();
    spool.add(&events).await.unwrap();
    assert_eq!(rig.heads_in_spool().await, 2);
    spool.set_aside(events[0].event.id(), "refused by a trigger").await.unwrap();
    // Its request is drained in three parts: two together, and what was set aside alone.
    for (count, left) in [(1, 2), (3, 2), (10, 1)] {
        let oldest = spool.oldest(count, u64::MAX).await.unwrap();
        rig.late.record_spooled(&oldest, WITHIN).await.unwrap();
        spool.remove(&oldest).await.unwrap();
        assert_eq!(rig.heads_in_spool().await, left);
    }
    let aside = spool.event(events[0].event.id()).await.unwrap().unwrap();
    rig.late.record_spooled(std::slice::from_ref(&aside), WITHIN).await.unwrap();
    spool.remove(&[aside]).await.unwrap();
    assert_eq!(rig.heads_in_spool().await, 0);
    assert_eq!(rig.postgres.number("SELECT count(*) FROM request_heads").await, 2);
    for routed in &events {
        assert_has_head(&store, routed).await;
    }
}

#[tokio::test]
async fn what_came_again_through_the_spool_leaves_no_head() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let first = batch(&["evt_1", "evt_2"]);
    store.record(&first).await.unwrap();
    spool.add(&batch(&["evt_1", "evt_2"])).await.unwrap();
    spool.add(&first).await.unwrap();
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();
    let expected = [Recorded::Duplicate, Recorded::Duplicate];
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN).await.unwrap(), expected);
    assert_eq!(rig.postgres.number("SELECT count(*) FROM request_heads").await, 1);
    spool.remove(&oldest).await.unwrap();
    assert_eq!(rig.heads_in_spool().await, 0);
}

#[tokio::test]
async fn a_head_counts_once_in_what_is_drained_together() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    let events = batch(&["evt_1", "evt_2", "evt_3", "evt_4"]);
    spool.add(&events).await.unwrap();
    let body = events[0].event.body().len() as u64;
    let headers = |(name, value): (&http::HeaderName, &http::HeaderValue)| name.as_str().len() + value.len() + 3;
    let request = &events[0].event.delivery().request;
    let head = (request.url.len() + request.headers.iter().map(headers).sum::<usize>()) as u64;
    assert_eq!(spool.oldest(10, head + 3 * body).await.unwrap().len(), 3);
    assert_eq!(spool.oldest(10, head + 3 * body - 1).await.unwrap().len(), 2);
}

#[tokio::test]
async fn what_an_older_version_left_in_the_spool_is_drained_with_its_headers() {
    let rig = Rig::new().await;
    let mut file = rig.file().await;
    only("spool", "0001_spool.sql").await.run(&mut file).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO events VALUES (1, unhex('01890000000070008000000000000001'), 'stripe', 'evt_1', 'invoice.paid',
             NULL, NULL, 1, 'signature', unhex('01890000000070008000000000000002'), '::1', 'POST', 'https://h.example/',
             x'613a20310a', NULL, NULL, x'7b7d');
         INSERT INTO jobs VALUES (unhex('01890000000070008000000000000001'), 'ledger', 'normal', NULL)",
    )
    .execute(&mut file)
    .await
    .unwrap();
    file.close().await.unwrap();
    make_private(&rig.config().path);
    let (spool, store) = (rig.spool().await, rig.store().await);
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN).await.unwrap(), [Recorded::New]);
    let claimed = claim_one(&store, &job_of(oldest[0].id(), "ledger")).await;
    assert_eq!(claimed.event.url, "https://h.example/");
    assert_eq!(claimed.event.headers.iter().collect::<Vec<_>>(), [("a", &b"1"[..])]);
}

/// An operator may upgrade because of the outage that filled the spool.
#[tokio::test]
async fn a_spool_that_an_older_version_filled_is_opened_and_drained() {
    let rig = Rig::new().await;
    let mut file = rig.file().await;
    sqlx::raw_sql("PRAGMA page_size = 8192").execute(&mut file).await.unwrap();
    only("spool", "0001_spool.sql").await.run(&mut file).await.unwrap();
    sqlx::raw_sql(
        "WITH RECURSIVE numbers (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < 79)
         INSERT INTO events SELECT n, unhex(printf('018900000000700080%014x', n)), 'stripe', 'evt_' || n, 'invoice.paid',
             NULL, NULL, 1, 'signature', unhex('01890000000070008000000000000002'), '::1', 'POST', 'https://h.example/',
             x'613a20310a', NULL, NULL, zeroblob(100000) FROM numbers",
    )
    .execute(&mut file)
    .await
    .unwrap();
    file.close().await.unwrap();
    let path = rig.config().path;
    make_private(&path);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes > rig.config().max_bytes * 9 / 10, "{bytes}");

    let (spool, _store) = (rig.spool().await, rig.store().await);
    let refused = spool.add(&[routed(event_with_body("stripe", &"x".repeat(1 << 20)), &[])]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let oldest = spool.oldest(100, u64::MAX).await.unwrap();
    assert_eq!(oldest.len(), 79);
    spool.set_aside(oldest[0].id(), "refused by a trigger").await.unwrap();
    rig.late.record_spooled(&oldest[1..], WITHIN).await.unwrap();
    spool.remove(&oldest[1..]).await.unwrap();
    assert_eq!(spool.status().await.unwrap().events, 1);
}

/// The connection broke in the commit, so the events went into the spool as well.
#[tokio::test]
async fn an_event_that_postgres_has_under_its_own_id_is_no_resend() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let known = paid("evt_1");
    store.record(std::slice::from_ref(&known)).await.unwrap();
    spool.add(&[known, paid("evt_1"), paid("evt_2"), paid("evt_2")]).await.unwrap();
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();
    let expected = [Recorded::New, Recorded::New];
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN).await.unwrap(), expected);
    assert_eq!(rig.postgres.resends().await, 2);

    // Killed before they left the spool, the next start drains them once more.
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN).await.unwrap(), expected);
    assert_eq!(rig.postgres.resends().await, 2);
    assert_eq!(rig.postgres.number("SELECT count(*) FROM events").await, 2);
    assert_eq!(rig.postgres.number("SELECT count(*) FROM jobs").await, 2);
}

/// What was cut off comes through after the spool was drained.
#[tokio::test]
async fn a_commit_that_comes_late_changes_nothing() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let late = [paid("evt_1"), paid("evt_1")];
    spool.add(&late).await.unwrap();
    rig.late.record_spooled(&spool.oldest(10, u64::MAX).await.unwrap(), WITHIN).await.unwrap();
    // The second time it asks before it inserts.
    for _ in 0..2 {
        store.record(&late).await.unwrap();
        assert_eq!(rig.postgres.resends().await, 1);
        assert_eq!(rig.postgres.number("SELECT count(*) FROM jobs").await, 1);
    }
    store.record(&[paid("evt_1")]).await.unwrap();
    assert_eq!(rig.postgres.resends().await, 2, "a real one is still noted");
}

/// What was cut off comes through in the moment in which the spool is drained.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_waits_for_the_drainer_changes_nothing() {
    let rig = Rig::new().await;
    let store = rig.store().await;
    // From then on it asks before it inserts.
    store.record(&[paid("evt_0"), paid("evt_0")]).await.unwrap();
    let late = paid("evt_1");
    let mut drainer = sqlx::PgConnection::connect(&rig.postgres.url).await.unwrap();
    let mut draining = drainer.begin().await.unwrap();
    sqlx::query("INSERT INTO dedupe_keys (source, dedupe_key, event_id) VALUES ('stripe', 'evt_1', $1)")
        .bind(late.event.id().0)
        .execute(&mut *draining)
        .await
        .unwrap();
    let recording = tokio::spawn(async move { store.record(&[late]).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while rig.postgres.number(waits).await == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    draining.commit().await.unwrap();
    recording.await.unwrap().unwrap();
    assert_eq!(rig.postgres.resends().await, 1, "evt_0 alone came again");
}

/// What was cut off may still be on its way in Postgres while the spool is drained already.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_whose_commit_is_still_under_way_is_no_resend_either() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let routed = paid("evt_1");
    spool.add(std::slice::from_ref(&routed)).await.unwrap();
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();

    rig.postgres
        .execute(
            "",
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN new; END $$;
             CREATE TRIGGER wait AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION wait()",
        )
        .await;
    let mut hold = sqlx::PgConnection::connect(&rig.postgres.url).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(7)").execute(&mut hold).await.unwrap();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let wait_for = async |count: i64| {
        while rig.postgres.number(waiting).await < count {
            tokio::task::yield_now().await;
        }
    };
    let first = tokio::spawn(async move { store.record(&[routed]).await });
    wait_for(1).await;
    let late = Arc::clone(&rig.late);
    let drained = tokio::spawn(async move { late.record_spooled(&oldest, WITHIN).await });
    wait_for(2).await;
    sqlx::query("SELECT pg_advisory_unlock(7)").execute(&mut hold).await.unwrap();
    assert_eq!(first.await.unwrap().unwrap(), [Recorded::New]);
    assert_eq!(drained.await.unwrap().unwrap(), [Recorded::New]);
    assert_eq!(rig.postgres.resends().await, 0);
    assert_eq!(rig.postgres.number("SELECT count(*) FROM events").await, 1);
}

#[tokio::test]
async fn what_postgres_refuses_stays_out_of_the_way_until_the_next_start() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    let events = [paid("evt_1"), paid("evt_2")];
    spool.add(&events).await.unwrap();
    spool.set_aside(events[0].event.id(), "refused by a trigger").await.unwrap();
    assert_eq!(keys(&spool.oldest(10, u64::MAX).await.unwrap(), &events), [1]);
    let status = spool.status().await.unwrap();
    assert_eq!((status.events, status.refused), (2, 1));
    spool.close().await;
    drop(spool);
    assert_eq!(keys(&rig.spool().await.oldest(10, u64::MAX).await.unwrap(), &events), [0, 1]);
}

#[tokio::test]
async fn a_full_spool_refuses_and_takes_again_when_it_is_drained() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    spool.check().await.unwrap();
    let sized = |number: usize, bytes: usize| {
        let body = format!(r#"{{"id":"evt_{number}","type":"t","padding":"{}"}}"#, "x".repeat(bytes));
        [Routed { event: event_with_body("stripe", &body), jobs: vec![] }]
    };
    let mut number = 0;
    let mut fill = async |bytes| loop {
        number += 1;
        if let Err(error) = spool.add(&sized(number, bytes)).await {
            return error;
        }
    };
    let refused = fill(1 << 20).await;
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    let status = spool.status().await.unwrap();
    assert!(status.events == 5 && status.bytes <= 8 << 20, "{status:?}");
    fill(1 << 15).await;
    assert!(spool.check().await.is_err(), "it knows that it is full");

    let oldest = spool.oldest(2, u64::MAX).await.unwrap();
    spool.remove(&oldest).await.unwrap();
    spool.check().await.unwrap();
    spool.add(&sized(0, 1 << 20)).await.unwrap();
}

#[tokio::test]
async fn two_processes_cannot_have_the_same_spool() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    let Err(refusal) = Spool::open(&rig.config()).await else { panic!("it was opened twice") };
    assert!(refusal.to_string().contains("another process is using it"), "{refusal}");
    spool.add(&[paid("evt_1")]).await.unwrap();
    let (status, _) = Spool::look(&rig.config().path, 10).await.unwrap().unwrap();
    assert_eq!((status.events, status.oldest.is_some()), (1, true), "looking is allowed");
    drop(spool);
    assert_eq!(rig.spool().await.status().await.unwrap().events, 1);
}

#[tokio::test]
async fn a_postgres_that_is_not_there_yet_is_opened_when_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let unreachable = format!("postgres://postgres@{}/none", folder.path().display().to_string().replace('/', "%2F"));
    let late = LateStore::new(&Config::new(unreachable.parse().unwrap()), Migrate::Run).unwrap();
    assert!(matches!(late.open().await, Err(OpenError::Unreachable { .. })));
    assert!(matches!(late.reach().await, Err(StoreError::Unavailable(_))));
    assert!(late.get().is_none());

    let late = LateStore::new(&Config::new(Database::postgres().url.parse().unwrap()), Migrate::Run).unwrap();
    assert!(matches!(late.record_spooled(&[], WITHIN).await, Err(NotTaken::Away(_))), "it was not reached yet");
    late.reach().await.unwrap();
    late.check().await.unwrap();
    assert!(late.get().is_some());
}

/// The bytes of a large event cross a narrow link for longer than any statement may take.
#[tokio::test(flavor = "multi_thread")]
async fn one_event_alone_may_take_longer_than_a_batch() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    spool.add(&[paid("evt_1")]).await.unwrap();
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();
    rig.postgres
        .execute(
            "",
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF new.dedupe_key = 'evt_1' THEN PERFORM pg_sleep(6); END IF; RETURN new; END $$;
             CREATE TRIGGER wait AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION wait()",
        )
        .await;
    let late = rig.late.record_spooled(&oldest, WITHIN).await;
    assert!(matches!(late, Err(NotTaken::TooMuch(_))), "{late:?}");
    rig.late.takes_events().await.unwrap();
    assert_eq!(rig.postgres.number("SELECT count(*) FROM events").await, 0, "trying it out leaves nothing behind");
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN * 4).await.unwrap(), [Recorded::New]);
}

#[tokio::test]
async fn a_full_spool_has_room_for_the_note_that_an_event_is_set_aside() {
    let rig = Rig::new().await;
    let spool = rig.spool().await;
    let mut events = Vec::new();
    loop {
        let more: Vec<_> = (0..100).map(|_| paid(&format!("evt_{}", uuid::Uuid::new_v4()))).collect();
        match spool.add(&more).await {
            Ok(_) => events.extend(more),
            Err(_) => break,
        }
    }
    let reason = "refused ".repeat(2000);
    for routed in &events[..3] {
        spool.set_aside(routed.event.id(), &reason).await.unwrap();
    }
    let (status, aside) = Spool::look(&rig.config().path, 2).await.unwrap().unwrap();
    assert_eq!((status.refused, aside.len(), aside[0].id), (3, 2, events[0].event.id()));
}

//! What providers and operators see on an ordinary day.

use hookfast_harness::{Database, Setup, sample};

fn a_signed_event_is_recorded_with_its_job(database: Database) {
    let gateway = Setup::new(env!("CARGO_BIN_EXE_hookfast"), database).start();
    let request = sample(1);
    assert_eq!(gateway.client().send(&request).unwrap().status, 200);

    let events = gateway.events();
    assert_eq!(events.len(), 1);
    assert_eq!(gateway.event(events[0].id).body, request.body);
    assert_eq!(gateway.jobs(events[0].id), ["ledger"]);
}

mod sqlite {
    #[test]
    fn a_signed_event_is_recorded_with_its_job() {
        super::a_signed_event_is_recorded_with_its_job(super::Database::Sqlite);
    }
}

mod postgres {
    #[test]
    fn a_signed_event_is_recorded_with_its_job() {
        super::a_signed_event_is_recorded_with_its_job(super::Database::Postgres);
    }
}

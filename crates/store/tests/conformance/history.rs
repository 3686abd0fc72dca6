//! What runs leave behind: attempts and effects, of all jobs of an event at once.

use std::slice;

use hookfast_webhook::EventId;
use uuid::Uuid;

use crate::database::{Database, broom, effect, event, failed, job_of, routed, settle, wish};

async fn the_attempts_and_effects_of_all_jobs_of_an_event_come_at_once(database: Database) {
    let store = database.open().await;
    let [one, other] = ["evt_1", "evt_2"].map(|id| routed(event("stripe", id), &["ledger", "mail", "audit"]));
    store.record(&[one.clone(), other.clone()]).await.unwrap();
    for (routed, name, runs) in [(&one, "ledger", 2), (&one, "mail", 1), (&other, "ledger", 1)] {
        let job = job_of(routed.event.id(), name);
        for _ in 0..runs {
            let claimed = store.claim(&wish(&job.handler, &[job.event])).await.unwrap().remove(0);
            for key in ["b", "a"] {
                let begun = store.begin_effect(&effect(&claimed, key)).await.unwrap();
                begun.transaction.commit(&effect(&claimed, key), None).await.unwrap();
            }
            settle(&store, &claimed, failed()).await;
            database.let_time_pass().await;
            store.sweep(&broom(slice::from_ref(&job.handler))).await.unwrap();
        }
    }
    let attempts = store.attempts(one.event.id()).await.unwrap();
    let numbers = |name: &str| attempts[name].iter().map(|attempt| attempt.number).collect::<Vec<_>>();
    assert_eq!((attempts.len(), numbers("ledger"), numbers("mail")), (2, vec![1, 2], vec![1]));
    let effects = store.effects(one.event.id()).await.unwrap();
    let keys = |name: &str| effects[name].iter().map(|effect| effect.key.as_str()).collect::<Vec<_>>();
    assert_eq!((effects.len(), keys("ledger"), keys("mail")), (2, vec!["a", "b"], vec!["a", "b"]));
    assert_eq!(store.attempts(EventId(Uuid::now_v7())).await.unwrap().len(), 0);
}

on_both! {
    the_attempts_and_effects_of_all_jobs_of_an_event_come_at_once
}

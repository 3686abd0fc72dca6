//! A handler puts a job off: it is run again later, and nothing is counted.

use hookfast_store::Outcome;
use hookfast_webhook::{FailureKind, JobState};

use crate::database::{Database, HOUR, attempts_of, claim_one, is_in, job, lose_leases, record_jobs, settle};

async fn a_job_that_is_put_off_does_not_count_and_its_history_shows_it(database: Database) {
    let store = database.open().await;
    let id = record_jobs(&store, 1).await.remove(0);
    for times in 1..=3 {
        let claimed = claim_one(&store, &id).await;
        assert_eq!((claimed.attempt, claimed.interruptions, claimed.crashes), (1, 0, 0));
        settle(&store, &claimed, Outcome::Snoozed { message: "put off".into(), retry_in: HOUR }).await;
        let waiting = job(&store, &id).await;
        assert_eq!(
            (waiting.state, waiting.attempts, waiting.reason.as_deref()),
            (JobState::Failed, 0, Some("snoozed"))
        );
        assert!(is_in(waiting.due_at, HOUR), "{}", waiting.due_at);
        let attempts = attempts_of(&store, &id).await;
        let attempts: Vec<_> = attempts.iter().map(|run| (run.failure, run.message.as_deref())).collect();
        assert_eq!(attempts, vec![(Some(FailureKind::Snoozed), Some("put off")); times]);
        lose_leases(&database, &store).await;
    }
}

on_both! {
    a_job_that_is_put_off_does_not_count_and_its_history_shows_it
}

//! Jobs of a handler that is no longer configured are moved to another handler, or resolved.

use super::*;

fn of_gone(onto: Option<&str>) -> Abandon {
    let filter = Filter { handler: Some("gone".into()), ..Filter::default() };
    Abandon {
        selection: Selection { which: Which::Unfinished, filter, onto: onto.map(name), limit: None },
        resolution: onto.is_none().then_some(Resolution::Ignored),
        who: "ann@desk".into(),
        why: "it was renamed".into(),
    }
}

impl World {
    async fn abandon(&self, order: &Abandon) -> Result<Outcome, ActError> {
        abandon(&*self.store, order, &handlers(), |_| {}, &CancellationToken::new()).await
    }
}

#[tokio::test]
async fn jobs_of_a_handler_that_is_gone_are_counted_and_marked() {
    let world = World::new().await;
    world.record("invoice.paid", 3, &["gone", "ledger"]).await;
    world.dead("charge.refunded", 2, &["gone"]).await;
    let seen = summary(&*world.store, &handlers()).await.unwrap();
    let seen: Vec<_> = seen.iter().map(|jobs| (jobs.handler.as_str(), jobs.is_configured, jobs.unfinished())).collect();
    assert_eq!(seen, [("gone", false, 3), ("ledger", true, 3)]);
}

#[tokio::test]
async fn waiting_jobs_of_a_handler_that_is_gone_are_moved_and_those_that_a_worker_has_are_not() {
    let world = World::new().await;
    let events = world.record("invoice.paid", 4, &["gone"]).await;
    let charges = world.record("charge.refunded", 1, &["gone"]).await;
    let both = world.record("invoice.sent", 1, &["gone", "ledger"]).await;
    let failed = hookfast_store::Outcome::Failed {
        kind: FailureKind::Network,
        message: "no route".into(),
        retry_in: Duration::from_secs(60),
    };
    world.settle("gone", &events[1..2], failed).await;
    world.claim("gone", &events[2..3]).await;
    let outcome = world.abandon(&of_gone(Some("ledger"))).await.unwrap();
    assert_eq!(outcome.progress, Progress { found: 6, changed: 4, skipped: 1 });
    for event in [events[0], events[1], events[3]] {
        assert_eq!(world.states(event).await, ["gone resolved", "ledger pending"]);
    }
    assert_eq!(world.states(events[2]).await, ["gone processing"]);
    assert_eq!(world.states(charges[0]).await, ["gone pending"], "the ledger wants no charges");
    assert_eq!(world.states(both[0]).await, ["gone resolved", "ledger pending"]);
    assert_eq!(
        world.store.jobs_of(events[1]).await.unwrap()[0].review.as_ref().map(|review| review.resolution),
        Some(Resolution::Moved)
    );
    assert_eq!(world.store.attempts(events[1]).await.unwrap()["gone"].len(), 1, "history stays");
    let audit = world.store.audit(outcome.audit).await.unwrap().unwrap();
    assert_eq!((audit.action, audit.jobs, audit.is_done), (Action::Move, 4, true));
    let noted = r#"{"selection":{"which":"unfinished","handler":"gone","onto":"ledger"}}"#;
    assert_eq!(without_moment(&audit.filter), noted);
}

#[tokio::test]
async fn waiting_jobs_of_a_handler_that_is_gone_are_resolved_as_of_the_preview() {
    let world = World::new().await;
    let events = world.record("invoice.paid", 3, &["gone"]).await;
    let mut order = of_gone(None);
    order.selection = order.selection.as_of_now(&*world.store).await.unwrap();
    let late = world.record("invoice.sent", 1, &["gone"]).await;
    assert_eq!(world.abandon(&order).await.unwrap().progress.changed, 3);
    assert_eq!(world.states(events[0]).await, ["gone resolved"]);
    assert_eq!(
        world.store.jobs_of(events[0]).await.unwrap()[0].review.as_ref().map(|review| review.resolution),
        Some(Resolution::Ignored)
    );
    assert_eq!(world.states(late[0]).await, ["gone pending"]);
}

#[tokio::test]
async fn only_jobs_of_handlers_that_are_gone_are_moved_or_resolved_and_only_to_one_that_is_there() {
    let world = World::new().await;
    let event = world.record("invoice.paid", 1, &["ledger", "gone"]).await[0];
    let mut order = of_gone(None);
    order.selection.filter.handler = Some("ledger".into());
    assert!(matches!(world.abandon(&order).await, Err(ActError::StillConfigured(name)) if name == "ledger"));
    order.selection.filter.handler = None;
    assert!(matches!(world.abandon(&order).await, Err(ActError::NoOrigin)));
    assert!(matches!(world.abandon(&of_gone(Some("nowhere"))).await, Err(ActError::NoHandler { .. })));
    let no_reason = Abandon { why: " ".into(), ..of_gone(None) };
    assert!(matches!(world.abandon(&no_reason).await, Err(ActError::NoReason(_))));
    assert_eq!(world.states(event).await, ["gone pending", "ledger pending"]);
    assert_eq!(world.store.latest_audits(9).await.unwrap(), []);
}

#[tokio::test]
async fn an_interrupted_move_goes_on_with_the_limit_and_the_moment_that_it_had() {
    let world = World::new().await;
    let events = world.record("invoice.paid", 450, &["gone"]).await;
    let mut order = of_gone(Some("mail"));
    order.selection.limit = Some(440);
    let stop = CancellationToken::new();
    let outcome = abandon(&*world.store, &order, &handlers(), |_| stop.cancel(), &stop).await.unwrap();
    assert!(!outcome.is_done && outcome.progress.changed < 440);
    world.record("invoice.sent", 5, &["gone"]).await;
    assert!(matches!(world.resume(outcome.audit).await, Err(ActError::NotResumable(..))), "it is no replay");
    let stop = CancellationToken::new();
    let rest = resume_abandon(&*world.store, outcome.audit, &handlers(), |_| {}, &stop).await.unwrap();
    assert_eq!((rest.is_done, outcome.progress.changed + rest.progress.changed), (true, 440));
    assert_eq!(world.states(events[439]).await, ["gone resolved", "mail pending"]);
    assert_eq!(world.count(Which::Unfinished).await, 440 + 10 + 5);
}

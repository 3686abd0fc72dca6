//! A job gets the same ordering key when its event is recorded and when it is replayed.

use hookfast_webhook::KeyFacts;

use super::*;

#[tokio::test]
async fn a_replay_makes_the_ordering_key_that_recording_makes() {
    let world = World::new().await;
    let charge = world.dead("charge.refunded", 1, &["ledger"]).await[0];
    let stored = world.store.event(charge).await.unwrap().unwrap();
    let orderings = [
        ("none", Ordering::None),
        ("account", Ordering::PerAccount),
        ("type", Ordering::PerEventType),
        ("computed", Ordering::Computed(Arc::new(|body| Some(body.len().to_string())))),
        ("panics", Ordering::Computed(Arc::new(|_| panic!("on purpose")))),
        ("strict", Ordering::Strict),
    ];
    let subscription = |handler: &str, ordering| {
        let interests = vec!["*/*".parse().unwrap()];
        Subscription { handler: name(handler), interests, ordering, priority: None }
    };
    let handlers = Targets::new(orderings.iter().map(|(handler, ordering)| subscription(handler, ordering.clone())));
    for (handler, ordering) in orderings {
        let stop = CancellationToken::new();
        replay(&*world.store, &onto(Which::DeadLetters, handler), &handlers, |_| {}, &stop).await.unwrap();
        world.settle(handler, &[charge], hookfast_store::Outcome::Succeeded).await;
        let filter = Filter { handler: Some(handler.into()), ..Filter::default() };
        let found = world.store.find(Which::Succeeded, &filter, None, 9).await.unwrap();
        let account = stored.summary.account.as_deref();
        let facts = KeyFacts { source: "stripe", account, event_type: "charge.refunded", body: &stored.body };
        assert_eq!(found[0].ordering_key, ordering.key(&facts), "{handler}");
    }
}

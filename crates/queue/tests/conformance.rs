//! Every method of the queue, with the same expectations in memory and on two versions of nats-server. Then tests of what only
//! servers do: they stop, come back and lose messages.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/place.rs"]
mod place;

use std::collections::{BTreeMap, HashSet};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream;
use hookfast_queue::{Config, Dispatched, Hint, QueueError, open};
use hookfast_webhook::{HandlerName, Priority};
use tokio::time::{sleep, timeout};

use place::*;

async fn a_dispatched_hint_is_pulled_as_it_was(place: Place) {
    let queue = place.open().await;
    assert_eq!(queue.is_shared(), place.nats.is_some());
    for priority in Priority::ALL {
        let sent = hint(priority);
        assert_eq!(queue.dispatch(slice::from_ref(&sent)).await, queued(1));
        assert_eq!(finish(&queue, 1).await, [sent]);
    }
    assert_eq!(queue.check().await, Ok(()));
    assert_eq!(queue.dispatch(&[]).await, queued(0));
}

async fn a_pull_waits_until_there_is_something(place: Place) {
    let queue = place.open().await;
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { finish(&queue, 1).await }
    });
    assert!(timeout(Duration::from_millis(200), queue.pull(&ledger(), 1)).await.is_err(), "there is nothing yet");
    let sent = hint(Priority::Low);
    queue.dispatch(slice::from_ref(&sent)).await;
    assert_eq!(soon("the pull ends", waiting).await.unwrap(), [sent]);
}

async fn a_job_that_waits_or_is_handled_is_not_queued_twice(place: Place) {
    let queue = place.open().await;
    let sent = hints(3);
    assert_eq!(queue.dispatch(&sent).await, queued(3));
    let again = Dispatched { waiting_already: 3, ..Default::default() };
    assert_eq!(queue.dispatch(&sent).await, again, "they wait");
    let mut pulled = Vec::new();
    while pulled.len() < 3 {
        pulled.extend(pull(&queue, 3).await);
    }
    assert_eq!(queue.dispatch(&sent).await, again, "they are being handled");
    for pulled in pulled {
        pulled.acknowledge().await;
    }
    // The acknowledgements may reach a server a little later.
    let mut queued = 0;
    while queued < 3 {
        queued += queue.dispatch(&sent).await.queued;
    }
    assert_eq!(set(&finish(&queue, 3).await), set(&sent), "what is done can be queued again");
}

async fn a_job_that_stands_twice_in_a_batch_is_queued_once(place: Place) {
    let queue = place.open().await;
    let sent = hint(Priority::Normal);
    let dispatched = queue.dispatch(&[sent.clone(), sent.clone()]).await;
    assert_eq!(dispatched, Dispatched { queued: 1, waiting_already: 1, not_queued: 0 });
}

async fn handlers_get_their_own_hints(place: Place) {
    let queue = place.open().await;
    // This handler was not served when the queue was opened.
    let mail = mail();
    queue.serve(&[ledger(), mail.clone()]).await;
    let (ours, theirs) = (hint(Priority::Normal), Hint { handler: mail.clone(), ..hint(Priority::High) });
    dispatch_all(&queue, &[ours.clone(), theirs.clone()]).await;
    let mut pulled = soon("a hint for mail", queue.pull(&mail, 10)).await;
    assert_eq!(pulled.len(), 1);
    assert_eq!(pulled.remove(0).hint, theirs);
    assert_eq!(finish(&queue, 1).await, [ours]);
}

async fn no_more_comes_than_asked_for(place: Place) {
    let queue = place.open().await;
    dispatch_all(&queue, &hints(20)).await;
    assert!(queue.pull(&ledger(), 0).await.is_empty());
    let mut finished = 0;
    while finished < 20 {
        let pulled = pull(&queue, 3).await;
        assert!((1..=3).contains(&pulled.len()), "{}", pulled.len());
        finished += pulled.len();
        for pulled in pulled {
            pulled.acknowledge().await;
        }
    }
}

async fn what_is_urgent_goes_first(place: Place) {
    let queue = place.open().await;
    let sent = Priority::ALL.map(|priority| [priority; 20]).concat().into_iter().map(hint);
    dispatch_all(&queue, &sent.rev().collect::<Vec<_>>()).await;
    let mut finished = Vec::new();
    while finished.len() < 60 {
        finished.extend(finish(&queue, 1).await);
    }
    let [high, normal, low] = Priority::ALL.map(|priority| {
        let places = finished.iter().enumerate().filter(|(_, hint)| hint.priority == priority);
        places.map(|(place, _)| place).sum::<usize>()
    });
    assert!(high < normal && normal < low, "{high} {normal} {low}");
}

async fn what_is_not_urgent_gets_its_turn(place: Place) {
    let queue = place.open().await;
    let urgent: Vec<_> = std::iter::repeat_with(|| hint(Priority::High)).take(300).collect();
    let low: Vec<_> = std::iter::repeat_with(|| hint(Priority::Low)).take(5).collect();
    dispatch_all(&queue, &urgent).await;
    dispatch_all(&queue, &low).await;
    let mut first = Vec::new();
    while first.len() < 200 {
        for pulled in pull(&queue, 10).await {
            first.push(pulled.hint.clone());
            pulled.acknowledge().await;
        }
    }
    let came = first.iter().filter(|hint| hint.priority == Priority::Low).count();
    assert_eq!(came, 5, "while urgent ones still wait");
}

async fn what_is_not_acknowledged_comes_again(place: Place) {
    let queue = place.open_with(|config| config.ack_wait = Duration::from_secs(1)).await;
    let sent = hint(Priority::Normal);
    queue.dispatch(slice::from_ref(&sent)).await;
    for _ in 0..2 {
        let pulled = pull(&queue, 5).await;
        assert_eq!(pulled.iter().map(|pulled| &pulled.hint).collect::<Vec<_>>(), [&sent]);
    }
    assert_eq!(finish(&queue, 1).await, [sent]);
}

/// With an `ack_wait` longer than the test, nothing comes from the server a second time.
async fn a_pull_that_is_dropped_loses_nothing(place: Place) {
    let queue = place.open_with(|config| config.ack_wait = Duration::from_secs(600)).await;
    let sent = hints(300);
    let mut came = HashSet::new();
    for part in sent.chunks(20) {
        dispatch_all(&queue, part).await;
        for microseconds in [0, 50, 200, 800] {
            let pulled = timeout(Duration::from_micros(microseconds), queue.pull(&ledger(), 7)).await;
            for pulled in pulled.unwrap_or_default() {
                came.insert(pulled.hint.clone());
                pulled.acknowledge().await;
            }
        }
    }
    came.extend(finish(&queue, sent.len() - came.len()).await);
    assert_eq!(came, set(&sent));
}

async fn a_full_queue_takes_no_more_until_there_is_room(place: Place) {
    let queue = place.open_with(|config| config.capacity = 5).await;
    let sent = hints(8);
    assert_eq!(queue.dispatch(&sent).await, Dispatched { queued: 5, waiting_already: 0, not_queued: 3 });
    assert_eq!(queue.check().await, Ok(()), "that one handler has a backlog is no failure");
    let finished = finish(&queue, 5).await;
    let rest: Vec<_> = sent.into_iter().filter(|hint| !finished.contains(hint)).collect();
    dispatch_all(&queue, &rest).await;
    assert_eq!(queue.check().await, Ok(()));
    assert_eq!(set(&finish(&queue, 3).await), set(&rest));
}

async fn each_handler_has_room_of_its_own(place: Place) {
    let queue = place.open_with(|config| config.capacity = 5).await;
    queue.serve(&[ledger(), mail()]).await;
    let first = hints_for_mail(1);
    dispatch_all(&queue, &first).await;
    assert!(queue.room(&ledger()) >= 5);
    // More than one part, so that the publisher knows that the stream is full before it sends the next part.
    let (ledgers, mails) = (hints(2500), hints_for_mail(6));
    let dispatched = queue.dispatch(&[ledgers.clone(), mails[..4].to_vec()].concat()).await;
    assert_eq!(dispatched, Dispatched { queued: 9, waiting_already: 0, not_queued: 2495 });
    assert_eq!(queue.dispatch(&mails[4..]).await, Dispatched { not_queued: 2, ..Default::default() }, "five are there");
    assert_eq!(queue.check().await, Ok(()));
    if !queue.is_shared() {
        assert_eq!((queue.room(&ledger()), queue.room(&mail())), (0, 0));
    }
    let expected = [first, mails[..4].to_vec()].concat();
    assert_eq!(set(&finish_for(&mail(), &queue, 5).await), set(&expected));
    dispatch_all(&queue, &mails[4..]).await;
    assert_eq!(queue.dispatch(&hints(1)).await.not_queued, 1, "the ledger has no more room than before");
    if !queue.is_shared() {
        assert_eq!((queue.room(&ledger()), queue.room(&mail())), (0, 3));
    }
    assert_eq!(set(&finish(&queue, 5).await).difference(&set(&ledgers)).count(), 0);
}

async fn what_is_not_served_is_dropped_and_counted_nowhere(place: Place) {
    let queue = place.open_with(|config| config.capacity = 5).await;
    assert_eq!(queue.dispatch(&hints_for_mail(3)).await, Dispatched::default(), "it was never served");
    queue.serve(&[ledger(), mail()]).await;
    let (ledgers, mails) = (hints(5), hints_for_mail(3));
    dispatch_all(&queue, &[ledgers.clone(), mails.clone()].concat()).await;
    queue.serve(&[mail()]).await;
    assert_eq!(queue.dispatch(&ledgers).await, Dispatched::default());
    let mixed = [hints(2), mails.clone()].concat();
    assert_eq!(queue.dispatch(&mixed).await, Dispatched { waiting_already: 3, ..Default::default() });
    let dropped = async {
        while queue.waiting(&ledger()).await.is_some_and(|waiting| waiting > 0) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    soon("what waited is gone", dropped).await;
    assert_eq!(set(&finish_for(&mail(), &queue, 3).await), set(&mails), "a handler that is still served loses no hint");

    queue.serve(&[ledger(), mail()]).await;
    let anew = hints(4);
    dispatch_all(&queue, &anew).await;
    assert_eq!(set(&finish(&queue, 4).await), set(&anew), "what waited before does not come");
    dispatch_all(&queue, &ledgers).await;
    assert_eq!(set(&finish(&queue, 5).await), set(&ledgers), "and can be dispatched again");
}

async fn serving_none_and_all_again_works(place: Place) {
    let queue = place.open().await;
    for _ in 0..3 {
        queue.serve(&[]).await;
        assert_eq!(queue.dispatch(&hints(3)).await, Dispatched::default());
        queue.serve(&[ledger()]).await;
        let sent = hints(3);
        let mut missing = set(&sent);
        dispatch_all(&queue, &sent).await;
        // The stream may be removed only now. Then the sweeper is told to dispatch again.
        while !missing.is_empty() {
            let pulled = tokio::select! {
                pulled = pull(&queue, 3) => pulled,
                () = queue.emptied() => {
                    dispatch_all(&queue, &sent).await;
                    continue;
                }
            };
            for pulled in pulled {
                missing.remove(&pulled.hint);
                pulled.acknowledge().await;
            }
        }
    }
    until_usable(&queue).await;
}

/// A worker may pull once more although its handler was just paused.
async fn a_pull_does_not_make_a_handler_served(place: Place) {
    let queue = place.open().await;
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { finish_for(&mail(), &queue, 2).await }
    });
    assert!(timeout(Duration::from_millis(100), queue.pull(&mail(), 1)).await.is_err(), "it is not served");
    assert_eq!(queue.dispatch(&hints_for_mail(2)).await, Dispatched::default());
    queue.serve(&[ledger(), mail()]).await;
    let sent = hints_for_mail(2);
    dispatch_all(&queue, &sent).await;
    assert_eq!(set(&soon("the pull goes on", waiting).await.unwrap()), set(&sent));
}

/// A hint that is being handled when its handler is paused takes no room afterwards, acknowledged or not.
#[tokio::test]
async fn in_memory_what_was_being_handled_is_not_put_back_if_it_is_not_served() {
    let queue = Place::memory().open_with(|config| config.capacity = 2).await;
    let sent = hints(2);
    dispatch_all(&queue, &sent).await;
    let mut pulled = pull(&queue, 2).await;
    queue.serve(&[]).await;
    pulled.remove(0).acknowledge().await;
    drop(pulled);
    assert_eq!((queue.waiting(&ledger()).await, queue.room(&ledger())), (Some(0), 2));
    queue.serve(&[ledger()]).await;
    assert_eq!(queue.dispatch(&sent).await, queued(2));
    assert_eq!(set(&finish(&queue, 2).await), set(&sent));
}

async fn streams_of_handlers_that_are_not_served_are_removed(place: Place) {
    let server = place.jetstream().await;
    let former = stream::Config {
        name: "hookfast-jobs".into(),
        subjects: vec!["hookfast.jobs.>".into()],
        retention: stream::RetentionPolicy::WorkQueue,
        ..Default::default()
    };
    server.create_stream(former).await.unwrap();
    server.publish("hookfast.jobs.normal.ledger.x", "".into()).await.unwrap().await.unwrap();
    let queue = place.open().await;
    place.until_streams_are(&["ledger"]).await;
    queue.serve(&[ledger(), mail()]).await;
    place.until_streams_are(&["ledger", "mail"]).await;
    dispatch_all(&queue, &hints(3)).await;
    queue.serve(&[mail()]).await;
    place.until_streams_are(&["mail"]).await;
    queue.serve(&[]).await;
    place.until_streams_are(&[]).await;
    queue.serve(&[ledger()]).await;
    place.until_streams_are(&["ledger"]).await;
    let sent = hints(2);
    dispatch_all(&queue, &sent).await;
    assert_eq!(set(&finish(&queue, 2).await), set(&sent));
    queue.close().await;
    let mut config = place.config();
    config.capacity = 7;
    let next = open(&config, vec![mail()], &tasks()).await.unwrap();
    place.until_streams_are(&["mail"]).await;
    next.close().await;
}

/// While a new version is rolled out, processes may serve different handlers.
async fn a_stream_that_another_process_removed_is_made_again(place: Place) {
    let queue = place.open().await;
    soon("a new stream is said to be empty", queue.emptied()).await;
    dispatch_all(&queue, &hints(3)).await;
    let other = open(&place.config(), vec![mail()], &tasks()).await.unwrap();
    place.until_streams_are(&["mail"]).await;
    let sent = hints(3);
    dispatch_all(&queue, &sent).await;
    soon("the loss is noticed", queue.emptied()).await;
    assert_eq!(set(&finish(&queue, 3).await), set(&sent));
    dispatch_all(&other, &hints_for_mail(2)).await;
    assert_eq!(finish_for(&mail(), &other, 2).await.len(), 2);
    place.until_streams_are(&["ledger", "mail"]).await;
}

async fn streams_that_only_look_like_ours_are_left_alone(place: Place) {
    let server = place.jetstream().await;
    let names = ["hookfast-jobs", "hookfast-hints-theirs", "hookfast-hints", "other-hints-ledger"];
    for name in names {
        let theirs = stream::Config { name: name.into(), subjects: vec![format!("of-{name}")], ..Default::default() };
        server.create_stream(theirs).await.unwrap();
    }
    let queue = place.open().await;
    queue.serve(&[mail()]).await;
    let sent = hints_for_mail(1);
    dispatch_all(&queue, &sent).await;
    assert_eq!(finish_for(&mail(), &queue, 1).await, sent);
    let mut expected: BTreeMap<_, _> = names.map(|name| (name.to_owned(), vec![format!("of-{name}")])).into();
    expected.insert("hookfast-hints-mail".into(), subjects_of("mail"));
    assert_eq!(place.streams().await, expected);
}

fn subjects_of(handler: &str) -> Vec<String> {
    ["high", "normal", "low"].map(|priority| format!("hookfast.hints.{handler}.{priority}.*")).into()
}

/// The streams of earlier versions took every subject below the handler's.
async fn streams_of_earlier_versions_are_changed_or_removed(place: Place) {
    let server = place.jetstream().await;
    for handler in ["ledger", "gone"] {
        let former = stream::Config {
            name: format!("hookfast-hints-{handler}"),
            subjects: vec![format!("hookfast.hints.{handler}.>")],
            retention: stream::RetentionPolicy::WorkQueue,
            ..Default::default()
        };
        server.create_stream(former).await.unwrap();
    }
    let queue = place.open().await;
    place.until_streams_are(&["ledger"]).await;
    assert_eq!(place.streams().await["hookfast-hints-ledger"], subjects_of("ledger"));
    let sent = hints(3);
    dispatch_all(&queue, &sent).await;
    assert_eq!(set(&finish(&queue, 3).await), set(&sent));
}

async fn many_pulls_at_once_get_every_hint_once(place: Place) {
    let queue = place.open().await;
    let sent = hints(5000);
    dispatch_all(&queue, &sent).await;
    let (done, mut came) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..4 {
        let (queue, done) = (Arc::clone(&queue), done.clone());
        tokio::spawn(async move {
            loop {
                for pulled in queue.pull(&ledger(), 64).await {
                    done.send(pulled.hint.clone()).unwrap();
                    pulled.acknowledge().await;
                }
            }
        });
    }
    let mut hints = Vec::new();
    while hints.len() < sent.len() {
        hints.push(soon("the next hint", came.recv()).await.unwrap());
    }
    assert_eq!(set(&hints), set(&sent));
}

async fn what_waits_is_counted(place: Place) {
    let queue = place.open().await;
    assert_eq!(queue.waiting(&ledger()).await, Some(0));
    dispatch_all(&queue, &[hint(Priority::High), hint(Priority::Normal), hint(Priority::Low)]).await;
    assert_eq!(queue.waiting(&ledger()).await, Some(3));
    finish(&queue, 3).await;
    assert_eq!(queue.waiting(&ledger()).await, Some(0));
}

async fn hints_survive_when_the_server_is_killed(mut place: Place) {
    let queue = place.open().await;
    let sent = hints(100);
    dispatch_all(&queue, &sent).await;
    place.server().kill();
    until_unusable(&queue).await;
    place.server().restart();
    assert_eq!(set(&finish(&queue, 100).await), set(&sent));
    assert_eq!(queue.check().await, Ok(()));
}

async fn a_server_that_comes_back_empty_is_set_up_again_and_said(mut place: Place) {
    let queue = place.open().await;
    queue.serve(&[ledger(), mail()]).await;
    place.until_streams_are(&["ledger", "mail"]).await;
    soon("a new stream is said to be empty", queue.emptied()).await;
    let sent = hints(10);
    dispatch_all(&queue, &sent).await;
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.pull(&mail(), 1).await }
    });
    place.server().restart_empty();
    soon("the loss is noticed", queue.emptied()).await;
    dispatch_all(&queue, &sent).await;
    assert_eq!(set(&finish(&queue, 10).await), set(&sent));
    let mail = hints_for_mail(1).remove(0);
    dispatch_all(&queue, slice::from_ref(&mail)).await;
    assert_eq!(soon("a pull that waited all the time", waiting).await.unwrap()[0].hint, mail);
}

async fn a_restart_with_everything_in_place_is_no_loss(mut place: Place) {
    let queue = place.open().await;
    soon("a new stream is said to be empty", queue.emptied()).await;
    dispatch_all(&queue, &hints(10)).await;
    place.server().kill();
    until_unusable(&queue).await;
    place.server().restart();
    until_usable(&queue).await;
    assert!(timeout(Duration::ZERO, queue.emptied()).await.is_err());
    let other = place.open().await;
    assert!(timeout(Duration::ZERO, other.emptied()).await.is_err(), "a later process finds the stream complete");
}

async fn a_server_may_come_later(mut place: Place) {
    place.server().kill();
    let queue = place.open().await;
    assert!(matches!(queue.check().await, Err(QueueError::Unreachable { .. })));
    let sent = hints(5);
    assert_eq!(queue.dispatch(&sent).await, Dispatched { not_queued: 5, ..Default::default() });
    assert_eq!(queue.waiting(&ledger()).await, None);
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { finish(&queue, 5).await }
    });
    place.server().restart();
    dispatch_all(&queue, &sent).await;
    assert_eq!(set(&soon("the hints come", waiting).await.unwrap()), set(&sent));
}

async fn dispatching_does_not_wait_for_a_server_that_is_gone(mut place: Place) {
    let queue = place.open().await;
    let sent = hints(3000);
    place.server().kill();
    // Right after the server ended, the client may not have noticed it yet.
    for _ in 0..3 {
        assert_eq!(queue.dispatch(&sent).await, Dispatched { not_queued: 3000, ..Default::default() });
    }
    until_unusable(&queue).await;
    place.server().restart();
    dispatch_all(&queue, &sent).await;
    assert_eq!(place.messages().await, 3000);
}

async fn dispatching_does_not_wait_for_a_server_that_stands_still(mut place: Place) {
    let queue = place.open().await;
    place.server().stop();
    let sent = hints(10);
    assert_eq!(queue.dispatch(&sent).await, Dispatched { not_queued: 10, ..Default::default() });
    until_unusable(&queue).await;
    place.server().go_on();
    dispatch_all(&queue, &sent).await;
    assert_eq!(set(&finish(&queue, 10).await), set(&sent));
}

async fn acknowledging_does_not_wait_for_a_server_that_is_gone(mut place: Place) {
    let queue = place.open().await;
    dispatch_all(&queue, &hints(1)).await;
    let pulled = pull(&queue, 1).await.remove(0);
    place.server().kill();
    soon("the call ends", pulled.in_progress()).await;
    soon("the call ends", pulled.acknowledge()).await;
    soon("the call ends", queue.close()).await;
}

async fn a_backlog_does_not_multiply(place: Place) {
    let queue = place.open().await;
    let sent = hints(1000);
    for _ in 0..10 {
        assert_eq!(queue.dispatch(&sent).await.not_queued, 0);
    }
    assert_eq!(place.messages().await, 1000);
    assert_eq!(set(&finish(&queue, 1000).await), set(&sent));
}

async fn two_processes_share_the_work(place: Place) {
    let queues = [place.open().await, place.open().await];
    let sent = hints(40);
    assert_eq!(queues[0].dispatch(&sent).await, queued(40));
    let mut pulled = Vec::new();
    // Neither process takes more than it pulls, so both get some.
    for queue in queues.iter().cycle().take(36) {
        pulled.extend(pull(queue, 1).await);
    }
    // The last hints may be in either process.
    for queue in queues.iter().cycle() {
        if pulled.len() == 40 {
            break;
        }
        pulled.extend(timeout(Duration::from_millis(50), queue.pull(&ledger(), 1)).await.unwrap_or_default());
    }
    let hints: Vec<_> = pulled.iter().map(|pulled| pulled.hint.clone()).collect();
    assert_eq!(set(&hints), set(&sent));
}

async fn work_in_progress_is_not_given_to_others(place: Place) {
    let queue = place.open_with(|config| config.ack_wait = Duration::from_secs(1)).await;
    dispatch_all(&queue, &hints(2)).await;
    let kept = pull(&queue, 1).await.remove(0);
    let mut others = 0;
    while others < 4 {
        kept.in_progress().await;
        let pulled = timeout(Duration::from_millis(100), queue.pull(&ledger(), 2)).await.unwrap_or_default();
        assert!(pulled.iter().all(|pulled| pulled.hint != kept.hint));
        others += pulled.len();
    }
}

async fn what_is_removed_while_running_is_made_again(place: Place) {
    let queue = place.open().await;
    soon("a new stream is said to be empty", queue.emptied()).await;
    let waiting = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { finish(&queue, 1).await }
    });
    let server = place.jetstream().await;
    server.delete_consumer_from_stream("normal", LEDGERS_STREAM).await.unwrap();
    let sent = hint(Priority::Normal);
    dispatch_all(&queue, slice::from_ref(&sent)).await;
    assert_eq!(soon("the consumer is back", waiting).await.unwrap(), [sent]);

    server.delete_stream(LEDGERS_STREAM).await.unwrap();
    let sent = hints(2000);
    dispatch_all(&queue, &sent).await;
    soon("the loss is noticed", queue.emptied()).await;
    assert_eq!(set(&finish(&queue, 2000).await), set(&sent));
}

async fn a_stream_with_other_settings_is_changed_if_that_is_possible(place: Place) {
    place.open_with(|config| config.capacity = 3).await.close().await;
    let queue = place.open_with(|config| config.capacity = 7).await;
    assert_eq!(queue.dispatch(&hints(9)).await.queued, 7);
}

/// While the process runs. At its start, such a stream is an error of the whole queue.
async fn a_stream_that_is_refused_stops_no_other_handler(place: Place) {
    let queue = place.open().await;
    let theirs =
        stream::Config { name: "hookfast-hints-mail".into(), subjects: vec!["theirs".into()], ..Default::default() };
    place.jetstream().await.create_stream(theirs).await.unwrap();
    let mail = HandlerName::new("mail").unwrap();
    queue.serve(&[ledger(), mail.clone()]).await;
    let refused = Hint { handler: mail, ..hint(Priority::Normal) };
    // Long enough for the refusal to arrive.
    for _ in 0..50 {
        assert_eq!(queue.dispatch(slice::from_ref(&refused)).await.not_queued, 1);
        let sent = hints(1);
        dispatch_all(&queue, &sent).await;
        assert_eq!(finish(&queue, 1).await, sent);
        sleep(Duration::from_millis(10)).await;
    }
}

async fn a_stream_of_somebody_else_is_left_alone(place: Place) {
    let theirs = stream::Config { name: LEDGERS_STREAM.into(), subjects: vec!["a".into()], ..Default::default() };
    place.jetstream().await.create_stream(theirs).await.unwrap();
    let error = place.try_open(|_| {}).await.err().expect("it does not open");
    assert!(matches!(&error, QueueError::OtherStream { stream, .. } if stream == LEDGERS_STREAM), "{error}");
    let stream = place.jetstream().await.get_stream(LEDGERS_STREAM).await.unwrap();
    assert_eq!(stream.cached_info().config.subjects, ["a"]);
}

async fn a_message_that_is_no_hint_is_put_aside(place: Place) {
    let queue = place.open().await;
    let server = place.jetstream().await;
    server.publish("hookfast.hints.ledger.normal.rubbish", "".into()).await.unwrap().await.unwrap();
    let sent = hint(Priority::Normal);
    queue.dispatch(slice::from_ref(&sent)).await;
    assert_eq!(finish(&queue, 1).await, [sent]);
    let put_aside = async {
        while place.messages().await > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the stream is empty", put_aside).await;
}

/// Workers that hold the most hints allowed get no more until they acknowledge. Meanwhile the queue does not count as broken.
async fn no_more_than_allowed_is_unacknowledged(place: Place) {
    let queue = place.open_with(|config| config.max_ack_pending = 3).await;
    let sent = hints(8);
    dispatch_all(&queue, &sent).await;
    let mut held = Vec::new();
    while held.len() < 3 {
        held.extend(pull(&queue, 8).await);
    }
    assert!(timeout(Duration::from_millis(1500), queue.pull(&ledger(), 8)).await.is_err(), "three are unacknowledged");
    assert_eq!(queue.check().await, Ok(()));
    let mut came: Vec<_> = held.iter().map(|pulled| pulled.hint.clone()).collect();
    for pulled in held {
        pulled.acknowledge().await;
    }
    came.extend(finish(&queue, 5).await);
    assert_eq!(set(&came), set(&sent));
}

async fn nothing_comes_after_closing(place: Place) {
    let queue = place.open().await;
    dispatch_all(&queue, &hints(1)).await;
    queue.close().await;
    assert_eq!(queue.dispatch(&hints(1)).await, Dispatched { not_queued: 1, ..Default::default() });
    assert!(queue.check().await.is_err());
    for handler in ["ledger", "mail"] {
        let handler = HandlerName::new(handler).unwrap();
        assert!(timeout(Duration::from_millis(100), queue.pull(&handler, 1)).await.is_err());
    }
}

#[tokio::test]
async fn a_prefix_that_is_no_name_is_refused() {
    let mut config = Config::new("nats://127.0.0.1:1".parse().unwrap());
    config.prefix = "a.b".into();
    assert!(matches!(open(&config, Vec::new(), &tasks()).await, Err(QueueError::Setting(_))));
}

macro_rules! on {
    ($name:ident, $place:expr, $($test:ident)*) => {
        mod $name {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                super::$test($place).await;
            })*
        }
    };
}

macro_rules! on_all {
    ($($test:ident)*) => {
        on! { memory, crate::Place::memory(), $($test)* }
        on! { nats, crate::Place::nats(hookfast_harness::NatsVersion::Current), $($test)* }
        on! { old_nats, crate::Place::nats(hookfast_harness::NatsVersion::Old), $($test)* }
    };
}

macro_rules! on_servers {
    ($($test:ident)*) => {
        on! { server, crate::Place::nats(hookfast_harness::NatsVersion::Current), $($test)* }
        on! { old_server, crate::Place::nats(hookfast_harness::NatsVersion::Old), $($test)* }
    };
}

on_all! {
    a_dispatched_hint_is_pulled_as_it_was
    a_pull_waits_until_there_is_something
    a_job_that_waits_or_is_handled_is_not_queued_twice
    a_job_that_stands_twice_in_a_batch_is_queued_once
    handlers_get_their_own_hints
    no_more_comes_than_asked_for
    what_is_urgent_goes_first
    what_is_not_urgent_gets_its_turn
    what_is_not_acknowledged_comes_again
    a_pull_that_is_dropped_loses_nothing
    a_full_queue_takes_no_more_until_there_is_room
    each_handler_has_room_of_its_own
    what_is_not_served_is_dropped_and_counted_nowhere
    serving_none_and_all_again_works
    a_pull_does_not_make_a_handler_served
    many_pulls_at_once_get_every_hint_once
    what_waits_is_counted
}

on_servers! {
    hints_survive_when_the_server_is_killed
    a_server_that_comes_back_empty_is_set_up_again_and_said
    a_restart_with_everything_in_place_is_no_loss
    a_server_may_come_later
    dispatching_does_not_wait_for_a_server_that_is_gone
    dispatching_does_not_wait_for_a_server_that_stands_still
    acknowledging_does_not_wait_for_a_server_that_is_gone
    a_backlog_does_not_multiply
    two_processes_share_the_work
    work_in_progress_is_not_given_to_others
    what_is_removed_while_running_is_made_again
    a_stream_with_other_settings_is_changed_if_that_is_possible
    a_stream_of_somebody_else_is_left_alone
    a_stream_that_is_refused_stops_no_other_handler
    streams_that_only_look_like_ours_are_left_alone
    streams_of_earlier_versions_are_changed_or_removed
    streams_of_handlers_that_are_not_served_are_removed
    a_stream_that_another_process_removed_is_made_again
    a_message_that_is_no_hint_is_put_aside
    no_more_than_allowed_is_unacknowledged
    nothing_comes_after_closing
}

//! What an event is found by, and keys with a window, over the way through the spool.

use std::time::Duration;

use hookfast_store::{Behind, Recorded};
use hookfast_webhook::Priority;

use crate::database::{routed, tagged, with_window};
use crate::spool::{Rig, WITHIN};

/// What an event is found by goes the long way, too.
#[tokio::test]
async fn what_an_event_is_found_by_is_drained() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    let routed = routed(tagged("evt_1"), &[]);
    spool.add(std::slice::from_ref(&routed)).await.unwrap();
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN).await.unwrap(), [Recorded::New]);
    let stored = store.event(routed.event.id()).await.unwrap().expect("it is there");
    assert_eq!((stored.priority, stored.tags), (Some(Priority::High), vec!["vip".to_owned()]));
    assert_eq!((stored.secret_index, stored.trace_id.is_some()), (Some(0), true));
    assert_eq!((stored.provider_event_id.as_deref(), stored.delivery_id.as_deref()), (Some("evt_1"), Some("dlv_1")));
}

#[tokio::test]
async fn a_key_with_a_window_is_free_after_it_in_the_spool_and_when_it_is_drained() {
    let rig = Rig::new().await;
    let (spool, store) = (rig.spool().await, rig.store().await);
    // Within the window it is a resend.
    assert_eq!(spool.add(&[with_window("user_1", 3600), with_window("user_1", 3600)]).await.unwrap(), 1);
    // A window of nothing has passed with the next millisecond.
    let first = with_window("user_2", 0);
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(spool.add(&[first, with_window("user_2", 0)]).await.unwrap(), 2);
    let oldest = spool.oldest(10, u64::MAX).await.unwrap();
    assert_eq!(rig.late.record_spooled(&oldest, WITHIN).await.unwrap(), [Recorded::New; 3]);
    assert_eq!(store.latest_events(10).await.unwrap().len(), 3);
}

//! Attacks by many at once, while others are served as if nothing were the matter and memory stays within bounds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hookfast_harness::{Client, Gateway, Ledger, Senders, Setup, sample};

use super::payload::gzip;
use super::resources::{OVERLOADED, refused_connections};
use super::{setup, signed_bytes, stranger, unproved, with_header};

/// Of each kind.
const SLOW_CLIENTS: usize = 400;

/// What an attack may cost.
const MEMORY_BYTES: usize = 128 << 20;

const HEAD: &[u8] = b"POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\n";

/// Slow heads, slow bodies, silence, and questions whose answers are not read, from four addresses.
fn lay_siege(gateway: &Gateway) -> Vec<Client> {
    rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let slow_body = [HEAD, b"content-length: 1000\r\n\r\n{"].concat();
    let unread = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(50);
    let kinds: [&[u8]; 4] = [HEAD, &slow_body, b"", &unread];
    let clients = (0..kinds.len() * SLOW_CLIENTS).map(|number| {
        let mut client = stranger(gateway, 2 + (number / kinds.len() % 4) as u8);
        // A gateway that is full may have closed it already.
        let _ = client.write(kinds[number % kinds.len()]);
        client
    });
    clients.collect()
}

/// No sender was refused for want of a place, and none waited for the store because of the attack. On a busy machine the
/// disk may be too slow for somebody all the same; promises are kept.
fn assert_all_found_a_place(gateway: &Gateway, ledger: &Ledger) {
    assert_eq!((refused_connections(gateway), gateway.metric(OVERLOADED)), (0.0, 0.0));
    assert!(!gateway.log().contains("pool timed out"), "the store was kept from recording");
    assert!(ledger.refusals.iter().all(|answer| answer.status == 503), "{:?}", ledger.refusals);
    ledger.assert_recorded(gateway.store_url());
}

/// Patient, so that no client is cut off before the end.
fn patient() -> Setup {
    setup().ingest("header_timeout = \"10m\"\nbody_timeout = \"10m\"\nstall_timeout = \"10m\"\nidle_timeout = \"10m\"")
}

#[test]
fn case_27_many_slow_clients_of_every_kind_hold_up_nobody() {
    let gateway = patient().start();
    let load = Senders::of_samples(&gateway.address(), 4);
    load.wait_for_promises(50);
    let before = gateway.peak_memory_bytes();
    let slow = lay_siege(&gateway);
    load.wait_for_more_promises(200);
    let (grown, ledger) = (gateway.peak_memory_bytes() - before, load.end());
    assert_eq!(slow.len(), 4 * SLOW_CLIENTS);
    assert!(grown < MEMORY_BYTES, "{grown} bytes for {} slow clients", slow.len());
    assert_all_found_a_place(&gateway, &ledger);
}

/// The limit for one address keeps places free for others. Where it does not, silent connections give way.
#[test]
fn case_27_even_without_places_of_their_own_others_are_served() {
    let gateway = patient().ingest("connections = 1024\nconnections_per_address = 1024").start();
    let _slow = lay_siege(&gateway);
    let mut client = gateway.client();
    assert_eq!(client.send(&sample(1)).unwrap().status, 200);
    assert!(gateway.metric("hookfast_connections_evicted_total") > 0.0);
}

#[test]
fn case_26_many_bombs_at_once_are_small_bodies() {
    const BOMB_BYTES: usize = 64 << 20;
    let gateway = setup().start();
    let bomb = gzip(&vec![b' '; BOMB_BYTES]);
    let load = Senders::of_samples(&gateway.address(), 2);
    load.wait_for_promises(20);
    let before = gateway.peak_memory_bytes();
    thread::scope(|scope| {
        for number in 0..32 {
            let (gateway, body) = (&gateway, [&bomb, format!("{number}").as_bytes()].concat());
            scope.spawn(move || {
                let bomb = with_header(signed_bytes(&body), "content-encoding", b"gzip");
                assert_eq!(gateway.client().send(&bomb).unwrap().status, 200);
            });
        }
    });
    load.wait_for_more_promises(20);
    let (grown, ledger) = (gateway.peak_memory_bytes() - before, load.end());
    // Less than two of them would need.
    assert!(grown < MEMORY_BYTES, "{grown} bytes for bombs of {}", bomb.len());
    assert_all_found_a_place(&gateway, &ledger);
}

/// How many a well-behaved client sends, one after the other.
const REGULAR: u64 = 100;

/// Sends without pause from one address, until it is over. Gives how many were answered 429, and how many otherwise.
fn flood(gateway: &Gateway, is_over: &AtomicBool) -> (usize, usize) {
    let (mut limited, mut others) = (0, 0);
    let mut client = stranger(gateway, 2);
    while !is_over.load(Ordering::Relaxed) {
        match client.send(&unproved("t=1,v1=00", b"{}")) {
            Ok(answer) if answer.status == 429 => limited += 1,
            Ok(_) => others += 1,
            Err(_) => client = stranger(gateway, 2),
        }
    }
    (limited, others)
}

/// The statuses of a regular client while another address floods the gateway, and what the flood was told.
fn regular_beside_flood(gateway: &Gateway) -> (Vec<u16>, (usize, usize)) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let floods: Vec<_> = (0..8).map(|_| scope.spawn(|| flood(gateway, &is_over))).collect();
        let regular = (0..REGULAR).map(|serial| {
            // No more than the limit, however fast the machine is.
            thread::sleep(Duration::from_millis(20));
            gateway.client().send(&sample(serial)).unwrap().status
        });
        let regular = regular.collect();
        is_over.store(true, Ordering::Relaxed);
        let told = floods.into_iter().map(|flood| flood.join().unwrap());
        (regular, told.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1)))
    })
}

#[test]
fn case_38_a_flood_from_one_address_does_not_touch_another() {
    let gateway = setup().ingest("rate_per_address = \"50/s\"").start();
    let before = gateway.peak_memory_bytes();
    let (regular, (limited, others)) = regular_beside_flood(&gateway);
    assert!(regular.iter().all(|status| *status == 200), "{regular:?}");
    assert!(limited > others, "the flood was not held off: {limited} limited, {others} not");
    assert!(gateway.peak_memory_bytes() - before < MEMORY_BYTES);
    assert_eq!(gateway.events().len() as u64, REGULAR, "and nothing else is recorded");
}

#[test]
fn case_38_without_a_limit_a_flood_is_let_in() {
    let gateway = setup().ingest("refusals_per_address = \"1000000/s\"").start();
    let (_, (limited, others)) = regular_beside_flood(&gateway);
    assert!(limited == 0 && others > 0, "{limited} limited, {others} not");
}

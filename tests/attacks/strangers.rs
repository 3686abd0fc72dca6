//! What strangers send takes nothing from others: no memory, no places, no rate.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hookfast_harness::{Client, Database, Gateway, Setup, eventually, post, sample};
use hookfast_webhook::Request;

use super::{
    assert_recorded, assert_serves, assert_unharmed, setup, setup_on, signed_bytes, stranger, unproved, with_header,
};

/// How many genuine requests are sent during an attack.
const GOOD: u64 = 30;

/// How long the sender of a large batch waits for its answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// No deadline ends an attack.
fn patient() -> Setup {
    patient_but("")
}

/// No deadline ends an attack, but for this one.
fn patient_but(deadline: &str) -> Setup {
    ["header_timeout", "body_timeout", "stall_timeout", "idle_timeout"].into_iter().fold(setup(), |setup, key| {
        let time = if key == deadline { "300ms" } else { "10m" };
        setup.ingest(&format!("{key} = \"{time}\""))
    })
}

fn assert_all_taken(mut statuses: impl Iterator<Item = u16>) {
    assert!(statuses.all(|status| status == 200));
}

/// The beginning of a request with a body that is never whole: all of it but the last byte.
fn stalled_upload(client: &mut Client, forwarded: &str, size: usize) {
    let head = format!(
        "POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\nx-forwarded-for: {forwarded}\r\ncontent-length: {}\r\n\r\n",
        size + 1
    );
    // One that is refused is closed before it is written.
    if client.write(&[head.into_bytes(), vec![b' '; size]].concat()).is_ok() {
        client.wait_until_read();
    }
}

/// A gateway with 16 MiB for bodies of up to 1 MiB: the same proportions as by default.
fn with_little_memory() -> Setup {
    patient().source("body_limit = \"1MiB\"").ingest("body_memory = \"16MiB\"")
}

/// Takes all the memory that one client can get, to the last KiB. The client may have another address for each upload.
fn fill_memory(gateway: &Gateway, forwarded: impl Fn(usize) -> String) -> Vec<Client> {
    let large = std::iter::repeat_n((1 << 20) - 1, 17);
    let smaller = (10..20).rev().flat_map(|power| [(1 << power) - 1; 2]);
    let uploads = large.chain(smaller).enumerate().map(|(number, size)| {
        let mut client = stranger(gateway, 2);
        stalled_upload(&mut client, &forwarded(number), size);
        client
    });
    uploads.collect()
}

#[test]
fn case_25_stalled_uploads_of_one_address_refuse_no_other() {
    let gateway = with_little_memory().start();
    let _stalled = fill_memory(&gateway, |_| "192.0.2.1".into());
    assert_all_taken((0..GOOD).map(|serial| gateway.client().send(&sample(serial)).unwrap().status));
    let large = signed_bytes(&[b' '; 500_000]);
    assert_eq!(gateway.client().send(&large).unwrap().status, 200, "there is room for large bodies, too");
    assert_serves(&gateway);
}

#[test]
fn case_25_stalled_uploads_through_a_proxy_refuse_no_other_client() {
    let gateway = with_little_memory().ingest("trusted_proxies = [\"127.0.0.0/8\"]").start();
    let _stalled = fill_memory(&gateway, |_| "198.51.100.7".into());
    let other = |serial| with_header(sample(serial), "x-forwarded-for", b"198.51.100.8");
    assert_all_taken((0..GOOD).map(|serial| stranger(&gateway, 2).send(&other(serial)).unwrap().status));
    assert_serves(&gateway);
}

/// An address of another /64 each time, of one network of /48.
fn hopping(number: usize) -> String {
    format!("2001:db8:7:{number:x}::1")
}

#[test]
fn case_25_hopping_in_an_ipv6_network_gets_no_more_memory() {
    let gateway = with_little_memory().ingest("trusted_proxies = [\"127.0.0.0/8\"]").start();
    let _stalled = fill_memory(&gateway, hopping);
    let other = |serial| with_header(sample(serial), "x-forwarded-for", b"2001:db8:8::1");
    assert_all_taken((0..GOOD).map(|serial| stranger(&gateway, 2).send(&other(serial)).unwrap().status));
    let large = with_header(signed_bytes(&[b' '; 500_000]), "x-forwarded-for", b"2001:db8:8::1");
    assert_eq!(stranger(&gateway, 2).send(&large).unwrap().status, 200, "there is room for large bodies, too");
    assert_serves(&gateway);
}

#[test]
fn case_25_a_body_that_stalls_is_given_up() {
    let gateway = patient_but("stall_timeout").start();
    let whole = post(&sample(1));
    let mut client = stranger(&gateway, 2);
    assert_eq!(client.raw(&whole[..whole.len() - 1]).unwrap().status, 408);
    assert!(client.is_closed());
    assert_unharmed(&gateway);
}

#[test]
fn case_25_a_body_in_very_many_tiny_chunks_is_refused() {
    let gateway = patient().start();
    let chunked = |chunk: &[u8], count: usize| {
        let head = b"POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        [&head[..], &chunk.repeat(count), b"0\r\n\r\n"].concat()
    };
    assert_eq!(gateway.client().raw(&chunked(b"1\r\n \r\n", 20_000)).unwrap().status, 400);
    // Chunks of an ordinary size may be many, and a few may be tiny. Neither body is signed.
    let ordinary = [b"100\r\n", &[b' '; 0x100][..], b"\r\n"].concat();
    for (chunk, count) in [(&ordinary[..], 20_000), (b"1\r\n \r\n", 10_000)] {
        assert_eq!(gateway.client().raw(&chunked(chunk, count)).unwrap().status, 401);
    }
    assert_unharmed(&gateway);
}

#[test]
fn case_25_memory_stays_within_what_is_set_for_bodies() {
    /// Beside the bodies, as documented.
    const REST_BYTES: usize = 100 << 20;
    const BODY_MEMORY: usize = 256 << 20;
    let gateway = patient().start();
    // 40 addresses at once take as much as they get; of half of the bodies the final size is not known.
    let chunk = [b"10000\r\n", &[b' '; 0x10000][..], b"\r\n"].concat();
    let upload = |number: u8| {
        let mut client = stranger(&gateway, number);
        if number.is_multiple_of(2) {
            stalled_upload(&mut client, "192.0.2.1", (10 << 20) - 1);
            return client;
        }
        client.write(b"POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
        if client.write(&chunk.repeat(150)).is_ok() {
            client.wait_until_read();
        }
        client
    };
    let uploads: Vec<_> = thread::scope(|scope| {
        let upload = &upload;
        let uploads: Vec<_> = (2..42).map(|number| scope.spawn(move || upload(number))).collect();
        uploads.into_iter().map(|upload| upload.join().unwrap()).collect()
    });
    assert_serves(&gateway);
    let peak = gateway.peak_memory_bytes();
    assert!(peak < BODY_MEMORY + REST_BYTES, "{peak} bytes for {} uploads", uploads.len());
}

/// A gateway that takes batches of records.
fn for_batches(database: Database) -> Gateway {
    let section = "[sources.garmin]\nprovider = \"garmin\"\nclient_id = \"c-1\"\nanswer_deadline = \"60s\"";
    setup_on(database).sections(section).start()
}

/// A request with these records, and with a header of this size.
fn batch(records: impl Iterator<Item = String>, padding: usize) -> Vec<u8> {
    let body = format!(r#"{{"dailies":[{}]}}"#, records.collect::<Vec<_>>().join(","));
    let head = "POST /webhooks/garmin HTTP/1.1\r\nhost: a\r\ngarmin-client-id: c-1\r\n";
    let padding = "x".repeat(padding);
    format!("{head}x-padding: {padding}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Records that are shorter than real ones.
fn records(numbers: Range<usize>) -> impl Iterator<Item = String> {
    numbers.map(|number| {
        let ids = format!(r#""userId":"4aacafe8-{number:05}","summaryId":"x153-{number:05}""#);
        format!(r#"{{{ids},"startTimeInSeconds":{number},"durationInSeconds":86400,"steps":{number}}}"#)
    })
}

/// How large the database is, without what waits to be moved into it.
fn store_bytes(gateway: &Gateway) -> usize {
    let size = match gateway.store_url().starts_with("sqlite:") {
        true => "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
        false => "SELECT pg_database_size(current_database())",
    };
    gateway.query(size)[0][0].parse().unwrap()
}

/// Each record of a batch is an event. The headers of the request are kept once for all of them.
#[test]
fn case_25_a_batch_with_large_headers_costs_what_it_weighs() {
    const MEMORY_BYTES: usize = 100 << 20;
    for database in [Database::Sqlite, Database::Postgres] {
        let gateway = for_batches(database);
        let request = batch(records(0..5_000), 60_000);
        let (memory, store) = (gateway.peak_memory_bytes(), store_bytes(&gateway));
        assert_eq!(gateway.client().raw(&request).unwrap().status, 200);
        let grown = store_bytes(&gateway) - store;
        assert!(grown < 10 * request.len(), "{database:?}: {grown} bytes for a request of {}", request.len());
        let needed = gateway.peak_memory_bytes() - memory;
        assert!(needed < MEMORY_BYTES, "{database:?}: {needed} bytes for a request of {}", request.len());

        // Sent again, it has no new events, and its headers are not kept.
        let again = batch(records(0..100), 60_000);
        assert_eq!(gateway.client().raw(&again).unwrap().status, 200);
        assert_eq!(gateway.query("SELECT count(*) FROM request_heads"), [["1"]], "{database:?}");

        let kept = gateway.event(gateway.events()[0].id).headers;
        assert!(kept.iter().any(|(name, value)| name == "x-padding" && value.len() == 60_000));
        assert_serves(&gateway);
    }
}

#[test]
fn case_25_very_many_tiny_records_are_refused() {
    for database in [Database::Sqlite, Database::Postgres] {
        let gateway = for_batches(database);
        let store = store_bytes(&gateway);
        let numbers = |count: usize| (0..count).map(|number| number.to_string());
        for padding in [10, 60_000] {
            let refused = gateway.client().raw(&batch(numbers(10_000), padding)).unwrap();
            assert_eq!(refused.status, 413);
            assert!(refused.text().contains("too many events"), "{}", refused.text());
        }
        assert_eq!(store_bytes(&gateway), store);
        assert_eq!(gateway.client().raw(&batch(numbers(1_000), 10)).unwrap().status, 200, "some may be tiny");
        assert_serves(&gateway);
    }
}

#[test]
fn case_25_many_large_batches_at_once_stay_within_memory() {
    /// Beside what is set for bodies, as promised.
    const REST_BYTES: usize = 150 << 20;
    const BODY_MEMORY: usize = 256 << 20;
    const EACH: usize = 6_000;
    for database in [Database::Sqlite, Database::Postgres] {
        let gateway = for_batches(database);
        let send = |number: usize| {
            let request = batch(records(number * EACH..(number + 1) * EACH), 60_000);
            stranger(&gateway, number as u8 + 2).with_patience(PATIENCE).raw(&request).unwrap().status
        };
        let statuses: Vec<_> = thread::scope(|scope| {
            let send = &send;
            let sent: Vec<_> = (0..12).map(|number| scope.spawn(move || send(number))).collect();
            sent.into_iter().map(|status| status.join().unwrap()).collect()
        });
        assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
        assert!(statuses.contains(&200), "{statuses:?}");
        let peak = gateway.peak_memory_bytes();
        assert!(peak < BODY_MEMORY + REST_BYTES, "{database:?}: {peak} bytes");
        assert_serves(&gateway);
    }
}

/// A gateway whose places are all taken by connections that say no more than this, from four addresses.
fn taken_by(setup: Setup, beginning: &[u8]) -> (Gateway, Vec<Client>) {
    let gateway = setup.ingest("connections = 40\nconnections_per_address = 10").start();
    let connect = |number: usize| {
        let mut client = stranger(&gateway, 2 + (number % 4) as u8);
        client.write(beginning).unwrap();
        client
    };
    let clients = (0..40).map(connect).collect();
    eventually("all places are taken", || gateway.metric("hookfast_connections") > 39.0);
    (gateway, clients)
}

#[test]
fn case_37_silent_connections_give_way_to_others() {
    let head = b"POST /webhooks/stripe HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n";
    for beginning in [&b""[..], head, &[&head[..], b"\r\n{"].concat()] {
        let (gateway, _silent) = taken_by(patient(), beginning);
        assert_all_taken((0..GOOD).map(|serial| gateway.client().send(&sample(serial)).unwrap().status));
        assert!(gateway.metric("hookfast_connections") <= 40.0);
        assert_serves(&gateway);
    }
}

#[test]
fn case_37_a_connection_of_a_genuine_sender_stays_before_silent_ones() {
    let gateway = patient().ingest("connections = 4").start();
    let mut regular = gateway.client();
    assert_eq!(regular.send(&sample(1)).unwrap().status, 200);
    let _silent: Vec<_> = (0..20).map(|number| stranger(&gateway, 2 + number)).collect();
    eventually("others gave way", || gateway.metric("hookfast_connections_evicted_total") > 16.0);
    assert_eq!(regular.send(&sample(2)).unwrap().status, 200);
    assert_recorded(&gateway, &["evt_sample_2", "evt_sample_1"]);
}

#[test]
fn case_37_a_connection_without_a_first_byte_has_the_time_of_a_head() {
    let gateway = patient_but("header_timeout").start();
    let mut used = gateway.client();
    assert_eq!(used.send(&sample(1)).unwrap().status, 200);
    assert!(stranger(&gateway, 2).is_closed());
    assert_eq!(used.send(&sample(2)).expect("one that was used may rest").status, 200);
}

/// Sends requests with bad signatures from another address while `good` runs.
fn beside_bad_signatures<T>(gateway: &Gateway, good: impl FnOnce() -> T) -> T {
    let (is_over, sent) = (AtomicBool::new(false), AtomicBool::new(false));
    let flood = || {
        let bad: Request = unproved("t=1,v1=00", b"{}");
        let mut client = stranger(gateway, 2);
        while !is_over.load(Ordering::Relaxed) {
            let status = client.send(&bad).unwrap().status;
            assert!(matches!(status, 401 | 429), "{status}");
            sent.store(true, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let floods: Vec<_> = (0..4).map(|_| scope.spawn(flood)).collect();
        eventually("the flood has begun", || sent.load(Ordering::Relaxed));
        let good = good();
        is_over.store(true, Ordering::Relaxed);
        floods.into_iter().for_each(|flood| flood.join().unwrap());
        good
    })
}

/// Genuine requests, no faster than 50 a second.
fn regular(gateway: &Gateway) -> Vec<u16> {
    let send = |serial| {
        thread::sleep(Duration::from_millis(20));
        gateway.client().send(&sample(serial)).unwrap().status
    };
    (0..100).map(send).collect()
}

#[test]
fn case_38_bad_signatures_do_not_use_up_the_rate_of_a_source() {
    let gateway = setup().source("rate = \"50/s\"").start();
    let statuses = beside_bad_signatures(&gateway, || regular(&gateway));
    assert_all_taken(statuses.into_iter());
}

#[test]
fn case_38_refusals_have_a_limit_of_their_own() {
    let gateway = setup().ingest("refusals_per_address = \"5/m\"").start();
    let bad = unproved("t=1,v1=00", b"{}");
    let statuses: Vec<_> = (0..20).map(|_| stranger(&gateway, 2).send(&bad).unwrap().status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 5, "{statuses:?}");
    assert!(statuses[5..].iter().all(|status| *status == 429), "{statuses:?}");
    assert_unharmed(&gateway);
}

#[test]
fn case_38_hopping_in_an_ipv6_network_does_not_dodge_the_limit_of_refusals() {
    let limits = "refusals_per_address = \"5/m\"\ntrusted_proxies = [\"127.0.0.0/8\"]";
    let gateway = setup().ingest(limits).start();
    let send = |request: Request, from: String| {
        stranger(&gateway, 2).send(&with_header(request, "x-forwarded-for", from.as_bytes())).unwrap().status
    };
    let statuses: Vec<_> = (0..20).map(|number| send(unproved("t=1,v1=00", b"{}"), hopping(number))).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 5, "{statuses:?}");
    assert!(statuses[5..].iter().all(|status| *status == 429), "{statuses:?}");
    assert_eq!(send(sample(1), "2001:db8:8::1".into()), 200, "another network is not turned away");
    assert_recorded(&gateway, &["evt_sample_1"]);
}

/// As behind a proxy that is not configured: then strangers and genuine senders are one client.
#[test]
fn case_38_an_address_with_genuine_requests_is_not_turned_away() {
    let gateway = setup().ingest("refusals_per_address = \"5/m\"").start();
    let bad = unproved("t=1,v1=00", b"{}");
    let statuses = (0..20).map(|serial| {
        assert!(matches!(gateway.client().send(&bad).unwrap().status, 401 | 429));
        gateway.client().send(&sample(serial)).unwrap().status
    });
    assert_all_taken(statuses);
}

//! Bodies that harm their readers. They are signed: a provider passes on what its own users wrote.

use std::io::Write;
use std::process::{Command, Stdio};

use hookfast_harness::{Database, Gateway, post, sample};
use hookfast_webhook::{Request, UNREADABLE};

use super::{SIGNATURE, assert_serves, assert_unharmed, gateway, setup_on, signed_bytes, unproved, with_header};

/// The request is taken and its body kept as it is, under this type.
fn assert_kept(gateway: &Gateway, request: &Request, event_type: &str) {
    assert_eq!(gateway.client().send(request).unwrap().status, 200);
    let newest = gateway.event(gateway.events()[0].id);
    assert!(newest.body == request.body, "the stored body is byte for byte the one that came");
    assert_eq!(newest.summary.event_type, event_type);
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = gzip.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        gzip.wait_with_output().unwrap()
    });
    output.stdout
}

/// We never decompress: what is signed is what came, so there is nothing that a bomb could go off in.
#[test]
fn case_26_a_decompression_bomb_is_kept_as_it_is() {
    const BOMB_BYTES: usize = 256 << 20;
    let gateway = gateway();
    let bomb = gzip(&vec![b' '; BOMB_BYTES]);
    let nested = gzip(&bomb);
    let before = gateway.peak_memory_bytes();
    for (coding, body) in
        [("gzip", &bomb), ("x-gzip", &nested), ("gzip, gzip", &nested), ("br", &bomb), ("nonsense", &nested)]
    {
        // What cannot be read is known by its bytes, so the same bomb again would be the same event.
        let body = [body, coding.as_bytes()].concat();
        let encoded = |request| with_header(request, "content-encoding", coding.as_bytes());
        assert_eq!(gateway.client().send(&encoded(unproved("t=1,v1=00", &body))).unwrap().status, 401);
        assert_kept(&gateway, &encoded(signed_bytes(&body)), UNREADABLE);
    }
    let grown = gateway.peak_memory_bytes() - before;
    assert!(grown < BOMB_BYTES / 4, "{grown} bytes were needed for a bomb of {}", bomb.len());
    assert_serves(&gateway);
}

#[test]
fn case_26_a_coding_that_is_only_claimed_changes_nothing() {
    let gateway = gateway();
    for (serial, coding) in [(1, "gzip"), (2, "deflate, br"), (3, "identity"), (4, "nonsense")] {
        assert_kept(&gateway, &with_header(sample(serial), "content-encoding", coding.as_bytes()), "invoice.paid");
    }
    assert_serves(&gateway);
}

#[test]
fn case_34_json_that_breaks_parsers_is_kept_byte_for_byte() {
    assert_odd_json_is_kept(Database::Sqlite);
}

/// The two databases differ in what text and what times they take.
#[test]
fn case_34_json_that_breaks_parsers_is_kept_byte_for_byte_on_postgres() {
    assert_odd_json_is_kept(Database::Postgres);
}

fn assert_odd_json_is_kept(database: Database) {
    let gateway = setup_on(database).start();
    let deep = |open: &str, close: &str, levels| open.repeat(levels) + &close.repeat(levels);
    let mut serial = 0;
    let mut event = |rest: &str| {
        serial += 1;
        format!(r#"{{"id":"evt_{serial}","type":"a",{rest}}}"#).into_bytes()
    };
    let bodies = [
        ("deep arrays", event(&format!(r#""data":{}"#, deep("[", "]", 100_000)))),
        ("deep objects", event(&format!(r#""data":{}1{}"#, "{\"a\":".repeat(50_000), "}".repeat(50_000)))),
        ("only deep", deep("[", "]", 200_000).into_bytes()),
        ("never closed", "[".repeat(200_000).into_bytes()),
        ("a huge number", event(&format!(r#""amount":{}"#, "9".repeat(100_000)))),
        ("a huge exponent", event(r#""amount":1e999999999,"created":1e400"#)),
        ("numbers that JSON has not", event(r#""amount":NaN,"other":Infinity,"hex":0x1"#)),
        ("the end of time", event(r#""created":9223372036854775807"#)),
        ("before all time", event(r#""created":-377705116800"#)),
        ("the last year", event(r#""created":"9999-12-31T23:59:60.999999999+23:59""#)),
        ("a lone surrogate", event(r#""note":"\ud800""#)),
        ("a lone surrogate as id", br#"{"id":"\udfff","type":"a"}"#.to_vec()),
        ("an id twice", br#"{"id":"evt_a","id":"evt_b","type":"a"}"#.to_vec()),
        ("a key twice", event(r#""livemode":true,"livemode":false"#)),
        ("a NUL in the id", br#"{"id":"evt_\u0000","type":"a\u0000b"}"#.to_vec()),
        ("a raw NUL", b"{\"id\":\"evt_\0\",\"type\":\"a\"}".to_vec()),
        ("a NUL in the account", event(r#""account":"\u0000""#)),
        ("an account that is an object", event(r#""account":{"a":[1]},"context":7"#)),
        ("no text", b"\xff\xfe\x00".to_vec()),
        ("broken UTF-8 in a string", b"{\"id\":\"evt_\xc0\xaf\",\"type\":\"a\"}".to_vec()),
        ("a byte order mark", "\u{feff}{\"id\":\"evt_1\",\"type\":\"a\"}".as_bytes().to_vec()),
        ("two documents", br#"{"id":"evt_1","type":"a"}{"id":"evt_2","type":"a"}"#.to_vec()),
        ("prototype keys", event(r#""__proto__":{"admin":true},"constructor":{"prototype":1}"#)),
        ("an empty id", br#"{"id":"","type":"a"}"#.to_vec()),
        ("an id that is a number", br#"{"id":7,"type":"a"}"#.to_vec()),
        ("a long id", format!(r#"{{"id":"{}","type":"{}"}}"#, "i".repeat(100_000), "t".repeat(100_000)).into_bytes()),
        ("not an object", b"null".to_vec()),
        ("nothing", Vec::new()),
    ];
    for (what, body) in bodies {
        assert_eq!(gateway.client().send(&signed_bytes(&body)).unwrap().status, 200, "{what}");
        let newest = gateway.event(gateway.events()[0].id);
        assert!(newest.body == body, "{what}: the stored body is byte for byte the one that came");
        // What is shown of it is short and printable, whatever it was.
        let shown = newest.summary;
        assert!(shown.dedupe_key.len() < 256 && shown.event_type.len() < 256, "{what}: {shown:?}");
        let text = [shown.dedupe_key, shown.event_type, shown.account.unwrap_or_default()].concat();
        assert!(!text.chars().any(char::is_control), "{what}: {text:?}");
    }
    assert_serves(&gateway);
}

#[test]
fn case_35_colliding_names_cost_no_more_than_others() {
    let gateway = gateway();
    let keys: Vec<_> = (0..100_000).map(|number| format!(r#""key_{number}":{number}"#)).collect();
    let body = format!(r#"{{{},"id":"evt_keys","type":"a"}}"#, keys.join(","));
    assert_kept(&gateway, &signed_bytes(body.as_bytes()), "a");

    let mut request = sample(1);
    for name in colliding_header_names(90) {
        request.headers.append(name, "x".parse().unwrap());
    }
    assert_kept(&gateway, &request, "invoice.paid");
    let stored = gateway.event(gateway.events()[0].id);
    assert!(stored.headers.iter().count() > 90);
    assert_serves(&gateway);
}

/// Names of headers that fall into one place of the header map, as long as it hashes as cheaply as it first does.
fn colliding_header_names(count: usize) -> Vec<::http::HeaderName> {
    let place = |name: &::http::HeaderName| {
        // FNV-1a, by which the map hashes until it gets suspicious.
        struct Fnv(u64);
        impl std::hash::Hasher for Fnv {
            fn write(&mut self, bytes: &[u8]) {
                bytes.iter().for_each(|byte| self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
            }
            fn finish(&self) -> u64 {
                self.0
            }
        }
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        std::hash::Hash::hash(name, &mut hasher);
        std::hash::Hasher::finish(&hasher) & 0x7ff
    };
    let names = (0..).map(|number| ::http::HeaderName::try_from(format!("x-{number}")).unwrap());
    names.filter(|name| place(name) == 0).take(count).collect()
}

#[test]
fn case_36_a_hundred_thousand_form_fields_are_bytes_like_any_others() {
    let gateway = gateway();
    let form: Vec<_> = (0..100_000).map(|number| format!("field{number}={number}")).collect();
    let form = form.join("&").into_bytes();
    let typed = |request| with_header(request, "content-type", b"application/x-www-form-urlencoded");
    assert_eq!(gateway.client().send(&typed(unproved("t=1,v1=00", &form))).unwrap().status, 401);
    assert_unharmed(&gateway);
    assert_kept(&gateway, &typed(signed_bytes(&form)), UNREADABLE);
}

/// What a body is, its bytes and its source say; the content type is the sender's opinion, and not signed.
#[test]
fn case_36_a_content_type_cannot_change_what_a_body_is() {
    let gateway = gateway();
    let types: [&[u8]; 8] = [
        b"text/html",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"application/json; charset=utf-16",
        b"application/xml",
        b"image/svg+xml",
        b"",
        b"\xff\xff",
    ];
    for (serial, content_type) in (1..).zip(types) {
        assert_kept(&gateway, &with_header(sample(serial), "content-type", content_type), "invoice.paid");
    }
    // A file that a form uploads stays the bytes of a form.
    let upload =
        b"--x\r\ncontent-disposition: form-data; name=\"f\"; filename=\"../../etc/passwd\"\r\n\r\n{}\r\n--x--\r\n";
    let multipart = with_header(signed_bytes(upload), "content-type", b"multipart/form-data; boundary=x");
    assert_kept(&gateway, &multipart, UNREADABLE);
    // A signature in the body or the query is none.
    let events = gateway.events().len();
    let mut elsewhere = super::to_path("/webhooks/stripe?stripe-signature=t=1,v1=00", sample(99));
    elsewhere.headers.remove(SIGNATURE);
    assert_eq!(super::raw(&gateway, &post(&elsewhere)).status, 401);
    assert_eq!(gateway.events().len(), events);
    assert_serves(&gateway);
}

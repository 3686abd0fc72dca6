//! Getting past the signature.

use std::fs;
use std::path::{Path, PathBuf};

use hookfast_harness::{Answer, Gateway, SECRET, sample};
use hookfast_webhook::{Request, SIGNATURE_CANDIDATES_MAX};

use super::{
    SIGNATURE, assert_each_refused, assert_recorded, assert_unharmed, gateway, now, printed, raw, run, setup,
    signature_header, signature_of, to_path, unproved, with_header,
};

const OTHER_SECRET: &str = "whsec_of_somebody_else";
const BODY: &[u8] = br#"{"id":"evt_forged","type":"invoice.paid"}"#;

/// Requests for the same forged event, one for each signature header.
fn forgeries(headers: impl IntoIterator<Item = String>) -> impl Iterator<Item = (String, Request)> {
    headers.into_iter().map(|header| (header.clone(), unproved(&header, BODY)))
}

#[test]
fn case_01_a_missing_signature_is_refused() {
    let gateway = gateway();
    let mut request = sample(1);
    request.headers.remove(SIGNATURE);
    assert_each_refused(&gateway, [("no signature".into(), request)]);
    let series = r#"hookfast_verify_failures_total{source="stripe",reason="missing_header"}"#;
    assert!((gateway.metric(series) - 1.0).abs() < f64::EPSILON);
    assert_unharmed(&gateway);
}

#[test]
fn case_02_an_empty_or_prefix_only_signature_is_refused() {
    let gateway = gateway();
    let t = format!("t={}", now());
    let headers = ["", "v1", "v1=", "v1,", "t=", "t=,v1=", "sha256=", ",", "=", "t==,v1=="].map(String::from);
    let with_time = [format!("{t},"), format!("{t},v1"), format!("{t},v1="), format!("{t},v1=,v1="), t];
    assert_each_refused(&gateway, forgeries(headers.into_iter().chain(with_time)));
    assert_unharmed(&gateway);
}

#[test]
fn case_03_a_truncated_or_overlong_signature_is_refused() {
    let gateway = gateway();
    let request = sample(1);
    let value = signature_header(&request);
    let cut = (0..value.len()).map(|length| value[..length].to_vec());
    let longer = ["0", "00", "a", ".", "\t", &"0".repeat(64)].map(|tail| [&value, tail.as_bytes()].concat());
    for value in cut.chain(longer) {
        // Blanks around a header's value are no part of it, in HTTP.
        if value.trim_ascii() != signature_header(&request) {
            let what = String::from_utf8(value.clone()).unwrap();
            assert_each_refused(&gateway, [(what, with_header(request.clone(), SIGNATURE, &value))]);
        }
    }
    assert_unharmed(&gateway);
}

#[test]
fn case_04_a_blank_missing_or_unreadable_secret_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("blank"), " \n").unwrap();
    fs::write(folder.path().join("binary"), b"\xff\xfe").unwrap();
    fs::create_dir(folder.path().join("directory")).unwrap();
    for line in [
        "",
        "secrets = []",
        "secrets = [\"\"]",
        "secrets = [\" \\t\"]",
        "secrets = [\"good\", \"\"]",
        "secrets = \"not a list\"",
        "secrets = [7]",
        "secrets = [\"env:CASE_04_UNSET\"]",
        "secrets = [\"env:CASE_04_BLANK\"]",
        "secrets = [\"env:\"]",
        "secrets = [\"file:missing\"]",
        "secrets = [\"file:blank\"]",
        "secrets = [\"file:binary\"]",
        "secrets = [\"file:directory\"]",
        "secrets = [\"file:\"]",
    ] {
        assert_no_start(folder.path(), line);
    }
}

fn assert_no_start(folder: &Path, line: &str) {
    let listen = "listen = \"127.0.0.1:0\"";
    let config = format!("[ingest]\n{listen}\n[admin]\n{listen}\n[sources.stripe]\nprovider = \"stripe\"\n{line}\n");
    fs::write(folder.join("hookfast.toml"), config).unwrap();
    let output = run(folder, &["serve"], &[("CASE_04_BLANK", "  ")]);
    let said = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{line}: {said}");
    assert!(said.contains("`sources.stripe.secrets`") && said.contains("hookfast.toml:"), "{line}: {said}");
    assert!(!folder.join("hookfast.db").exists(), "{line}: nothing was begun");
}

#[test]
fn case_05_one_flipped_bit_in_body_or_signature_is_refused() {
    let gateway = setup().ingest("refusals_per_address = \"1000000/s\"").start();
    let request = sample(1);
    let bodies = flips(&request.body).map(|(place, body)| (place, Request { body: body.into(), ..request.clone() }));
    assert_each_refused(&gateway, bodies);
    // The header holds the signature and the timestamp.
    for (place, value) in flips(&signature_header(&request)) {
        if let Ok(value) = ::http::HeaderValue::from_bytes(&value) {
            assert_each_refused(&gateway, [(place, with_header(request.clone(), SIGNATURE, value.as_bytes()))]);
        }
    }
    assert_unharmed(&gateway);
}

fn flips(bytes: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    (0..bytes.len() * 8).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        (format!("bit {bit}"), flipped)
    })
}

/// A gateway with a second source that has other secrets.
fn gateway_with_second_source(secrets: &str) -> Gateway {
    setup().sections(&format!("[sources.second]\nprovider = \"stripe\"\nsecrets = {secrets}\n")).start()
}

fn signed_with(secret: &str, body: &[u8]) -> Request {
    let timestamp = now().to_string();
    unproved(&format!("t={timestamp},v1={}", signature_of(secret, &timestamp, body)), body)
}

#[test]
fn case_06_the_signature_of_another_source_is_refused() {
    let gateway = gateway_with_second_source(&format!("[\"{OTHER_SECRET}\"]"));
    let (first, second) = (sample(1), to_path("/webhooks/second", signed_with(OTHER_SECRET, BODY)));
    assert_each_refused(
        &gateway,
        [
            ("the first's at the second".into(), to_path("/webhooks/second", first.clone())),
            ("the second's at the first".into(), to_path("/webhooks/stripe", second.clone())),
        ],
    );
    assert_unharmed(&gateway);
    for at_home in [first, second] {
        assert_eq!(gateway.client().send(&at_home).unwrap().status, 200);
    }
}

#[test]
fn case_07_a_reserialised_body_is_refused() {
    let gateway = gateway();
    let original = signed_with(SECRET, br#"{"id": "evt_1", "type": "a/b", "amount": 1.50, "note": "caf\u00e9"}"#);
    let same_meaning = [
        r#"{"id":"evt_1","type":"a/b","amount":1.50,"note":"caf\u00e9"}"#,
        r#"{"type": "a/b", "id": "evt_1", "amount": 1.50, "note": "caf\u00e9"}"#,
        r#"{"id": "evt_1", "type": "a\/b", "amount": 1.50, "note": "caf\u00e9"}"#,
        r#"{"id": "evt_1", "type": "a/b", "amount": 1.5, "note": "caf\u00e9"}"#,
        r#"{"id": "evt_1", "type": "a/b", "amount": 1.50, "note": "café"}"#,
        "{\"id\": \"evt_1\", \"type\": \"a/b\", \"amount\": 1.50, \"note\": \"caf\\u00e9\"}\n",
        "\u{feff}{\"id\": \"evt_1\", \"type\": \"a/b\", \"amount\": 1.50, \"note\": \"caf\\u00e9\"}",
    ];
    let spoiled = same_meaning.map(|body| (body.to_owned(), Request { body: body.into(), ..original.clone() }));
    assert_each_refused(&gateway, spoiled);
    assert_unharmed(&gateway);

    // The bytes as they were signed are taken, and kept as they are.
    assert_eq!(gateway.client().send(&original).unwrap().status, 200);
    assert_eq!(gateway.event(gateway.events()[0].id).body, original.body);
}

#[test]
fn case_08_a_weaker_or_unknown_scheme_is_refused() {
    let gateway = gateway();
    let timestamp = now().to_string();
    let good = signature_of(SECRET, &timestamp, BODY);
    // `v0` is what Stripe sends beside `v1` for test events, and its packages ignore.
    let schemes = ["v0", "v2", "v11", "V1", "v1 ", " v1", "sha1", "sha256", "hmac", "none", "alg=none,v0"];
    assert_each_refused(&gateway, forgeries(schemes.map(|scheme| format!("t={timestamp},{scheme}={good}"))));
    // The secret itself, a plain hash and a MAC without the timestamp prove nothing.
    let plain = hookfast_webhook::signature::sha256_hex(BODY);
    let weaker = [SECRET.to_owned(), plain, signature_of(SECRET, "", BODY)];
    assert_each_refused(&gateway, forgeries(weaker.map(|value| format!("t={timestamp},v1={value}"))));
    assert_unharmed(&gateway);
}

#[test]
fn case_09_many_candidates_are_refused_unread() {
    let gateway = gateway();
    let timestamp = now().to_string();
    let good = format!("v1={}", signature_of(SECRET, &timestamp, BODY));
    let candidates = |wrong: usize, candidate: &str| format!("t={timestamp},{}{good}", candidate.repeat(wrong));
    let full_length = format!("v1={},", "0".repeat(64));
    let too_many =
        [(SIGNATURE_CANDIDATES_MAX, &*full_length), (900, &*full_length), (12_000, "v1=a,"), (12_000, "v1=,")];
    assert_each_refused(&gateway, forgeries(too_many.map(|(wrong, candidate)| candidates(wrong, candidate))));
    // Beyond the limit of the head nothing is parsed at all.
    let answer: Answer = gateway.client().send(&unproved(&candidates(2_000, &full_length), BODY)).unwrap();
    assert_eq!(answer.status, 431);
    assert_unharmed(&gateway);

    let enough = candidates(SIGNATURE_CANDIDATES_MAX - 1, &full_length);
    assert_eq!(gateway.client().send(&unproved(&enough, BODY)).unwrap().status, 200, "a few are an ordinary rotation");
}

#[test]
fn case_10_other_encodings_of_the_signature_are_refused() {
    use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, HEXLOWER};

    let gateway = gateway();
    let timestamp = now().to_string();
    let hex = signature_of(SECRET, &timestamp, BODY);
    let mac = HEXLOWER.decode(hex.as_bytes()).unwrap();
    let encodings = [
        hex.to_uppercase(),
        format!("0x{hex}"),
        format!("\"{hex}\""),
        format!(" {hex}"),
        format!("{hex} x"),
        format!("{hex}%00"),
        // Of every digit: a signature without the one that is rewritten would be the genuine one.
        hex.bytes().map(|digit| format!("%{digit:02x}")).collect(),
        hex[..63].to_owned(),
        format!("0{hex}"),
        HEXLOWER.encode(hex.as_bytes()),
        BASE64.encode(&mac),
        BASE64_NOPAD.encode(&mac),
        BASE64URL.encode(&mac),
    ];
    assert_each_refused(&gateway, forgeries(encodings.map(|value| format!("t={timestamp},v1={value}"))));
    // Digits that are digits elsewhere in Unicode, and bytes that are no text.
    let wide: String = hex.bytes().map(|digit| char::from_u32(0xfee0 + u32::from(digit)).unwrap()).collect();
    for value in [format!("t={timestamp},v1={wide}").into_bytes(), [b"t=1,v1=\xff\xfe", hex.as_bytes()].concat()] {
        assert_each_refused(&gateway, [(format!("{value:?}"), with_header(unproved("", BODY), SIGNATURE, &value))]);
    }
    assert_unharmed(&gateway);
}

/// That a comparison takes the same time wherever it fails cannot be measured in a test. That there is only one, by
/// `subtle`, can be read.
#[test]
fn case_11_signatures_are_compared_in_one_place_in_constant_time() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = Path::new("crates/webhook/src/signature.rs");
    let mut seen = 0;
    for file in rust_files(&root.join("crates")).into_iter().chain(rust_files(&root.join("providers"))) {
        let (text, name) = (fs::read_to_string(&file).unwrap(), file.strip_prefix(&root).unwrap());
        for word in ["ct_eq", "subtle::", "hmac::", "Hmac<", "sha2::", "verify_slice", "finalize("] {
            assert!(name == home || !text.contains(word), "{} uses `{word}`", name.display());
        }
        seen += usize::from(name == home && text.contains("expected.ct_eq(candidate)"));
    }
    assert_eq!(seen, 1, "{} compares in constant time", home.display());
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => rust_files(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

#[test]
fn case_12_rotation_takes_old_and_new_and_nothing_else() {
    let gateway = gateway_with_second_source("[\"whsec_old\", \"whsec_new\"]");
    let timestamp = now().to_string();
    let candidate = |secret: &str, body: &str| format!(",v1={}", signature_of(secret, &timestamp, body.as_bytes()));
    let send = |id: &str, secrets: &[&str]| {
        let body = format!(r#"{{"id":"{id}","type":"a"}}"#);
        let candidates: String = secrets.iter().map(|secret| candidate(secret, &body)).collect();
        let request = unproved(&format!("t={timestamp}{candidates}"), body.as_bytes());
        gateway.client().send(&to_path("/webhooks/second", request)).unwrap().status
    };
    assert_eq!(send("old", &["whsec_old"]), 200);
    assert_eq!(send("new", &["whsec_new"]), 200);
    assert_eq!(send("both", &["whsec_new", "whsec_old"]), 200);
    assert_eq!(send("one", &["whsec_older", "whsec_old"]), 200);
    assert_eq!(send("neither", &["whsec_older", "whsec_newer", SECRET]), 401);
    assert_recorded(&gateway, &["one", "both", "new", "old"]);
}

/// What a stranger can see of an answer, without what differs from request to request.
fn appearance(answer: Answer) -> (u16, Vec<(String, String)>, serde_json::Value) {
    let mut body = answer.json();
    body["request_id"].take();
    let headers = answer.headers.into_iter().filter(|(name, _)| name != "date" && name != "x-request-id").collect();
    (answer.status, headers, body)
}

#[test]
fn case_15_an_unknown_source_is_not_found() {
    let gateway = gateway();
    let unknown = to_path("/webhooks/unknown", sample(1));
    assert_eq!(gateway.client().send(&unknown).unwrap().status, 404);
    assert_unharmed(&gateway);
}

#[test]
fn case_15_a_concealed_source_looks_like_a_bad_signature() {
    let gateway = setup().ingest("conceal_sources = true").start();
    let spoil = |request: Request| unproved("t=1,v1=00", &request.body);
    let doubled = |mut request: Request| {
        request.headers.append(SIGNATURE, "t=1,v1=00".parse().unwrap());
        request
    };
    let get = |request: Request| Request { method: ::http::Method::GET, ..request };
    let huge = |request: Request| Request { body: vec![b' '; 11 << 20].into(), ..request };
    let attempts: [(&str, &dyn Fn(Request) -> Request); 5] = [
        ("a wrong signature", &spoil),
        ("no signature", &|request| unproved("", &request.body)),
        ("two signatures", &doubled),
        ("another method", &get),
        ("a huge body", &huge),
    ];
    for (what, attempt) in attempts {
        let look = |path| appearance(raw(&gateway, &hookfast_harness::post(&to_path(path, attempt(sample(1))))));
        assert_eq!(look("/webhooks/stripe"), look("/webhooks/unknown"), "{what}");
    }
    // Not even a good signature opens a source that is not there.
    assert_eq!(gateway.client().send(&to_path("/webhooks/unknown", sample(1))).unwrap().status, 401);
    assert_unharmed(&gateway);
}

#[test]
fn case_17_every_way_to_fail_ends_in_a_refusal() {
    let gateway = setup().source("body_limit = \"1KiB\"").ingest("body_timeout = \"300ms\"").start();
    let good = String::from_utf8(hookfast_harness::post(&sample(1))).unwrap();
    let broken = [
        ("another method", good.replace("POST", "PUT")),
        ("another path", good.replace("/webhooks/stripe", "/webhooks/nobody")),
        ("no host", good.replace("host: hooks.example.com\r\n", "")),
        ("two hosts", good.replace("host:", "host: a.example\r\nhost:")),
        ("no signature", good.replace(SIGNATURE, "x-signature")),
        ("two signatures", good.replace(SIGNATURE, "stripe-signature: t=1,v1=0\r\nstripe-signature")),
        ("no timestamp", good.replace("t=", "x=")),
        ("two timestamps", good.replace("t=", "t=1,t=")),
        ("a timestamp that is none", good.replace("t=", "t=x")),
        ("a changed body", good.replace("invoice.paid", "invoice.void")),
        ("half of the body", good[..good.len() - 100].to_owned()),
        ("a body too large", good.replace("content-length: ", "content-length: 9")),
        ("a length that is none", good.replace("content-length: ", "content-length: x")),
        ("a negative length", good.replace("content-length: ", "content-length: -")),
        ("broken chunks", good.replace("content-length: ", "transfer-encoding: chunked\r\nx: ")),
        ("no HTTP", "\u{16}\u{3}\u{1} this is TLS\r\n\r\n".into()),
    ];
    for (what, request) in broken {
        let status = raw(&gateway, request.as_bytes()).status;
        assert!((400..500).contains(&status), "{what}: answered {status}");
    }
    assert_unharmed(&gateway);
}

//! What only some providers have: public keys, challenges, tokens, URLs that are signed.

use std::sync::Arc;

use hookfast_catalog::{CatalogProvider, EMBEDDED, Settings};
use hookfast_harness::{Answer, Gateway};
use hookfast_webhook::{Provider, Request, SampleOrder};
use time::OffsetDateTime;

use crate::{assert_each_refused, assert_unharmed, setup};

/// The order of Ed25519's group, least byte first: adding it to a signature's second half gives another that "fits".
const GROUP_ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

fn described(name: &str) -> CatalogProvider {
    let description = EMBEDDED.iter().find(|description| description.name == name).unwrap();
    CatalogProvider::new(Arc::clone(description), Settings::default())
}

fn sample(provider: &dyn Provider, key: u8) -> Request {
    let url = format!("http://hooks.example.com/webhooks/{}", provider.name());
    let key = provider.key_pair(&[key; 32]).signing;
    let now = OffsetDateTime::now_utc();
    provider.sample(&SampleOrder { kind: None, url: &url, key: Some(&key), now, serial: 1 }).unwrap()
}

/// A gateway with a source of this provider that holds the first key.
fn gateway(provider: &dyn Provider) -> Gateway {
    let (name, held) = (provider.name(), provider.key_pair(&[1; 32]).verifying);
    setup().sections(&format!("[sources.{name}]\nprovider = \"{name}\"\nsecrets = [\"{}\"]", held.expose())).start()
}

fn with_header(request: &Request, name: &'static str, value: &str) -> Request {
    let mut request = request.clone();
    request.headers.insert(name, value.parse().unwrap());
    request
}

fn bent(signature: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let (first, second) = signature.split_at(32);
    let sum = second.iter().zip(GROUP_ORDER).map(|(left, right)| {
        carry += u16::from(*left) + u16::from(right);
        let byte = carry as u8;
        carry >>= 8;
        byte
    });
    first.iter().copied().chain(sum.collect::<Vec<_>>()).collect()
}

#[test]
fn case_13_another_key_or_a_bent_signature_is_refused() {
    use hookfast_webhook::signature::Encoding::Hex;

    let discord = described("discord");
    let attacked = gateway(&discord);
    let genuine = sample(&discord, 1);
    let name = "x-signature-ed25519";
    let signature = Hex.decode(genuine.headers[name].to_str().unwrap()).unwrap();
    let signed_as = |bytes: &[u8]| with_header(&genuine, name, &Hex.encode(bytes));
    assert_each_refused(
        &attacked,
        [
            ("the attacker's own key".into(), sample(&discord, 2)),
            ("zeros".into(), signed_as(&[0; 64])),
            ("the neutral element".into(), signed_as(&[&[1][..], &[0; 63]].concat())),
            ("the same signature plus the group's order".into(), signed_as(&bent(&signature))),
            ("half of it".into(), signed_as(&signature[..32])),
        ],
    );
    assert_unharmed(&attacked);
    assert_eq!(attacked.client().send(&genuine).unwrap().status, 200, "what was bent was good");

    let sendgrid = described("sendgrid");
    let attacked = gateway(&sendgrid);
    let name = "x-twilio-email-event-webhook-signature";
    let genuine = sample(&sendgrid, 1);
    assert_each_refused(
        &attacked,
        [
            ("the attacker's own key".into(), sample(&sendgrid, 2)),
            ("zeros".into(), with_header(&genuine, name, "MAYCAQACAQA=")),
            ("nothing".into(), with_header(&genuine, name, "MAA=")),
        ],
    );
    assert_unharmed(&attacked);
    assert_eq!(attacked.client().send(&genuine).unwrap().status, 200);
}

fn challenge(gateway: &Gateway, source: &str, token: &str, challenge: &str) -> Answer {
    let query = format!("hub.mode=subscribe&hub.verify_token={token}&hub.challenge={challenge}");
    let request = format!("GET /webhooks/{source}?{query} HTTP/1.1\r\nhost: x\r\n\r\n");
    gateway.client().raw(request.as_bytes()).unwrap()
}

#[test]
fn case_16_a_challenge_is_answered_with_its_token_and_nothing_else() {
    let sections = "[sources.whatsapp]\nprovider = \"whatsapp\"\nsecrets = [\"s\"]\nverify_token = \"ours\"\n\
                    [sources.strava]\nprovider = \"strava\"\nverify_token = \"ours\"\n\
                    [sources.dropbox]\nprovider = \"dropbox\"\nsecrets = [\"s\"]";
    let gateway = setup().sections(sections).start();
    let script = "%3Cscript%3Ealert(1)%3C/script%3E";

    let answer = challenge(&gateway, "whatsapp", "ours", script);
    assert_eq!((answer.status, answer.text().as_str()), (200, "<script>alert(1)</script>"));
    assert_eq!(answer.header("content-type"), Some("text/plain"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    let answer = challenge(&gateway, "strava", "ours", "%22%2C%22a%22%3A%221");
    assert_eq!(answer.json(), serde_json::json!({"hub.challenge": "\",\"a\":\"1"}));

    for source in ["whatsapp", "strava"] {
        for token in ["", "our", "ours2", "OURS", "s"] {
            let answer = challenge(&gateway, source, token, "1158201444");
            assert_eq!(answer.status, 403, "{source} {token}");
            assert!(!answer.text().contains("1158201444"));
        }
        let doubled = challenge(&gateway, source, "guess&hub.verify_token=ours", "1158201444");
        assert_eq!(doubled.status, 403, "which of the two is it?");
    }
    let long = "x".repeat(2000);
    assert_ne!(challenge(&gateway, "whatsapp", "ours", &long).status, 200);
    let request = format!("GET /webhooks/dropbox?challenge={long} HTTP/1.1\r\nhost: x\r\n\r\n");
    assert_eq!(gateway.client().raw(request.as_bytes()).unwrap().status, 401);
    let request = "GET /webhooks/stripe?challenge=x HTTP/1.1\r\nhost: x\r\n\r\n";
    assert_eq!(
        gateway.client().raw(request.as_bytes()).unwrap().status,
        405,
        "no provider answers another's challenge"
    );
    assert_unharmed(&gateway);
}

/// A few steps of a random walk through each provider's requests, against the real binary; `tests/run fuzz` goes much
/// further, without one.
#[test]
fn case_18_garbled_requests_of_any_provider_are_refused() {
    let gateway = setup().without_config().start();
    let mut random = 18_u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    for description in EMBEDDED.iter() {
        let genuine = sample(&described(&description.name), 2);
        for _ in 0..10 {
            let mut garbled = genuine.clone();
            let mut body = garbled.body.to_vec();
            for _ in 0..=next(8) {
                let place = next(body.len());
                body[place] = next(256) as u8;
            }
            garbled.body = body.into();
            let status = gateway.client().send(&garbled).unwrap().status;
            assert_eq!(status, 401, "{}", description.name);
        }
    }
    assert_eq!(gateway.events().len(), 0);
    let live = gateway.client().raw(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    assert_eq!(live.status, 200);
}

//! Changing what is not signed, for every provider: a recorded request must not become another event.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::sync::Arc;

use ::http::{HeaderName, HeaderValue, Method};
use hookfast_catalog::{CatalogProvider, Description, EMBEDDED, Settings};
use hookfast_harness::{Gateway, SECRET};
use hookfast_webhook::{Provider, Request, SampleOrder, Secret, form};
use time::OffsetDateTime;

use crate::{setup, to_path};

/// A provider with its contract and what a source of it needs besides the secret.
struct Known {
    provider: Arc<dyn Provider>,
    contract: String,
    settings: &'static str,
}

fn known() -> Vec<Known> {
    macro_rules! contract {
        ($name:literal) => {
            include_str!(concat!("../../providers/", $name, "/CONTRACT.md"))
        };
    }
    let salla = hookfast_salla::Config::for_development();
    let code: [(Arc<dyn Provider>, &str, &str); 7] = [
        (Arc::new(hookfast_stripe::Stripe::new(&Default::default())), contract!("stripe"), ""),
        (Arc::new(hookfast_garmin::Garmin::new(&Default::default())), contract!("garmin"), ""),
        (Arc::new(hookfast_strava::Strava::new(&Default::default()).unwrap()), contract!("strava"), ""),
        (Arc::new(hookfast_twilio::Twilio::new(&Default::default())), contract!("twilio"), ""),
        (Arc::new(hookfast_salla::Salla::new(&salla)), contract!("salla"), "strategy = \"signature\""),
        (Arc::new(hookfast_whatsapp::WhatsApp::new(&Default::default()).unwrap()), contract!("whatsapp"), ""),
        (Arc::new(hookfast_daily::Daily::new(&Default::default())), contract!("daily"), ""),
    ];
    let code = code.map(|(provider, contract, settings)| Known { provider, contract: contract.into(), settings });
    let described = EMBEDDED.iter().map(|description| Known {
        contract: description.contract(),
        provider: Arc::new(CatalogProvider::new(Arc::clone(description), Settings::default())),
        settings: "",
    });
    code.into_iter().chain(described).collect()
}

/// What stays possible: the provider, its samples, the parts that make another event when they are changed, and the
/// sentence of its contract that says so.
type Exception = (&'static str, &'static [&'static str], &'static [&'static str], &'static str);

const EXCEPTIONS: &[Exception] = &[
    (
        "dropbox",
        &["list_folder", "two_accounts"],
        &["x-request-id"],
        "an attacker with a recorded request can make any number of events from it",
    ),
    (
        "github",
        &["ping"],
        &["x-github-delivery"],
        "an attacker with such a recorded request can repeat it under another delivery id",
    ),
    (
        "gitlab",
        &["push", "merge_request", "pipeline"],
        &["idempotency-key"],
        "an attacker with a recorded request has the token and can forge any event",
    ),
    (
        "sentry",
        &["issue.created"],
        &["request-id"],
        "an attacker with such a recorded request can repeat it under another Request-ID",
    ),
    (
        "shopify",
        &["order"],
        &["x-shopify-topic"],
        "an attacker with such a recorded request can make one event from it for each topic that they name",
    ),
    (
        "shopify",
        &["uninstalled"],
        &["x-shopify-topic", "x-shopify-webhook-id"],
        "an attacker with such a recorded request can repeat it under another webhook id",
    ),
    (
        "shopify",
        &["event"],
        &["shopify-topic", "shopify-webhook-id", "headers of others"],
        "an attacker with such a recorded request can repeat it under another webhook id",
    ),
];

/// Headers that many systems take for the id of a request.
const IDS: [&str; 6] = ["x-request-id", "request-id", "idempotency-key", "x-amzn-trace-id", "cf-ray", "traceparent"];

impl Known {
    fn name(&self) -> &str {
        self.provider.name()
    }

    /// The section of a source that holds the first key. Every gateway of these tests has one of Stripe.
    fn section(&self, further: &str) -> String {
        let (name, held) = (self.name(), self.provider.key_pair(&[1; 32]).verifying);
        if name == "stripe" {
            return String::new();
        }
        let secrets = format!("secrets = [\"{}\"]", held.expose());
        format!("[sources.{name}]\nprovider = \"{name}\"\n{secrets}\n{}\n{further}\n", self.settings)
    }

    fn sample(&self, kind: &str, serial: u64) -> Request {
        let url = format!("http://hooks.example.com/webhooks/{}", self.name());
        let key = match self.name() {
            "stripe" => Secret::new(SECRET).unwrap(),
            _ => self.provider.key_pair(&[1; 32]).signing,
        };
        let now = OffsetDateTime::now_utc();
        self.provider.sample(&SampleOrder { kind: Some(kind), url: &url, key: Some(&key), now, serial }).unwrap()
    }

    /// The request with each part changed that can be, and the name of the part.
    fn changed(&self, request: &Request, foreign: &HashSet<HeaderName>) -> Vec<(String, Request)> {
        let proof = self.provider.proof_headers();
        let mut changed = Vec::new();
        let mut change = |part: &str, change: &dyn Fn(&mut Request)| {
            let mut request = request.clone();
            change(&mut request);
            changed.push((part.to_owned(), request));
        };
        let unsigned: HashSet<_> = request.headers.keys().filter(|name| !proof.contains(name)).collect();
        for name in unsigned {
            let insert = |request: &mut Request, value: &[u8]| {
                request.headers.insert(name, HeaderValue::from_bytes(value).unwrap());
            };
            change(name.as_str(), &|request| drop(request.headers.remove(name)));
            change(name.as_str(), &|request| insert(request, b"another"));
            change(name.as_str(), &|request| insert(request, b"a-third"));
            change(name.as_str(), &|request| insert(request, b"\xc3\xa9"));
            change(name.as_str(), &|request| {
                request.headers.append(name, HeaderValue::from_static("doubled"));
            });
        }
        let new = |name: &&HeaderName| !proof.contains(name) && !request.headers.contains_key(*name);
        let new: Vec<_> = foreign.iter().filter(new).collect();
        for value in ["added", "added-2"].map(HeaderValue::from_static) {
            let add = |request: &mut Request, name: &&HeaderName| drop(request.headers.insert(*name, value.clone()));
            change("headers of others", &|request| new.iter().for_each(|name| add(request, name)));
            for name in new.iter().filter(|name| IDS.contains(&name.as_str())) {
                change(name.as_str(), &|request| add(request, name));
            }
        }
        for query in ["x=1", "x=2"] {
            change("query", &|request| {
                let separator = if request.url.contains('?') { '&' } else { '?' };
                request.url = format!("{}{separator}{query}", request.url);
            });
        }
        change("path", &|request| {
            let (path, query) =
                request.url.split_once('?').map_or((&*request.url, None), |(path, query)| (path, Some(query)));
            request.url = format!("{path}/tail{}", query.map(|query| format!("?{query}")).unwrap_or_default());
        });
        for method in [Method::GET, Method::POST, Method::PUT] {
            change("method", &|request| request.method = method.clone());
        }
        change("body", &|request| request.body = [&request.body[..], b" "].concat().into());
        changed
    }
}

/// A gateway under attack, and how many events each source had when it was last looked.
struct Attacked {
    gateway: Gateway,
    counts: HashMap<String, u64>,
}

impl Attacked {
    fn start(known: &[Known]) -> Self {
        let sections: String = known.iter().map(|known| known.section("")).collect();
        let setup = setup().ingest("public_url = \"http://hooks.example.com\"").sections(&sections);
        Self { gateway: setup.start(), counts: HashMap::new() }
    }

    /// Sends a request, which must be taken, or refused as a sender can be.
    fn send(&self, what: &str, request: &Request) -> u16 {
        let status = self.gateway.client().send(request).unwrap().status;
        assert!(matches!(status, 200 | 400 | 401 | 403 | 405), "{what}: answered {status}");
        status
    }

    /// Sends a request and says whether it made an event.
    fn makes_an_event(&mut self, source: &str, what: &str, request: &Request) -> bool {
        self.send(what, request) == 200 && self.has_more(source)
    }

    fn has_more(&mut self, source: &str) -> bool {
        let series = format!("hookfast_events_total{{source=\"{source}\"}}");
        let count = self.gateway.metric_if_any(&series).unwrap_or_default() as u64;
        self.counts.insert(source.into(), count).unwrap_or_default() < count
    }
}

/// Headers that some provider gives a meaning to, and the ids of proxies.
fn meaningful_headers(known: &[Known]) -> HashSet<HeaderName> {
    let of = |known: &Known| {
        let headers = known.provider.sample_kinds().into_iter().map(|kind| known.sample(kind, 1).headers);
        headers.flat_map(|headers| headers.keys().cloned().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let ids = IDS.map(HeaderName::from_static);
    known.iter().flat_map(of).chain(ids).filter(|name| *name != "content-type").collect()
}

#[test]
fn case_22_no_unsigned_part_of_any_provider_makes_a_second_event() {
    let all = known();
    let foreign = meaningful_headers(&all);
    let mut attacked = Attacked::start(&all);
    let mut found = BTreeSet::new();
    for known in &all {
        for (serial, kind) in (1..).zip(known.provider.sample_kinds()) {
            let name = known.name();
            let genuine = known.sample(kind, serial);
            assert_eq!(attacked.send(kind, &genuine), 200, "{name} {kind}");
            attacked.has_more(name);
            let changed = known.changed(&genuine, &foreign);
            for (part, changed) in &changed {
                attacked.send(&format!("{name} {kind}: {part}"), changed);
            }
            if !attacked.has_more(name) {
                continue;
            }
            // Once more, with a look after each.
            let genuine = known.sample(kind, 100 + serial);
            attacked.makes_an_event(name, kind, &genuine);
            for (part, changed) in known.changed(&genuine, &foreign) {
                if attacked.makes_an_event(name, &part, &changed) {
                    found.insert((name.to_owned(), kind.to_owned(), part));
                }
            }
        }
    }
    let mut expected = BTreeSet::new();
    for (name, kinds, parts, sentence) in EXCEPTIONS {
        let known = all.iter().find(|known| known.name() == *name).unwrap();
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&known.contract).contains(sentence), "{name}: the contract does not say: {sentence}");
        let pairs = kinds.iter().flat_map(|kind| parts.iter().map(move |part| (*kind, *part)));
        expected.extend(pairs.map(|(kind, part)| ((*name).to_owned(), kind.to_owned(), part.to_owned())));
    }
    let new: Vec<_> = found.difference(&expected).collect();
    assert!(new.is_empty(), "these make a second event of the first: {new:#?}");
    let gone: Vec<_> = expected.difference(&found).collect();
    assert!(gone.is_empty(), "these do not, so the exception can go: {gone:#?}");
}

/// The same signed text, cut into names and values in every way that keeps its order.
fn split_otherwise(genuine: &Request) -> Vec<Request> {
    let mut pairs: Vec<(String, String)> =
        form::pairs(&genuine.body).map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    pairs.sort();
    let mut splits = Vec::new();
    for index in 0..pairs.len() {
        let (name, value) = &pairs[index];
        if let Some((next, of_next)) = pairs.get(index + 1) {
            splits.push(
                [&pairs[..index], &[(name.clone(), format!("{value}{next}{of_next}"))], &pairs[index + 2..]].concat(),
            );
        }
        let text = format!("{name}{value}");
        for at in (1..=text.len()).filter(|at| text.is_char_boundary(*at) && *at != name.len()) {
            let cut = (text[..at].to_owned(), text[at..].to_owned());
            splits.push([&pairs[..index], &[cut], &pairs[index + 1..]].concat());
        }
    }
    let all: String = pairs.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]).collect();
    splits.push(vec![(all, String::new())]);
    let encode = |pairs: Vec<(String, String)>| {
        let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
        Request { body: pairs.join("&").into(), ..genuine.clone() }
    };
    splits.into_iter().map(encode).collect()
}

/// Twilio puts nothing between names and values when it signs.
#[test]
fn case_22_a_twilio_request_that_is_split_otherwise_is_the_same_event() {
    let all = known();
    let twilio = all.iter().find(|known| known.name() == "twilio").unwrap();
    let mut attacked = Attacked::start(std::slice::from_ref(twilio));
    for (serial, kind) in [(1, "message"), (2, "call"), (3, "message-status"), (4, "whatsapp")] {
        let genuine = twilio.sample(kind, serial);
        assert!(attacked.makes_an_event("twilio", kind, &genuine));
        let splits = split_otherwise(&genuine);
        let is_taken = |split: &&Request| attacked.gateway.client().send(split).unwrap().status == 200;
        let taken = splits.iter().filter(is_taken).count();
        assert!(taken > splits.len() / 2, "{taken} of {} have the same signed text", splits.len());
        assert!(!attacked.has_more("twilio"), "{kind}");
    }
}

/// An event whose type anybody could have chosen can be told from others, and a source can refuse it.
#[test]
fn case_22_a_type_that_is_not_signed_is_marked_and_can_be_refused() {
    let all = known();
    let acme = r#"name = "acme"
title = "Acme"
documentation = "https://acme.example"
setup = "1. Nothing."
[[signature]]
from = "header:acme-signature"
encoding = "hex"
algorithm = "hmac-sha256"
signed = "{body}"
[event]
type = ["{json:type}", "{header:acme-type}"]
dedupe = "{hash}"
[[sample]]
kind = "signed"
body = '{"type":"paid","id":{serial}}'
[[sample]]
kind = "unsigned"
headers = { acme-type = "paid" }
body = '{"id":{serial}}'
"#;
    let provider = CatalogProvider::new(Arc::new(Description::parse(acme).unwrap()), Settings::default());
    let acme_known = Known { provider: Arc::new(provider), contract: String::new(), settings: "" };
    let github = all.iter().find(|known| known.name() == "github").unwrap();
    let strict = acme_known.section("unsigned_type = \"refuse\"").replacen("acme", "strict", 1);
    let setup = setup().sections("[catalog]\nfiles = [\"acme.toml\"]");
    let setup = setup.sections(&(acme_known.section("") + &strict + &github.section("")));
    fs::write(setup.folder().join("acme.toml"), acme).unwrap();
    let gateway = setup.start();
    let send = |request: &Request, source: &str| {
        gateway.client().send(&to_path(&format!("/webhooks/{source}"), request.clone())).unwrap().status
    };

    let (signed, unsigned) = (acme_known.sample("signed", 1), acme_known.sample("unsigned", 1));
    assert_eq!([send(&signed, "acme"), send(&unsigned, "acme")], [200, 200]);
    assert_eq!([send(&signed, "strict"), send(&unsigned, "strict")], [200, 401]);
    assert!(gateway.log().contains("the type of its events is not signed"), "the operator learns why");
    assert_eq!(send(&github.sample("push", 1), "github"), 200);

    let mut marks: Vec<_> = gateway
        .events()
        .iter()
        .map(|event| (event.source.clone(), gateway.event(event.id).proof.to_string()))
        .collect();
    marks.sort();
    let expected = [
        ("acme", "signature"),
        ("acme", "signature_without_type"),
        ("github", "signature_without_type"),
        ("strict", "signature"),
    ];
    assert_eq!(marks, expected.map(|(source, proof)| (source.to_owned(), proof.to_owned())));
    let github = gateway.events().into_iter().find(|event| event.source == "github").unwrap().id.to_string();
    for arguments in [&["events", "show", &github][..], &["events", "show", &github, "--json"]] {
        assert!(gateway.command(arguments).output.contains("signature_without_type"), "{arguments:?}");
    }
}

#[test]
fn case_22_a_source_that_would_refuse_everything_is_refused_at_start() {
    let all = known();
    for (name, is_wrong) in [("github", true), ("shopify", true), ("sentry", true), ("gitlab", true), ("linear", false)]
    {
        let known = all.iter().find(|known| known.name() == name).unwrap();
        let checked = setup().sections(&known.section("unsigned_type = \"refuse\"")).command(&["config", "check"]);
        let said = format!("{}{}", checked.output, checked.errors);
        assert_eq!(said.contains("never signs the type"), is_wrong, "{name}: {said}");
    }
}

//! Hostile input: no request makes a provider panic, and only signed requests are accepted.

use std::sync::LazyLock;

use hookfast_webhook::{Provider, Request, Secrets, verify};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::{embedded, now};
use crate::template::{Place, Template};
use crate::{CatalogProvider, EMBEDDED};

static PROVIDERS: LazyLock<Vec<CatalogProvider>> =
    LazyLock::new(|| EMBEDDED.iter().map(|description| embedded(&description.name)).collect());

/// Every header that a provider reads.
fn headers_of(provider: &CatalogProvider) -> Vec<HeaderName> {
    let fields = provider.description.event.fields();
    let event = fields.iter().flat_map(|(_, field)| &field.0).flat_map(Template::places);
    let conditions = provider.description.handshake.iter().flat_map(|rule| &rule.when.0).map(|(place, _)| place);
    let named = event.chain(conditions).filter_map(|place| match place {
        Place::Header(name) => Some(name.clone()),
        _ => None,
    });
    provider.proof_headers().iter().cloned().chain(named).collect()
}

/// The members that a provider reads, with any values, and some of them twice.
fn json(provider: &CatalogProvider) -> BoxedStrategy<Vec<u8>> {
    let value = prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        "\\PC{0,8}".prop_map(|text| serde_json::to_string(&text).expect("a text is JSON")),
        "[\\[\\]{}\":,a0 \\\\]{0,12}",
    ];
    let paths = provider.paths.clone();
    let member = (0..paths.len().max(1), value).prop_map(move |(index, value)| {
        let path = paths.get(index).map_or(&[][..], Vec::as_slice);
        path.iter().rev().fold(value, |value, step| format!("{{\"{step}\":{value}}}"))
    });
    let object = prop::collection::vec(member, 0..6).prop_map(|members| {
        let inner =
            members.iter().map(|member| member.strip_prefix('{').and_then(|it| it.strip_suffix('}')).unwrap_or(member));
        format!("{{{}}}", inner.collect::<Vec<_>>().join(","))
    });
    prop_oneof![
        object.clone().prop_map(String::into_bytes),
        prop::collection::vec(object, 0..4).prop_map(|all| format!("[{}]", all.join(",")).into_bytes()),
    ]
    .boxed()
}

fn request(provider: &CatalogProvider) -> BoxedStrategy<Request> {
    let names = headers_of(provider);
    let value = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..24),
        "[tvh0-9a-f=,;: .]{0,40}".prop_map(String::into_bytes),
        Just(b"1760000000".to_vec()),
    ];
    let headers = prop::collection::vec((0..names.len().max(1), value), 0..8).prop_map(move |pairs| {
        let mut headers = HeaderMap::new();
        for (index, value) in pairs {
            if let (Some(name), Ok(value)) = (names.get(index), HeaderValue::from_bytes(&value)) {
                headers.append(name, value);
            }
        }
        headers
    });
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..64),
        "[a-z%=&0-9+]{0,40}".prop_map(String::into_bytes),
        json(provider),
    ];
    let query = "[a-z%=&?#0-9.]{0,24}";
    (any::<bool>(), query, headers, body)
        .prop_map(|(post, query, headers, body)| Request {
            method: if post { Method::POST } else { Method::GET },
            url: format!("https://hooks.example.com/webhooks/test?{query}"),
            headers,
            body: body.into(),
        })
        .boxed()
}

#[test]
fn no_request_makes_a_provider_panic() {
    for provider in PROVIDERS.iter() {
        let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) };
        let verdict = TestRunner::new(config).run(&request(provider), |request| {
            check(provider, request);
            Ok(())
        });
        verdict.unwrap_or_else(|failure| panic!("{}: {failure}", provider.name()));
    }
}

fn check(provider: &CatalogProvider, request: Request) {
    let secrets = Secrets::new(vec![provider.key_pair(&[1; 32]).verifying]);
    // As if it were signed.
    let _ = provider.read(&request);
    let _ = provider.answer(&request);
    let _ = provider.handshake(&provider.view(&request, &request.body), secrets.iter().next());
    if let Ok(verified) = verify(provider, request, &secrets, now()) {
        assert!(verified.genuine().is_none(), "what is not signed can only be a handshake");
    }
}

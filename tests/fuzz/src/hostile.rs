//! The worst requests that we could make up, and how long they take.
//!
//! All of them are tried at a tenth of their size. The worst for each provider are then measured whole, and at half
//! their size: what takes much more than twice as long for twice the size would be a way to stop us.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use hookfast_webhook::{Request, explain, signature, verify};
use http::HeaderValue;
use serde::Serialize;
use serde_json::{Value, json};

use crate::HostileArguments;
use crate::target::{self, Target, now};

/// How long requests are, by what is long about them. A parameter of a query has ten bytes.
const BODY_BYTES: usize = 10_000_000;
const HEADER_BYTES: usize = 1_000_000;
const QUERY_BYTES: usize = 1_000_000;
const PARAMETER_BYTES: usize = 10;

/// Longer requests are not explained.
const EXPLAINED_BYTES: usize = 60_000;

/// What takes longer is marked.
const MARKED: Duration = Duration::from_millis(50);
/// What takes longer fails; wide, because machines are noisy.
const MAX: Duration = Duration::from_millis(2000);
/// Twice the size may take this much longer, as soon as it can be measured at all.
const GROWTH_MAX: f64 = 3.0;
const MEASURABLE: Duration = Duration::from_millis(20);

/// How many of the worst are measured whole, how often, and how often before something is called wrong.
const WORST: usize = 2;
const ROUNDS: usize = 2;
const ROUNDS_MAX: usize = 12;

/// Stands in a sample's body for what will be put there.
const HOLE: &str = "@hostile@";

/// A kind of request that can have any size.
struct Kind {
    label: String,
    bytes: usize,
    make: Box<dyn Fn(usize) -> Request>,
}

/// What is done with a request.
#[derive(Clone, Copy)]
enum Step {
    Verify,
    Read,
    Explain,
}

impl Kind {
    fn size(&self, step: Step) -> usize {
        if matches!(step, Step::Explain) { EXPLAINED_BYTES } else { self.bytes }
    }
}

const STEPS: [(&str, Step); 3] = [("verify", Step::Verify), ("read", Step::Read), ("explain", Step::Explain)];

/// The worst that was found for one step of one provider.
#[derive(Serialize)]
struct Worst {
    provider: String,
    step: &'static str,
    kind: String,
    milliseconds: f64,
    /// How much longer it takes than half of it.
    growth: f64,
    is_wrong: bool,
}

/// Whether nothing took too long.
pub(crate) fn run(arguments: &HostileArguments) -> anyhow::Result<bool> {
    let targets = target::all()?;
    let is_wanted = |target: &&Target| arguments.provider.as_ref().is_none_or(|only| *only == target.name);
    let wanted: Vec<_> = targets.iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "there is no such provider");
    let mut found = Vec::new();
    for target in wanted {
        let kinds = kinds(target)?;
        eprintln!("{}: {} kinds of requests", target.label(), kinds.len());
        let spend = |step, request: &Arc<Request>| spend(step, target, &targets, request);
        let mut tried: Vec<_> = kinds.iter().map(|kind| (kind, try_small(kind, spend))).collect();
        for (index, (name, step)) in STEPS.into_iter().enumerate() {
            tried.sort_by_key(|(_, spent)| Reverse(spent[index]));
            let worst = tried
                .iter()
                .take(WORST)
                .map(|(kind, _)| measure(kind, kind.size(step), |request| spend(step, request)));
            let worst = worst.max_by_key(|measured| (measured.is_wrong(), measured.whole));
            found.extend(worst.map(|measured| measured.named(target, name)));
        }
    }
    print(&found, arguments.json);
    Ok(!found.iter().any(|worst| worst.is_wrong))
}

/// How long a step takes with a request.
fn spend(step: Step, target: &Target, all: &[Target], request: &Arc<Request>) -> Duration {
    let provider = target.provider.as_ref();
    let judge = || verify(provider, Arc::clone(request), &target.secrets, now());
    match step {
        Step::Verify => time(|| drop(judge())),
        Step::Read => time(|| {
            if provider.read(request).is_err() {
                // An event that cannot be read is known by its hash.
                signature::sha256_hex(&request.body);
            }
            provider.answer(request);
        }),
        Step::Explain => {
            let Err(refusal) = judge() else { return Duration::ZERO };
            let others: Vec<_> = all.iter().filter(|other| other.name != target.name).map(Target::endpoint).collect();
            let known: Vec<_> = all.iter().map(|target| target.provider.as_ref()).collect();
            time(|| drop(explain(&refusal, request, &target.endpoint(), &others, &known, now())))
        }
    }
}

fn time(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

fn try_small(kind: &Kind, spend: impl Fn(Step, &Arc<Request>) -> Duration) -> [Duration; STEPS.len()] {
    let request = Arc::new((kind.make)(kind.bytes / 10));
    let short = Arc::new((kind.make)(EXPLAINED_BYTES));
    STEPS.map(|(_, step)| spend(step, if matches!(step, Step::Explain) { &short } else { &request }))
}

/// The least of several rounds, in which both sizes take turns: others use the machine too.
fn measure(kind: &Kind, size: usize, spend: impl Fn(&Arc<Request>) -> Duration) -> Measured<'_> {
    let sizes = [size / 2, size].map(|size| Arc::new((kind.make)(size)));
    let mut measured = Measured { kind, half: Duration::MAX, whole: Duration::MAX };
    for round in 0..ROUNDS_MAX {
        let [half, whole] = sizes.each_ref().map(&spend);
        measured = Measured { kind, half: measured.half.min(half), whole: measured.whole.min(whole) };
        if round + 1 >= ROUNDS && !measured.is_wrong() {
            break;
        }
    }
    measured
}

/// How long a kind of request takes, and half of it.
struct Measured<'a> {
    kind: &'a Kind,
    half: Duration,
    whole: Duration,
}

impl Measured<'_> {
    fn growth(&self) -> f64 {
        self.whole.as_secs_f64() / self.half.as_secs_f64().max(1e-9)
    }

    fn is_wrong(&self) -> bool {
        self.whole > MAX || (self.whole > MEASURABLE && self.growth() > GROWTH_MAX)
    }

    fn named(&self, target: &Target, step: &'static str) -> Worst {
        Worst {
            provider: target.label(),
            step,
            kind: self.kind.label.clone(),
            milliseconds: self.whole.as_secs_f64() * 1000.0,
            growth: self.growth(),
            is_wrong: self.is_wrong(),
        }
    }
}

fn print(found: &[Worst], as_json: bool) {
    if as_json {
        println!("{}", json!({ "worst": found }));
        return;
    }
    println!("{:8} {:>9} {:>7}  {:45} request", "step", "ms", "growth", "provider");
    for Worst { provider, step, kind, milliseconds, growth, is_wrong } in found {
        let mark = match is_wrong {
            true => "WRONG",
            false if *milliseconds > MARKED.as_secs_f64() * 1000.0 => "slow",
            false => "",
        };
        println!("{step:8} {milliseconds:>9.1} {growth:>7.1}  {provider:45} {kind} {mark}");
    }
}

fn kinds(target: &Target) -> anyhow::Result<Vec<Kind>> {
    let mut kinds = Vec::new();
    for sample in target.samples()? {
        add_headers(&mut kinds, target, &sample);
        add_queries(&mut kinds, &sample);
        add_bodies(&mut kinds, &sample);
        add_grown(&mut kinds, &sample);
    }
    // Samples are much alike.
    kinds.sort_by(|a, b| a.label.cmp(&b.label));
    kinds.dedup_by(|a, b| a.label == b.label);
    Ok(kinds)
}

fn add_headers(kinds: &mut Vec<Kind>, target: &Target, sample: &Request) {
    let pieces = [",", ";", "=", ".", ":", " ", "a", "A", "0", "v1=0,", "t=1,", "v1,AAAA ", "ts=1;h1=0;", "x=y,z;"];
    for name in target.provider.proof_headers() {
        for piece in pieces {
            for whole in [false, true] {
                let (sample, name) = (sample.clone(), name.clone());
                let before = sample.headers.get(&name).filter(|_| whole).map(|value| value.as_bytes().to_vec());
                let before = before.unwrap_or_default();
                kinds.push(Kind {
                    label: format!("header {name}: {}{piece:?}…", if whole { "sample, " } else { "" }),
                    bytes: HEADER_BYTES,
                    make: Box::new(move |size| {
                        let mut request = sample.clone();
                        let value = [&before[..], piece.repeat(size / piece.len()).as_bytes()].concat();
                        request.headers.insert(&name, HeaderValue::from_bytes(&value).expect("plain text"));
                        request
                    }),
                });
            }
        }
    }
}

fn add_queries(kinds: &mut Vec<Kind>, sample: &Request) {
    for (label, piece) in FORMS {
        let sample = sample.clone();
        kinds.push(Kind {
            label: format!("{} with a query of many {label}", sample.method),
            bytes: QUERY_BYTES,
            make: Box::new(move |size| {
                let separator = if sample.url.contains('?') { '&' } else { '?' };
                let query = many(size / PARAMETER_BYTES, piece);
                Request { url: format!("{}{separator}{query}", sample.url), ..sample.clone() }
            }),
        });
    }
}

/// Text of a certain size, or a piece of a certain number.
type Fill = fn(usize) -> String;

/// Pairs of forms; the number makes them differ.
const FORMS: [(&str, Fill); 7] = [
    ("a&", |_| "a&".into()),
    ("a=1&", |_| "a=1&".into()),
    ("=&", |_| "=&".into()),
    ("different names", |number| format!("{}=&", number.wrapping_mul(0x9e37_79b9) % 10_000_000)),
    ("%41=%FF&", |_| "%41=%FF&".into()),
    ("bodySHA256=0&", |_| "bodySHA256=0&".into()),
    ("payload=%7B&", |_| "payload=%7B&".into()),
];

fn many(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect()
}

/// Pieces until there are about this many bytes.
fn filled(size: usize, piece: impl Fn(usize) -> String) -> String {
    many(size / piece(1).len(), piece)
}

fn add_bodies(kinds: &mut Vec<Kind>, sample: &Request) {
    let mut add = |label: String, make: Box<dyn Fn(usize) -> String>| {
        let sample = sample.clone();
        let make = Box::new(move |size| Request { body: make(size).into(), ..sample.clone() });
        kinds.push(Kind { label, bytes: BODY_BYTES, make });
    };
    for (label, piece) in FORMS {
        add(format!("form of {label}"), Box::new(move |size| filled(size, piece)));
        let before = String::from_utf8_lossy(&sample.body).into_owned();
        add(format!("sample, then {label}"), Box::new(move |size| format!("{before}&{}", filled(size, piece))));
    }
    for (label, fragment) in FRAGMENTS {
        add(format!("body is {label}"), Box::new(fragment));
    }
    add("body is [ without end".into(), Box::new(|size| "[".repeat(size)));
    add("body is {\"a\": without end".into(), Box::new(|size| "{\"a\":".repeat(size / 5)));
    add("body is blank".into(), Box::new(|size| " ".repeat(size)));
}

/// JSON of about the wanted size.
const FRAGMENTS: [(&str, Fill); 9] = [
    ("plain text", |size| format!("\"{}\"", "x".repeat(size))),
    ("text of escapes", |size| format!("\"{}\"", "\\u00e9".repeat(size / 6))),
    ("a long number", |size| "7".repeat(size)),
    ("nested arrays", |size| "[".repeat(size / 2) + &"]".repeat(size / 2)),
    ("nested objects", |size| "{\"a\":".repeat(size / 6) + "0" + &"}".repeat(size / 6)),
    ("many elements", |size| format!("[{}0]", "0,".repeat(size / 2))),
    ("10000 elements", |size| {
        format!("[{}{{}}]", format!("{{\"a\":\"{}\"}},", "x".repeat(size / 10_000)).repeat(9999))
    }),
    ("many members", |size| format!("{{{}\"\":0}}", filled(size, |number| format!("\"{number:07}\":0,")))),
    ("the same member", |size| format!("{{{}\"id\":0}}", "\"id\":0,".repeat(size / 7))),
];

/// Grows each value of a sample in turn, so that what the provider looks at is among them.
fn add_grown(kinds: &mut Vec<Kind>, sample: &Request) {
    let Ok(whole) = serde_json::from_slice::<Value>(&sample.body) else { return };
    for path in paths(&whole) {
        let mut holed = whole.clone();
        let Some(value) = holed.pointer_mut(&path) else { continue };
        let original = std::mem::replace(value, HOLE.into());
        let holed = holed.to_string();
        let mut add = |label: &str, fragment: Box<dyn Fn(usize) -> String>| {
            let (sample, holed) = (sample.clone(), holed.clone());
            let make = move |size| Request {
                body: holed.replace(&json!(HOLE).to_string(), &fragment(size)).into(),
                ..sample.clone()
            };
            kinds.push(Kind {
                label: format!("{} is {label}", if path.is_empty() { "body" } else { &path }),
                bytes: BODY_BYTES,
                make: Box::new(make),
            });
        };
        for (label, fragment) in FRAGMENTS {
            add(label, Box::new(fragment));
        }
        let again = format!("{original},");
        if let Value::Array(elements) = &original
            && let [first, ..] = &elements[..]
        {
            let first = format!("{first},");
            let end = first.trim_end_matches(',').to_owned();
            add(
                "its element again and again",
                Box::new(move |size| format!("[{}{end}]", first.repeat((size / first.len()).min(9999)))),
            );
        } else if path.rsplit('/').next().is_some_and(|step| step.parse::<usize>().is_ok()) {
            add(
                "standing there again and again",
                Box::new(move |size| {
                    format!("{}{}", again.repeat((size / again.len()).min(9999)), again.trim_end_matches(','))
                }),
            );
        }
    }
}

/// The places of all values.
fn paths(value: &Value) -> Vec<String> {
    let below = |step: String, value: &Value| -> Vec<String> {
        let step = step.replace('~', "~0").replace('/', "~1");
        paths(value).into_iter().map(|path| format!("/{step}{path}")).collect()
    };
    let mut all = vec![String::new()];
    match value {
        Value::Array(elements) => {
            all.extend(elements.iter().take(1).flat_map(|element| below("0".into(), element)));
        }
        Value::Object(members) => all.extend(members.iter().flat_map(|(name, value)| below(name.clone(), value))),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_json_and_have_about_the_wanted_size() {
        for (label, fragment) in FRAGMENTS {
            let fragment = fragment(100_000);
            assert!(hookfast_webhook::json::parse(fragment.as_bytes()).is_ok(), "{label}");
            assert!((90_000..300_000).contains(&fragment.len()), "{label}: {}", fragment.len());
        }
    }

    #[test]
    fn every_value_of_a_sample_is_found() {
        assert_eq!(paths(&json!({ "a/b": [{ "c": 1 }, 2] })), ["", "/a~1b", "/a~1b/0", "/a~1b/0/c"]);
    }
}

//! What must hold for every input.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hookfast_webhook::{
    Answer, Arrival, Genuine, Proof, ProofKind, Provider, Reading, Refusal, Request, RequestId, SourceName, UNREADABLE,
    Verified, explain, form, json, verify,
};

use crate::corpus::{Case, Corpus};
use crate::sign::covers;

/// The longest that any input may take, however busy the machine is.
const CASE_MAX: Duration = Duration::from_secs(5);

/// The longest dedupe key and label of an event.
const TEXT_MAX_BYTES: usize = 255;

/// What became of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Genuine(Proof),
    Handshake(Answer),
    Refused(Refusal),
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Keeps panics from the terminal, since they are reported as problems.
pub(crate) fn catch_panics() {
    std::panic::set_hook(Box::new(|panic| {
        if let Ok(mut last) = LAST_PANIC.lock() {
            *last = panic.to_string();
        }
    }));
}

/// Runs an input through all that a provider does, or says what is wrong.
pub(crate) fn check(corpus: &Corpus, case: &Case) -> Result<Verdict, String> {
    let start = Instant::now();
    let verdict = catch_unwind(AssertUnwindSafe(|| check_all(corpus, case)))
        .unwrap_or_else(|_| Err(LAST_PANIC.lock().map(|last| last.clone()).unwrap_or_default()));
    let elapsed = start.elapsed();
    if elapsed < CASE_MAX { verdict } else { Err(format!("it took {} ms", elapsed.as_millis())) }
}

fn check_all(corpus: &Corpus, case: &Case) -> Result<Verdict, String> {
    let target = &corpus.targets[case.target];
    let provider = target.provider.as_ref();
    let request = Arc::new(case.request.clone());
    let judge = || verify(provider, Arc::clone(&request), &target.secrets, case.now);
    let (verified, again) = (judge(), judge());
    let (verdict, again) = (verdict(&verified), verdict(&again));
    demand(verdict == again, || format!("the verdict changed from {verdict:?} to {again:?}"))?;

    // Also what is refused, because it could have been signed.
    check_readings(provider, &request)?;
    match verified {
        Ok(Verified::Genuine(genuine)) => check_genuine(corpus, case, genuine)?,
        Ok(Verified::Handshake(answer)) => demand(answer.status.is_success(), || format!("{answer:?}"))?,
        Err(refusal) => check_explanation(corpus, case, &refusal)?,
    }
    Ok(verdict)
}

fn demand(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

fn verdict(verified: &Result<Verified, Refusal>) -> Verdict {
    match verified {
        Ok(Verified::Genuine(genuine)) => Verdict::Genuine(genuine.proof()),
        Ok(Verified::Handshake(answer)) => Verdict::Handshake(answer.clone()),
        Err(refusal) => Verdict::Refused(refusal.clone()),
    }
}

fn check_readings(provider: &dyn Provider, request: &Request) -> Result<(), String> {
    demand(provider.answer(request) == provider.answer(request), || "the answer changes".into())?;
    // Some descriptions of the catalog make up a new key for each event that has none.
    let without_key = |reading| Reading { dedupe_key: String::new(), ..reading };
    let read = || provider.read(request).map(|readings| readings.into_iter().map(without_key).collect::<Vec<_>>());
    demand(read() == read(), || "the events change".into())?;
    let readings = provider.read(request).unwrap_or_default();
    demand(readings.len() <= json::EVENTS_MAX, || format!("there are {} events", readings.len()))?;
    for reading in &readings {
        demand(!reading.dedupe_key.is_empty(), || format!("an empty key: {reading:?}"))?;
        demand(!reading.event_type.is_empty(), || format!("an empty type: {reading:?}"))?;
        demand(is_part(request, reading), || format!("a body that is no part of the request: {reading:?}"))?;
    }
    Ok(())
}

/// Whether the event's bytes are a piece of the body, or the query of a request without a body.
fn is_part(request: &Request, reading: &Reading) -> bool {
    let (whole, part) = (request.body.as_ptr_range(), reading.body.as_ptr_range());
    let is_inside = whole.start <= part.start && part.end <= whole.end;
    is_inside || reading.body.is_empty() || (request.body.is_empty() && reading.body == form::query(&request.url))
}

fn check_genuine(corpus: &Corpus, case: &Case, genuine: Genuine) -> Result<(), String> {
    let target = &corpus.targets[case.target];
    let provider = target.provider.as_ref();
    let kind = genuine.proof().kind();
    demand(kind != ProofKind::Unsigned || !provider.needs_secret(), || {
        "a secret is needed, but nothing is proved".into()
    })?;
    if kind == ProofKind::Signature {
        let same_name = corpus.seeds.iter().filter(|seed| corpus.targets[seed.target].name == target.name);
        let mut signed = same_name.map(|seed| &seed.request).chain(&case.signed);
        let was_signed = signed.any(|signed| covers(target, signed, &case.request));
        demand(was_signed, || "it is genuine, though nobody signed this".into())?;
    }

    let readings = genuine.readings(provider);
    let (events, problem) = genuine.read(provider, arrival(case)?);
    demand(readings.as_ref().err() == problem.as_ref(), || "it is readable once and once it is not".into())?;
    let count = readings.map_or(1, |readings| readings.len());
    demand(events.len() == count, || format!("{count} readings became {} events", events.len()))?;
    for event in &events {
        let (key, label) = (event.dedupe_key().as_str(), event.event_type().as_str());
        let texts = [Some(key), Some(label), event.account().map(|account| account.as_str())];
        let fit =
            texts.into_iter().flatten().all(|text| text.len() <= TEXT_MAX_BYTES && !text.contains(char::is_control));
        demand(fit && !key.is_empty() && !label.is_empty(), || format!("an unfit key or label: {event:?}"))?;
        demand(problem.is_none() || label == UNREADABLE, || format!("unreadable, but {label}"))?;
    }
    Ok(())
}

fn arrival(case: &Case) -> Result<Arrival, String> {
    Ok(Arrival {
        request_id: RequestId::new(),
        source: SourceName::new("fuzz").map_err(|error| error.to_string())?,
        remote_address: [192, 0, 2, 1].into(),
        received_at: case.now,
        trace_id: None,
    })
}

/// Which other sources there are follows from the input, so that it stays the same when it is replayed.
fn check_explanation(corpus: &Corpus, case: &Case, refusal: &Refusal) -> Result<(), String> {
    let endpoint = corpus.targets[case.target].endpoint();
    let other = |number: usize| corpus.targets[number % corpus.targets.len()].endpoint();
    let others = [other(case.request.body.len()), other(case.request.url.len()), other(case.target + 1)];
    let known: Vec<_> = corpus.targets.iter().map(|target| target.provider.as_ref()).collect();
    let explain = || explain(refusal, &case.request, &endpoint, &others, &known, case.now);
    demand(explain() == explain(), || "the explanation changes".into())?;
    demand(!refusal.to_string().is_empty(), || "a refusal without words".into())
}

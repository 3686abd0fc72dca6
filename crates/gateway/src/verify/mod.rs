//! `hookfast verify`: the code that ingest uses, offline, with the reasons said aloud.

mod vectors;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hookfast_handler::Handlers;
use hookfast_webhook::{
    Answer, Clock, Endpoint, FixedClock, Genuine, Priority, ProofKind, Provider, Reading, Refusal, Request, Secrets,
    SystemClock, Unreadable, Verified, explain, verify,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Problem;
use crate::commands::filter;
use crate::config::parse;
use crate::exit::Exit;
use crate::printable::plain;
use crate::providers::Providers;
use crate::{Config, config};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct VerifyArguments {
    /// Files of test vectors to run instead of one request
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["provider", "secret", "header", "body_file"])]
    pub(crate) vectors: Vec<PathBuf>,

    /// The provider, such as `stripe`
    #[arg(long, required_unless_present = "vectors")]
    pub(crate) provider: Option<String>,

    /// A secret: `env:NAME`, `file:PATH` or the text itself; may be repeated
    #[arg(long)]
    pub(crate) secret: Vec<String>,

    /// A setting of the provider, such as `tolerance_seconds=600`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,

    /// The request's method
    #[arg(long, default_value = "POST")]
    pub(crate) method: http::Method,

    /// The URL the provider was given
    #[arg(long, default_value = "http://localhost/")]
    pub(crate) url: String,

    /// A header, as `Name: value`; may be repeated
    #[arg(long, value_name = "HEADER")]
    pub(crate) header: Vec<String>,

    /// The file with the body, byte for byte; `-` is the standard input
    #[arg(long, required_unless_present = "vectors", value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,

    /// The time to judge by: `2026-07-01T08:00:00Z`, a day, or unix seconds [default: now]
    #[arg(long, value_name = "TIME", value_parser = filter::unix_time)]
    pub(crate) now: Option<i64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The largest body or file of vectors that is read.
const MAX_INPUT_BYTES: u64 = 256 << 20;

pub(crate) fn run(arguments: &VerifyArguments, file: Option<&Path>, handlers: &Handlers) -> Result<(), Exit> {
    let providers = config::providers(file).map_err(Exit::Config)?;
    if !arguments.vectors.is_empty() {
        return vectors::run(&providers, &arguments.vectors, arguments.json);
    }
    let provider = provider(&providers, arguments)?;
    let secrets = arguments.secret.iter().map(|text| parse::secret(text).map_err(|problem| usage("--secret", problem)));
    let secrets = Secrets::new(secrets.collect::<Result<_, _>>()?);
    for secret in secrets.iter() {
        provider.check_secret(secret).map_err(|problem| usage("--secret", problem))?;
    }
    let now = clock(arguments.now)?.now();
    let request = Arc::new(request(arguments)?);
    let verdict = verify(provider.as_ref(), Arc::clone(&request), &secrets, now);
    let endpoint = Endpoint { source: "-", provider: provider.as_ref(), secrets: &secrets };
    let hint = verdict.as_ref().err().and_then(|refusal| {
        // Without a configuration there are no other sources it could be meant for.
        let config = config::load(file, handlers).ok();
        hint(refusal, &request, &endpoint, config.as_ref(), &providers, now)
    });
    report(provider.as_ref(), &verdict, hint.as_deref(), arguments.json);
    verdict.map(|_| ()).map_err(|_| Exit::No)
}

fn hint(
    refusal: &Refusal,
    request: &Request,
    endpoint: &Endpoint<'_>,
    config: Option<&Config>,
    providers: &Providers,
    now: OffsetDateTime,
) -> Option<String> {
    let sources = config.iter().flat_map(|config| &config.sources);
    let others: Vec<_> = sources
        .map(|(name, source)| Endpoint {
            source: name.as_str(),
            provider: source.provider.as_ref(),
            secrets: &source.secrets,
        })
        .collect();
    let known = providers.for_recognition();
    let known: Vec<_> = known.iter().map(AsRef::as_ref).collect();
    explain(refusal, request, endpoint, &others, &known, now)
}

fn usage(flag: &str, problem: impl Into<String>) -> Exit {
    Exit::Config(vec![Problem { origin: "the command line".into(), key: flag.into(), problem: problem.into() }])
}

fn provider(providers: &Providers, arguments: &VerifyArguments) -> Result<Arc<dyn Provider>, Exit> {
    let name = arguments.provider.as_deref().unwrap_or_default();
    let kind = providers.find(name).map_err(|problem| usage("--provider", problem))?;
    let settings =
        arguments.settings.join("\n").parse().map_err(|_| usage("--set", "write KEY=VALUE, as in the file"))?;
    kind.build(settings).map_err(|problem| usage("--set", problem))
}

fn clock(now: Option<i64>) -> Result<Box<dyn Clock>, Exit> {
    let Some(seconds) = now else { return Ok(Box::new(SystemClock)) };
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.map(|time| Box::new(FixedClock(time)) as Box<dyn Clock>).map_err(|error| usage("--now", error.to_string()))
}

fn request(arguments: &VerifyArguments) -> Result<Request, Exit> {
    let headers = arguments.header.iter().map(|line| header(line)).collect::<Result<HeaderMap, _>>()?;
    let body = read_body(arguments.body_file.as_deref().unwrap_or(Path::new("-")))?;
    Ok(Request { method: arguments.method.clone(), url: arguments.url.clone(), headers, body })
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue), Exit> {
    let parse = || {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
    };
    parse().ok_or_else(|| usage("--header", format!("`{}` is not written as `Name: value`", line.escape_debug())))
}

fn read_body(file: &Path) -> Result<Bytes, Exit> {
    let read = if file == Path::new("-") { read_limited(io::stdin()) } else { File::open(file).and_then(read_limited) };
    let body = read.map_err(|error| usage("--body-file", format!("{} cannot be read: {error}", file.display())))?;
    Ok(body.into())
}

/// All of an input, which must have an end.
fn read_limited(input: impl Read) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    input.take(MAX_INPUT_BYTES + 1).read_to_end(&mut content)?;
    if content.len() as u64 > MAX_INPUT_BYTES {
        return Err(io::Error::other(format!("it has more than {} MiB", MAX_INPUT_BYTES >> 20)));
    }
    Ok(content)
}

fn report(provider: &dyn Provider, verdict: &Result<Verified, Refusal>, hint: Option<&str>, as_json: bool) {
    if as_json {
        outln!("{}", verdict_json(provider, verdict, hint));
        return;
    }
    match verdict {
        Err(refusal) => {
            outln!("refused: {}", plain(&refusal.to_string()));
            if let Some(hint) = hint {
                outln!("  probably: {}", plain(hint));
            }
        }
        Ok(Verified::Handshake(answer)) => outln!("handshake, answered: {}", plain(&in_words(answer))),
        Ok(Verified::Genuine(genuine)) => {
            outln!("{}", proof_in_words(genuine));
            match genuine.readings(provider) {
                Ok(readings) if readings.is_empty() => outln!("  no events in it"),
                Ok(readings) => readings.iter().for_each(print_reading),
                Err(Unreadable(problem)) => outln!("  unreadable, kept whole: {}", plain(&problem)),
            }
        }
    }
}

fn proof_in_words(genuine: &Genuine) -> String {
    let proof = genuine.proof();
    match (proof.kind(), proof.secret_index()) {
        (ProofKind::Signature, Some(index)) => format!("genuine: signed with secret number {}", index + 1),
        (ProofKind::PartialSignature, Some(index)) => {
            format!("genuine: signed with secret number {}, but the signature does not cover the events", index + 1)
        }
        (ProofKind::Token, Some(index)) => format!("genuine: it carries secret number {}", index + 1),
        _ => "taken as it is: nothing in it proves who sent it".into(),
    }
}

fn in_words(answer: &Answer) -> String {
    let body = String::from_utf8_lossy(&answer.body);
    format!("{} {}", answer.status, if body.is_empty() { "without a body".into() } else { body })
}

fn print_reading(reading: &Reading) {
    outln!("  key       {}", plain(&reading.dedupe_key));
    outln!("  type      {}{}", plain(&reading.event_type), if reading.type_is_signed { "" } else { " (not signed)" });
    outln!("  account   {}", reading.account.as_deref().map_or("-".into(), plain));
    outln!("  occurred  {}", reading.occurred_at.map_or("-".into(), rfc3339));
    let further = [("id", &reading.event_id), ("object", &reading.object_id), ("delivery", &reading.delivery_id)];
    for (name, value) in further {
        if let Some(value) = value.as_ref().filter(|value| **value != reading.dedupe_key) {
            outln!("  {name:8}  {}", plain(value));
        }
    }
    if reading.priority != Priority::Normal {
        outln!("  priority  {}", reading.priority.as_str());
    }
    if reading.ping {
        outln!("  ping      its content must be fetched");
    }
}

fn verdict_json(provider: &dyn Provider, verdict: &Result<Verified, Refusal>, hint: Option<&str>) -> Value {
    match verdict {
        Err(refusal) => {
            let explanation = refusal.to_string();
            json!({"genuine": false, "reason": refusal.reason(), "explanation": explanation, "probably": hint})
        }
        Ok(Verified::Handshake(answer)) => json!({"genuine": true, "handshake": in_words(answer)}),
        Ok(Verified::Genuine(genuine)) => {
            let readings = genuine.readings(provider);
            json!({
                "genuine": true,
                "proof": genuine.proof().kind(),
                "secret": genuine.proof().secret_index().map(|index| index + 1),
                "events": readings.as_ref().ok().map(|all| all.iter().map(reading_json).collect::<Vec<_>>()),
                "unreadable": readings.as_ref().err().map(|problem| problem.to_string()),
            })
        }
    }
}

fn reading_json(reading: &Reading) -> Value {
    json!({
        "dedupe_key": reading.dedupe_key,
        "id": reading.event_id,
        "object": reading.object_id,
        "delivery": reading.delivery_id,
        "ping": reading.ping,
        "priority": reading.priority.as_str(),
        "type": reading.event_type,
        "type_is_signed": reading.type_is_signed,
        "account": reading.account,
        "occurred_at": reading.occurred_at.map(rfc3339),
    })
}

fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

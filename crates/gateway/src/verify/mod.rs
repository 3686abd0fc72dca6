//! `hookfast verify`: the code that ingest uses, offline, with the reasons said aloud.

mod vectors;

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hookfast_webhook::{
    Clock, FixedClock, Genuine, Provider, Reading, Refusal, Request, Secrets, SystemClock, Unreadable, verify,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Problem;
use crate::cli::VerifyArguments;
use crate::config::parse;
use crate::exit::Exit;
use crate::providers::Builtin;

pub(crate) fn run(arguments: &VerifyArguments) -> Result<(), Exit> {
    if !arguments.vectors.is_empty() {
        return vectors::run(&arguments.vectors, arguments.json);
    }
    let provider = provider(arguments)?;
    let secrets = arguments.secret.iter().map(|text| parse::secret(text).map_err(|problem| usage("--secret", problem)));
    let secrets = Secrets::new(secrets.collect::<Result<_, _>>()?);
    let clock = clock(arguments.now)?;
    let verdict = verify(provider.as_ref(), request(arguments)?, &secrets, clock.now());
    report(provider.as_ref(), &verdict, arguments.json);
    verdict.map(|_| ()).map_err(|_| Exit::No)
}

fn usage(flag: &str, problem: impl Into<String>) -> Exit {
    Exit::Config(vec![Problem { origin: "the command line".into(), key: flag.into(), problem: problem.into() }])
}

fn provider(arguments: &VerifyArguments) -> Result<Arc<dyn Provider>, Exit> {
    let name = arguments.provider.as_deref().unwrap_or_default();
    let builtin = Builtin::find(name).map_err(|problem| usage("--provider", problem))?;
    let settings =
        arguments.settings.join("\n").parse().map_err(|_| usage("--set", "write KEY=VALUE, as in the file"))?;
    builtin.build(settings).map_err(|problem| usage("--set", problem))
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
    let mut body = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut body).map(drop)
    } else {
        std::fs::read(file).map(|content| body = content)
    };
    read.map_err(|error| usage("--body-file", format!("{} cannot be read: {error}", file.display())))?;
    Ok(body.into())
}

fn report(provider: &dyn Provider, verdict: &Result<Genuine, Refusal>, as_json: bool) {
    let readings = verdict.as_ref().ok().map(|genuine| genuine.readings(provider));
    if as_json {
        outln!("{}", verdict_json(verdict, readings.as_ref()));
        return;
    }
    match verdict {
        Err(refusal) => outln!("refused: {refusal}"),
        Ok(genuine) => {
            outln!("genuine: signed with secret number {}", genuine.proof().secret_index() + 1);
            match readings {
                Some(Ok(readings)) => readings.iter().for_each(print_reading),
                Some(Err(Unreadable(problem))) => outln!("  unreadable, kept whole: {problem}"),
                None => {}
            }
        }
    }
}

fn print_reading(reading: &Reading) {
    outln!("  key       {}", reading.dedupe_key);
    outln!("  type      {}", reading.event_type);
    outln!("  account   {}", reading.account.as_deref().unwrap_or("-"));
    outln!("  occurred  {}", reading.occurred_at.map_or("-".into(), rfc3339));
}

fn verdict_json(verdict: &Result<Genuine, Refusal>, readings: Option<&Result<Vec<Reading>, Unreadable>>) -> Value {
    match verdict {
        Err(refusal) => json!({"genuine": false, "reason": refusal.reason(), "explanation": refusal.to_string()}),
        Ok(genuine) => json!({
            "genuine": true,
            "secret": genuine.proof().secret_index() + 1,
            "events": readings.and_then(|readings| readings.as_ref().ok()).map(|all| all.iter().map(reading_json).collect::<Vec<_>>()),
            "unreadable": readings.and_then(|readings| readings.as_ref().err()).map(|problem| problem.to_string()),
        }),
    }
}

fn reading_json(reading: &Reading) -> Value {
    json!({
        "dedupe_key": reading.dedupe_key,
        "type": reading.event_type,
        "account": reading.account,
        "occurred_at": reading.occurred_at.map(rfc3339),
    })
}

fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

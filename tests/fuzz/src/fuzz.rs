//! One input after the other, until the time is over or something is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use fastrand::Rng;
use serde::Serialize;
use serde_json::json;

use crate::FuzzArguments;
use crate::check::{Verdict, catch_panics, check};
use crate::corpus::{Case, Corpus, Seed};
use crate::mutate;
use crate::sign::sign;

const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// What became of the inputs of one provider.
#[derive(Default, Serialize)]
struct Count {
    inputs: u64,
    genuine: u64,
    handshakes: u64,
    refused: u64,
}

/// Whether nothing was wrong.
pub(crate) fn run(arguments: &FuzzArguments) -> anyhow::Result<bool> {
    let corpus = Corpus::load()?;
    let mut names: Vec<_> = corpus.targets.iter().map(|target| target.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| arguments.provider.as_deref().is_none_or(|only| only == *name));
    ensure!(!names.is_empty(), "there is no such provider");
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("{} requests of {} providers to begin with; --seed {seed}", corpus.seeds.len(), names.len());

    catch_panics();
    let start = Instant::now();
    let mut next_progress = PROGRESS_EVERY;
    let mut counts = BTreeMap::<&str, Count>::new();
    for (number, name) in (0u64..).zip(names.iter().cycle()) {
        if start.elapsed() >= Duration::from_secs(arguments.seconds) {
            break;
        }
        if start.elapsed() >= next_progress {
            eprintln!("{} s: {number} inputs", next_progress.as_secs());
            next_progress += PROGRESS_EVERY;
        }
        let case = make(&corpus, name, &mut Rng::with_seed(seed.wrapping_add(number)));
        match check(&corpus, &case) {
            Ok(verdict) => counts.entry(name).or_default().add(&verdict),
            Err(problem) => {
                report(&corpus, &case, &problem, seed)?;
                return Ok(false);
            }
        }
    }
    summarise(&counts, seed, arguments.json);
    Ok(true)
}

/// Runs the requests of a file as they are. Whether nothing was wrong.
pub(crate) fn replay(file: &Path) -> anyhow::Result<bool> {
    let mut corpus = Corpus::load()?;
    let cases = corpus.read(file)?;
    catch_panics();
    let mut passed = true;
    for case in &cases {
        match check(&corpus, case) {
            Ok(verdict) => println!("{}: {verdict:?}", corpus.targets[case.target].label()),
            Err(problem) => {
                println!("{}: {problem}", corpus.targets[case.target].label());
                passed = false;
            }
        }
    }
    Ok(passed)
}

/// An input for the provider of this name: a seed, at times signed anew, then spoiled.
fn make(corpus: &Corpus, name: &str, rng: &mut Rng) -> Case {
    let seeds: Vec<_> = corpus.seeds.iter().filter(|seed| corpus.targets[seed.target].name == name).collect();
    let &Seed { target, ref request, now } = seeds[rng.usize(..seeds.len())];
    let of_others = &corpus.seeds[rng.usize(..corpus.seeds.len())];
    let donor = &if rng.bool() { of_others } else { seeds[rng.usize(..seeds.len())] }.request;
    let mut request = request.clone();
    let signed = if rng.u8(..4) == 0 {
        mutate::body(rng, &mut request, donor);
        sign(&corpus.targets[target], &request, now)
    } else {
        None
    };
    let mut request = signed.clone().unwrap_or(request);
    if signed.is_none() || rng.bool() {
        mutate::request(rng, &mut request, donor, corpus.targets[target].provider.proof_headers());
    }
    Case { target, request, now, signed }
}

fn report(corpus: &Corpus, case: &Case, problem: &str, seed: u64) -> anyhow::Result<()> {
    let target = &corpus.targets[case.target];
    let file = std::env::temp_dir().join(format!("hookfast-fuzz-{}-{seed}.json", target.name));
    fs::write(&file, corpus.write(case, problem))?;
    println!("{}: {problem}", target.label());
    println!("{:?} {:?} {:?}", case.request.method, case.request.url, case.request.headers);
    println!("{}", case.request.body.escape_ascii());
    println!("found with --seed {seed}; again with --replay {}", file.display());
    Ok(())
}

impl Count {
    fn add(&mut self, verdict: &Verdict) {
        self.inputs += 1;
        match verdict {
            Verdict::Genuine(_) => self.genuine += 1,
            Verdict::Handshake(_) => self.handshakes += 1,
            Verdict::Refused(_) => self.refused += 1,
        }
    }
}

fn summarise(counts: &BTreeMap<&str, Count>, seed: u64, as_json: bool) {
    let inputs: u64 = counts.values().map(|count| count.inputs).sum();
    if as_json {
        println!("{}", json!({ "seed": seed, "inputs": inputs, "problems": 0, "providers": counts }));
        return;
    }
    println!("{:18} {:>9} {:>9} {:>10} {:>9}", "provider", "inputs", "genuine", "handshakes", "refused");
    for (name, Count { inputs, genuine, handshakes, refused }) in counts {
        println!("{name:18} {inputs:>9} {genuine:>9} {handshakes:>10} {refused:>9}");
    }
    println!("{inputs} inputs, nothing wrong (--seed {seed})");
}

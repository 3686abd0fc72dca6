//! `[sources.NAME]`: the endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use hookfast_ingest::{SourceLimits, UnsignedType};
use hookfast_webhook::{Pattern, PriorityRules, Provider, SampleOrder, Secrets, SourceName, Verified, verify};
use time::OffsetDateTime;
use toml::{Table, Value};

use super::document::Document;
use super::section::Section;
use super::{SourceConfig, parse};
use crate::providers::{Kind, Providers};

pub(super) fn read(document: &mut Document, providers: &Providers) -> BTreeMap<SourceName, SourceConfig> {
    let mut sources = BTreeMap::new();
    for (name, value) in document.take("sources") {
        let key = format!("sources.{name}");
        let Value::Table(table) = value else {
            document.problem(&key, format!("must be a section: write `[{key}]` and its keys below"));
            continue;
        };
        let source = read_source(Section::new(document, &key, table), providers);
        match SourceName::new(&name) {
            Ok(name) => sources.extend(source.map(|source| (name, source))),
            Err(error) => document.problem(&key, error.to_string()),
        }
    }
    sources
}

fn read_source(mut section: Section<'_>, providers: &Providers) -> Option<SourceConfig> {
    // If a file of the catalog is wrong, its provider is missing for that reason, which was said already.
    let find = |value: &Value| match providers.find(&parse::text::<String>(value)?) {
        Err(_) if providers.is_incomplete() => Ok(None),
        found => found.map(Some),
    };
    let kind = section.required("provider", find, "write which provider sends here, such as \"stripe\"").flatten();
    let has_secrets = section.table.contains_key("secrets");
    let for_operators = section.document.for_operators;
    let secrets = section.optional("secrets", |value| match for_operators {
        true => Ok(Secrets::default()),
        false => parse::secrets(value),
    });
    let default = SourceLimits::default();
    let limits = SourceLimits {
        body_limit: section.value("body_limit", parse::size, default.body_limit),
        rate: section.optional("rate", parse::text),
        answer_deadline: section.optional("answer_deadline", parse::duration),
        allow_from: section.optional("allow_from", parse::list),
        unsigned_type: section.value("unsigned_type", parse::text, default.unsigned_type),
        priority: section.value("priority", priority_rules, default.priority),
    };
    let kind = kind?;
    // Which further keys are allowed depends on the provider, so without one nothing more can be said of this section.
    let provider = read_settings(&mut section, kind);
    if limits.unsigned_type == UnsignedType::Refuse
        && (kind.never_signs_type() || provider.as_deref().is_some_and(|provider| !signs_a_type(provider, has_secrets)))
    {
        let problem =
            "this provider never signs the type of its events, so every request would be refused: leave it out";
        section.problem("unsigned_type", problem.into());
    }
    if !for_operators {
        check_proof(&mut section, provider.as_deref(), has_secrets, secrets.as_ref(), &limits);
    }
    section.finish();
    Some(SourceConfig { provider: provider?, secrets: secrets.unwrap_or_default(), limits })
}

/// A table such as `{ "order.*" = "high" }`.
fn priority_rules(value: &Value) -> Result<PriorityRules, String> {
    let rules = value.as_table().ok_or("write a table of types and priorities, such as { \"order.*\" = \"high\" }")?;
    let rule = |(types, priority): (&String, &Value)| Ok((types.parse::<Pattern>()?, parse::priority(priority)?));
    Ok(PriorityRules::new(rules.iter().map(rule).collect::<Result<Vec<_>, String>>()?))
}

/// Whether the proof of any sample of the provider, with the settings of this source, covers the type of its events.
fn signs_a_type(provider: &dyn Provider, has_secrets: bool) -> bool {
    let keys = provider.key_pair(&[7; 32]);
    let key = has_secrets.then_some(&keys.signing);
    let (secrets, now) =
        (Secrets::new(has_secrets.then_some(keys.verifying).into_iter().collect()), OffsetDateTime::now_utc());
    let url = "https://localhost/webhooks/sample";
    provider.sample_kinds().into_iter().any(|kind| {
        let order = SampleOrder { kind: Some(kind), url, key, now, serial: 1 };
        let Ok(request) = provider.sample(&order) else { return false };
        let verified = verify(provider, request, &secrets, now).ok().and_then(Verified::genuine);
        verified.is_some_and(|genuine| {
            let readings = genuine.readings(provider).unwrap_or_default();
            genuine.proof().covers_type() && readings.iter().all(|reading| reading.type_is_signed)
        })
    })
}

/// What a source must have so that not everybody can send to it. Without a file, secrets are made up later.
fn check_proof(
    section: &mut Section<'_>,
    provider: Option<&dyn Provider>,
    has_secrets: bool,
    secrets: Option<&Secrets>,
    limits: &SourceLimits,
) {
    let needs_secret = provider.is_none_or(Provider::needs_secret);
    if !has_secrets && needs_secret && !section.document.for_development {
        section.problem("secrets", format!("is missing: {}", parse::SECRETS_ALLOWED));
    }
    let Some(provider) = provider else { return };
    for secret in secrets.iter().flat_map(|secrets| secrets.iter()) {
        if let Err(problem) = provider.check_secret(secret) {
            section.problem("secrets", problem);
        }
    }
    let none = Secrets::default();
    let open = provider.trusts_addresses_only(secrets.unwrap_or(&none)) && limits.allow_from.is_none();
    if open && !section.document.for_development {
        let problem = "nothing that comes here is proved: set `secrets` (a token in the path), another check of this \
                       provider, or `allow_from`";
        section.problem("", problem.into());
    }
}

/// The provider's own keys stand beside the others; the provider reads them. A text may stand elsewhere, as a secret can.
fn read_settings(section: &mut Section<'_>, kind: &Kind) -> Option<Arc<dyn Provider>> {
    let mut settings = Table::new();
    let (mut wrong, mut is_complete) = (false, true);
    for key in kind.settings() {
        section.known.push(key);
        let Some(value) = section.table.remove(key) else { continue };
        if section.document.for_operators && value.as_str().is_some_and(parse::stands_elsewhere) {
            is_complete = false;
            continue;
        }
        let value = match &value {
            Value::String(text) => parse::reference(text).map(Value::String),
            _ => Ok(value),
        };
        // One by one, so that each problem names its key.
        let alone = |value: &Value| kind.build(Table::from_iter([(key.to_owned(), value.clone())]));
        match value.and_then(|value| match alone(&value) {
            Err(problem) if !problem.starts_with("missing field") => Err(problem),
            _ => Ok(value),
        }) {
            Ok(value) => drop(settings.insert(key.into(), value)),
            Err(problem) => {
                wrong = true;
                section.problem(key, problem);
            }
        }
    }
    match kind.build(settings) {
        Ok(provider) if !wrong => Some(provider),
        Ok(_) => None,
        Err(_) if wrong || !is_complete => None,
        Err(problem) => {
            section.problem("", problem);
            None
        }
    }
}

//! Prints a description as text for people.

use hookfast_webhook::signature::{Algorithm, Encoding};

use crate::Description;
use crate::description::{Alternatives, KeyRule, SignatureRule};

impl Description {
    /// How the provider proves its requests, in a few words.
    pub fn scheme(&self) -> String {
        match &self.token {
            Some(token) => format!("token in {}", token.from.0),
            None => {
                let rules = self.signature.iter().map(|rule| {
                    let part = if rule.covers_events { "" } else { " (does not cover the events)" };
                    format!("{} over {}{part}", algorithm_in_words(rule.algorithm), rule.signed)
                });
                rules.collect::<Vec<_>>().join(", or ")
            }
        }
    }

    /// How the dedupe key of its events is made.
    pub fn dedupe(&self) -> String {
        self.event.dedupe.to_string()
    }

    /// The contract and the steps to set it up.
    pub fn contract(&self) -> String {
        let mut lines = vec![format!("# {}", self.title), String::new()];
        lines.push(format!("- Documentation: {}", self.documentation));
        lines.push(format!("- Proof: {}", self.scheme()));
        for rule in &self.signature {
            let prefix = if rule.prefix.is_empty() { String::new() } else { format!(" after `{}`", rule.prefix) };
            lines.push(format!("- Signature: in {}, as {}{prefix}", rule.from, encoding_in_words(rule.encoding)));
        }
        if let Some(freshness) = &self.freshness {
            let tolerance =
                freshness.tolerance_seconds.map_or("off unless `tolerance_seconds` is set".into(), |seconds| {
                    format!("{seconds} s unless `tolerance_seconds` is set")
                });
            lines.push(format!("- Age: of {}, {tolerance}", freshness.time));
        }
        for (name, field) in [("Event type", &self.event.event_type), ("Dedupe key", &self.event.dedupe)] {
            lines.push(format!("- {name}: {field}{}", self.unsigned_in_words(field)));
        }
        let priorities: Vec<_> =
            self.event.priority.0.iter().map(|(types, priority)| format!("{priority} for {types}")).collect();
        if !priorities.is_empty() {
            lines.push(format!("- Priority: {}", priorities.join(", ")));
        }
        if !self.handshake.is_empty() {
            lines.push(format!("- Handshakes: {}, answered by Hookfast", self.handshake.len()));
        }
        let tested = if self.vector_tested { "yes" } else { "no, written from the provider's documentation" };
        lines.push(format!("- Tested with test vectors: {tested}"));
        for (title, text) in [("Set-up", &self.setup), ("Notes", &self.notes)] {
            if !text.trim().is_empty() {
                lines.push(format!("\n## {title}\n\n{}", text.trim()));
            }
        }
        lines.join("\n")
    }

    /// The parts of a field that are not signed. Empty if the signature does not cover the events at all.
    fn unsigned_in_words(&self, field: &Alternatives) -> String {
        if self.signature.is_empty() || !self.signature.iter().all(|rule| rule.covers_events) {
            return String::new();
        }
        let parts = field.0.iter().flat_map(|template| &template.parts);
        let mut unsigned: Vec<_> = parts.filter(|part| !self.signs_part(part)).map(ToString::to_string).collect();
        unsigned.sort_unstable();
        unsigned.dedup();
        if unsigned.is_empty() { String::new() } else { format!(". Not signed: {}", unsigned.join(", ")) }
    }
}

impl SignatureRule {
    /// The form of a key of this provider, as text.
    pub(crate) fn key_in_words(&self) -> String {
        let KeyRule { encoding, prefix, prefix_needed } = &self.key;
        let what = if self.algorithm.is_asymmetric() { "the public key" } else { "the key" };
        let how = encoding_in_words(*encoding);
        match (prefix.as_str(), prefix_needed) {
            ("", _) => format!("{what} as {how}"),
            (prefix, true) => format!("{what} as {how} after `{prefix}`"),
            (prefix, false) => format!("{what} as {how}, with or without `{prefix}` before it"),
        }
    }
}

fn algorithm_in_words(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::HmacSha1 => "HMAC-SHA1",
        Algorithm::HmacSha256 => "HMAC-SHA256",
        Algorithm::HmacSha512 => "HMAC-SHA512",
        Algorithm::Ed25519 => "Ed25519",
        Algorithm::EcdsaP256 => "ECDSA P-256",
    }
}

fn encoding_in_words(encoding: Encoding) -> &'static str {
    match encoding {
        Encoding::Text => "text",
        Encoding::Hex => "hex",
        Encoding::Base64 => "base64",
    }
}

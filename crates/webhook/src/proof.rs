//! The reason why a request counts as genuine.

use serde::Serialize;

/// Evidence that a request is genuine, or the statement that its provider gives none. It is stored with the events.
///
/// Only a comparison in [`crate::signature`] makes evidence:
///
/// ```compile_fail
/// let proof = hookfast_webhook::Proof::by_secret(hookfast_webhook::ProofKind::Signature, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    kind: ProofKind,
    secret_index: Option<usize>,
}

/// How much a proof is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofKind {
    /// A signature covers the events.
    Signature,
    /// A signature covers the events, but not the part of the request that states their type.
    SignatureWithoutType,
    /// The request has a signature, but it covers only a part that does not contain the events.
    PartialSignature,
    /// The request contains a secret of the source.
    Token,
    /// There is no evidence: everyone who knows the URL could have sent the request.
    Unsigned,
}

impl Proof {
    pub(crate) fn by_secret(kind: ProofKind, secret_index: usize) -> Self {
        Self { kind, secret_index: Some(secret_index) }
    }

    /// The proof of a request whose provider signs nothing, or whose source is configured to check nothing.
    pub fn unsigned() -> Self {
        Self { kind: ProofKind::Unsigned, secret_index: None }
    }

    /// The same proof, for a signature that does not cover the events.
    #[must_use]
    pub fn of_a_part(self) -> Self {
        Self { kind: ProofKind::PartialSignature, ..self }
    }

    /// The same proof, for events whose type is outside the signed part. A proof that covers no events is not changed.
    #[must_use]
    pub(crate) fn without_type(self) -> Self {
        let kind = if self.kind == ProofKind::Signature { ProofKind::SignatureWithoutType } else { self.kind };
        Self { kind, ..self }
    }

    /// Whether a signature covers the events and their types.
    pub fn covers_type(&self) -> bool {
        self.kind == ProofKind::Signature
    }

    /// The index of the secret that matched, counted from 0.
    pub fn secret_index(&self) -> Option<usize> {
        self.secret_index
    }

    /// The index of the secret that the request contains, if the proof is a token.
    pub(crate) fn token_index(&self) -> Option<usize> {
        self.secret_index.filter(|_| self.kind == ProofKind::Token)
    }

    /// How the request was proved.
    pub fn kind(&self) -> ProofKind {
        self.kind
    }
}

impl ProofKind {
    /// All kinds, the strongest first.
    pub const ALL: [Self; 5] =
        [Self::Signature, Self::SignatureWithoutType, Self::PartialSignature, Self::Token, Self::Unsigned];

    /// The kind as the word that is stored with the event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Signature => "signature",
            Self::SignatureWithoutType => "signature_without_type",
            Self::PartialSignature => "partial_signature",
            Self::Token => "token",
            Self::Unsigned => "unsigned",
        }
    }
}

crate::enum_of_words!(ProofKind, "a kind of proof");

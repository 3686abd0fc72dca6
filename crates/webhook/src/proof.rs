//! Why a request is taken for genuine.

use serde::Serialize;

/// Evidence that a request is genuine, or the statement that its provider gives none. It is stored with the events.
///
/// Only a comparison in [`crate::signature`] gives evidence:
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
    /// A signature covers the events, but not what says of which type they are.
    SignatureWithoutType,
    /// A signature came along, but covers only a part that is not the events.
    PartialSignature,
    /// A secret came along.
    Token,
    /// Nothing: whoever knows the URL could have sent it.
    Unsigned,
}

impl Proof {
    pub(crate) fn by_secret(kind: ProofKind, secret_index: usize) -> Self {
        Self { kind, secret_index: Some(secret_index) }
    }

    /// For requests of providers that prove nothing, or whose configuration asks for no proof.
    pub fn unsigned() -> Self {
        Self { kind: ProofKind::Unsigned, secret_index: None }
    }

    /// The same proof, for a signature that does not cover the events.
    #[must_use]
    pub fn of_a_part(self) -> Self {
        Self { kind: ProofKind::PartialSignature, ..self }
    }

    /// The same proof, for events whose type stands outside of what is signed. One that covers no events stays as it is.
    #[must_use]
    pub(crate) fn without_type(self) -> Self {
        let kind = if self.kind == ProofKind::Signature { ProofKind::SignatureWithoutType } else { self.kind };
        Self { kind, ..self }
    }

    /// Whether a signature covers the events and their types.
    pub fn covers_type(&self) -> bool {
        self.kind == ProofKind::Signature
    }

    /// Which of the source's secrets matched, counted from 0.
    pub fn secret_index(&self) -> Option<usize> {
        self.secret_index
    }

    /// The same, if that secret came along as it is.
    pub(crate) fn token_index(&self) -> Option<usize> {
        self.secret_index.filter(|_| self.kind == ProofKind::Token)
    }

    /// How the request was proved.
    pub fn kind(&self) -> ProofKind {
        self.kind
    }
}

impl ProofKind {
    /// All of them, the strongest first.
    pub const ALL: [Self; 5] =
        [Self::Signature, Self::SignatureWithoutType, Self::PartialSignature, Self::Token, Self::Unsigned];

    /// The word for it, as it is stored with the event.
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

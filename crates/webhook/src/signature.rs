//! The one place where signatures are computed and compared, in constant time.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{Secret, Secrets};

/// A signature of HMAC-SHA256.
pub type Signature = [u8; 32];

/// How many signatures of one request are tried. A sender in the middle of a rotation has two; more than this is an
/// attempt to make us work.
pub const SIGNATURE_CANDIDATES_MAX: usize = 16;

/// Evidence that a request is genuine. Only this module can make one.
///
/// ```compile_fail
/// let proof = hookfast_webhook::Proof { secret_index: 0 };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    secret_index: usize,
}

impl Proof {
    /// Which of the source's secrets matched, counted from 0.
    pub fn secret_index(&self) -> usize {
        self.secret_index
    }

    /// How the request was proved, as it is stored with the event.
    pub fn kind(&self) -> &'static str {
        "signature"
    }
}

/// Signs `parts`, one after the other, with the secret's whole text as the key.
pub fn hmac_sha256(secret: &Secret, parts: &[&[u8]]) -> Signature {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Looks for a secret under which one of `candidates` signs `parts`.
///
/// Every secret is tried against every candidate whatever matched before, so the time taken tells nothing. The caller
/// bounds the number of candidates.
pub fn prove_hmac_sha256(secrets: &Secrets, parts: &[&[u8]], candidates: &[Signature]) -> Option<Proof> {
    let mut found = Choice::from(0);
    let mut secret_index = 0u64;
    for (index, secret) in (0u64..).zip(secrets.iter()) {
        let expected = hmac_sha256(secret, parts);
        let matches = candidates.iter().fold(Choice::from(0), |any, candidate| any | expected.ct_eq(candidate));
        secret_index.conditional_assign(&index, matches & !found);
        found |= matches;
    }
    bool::from(found).then_some(Proof { secret_index: secret_index as usize })
}

/// Reads a signature written as 64 lower-case hex digits.
pub fn from_hex(text: &str) -> Option<Signature> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// Writes bytes as lower-case hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// The SHA-256 of `bytes`, as hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    to_hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(texts: &[&str]) -> Secrets {
        Secrets::new(texts.iter().map(|text| Secret::new(*text).expect("not blank")).collect())
    }

    #[test]
    fn hmac_agrees_with_rfc_4231_case_2() {
        let secret = Secret::new("Jefe").expect("not blank");
        assert_eq!(
            to_hex(&hmac_sha256(&secret, &[b"what do ya want ", b"for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn the_proof_names_the_first_secret_that_matched() {
        let secrets = secrets(&["old", "new", "new"]);
        let signature = hmac_sha256(&Secret::new("new").expect("not blank"), &[b"body"]);
        let proof = prove_hmac_sha256(&secrets, &[b"body"], &[[0; 32], signature]);
        assert_eq!(proof.map(|proof| proof.secret_index()), Some(1));
    }

    #[test]
    fn no_secret_or_no_candidate_proves_nothing() {
        let signature = hmac_sha256(&Secret::new("s").expect("not blank"), &[b"body"]);
        assert_eq!(prove_hmac_sha256(&secrets(&[]), &[b"body"], &[signature]), None);
        assert_eq!(prove_hmac_sha256(&secrets(&["s"]), &[b"body"], &[]), None);
    }

    #[test]
    fn only_64_lower_case_hex_digits_are_a_signature() {
        let good = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert!(from_hex(good).is_some());
        for bad in ["", &good[1..], &format!("{good}0"), &format!("{good}00"), &good.to_uppercase(), "é"] {
            assert!(from_hex(bad).is_none(), "{bad}");
        }
    }
}

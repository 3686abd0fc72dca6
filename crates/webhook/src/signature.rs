//! The only place where signatures and tokens are made and compared. Comparisons with a secret take constant time.

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use ed25519_dalek::Signer;
use hmac::{Hmac, KeyInit, Mac};
use p256::ecdsa::signature::hazmat::{PrehashSigner, PrehashVerifier};
use p256::pkcs8::{DecodePublicKey, EncodePublicKey};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use crate::{Proof, ProofKind, Refusal, Secret, Secrets};

/// The most signatures of one request that are tried. A sender that rotates its secret sends two; more than this is an
/// attempt to cost us time.
pub const SIGNATURE_CANDIDATES_MAX: usize = 16;

/// How a signature is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-1. HMAC is still secure with it, although SHA-1 alone is not.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-512.
    HmacSha512,
    /// Ed25519; the receiver holds the public key.
    Ed25519,
    /// ECDSA on P-256 with SHA-256, signatures as DER; the receiver holds the public key as SPKI.
    EcdsaP256,
}

impl Algorithm {
    /// Whether the receiver holds a public key, which cannot be used to sign.
    pub fn is_asymmetric(self) -> bool {
        matches!(self, Self::Ed25519 | Self::EcdsaP256)
    }
}

/// How bytes are written as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Unchanged.
    Text,
    /// Lower-case hex digits.
    Hex,
    /// Base64 with the standard alphabet.
    Base64,
}

impl Encoding {
    /// Decodes a signature. Only the exact form is accepted, so that each signature has one spelling.
    pub fn decode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Text => Some(text.into()),
            Self::Hex => HEXLOWER.decode(text.as_bytes()).ok(),
            Self::Base64 => BASE64.decode(text.as_bytes()).ok(),
        }
    }

    /// Encodes bytes as text.
    pub fn encode(self, bytes: &[u8]) -> String {
        match self {
            Self::Text => String::from_utf8_lossy(bytes).into_owned(),
            Self::Hex => HEXLOWER.encode(bytes),
            Self::Base64 => BASE64.encode(bytes),
        }
    }
}

/// How the text of a secret becomes a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyForm {
    /// A text before the key that is not part of it.
    pub prefix: Cow<'static, str>,
    /// Whether a secret must have the prefix.
    pub prefix_needed: bool,
    /// The encoding of the rest.
    pub encoding: Encoding,
}

impl KeyForm {
    /// The secret's text is the key.
    pub const TEXT: Self = Self { prefix: Cow::Borrowed(""), prefix_needed: false, encoding: Encoding::Text };
    /// The secret is base64.
    pub const BASE64: Self = Self { encoding: Encoding::Base64, ..Self::TEXT };

    /// The key, if the secret has this form. People copy keys with and without padding, so both are accepted.
    fn decode<'a>(&self, secret: &'a Secret) -> Option<Cow<'a, [u8]>> {
        let text = match secret.expose().strip_prefix(&*self.prefix) {
            Some(rest) => rest,
            None if self.prefix_needed => return None,
            None => secret.expose(),
        };
        let key: Cow<'a, [u8]> = match self.encoding {
            Encoding::Text => text.as_bytes().into(),
            Encoding::Hex => HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.into(),
            Encoding::Base64 => BASE64_NOPAD.decode(text.trim_end_matches('=').as_bytes()).ok()?.into(),
        };
        (!key.is_empty()).then_some(key)
    }
}

/// How a provider signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The form of its keys.
    pub key: KeyForm,
}

/// The keys of both sides. With a shared secret both are the same.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// The key with which the provider signs.
    pub signing: Secret,
    /// The key in the configuration of the source.
    pub verifying: Secret,
}

impl Scheme {
    /// HMAC-SHA256 with the secret's whole text as the key. Most providers use this.
    pub const HMAC_SHA256: Self = Self { algorithm: Algorithm::HmacSha256, key: KeyForm::TEXT };

    /// Looks for a secret with which one of `candidates` is the signature of `parts`, joined in order.
    ///
    /// Every secret is tried with every candidate, even after a match, so that the time taken reveals nothing. The
    /// caller limits the number of candidates.
    pub fn prove(&self, secrets: &Secrets, parts: &[&[u8]], candidates: &[Vec<u8>]) -> Result<Proof, Refusal> {
        first_match(secrets, ProofKind::Signature, Refusal::WrongSignature, |secret| {
            self.key.decode(secret).map_or(Choice::from(0), |key| self.matches(&key, parts, candidates))
        })
    }

    fn matches(&self, key: &[u8], parts: &[&[u8]], candidates: &[Vec<u8>]) -> Choice {
        let any = |matches: &mut dyn FnMut(&[u8]) -> Choice| {
            candidates.iter().fold(Choice::from(0), |any, candidate| any | matches(candidate))
        };
        match self.algorithm {
            Algorithm::Ed25519 => {
                let message = parts.concat();
                any(&mut |candidate| Choice::from(u8::from(verify_ed25519(key, &message, candidate).is_some())))
            }
            Algorithm::EcdsaP256 => {
                let hash = sha256(parts);
                any(&mut |candidate| Choice::from(u8::from(verify_p256(key, &hash, candidate).is_some())))
            }
            _ => {
                let expected = self.mac(key, parts);
                any(&mut |candidate| expected.ct_eq(candidate))
            }
        }
    }

    /// Signs `parts` as the provider would. With a public-key algorithm `secret` is the private key.
    pub fn sign(&self, secret: &Secret, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let key = self.key.decode(secret)?;
        match self.algorithm {
            Algorithm::Ed25519 => {
                let key = ed25519_dalek::SigningKey::from_bytes(&<[u8; 32]>::try_from(&*key).ok()?);
                Some(key.sign(&parts.concat()).to_bytes().to_vec())
            }
            Algorithm::EcdsaP256 => {
                let key = p256::ecdsa::SigningKey::from_slice(&key).ok()?;
                let signature: p256::ecdsa::Signature = key.sign_prehash(&sha256(parts)).ok()?;
                Some(signature.to_der().as_bytes().to_vec())
            }
            _ => Some(self.mac(&key, parts)),
        }
    }

    fn mac(&self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self.algorithm {
            Algorithm::HmacSha1 => mac::<Hmac<Sha1>>(key, parts),
            Algorithm::HmacSha512 => mac::<Hmac<Sha512>>(key, parts),
            _ => mac::<Hmac<Sha256>>(key, parts),
        }
    }

    /// Whether `secret` has the form of a key of this scheme.
    pub fn takes(&self, secret: &Secret) -> bool {
        self.key.decode(secret).is_some_and(|key| match self.algorithm {
            Algorithm::Ed25519 => ed25519_key(&key).is_some(),
            Algorithm::EcdsaP256 => p256::ecdsa::VerifyingKey::from_public_key_der(&key).is_ok(),
            _ => true,
        })
    }

    /// Makes keys from random bytes, in the form that the provider uses.
    pub fn key_pair(&self, random: &[u8; 32]) -> KeyPair {
        let write = |bytes: &[u8]| {
            let text = match self.key.encoding {
                Encoding::Text => HEXLOWER.encode(bytes),
                encoding => encoding.encode(bytes),
            };
            Secret::new(format!("{}{text}", self.key.prefix)).expect("keys are not blank")
        };
        let (signing, verifying) = match self.algorithm {
            Algorithm::Ed25519 => {
                let key = ed25519_dalek::SigningKey::from_bytes(random);
                (write(random), write(key.verifying_key().as_bytes()))
            }
            Algorithm::EcdsaP256 => {
                // A random number that is not a valid key is about as unlikely as guessing a key.
                let key = p256::ecdsa::SigningKey::from_slice(random).expect("a random number is a key");
                let public = key.verifying_key().to_public_key_der().expect("a public key can be written");
                (write(random), write(public.as_bytes()))
            }
            _ => (write(random), write(random)),
        };
        KeyPair { signing, verifying }
    }
}

/// Looks for the secret that equals the token in a request. Compares hashes, so that the time taken does not even
/// reveal the length.
pub fn prove_token(secrets: &Secrets, presented: &[u8]) -> Result<Proof, Refusal> {
    let presented = sha256(&[presented]);
    first_match(secrets, ProofKind::Token, Refusal::WrongToken, |secret| {
        sha256(&[secret.expose().as_bytes()]).ct_eq(&presented)
    })
}

/// Whether `presented` equals `expected`. For values that must match but prove nothing about the rest of the request.
pub fn is_same(expected: &str, presented: &[u8]) -> bool {
    sha256(&[expected.as_bytes()]).ct_eq(&sha256(&[presented])).into()
}

fn first_match(
    secrets: &Secrets,
    kind: ProofKind,
    refusal: Refusal,
    matches: impl Fn(&Secret) -> Choice,
) -> Result<Proof, Refusal> {
    if secrets.is_empty() {
        return Err(Refusal::NoSecret);
    }
    let mut found = Choice::from(0);
    let mut secret_index = 0u64;
    for (index, secret) in (0u64..).zip(secrets.iter()) {
        let matches = matches(secret);
        secret_index.conditional_assign(&index, matches & !found);
        found |= matches;
    }
    if bool::from(found) { Ok(Proof::by_secret(kind, secret_index as usize)) } else { Err(refusal) }
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

fn ed25519_key(key: &[u8]) -> Option<ed25519_dalek::VerifyingKey> {
    ed25519_dalek::VerifyingKey::from_bytes(&key.try_into().ok()?).ok()
}

/// Verifies strictly: accepts only one form of a signature, and no weak key, with which one signature fits many
/// messages.
fn verify_ed25519(key: &[u8], message: &[u8], candidate: &[u8]) -> Option<()> {
    let signature = ed25519_dalek::Signature::from_slice(candidate).ok()?;
    ed25519_key(key)?.verify_strict(message, &signature).ok()
}

fn verify_p256(key: &[u8], hash: &[u8], candidate: &[u8]) -> Option<()> {
    let key = p256::ecdsa::VerifyingKey::from_public_key_der(key).ok()?;
    key.verify_prehash(hash, &p256::ecdsa::Signature::from_der(candidate).ok()?).ok()
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().into()
}

/// Encodes bytes as lower-case hex digits.
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

    const ALGORITHMS: [Algorithm; 5] =
        [Algorithm::HmacSha1, Algorithm::HmacSha256, Algorithm::HmacSha512, Algorithm::Ed25519, Algorithm::EcdsaP256];

    fn secret(text: &str) -> Secret {
        Secret::new(text).expect("not blank")
    }

    fn secrets(texts: &[&str]) -> Secrets {
        Secrets::new(texts.iter().map(|text| secret(text)).collect())
    }

    #[test]
    fn hmac_agrees_with_rfc_2202_and_rfc_4231_case_2() {
        let sign = |algorithm| {
            let scheme = Scheme { algorithm, key: KeyForm::TEXT };
            to_hex(&scheme.sign(&secret("Jefe"), &[b"what do ya want ", b"for nothing?"]).expect("a key"))
        };
        assert_eq!(sign(Algorithm::HmacSha1), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(sign(Algorithm::HmacSha256), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        assert!(
            sign(Algorithm::HmacSha512).starts_with("164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea250554")
        );
    }

    #[test]
    fn every_algorithm_takes_its_own_signature_and_no_other() {
        for algorithm in ALGORITHMS {
            let scheme = Scheme { algorithm, key: KeyForm::BASE64 };
            let keys = scheme.key_pair(&[7; 32]);
            let held = Secrets::new(vec![scheme.key_pair(&[9; 32]).verifying, keys.verifying]);
            assert!(held.iter().all(|secret| scheme.takes(secret)), "{algorithm:?}");
            let signature = scheme.sign(&keys.signing, &[b"bo", b"dy"]).expect("a signing key");
            let proof = scheme.prove(&held, &[b"body"], &[vec![0; 64], signature.clone()]);
            assert_eq!(proof.map(|proof| proof.secret_index()), Ok(Some(1)), "{algorithm:?}");
            assert_eq!(scheme.prove(&held, &[b"Body"], std::slice::from_ref(&signature)), Err(Refusal::WrongSignature));
            for place in 0..signature.len() {
                let mut flipped = signature.clone();
                flipped[place] ^= 1;
                assert!(scheme.prove(&held, &[b"body"], &[flipped]).is_err(), "{algorithm:?} byte {place}");
            }
            assert!(scheme.prove(&held, &[b"body"], &[signature[1..].to_vec(), vec![]]).is_err(), "{algorithm:?}");
        }
    }

    #[test]
    fn the_proof_names_the_first_secret_that_matched() {
        let signature = Scheme::HMAC_SHA256.sign(&secret("new"), &[b"body"]).expect("a key");
        let held = secrets(&["old", "new", "new"]);
        let proof = Scheme::HMAC_SHA256.prove(&held, &[b"body"], &[vec![0; 32], signature]);
        assert_eq!(proof.map(|proof| proof.secret_index()), Ok(Some(1)));
        assert_eq!(prove_token(&held, b"new").map(|proof| proof.secret_index()), Ok(Some(1)));
    }

    #[test]
    fn no_secret_or_no_candidate_proves_nothing() {
        let signature = Scheme::HMAC_SHA256.sign(&secret("s"), &[b"body"]).expect("a key");
        assert_eq!(Scheme::HMAC_SHA256.prove(&secrets(&[]), &[b"body"], &[signature]), Err(Refusal::NoSecret));
        assert_eq!(Scheme::HMAC_SHA256.prove(&secrets(&["s"]), &[b"body"], &[]), Err(Refusal::WrongSignature));
        assert_eq!(prove_token(&secrets(&[]), b""), Err(Refusal::NoSecret));
        assert_eq!(prove_token(&secrets(&["s"]), b""), Err(Refusal::WrongToken));
    }

    #[test]
    fn a_key_is_what_follows_the_prefix() {
        let form = KeyForm { prefix: "whsec_".into(), ..KeyForm::BASE64 };
        for text in ["whsec_AQID", "AQID"] {
            assert_eq!(form.decode(&secret(text)).as_deref(), Some(&[1, 2, 3][..]), "{text}");
        }
        assert_eq!(KeyForm::BASE64.decode(&secret("AQ==")), KeyForm::BASE64.decode(&secret("AQ")));
        let strict = KeyForm { prefix_needed: true, ..form };
        for bad in ["AQID", "whsec_", "whsec_?"] {
            assert_eq!(strict.decode(&secret(bad)), None, "{bad}");
        }
    }

    #[test]
    fn there_is_one_way_to_write_a_signature() {
        assert_eq!(Encoding::Hex.decode("0a"), Some(vec![10]));
        assert_eq!(Encoding::Base64.decode("Cg=="), Some(vec![10]));
        for bad in ["0A", "0", "0a ", "é"] {
            assert_eq!(Encoding::Hex.decode(bad), None, "{bad}");
        }
        for bad in ["Cg", "Cg=", "Ch==", "Cg== ", "-_=="] {
            assert_eq!(Encoding::Base64.decode(bad), None, "{bad}");
        }
    }
}

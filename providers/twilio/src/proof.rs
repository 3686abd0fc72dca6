//! Checks `X-Twilio-Signature`: base64 of the HMAC over the URL and the sorted parameters, without separators.

use hookfast_webhook::signature::{self, Encoding, Scheme};
use hookfast_webhook::{Proof, Refusal, Request, Secrets};
use http::HeaderName;

use crate::content::{Content, body_hashes};
use crate::parameters::Parameters;
use crate::{Config, SignatureAlgorithm};

pub(crate) const SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
pub(crate) const SETTINGS: HeaderName = HeaderName::from_static("x-twilio-webhooks-signature-settings");

/// The parameters of a request that has none.
const NOTHING: &str = "";

const TOO_MANY: &str = "the body has more parameters than Twilio ever sends, so its signature was not checked";

pub(crate) fn prove(request: &Request, secrets: &Secrets, scheme: &Scheme) -> Result<Proof, Refusal> {
    let signature = Encoding::Base64
        .decode(request.proof_header(&SIGNATURE)?)
        .ok_or(Refusal::MalformedHeader { name: SIGNATURE, problem: "it is not base64".into() })?;
    let urls = url_candidates(&request.url);
    let prove = |parameters: &str| {
        let prove = |url: &String| {
            scheme.prove(secrets, &[url.as_bytes(), parameters.as_bytes()], std::slice::from_ref(&signature))
        };
        // Both URLs are always tried, so that the time taken reveals nothing.
        let [without_port, with_port] = urls.each_ref().map(prove);
        without_port.or(with_port)
    };
    match Content::of(request) {
        Content::Query => prove(NOTHING),
        Content::HashedBody => {
            let proof = prove(NOTHING)?;
            refuse_another_body(request)?;
            Ok(proof)
        }
        Content::Form => {
            let parameters = Parameters::parse(&request.body).ok_or(Refusal::UnprotectedBody(TOO_MANY))?;
            prove(&parameters.signed_text()).map_err(|refusal| match prove(NOTHING) {
                Ok(_) => Refusal::UnprotectedBody(
                    "the signature is good but covers only the URL: the body has no `bodySHA256` in the query and is no \
                     signed form, so anyone could have written it",
                ),
                Err(_) => refusal,
            })
        }
    }
}

fn refuse_another_body(request: &Request) -> Result<(), Refusal> {
    let mut hashes = body_hashes(&request.url);
    match (hashes.next(), hashes.next()) {
        (Some(hash), None) if *hash == signature::sha256_hex(&request.body) => Ok(()),
        (Some(_), None) => Err(Refusal::UnprotectedBody(
            "the signature is good but `bodySHA256` in the query is not the hash of the body: the body was changed or \
             re-encoded on the way",
        )),
        _ => Err(Refusal::UnprotectedBody(
            "the signature is good but `bodySHA256` occurs more than once in the query, so it is unclear which one \
             counts",
        )),
    }
}

/// The URL without a port and with one. Twilio is not consistent about the port, so its own packages accept both. A
/// fragment only gives options to Twilio and is not signed.
pub(crate) fn url_candidates(url: &str) -> [String; 2] {
    let url = url.split('#').next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else {
        return [url.to_owned(), url.to_owned()];
    };
    let (authority, path_and_query) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
        _ if scheme.eq_ignore_ascii_case("https") => (authority, "443"),
        _ => (authority, "80"),
    };
    [format!("{scheme}://{host}{path_and_query}"), format!("{scheme}://{host}:{port}{path_and_query}")]
}

/// Refuses a request whose settings header differs from the configuration. The header is not signed, so it must never
/// choose the key or the algorithm.
pub(crate) fn refuse_other_settings(request: &Request, config: &Config) -> Result<(), Refusal> {
    if request.headers.get(SETTINGS).is_none_or(|value| value.is_empty()) {
        return Ok(());
    }
    let text = request.proof_header(&SETTINGS)?;
    let algorithm = setting(text, "algorithm")?.unwrap_or(SignatureAlgorithm::HmacSha1.name());
    if algorithm != config.algorithm.name() {
        return Err(Refusal::NotOurs("x-twilio-webhooks-signature-settings: algorithm"));
    }
    if config.key_id.is_some() && setting(text, "key")? != config.key_id.as_deref() {
        return Err(Refusal::NotOurs("x-twilio-webhooks-signature-settings: key"));
    }
    Ok(())
}

fn setting<'a>(text: &'a str, name: &str) -> Result<Option<&'a str>, Refusal> {
    let entries = text.split(',').filter_map(|entry| entry.split_once('='));
    let mut values = entries.filter(|(found, _)| found.trim() == name).map(|(_, value)| value.trim());
    let value = values.next();
    if values.next().is_some() {
        return Err(Refusal::MalformedHeader { name: SETTINGS, problem: "it has the same setting twice".into() });
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(url: &str) -> (String, String) {
        url_candidates(url).into()
    }

    #[test]
    fn a_url_is_tried_without_a_port_and_with_one() {
        for (url, without, with) in [
            ("https://a.example/x?y=:1", "https://a.example/x?y=:1", "https://a.example:443/x?y=:1"),
            ("http://a.example/x", "http://a.example/x", "http://a.example:80/x"),
            ("https://a.example:8443/x", "https://a.example/x", "https://a.example:8443/x"),
            ("https://a.example?x=/:1", "https://a.example?x=/:1", "https://a.example:443?x=/:1"),
            ("https://u:1@a.example/", "https://u:1@a.example/", "https://u:1@a.example:443/"),
            ("https://u:p@a.example:444", "https://u:p@a.example", "https://u:p@a.example:444"),
            ("https://[::1]/x", "https://[::1]/x", "https://[::1]:443/x"),
            ("https://[::1]:8/x", "https://[::1]/x", "https://[::1]:8/x"),
            ("https://a.example/x?y#rc=2", "https://a.example/x?y", "https://a.example:443/x?y"),
            ("", "", ""),
        ] {
            assert_eq!(candidates(url), (without.to_owned(), with.to_owned()), "{url}");
        }
    }

    #[test]
    fn escapes_and_slashes_in_the_url_stay_as_they_are() {
        let url = "https://a.example//x/%7Ey/../?b=%2f&a=+&é";
        assert_eq!(candidates(url).0, url);
    }

    #[test]
    fn settings_are_read_as_the_package_reads_them_but_not_twice() {
        let text = "key=k=1, algorithm = HMAC_SHA256 ,new";
        assert_eq!(setting(text, "key"), Ok(Some("k=1")));
        assert_eq!(setting(text, "algorithm"), Ok(Some("HMAC_SHA256")));
        assert_eq!(setting(text, "new"), Ok(None));
        assert!(setting("key=a,key=a", "key").is_err());
    }
}

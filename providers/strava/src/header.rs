//! Reads `X-Strava-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>…]` literally.

use hookfast_webhook::signature::Encoding;
use hookfast_webhook::{Refusal, SIGNATURE_CANDIDATES_MAX};

use crate::SIGNATURE;

/// The content of the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SignatureHeader<'a> {
    /// The time exactly as it is written, because that text is signed.
    pub(crate) signed_time: &'a str,
    pub(crate) timestamp: i64,
    pub(crate) signatures: Vec<Vec<u8>>,
}

pub(crate) fn parse(text: &str) -> Result<SignatureHeader<'_>, Refusal> {
    let mut signed_time = None;
    let mut signatures = Vec::new();
    let mut candidates = 0;
    for (key, value) in text.split(',').filter_map(|entry| entry.split_once('=')) {
        match key {
            "t" if signed_time.is_some() => return Err(malformed("it has two timestamps `t`")),
            "t" => signed_time = Some(value),
            "v1" => {
                candidates += 1;
                // An entry that is not valid hex cannot match, but another one may.
                signatures.extend(Encoding::Hex.decode(value));
                if candidates > SIGNATURE_CANDIDATES_MAX {
                    return Err(malformed("it has too many `v1` signatures"));
                }
            }
            _ => {}
        }
    }

    let signed_time = signed_time.ok_or_else(|| malformed("it has no timestamp `t`"))?;
    if candidates == 0 {
        return Err(malformed("it has no `v1` signature"));
    }
    Ok(SignatureHeader { signed_time, timestamp: unix_seconds(signed_time)?, signatures })
}

fn unix_seconds(text: &str) -> Result<i64, Refusal> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = text.parse().ok().filter(|_| digits);
    seconds.ok_or_else(|| malformed("its timestamp `t` is not a number of seconds"))
}

fn malformed(problem: &'static str) -> Refusal {
    Refusal::MalformedHeader { name: SIGNATURE.clone(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";

    #[test]
    fn order_and_unknown_entries_do_not_matter() {
        let text = format!("t=5,v1={HEX}");
        let expected = parse(&text).expect("well formed");
        assert_eq!((expected.signed_time, expected.timestamp, expected.signatures.len()), ("5", 5, 1));
        for same in [format!("v1={HEX},t=5"), format!("t=5,v0={HEX},x,v1={HEX}"), format!("t=5,v1=x,v1={HEX}")] {
            assert_eq!(parse(&same).as_ref(), Ok(&expected), "{same}");
        }
    }

    #[test]
    fn the_time_is_signed_as_it_is_written() {
        let text = format!("t=005,v1={HEX}");
        assert_eq!(parse(&text).map(|header| (header.signed_time, header.timestamp)), Ok(("005", 5)));
    }

    #[test]
    fn what_is_ambiguous_or_out_of_range_is_refused() {
        let bad =
            ["", "t", "v1=", "t=5", "t=5,t=5,v1=a", "t=,v1=a", "t=5.0,v1=a", "t=+5,v1=a", "t=-5,v1=a", "t=5 ,v1=a"];
        for bad in bad.into_iter().chain(["t=99999999999999999999,v1=a", "t=5, v1=a", "T=5,V1=a", "t=5;v1=a"]) {
            assert!(matches!(parse(bad), Err(Refusal::MalformedHeader { .. })), "{bad}");
        }
    }

    #[test]
    fn there_is_an_end_to_the_number_of_signatures() {
        let header = |count| "v1=a,".repeat(count) + "t=5";
        assert!(parse(&header(SIGNATURE_CANDIDATES_MAX)).is_ok());
        let refusal = parse(&header(SIGNATURE_CANDIDATES_MAX + 1)).map(|_| ());
        assert_eq!(refusal, Err(malformed("it has too many `v1` signatures")));
    }
}

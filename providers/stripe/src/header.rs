//! Reads `Stripe-Signature: t=<unix seconds>,v1=<hex>[,v1=<hex>…][,v0=<hex>]`, as literally as Stripe's own packages
//! do.

use hookfast_webhook::signature::Encoding;
use hookfast_webhook::{Refusal, SIGNATURE_CANDIDATES_MAX};

use crate::SIGNATURE;

/// The content of the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SignatureHeader {
    pub(crate) timestamp: i64,
    pub(crate) signatures: Vec<Vec<u8>>,
}

pub(crate) fn parse(text: &str) -> Result<SignatureHeader, Refusal> {
    let mut timestamp = None;
    let mut signatures = Vec::new();
    let mut candidates = 0;
    for (key, value) in text.split(',').filter_map(key_and_value) {
        match key {
            "t" if timestamp.is_some() => return Err(malformed("it has two timestamps `t`")),
            "t" => timestamp = Some(value.parse().map_err(|_| malformed("its timestamp `t` is not a number"))?),
            "v1" => {
                candidates += 1;
                // An entry that is not valid hex cannot match, but another one may.
                signatures.extend(Encoding::Hex.decode(value));
            }
            _ => {}
        }
    }

    let timestamp = timestamp.ok_or_else(|| malformed("it has no timestamp `t`"))?;
    match candidates {
        0 => Err(malformed("it has no `v1` signature")),
        1..=SIGNATURE_CANDIDATES_MAX => Ok(SignatureHeader { timestamp, signatures }),
        _ => Err(malformed("it has too many `v1` signatures")),
    }
}

/// The text before the first `=`, and the text from there to the next `=`. Stripe's packages read an entry in this way.
fn key_and_value(entry: &str) -> Option<(&str, &str)> {
    let mut parts = entry.split('=');
    Some((parts.next()?, parts.next()?))
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
        let expected = parse(&format!("t=5,v1={HEX}")).expect("well formed");
        assert_eq!(expected.timestamp, 5);
        assert_eq!(expected.signatures.len(), 1);
        for same in [format!("v1={HEX},t=5"), format!("t=5,v0={HEX},x,v1={HEX}"), format!("t=005,v1={HEX}")] {
            assert_eq!(parse(&same), Ok(SignatureHeader { timestamp: 5, signatures: expected.signatures.clone() }));
        }
    }

    #[test]
    fn a_blank_after_the_comma_hides_an_entry() {
        assert_eq!(parse(&format!("t=5, v1={HEX}")), Err(malformed("it has no `v1` signature")));
    }

    #[test]
    fn what_is_ambiguous_or_out_of_range_is_refused() {
        for bad in ["t=5,t=5,v1=a", "t=,v1=a", "t=5.0,v1=a", "t=1e9,v1=a", "t=99999999999999999999,v1=a", "t", "v1="] {
            assert!(matches!(parse(bad), Err(Refusal::MalformedHeader { .. })), "{bad}");
        }
        let many = "v1=a,".repeat(SIGNATURE_CANDIDATES_MAX + 1);
        assert_eq!(parse(&format!("{many}t=5")), Err(malformed("it has too many `v1` signatures")));
    }
}

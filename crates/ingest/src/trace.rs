//! The sender's trace id. Log lines show it, so that they can be matched with the sender's own log. Nothing else
//! depends on it, because the sender can write anything there.

use http::HeaderMap;

/// The trace id of a well-formed W3C `traceparent` header.
pub(crate) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all("traceparent").iter();
    let value = values.next().filter(|_| values.next().is_none())?.to_str().ok()?;
    let mut parts = value.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    // Version 00 has exactly four parts; later ones may have more.
    let complete = version != "00" || parts.next().is_none();
    let well_formed =
        is_hex(version, 2) && version != "ff" && is_hex(trace, 32) && is_hex(parent, 16) && is_hex(flags, 2);
    let not_zero = |text: &str| text.bytes().any(|byte| byte != b'0');
    (complete && well_formed && not_zero(trace) && not_zero(parent)).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_has_a_trace_id() {
        let id = |value: &str| {
            let headers =
                HeaderMap::from_iter([(http::HeaderName::from_static("traceparent"), value.parse().expect("legal"))]);
            trace_id(&headers).map(str::to_owned)
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(id(good).as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(id(&good.replacen("00-", "01-", 1).replace("-01", "-01-more")).as_deref(), Some(&good[3..35]));
        for bad in [
            "",
            "00",
            "00-x-y-z",
            &good.to_uppercase(),
            &format!("{good}-more"),
            &good.replacen("00", "ff", 1),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        ] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }
}

//! Forms and queries: `name=value&name=value`, percent-encoded.

use std::borrow::Cow;

/// All pairs, decoded, in order.
pub fn pairs(form: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(form)
}

/// The value of a name that stands there once.
pub fn value<'a>(form: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let mut values = pairs(form).filter(|(found, _)| found == name);
    let (_, value) = values.next()?;
    values.next().is_none().then_some(value)
}

/// What follows the question mark of a URL.
pub fn query(url: &str) -> &str {
    let url = url.split('#').next().unwrap_or_default();
    url.split_once('?').map_or("", |(_, query)| query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_decoded_and_must_be_the_only_one() {
        let form = b"hub.mode=subscribe&a=1%2B+2&b=1&b=2&empty=";
        assert_eq!(value(form, "hub.mode").as_deref(), Some("subscribe"));
        assert_eq!(value(form, "a").as_deref(), Some("1+ 2"));
        assert_eq!(value(form, "empty").as_deref(), Some(""));
        assert_eq!((value(form, "b"), value(form, "c")), (None, None));
    }

    #[test]
    fn a_query_ends_at_the_fragment() {
        assert_eq!(query("https://a.example/x?y=1#z?"), "y=1");
        assert_eq!(query("https://a.example/x"), "");
    }
}

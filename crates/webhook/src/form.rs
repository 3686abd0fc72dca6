//! Reads forms and queries: `name=value&name=value`, percent-encoded.

use std::borrow::Cow;

/// All pairs in order, decoded.
pub fn pairs(form: &[u8]) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    form_urlencoded::parse(form)
}

/// The value of a name. `None` if the name is missing or occurs more than once.
pub fn value<'a>(form: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let mut found = form.split(|byte| *byte == b'&').filter(|pair| has_name(pair, name));
    let (_, value) = pairs(found.next()?).next()?;
    found.next().is_none().then_some(value)
}

/// Decodes a name only if it could be the wanted one, because a body can have millions of pairs.
fn has_name(pair: &[u8], name: &str) -> bool {
    let found = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
    let could_be = (name.len()..=3 * name.len()).contains(&found.len());
    !pair.is_empty() && could_be && pairs(pair).next().is_some_and(|(found, _)| found == name)
}

/// The query of a URL: the text after the question mark.
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
        assert_eq!(value(b"&&%61%2e%C3%A9=+1&a", "a.\u{e9}").as_deref(), Some(" 1"));
        assert_eq!((value(b"=x&a=1&%61=2", "").as_deref(), value(b"=x&a=1&%61=2", "a")), (Some("x"), None));
        assert_eq!((value(b"", ""), value(b"&", "")), (None, None));
    }

    #[test]
    fn a_query_ends_at_the_fragment() {
        assert_eq!(query("https://a.example/x?y=1#z?"), "y=1");
        assert_eq!(query("https://a.example/x"), "");
    }
}

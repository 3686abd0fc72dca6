//! Routes by the raw path. It is never decoded, so an encoded path cannot pass for another one.

use hookfast_webhook::is_name;

/// What a path names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// `/livez`
    Live,
    /// `/readyz`
    Ready,
    /// `/webhooks/{source}`, and up to two more segments
    Webhook(&'a str),
}

pub(crate) fn target(path: &str) -> Option<Target<'_>> {
    match path {
        "/livez" => return Some(Target::Live),
        "/readyz" => return Some(Target::Ready),
        _ => {}
    }
    let rest = path.strip_prefix("/webhooks/")?;
    let (source, tail) = rest.split_once('/').map_or((rest, None), |(source, tail)| (source, Some(tail)));
    if tail.is_some_and(|tail| !is_tail(tail)) {
        return None;
    }
    is_name(source).then_some(Target::Webhook(source))
}

/// The path as the log may show it: up to the name of the source. The rest may be a token.
pub(crate) fn shown(path: &str) -> String {
    let kept = if path.starts_with("/webhooks/") { 2 } else { 1 };
    let end = path.match_indices('/').nth(kept).map(|(end, _)| end);
    let name: String = path[..end.unwrap_or(path.len())].chars().take(100).flat_map(char::escape_debug).collect();
    if end.is_some() { name + "/..." } else { name }
}

/// Some providers put a token or the kind of event into one more segment, or both into two.
fn is_tail(tail: &str) -> bool {
    let is_segment = |segment: &str| {
        (1..=127).contains(&segment.len())
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    tail.split('/').count() <= 2 && tail.split('/').all(is_segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_name_is_not_shown() {
        for (path, expected) in [
            ("/webhooks/garmin", "/webhooks/garmin"),
            ("/webhooks/garmn/token", "/webhooks/garmn/..."),
            ("/webhooks/garmn/token/sleeps", "/webhooks/garmn/..."),
            ("/webhooks//token", "/webhooks//..."),
            ("/webhook/garmin/token", "/webhook/..."),
            ("/garmin/token", "/garmin/..."),
            ("//webhooks/garmin/token", "//..."),
            ("/", "/"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(shown(path), expected, "{path}");
        }
    }

    #[test]
    fn only_plain_paths_have_a_target() {
        for path in ["/webhooks/stripe", "/webhooks/stripe/activityDetails", "/webhooks/stripe/a/b"] {
            assert_eq!(target(path), Some(Target::Webhook("stripe")));
        }
        assert_eq!((target("/livez"), target("/readyz")), (Some(Target::Live), Some(Target::Ready)));
        for path in [
            "/",
            "",
            "/webhooks",
            "/webhooks/",
            "/webhooks//stripe",
            "//webhooks/stripe",
            "/webhooks/stripe/",
            "/webhooks/stripe/a/b/c",
            "/webhooks/stripe/a//b",
            "/webhooks/../livez",
            "/webhooks/%73tripe",
            "/webhooks/stripe%00",
            "/webhooks/stripe%0a",
            "/webhooks/stripe/..",
            "/webhooks/stripe/%2e%2e%2fx",
            "/webhooks/Stripe",
            "/WEBHOOKS/stripe",
            "/webhooks/stripe;x",
            "/webhooks\\stripe",
            "/livez/",
            "/metrics",
            "/api/v1/events",
            "*",
        ] {
            assert_eq!(target(path), None, "{path}");
        }
    }
}

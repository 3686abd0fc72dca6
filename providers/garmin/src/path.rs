//! Reads the path `/webhooks/{source}[/{token}][/{event type}]` without decoding it.

/// The types that Garmin documents. Where a segment could also be a path token, only these count as a type: an event
/// must never get a secret as its type.
const KNOWN_TYPES: [&str; 20] = [
    "activities",
    "activityDetails",
    "activityFiles",
    "allDayRespiration",
    "bloodPressures",
    "bodyComps",
    "dailies",
    "deregistrations",
    "epochs",
    "healthSnapshot",
    "hrv",
    "manuallyUpdatedActivities",
    "mct",
    "moveIQActivities",
    "pulseox",
    "skinTemp",
    "sleeps",
    "stressDetails",
    "userMetrics",
    "userPermissionsChange",
];

/// The two segments after `/webhooks/{source}`.
pub(crate) fn tail(url: &str) -> [Option<&str>; 2] {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_host, path)| path),
        None => url.strip_prefix('/').unwrap_or(url),
    };
    let mut segments = path.split('/').skip(2).map(|segment| Some(segment).filter(|segment| !segment.is_empty()));
    [segments.next().flatten(), segments.next().flatten()]
}

/// The type of all records, if the URL names it. This function does not know whether the source has tokens.
pub(crate) fn event_type(url: &str) -> Option<&str> {
    match tail(url) {
        [Some(_token), Some(event_type)] => Some(event_type),
        [Some(only), None] => Some(only).filter(|only| KNOWN_TYPES.contains(only)),
        [None, _] => None,
    }
}

/// Whether `text` can be a segment of a path without encoding. The gateway accepts no other segments.
pub(crate) fn is_segment(text: &str) -> bool {
    (1..=127).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_what_follows_the_endpoint() {
        for (url, expected) in [
            ("https://a.example/webhooks/garmin", [None, None]),
            ("https://a.example/webhooks/garmin/", [None, None]),
            ("https://a.example/webhooks/garmin?x=/t/u", [None, None]),
            ("https://a.example/webhooks/garmin/t?x=1#y", [Some("t"), None]),
            ("https://a.example/webhooks/garmin/t/sleeps", [Some("t"), Some("sleeps")]),
            ("https://a.example/webhooks/garmin//sleeps", [None, Some("sleeps")]),
            ("/webhooks/garmin/t", [Some("t"), None]),
            ("https://a.example", [None, None]),
            ("https://", [None, None]),
            ("", [None, None]),
        ] {
            assert_eq!(tail(url), expected, "{url}");
        }
    }

    #[test]
    fn what_could_be_a_token_names_no_type() {
        let event_type =
            |tail: &str| event_type(&format!("https://a.example/webhooks/garmin{tail}")).map(str::to_owned);
        assert_eq!(event_type("/sleeps"), Some("sleeps".into()));
        assert_eq!(event_type("/7f3c9a54e1"), None);
        assert_eq!(event_type("/7f3c9a54e1/newType"), Some("newType".into()));
        assert_eq!(event_type(""), None);
    }
}

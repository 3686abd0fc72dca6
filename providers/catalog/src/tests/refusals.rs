//! Runs the suite of refusals for every file of the catalog.

use hookfast_webhook::refusal_suite::an_aged_request_is_refused;
use time::Duration;

use super::{embedded, with};
use crate::{EMBEDDED, Settings};

/// One module of tests for each file, so that a failure names it.
macro_rules! suites {
    ($($name:ident $(: $unprotected_body:ident)?)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(mod $name {
            hookfast_webhook::refusal_suite!(super::embedded(stringify!($name)) $(, $unprotected_body)?);

            #[test]
            fn a_request_ages_as_its_file_says() {
                super::a_request_ages_as_its_file_says(stringify!($name));
            }
        })*
    };
}

suites! {
    asana
    calendly
    discord
    dropbox
    github
    gitlab: unprotected_body
    hubspot
    intercom
    linear
    mailgun: unprotected_body
    notion
    paddle
    pagerduty
    sendgrid
    sentry
    shopify
    slack
    square
    standardwebhooks
    typeform
    zoom
}

#[test]
fn no_file_is_left_out() {
    let names: Vec<_> = EMBEDDED.iter().map(|description| description.name.as_str()).collect();
    assert_eq!(TESTED, names);
}

fn a_request_ages_as_its_file_says(name: &str) {
    let provider = embedded(name);
    let Some(freshness) = &provider.description.freshness else { return };
    if let Some(seconds) = freshness.tolerance_seconds {
        an_aged_request_is_refused(&provider, Duration::seconds(seconds.into()));
    }
    let settings = Settings { tolerance_seconds: Some(77), ..Settings::default() };
    an_aged_request_is_refused(&with(name, settings), Duration::seconds(77));
}

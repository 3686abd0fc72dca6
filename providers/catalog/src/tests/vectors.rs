//! Runs the test vectors: requests with known verdicts and readings.

use hookfast_webhook::vectors::assert_agreement;

use super::with;
use crate::{EMBEDDED, Settings};

macro_rules! vectors {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            let file = include_str!(concat!("../../fixtures/", stringify!($name), ".json"));
            assert_agreement(file, |settings: &Settings| Ok(with(stringify!($name), settings.clone())));
        })*
    };
}

vectors! {
    discord
    github
    linear
    mailgun
    paddle
    sendgrid
    shopify
    slack
    square
    standardwebhooks
    zoom
}

#[test]
fn a_file_says_that_it_was_compared_if_it_was() {
    let claimed = EMBEDDED.iter().filter(|description| description.vector_tested);
    assert_eq!(claimed.map(|description| description.name.as_str()).collect::<Vec<_>>(), TESTED);
}

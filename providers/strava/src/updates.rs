//! The changes that an event lists, in a canonical form: equal changes are always written in the same way.

use hookfast_webhook::{Unreadable, json};
use serde::Serialize;
use serde_json::value::RawValue;

/// The most updates in an event. Strava sends up to four. They are copied and sorted, perhaps before anything is
/// proved.
const UPDATES_MAX: usize = 100;

/// The members of `updates`, sorted; each value is written as JSON.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Updates(Vec<(String, String)>);

impl Updates {
    /// The updates of an event. A missing member, `null` and `{}` all mean that nothing was changed.
    pub(crate) fn of(updates: Option<&RawValue>) -> Result<Self, Unreadable> {
        let Some(updates) = updates.map(RawValue::get).filter(|updates| *updates != "null") else {
            return Ok(Self::default());
        };
        if !updates.starts_with('{') {
            return Ok(Self(vec![(String::new(), updates.to_owned())]));
        }
        let mut members = Vec::new();
        json::for_each_member(updates.as_bytes(), |name, take| {
            if members.len() == UPDATES_MAX {
                return Err("there are too many `updates`".into());
            }
            members.push((name.to_owned(), canonical(take()?)));
            Ok(())
        })?;
        members.sort();
        Ok(Self(members))
    }

    /// Whether the athlete withdrew access. Strava writes the text `"false"`; a boolean would mean the same.
    pub(crate) fn revoke_access(&self) -> bool {
        self.0.iter().any(|(name, value)| name == "authorized" && matches!(value.as_str(), "\"false\"" | "false"))
    }
}

/// The canonical form of a value. Only text can be escaped in several ways; other values that Strava sends have one
/// form.
fn canonical(value: &RawValue) -> String {
    match json::text(Some(value)) {
        Some(text) => serde_json::Value::from(text).to_string(),
        None => value.get().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn updates(json: &str) -> Updates {
        let value: &RawValue = serde_json::from_str(json).expect("JSON");
        Updates::of(Some(value)).expect("readable")
    }

    #[test]
    fn order_blanks_and_escapes_do_not_matter() {
        let expected = updates(r#"{"title":"à","type":"Ride"}"#);
        assert_eq!(updates(r#"{ "type" : "Ride", "t\u0069tle" : "\u00e0" }"#), expected);
        assert_eq!(
            (updates("null"), updates("{}"), Updates::of(None)),
            (updates(" {} "), updates("{ }"), Ok(updates("{}")))
        );
    }

    #[test]
    fn what_differs_stays_different() {
        let all = [
            r#"{}"#,
            r#"[]"#,
            r#""""#,
            r#"{"":"[]"}"#,
            r#"{"private":"true"}"#,
            r#"{"private":true}"#,
            r#"{"private":"false"}"#,
            r#"{"title":"true"}"#,
            r#"{"title":"a","type":"b"}"#,
            r#"{"title":"b","type":"a"}"#,
            r#"{"title":"a\",\"type\":\"b"}"#,
            r#"{"title":"a","title":"b"}"#,
        ];
        for (place, one) in all.iter().enumerate() {
            for other in &all[place + 1..] {
                assert_ne!(updates(one), updates(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn there_is_an_end_to_the_number_of_updates() {
        let of = |count: usize| {
            let json = format!("{{{}\"a\":0}}", "\"a\":0,".repeat(count - 1));
            Updates::of(serde_json::from_str(&json).ok())
        };
        assert!(of(UPDATES_MAX).is_ok() && of(UPDATES_MAX + 1).is_err());
    }

    #[test]
    fn access_is_revoked_by_the_word_or_the_boolean() {
        for yes in [r#"{"authorized":"false"}"#, r#"{"x":1,"authorized": false}"#, r#"{"authorized":"fals\u0065"}"#] {
            assert!(updates(yes).revoke_access(), "{yes}");
        }
        for no in [r#"{}"#, r#"{"authorized":"true"}"#, r#"{"authorized":0}"#, r#"{"private":"false"}"#, r#""false""#] {
            assert!(!updates(no).revoke_access(), "{no}");
        }
    }
}

//! Reads the forms in which providers write times.

use serde_json::value::RawValue;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime, UtcOffset};

use crate::json;

/// Unix times from this number on are milliseconds. As seconds they would be in the year 5138 or later.
const MILLISECONDS_FROM: f64 = 1e11;

/// A time in a JSON value.
pub fn from_json(value: Option<&RawValue>) -> Option<OffsetDateTime> {
    from_text(&json::scalar(value)?)
}

/// A time in text: unix seconds or milliseconds, also with a fraction, or RFC 3339.
pub fn from_text(text: &str) -> Option<OffsetDateTime> {
    if let Ok(seconds) = text.parse::<i64>()
        && (seconds as f64).abs() < MILLISECONDS_FROM
    {
        return OffsetDateTime::from_unix_timestamp(seconds).ok();
    }
    match text.parse::<f64>() {
        Ok(number) => from_unix(number),
        Err(_) => OffsetDateTime::parse(text, &Rfc3339).ok(),
    }
}

fn from_unix(number: f64) -> Option<OffsetDateTime> {
    let seconds = if number.abs() < MILLISECONDS_FROM { number } else { number / 1000.0 };
    // A 64-bit number holds no more exact fraction than microseconds, and neither does the store.
    let micros = (seconds * 1e6).round();
    if !micros.is_finite() || micros.abs() > 1e18 {
        return None;
    }
    OffsetDateTime::from_unix_timestamp_nanos(micros as i128 * 1000).ok()
}

/// A time such as `2025-10-09 11:53:12`. It names no zone, so `offset` gives it.
pub fn from_local(text: &str, offset: UtcOffset) -> Option<OffsetDateTime> {
    let format = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
    Some(PrimitiveDateTime::parse(text, format).ok()?.assume_offset(offset))
}

/// A time such as `Thu Oct 09 2025 11:53:12 GMT+0300`, as JavaScript prints it. The name of the zone may follow in
/// parentheses.
pub fn from_javascript(text: &str) -> Option<OffsetDateTime> {
    let text = text.split(" (").next()?;
    let format = format_description!(
        "[weekday repr:short] [month repr:short] [day] [year] [hour]:[minute]:[second] GMT[offset_hour sign:mandatory][offset_minute]"
    );
    OffsetDateTime::parse(text, format).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_times_are_seconds_or_milliseconds_with_or_without_a_fraction() {
        let micros = |text: &str| from_text(text).map(|time| time.unix_timestamp_nanos() / 1000);
        assert_eq!(micros("1760000000"), Some(1_760_000_000_000_000));
        assert_eq!(micros("1759999990.5"), Some(1_759_999_990_500_000));
        assert_eq!(micros("1759999999000"), Some(1_759_999_999_000_000));
        assert_eq!(micros("1759999999123"), Some(1_759_999_999_123_000));
        for bad in ["", "x", "nan", "inf", "1e300", "99999999999999999999999"] {
            assert_eq!(micros(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_same_moment_in_four_forms() {
        let expected = from_text("1759999992");
        assert!(expected.is_some());
        assert_eq!(from_text("2025-10-09T08:53:12Z"), expected);
        assert_eq!(from_javascript("Thu Oct 09 2025 11:53:12 GMT+0300"), expected);
        assert_eq!(from_javascript("Thu Oct 09 2025 11:53:12 GMT+0300 (Arabian Standard Time)"), expected);
        let riyadh = UtcOffset::from_hms(3, 0, 0).expect("an offset");
        assert_eq!(from_local("2025-10-09 11:53:12", riyadh), expected);
    }
}

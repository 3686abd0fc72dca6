//! The flags that say which jobs or events.

use clap::Args;
use clap::builder::RangedI64ValueParser;
use hookfast_store::{Filter, Resolution};
use hookfast_webhook::{EventId, FailureKind, HandlerName, Pattern, Priority};
use humantime_serde::re::humantime;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime};
use uuid::Uuid;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FilterArguments {
    /// Only events of this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,

    /// Only events of this type; `invoice.*` means all that begin with `invoice.`
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type)]
    pub(crate) event_type: Option<String>,

    /// Only events of this account
    #[arg(long)]
    pub(crate) account: Option<String>,

    /// Only jobs that failed with this kind, such as `timeout`
    #[arg(long, value_name = "KIND")]
    pub(crate) failure: Option<FailureKind>,

    /// Only events received at this time or later: `2026-07-01T08:00:00Z`, a day such as `2026-07-01` (from 00:00 UTC), or an
    /// age such as `2h` or `3d`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<OffsetDateTime>,

    /// Only events received before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<OffsetDateTime>,

    /// Only events with this dedupe key or this id of the provider's own
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Only events about this thing, such as `in_1`
    #[arg(long, value_name = "ID")]
    pub(crate) object: Option<String>,

    /// Only events with this tag
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,

    /// Only jobs of this priority: `high`, `normal` or `low`
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) priority: Option<Priority>,

    /// Only jobs that died at this time or later
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) died_since: Option<OffsetDateTime>,

    /// Only jobs that died before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) died_until: Option<OffsetDateTime>,

    /// Only jobs about which an operator decided this: `retried`, `ignored`, `manual_fix` or `moved`
    #[arg(long = "resolution", value_name = "WORD")]
    pub(crate) decided: Option<Resolution>,
}

impl FilterArguments {
    /// These flags, and the events and the handler that were named.
    pub(crate) fn filter(&self, events: &[Uuid], handler: Option<&str>) -> Filter {
        let Self { source, event_type, account, failure, since, until, key, object, tag, .. } = self.clone();
        Filter {
            events: events.iter().copied().map(EventId).collect(),
            source,
            handler: handler.map(Into::into),
            event_type,
            account,
            failure,
            since,
            until,
            key,
            object_id: object,
            tag,
            priority: self.priority,
            died_since: self.died_since,
            died_until: self.died_until,
            resolution: self.decided,
            state: None,
            as_of: None,
        }
    }
}

fn time(text: &str) -> Result<OffsetDateTime, String> {
    time_at(text, OffsetDateTime::now_utc())
}

/// A time, a day, or an age as seen from `now`.
fn time_at(text: &str, now: OffsetDateTime) -> Result<OffsetDateTime, String> {
    let age = || now.checked_sub(humantime::parse_duration(text).ok()?.try_into().ok()?);
    time_or_day(text).or_else(age).ok_or_else(|| {
        "write a time such as 2026-07-01T08:00:00Z, a day such as 2026-07-01, or an age such as 2h or 3d".into()
    })
}

/// A time, or the beginning of a day in UTC.
fn time_or_day(text: &str) -> Option<OffsetDateTime> {
    let day = || Some(Date::parse(text, format_description!("[year]-[month]-[day]")).ok()?.midnight().assume_utc());
    OffsetDateTime::parse(text, &Rfc3339).ok().or_else(day)
}

/// Parses a time, a day, or a number of seconds since 1970. Returns seconds since 1970.
pub(crate) fn unix_time(text: &str) -> Result<i64, String> {
    let time = || time_or_day(text).map(OffsetDateTime::unix_timestamp);
    text.parse().ok().or_else(time).ok_or_else(|| {
        "write a time such as 2026-07-01T08:00:00Z, a day such as 2026-07-01, or unix seconds such as 1782892800".into()
    })
}

/// The id of an event or of an act.
pub(crate) fn id(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| {
        "an id is 36 characters long, such as 01a1ec6e-a5a7-7094-a7c3-043dd2eeac1e. `hookfast events list`, \
         `hookfast dead-letters list` and `hookfast audit list` show ids"
            .into()
    })
}

/// As the configuration has it: the whole type, or its beginning.
fn event_type(text: &str) -> Result<String, String> {
    text.parse::<Pattern>().map(|_| text.into())
}

/// A rate as the configuration writes them, or a number alone, in things a second.
pub(crate) fn per_second(text: &str) -> Result<f64, String> {
    let (count, seconds) = match text.split_once('/') {
        None | Some((_, "s")) => (text.trim_end_matches("/s"), 1.0),
        Some((count, "m")) => (count, 60.0),
        Some(_) => ("", 1.0),
    };
    let count = count.parse::<f64>().ok().filter(|count| *count > 0.0 && count.is_finite());
    count.map(|count| count / seconds).ok_or_else(|| "write a number and `/s` or `/m`, such as 50/s".into())
}

pub(crate) fn at_least_one() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

pub(crate) fn handler_name(text: &str) -> Result<HandlerName, String> {
    HandlerName::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_time_is_a_time_a_day_or_an_age() {
        let now = datetime!(2026-07-10 12:00 UTC);
        assert_eq!(time_at("2026-07-01T08:00:00+02:00", now), Ok(datetime!(2026-07-01 06:00 UTC)));
        assert_eq!(time_at("2h", now), Ok(datetime!(2026-07-10 10:00 UTC)));
        assert_eq!(time_at("1d 12h", now), Ok(datetime!(2026-07-09 00:00 UTC)));
        assert_eq!(time_at("2026-07-01", now), Ok(datetime!(2026-07-01 00:00 UTC)));
        for bad in ["", "yesterday", "2026-07-32", "01.07.2026", "-2h", "5", "99999999999y"] {
            assert!(time_at(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        assert_eq!(per_second("50/s"), Ok(50.0));
        assert_eq!(per_second("30/m"), Ok(0.5));
        assert_eq!((per_second("50"), per_second("0.5")), (Ok(50.0), Ok(0.5)));
        for bad in ["", "0", "0/s", "-1/s", "50/h", "x/s", "/s", "inf", "NaN/s", "5/s/s"] {
            assert!(per_second(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_clock_is_a_time_a_day_or_unix_seconds() {
        assert_eq!(unix_time("1782892800"), Ok(1_782_892_800));
        assert_eq!(unix_time("2026-07-01"), Ok(1_782_864_000));
        assert_eq!(unix_time("2026-07-01T08:00:00Z"), Ok(1_782_892_800));
        assert!(unix_time("noon").is_err_and(|problem| problem.contains("unix seconds")));
    }

    #[test]
    fn what_is_no_id_is_said_in_plain_words() {
        let problem = id("foo").expect_err("it is none");
        assert!(problem.contains("36 characters") && problem.contains("events list"), "{problem}");
        let new = Uuid::now_v7();
        assert_eq!(id(&new.to_string()), Ok(new));
    }

    #[test]
    fn a_type_is_written_as_in_the_configuration() {
        assert_eq!(event_type("invoice.*").as_deref(), Ok("invoice.*"));
        for bad in ["*create", "", "a*b"] {
            assert!(event_type(bad).is_err_and(|problem| problem.contains("invoice.*")), "{bad}");
        }
    }

    #[test]
    fn only_what_was_said_is_a_condition() {
        assert_eq!(FilterArguments::default().filter(&[], None), Filter::default());
        let arguments = FilterArguments { failure: Some(FailureKind::Crash), ..FilterArguments::default() };
        let id = Uuid::now_v7();
        let expected = Filter {
            events: vec![EventId(id)],
            handler: Some("ledger".into()),
            failure: Some(FailureKind::Crash),
            ..Filter::default()
        };
        assert_eq!(arguments.filter(&[id], Some("ledger")), expected);
    }
}

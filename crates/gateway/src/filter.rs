//! The flags that say which jobs or events.

use clap::Args;
use hookfast_store::Filter;
use hookfast_webhook::{EventId, FailureKind, HandlerName};
use humantime_serde::re::humantime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FilterArguments {
    /// That came to this source
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,

    /// Of this type, or all that begin alike, such as `invoice.*`
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) event_type: Option<String>,

    /// Of this account
    #[arg(long)]
    pub(crate) account: Option<String>,

    /// That died of this, such as `timeout`
    #[arg(long, value_name = "KIND")]
    pub(crate) failure: Option<FailureKind>,

    /// Received at this time or later: `2026-07-01T08:00:00Z`, or an age such as `2h` or `3d`
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) since: Option<OffsetDateTime>,

    /// Received before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) until: Option<OffsetDateTime>,
}

impl FilterArguments {
    /// These flags, and the events and the handler that were named.
    pub(crate) fn filter(&self, events: &[Uuid], handler: Option<&str>) -> Filter {
        let Self { source, event_type, account, failure, since, until } = self.clone();
        let events = events.iter().copied().map(EventId).collect();
        let handler = handler.map(Into::into);
        Filter { events, source, handler, event_type, account, failure, since, until, as_of: None }
    }
}

fn time(text: &str) -> Result<OffsetDateTime, String> {
    time_at(text, OffsetDateTime::now_utc())
}

/// A time, or an age as seen from `now`.
fn time_at(text: &str, now: OffsetDateTime) -> Result<OffsetDateTime, String> {
    let age = || now.checked_sub(humantime::parse_duration(text).ok()?.try_into().ok()?);
    OffsetDateTime::parse(text, &Rfc3339)
        .ok()
        .or_else(age)
        .ok_or_else(|| "write a time such as 2026-07-01T08:00:00Z, or an age such as 2h or 3d".into())
}

/// A rate as the configuration writes them, in jobs a second.
pub(crate) fn per_second(text: &str) -> Result<f64, String> {
    let parse = || {
        let (count, unit) = text.split_once('/')?;
        let count = f64::from(count.parse::<u32>().ok().filter(|count| *count > 0)?);
        match unit {
            "s" => Some(count),
            "m" => Some(count / 60.0),
            _ => None,
        }
    };
    parse().ok_or_else(|| "write a number and `/s` or `/m`, such as 50/s".into())
}

pub(crate) fn handler_name(text: &str) -> Result<HandlerName, String> {
    HandlerName::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_time_is_a_date_or_an_age() {
        let now = datetime!(2026-07-10 12:00 UTC);
        assert_eq!(time_at("2026-07-01T08:00:00+02:00", now), Ok(datetime!(2026-07-01 06:00 UTC)));
        assert_eq!(time_at("2h", now), Ok(datetime!(2026-07-10 10:00 UTC)));
        assert_eq!(time_at("1d 12h", now), Ok(datetime!(2026-07-09 00:00 UTC)));
        for bad in ["", "yesterday", "2026-07-01", "-2h", "5", "99999999999y"] {
            assert!(time_at(bad, now).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_a_number_and_a_unit() {
        assert_eq!(per_second("50/s"), Ok(50.0));
        assert_eq!(per_second("30/m"), Ok(0.5));
        for bad in ["", "50", "0/s", "-1/s", "50/h", "x/s"] {
            assert!(per_second(bad).is_err(), "{bad}");
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

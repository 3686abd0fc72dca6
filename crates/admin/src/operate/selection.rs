//! The jobs that an act is about, and how the audit stores that choice.

use hookfast_store::{Filter, Moment, Operate, Resolution, StoreError, Which};
use hookfast_webhook::{EventId, FailureKind, HandlerName, JobState, Priority};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

/// The jobs that an act is about. Its JSON has every condition that is set, and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub struct Selection {
    /// The kind of job, by state.
    pub which: Which,
    /// Further conditions.
    pub filter: Filter,
    /// The handler that gets the events of these jobs. `None`: each job stays with its own handler.
    pub onto: Option<HandlerName>,
    /// The most jobs.
    pub limit: Option<u64>,
}

impl Selection {
    /// Fixes the selection to this moment, unless it has a moment already. An act changes only jobs that were there
    /// when the operator looked, and none that came later.
    pub async fn as_of_now(mut self, store: &dyn Operate) -> Result<Self, StoreError> {
        if self.filter.as_of.is_none() {
            self.filter.as_of = Some(store.moment().await?);
        }
        Ok(self)
    }
}

/// The JSON has something that this program does not understand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableSelection(String);

/// An unknown key is an error, because ignoring a condition would select more jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    which: WrittenWhich,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    events: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    handler: Option<String>,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    event_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    since: Option<OffsetDateTime>,
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    until: Option<OffsetDateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<JobState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    died_since: Option<OffsetDateTime>,
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    died_until: Option<OffsetDateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolution: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option", skip_serializing_if = "Option::is_none")]
    as_of: Option<OffsetDateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_event: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    onto: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenWhich {
    DeadLetters,
    Succeeded,
    Finished,
    Unfinished,
    Unhandled,
}

impl From<Selection> for Written {
    fn from(selection: Selection) -> Self {
        let Selection { which, filter, onto, limit } = selection;
        let Filter { events, source, handler, event_type, account, failure, since, until, state, as_of, .. } = filter;
        let Filter { key, object_id, tag, priority, died_since, died_until, resolution, .. } = filter;
        Self {
            which: which.into(),
            events: events.iter().map(ToString::to_string).collect(),
            source,
            handler,
            event_type,
            account,
            failure: failure.map(|failure| failure.to_string()),
            since,
            until,
            state,
            key,
            object_id,
            tag,
            priority: priority.map(|priority| priority.to_string()),
            died_since,
            died_until,
            resolution: resolution.map(|resolution| resolution.to_string()),
            as_of: as_of.map(|moment| moment.at),
            last_event: as_of.map(|moment| moment.last_event.to_string()),
            onto: onto.map(|handler| handler.to_string()),
            limit,
        }
    }
}

impl From<Which> for WrittenWhich {
    fn from(which: Which) -> Self {
        match which {
            Which::DeadLetters => Self::DeadLetters,
            Which::Succeeded => Self::Succeeded,
            Which::Finished => Self::Finished,
            Which::Unfinished => Self::Unfinished,
            Which::Unhandled => Self::Unhandled,
        }
    }
}

impl From<WrittenWhich> for Which {
    fn from(written: WrittenWhich) -> Self {
        match written {
            WrittenWhich::DeadLetters => Self::DeadLetters,
            WrittenWhich::Succeeded => Self::Succeeded,
            WrittenWhich::Finished => Self::Finished,
            WrittenWhich::Unfinished => Self::Unfinished,
            WrittenWhich::Unhandled => Self::Unhandled,
        }
    }
}

impl TryFrom<Written> for Selection {
    type Error = UnreadableSelection;

    fn try_from(written: Written) -> Result<Self, UnreadableSelection> {
        let events: Result<Vec<Uuid>, _> = written.events.iter().map(|event| event.parse()).collect();
        let onto = written.onto.as_deref().map(HandlerName::new).transpose();
        let failure = written.failure.as_deref().map(str::parse::<FailureKind>).transpose();
        let priority = written.priority.as_deref().map(str::parse::<Priority>).transpose();
        let resolution = written.resolution.as_deref().map(str::parse::<Resolution>).transpose();
        let last_event = written.last_event.as_deref().map(str::parse::<Uuid>).transpose();
        let as_of = match (written.as_of, last_event.map_err(|error| unreadable(&error))?) {
            (Some(at), Some(last)) => Some(Moment { at, last_event: EventId(last) }),
            (None, None) => None,
            _ => return Err(UnreadableSelection("`as_of` and `last_event` belong together".into())),
        };
        Ok(Self {
            which: written.which.into(),
            filter: Filter {
                events: events.map_err(|error| unreadable(&error))?.into_iter().map(EventId).collect(),
                source: written.source,
                handler: written.handler,
                event_type: written.event_type,
                account: written.account,
                failure: failure.map_err(|error| unreadable(&error))?,
                since: written.since,
                until: written.until,
                state: written.state,
                key: written.key,
                object_id: written.object_id,
                tag: written.tag,
                priority: priority.map_err(|error| unreadable(&error))?,
                died_since: written.died_since,
                died_until: written.died_until,
                resolution: resolution.map_err(|error| unreadable(&error))?,
                as_of,
            },
            onto: onto.map_err(|error| unreadable(&error))?,
            limit: written.limit,
        })
    }
}

fn unreadable(problem: &impl ToString) -> UnreadableSelection {
    UnreadableSelection(problem.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

    use super::*;

    #[test]
    fn what_stands_in_the_audit_is_every_condition_that_is_set_and_nothing_else() {
        let filter = Filter { source: Some("stripe".into()), failure: Some(FailureKind::Timeout), ..Filter::default() };
        let selection = Selection { which: Which::DeadLetters, filter, onto: None, limit: Some(7) };
        let written = serde_json::to_string(&selection).unwrap();
        assert_eq!(written, r#"{"which":"dead_letters","source":"stripe","failure":"timeout","limit":7}"#);
    }

    #[test]
    fn a_selection_comes_back_from_the_audit_as_it_was() {
        let time = OffsetDateTime::from_unix_timestamp_nanos(1_760_000_000_123_456_000).unwrap();
        let filter = Filter {
            events: vec![EventId(Uuid::now_v7()), EventId(Uuid::now_v7())],
            source: Some("stripe".into()),
            handler: Some("ledger".into()),
            event_type: Some("invoice.*".into()),
            account: Some("acct_\"1".into()),
            failure: Some(FailureKind::BadPayload),
            since: Some(time),
            until: Some(time + time::Duration::HOUR),
            state: Some(JobState::Failed),
            key: Some("evt_1".into()),
            object_id: Some("in_1".into()),
            tag: Some("vip".into()),
            priority: Some(Priority::High),
            died_since: Some(time),
            died_until: Some(time + time::Duration::DAY),
            resolution: Some(Resolution::Ignored),
            as_of: Some(Moment { at: time, last_event: EventId(Uuid::now_v7()) }),
        };
        for which in [Which::DeadLetters, Which::Succeeded, Which::Finished, Which::Unfinished, Which::Unhandled] {
            let onto = Some(HandlerName::new("mail").unwrap());
            let selection = Selection { which, filter: filter.clone(), onto, limit: Some(u64::MAX) };
            let written = serde_json::to_string(&selection).unwrap();
            assert_eq!(serde_json::from_str::<Selection>(&written).unwrap(), selection, "{written}");
        }
    }

    #[test]
    fn a_condition_that_is_not_understood_is_no_condition_less() {
        for bad in [
            r#"{"which":"dead_letters","colour":"red"}"#,
            r#"{"which":"dead_letters","failure":"bad_luck"}"#,
            r#"{"which":"dead_letters","events":["evt_1"]}"#,
            r#"{"which":"dead_letters","onto":"No Name"}"#,
            r#"{"which":"dead_letters","as_of":"2026-07-01T08:00:00Z"}"#,
            r#"{"which":"dead_letters","as_of":"2026-07-01T08:00:00Z","last_event":"evt_1"}"#,
            r#"{"which":"all"}"#,
            r#"{"source":"stripe"}"#,
        ] {
            assert!(serde_json::from_str::<Selection>(bad).is_err(), "{bad}");
        }
    }
}

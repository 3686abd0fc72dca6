//! What an act would be about, without doing it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hookfast_store::{AskError, Filter, Found, Operate, Which};

use super::Selection;

/// How many are looked at for the numbers by handler, reason and type.
const LOOKED_AT: u32 = 1000;

/// How long a number is worth waiting for.
const COUNTING_MAX: Duration = Duration::from_secs(2);

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Counted to the end.
    Exactly(u64),
    /// Counting took too long.
    MoreThan(u64),
}

impl Count {
    /// How many there are at least.
    pub fn at_least(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::MoreThan(count) => count,
        }
    }

    /// Whether it was counted to the end.
    pub fn is_exact(self) -> bool {
        matches!(self, Self::Exactly(_))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(count) => count.fmt(f),
            Self::MoreThan(count) => write!(f, "more than {count}"),
        }
    }
}

/// How many there are, after up to `asked` of them were found. A number is for information: it never makes a command fail,
/// and never makes it wait long.
pub async fn how_many(
    store: &dyn Operate,
    which: Which,
    filter: &Filter,
    found: usize,
    asked: u32,
) -> Result<Count, AskError> {
    let found = found as u64;
    if found < u64::from(asked) {
        return Ok(Count::Exactly(found));
    }
    let counted = store.count_within(which, filter, COUNTING_MAX).await?;
    // It is another moment: there may be more by now than were counted.
    Ok(counted.map_or(Count::MoreThan(found), |count| Count::Exactly(count.max(found))))
}

/// What an act would be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// How many there are in all, or the limit if that is less. Those that would be left out are among them.
    pub count: Count,
    /// How many of them were looked at: the first ones.
    pub looked_at: u64,
    /// How many of those would be left out.
    pub skipped: u64,
    /// How many of those each handler has.
    pub by_handler: BTreeMap<String, u64>,
    /// How many of those ended for each reason.
    pub by_reason: BTreeMap<String, u64>,
    /// How many of those are of each type.
    pub by_type: BTreeMap<String, u64>,
    /// The first of those that would not be left out.
    pub sample: Vec<Found>,
}

/// Looks at what is selected and changes nothing. `wants` says what would not be left out.
pub async fn preview(
    store: &dyn Operate,
    selection: &Selection,
    wants: impl Fn(&Found) -> bool,
    sample: usize,
) -> Result<Preview, AskError> {
    let Selection { which, filter, limit, .. } = selection;
    let limit = limit.unwrap_or(u64::MAX);
    let look_at = LOOKED_AT.min(u32::try_from(limit).unwrap_or(u32::MAX));
    let found = store.find(*which, filter, None, look_at).await?;
    let looked_at = found.len() as u64;
    let count = match looked_at == limit {
        true => Count::Exactly(limit),
        false => at_most(how_many(store, *which, filter, found.len(), look_at).await?, limit),
    };
    let mut wanted: Vec<_> = found.into_iter().filter(wants).collect();
    let preview = Preview {
        count,
        looked_at,
        skipped: looked_at - wanted.len() as u64,
        by_handler: tally(wanted.iter().filter_map(|found| found.handler.as_ref().map(|handler| handler.as_str()))),
        by_reason: tally(wanted.iter().filter_map(|found| found.reason.as_deref())),
        by_type: tally(wanted.iter().map(|found| found.event_type.as_str())),
        sample: Vec::new(),
    };
    wanted.truncate(sample);
    Ok(Preview { sample: wanted, ..preview })
}

fn at_most(count: Count, limit: u64) -> Count {
    if count.at_least() >= limit { Count::Exactly(limit) } else { count }
}

fn tally<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for word in words {
        *tally.entry(word.to_owned()).or_default() += 1;
    }
    tally
}

//! Shows what an act would change, without changing it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hookfast_store::{AskError, Filter, Found, Operate, Which};

use super::Selection;

/// The numbers by handler, reason and type come from this many jobs.
const LOOKED_AT: u32 = 1000;

/// Longest wait for a count.
const COUNTING_MAX: Duration = Duration::from_secs(2);

/// A number of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// All were counted.
    Exactly(u64),
    /// Counting took too long. There are more than this.
    MoreThan(u64),
}

impl Count {
    /// The smallest number that it can be.
    pub fn at_least(self) -> u64 {
        match self {
            Self::Exactly(count) | Self::MoreThan(count) => count,
        }
    }

    /// Whether all were counted.
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

/// Counts the jobs of a selection. The caller has already asked for `asked` of them and found `found`. The number is
/// only for information, so an error or a slow count never makes a command fail or wait long.
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
    // The count is from another moment than the search, and may be smaller.
    Ok(counted.map_or(Count::MoreThan(found), |count| Count::Exactly(count.max(found))))
}

/// What an act would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The number of selected jobs, or the limit if that is smaller. Includes the jobs that would be left out.
    pub count: Count,
    /// The following numbers are about the first jobs of the selection, and this is how many.
    pub looked_at: u64,
    /// Jobs that would be left out.
    pub skipped: u64,
    /// Jobs of each handler.
    pub by_handler: BTreeMap<String, u64>,
    /// Jobs by the reason for which they ended.
    pub by_reason: BTreeMap<String, u64>,
    /// Jobs by the type of their event.
    pub by_type: BTreeMap<String, u64>,
    /// The first jobs that would not be left out.
    pub sample: Vec<Found>,
}

/// Looks at the selected jobs and changes nothing. `wants` is false for jobs that would be left out.
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

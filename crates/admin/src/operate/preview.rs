//! What an act would be about, without doing it.

use std::collections::BTreeMap;

use hookfast_store::{Found, Store, StoreError};

use super::Selection;

/// How many are looked at for the numbers by handler, reason and type.
const LOOKED_AT: u32 = 1000;

/// What an act would be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// How many there are in all, or the limit if that is less. Those that would be left out are among them.
    pub count: u64,
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
    store: &dyn Store,
    selection: &Selection,
    wants: impl Fn(&Found) -> bool,
    sample: usize,
) -> Result<Preview, StoreError> {
    let limit = selection.limit.unwrap_or(u64::MAX);
    let count = store.count(selection.which, &selection.filter).await?.min(limit);
    let look_at = LOOKED_AT.min(u32::try_from(limit).unwrap_or(u32::MAX));
    let found = store.find(selection.which, &selection.filter, None, look_at).await?;
    let looked_at = found.len() as u64;
    let mut wanted: Vec<_> = found.into_iter().filter(wants).collect();
    let preview = Preview {
        // It is another moment: there may be more by now than were counted.
        count: count.max(looked_at),
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

fn tally<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for word in words {
        *tally.entry(word.to_owned()).or_default() += 1;
    }
    tally
}

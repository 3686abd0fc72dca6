//! What was sent and promised, to be compared with what a store holds.

mod held;

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use crate::{Answer, TestEvent};
use held::Held;

/// What some senders know: each event that they sent, and how often it was promised.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<String, Entry>,
    /// The answers that were no promise.
    pub refusals: Vec<Answer>,
    /// How many requests got no answer.
    pub unanswered: usize,
    /// The events that were promised to a sender after it had been refused.
    pub promised_after_refusal: Vec<String>,
    /// What a sender must not have to live with.
    pub(crate) complaints: Vec<String>,
}

#[derive(Debug)]
struct Entry {
    event: TestEvent,
    requests: usize,
    promises: usize,
    /// When its first request began.
    sent: Instant,
    /// When it was first promised.
    promised: Option<Instant>,
}

impl Ledger {
    /// Notes one request, which began at `start`, and says whether its answer is a promise.
    pub fn note(&mut self, event: &TestEvent, start: Instant, answer: io::Result<Answer>) -> bool {
        let entry = self.entries.entry(event.id.clone()).or_insert_with(|| Entry::new(event, start));
        entry.requests += 1;
        match answer {
            Ok(answer) if answer.status == 200 => {
                entry.promises += 1;
                entry.promised.get_or_insert_with(Instant::now);
                if !self.refusals.is_empty() {
                    self.promised_after_refusal.push(event.id.clone());
                }
                return true;
            }
            Ok(answer) => self.refusals.push(answer),
            Err(_) => self.unanswered += 1,
        }
        false
    }

    /// Adds what another sender knows.
    pub fn add(&mut self, other: Self) {
        for (id, entry) in other.entries {
            match self.entries.get_mut(&id) {
                Some(known) => known.add(&entry),
                None => drop(self.entries.insert(id, entry)),
            }
        }
        self.refusals.extend(other.refusals);
        self.unanswered += other.unanswered;
        self.promised_after_refusal.extend(other.promised_after_refusal);
        self.complaints.extend(other.complaints);
    }

    /// How many events were sent.
    pub fn sent(&self) -> usize {
        self.entries.len()
    }

    /// How many events were promised.
    pub fn promised(&self) -> usize {
        self.entries.values().filter(|entry| entry.promises > 0).count()
    }

    /// How many requests were not answered with a promise.
    pub fn in_vain(&self) -> usize {
        self.refusals.len() + self.unanswered
    }

    /// Refusals that are not a plain "come again later".
    pub fn wrong_answers(&self) -> Vec<String> {
        let is_plain = |answer: &&Answer| answer.status == 503 && answer.header("retry-after").is_some();
        let wrong = self.refusals.iter().filter(|answer| !is_plain(answer));
        wrong.map(|answer| format!("a sender was answered {}: {}", answer.status, answer.text())).collect()
    }

    /// The events that were promised and are not in the store. Each that is there must be there once, with one job.
    pub fn lost(&self, store: &str) -> Vec<String> {
        let jobs = held::jobs_by_event(store);
        assert!(jobs.iter().all(|(_, jobs)| jobs == "1"), "every event has its job");
        let kept: BTreeMap<_, _> = jobs.iter().cloned().collect();
        assert_eq!(kept.len(), jobs.len(), "every event is there once");
        let promised = self.entries.values().filter(|entry| entry.promises > 0).map(|entry| &entry.event.id);
        promised.filter(|id| !kept.contains_key(*id)).cloned().collect()
    }

    /// Every promise so far is kept: the event is in the store, once, with its job.
    pub fn assert_recorded(&self, store: &str) {
        let lost = self.lost(store);
        assert!(lost.is_empty(), "{} of {} promised events are lost: {lost:?}", lost.len(), self.promised());
    }

    /// Everything that is wrong in the store once no job is left to do, in sentences. Nothing else may have been sent.
    pub fn broken_promises(&self, store: &str) -> Vec<String> {
        self.broken(&Held::in_store(store))
    }

    fn broken(&self, held: &Held) -> Vec<String> {
        let mut broken = [self.complaints.clone(), self.wrong_answers()].concat();
        let unknown = held.events.keys().filter(|id| !self.entries.contains_key(*id));
        broken.extend(unknown.map(|id| format!("{id} was recorded and never sent")));
        for entry in self.entries.values() {
            broken.extend(entry.recorded_wrongly(held));
            broken.extend(entry.finished_wrongly(held));
            broken.extend(entry.done_wrongly(held));
        }
        broken.extend(self.out_of_order(held));
        broken
    }

    /// Events with one key are done one at a time, and one that was promised before another was sent is done before it.
    /// When an event was recorded that was never promised is unknown.
    fn out_of_order(&self, held: &Held) -> Vec<String> {
        let mut by_key = BTreeMap::<_, Vec<_>>::new();
        for entry in self.entries.values().filter(|entry| entry.promises > 0) {
            if let (Some(key), Some(places)) = (&entry.event.ordering, held.places(&entry.event.id)) {
                by_key.entry(key).or_default().push((places, entry));
            }
        }
        by_key.into_values().flat_map(out_of_place).collect()
    }
}

/// What is wrong with the first and last places of events with one key.
fn out_of_place(mut done: Vec<((usize, usize), &Entry)>) -> Vec<String> {
    done.sort_by_key(|(places, _)| *places);
    let mut broken = Vec::new();
    for (index, ((first, _), after)) in done.iter().enumerate() {
        let before = &done[..index];
        if let Some((_, other)) = before.iter().find(|((_, last), _)| last >= first) {
            broken.push(format!("not in order: {} was done beside {}", after.event.id, other.event.id));
        }
        if let Some((_, other)) = before.iter().find(|(_, before)| after.is_promised_before(before)) {
            broken.push(format!("not in order: {} was done after {}", after.event.id, other.event.id));
        }
    }
    broken
}

impl Entry {
    fn new(event: &TestEvent, sent: Instant) -> Self {
        Self { event: event.clone(), requests: 0, promises: 0, sent, promised: None }
    }

    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.promises += other.promises;
        self.sent = self.sent.min(other.sent);
        self.promised = self.promised.into_iter().chain(other.promised).min();
    }

    /// Whether it was promised before the other one was sent.
    fn is_promised_before(&self, other: &Self) -> bool {
        self.promised.is_some_and(|promised| promised < other.sent)
    }

    /// What was promised is there, nothing is there twice, the bytes are those that were sent, and each further request that
    /// was promised is counted.
    fn recorded_wrongly(&self, held: &Held) -> Option<String> {
        let Self { event: TestEvent { id, body, .. }, requests, promises, .. } = self;
        match held.events.get(id).map(Vec::as_slice) {
            None => (*promises > 0).then(|| format!("{id} was promised and is lost")),
            Some([event]) if event.body != held::hex(body) => Some(format!("{id} was changed: {}", event.body)),
            Some([event]) => {
                let is_counted = (*promises..=*requests).contains(&(event.resends + 1));
                let resends = event.resends;
                (!is_counted)
                    .then(|| format!("{id} has {resends} resends after {promises} promises, {requests} requests"))
            }
            Some(several) => Some(format!("{id} was recorded {} times", several.len())),
        }
    }

    /// The job of a recorded event has met its fate.
    fn finished_wrongly(&self, held: &Held) -> Option<String> {
        let TestEvent { id, handler, fate, .. } = &self.event;
        held.events.get(id)?;
        let state = held.jobs.get(&(id.clone(), handler.clone())).map_or("missing", String::as_str);
        (state != fate.state()).then(|| format!("the job of {id} is {state} and not {}", fate.state()))
    }

    /// Every effect of a recorded event is there, once, and there is no other.
    fn done_wrongly(&self, held: &Held) -> Vec<String> {
        let TestEvent { id, effects: expected, .. } = &self.event;
        let done = held.done.get(id);
        let count = done.map_or(0, BTreeMap::len);
        let times = done.into_iter().flatten().map(|(effect, places)| (effect, places.len()));
        let several = times.filter(|(_, times)| *times > 1);
        let mut broken: Vec<_> =
            several.map(|(effect, times)| format!("{effect} of {id} is there {times} times")).collect();
        if held.events.contains_key(id) && count != *expected {
            broken.push(format!("{id} has {count} effects and not {expected}"));
        }
        broken
    }
}

#[cfg(test)]
mod tests;

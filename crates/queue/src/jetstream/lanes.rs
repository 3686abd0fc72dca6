//! The hints of one handler: a lane for each priority.

use std::sync::Arc;

use async_nats::SubscribeError;
use async_nats::jetstream::Context;
use hookfast_webhook::{HandlerName, Priority};
use tokio::sync::watch;

use super::lane::{Heard, Lane};
use super::link::{Link, State};
use super::names::Names;
use crate::shares::{LANES, Shares};
use crate::{Hint, Pulled, Receipt};

pub(super) struct Lanes {
    handler: HandlerName,
    lanes: [Lane; LANES],
    order: Shares,
    link: Arc<Link>,
    state: watch::Receiver<State>,
    /// The number of repairs when the requests under way were sent.
    repairs: u64,
}

impl Lanes {
    pub(super) async fn new(
        context: &Context,
        names: &Names,
        link: Arc<Link>,
        handler: &HandlerName,
    ) -> Result<Self, SubscribeError> {
        let lane = |priority| Lane::new(context, names, priority, handler);
        let [high, normal, low] = Priority::ALL;
        let lanes = [lane(high).await?, lane(normal).await?, lane(low).await?];
        let state = link.watch();
        Ok(Self { handler: handler.clone(), lanes, order: Shares::default(), link, state, repairs: 0 })
    }

    /// Waits for at least one hint, and returns up to `max`. All hints stay in the lanes until the last step, which
    /// does not wait, so this can be dropped at any time.
    pub(super) async fn pull(&mut self, max: usize) -> Vec<Pulled> {
        loop {
            self.lanes.iter_mut().for_each(Lane::take_in);
            let is_up = self.is_up();
            let shares = self.shares(max, is_up);
            if is_up {
                self.ask(&shares).await;
                self.fetch().await;
            }
            let taken = self.take(&shares);
            if !taken.is_empty() {
                return taken;
            }
            // Perhaps none of the fetched messages was a hint. Then that lane must ask again before anything can
            // arrive.
            let must_ask = is_up && !self.lanes.iter().all(Lane::is_asking);
            if self.len() == 0 && !must_ask {
                self.hear().await;
            }
        }
    }

    fn len(&self) -> usize {
        self.lanes.iter().map(Lane::len).sum()
    }

    /// Whether requests can be sent. Forgets the requests that the server no longer knows.
    fn is_up(&mut self) -> bool {
        let state = self.state.borrow_and_update().clone();
        if state.repairs != self.repairs {
            self.repairs = state.repairs;
            self.lanes.iter_mut().for_each(Lane::begin_anew);
        }
        state.is_up()
    }

    /// How many hints each lane contributes to the next `max`. Counts the hints that have arrived and, if `can_fetch`,
    /// those that are known to be on the server.
    fn shares(&mut self, max: usize, can_fetch: bool) -> [usize; LANES] {
        let known = self.lanes.each_ref().map(|lane| {
            let fetchable = if can_fetch { lane.fetchable() } else { 0 };
            lane.len().saturating_add(fetchable)
        });
        let mut shares = [0; LANES];
        for _ in 0..max {
            let Some(lane) = self.order.next(|lane| shares[lane] < known[lane]) else { break };
            shares[lane] += 1;
        }
        shares
    }

    /// Fetches what is missing from the shares. Lanes that know of no message wait for one.
    async fn ask(&mut self, shares: &[usize; LANES]) {
        for (lane, share) in self.lanes.iter_mut().zip(shares) {
            lane.ask(share.saturating_sub(lane.len())).await;
        }
    }

    /// Waits until the fetches under way end.
    async fn fetch(&mut self) {
        for lane in &mut self.lanes {
            while lane.is_fetching() {
                if lane.hear().await == Heard::Silence {
                    self.link.look();
                }
            }
        }
    }

    /// Waits until something may have changed.
    async fn hear(&mut self) {
        let [high, normal, low] = &mut self.lanes;
        let heard = tokio::select! {
            heard = high.hear() => heard,
            heard = normal.hear() => heard,
            heard = low.hear() => heard,
            _ = self.state.changed() => Heard::Something,
        };
        if heard == Heard::Silence {
            self.link.look();
        }
    }

    /// Takes the shares, the most urgent first, as far as they have arrived.
    fn take(&mut self, shares: &[usize; LANES]) -> Vec<Pulled> {
        let mut taken = Vec::new();
        for ((lane, priority), share) in self.lanes.iter_mut().zip(Priority::ALL).zip(shares) {
            taken.extend(lane.take(*share).map(|arrived| Pulled {
                hint: Hint { event: arrived.event, handler: self.handler.clone(), priority },
                receipt: Receipt::JetStream(arrived.receipt),
            }));
        }
        taken
    }
}

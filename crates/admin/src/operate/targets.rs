//! The handlers that there are, and the jobs that they get from an operator.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hookfast_store::{Found, NewJob, Operate, StoreError};
use hookfast_webhook::{HandlerName, Ordering, Subscription};

use super::ActError;

/// What a handler computes from a body, for those that keep an order of their own.
pub type KeyOfBody = Arc<dyn Fn(&[u8]) -> Option<String> + Send + Sync>;

/// The handlers of the configuration.
#[derive(Clone, Default)]
pub struct Targets {
    known: Vec<(Subscription, KeyOfBody)>,
    /// Those whose code is in another program: what they subscribe to is not known here.
    foreign: Vec<HandlerName>,
}

impl Targets {
    /// All of them, each with the ordering key it computes.
    pub fn new(handlers: impl IntoIterator<Item = (Subscription, KeyOfBody)>) -> Self {
        Self { known: handlers.into_iter().collect(), foreign: Vec::new() }
    }

    /// And these, of which only the names are known. Their own jobs can be replayed, and no others be given to them.
    pub fn with_foreign(mut self, names: impl IntoIterator<Item = HandlerName>) -> Self {
        self.foreign.extend(names);
        self
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &HandlerName> {
        self.known.iter().map(|(subscription, _)| &subscription.handler).chain(&self.foreign)
    }

    /// Whether there is such a handler.
    pub fn has(&self, name: &HandlerName) -> bool {
        self.names().any(|known| known == name)
    }

    /// Fails unless events can be given to this handler.
    pub fn check_target(&self, name: &HandlerName) -> Result<(), ActError> {
        match self.find(name) {
            Some(_) => Ok(()),
            None if self.has(name) => Err(ActError::Foreign(name.to_string())),
            None => Err(ActError::no_handler(name, self)),
        }
    }

    /// Whether a job is made of this: its own handler is there, or `onto` subscribes to such events.
    pub fn want(&self, onto: Option<&HandlerName>, found: &Found) -> bool {
        match onto.filter(|onto| found.handler.as_ref() != Some(onto)) {
            None => found.handler.as_ref().is_some_and(|own| self.has(own)),
            Some(onto) => {
                self.find(onto).is_some_and(|(subscription, _)| subscription.wants(&found.source, &found.event_type))
            }
        }
    }

    /// The job that is made of this, if one is.
    pub(super) async fn job(
        &self,
        store: &dyn Operate,
        onto: Option<&HandlerName>,
        found: &Found,
    ) -> Result<Option<NewJob>, StoreError> {
        let Some(handler) = onto.or(found.handler.as_ref()).filter(|_| self.want(onto, found)) else {
            return Ok(None);
        };
        if found.handler.as_ref() == Some(handler) {
            let ordering_key = found.ordering_key.clone();
            return Ok(Some(NewJob { handler: handler.clone(), priority: found.priority, ordering_key }));
        }
        let Some((subscription, key_of_body)) = self.find(handler) else { return Ok(None) };
        Ok(Some(NewJob {
            handler: handler.clone(),
            priority: subscription.priority.unwrap_or(found.priority),
            ordering_key: ordering_key(store, &subscription.ordering, key_of_body, found).await?,
        }))
    }

    fn find(&self, name: &HandlerName) -> Option<&(Subscription, KeyOfBody)> {
        self.known.iter().find(|(subscription, _)| subscription.handler == *name)
    }
}

/// The key that the event would have got from this handler when it arrived.
async fn ordering_key(
    store: &dyn Operate,
    ordering: &Ordering,
    key_of_body: &KeyOfBody,
    found: &Found,
) -> Result<Option<String>, StoreError> {
    let body = match ordering {
        Ordering::Computed(_) => store.event(found.event).await?.map(|event| event.body),
        _ => None,
    };
    // A handler that panics must not end the act. It meets the event again when it runs, and fails there.
    let computed = || match catch_unwind(AssertUnwindSafe(|| key_of_body(body.as_deref()?))) {
        Ok(key) => key,
        Err(_) => Some(Ordering::PANICKED.into()),
    };
    Ok(ordering.key_of(&found.source, found.account.as_deref(), &found.event_type, computed))
}

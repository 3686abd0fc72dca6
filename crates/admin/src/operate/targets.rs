//! The configured handlers, and the jobs that an operator can give them.

use hookfast_store::{Found, NewJob, Operate, StoreError};
use hookfast_webhook::{HandlerName, KeyFacts, Ordering, Subscription};

use super::ActError;

/// The configured handlers.
#[derive(Clone, Default)]
pub struct Targets {
    known: Vec<Subscription>,
    /// Handlers whose code is in another program, so that their subscriptions are not known here.
    foreign: Vec<HandlerName>,
}

impl Targets {
    /// The handlers of this program.
    pub fn new(handlers: impl IntoIterator<Item = Subscription>) -> Self {
        Self { known: handlers.into_iter().collect(), foreign: Vec::new() }
    }

    /// Adds handlers of which only the names are known. Their own jobs can be replayed, but they cannot get others.
    pub fn with_foreign(mut self, names: impl IntoIterator<Item = HandlerName>) -> Self {
        self.foreign.extend(names);
        self
    }

    /// The names of all handlers.
    pub fn names(&self) -> impl Iterator<Item = &HandlerName> {
        self.known.iter().map(|subscription| &subscription.handler).chain(&self.foreign)
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

    /// Whether a found job can be replayed: `onto` subscribes to its event or, without `onto`, its own handler is
    /// configured.
    pub fn want(&self, onto: Option<&HandlerName>, found: &Found) -> bool {
        match onto.filter(|onto| found.handler.as_ref() != Some(onto)) {
            None => found.handler.as_ref().is_some_and(|own| self.has(own)),
            Some(onto) => {
                self.find(onto).is_some_and(|subscription| subscription.wants(&found.source, &found.event_type))
            }
        }
    }

    /// The job that a replay makes of a found job, if any.
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
        let Some(subscription) = self.find(handler) else { return Ok(None) };
        Ok(Some(NewJob {
            handler: handler.clone(),
            priority: subscription.priority.unwrap_or(found.priority),
            ordering_key: ordering_key(store, &subscription.ordering, found).await?,
        }))
    }

    fn find(&self, name: &HandlerName) -> Option<&Subscription> {
        self.known.iter().find(|subscription| subscription.handler == *name)
    }
}

/// The ordering key that this handler gives the event, the same as when the event arrived.
async fn ordering_key(store: &dyn Operate, ordering: &Ordering, found: &Found) -> Result<Option<String>, StoreError> {
    let body = match ordering.needs_body() {
        true => store.event(found.event).await?.map(|event| event.body),
        false => None,
    };
    let (source, account, event_type) = (&found.source, found.account.as_deref(), &found.event_type);
    Ok(ordering.key(&KeyFacts { source, account, event_type, body: body.as_deref().unwrap_or_default() }))
}

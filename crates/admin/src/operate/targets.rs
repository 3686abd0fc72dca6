//! The handlers that there are, and the jobs that they get from an operator.

use hookfast_store::{Found, NewJob, Operate, StoreError};
use hookfast_webhook::{HandlerName, KeyFacts, Ordering, Subscription};

use super::ActError;

/// The handlers of the configuration.
#[derive(Clone, Default)]
pub struct Targets {
    known: Vec<Subscription>,
    /// Those whose code is in another program: what they subscribe to is not known here.
    foreign: Vec<HandlerName>,
}

impl Targets {
    /// The handlers of this program.
    pub fn new(handlers: impl IntoIterator<Item = Subscription>) -> Self {
        Self { known: handlers.into_iter().collect(), foreign: Vec::new() }
    }

    /// And these, of which only the names are known. Their own jobs can be replayed, and no others be given to them.
    pub fn with_foreign(mut self, names: impl IntoIterator<Item = HandlerName>) -> Self {
        self.foreign.extend(names);
        self
    }

    /// Their names.
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

    /// Whether a job is made of this: its own handler is there, or `onto` subscribes to such events.
    pub fn want(&self, onto: Option<&HandlerName>, found: &Found) -> bool {
        match onto.filter(|onto| found.handler.as_ref() != Some(onto)) {
            None => found.handler.as_ref().is_some_and(|own| self.has(own)),
            Some(onto) => {
                self.find(onto).is_some_and(|subscription| subscription.wants(&found.source, &found.event_type))
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

/// The key that the event would have got from this handler when it arrived.
async fn ordering_key(store: &dyn Operate, ordering: &Ordering, found: &Found) -> Result<Option<String>, StoreError> {
    let body = match ordering.needs_body() {
        true => store.event(found.event).await?.map(|event| event.body),
        false => None,
    };
    let (source, account, event_type) = (&found.source, found.account.as_deref(), &found.event_type);
    Ok(ordering.key(&KeyFacts { source, account, event_type, body: body.as_deref().unwrap_or_default() }))
}

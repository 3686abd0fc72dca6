//! What a backend team writes: a handler is a name, what it subscribes to, a payload type, and one method.
//!
//! Before it, `Worker::run_job` in `processor::run` has a claimed job with its body, and calls [`AnyHandler::run`]. After
//! it, `event::handle` reads the payload and calls the team's [`Handler::handle`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use hookfast_store::Claimed;
use hookfast_webhook::{Failure, HandlerName, Interest};
use serde::de::DeserializeOwned;

use crate::event::{self, Event};
use crate::{Effects, form};

/// What a handler comes to. `?` on any error means *try again later*; giving up is said with [`Failure::give_up`].
pub type Handled = Result<(), Failure>;

/// Something that acts on events.
///
/// A job may be run more than once: after a failure, after a crash, after a replay. So everything that must not happen
/// twice goes through [`Effects`].
pub trait Handler: Send + Sync + 'static {
    /// Its name, in tables, metrics and on the command line. Changing it makes it another handler.
    const NAME: &'static str;

    /// What it wants, as `source/type`: `stripe/charge.refunded`, `stripe/charge.*`, `*/*`. The configuration can say
    /// otherwise.
    const SUBSCRIBES: &'static [&'static str];

    /// The tables it writes to, as `CREATE TABLE IF NOT EXISTS` statements; they are run when its workers start.
    const TABLES: &'static str = "";

    /// What it takes from an event's body: JSON, or the fields of a form. An event that does not fit is a dead letter at once, of
    /// kind `bad_payload`.
    type Payload: DeserializeOwned + Send + Sync;

    /// Acts on one event.
    fn handle(&self, event: &Event<Self::Payload>, effects: &Effects) -> impl Future<Output = Handled> + Send;

    /// With `ordering = "computed"` in the configuration: events with the same key are handled one at a time, in the order
    /// they came; those without one as they come. Called while the event is received, so it must be quick.
    fn ordering_key(&self, payload: &Self::Payload) -> Option<String> {
        let _ = payload;
        None
    }
}

/// The handlers of a program.
#[derive(Clone, Default)]
pub struct Handlers {
    by_name: BTreeMap<HandlerName, Arc<dyn AnyHandler>>,
}

impl Handlers {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    ///
    /// # Panics
    ///
    /// If its name or what it subscribes to cannot be read, or if there is one of that name: that is a mistake in the
    /// program and not in its use.
    pub fn with<H: Handler>(self, handler: H) -> Self {
        let name = HandlerName::new(H::NAME).unwrap_or_else(|error| panic!("a handler's NAME: {error}"));
        self.with_named(&name, handler)
    }

    /// Adds one under another name than its own.
    pub fn with_named<H: Handler>(mut self, name: &HandlerName, handler: H) -> Self {
        let interests = H::SUBSCRIBES.iter().map(|text| {
            text.parse().unwrap_or_else(|error| panic!("what the handler `{name}` SUBSCRIBES to: {error}"))
        });
        let typed = Typed { name: name.clone(), interests: interests.collect(), handler };
        let before = self.by_name.insert(name.clone(), Arc::new(typed));
        assert!(before.is_none(), "there are two handlers with the name `{name}`");
        self
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn AnyHandler>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&HandlerName, &Arc<dyn AnyHandler>)> {
        self.by_name.iter()
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

/// A handler of any payload.
#[async_trait]
pub trait AnyHandler: Send + Sync {
    /// What it wants, unless the configuration says otherwise.
    fn interests(&self) -> &[Interest];

    /// The tables it writes to.
    fn tables(&self) -> &'static str;

    /// Runs it.
    async fn run(&self, claimed: Claimed, effects: &Effects) -> Handled;

    /// What this body has in common with those that it must be handled in order with.
    fn ordering_key(&self, body: &[u8]) -> Option<String>;
}

struct Typed<H> {
    name: HandlerName,
    interests: Vec<Interest>,
    handler: H,
}

#[async_trait]
impl<H: Handler> AnyHandler for Typed<H> {
    fn interests(&self) -> &[Interest] {
        &self.interests
    }

    fn tables(&self) -> &'static str {
        H::TABLES
    }

    async fn run(&self, claimed: Claimed, effects: &Effects) -> Handled {
        event::handle(&self.handler, claimed, effects).await
    }

    fn ordering_key(&self, body: &[u8]) -> Option<String> {
        // The content type is not known here.
        let payload = serde_json::from_slice(body)
            .or_else(|error| form::read(body).map_err(|_| error))
            .inspect_err(|error| tracing::debug!(handler = %self.name, %error, "no ordering key: not its payload"));
        self.handler.ordering_key(&payload.ok()?)
    }
}

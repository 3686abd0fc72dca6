//! Workers for tests of this crate.

use std::sync::Arc;

use hookfast_handler::testing::TestStore;
use hookfast_handler::{Effects, Event, Handled, Handler, Handlers};
use hookfast_parts::MustEnd;
use hookfast_queue::Queue;
use hookfast_webhook::HandlerName;
use tokio::runtime::Handle;

use crate::worker::Worker;
use crate::{Assigned, Config, HandlerConfig, Running, Surroundings, start_shared};

/// A handler for tests that need none to run.
pub(crate) struct Idle;

impl Handler for Idle {
    const NAME: &'static str = "idle";
    const SUBSCRIBES: &'static [&'static str] = &["stripe/*"];
    type Payload = serde_json::Value;

    async fn handle(&self, _: &Event<serde_json::Value>, _: &Effects) -> Handled {
        Ok(())
    }
}

/// The worker for [`Idle`] in this store. It takes no jobs by itself.
pub(crate) fn workers(store: &TestStore, queue: Arc<dyn Queue>, config: Config) -> (Running, Arc<Worker>) {
    let handlers = Handlers::default().with(Idle);
    let assigned = Assigned {
        name: HandlerName::new(Idle::NAME).expect("a name"),
        handler: Arc::clone(handlers.get(Idle::NAME).expect("it was added")),
        config: HandlerConfig::default(),
        is_paused: false,
        sources: Vec::new(),
    };
    let surroundings = Surroundings {
        store: Arc::clone(store.store()) as _,
        queue,
        handlers: Handle::current(),
        apart: None,
        must_end: MustEnd::default(),
    };
    let (running, shared) = start_shared(&surroundings, config);
    (running, Worker::new(shared, assigned))
}

//! Whether hints can get through now. The keeper decides that. All other parts read it here, and ask here for another
//! check.

use tokio::sync::{Notify, watch};

use crate::{QueueError, Servers};

pub(super) struct Link {
    servers: String,
    state: watch::Sender<State>,
    look: Notify,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    /// How often streams or consumers were made again, or came back. The server has forgotten all requests from before.
    pub(super) repairs: u64,
    /// Why hints cannot get through.
    problem: Option<String>,
}

impl State {
    pub(super) fn is_up(&self) -> bool {
        self.problem.is_none()
    }
}

impl Link {
    pub(super) fn new(servers: &Servers) -> Self {
        let state = State { repairs: 0, problem: Some("it has not answered yet".into()) };
        Self { servers: servers.to_string(), state: watch::Sender::new(state), look: Notify::new() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state.borrow().is_up()
    }

    pub(super) fn check(&self) -> Result<(), QueueError> {
        match &self.state.borrow().problem {
            None => Ok(()),
            Some(problem) => Err(self.unreachable(problem.clone())),
        }
    }

    pub(super) fn unreachable(&self, problem: String) -> QueueError {
        QueueError::Unreachable { servers: self.servers.clone(), problem }
    }

    /// Reports every change from now on.
    pub(super) fn watch(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// Asks the keeper to check streams and consumers.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }

    pub(super) async fn asked_to_look(&self) {
        self.look.notified().await;
    }

    /// Notes that hints cannot get through from now on.
    pub(super) fn down(&self, problem: String) {
        self.state.send_modify(|state| {
            if state.is_up() {
                tracing::warn!(servers = self.servers, problem, "the queue cannot be used; jobs wait in the store");
            }
            state.problem = Some(problem);
        });
    }

    /// Notes that hints cannot get through because the queue was closed.
    pub(super) fn close(&self) {
        self.state.send_modify(|state| state.problem = Some("it was closed".into()));
    }

    /// Notes that hints can get through. `repaired` says whether a stream or consumer had to be made first.
    pub(super) fn up(&self, repaired: bool) {
        self.state.send_if_modified(|state| {
            let was_down = state.problem.take().is_some();
            if was_down {
                tracing::info!(servers = self.servers, "the queue can be used");
            }
            state.repairs += u64::from(was_down || repaired);
            was_down || repaired
        });
    }
}

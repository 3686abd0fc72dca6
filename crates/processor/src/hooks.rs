//! What a worker adds to the effects of its runs: shared commits, and the faults of tests.

use hookfast_handler::{Hooks, SharedCommits};

use crate::faults::{self, Point, Protection};
use crate::writes::Writer;

pub(crate) struct WorkerHooks {
    /// Writes effects that share their commits. `None` for runs whose effects have commits of their own.
    pub(crate) writer: Option<Writer>,
}

impl Hooks for WorkerHooks {
    fn shared_commits(&self) -> Option<&dyn SharedCommits> {
        let writer = self.writer.as_ref().filter(|_| self.trusts_markers())?;
        Some(writer)
    }

    fn before_commit(&self) {
        faults::pass(Point::BeforeEffect);
    }

    fn after_commit(&self) {
        faults::pass(Point::AfterEffect);
    }

    fn trusts_markers(&self) -> bool {
        !faults::is_off(Protection::Marker)
    }
}

//! Errors, named by what the caller can do about them.

/// The queue cannot be opened, or cannot carry hints at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The URL names no queue we know.
    #[error("{0}")]
    Url(String),
    /// A setting is not as it must be.
    #[error("{0}")]
    Setting(String),
    /// The server is away or does not answer. It is tried again until it does.
    #[error("cannot reach the queue at {servers}: {problem}")]
    Unreachable {
        /// Which servers, without passwords.
        servers: String,
        /// What they or the network said.
        problem: String,
    },
    /// There is a stream of our name with settings that cannot be changed into ours.
    #[error(
        "the stream {stream} is there, but not as Hookfast needs it: {problem}. Remove that stream (the jobs are safe in the \
         store), or choose another prefix for the queue"
    )]
    OtherStream {
        /// The stream.
        stream: String,
        /// What the server said.
        problem: String,
    },
    /// The server answers but takes no hints: it is full, or its disk is.
    #[error("the queue takes no more hints: {0}")]
    Refused(String),
}

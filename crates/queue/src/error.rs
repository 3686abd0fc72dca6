//! Errors, named by what the caller can do about them.

/// The queue cannot be opened, or cannot carry hints at the moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The URL names no queue that this program supports.
    #[error("{0}")]
    Url(String),
    /// A setting has a value that is not allowed.
    #[error("{0}")]
    Setting(String),
    /// The server cannot be reached or does not answer. The queue keeps trying.
    #[error("cannot reach the queue at {servers}: {problem}")]
    Unreachable {
        /// The servers, without passwords.
        servers: String,
        /// The error of the server or of the network.
        problem: String,
    },
    /// A stream of the expected name exists, and the server refuses to change its settings to those that Hookfast
    /// needs.
    #[error(
        "the stream {stream} exists, but not with the settings that Hookfast needs: {problem}. Remove that stream (the jobs are \
         safe in the store), or choose another prefix for the queue"
    )]
    OtherStream {
        /// The name of the stream.
        stream: String,
        /// The server's error.
        problem: String,
    },
    /// The server answers but takes no hints: the stream or the server's disk is full.
    #[error("the queue takes no more hints: {0}")]
    Refused(String),
}

//! A connection that ends when the client is silent for too long. hyper has such a deadline only for the head.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long the gateway waits for the sender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// From the first byte of a request to the end of its head, and from the start of the connection to its first byte.
    pub(crate) head: Duration,
    /// Between two bytes of a head, between two requests, and until the sender reads the next part of our answer.
    pub(crate) idle: Duration,
}

/// What a connection is doing. `caps` uses it to choose the connection to close.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    /// A request is under way. Its body and its answer have deadlines of their own.
    busy: AtomicBool,
    /// A head has ended since the last read. It is stored, because a request can begin and end between two reads.
    head_ended: AtomicBool,
    /// The gateway has to act next: it waits for no byte from the sender.
    at_work: AtomicBool,
    /// A genuine request came on this connection.
    is_proven: AtomicBool,
    /// When the connection opened or last had an answer, in milliseconds since `START`.
    last_active: AtomicU64,
    evicted: Notify,
}

/// The moment from which times are counted.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The order in which silent connections are closed: first those without a genuine request, and among equals the one
/// that has been silent longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Worth {
    pub(crate) is_proven: bool,
    last_active: u64,
}

impl Activity {
    /// For a connection that has just been opened.
    pub(crate) fn new(is_proven: bool) -> Self {
        let activity = Self::default();
        activity.0.is_proven.store(is_proven, Ordering::Relaxed);
        activity.note_active();
        activity
    }

    /// The head of a request has arrived.
    pub(crate) fn begin(&self) {
        self.0.busy.store(true, Ordering::Relaxed);
        self.0.head_ended.store(true, Ordering::Relaxed);
        self.set_at_work(true);
    }

    /// A request has been answered.
    pub(crate) fn end(&self) {
        self.0.busy.store(false, Ordering::Relaxed);
        self.note_active();
        self.set_at_work(false);
    }

    /// Whether the gateway has to act next. It does not while it waits for a body.
    pub(crate) fn set_at_work(&self, at_work: bool) {
        self.0.at_work.store(at_work, Ordering::Relaxed);
    }

    pub(crate) fn is_at_work(&self) -> bool {
        self.0.at_work.load(Ordering::Relaxed)
    }

    /// A genuine request came on this connection.
    pub(crate) fn prove(&self) {
        self.0.is_proven.store(true, Ordering::Relaxed);
    }

    /// `None` if the connection is not silent.
    pub(crate) fn worth(&self) -> Option<Worth> {
        let Flags { is_proven, last_active, .. } = &*self.0;
        let worth =
            Worth { is_proven: is_proven.load(Ordering::Relaxed), last_active: last_active.load(Ordering::Relaxed) };
        (!self.is_at_work()).then_some(worth)
    }

    /// Tells the connection to close, because a new one needs its place.
    pub(crate) fn evict(&self) {
        self.0.evicted.notify_one();
    }

    /// Waits until the connection must close, because a new one needs its place.
    pub(crate) async fn evicted(&self) {
        self.0.evicted.notified().await;
    }

    fn note_active(&self) {
        let since_start = Instant::now().saturating_duration_since(*START).as_millis();
        self.0.last_active.store(u64::try_from(since_start).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn is_busy(&self) -> bool {
        self.0.busy.load(Ordering::Relaxed)
    }

    /// Whether a head has ended since the last call.
    fn take_head_ended(&self) -> bool {
        self.0.head_ended.swap(false, Ordering::Relaxed)
    }
}

/// A stream whose reads and writes fail when they wait too long.
pub(crate) struct ImpatientStream {
    stream: TcpStream,
    patience: Patience,
    activity: Activity,
    read: Waiting,
    write: Waiting,
    /// When the head that is being received must be complete.
    head_due: Option<Instant>,
    has_begun: bool,
}

impl ImpatientStream {
    pub(crate) fn new(stream: TcpStream, patience: Patience, activity: Activity) -> Self {
        let (read, write) = (Waiting::default(), Waiting::default());
        Self { stream, patience, activity, read, write, head_due: None, has_begun: false }
    }
}

impl AsyncRead for ImpatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let busy = this.activity.is_busy();
        if this.activity.take_head_ended() {
            this.head_due = None;
            this.read.stop();
        }
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(done) => {
                this.read.stop();
                this.activity.note_active();
                this.has_begun = true;
                if !busy && this.head_due.is_none() {
                    this.head_due = Some(Instant::now() + this.patience.head);
                }
                Poll::Ready(done)
            }
            Poll::Pending => {
                let Patience { head, idle } = this.patience;
                let (head_due, idle) = (this.head_due, if this.has_begun { idle } else { idle.min(head) });
                let due = || {
                    let idle_due = Instant::now() + idle;
                    head_due.map_or(idle_due, |head_due| head_due.min(idle_due))
                };
                // hyper reads ahead before it calls the service, and polls again only when a byte comes or the timer
                // ends. So the timer may have ended although the head is complete by now. Then a new wait begins here.
                match this.read.poll(context, due) {
                    Poll::Ready(_) if busy => {
                        this.read.stop();
                        this.read.poll(context, due)
                    }
                    waited => waited,
                }
            }
        }
    }
}

impl AsyncWrite for ImpatientStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.while_writing(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.while_writing(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl ImpatientStream {
    fn while_writing(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write.stop();
            return written;
        }
        let idle = self.patience.idle;
        self.write.poll(context, || Instant::now() + idle)
    }
}

/// A timer that runs while no byte is read or written.
#[derive(Default)]
struct Waiting {
    timer: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl Waiting {
    fn stop(&mut self) {
        self.running = false;
    }

    /// Pending until the time is up, then an error. The timer is reused, because making one is expensive.
    fn poll<T>(&mut self, context: &mut Context<'_>, due: impl FnOnce() -> Instant) -> Poll<io::Result<T>> {
        if !self.running {
            self.running = true;
            match &mut self.timer {
                Some(timer) => timer.as_mut().reset(due()),
                None => self.timer = Some(Box::pin(sleep_until(due()))),
            }
        }
        let timer = self.timer.as_mut().expect("it was made above");
        timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

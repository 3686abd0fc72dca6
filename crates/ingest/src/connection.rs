//! A connection that ends by itself when the other side is silent. hyper has no such deadlines, except for the head.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long the other side may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// From the first byte of a request to the end of its head.
    pub(crate) head: Duration,
    /// Between two bytes of a head or before its first, and for reading our answer.
    pub(crate) idle: Duration,
}

/// Whether a request is being worked on; then it has deadlines of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Busy(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    busy: AtomicBool,
    /// A request may come and go between two reads, so this is kept until the next one.
    head_ended: AtomicBool,
}

impl Busy {
    /// A request has its head.
    pub(crate) fn begin(&self) {
        self.0.busy.store(true, Ordering::Relaxed);
        self.0.head_ended.store(true, Ordering::Relaxed);
    }

    /// A request has its answer.
    pub(crate) fn end(&self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }

    fn is_busy(&self) -> bool {
        self.0.busy.load(Ordering::Relaxed)
    }

    /// Whether a head has ended since this was asked last.
    fn take_head_ended(&self) -> bool {
        self.0.head_ended.swap(false, Ordering::Relaxed)
    }
}

/// A stream whose reads and writes fail when they wait too long.
pub(crate) struct ImpatientStream {
    stream: TcpStream,
    patience: Patience,
    busy: Busy,
    read: Waiting,
    write: Waiting,
    /// When the head that is coming in must be whole.
    head_due: Option<Instant>,
}

impl ImpatientStream {
    pub(crate) fn new(stream: TcpStream, patience: Patience, busy: Busy) -> Self {
        Self { stream, patience, busy, read: Waiting::default(), write: Waiting::default(), head_due: None }
    }
}

impl AsyncRead for ImpatientStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let busy = this.busy.is_busy();
        if this.busy.take_head_ended() {
            this.head_due = None;
            this.read.stop();
        }
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Ready(done) => {
                this.read.stop();
                if !busy && this.head_due.is_none() {
                    this.head_due = Some(Instant::now() + this.patience.head);
                }
                Poll::Ready(done)
            }
            Poll::Pending => {
                let (head_due, idle) = (this.head_due, this.patience.idle);
                let due = || {
                    let idle_due = Instant::now() + idle;
                    head_due.map_or(idle_due, |head_due| head_due.min(idle_due))
                };
                // hyper reads ahead before it calls us, and then not again until there is a byte or the time is up. So
                // the time may be up for a head that has ended since, and the next wait begins only now.
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

/// A timer that runs while nothing moves.
#[derive(Default)]
struct Waiting {
    timer: Option<Pin<Box<Sleep>>>,
    running: bool,
}

impl Waiting {
    fn stop(&mut self) {
        self.running = false;
    }

    /// Pending until the time is up, then an error. The timer is kept and set anew, because making one costs.
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

//! Log lines on their way to the standard error. A thread of their own writes them, because what reads the log may be slow,
//! stand still or be gone, and no request or worker may wait for it.

use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use metrics::{Counter, Gauge, counter, describe_counter, describe_gauge, gauge};

use crate::printable::{printable, printable_log_line};

/// The most memory for lines that wait. Lines beyond it are left out and counted.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// How long the end of the process waits for lines to be written.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// The lines of this process.
static LINES: LogLines = LogLines::new(MAX_WAITING_BYTES);

/// Lines that wait for the thread that writes them.
struct LogLines {
    max_bytes: usize,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    series: OnceLock<Series>,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    lines: usize,
    /// Lines that have been taken out and are being written.
    being_written: usize,
    /// Lines that were left out since the log last said how many.
    left_out: u64,
}

struct Series {
    dropped: Counter,
    waiting: Gauge,
}

/// Starts the thread that writes the lines of this process.
pub(crate) fn start() -> io::Result<()> {
    let write = || {
        loop {
            LINES.write_next(&mut io::stderr());
        }
    };
    std::thread::Builder::new().name("log".into()).spawn(write).map(drop)
}

/// Adds a line, with its line break. Never waits.
pub(crate) fn add(line: &str) {
    LINES.add(printable(line).as_bytes());
}

/// Waits until all lines are written, but not for long: a log that is not read must not hold up the end of the process.
pub(crate) fn flush() {
    LINES.flush(FLUSH_WITHIN);
}

/// Begins to count. Called once, after the recorder is installed.
pub(crate) fn start_metrics() {
    describe_counter!(
        "hookfast_log_lines_dropped_total",
        "Log lines that were left out because the log was not read in time, or could not be written"
    );
    describe_gauge!("hookfast_log_lines_waiting", "Log lines that wait to be written");
    let series =
        Series { dropped: counter!("hookfast_log_lines_dropped_total"), waiting: gauge!("hookfast_log_lines_waiting") };
    series.dropped.increment(0);
    let _ = LINES.series.set(series);
}

/// Gives each line of a subscriber to the lines of this process.
pub(crate) struct LineWriter;

impl Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LINES.add(printable_log_line(&String::from_utf8_lossy(line)).as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogLines {
    const fn new(max_bytes: usize) -> Self {
        let waiting = Waiting { bytes: Vec::new(), lines: 0, being_written: 0, left_out: 0 };
        Self { max_bytes, waiting: Mutex::new(waiting), changed: Condvar::new(), series: OnceLock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.len() + line.len() > self.max_bytes {
            self.leave_out(&mut waiting, 1);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        waiting.lines += 1;
        self.show(&waiting);
        if waiting.lines == 1 {
            self.changed.notify_all();
        }
    }

    fn leave_out(&self, waiting: &mut Waiting, lines: u64) {
        waiting.left_out += lines;
        if let Some(series) = self.series.get() {
            series.dropped.increment(lines);
        }
    }

    fn show(&self, waiting: &Waiting) {
        if let Some(series) = self.series.get() {
            series.waiting.set((waiting.lines + waiting.being_written) as f64);
        }
    }

    /// Waits for lines and writes all that are there. What cannot be written is left out.
    fn write_next(&self, sink: &mut impl Write) {
        let bytes = self.take();
        // One at a time, so that lines of other processes on the same pipe come between ours and not into them.
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let failed = lines.filter(|line| sink.write_all(line).is_err()).count() as u64;
        let left_out = self.written(failed);
        if left_out > 0 {
            tracing::warn!(lines = left_out, "log lines were left out: the log was not read in time, or not writable");
        }
    }

    fn take(&self) -> Vec<u8> {
        let mut waiting = self.changed.wait_while(self.lock(), |waiting| waiting.lines == 0);
        let waiting = waiting.as_mut().unwrap_or_else(|poisoned| poisoned.get_mut());
        waiting.being_written = std::mem::take(&mut waiting.lines);
        std::mem::take(&mut waiting.bytes)
    }

    /// Notes the end of a write, and gives how many lines the log must now say that it lacks. While lines fail, or find no
    /// room, it says nothing, because that line would be lost as well.
    fn written(&self, failed: u64) -> u64 {
        let mut waiting = self.lock();
        waiting.being_written = 0;
        self.leave_out(&mut waiting, failed);
        self.show(&waiting);
        self.changed.notify_all();
        let has_room = waiting.bytes.len() <= self.max_bytes / 2;
        if failed == 0 && has_room { std::mem::take(&mut waiting.left_out) } else { 0 }
    }

    fn flush(&self, within: Duration) {
        let is_unwritten = |waiting: &mut Waiting| waiting.lines + waiting.being_written > 0;
        let _ = self.changed.wait_timeout_while(self.lock(), within, is_unwritten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes nothing.
    struct Gone;

    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_in_order_and_those_without_room_are_counted() {
        let lines = LogLines::new(8);
        for line in ["one\n", "two\n", "six\n", "ten\n"] {
            lines.add(line.as_bytes());
        }
        assert_eq!(lines.take(), b"one\ntwo\n");
        lines.add(b"no room\n");
        assert_eq!(lines.written(0), 0, "there is no room to say it");
        let mut written = Vec::new();
        lines.write_next(&mut written);
        assert_eq!((&*written, lines.lock().left_out), (&b"no room\n"[..], 0));
        lines.flush(Duration::MAX);
    }

    #[test]
    fn lines_that_fail_are_counted_until_one_is_written() {
        let lines = LogLines::new(100);
        lines.add(b"lost\n");
        lines.write_next(&mut Gone);
        lines.add(b"lost\nas well\n");
        lines.write_next(&mut Gone);
        assert_eq!(lines.lock().left_out, 3);
        lines.add(b"kept\n");
        assert_eq!((lines.take(), lines.written(0)), (b"kept\n".to_vec(), 3));
    }

    #[test]
    fn a_log_that_is_not_read_does_not_hold_up_the_end() {
        let lines = LogLines::new(100);
        lines.add(b"never written\n");
        lines.flush(Duration::ZERO);
        assert_eq!(lines.lock().lines, 1);
    }
}

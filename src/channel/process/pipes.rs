//! Both pipes of a process: lines that go in, each with a report of how much of it did, and lines
//! that come out, each to whom it concerns.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot, watch},
};

use super::{
    lines::{Line, Lines},
    starts::Starts,
};
use crate::{
    channel::{
        calls::{Calls, Delivery},
        reply::Name,
    },
    dialect::south,
};

/// Lines that wait for a process to read.
const WAITING: usize = 64;
/// Lines of noise in a row: more of it is no accident.
const NOISE: usize = 1_000;

// === In ===

/// How much of a line was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Whole,
    Not,
    Torn,
}

/// The way into a process.
#[derive(Clone)]
pub(super) struct Writer(mpsc::Sender<Outbound>);

/// The same, for those that must not keep it open.
pub(super) struct WeakWriter(mpsc::WeakSender<Outbound>);

/// What is to be written.
pub(super) struct Outbox(mpsc::Receiver<Outbound>);

struct Outbound {
    line: Bytes,
    /// Gone when nobody waits for it any more; then it is not written either.
    report: Report,
}

/// Tells how much of a line was written, on whatever way its writing ends.
struct Report {
    to: Option<oneshot::Sender<Sent>>,
    so_far: Sent,
}

pub(super) fn writer() -> (Writer, Outbox) {
    let (lines, outbox) = mpsc::channel(WAITING);
    (Writer(lines), Outbox(outbox))
}

impl Writer {
    /// Writes a line, and waits until the pipe has taken it.
    pub async fn write(&self, line: Bytes) -> Sent {
        let (to, sent) = oneshot::channel();
        let report = Report { to: Some(to), so_far: Sent::Not };
        if self.0.send(Outbound { line, report }).await.is_err() {
            return Sent::Not;
        }
        sent.await.unwrap_or(Sent::Not)
    }

    pub fn weak(&self) -> WeakWriter {
        WeakWriter(self.0.downgrade())
    }
}

impl WeakWriter {
    /// A message for which nobody waits. A process that does not read gets no more of them.
    pub fn word(&self, text: &[u8]) {
        let Some(lines) = self.0.upgrade() else { return };
        let line = [text, b"\n"].concat().into();
        let report = Report { to: None, so_far: Sent::Not };
        let _ = lines.try_send(Outbound { line, report });
    }
}

impl Outbox {
    /// Until the pipe breaks, or nobody is left who could write.
    pub async fn drain(mut self, mut to: impl AsyncWrite + Unpin) {
        while let Some(Outbound { line, mut report }) = self.0.recv().await {
            if report.to.as_ref().is_some_and(oneshot::Sender::is_closed) {
                continue;
            }
            let mut rest = &line[..];
            while !rest.is_empty() {
                match to.write(rest).await {
                    Ok(0) | Err(_) => return,
                    Ok(written) => {
                        report.so_far = Sent::Torn;
                        rest = rest.get(written..).unwrap_or_default();
                    }
                }
            }
            report.so_far = Sent::Whole;
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let _ = to.send(self.so_far);
        }
    }
}

// === Out ===

/// Why nothing more is read.
pub(super) enum Unread {
    Ended,
    Noise,
}

pub(super) struct Reader {
    pub name: Name,
    pub calls: Arc<Calls>,
    /// To answer what nobody else can.
    pub writer: WeakWriter,
    pub ending: watch::Sender<bool>,
    pub starts: Arc<Starts>,
    pub answered: Arc<AtomicBool>,
}

/// What came that was no message.
#[derive(Default)]
struct Noise {
    in_a_row: usize,
    told: bool,
}

impl Reader {
    pub async fn read(self, mut from: impl AsyncRead + Unpin, max: usize) -> Unread {
        let mut lines = Lines::new(max);
        let mut noise = Noise::default();
        loop {
            match from.read_buf(lines.buffer()).await {
                Ok(0) | Err(_) => return Unread::Ended,
                Ok(_) => {}
            }
            while let Some(line) = lines.next_line() {
                match line {
                    Line::Whole(line) if line.trim_ascii().is_empty() => {}
                    Line::Whole(line) => self.take(&line, &mut noise),
                    Line::TooLong(beginning) => {
                        let name = &*self.name;
                        tracing::warn!(
                            upstream.name = name,
                            max,
                            "a message of a server is larger than allowed"
                        );
                        self.calls.too_large(&beginning);
                    }
                }
                if noise.in_a_row > NOISE {
                    return Unread::Noise;
                }
            }
        }
    }

    fn take(&self, line: &Bytes, noise: &mut Noise) {
        let delivery = self.calls.deliver(line);
        if delivery != Delivery::Noise {
            noise.in_a_row = 0;
            self.answered.store(true, Ordering::Relaxed);
            self.starts.answered();
        }
        match delivery {
            Delivery::Done => {}
            Delivery::Refused => {
                self.ending.send_replace(true);
            }
            Delivery::Unheard(questions) => {
                for (id, method) in questions {
                    self.writer.word(&south::answer_body(&id, &method));
                }
            }
            Delivery::Noise => {
                noise.in_a_row += 1;
                let name = &*self.name;
                if !std::mem::replace(&mut noise.told, true) {
                    tracing::warn!(
                        upstream.name = name,
                        "a server writes to its output what is no message; it is ignored"
                    );
                }
                let (bytes, lines) = (line.len(), noise.in_a_row);
                tracing::debug!(upstream.name = name, bytes, lines, "no message");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test]
    async fn a_line_tells_how_much_of_it_was_written() {
        let (writer, outbox) = writer();
        let (to, mut from) = duplex(8);
        let steps = async move {
            assert_eq!(writer.write("short\n".into()).await, Sent::Whole);
            let reader = async {
                let mut text = [0; 8];
                from.read_exact(&mut text).await.unwrap();
                drop(from);
                text
            };
            let torn = writer.write("longer than the pipe\n".into());
            let (sent, text) = tokio::join!(torn, reader);
            assert_eq!((sent, &text), (Sent::Torn, b"short\nlo"));
            assert_eq!(writer.write("late\n".into()).await, Sent::Not);
        };
        tokio::join!(outbox.drain(to), steps);
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_written() {
        let (writer, outbox) = writer();
        let (to, mut from) = duplex(1_000);
        let mut given_up = Box::pin(writer.write("given up\n".into()));
        let pending = futures_util::poll!(given_up.as_mut());
        assert!(pending.is_pending());
        drop(given_up);
        writer.weak().word(b"a word");
        let weak = writer.weak();
        drop(writer);
        outbox.drain(to).await;
        weak.word(b"too late");
        let mut text = String::new();
        from.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "a word\n");
    }
}

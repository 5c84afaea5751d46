//! What a channel has brought for one request, until its reader takes it.
//!
//! Bounded: whoever reads slowly holds up nobody else on the channel. Past the bound
//! notifications are left out; a question pushes one out, for its asker waits; the end always
//! comes.

use std::{
    collections::VecDeque,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::error::Error;

/// Messages that wait for a reader, the end not counted.
const WAITING: usize = 64;

/// One message for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// May be left out.
    Word,
    /// Somebody waits for an answer.
    Question,
}

pub(super) struct Mailbox {
    /// Of what waits, in bytes.
    room: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<(Urgency, Bytes)>,
    bytes: usize,
    left_out: u64,
    /// After what waits.
    end: Option<Result<Option<Bytes>, Error>>,
    ended: bool,
    reader: Option<Waker>,
}

impl Mailbox {
    pub fn new(room: usize) -> Self {
        Self { room, inner: Mutex::default() }
    }

    /// Adds a message; false where there was no room for it.
    pub fn add(&self, urgency: Urgency, text: Bytes) -> bool {
        let mut inner = self.inner.lock();
        if inner.ended {
            return false;
        }
        let full =
            |inner: &Inner| inner.waiting.len() >= WAITING || inner.bytes + text.len() > self.room;
        while urgency == Urgency::Question && full(&inner) {
            let Some(at) = inner.waiting.iter().position(|(kind, _)| *kind == Urgency::Word) else {
                break;
            };
            if let Some((_, gone)) = inner.waiting.remove(at) {
                inner.bytes -= gone.len();
                inner.left_out += 1;
            }
        }
        if full(&inner) {
            inner.left_out += 1;
            return false;
        }
        inner.bytes += text.len();
        inner.waiting.push_back((urgency, text));
        inner.wake();
        true
    }

    /// The last message, or why there is none. Only the first end counts.
    pub fn end(&self, end: Result<Option<Bytes>, Error>) {
        let mut inner = self.inner.lock();
        if !inner.ended {
            inner.ended = true;
            inner.end = Some(end);
            inner.wake();
        }
    }

    /// Messages that were left out.
    pub fn left_out(&self) -> u64 {
        self.inner.lock().left_out
    }

    /// The next message; `None` after the last.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let mut inner = self.inner.lock();
        if let Some((_, text)) = inner.waiting.pop_front() {
            inner.bytes -= text.len();
            return Poll::Ready(Some(Ok(text)));
        }
        match inner.end.take() {
            Some(end) => Poll::Ready(end.transpose()),
            None if inner.ended => Poll::Ready(None),
            None => {
                inner.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Whether there is something to read.
    pub fn poll_some(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut inner = self.inner.lock();
        if inner.ended || !inner.waiting.is_empty() {
            return Poll::Ready(());
        }
        inner.reader = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Inner {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn text(n: usize) -> Bytes {
        Bytes::from(format!("{n:04}"))
    }

    async fn all(mailbox: &Mailbox) -> Vec<Bytes> {
        let mut read = Vec::new();
        while let Some(message) = poll_fn(|cx| mailbox.poll(cx)).await {
            read.push(message.unwrap());
        }
        read
    }

    #[tokio::test]
    async fn words_past_the_bound_are_left_out_and_the_end_is_not() {
        let mailbox = Mailbox::new(1 << 20);
        for n in 0..100 {
            assert_eq!(mailbox.add(Urgency::Word, text(n)), n < WAITING);
        }
        mailbox.end(Ok(Some(text(9_999))));
        assert!(!mailbox.add(Urgency::Word, text(1)), "nothing follows the end");
        let read = all(&mailbox).await;
        assert_eq!((read.len(), &read[WAITING]), (WAITING + 1, &text(9_999)));
        assert_eq!(mailbox.left_out(), 36);
    }

    #[tokio::test]
    async fn a_question_pushes_out_a_word() {
        let mailbox = Mailbox::new(8);
        assert!(mailbox.add(Urgency::Word, text(1)) && mailbox.add(Urgency::Word, text(2)));
        assert!(mailbox.add(Urgency::Question, text(3)) && mailbox.add(Urgency::Question, text(4)));
        assert!(!mailbox.add(Urgency::Question, text(5)), "there is an end to questions too");
        mailbox.end(Ok(None));
        assert_eq!(all(&mailbox).await, [text(3), text(4)]);
    }

    #[tokio::test]
    async fn a_reader_is_woken() {
        let mailbox = std::sync::Arc::new(Mailbox::new(100));
        let reader = mailbox.clone();
        let reading = async move { all(&reader).await };
        let writing = async {
            tokio::task::yield_now().await;
            mailbox.add(Urgency::Word, text(1));
            tokio::task::yield_now().await;
            mailbox.end(Ok(None));
        };
        let (read, ()) = tokio::join!(reading, writing);
        assert_eq!(read, [text(1)]);
    }
}

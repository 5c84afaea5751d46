//! What a process writes to its error output: lines of the gateway's log, as long and as many as
//! a log can bear.
//!
//! Servers write there whatever they like; none of it is an error by itself. Where they write the
//! secrets that their environment has, those are left out.

use std::time::Duration;

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    time::Instant,
};

use super::super::reply::Name;
use crate::model::mask::Mask;

/// The longest line that is logged, in bytes; the rest of it is left out.
const LINE: usize = 1_024;
/// Lines that are logged within one period.
const LINES: u32 = 200;
const PERIOD: Duration = Duration::from_secs(60);

pub(super) struct Log {
    upstream: Name,
    mask: Mask,
    line: BytesMut,
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl Log {
    pub fn new(upstream: Name, mask: Mask) -> Self {
        let (line, began) = (BytesMut::new(), Instant::now());
        Self { upstream, mask, line, began, lines: 0, left_out: 0 }
    }

    /// Until its end.
    pub async fn copy(mut self, mut from: impl AsyncRead + Unpin) {
        let mut chunk = BytesMut::with_capacity(4 * 1_024);
        while from.read_buf(&mut chunk).await.is_ok_and(|read| read > 0) {
            self.take(&chunk);
            chunk.clear();
        }
        self.end_line();
    }

    fn take(&mut self, chunk: &[u8]) {
        let mut lines = chunk.split(|byte| *byte == b'\n');
        if let Some(first) = lines.next() {
            self.add(first);
        }
        for line in lines {
            self.end_line();
            self.add(line);
        }
    }

    fn add(&mut self, text: &[u8]) {
        // A secret that begins within the line is known by all of it.
        let room = (LINE + self.mask.longest()).saturating_sub(self.line.len());
        self.line.extend_from_slice(text.get(..room).unwrap_or(text));
    }

    fn end_line(&mut self) {
        if let Some(line) = self.finished() {
            tracing::info!(
                target: "hangu::upstream::stderr",
                { upstream.name = &*self.upstream, line },
                "a server's process says"
            );
        }
    }

    /// The line that has ended, if it is one to be logged.
    fn finished(&mut self) -> Option<String> {
        let mut line = self.line.split();
        self.mask.apply(&mut line);
        let text = String::from_utf8_lossy(line.get(..LINE).unwrap_or(&line));
        let text: String = text.trim_end().chars().filter(|c| !c.is_control()).collect();
        if text.is_empty() {
            return None;
        }
        if self.began.elapsed() >= PERIOD {
            self.began = Instant::now();
            self.lines = 0;
        }
        if self.lines >= LINES {
            if self.left_out == 0 {
                let name = &*self.upstream;
                tracing::warn!(
                    upstream.name = name,
                    "a server's process says too much to be logged"
                );
            }
            self.left_out += 1;
            return None;
        }
        if self.lines == 0 && self.left_out > 0 {
            let (name, lines) = (&*self.upstream, self.left_out);
            tracing::info!(upstream.name = name, lines, "so many lines were left out");
            self.left_out = 0;
        }
        self.lines += 1;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn lines_are_cut_and_a_flood_is_left_out() {
        let mut mask = Mask::default();
        mask.text("s3cret-of-it");
        let mut log = Log::new("crm".into(), mask);
        log.add(&[b'x'; 5_000]);
        log.add(b"more");
        assert_eq!(log.finished().unwrap().len(), LINE);
        log.add("\u{1b}[31mred \r".as_bytes());
        assert_eq!(log.finished().unwrap(), "[31mred");
        assert_eq!(log.finished(), None, "an empty line is none");
        log.add(b"my key is s3cret");
        log.add(b"-of-it.");
        assert_eq!(log.finished().unwrap(), "my key is [removed].");
        log.add(&[b'x'; LINE - 4]);
        log.add(b"s3cret-of-it");
        assert!(log.finished().unwrap().ends_with("x[rem"), "also where the line is cut");
        let mut logged = 4;
        for _ in 0..10_000 {
            log.add(b"again");
            logged += u32::from(log.finished().is_some());
        }
        assert_eq!((logged, log.left_out), (LINES, 9_804));
        tokio::time::advance(PERIOD).await;
        log.add(b"again");
        assert!(log.finished().is_some());
    }
}

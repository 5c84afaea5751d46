//! Bytes into lines, of which none is longer than allowed.

use bytes::{Buf, Bytes, BytesMut};

/// Of a line that is too long, this much is told.
const BEGINNING: usize = 512;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Bytes),
    /// How a line began that was longer than allowed. The rest of it is gone.
    TooLong(Bytes),
}

/// Takes bytes as they come, gives lines without their ends.
pub(super) struct Lines {
    max: usize,
    text: BytesMut,
    /// So much of it holds no line break.
    searched: usize,
    /// In the middle of a line that is too long.
    skipping: Option<Bytes>,
}

impl Lines {
    pub fn new(max: usize) -> Self {
        Self { max, text: BytesMut::new(), searched: 0, skipping: None }
    }

    /// Where the next bytes go.
    pub fn buffer(&mut self) -> &mut BytesMut {
        const CHUNK: usize = 32 * 1024;
        self.text.reserve(CHUNK);
        &mut self.text
    }

    /// The next line that is whole, or known to have been too long.
    pub fn next_line(&mut self) -> Option<Line> {
        let unseen = self.text.get(self.searched..).unwrap_or_default();
        let Some(at) = memchr::memchr(b'\n', unseen) else {
            self.searched = self.text.len();
            if self.searched > self.max || self.skipping.is_some() {
                let piece = self.text.split();
                self.searched = 0;
                self.skipping.get_or_insert_with(|| told(&piece));
            }
            return None;
        };
        let mut line = self.text.split_to(self.searched + at);
        self.text.advance(1);
        self.searched = 0;
        if let Some(beginning) = self.skipping.take() {
            return Some(Line::TooLong(beginning));
        }
        if line.len() > self.max {
            return Some(Line::TooLong(told(&line)));
        }
        if line.ends_with(b"\r") {
            line.truncate(line.len() - 1);
        }
        Some(Line::Whole(line.freeze()))
    }
}

fn told(text: &[u8]) -> Bytes {
    Bytes::copy_from_slice(text.get(..BEGINNING).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &mut Lines, chunk: &[u8]) -> Vec<Line> {
        lines.buffer().extend_from_slice(chunk);
        std::iter::from_fn(|| lines.next_line()).collect()
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_not() {
        let mut lines = Lines::new(8);
        let whole = |text: &'static str| Line::Whole(text.into());
        assert_eq!(read(&mut lines, b"one\r\ntwo"), [whole("one")]);
        assert_eq!(read(&mut lines, b"345678"), []);
        assert_eq!(read(&mut lines, &[b'x'; 100_000]), []);
        let rest = read(&mut lines, b"xx\n12345678\n123456789\n\n");
        let long = [Line::TooLong("two345678".into()), whole("12345678")];
        assert_eq!(rest[..2], long);
        assert_eq!(rest[2..], [Line::TooLong("123456789".into()), whole("")]);
        assert!(lines.text.capacity() < 1 << 18, "what is skipped is not kept");
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(text in "[a-c\n]{0,200}", cuts in proptest::collection::vec(1usize..20, 0..40)) {
            let (mut lines, mut rest, mut found) = (Lines::new(1_000), text.as_bytes(), Vec::new());
            for cut in cuts {
                let (chunk, after) = rest.split_at(cut.min(rest.len()));
                found.extend(read(&mut lines, chunk));
                rest = after;
            }
            found.extend(read(&mut lines, rest));
            let mut wanted: Vec<&str> = text.split('\n').collect();
            wanted.pop();
            let wanted: Vec<Line> =
                wanted.into_iter().map(|line| Line::Whole(Bytes::copy_from_slice(line.as_bytes()))).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}

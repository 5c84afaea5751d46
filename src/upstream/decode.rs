//! Content codings that an upstream uses although nobody asked for one.
//!
//! Decodes as it goes: what a server flushed is handed on at once, so event streams stay live,
//! and no piece is larger than `PIECE`, so a small answer cannot become a large allocation.

use std::task::Poll;

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use http::{HeaderMap, header};

use super::failure::Scene;
use crate::error::Error;

/// The largest piece that is handed on.
const PIECE: usize = 32 * 1024;

/// Turns the pieces of an encoded body into those of the plain one.
pub(super) struct Decoder {
    coding: Coding,
    inflate: Decompress,
    input: Bytes,
    started: bool,
    /// The coded stream is complete; another may follow in the same body.
    complete: bool,
    /// The body has ended.
    drained: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Coding {
    Gzip,
    /// What HTTP calls `deflate` is zlib, but some servers send the bare form.
    Deflate,
    RawDeflate,
}

/// Why a body could not be decoded.
pub(super) enum DecodeError {
    Source(Error),
    Broken(String),
}

impl DecodeError {
    pub fn into_error(self, scene: Scene<'_>) -> Error {
        match self {
            DecodeError::Source(error) => error,
            DecodeError::Broken(why) => scene.encoding(why),
        }
    }
}

impl Decoder {
    /// The decoder that an answer needs, or the name of a coding that there is none for. The
    /// headers that spoke of the coded form are removed.
    pub fn of(headers: &mut HeaderMap) -> Result<Option<Self>, String> {
        if !headers.contains_key(header::CONTENT_ENCODING) {
            return Ok(None);
        }
        let mut coding = None;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            for name in String::from_utf8_lossy(value.as_bytes()).split(',') {
                let found = match name.trim().to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Coding::Gzip,
                    "deflate" => Coding::Deflate,
                    other => return Err(format!("content coding {other:?}")),
                };
                if coding.replace(found).is_some() {
                    return Err("more than one content coding".to_owned());
                }
            }
        }
        headers.remove(header::CONTENT_ENCODING);
        if coding.is_some() {
            headers.remove(header::CONTENT_LENGTH);
        }
        Ok(coding.map(|coding| Self {
            coding,
            inflate: inflate(coding),
            input: Bytes::new(),
            started: false,
            complete: false,
            drained: false,
        }))
    }

    /// The next plain piece, fetching coded ones as they are needed.
    pub fn poll(
        &mut self,
        mut more: impl FnMut() -> Poll<Option<Result<Bytes, Error>>>,
    ) -> Poll<Option<Result<Bytes, DecodeError>>> {
        loop {
            while self.input.is_empty() && !self.drained {
                match more() {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(data))) => self.input = data,
                    Poll::Ready(Some(Err(error))) => {
                        return Poll::Ready(Some(Err(DecodeError::Source(error))));
                    }
                    Poll::Ready(None) => self.drained = true,
                }
            }
            match self.step() {
                Ok(Some(piece)) => return Poll::Ready(Some(Ok(piece))),
                Ok(None) if self.drained => return Poll::Ready(None),
                Ok(None) => {}
                Err(why) => return Poll::Ready(Some(Err(DecodeError::Broken(why)))),
            }
        }
    }

    /// What the input at hand gives; `None` when more is needed, or at the end.
    fn step(&mut self) -> Result<Option<Bytes>, String> {
        if self.input.is_empty() {
            // An answer without a body may carry the header of one.
            return if self.complete || !self.started {
                Ok(None)
            } else {
                Err("the coded body ends too early".to_owned())
            };
        }
        if self.complete {
            self.inflate = inflate(self.coding);
            self.complete = false;
        }
        let mut piece = Vec::with_capacity(PIECE.min(self.input.len().saturating_mul(4).max(512)));
        loop {
            let before = self.inflate.total_in();
            let done = self.inflate.decompress_vec(&self.input, &mut piece, FlushDecompress::Sync);
            let status = match done {
                Ok(status) => status,
                Err(_) if self.coding == Coding::Deflate && !self.started => {
                    self.coding = Coding::RawDeflate;
                    self.inflate = inflate(self.coding);
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            };
            self.started = true;
            let used = usize::try_from(self.inflate.total_in() - before).unwrap_or(usize::MAX);
            self.input.advance(used.min(self.input.len()));
            self.complete = status == Status::StreamEnd;
            let stuck = used == 0 && piece.is_empty();
            if self.complete || self.input.is_empty() || piece.len() == piece.capacity() || stuck {
                if stuck && !self.complete {
                    return Err("the coded body makes no sense".to_owned());
                }
                break;
            }
        }
        Ok((!piece.is_empty()).then(|| Bytes::from(piece)))
    }
}

fn inflate(coding: Coding) -> Decompress {
    match coding {
        Coding::Gzip => Decompress::new_gzip(15),
        Coding::Deflate => Decompress::new(true),
        Coding::RawDeflate => Decompress::new(false),
    }
}

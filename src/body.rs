//! The body of an answer: nothing, a few pieces that are already there, or a stream.
//!
//! Pieces are sent as they are: an envelope written around a result never copies the result.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};

use crate::error::{Code, Error};

/// Whatever ended a stream before its time.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A body that comes piece by piece.
pub type BoxBody = Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>;

/// An HTTP body, on either side of the gateway.
#[derive(Default)]
pub enum Body {
    #[default]
    Empty,
    /// Sent in order; the length is known.
    Parts(SmallVec<[Bytes; 3]>),
    Stream(BoxBody),
}

impl Body {
    pub fn from_parts(parts: impl IntoIterator<Item = Bytes>) -> Self {
        let mut parts: SmallVec<[Bytes; 3]> =
            parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.reverse();
        if parts.is_empty() { Body::Empty } else { Body::Parts(parts) }
    }

    pub fn stream(body: impl HttpBody<Data = Bytes, Error = BoxError> + Send + 'static) -> Self {
        Body::Stream(Box::pin(body))
    }

    /// The length, where it is known beforehand.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Parts(parts) => Some(parts.iter().map(|part| part.len() as u64).sum()),
            Body::Stream(body) => body.size_hint().exact(),
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Body::Empty)
    }
}

/// How much of a body is read, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimits {
    pub max_bytes: usize,
    /// From the first wait to the last byte.
    pub timeout: Duration,
}

/// Reads a client's body. One that comes in one piece is passed on as it is.
///
/// # Errors
/// `payload_too_large` (413) past the cap, 408 for a body that does not come in time, 400 for one
/// that breaks off.
pub async fn read<B>(mut body: B, limits: ReadLimits) -> Result<Bytes, Error>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let too_large = || {
        let message = format!("the body is larger than {} bytes", limits.max_bytes);
        Error::http(Code::PayloadTooLarge, 413, message)
    };
    if body.size_hint().lower() > limits.max_bytes as u64 {
        return Err(too_large());
    }
    let mut deadline = None;
    let mut whole = Whole::default();
    loop {
        // What is there already is taken without asking the clock.
        let mut frame = pin!(body.frame());
        let next = match std::future::poll_fn(|cx| Poll::Ready(frame.as_mut().poll(cx))).await {
            Poll::Ready(next) => next,
            Poll::Pending => {
                let deadline = *deadline.get_or_insert_with(|| Instant::now() + limits.timeout);
                timeout_at(deadline, frame).await.map_err(|_| {
                    Error::http(Code::InvalidArgs, 408, "the body did not come in time")
                })?
            }
        };
        let Some(frame) = next else { return Ok(whole.bytes()) };
        let frame = frame.map_err(|cause| {
            Error::http(Code::InvalidArgs, 400, "the body broke off").with_cause(cause)
        })?;
        // Trailers say nothing that the gateway listens to.
        if let Ok(data) = frame.into_data() {
            whole.push(data);
            if whole.len() > limits.max_bytes {
                return Err(too_large());
            }
        }
    }
}

/// Bytes gathered piece by piece; one piece alone is never copied.
#[derive(Debug, Default)]
pub struct Whole {
    first: Bytes,
    joined: BytesMut,
}

impl Whole {
    pub fn push(&mut self, piece: Bytes) {
        if !self.joined.is_empty() {
            self.joined.extend_from_slice(&piece);
        } else if self.first.is_empty() {
            self.first = piece;
        } else {
            self.joined.reserve(self.first.len() + piece.len());
            self.joined.extend_from_slice(&self.first);
            self.joined.extend_from_slice(&piece);
        }
    }

    pub fn len(&self) -> usize {
        if self.joined.is_empty() { self.first.len() } else { self.joined.len() }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body::from_parts([bytes])
    }
}

impl From<Pieces> for Body {
    fn from(pieces: Pieces) -> Self {
        Body::from_parts(pieces.0)
    }
}

/// A body in memory, which can be sent more than once.
#[derive(Debug, Clone, Default)]
pub struct Pieces(SmallVec<[Bytes; 3]>);

impl Pieces {
    pub fn new(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        Self(pieces.into_iter().collect())
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self::new([bytes])
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Body::from(Bytes::from(text))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Body::from(Bytes::from_static(text.as_bytes()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut *self {
            Body::Empty => Poll::Ready(None),
            // Kept in reverse, so that taking the next piece moves nothing.
            Body::Parts(parts) => {
                let next = parts.pop();
                if parts.is_empty() {
                    *self = Body::Empty;
                }
                Poll::Ready(next.map(|part| Ok(Frame::data(part))))
            }
            Body::Stream(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Empty => true,
            Body::Parts(_) => false,
            Body::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.len() {
            Some(len) => SizeHint::with_exact(len),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_arrive_in_order_and_count() {
        let body = Body::from_parts(["{", "", "1", "}"].map(|s| Bytes::from_static(s.as_bytes())));
        assert_eq!(body.len(), Some(3));
        assert_eq!(body.collect().await.unwrap().to_bytes(), "{1}");
    }

    #[tokio::test]
    async fn nothing_is_the_end() {
        let body = Body::from_parts([]);
        assert!(body.is_end_stream());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "");
    }
}

//! The body of an answer: nothing, a few pieces that are already there, or a stream.
//!
//! Pieces are sent as they are: an envelope written around a result never copies the result.

pub mod quiet;
mod read;

pub use read::{CollectError, collect, read_body};

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use smallvec::SmallVec;

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
    use http_body_util::BodyExt;

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

//! Answers in the form of a Streamable HTTP server.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header as http_header};
use http_body::Frame;
use smallvec::SmallVec;

use super::calls::Reading;
use crate::{
    body::{Body, BoxError},
    dialect::sse,
    error::{Code, Error, Trouble},
    mcp::header,
};

/// The answer to a request: its events, when they come.
pub(super) fn events(reading: Reading) -> Response<Body> {
    let body = Body::stream(Events { reading, pieces: SmallVec::new() });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(http_header::CONTENT_TYPE, kind);
    response
}

/// The same where it opened a channel.
pub(super) fn opened(reading: Reading, session: &str) -> Response<Body> {
    let mut response = events(reading);
    // Hexadecimal digits.
    if let Ok(value) = HeaderValue::from_str(session) {
        response.headers_mut().insert(header::SESSION_ID, value);
    }
    response
}

/// An answer that is its status.
pub(super) fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

/// A failure of the server at `upstream`.
pub(super) fn failure(upstream: &str, what: &str, kind: &'static str) -> Error {
    let error = Error::new(Code::ExternalServiceError, format!("`{upstream}` {what}"))
        .with_kind(kind)
        .from_upstream();
    match kind {
        "process_not_started" => error.with_trouble(Trouble::Unusable),
        "process_exited" | "broken_pipe" | "connection_reset" | "stream_ended" => {
            error.with_trouble(Trouble::Lost)
        }
        "timeout" => error.with_trouble(Trouble::Silent),
        _ => error,
    }
}

/// A message of more than `cap` bytes.
pub(super) fn too_large(upstream: &str, cap: usize) -> Error {
    let message = format!("the answer of `{upstream}` is larger than {cap} bytes");
    Error::new(Code::PayloadTooLarge, message)
        .with_kind("response_too_large")
        .with_unknown_outcome()
        .from_upstream()
}

/// A new name for a channel, which nobody can guess.
pub(super) fn session_id() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The messages of one request as an event stream.
struct Events {
    reading: Reading,
    /// Of the message under way, in reverse.
    pieces: SmallVec<[Bytes; 5]>,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if this.pieces.is_empty() {
            match ready!(this.reading.poll(cx)) {
                Some(Ok(text)) => {
                    this.pieces = sse::encode([text]);
                    this.pieces.reverse();
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => return Poll::Ready(None),
            }
        }
        Poll::Ready(this.pieces.pop().map(|piece| Ok(Frame::data(piece))))
    }
}

/// One shared text for a channel's upstream.
pub(super) type Name = Arc<str>;

//! The body of a failure, without the secrets that the request had.
//!
//! What a failure says may reach its caller, operators and the log, none of whom may see them.
//! Results are their caller's, byte for byte, and do not come here.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use secrecy::ExposeSecret;

use super::{super::stage::Upstream, attach::Attached};
use crate::{
    body::BoxError,
    model::{mask::Mask, template::HeaderSource},
};

/// How much is held back at the most before some of it passes.
const HELD: usize = 64 * 1024;

/// A body that is looked through as it comes.
pub(super) struct Masked<B> {
    inner: Pin<Box<B>>,
    mask: Mask,
    held: BytesMut,
    ended: bool,
}

/// All that a request to the upstream had in its headers.
pub(super) fn mask(upstream: &Upstream, attached: &Attached) -> Mask {
    let mut mask = Mask::default();
    for (_, source) in &upstream.headers {
        if let HeaderSource::Secret(secret) = source {
            mask.header(secret.expose_secret());
        }
    }
    for (_, value) in attached.stored.iter().chain(&attached.credential) {
        if let Ok(value) = value.to_str() {
            mask.header(value);
        }
    }
    mask
}

// === impl Masked ===

impl<B> Masked<B> {
    pub fn new(inner: B, mask: Mask) -> Self {
        Self { inner: Box::pin(inner), mask, held: BytesMut::new(), ended: false }
    }
}

impl<B> Body for Masked<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        while !this.ended {
            match ready!(this.inner.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    // Nobody reads trailers of a failure.
                    let Ok(data) = frame.into_data() else { continue };
                    this.held.extend_from_slice(&data);
                    if this.held.len() < HELD {
                        continue;
                    }
                    this.mask.apply(&mut this.held);
                    // What begins at its end may go on.
                    let kept = this.mask.longest().min(this.held.len());
                    let passed = this.held.split_to(this.held.len() - kept);
                    return Poll::Ready(Some(Ok(Frame::data(passed.freeze()))));
                }
                Some(Err(error)) => {
                    this.ended = true;
                    return Poll::Ready(Some(Err(error.into())));
                }
                None => {
                    this.ended = true;
                    this.mask.apply(&mut this.held);
                    if !this.held.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(this.held.split().freeze()))));
                    }
                }
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    fn masked(pieces: &[&str]) -> String {
        let mut mask = Mask::default();
        mask.header("Bearer sk-123456");
        let frame = |piece: &&str| Ok(Frame::data(Bytes::copy_from_slice(piece.as_bytes())));
        let frames: Vec<Result<_, BoxError>> = pieces.iter().map(frame).collect();
        let body = Masked::new(StreamBody::new(futures_util::stream::iter(frames)), mask);
        let body = futures_util::FutureExt::now_or_never(body.collect()).unwrap().unwrap();
        String::from_utf8(body.to_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_failure_does_not_repeat_what_was_sent() {
        let around = "x".repeat(HELD - 3);
        for (pieces, expected) in [
            (&["no key sk-123456"][..], "no key [removed]".to_owned()),
            (&["sk-1", "234", "56 sk-123456"], "[removed] [removed]".to_owned()),
            (&["nothing", " of it"], "nothing of it".to_owned()),
            (&[], String::new()),
            // Long ones pass in pieces.
            (
                &[&around, "sk-12", "3456", &around, "sk-123456"],
                format!("{around}[removed]{around}[removed]"),
            ),
        ] {
            assert_eq!(masked(pieces), expected);
        }
    }
}

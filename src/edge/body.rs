//! Reading a client's body: whole, within a size and a time.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use tokio::time::Sleep;

use crate::{
    body::BoxError,
    error::{Code, Error},
};

/// How much of a body that is too large is read, and for how long, before it is refused.
const DISCARDED_BYTES: usize = 64 * 1024 * 1024;
const DISCARDED_TIME: Duration = Duration::from_secs(1);

/// Reads a body to its end. A body that came in one piece is not copied; a clock runs only
/// while the next piece is waited for.
///
/// Too large: `payload_too_large`, 413. Too slow, or cut off: 408 and 400.
pub async fn read_body<B>(body: B, max_bytes: usize, timeout: Duration) -> Result<Bytes, Error>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    if body.size_hint().lower() > max_bytes as u64 {
        discard(body).await;
        return Err(too_large(max_bytes));
    }
    let mut clock: Option<Pin<Box<Sleep>>> = None;
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    loop {
        let piece = match poll_fn(|cx| poll_piece(body.as_mut(), &mut clock, timeout, cx)).await? {
            Some(piece) => piece,
            None if rest.is_empty() => return Ok(first),
            None => return Ok(rest.freeze()),
        };
        let so_far = first.len().max(rest.len());
        if piece.len() > max_bytes - so_far {
            discard(body).await;
            return Err(too_large(max_bytes));
        }
        if so_far == 0 {
            first = piece;
        } else {
            if rest.is_empty() {
                let hint = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
                rest.reserve((so_far + piece.len()).saturating_add(hint).min(max_bytes));
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&piece);
        }
        if body.is_end_stream() {
            return Ok(if rest.is_empty() { first } else { rest.freeze() });
        }
    }
}

fn poll_piece<B>(
    mut body: Pin<&mut B>,
    clock: &mut Option<Pin<Box<Sleep>>>,
    timeout: Duration,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, Error>>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    loop {
        match body.as_mut().poll_frame(cx) {
            Poll::Ready(None) => return Poll::Ready(Ok(None)),
            Poll::Ready(Some(Ok(frame))) => {
                // Trailers are not part of a message.
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Ok(Some(data)));
                }
            }
            Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(cut_off(error.into()))),
            Poll::Pending => {
                let clock = clock.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                return clock.as_mut().poll(cx).map(|()| Err(too_slow()));
            }
        }
    }
}

/// Reads on for a moment and forgets it: most clients look at an answer only when they have
/// sent everything, and one that closes before that is a broken connection to them.
async fn discard<B>(mut body: Pin<&mut B>)
where
    B: HttpBody<Data = Bytes>,
{
    let mut left = DISCARDED_BYTES;
    let rest = poll_fn(|cx| {
        while left > 0 {
            match ready!(body.as_mut().poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let size = frame.data_ref().map_or(0, Bytes::len);
                    left = left.saturating_sub(size);
                }
                Some(Err(_)) | None => break,
            }
        }
        Poll::Ready(())
    });
    let _ = tokio::time::timeout(DISCARDED_TIME, rest).await;
}

fn too_large(max_bytes: usize) -> Error {
    Error::http(
        Code::PayloadTooLarge,
        413,
        format!("The request's body is larger than {max_bytes} bytes."),
    )
    .with_rpc_code(Code::PayloadTooLarge.json_rpc())
}

fn too_slow() -> Error {
    Error::http(Code::Timeout, 408, "The request's body did not arrive in time.")
        .with_rpc_code(-31_408)
        .with_kind("timeout")
}

fn cut_off(error: BoxError) -> Error {
    Error::http(Code::InvalidArgs, 400, "The request's body did not arrive whole.")
        .with_rpc_code(-32_600)
        .with_cause(error)
}

#[cfg(test)]
mod tests {
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;
    use crate::body::Body;

    fn pieces(pieces: &[&'static str]) -> impl HttpBody<Data = Bytes, Error = BoxError> + use<> {
        let frames: Vec<_> = pieces
            .iter()
            .map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))))
            .collect();
        StreamBody::new(futures_util::stream::iter(frames))
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let bytes = Bytes::from(vec![b'x'; 1000]);
        let read = read_body(Body::from(bytes.clone()), 1000, SECOND).await.unwrap();
        assert_eq!(read.as_ptr(), bytes.as_ptr());
    }

    #[tokio::test]
    async fn several_pieces_are_joined() {
        for (given, expected) in
            [(&[][..], ""), (&["", "a"], "a"), (&["a", "b", "", "c"], "abc"), (&["", ""], "")]
        {
            let read = read_body(pieces(given), 3, SECOND).await.unwrap();
            assert_eq!(read, expected, "{given:?}");
        }
    }

    #[tokio::test]
    async fn a_body_over_the_cap_is_refused_before_it_is_read() {
        let announced = read_body(Body::from("four"), 3, SECOND).await.unwrap_err();
        let found = read_body(pieces(&["tw", "tw"]), 3, SECOND).await.unwrap_err();
        for error in [announced, found] {
            assert_eq!(error.code(), Code::PayloadTooLarge);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_runs_out_of_time() {
        let stuck = futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>();
        let error = read_body(StreamBody::new(stuck), 3, SECOND).await.unwrap_err();
        assert_eq!(error.code(), Code::Timeout);
    }
}

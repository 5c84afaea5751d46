//! Reading a body whole: within a size, and a client's within a time.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body::Body as HttpBody;
use tokio::time::Sleep;

use super::{BoxError, quiet};
use crate::error::{Code, Error};

/// How much of a body that is too large is read, and for how long, before it is refused.
const DISCARDED_BYTES: usize = 64 * 1024 * 1024;
const DISCARDED_TIME: Duration = Duration::from_secs(1);

/// Why a body was not read to its end.
#[derive(Debug)]
pub enum CollectError<E> {
    TooLarge,
    Failed(E),
}

/// Reads a body to its end, unless that is more than `max_bytes` away. A body that comes in one
/// piece is not copied.
pub async fn collect<B>(body: B, max_bytes: usize) -> Result<Bytes, CollectError<B::Error>>
where
    B: HttpBody<Data = Bytes>,
{
    let mut body = pin!(body);
    let mut whole = Whole::new(body.as_ref().get_ref(), max_bytes)?;
    while !whole.complete {
        let piece = poll_fn(|cx| poll_piece(body.as_mut(), cx)).await;
        whole.add(piece.map_err(CollectError::Failed)?, body.as_ref().get_ref())?;
    }
    Ok(whole.into_bytes())
}

/// Reads a client's body. The clock runs only while a piece is waited for; once it runs, it
/// runs to the end.
///
/// Too large: `payload_too_large`, 413. Too slow, or cut off: 408 and 400.
pub async fn read_body<B>(body: B, max_bytes: usize, timeout: Duration) -> Result<Bytes, Error>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let mut body = pin!(body);
    let mut clock: Option<Pin<Box<Sleep>>> = None;
    let mut whole = match Whole::new(body.as_ref().get_ref(), max_bytes) {
        Ok(whole) => whole,
        Err(TooLarge) => return Err(refuse_the_rest(body, max_bytes).await),
    };
    while !whole.complete {
        let piece = poll_fn(|cx| {
            if let Poll::Ready(piece) = poll_piece(body.as_mut(), cx) {
                return Poll::Ready(piece.map_err(|error| cut_off(error.into())));
            }
            let clock = clock.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
            clock.as_mut().poll(cx).map(|()| Err(too_slow()))
        });
        let piece = piece.await?;
        if let Err(TooLarge) = whole.add(piece, body.as_ref().get_ref()) {
            return Err(refuse_the_rest(body, max_bytes).await);
        }
    }
    Ok(whole.into_bytes())
}

/// A body, as far as it has been read.
struct Whole {
    first: Bytes,
    /// Holds everything as soon as there is more than one piece.
    rest: BytesMut,
    max_bytes: usize,
    complete: bool,
}

struct TooLarge;

impl<E> From<TooLarge> for CollectError<E> {
    fn from(_: TooLarge) -> Self {
        CollectError::TooLarge
    }
}

impl Whole {
    fn new(body: &impl HttpBody, max_bytes: usize) -> Result<Self, TooLarge> {
        if body.size_hint().lower() > max_bytes as u64 {
            return Err(TooLarge);
        }
        let complete = body.is_end_stream();
        Ok(Self { first: Bytes::new(), rest: BytesMut::new(), max_bytes, complete })
    }

    /// Adds a piece, or notes the end; `body` is what is left.
    fn add(&mut self, piece: Option<Bytes>, body: &impl HttpBody) -> Result<(), TooLarge> {
        let Some(piece) = piece else {
            self.complete = true;
            return Ok(());
        };
        let so_far = self.first.len().max(self.rest.len());
        if piece.len() > self.max_bytes - so_far {
            return Err(TooLarge);
        }
        if so_far == 0 {
            self.first = piece;
        } else {
            if self.rest.is_empty() {
                let left = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
                let all = (so_far + piece.len()).saturating_add(left);
                self.rest.reserve(all.min(self.max_bytes));
                self.rest.extend_from_slice(&self.first);
            }
            self.rest.extend_from_slice(&piece);
        }
        self.complete = body.is_end_stream();
        Ok(())
    }

    fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }
}

/// The next piece of data; `None` at the end. Trailers are not part of a message.
fn poll_piece<B>(
    mut body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Result<Option<Bytes>, B::Error>>
where
    B: HttpBody<Data = Bytes>,
{
    loop {
        let Some(frame) = ready!(quiet::poll_frame(body.as_mut(), cx)?) else {
            return Poll::Ready(Ok(None));
        };
        if let Ok(data) = frame.into_data() {
            return Poll::Ready(Ok(Some(data)));
        }
    }
}

/// Reads on for a moment and forgets it: most clients look at an answer only when they have
/// sent everything, and one that closes before that is a broken connection to them.
async fn refuse_the_rest<B>(mut body: Pin<&mut B>, max_bytes: usize) -> Error
where
    B: HttpBody<Data = Bytes>,
{
    let mut left = DISCARDED_BYTES;
    let rest = poll_fn(|cx| {
        while left > 0 {
            match ready!(poll_piece(body.as_mut(), cx)) {
                Ok(Some(piece)) => left = left.saturating_sub(piece.len()),
                Ok(None) | Err(_) => break,
            }
        }
        Poll::Ready(())
    });
    let _ = tokio::time::timeout(DISCARDED_TIME, rest).await;
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
    async fn a_body_over_the_cap_is_refused() {
        let announced = read_body(Body::from("four"), 3, SECOND).await.unwrap_err();
        let found = read_body(pieces(&["tw", "tw"]), 3, SECOND).await.unwrap_err();
        for error in [announced, found] {
            assert_eq!(error.code(), Code::PayloadTooLarge);
        }
        assert!(matches!(collect(Body::from("four"), 3).await, Err(CollectError::TooLarge)));
        assert!(matches!(collect(pieces(&["tw", "tw"]), 3).await, Err(CollectError::TooLarge)));
    }

    #[tokio::test]
    async fn collecting_joins_pieces_and_passes_failures_on() {
        assert_eq!(collect(pieces(&["a", "", "b"]), 2).await.unwrap(), "ab");
        let broken = futures_util::stream::iter([Err::<Frame<Bytes>, BoxError>("lost".into())]);
        let error = collect(StreamBody::new(broken), 2).await.unwrap_err();
        assert!(matches!(error, CollectError::Failed(error) if error.to_string() == "lost"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_runs_out_of_time() {
        let stuck = futures_util::stream::pending::<Result<Frame<Bytes>, BoxError>>();
        let error = read_body(StreamBody::new(stuck), 3, SECOND).await.unwrap_err();
        assert_eq!(error.code(), Code::Timeout);
    }
}

//! Keeps a task from waking itself.
//!
//! A body of hyper's is a channel: whoever takes a piece wakes whoever may send the next one. Over
//! HTTP/1 one task is both, and would be polled again, down to its last future, to find nothing to
//! do: once for a request's only piece and once for its answer's. Here such a wake-up is held until
//! it is known whether anything is to come.
//!
//! Only a wake-up that is made by the very taking of a piece, on the same thread, is ever held;
//! whatever comes from elsewhere passes.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use http_body::{Body as HttpBody, Frame};

/// What a task's futures are given to wake it with.
pub struct Ear {
    relay: Arc<Relay>,
    waker: Waker,
}

/// Passes wake-ups on to the task.
#[derive(Default)]
struct Relay(AtomicWaker);

thread_local! {
    /// Whether this thread is taking a piece.
    static TAKING: Cell<bool> = const { Cell::new(false) };
    /// Whom that would have woken.
    static HELD: RefCell<Option<Arc<Relay>>> = const { RefCell::new(None) };
}

// === impl Ear ===

impl Ear {
    pub fn new() -> Self {
        let relay = Arc::<Relay>::default();
        Self { waker: relay.clone().into(), relay }
    }

    /// Polls what belongs to this task. Bodies that it takes pieces from by [`poll_frame`] do not
    /// wake the task for it.
    pub fn poll<F: Future>(&self, future: Pin<&mut F>, cx: &Context<'_>) -> Poll<F::Output> {
        self.relay.0.register(cx.waker());
        future.poll(&mut Context::from_waker(&self.waker))
    }
}

impl Default for Ear {
    fn default() -> Self {
        Self::new()
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !TAKING.get() {
            return self.0.wake();
        }
        let before = HELD.replace(Some(self.clone()));
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(before, self)) {
            before.0.wake();
        }
    }
}

/// Polls for a piece of a body over HTTP/1, whose other end may be of the same task. That is woken
/// only where more is to come.
pub fn poll_frame<B>(
    mut body: Pin<&mut B>,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, B::Error>>>
where
    B: HttpBody<Data = Bytes>,
{
    let taking = Taking::begin();
    let polled = body.as_mut().poll_frame(cx);
    drop(taking);
    if let Some(held) = HELD.take() {
        let last = matches!(&polled, Poll::Ready(Some(Ok(_)))) && body.is_end_stream();
        if !last {
            held.0.wake();
        }
    }
    polled
}

/// Ends with the poll, however that ends.
struct Taking(bool);

impl Taking {
    fn begin() -> Self {
        Self(TAKING.replace(true))
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        TAKING.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A body of so many pieces whose other end is woken whenever one is taken.
    struct Pieces {
        left: usize,
        sender: Option<Waker>,
    }

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let sender = self.sender.get_or_insert_with(|| cx.waker().clone()).clone();
            sender.wake();
            if self.left == 0 {
                return Poll::Ready(None);
            }
            self.left -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }

        fn is_end_stream(&self) -> bool {
            self.left == 0
        }
    }

    /// How often the task is woken while its future runs once.
    fn woken<F: Future>(ear: &Ear, future: F) -> usize {
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let _ = ear.poll(std::pin::pin!(future), &Context::from_waker(&waker));
        count.0.load(Ordering::Relaxed)
    }

    fn taken(mut body: Pieces) -> impl Future<Output = Option<()>> {
        std::future::poll_fn(move |cx| poll_frame(Pin::new(&mut body), cx).map(|f| f.map(drop)))
    }

    #[test]
    fn the_last_piece_wakes_nobody_and_any_other_does() {
        let ear = Ear::new();
        for (left, times) in [(1, 0), (2, 1), (0, 1)] {
            assert_eq!(woken(&ear, taken(Pieces { left, sender: None })), times, "{left}");
        }
    }

    #[test]
    fn other_wake_ups_pass() {
        let ear = Ear::new();
        let own = std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(woken(&ear, own), 1);
        // Of a body that is polled as any other is.
        let mut plain = Pieces { left: 1, sender: None };
        assert_eq!(woken(&ear, plain.frame()), 1);
        // Of another thread, whatever this one is doing.
        let elsewhere = std::future::poll_fn(|cx| {
            let waker = cx.waker().clone();
            let _taking = Taking::begin();
            std::thread::spawn(move || waker.wake()).join().unwrap();
            Poll::<()>::Pending
        });
        assert_eq!(woken(&ear, elsewhere), 1);
    }

    #[test]
    fn a_second_task_is_not_confused_with_the_first() {
        let (one, other) = (Ear::new(), Ear::new());
        // The other end belongs to somebody else, who must hear of it.
        let count = Arc::<Count>::default();
        let waker = Waker::from(count.clone());
        let mut body = Pieces { left: 2, sender: None };
        let first = std::future::poll_fn(|cx| poll_frame(Pin::new(&mut body), cx));
        let _ = other.poll(std::pin::pin!(first), &Context::from_waker(&waker));
        assert_eq!(count.0.swap(0, Ordering::Relaxed), 1);
        body.left = 2;
        let again = std::future::poll_fn(|cx| {
            other.relay.0.register(&waker);
            poll_frame(Pin::new(&mut body), cx)
        });
        assert_eq!(woken(&one, again), 0);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }
}

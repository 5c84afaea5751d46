//! An upstream's answer, piece by piece as it arrives.
//!
//! Read to its end, it gives its connection back; dropped before, it takes the connection with
//! it. It buffers nothing and knows no limit: how much is read is its reader's business.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use super::{
    cluster::Cluster,
    connector::{Connector, H1},
    decode::Decoder,
    directory::Peer,
    endpoint::Endpoint,
    failure::Scene,
    reach::Place,
};
use crate::{
    body::{Body, quiet},
    error::{Code, Error},
};

/// The body of an answer, decoded.
pub struct UpstreamBody {
    source: Source,
    decoder: Option<Decoder>,
    /// Who answers; nobody in particular behind a carrier.
    from: Option<(Arc<Cluster>, Arc<Peer>)>,
}

enum Source {
    Done,
    Own { incoming: Incoming, connection: Box<H1>, home: Arc<Connector> },
    Shared(Incoming),
    Carried(Body),
}

/// An answer's body that may know which endpoint it comes from; for telemetry alone.
pub trait Origin {
    /// Host and port.
    fn origin(&self) -> Option<(Arc<str>, u16)>;
}

impl Origin for UpstreamBody {
    fn origin(&self) -> Option<(Arc<str>, u16)> {
        let endpoint = self.endpoint()?;
        Some((endpoint.host().clone(), endpoint.port()))
    }
}

/// A terminal service of another kind, in tests and in other programs.
impl Origin for crate::body::Body {
    fn origin(&self) -> Option<(Arc<str>, u16)> {
        None
    }
}

impl UpstreamBody {
    pub(super) fn own(
        incoming: Incoming,
        connection: Box<H1>,
        home: Arc<Connector>,
        cluster: Arc<Cluster>,
        peer: Arc<Peer>,
    ) -> Self {
        let source = Source::Own { incoming, connection, home };
        let mut body = Self { source, decoder: None, from: Some((cluster, peer)) };
        body.settle();
        body
    }

    pub(super) fn shared(incoming: Incoming, cluster: Arc<Cluster>, peer: Arc<Peer>) -> Self {
        let source = Source::Shared(incoming);
        let mut body = Self { source, decoder: None, from: Some((cluster, peer)) };
        body.settle();
        body
    }

    pub(super) fn carried(body: Body) -> Self {
        Self { source: Source::Carried(body), decoder: None, from: None }
    }

    pub(super) fn decoded_by(mut self, decoder: Decoder) -> Self {
        self.decoder = Some(decoder);
        self
    }

    /// The endpoint that answers.
    pub fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        self.from.as_ref().map(|(_, peer)| &peer.endpoint)
    }

    /// The place that the answer names by `location`, at the address that gave the answer;
    /// `None` where that is another origin.
    pub fn place(&self, location: &str) -> Option<Place> {
        let (cluster, peer) = self.from.as_ref()?;
        let base = peer.endpoint.target("")?;
        let path = peer.endpoint.same_origin(&base.absolute, location)?;
        Some(Place { cluster: cluster.clone(), peer: peer.clone(), path })
    }

    /// Gives the connection back if nothing is left to read.
    fn settle(&mut self) {
        let ended = match &self.source {
            Source::Own { incoming, .. } | Source::Shared(incoming) => incoming.is_end_stream(),
            Source::Done | Source::Carried(_) => false,
        };
        if ended {
            self.finish();
        }
    }

    fn scene(&self) -> Scene<'_> {
        match &self.from {
            Some((cluster, peer)) => cluster.scene(Some(&peer.endpoint)),
            None => Scene { name: "", endpoint: None, shown: false },
        }
    }

    fn finish(&mut self) {
        if let Source::Own { connection, home, .. } =
            std::mem::replace(&mut self.source, Source::Done)
            && let Some((cluster, peer)) = &self.from
        {
            home.give_back(cluster, peer, connection);
        }
    }

    /// The next piece as the upstream sent it.
    fn poll_raw(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        loop {
            let polled = match &mut self.source {
                Source::Done => return Poll::Ready(None),
                Source::Own { incoming, connection, .. } => poll_own(incoming, connection, cx),
                Source::Shared(incoming) => Pin::new(incoming).poll_frame(cx),
                Source::Carried(body) => return poll_carried(body, cx),
            };
            let frame = match polled {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => {
                    self.finish();
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.source = Source::Done;
                    return Poll::Ready(Some(Err(self.scene().lost(error))));
                }
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            // Trailers say nothing that the gateway would believe.
            if let Ok(data) = frame.into_data() {
                self.settle();
                return Poll::Ready(Some(Ok(data)));
            }
        }
    }
}

/// The body is filled by its own connection alone, so nobody else need wake its reader: the
/// connection's waker is enough.
fn poll_own(
    incoming: &mut Incoming,
    connection: &mut H1,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    let mut unheard = Context::from_waker(Waker::noop());
    let there = quiet::poll_frame(Pin::new(&mut *incoming), &mut unheard);
    if there.is_ready() {
        return there;
    }
    let _ = connection.poll_drive(cx);
    quiet::poll_frame(Pin::new(incoming), &mut unheard)
}

/// What a carrier says went wrong is said already, in an error of ours.
fn poll_carried(body: &mut Body, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
    loop {
        let frame = match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(cause))) => {
                return Poll::Ready(Some(Err(match cause.downcast::<Error>() {
                    Ok(error) => *error,
                    Err(cause) => Error::new(Code::Internal, "a body broke off").with_cause(cause),
                })));
            }
        };
        if let Ok(data) = frame.into_data() {
            return Poll::Ready(Some(Ok(data)));
        }
    }
}

impl HttpBody for UpstreamBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = &mut *self;
        let Some(mut decoder) = this.decoder.take() else {
            return this.poll_raw(cx).map(|piece| piece.map(|data| data.map(Frame::data)));
        };
        let polled = decoder.poll(|| this.poll_raw(cx));
        match polled {
            Poll::Ready(Some(Ok(data))) => {
                this.decoder = Some(decoder);
                Poll::Ready(Some(Ok(Frame::data(data))))
            }
            Poll::Ready(Some(Err(failure))) => {
                this.source = Source::Done;
                Poll::Ready(Some(Err(failure.into_error(this.scene()))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                this.decoder = Some(decoder);
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.decoder.is_none()
            && match &self.source {
                Source::Done => true,
                Source::Carried(body) => body.is_end_stream(),
                Source::Own { .. } | Source::Shared(_) => false,
            }
    }

    fn size_hint(&self) -> SizeHint {
        match (&self.source, &self.decoder) {
            (_, Some(_)) => SizeHint::default(),
            (Source::Done, None) => SizeHint::with_exact(0),
            (Source::Own { incoming, .. } | Source::Shared(incoming), None) => incoming.size_hint(),
            (Source::Carried(body), None) => body.size_hint(),
        }
    }
}

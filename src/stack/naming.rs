//! A server's answer in the caller's names: URIs as his surface has them, resources that are not
//! found as his revision says it, and how long he may keep what he read.
//!
//! Above everything that stores or records answers, so that those keep the server's own names.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower::{Layer, Service};

use super::stage::{Permitted, World};
use crate::{
    dialect::{
        north,
        uris::{self, Place},
    },
    error::Error,
    mcp::{Family, Method, meta},
    model::{
        call::{Request, Surface, Target},
        exchange::NorthDialect,
        reply::{Final, Reply, ResultBody},
        server::UpstreamName,
    },
};

/// The longest that a client may keep what it read, in milliseconds: rights change, and nothing
/// tells a client of that.
const READ_TTL_MS: u32 = 60_000;

/// Names answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NamingLayer;

impl<S> Layer<S> for NamingLayer {
    type Service = Naming<S>;

    fn layer(&self, inner: S) -> Naming<S> {
        Naming { inner }
    }
}

#[derive(Debug, Clone)]
pub struct Naming<S> {
    inner: S,
}

impl<S> Service<Permitted> for Naming<S>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    type Response = Reply;
    type Error = Error;
    type Future = Named<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        let names = Names::of(&permitted).map(Box::new);
        Named { inner: self.inner.call(permitted), names }
    }
}

pin_project! {
    /// A call whose answer is named when it comes.
    pub struct Named<F> {
        #[pin]
        inner: F,
        names: Option<Box<Names>>,
    }
}

impl<F> Future for Named<F>
where
    F: Future<Output = Result<Reply, Error>>,
{
    type Output = Result<Reply, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let reply = ready!(this.inner.poll(cx))?;
        match this.names.take() {
            Some(names) => Poll::Ready(reply.map_end(move |end| end.map(|end| names.end(end)))),
            None => Poll::Ready(Ok(reply)),
        }
    }
}

/// What naming an answer takes.
struct Names {
    world: Arc<World>,
    method: Method,
    dialect: NorthDialect,
    /// Whose answer it is, where its URIs are called something else on the caller's surface.
    renamed: Option<(usize, UpstreamName)>,
    /// The URI that was asked for, as the caller has it.
    asked: Option<Box<str>>,
    /// The request brought answers to questions: what comes of it is of this one request.
    answers: bool,
}

impl Names {
    /// Nothing for an answer that goes on as it is.
    fn of(permitted: &Permitted) -> Option<Names> {
        let Permitted { call, world, tool, asked, .. } = permitted;
        let on_aggregate = call.surface == Surface::Aggregate;
        let names = |method, owner: Option<(usize, &UpstreamName)>| Names {
            world: world.clone(),
            method,
            dialect: call.dialect,
            renamed: owner.filter(|_| on_aggregate).map(|(index, name)| (index, name.clone())),
            asked: None,
            answers: false,
        };
        match (&call.request, tool, asked) {
            (Request::CallTool(_), Some(tool), _) if on_aggregate => {
                Some(names(Method::CallTool, Some((tool.upstream_index, &tool.upstream))))
            }
            (Request::Ask(ask), _, Some(asked)) => {
                let brings = |name: &str| ask.params.iter().any(|m| m.key == name.as_bytes());
                let uri = match &ask.target {
                    Target::Resource(uri) => Some(uri.clone()),
                    _ => None,
                };
                Some(Names {
                    asked: uri,
                    answers: brings("inputResponses") || brings("requestState"),
                    ..names(ask.method, Some((asked.upstream_index, &asked.upstream)))
                })
            }
            _ => None,
        }
    }

    fn end(&self, end: Final) -> Final {
        match (end, &self.asked) {
            (Final::Result(body), _) => Final::Result(self.result(body)),
            (Final::Error(error), Some(uri)) => {
                Final::Error(north::not_found(error, uri, self.dialect))
            }
            (error, None) => error,
        }
    }

    fn result(&self, body: ResultBody) -> ResultBody {
        if body.rendered {
            return body;
        }
        let ran = self.ran_instead(&body);
        let owner = self.renamed.as_ref().map(|own| ran.as_ref().unwrap_or(own));
        let renamed = owner.and_then(|(index, upstream)| {
            uris::rename(self.method, &body.raw, |uri, place| {
                self.public(*index, upstream, uri, place)
            })
        });
        let mut body = match renamed {
            Some(raw) => north::with_raw(&body, raw),
            None => body,
        };
        let is_question = body.shape.has_type && !body.shape.complete;
        if self.method == Method::ReadResource && !is_question {
            let own = body.shape.ttl_ms.min(READ_TTL_MS);
            body.fresh_ms = Some(if self.answers { 0 } else { own });
        }
        body
    }

    /// Whose answer it is where a quota had another tool run, be it now or when it was first
    /// given.
    fn ran_instead(&self, body: &ResultBody) -> Option<(usize, UpstreamName)> {
        let (_, degraded) = body.added_meta.iter().find(|(key, _)| *key == meta::DEGRADED)?;
        let degraded: serde_json::Value = serde_json::from_slice(degraded).ok()?;
        let (name, _) = degraded["to"].as_str()?.split_once('/')?;
        let mut all = self.world.catalog.listings(&Surface::Aggregate).enumerate();
        all.find(|(_, (known, _))| known.as_str() == name)
            .map(|(index, (known, _))| (index, known.clone()))
    }

    /// A link into the web is the client's to follow, unless the server lists what is there.
    fn public(
        &self,
        index: usize,
        upstream: &UpstreamName,
        uri: &str,
        place: Place,
    ) -> Option<String> {
        let catalog = &self.world.catalog;
        let is_web = uri.starts_with("https:") || uri.starts_with("http:");
        if place == Place::Link && is_web {
            let own = Surface::Upstream(upstream.clone());
            catalog.item(&own, Family::Resources, uri)?;
        }
        Some(catalog.public_uri(&Surface::Aggregate, index, uri).into_owned())
    }
}

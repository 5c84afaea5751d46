//! The bottom of the stack against real sockets: pooling, retries, failures, redirects.

#![allow(clippy::disallowed_methods, reason = "servers of a test end with its runtime")]

mod answers;
mod guarded;
mod mutual;
mod names;
mod on_demand;
mod peers;
mod tls;
mod wire;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tower::{Service, ServiceExt};

use super::*;
use crate::{body::Body, error::Error};

/// A cluster over these URLs, with short times.
fn cluster(urls: &[String]) -> Arc<Cluster> {
    let endpoints = urls.iter().map(|url| Endpoint::parse(url).unwrap()).collect();
    let mut config = ClusterConfig::new("shop", endpoints, written());
    config.connect_timeout = Duration::from_millis(250);
    config.suffixes = &["", "/tools/call"];
    Cluster::new(config, &transport()).unwrap()
}

/// The guard of servers that the operator wrote down.
fn written() -> Guard {
    Guard::written(&Egress::new(EgressConfig::default()))
}

fn transport() -> Transport {
    Transport::new(Trust::System)
}

fn outgoing(cluster: &Arc<Cluster>) -> Outgoing {
    let request = Request::builder().method(Method::POST).body(Body::from("{\"call\":1}")).unwrap();
    Outgoing { to: Destination::Cluster(cluster.clone()), suffix: "", request, tried: None }
}

async fn send(core: &Upstreams, outgoing: Outgoing) -> Result<Response<UpstreamBody>, Error> {
    core.clone().ready().await?.call(outgoing).await
}

async fn text(response: Response<UpstreamBody>) -> Result<Bytes, Error> {
    response.into_body().collect().await.map(|body| body.to_bytes())
}

/// One call, and the body of its answer.
async fn call(core: &Upstreams, cluster: &Arc<Cluster>) -> Result<Bytes, Error> {
    text(send(core, outgoing(cluster)).await?).await
}

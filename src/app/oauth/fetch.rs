//! Requests to authorization servers, over connections that are used once.
//!
//! No redirect is followed: documents and tokens come from where they were said to be, or not at
//! all.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use tokio::time::timeout;
use tower::Service;
use url::{Origin, Url};

use crate::{
    body::{self, Body},
    credential::oauth::TokenFault,
    upstream::{
        Cluster, ClusterConfig, Destination, Egress, Endpoint, Guard, Outgoing, PeerTls, Transport,
        Upstreams,
    },
};

/// The largest answer that is read.
const MAX_ANSWER: usize = 256 * 1024;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Who named an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// The operator.
    Written,
    /// A server, or somebody else.
    Elsewhere,
}

/// Fetches.
#[derive(Clone)]
pub(super) struct Fetch {
    pub transport: Transport,
    pub egress: Arc<Egress>,
    /// One origin that is shown a certificate, or trusted by its own roots: the upstream's.
    pub own: Option<(Origin, PeerTls)>,
}

/// An answer, whatever its status.
pub(super) struct Fetched {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: Bytes,
}

impl Fetch {
    /// The same on behalf of one upstream.
    pub fn towards(&self, server: &Url, tls: Option<&PeerTls>) -> Self {
        Self { own: tls.map(|tls| (server.origin(), tls.clone())), ..self.clone() }
    }

    pub async fn get(&self, url: &Url, named: Named) -> Result<Fetched, TokenFault> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        self.send(Method::GET, url, headers, Bytes::new(), named).await
    }

    pub async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        named: Named,
    ) -> Result<Fetched, TokenFault> {
        self.send(Method::POST, url, headers, body, named).await
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
        named: Named,
    ) -> Result<Fetched, TokenFault> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let away = |what: String| TokenFault::Unreachable(format!("`{host}`: {what}"));
        let endpoint = Endpoint::parse(url.as_str()).map_err(|error| away(error.to_string()))?;
        let guard = match named {
            Named::Written => Guard::written(&self.egress),
            Named::Elsewhere => Guard::public(&self.egress),
        };
        guard.admits(&endpoint).map_err(|denied| away(denied.to_string()))?;
        let own = self.own.as_ref().filter(|(origin, _)| *origin == url.origin());
        let config = ClusterConfig {
            redirects: false,
            on_demand: true,
            tls: own.map(|(_, tls)| tls.clone()),
            ..ClusterConfig::new(host.as_str(), vec![endpoint], guard)
        };
        let cluster = Cluster::new(config, &self.transport);
        let cluster = cluster.map_err(|error| away(error.to_string()))?;
        let mut request = Request::new(match body.is_empty() {
            true => Body::Empty,
            false => Body::from(body),
        });
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        let to = Destination::Cluster(cluster);
        let outgoing = Outgoing { to, suffix: "", request, tried: None };
        let mut upstreams = Upstreams::new(self.transport.clone());
        let fetched = timeout(TIMEOUT, async {
            let response = upstreams.call(outgoing).await;
            let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
            let text = body::collect(body, MAX_ANSWER).await;
            let text = text.map_err(|_| "the answer is too long, or broke off".to_owned())?;
            Ok::<_, String>(Fetched { status: head.status, headers: head.headers, text })
        });
        let fetched = fetched.await.unwrap_or_else(|_| Err("there is no answer".to_owned()));
        fetched.map_err(away)
    }
}

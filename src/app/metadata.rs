//! Documents about protected resources (RFC 9728): whose tokens the gateway takes, and for what;
//! and the keys with which it signs what it says of itself.
//!
//! Served to everybody: whoever has no token yet reads here where to get one.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};

use crate::{
    body::Body,
    credential::oauth::Identity,
    edge::{Router, refuse},
    identity::token::Issuers,
    json,
    model::call::Route,
    stack::challenge::{Challenges, WELL_KNOWN},
};

/// Where the gateway's own keys are published.
const JWKS: &str = "/.well-known/jwks.json";

/// Answers for the documents.
#[derive(Clone)]
pub(super) struct Metadata {
    pub issuers: Arc<Issuers>,
    pub challenges: Arc<Challenges>,
    pub router: Arc<Router>,
    /// The gateway's own keys, where there is a keyring.
    pub identity: Option<Arc<Identity>>,
}

impl Metadata {
    /// The document that a path names; `None` where it names none, and where no tokens are
    /// taken.
    pub fn answer<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        if request.uri().path() == JWKS {
            return self.jwks(request);
        }
        let headers = request.headers();
        let resource = request.uri().path().strip_prefix(WELL_KNOWN)?;
        if self.issuers.is_empty() {
            return None;
        }
        // Each endpoint of standard MCP has its own; the root's is the aggregate's.
        let resource = if resource.is_empty() { "/mcp" } else { resource };
        if !matches!(self.router.route(resource), Some(Route::Mcp(_))) {
            return None;
        }
        if let Some(refused) = only_read(request) {
            return Some(refused);
        }
        let base = self.challenges.base_url(headers)?;
        let text = self.document(&format!("{base}{resource}"));
        let mut response = read(request.method(), text);
        let own = response.headers_mut();
        // By which name the gateway was asked for is in the document.
        own.insert(header::VARY, HeaderValue::from_static("Host"));
        Some(response)
    }

    /// The public halves of the gateway's own keys.
    fn jwks<B>(&self, request: &Request<B>) -> Option<Response<Body>> {
        let identity = self.identity.as_ref()?;
        let refused = only_read(request);
        let text = || identity.jwks().to_string().into_bytes();
        Some(refused.unwrap_or_else(|| read(request.method(), text())))
    }

    fn document(&self, resource: &str) -> Vec<u8> {
        let mut out = b"{\"resource\":".to_vec();
        json::write_str(&mut out, resource);
        out.extend_from_slice(b",\"authorization_servers\":[");
        list(&mut out, self.issuers.iter().map(|issuer| issuer.issuer.as_str()));
        out.extend_from_slice(b"],\"scopes_supported\":[");
        let mut scopes: Vec<&str> = Vec::new();
        for scope in self.issuers.iter().flat_map(|issuer| issuer.scopes.all()) {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        list(&mut out, scopes.into_iter());
        out.extend_from_slice(b"],\"bearer_methods_supported\":[\"header\"],");
        out.extend_from_slice(b"\"resource_name\":\"Hangu\"}");
        out
    }
}

fn only_read<B>(request: &Request<B>) -> Option<Response<Body>> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let (status, of) = (StatusCode::METHOD_NOT_ALLOWED, request.extensions());
    let mut response = refuse(status, -31_405, "this document is only read", of);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(response)
}

fn read(method: &Method, text: Vec<u8>) -> Response<Body> {
    let body = if method == Method::HEAD { Body::Empty } else { Body::from(Bytes::from(text)) };
    let mut response = Response::new(body);
    let own = response.headers_mut();
    own.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    own.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=300"));
    response
}

fn list<'a>(out: &mut Vec<u8>, items: impl Iterator<Item = &'a str>) {
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::write_str(out, item);
    }
}

//! A small client for the tests of the demo's servers: one connection per request, over TCP.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::{net::TcpStream, task::JoinSet};

use crate::mcp::meta;

/// Any free port on loopback.
pub(super) const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

pub(super) type Headers<'a> = &'a [(&'a str, &'a str)];

#[derive(Debug)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Bytes,
}

// === impl Answer ===

impl Answer {
    /// The body as JSON; `null` where there is none.
    pub fn json(&self) -> Value {
        if self.bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&self.bytes).unwrap()
        }
    }

    pub fn rpc_code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap()
    }
}

/// Sends a body that says it is JSON.
pub(super) async fn post(
    addr: SocketAddr,
    path: &str,
    headers: Headers<'_>,
    body: impl Into<Bytes>,
) -> Answer {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    send(addr, Method::POST, path, &all, body).await
}

pub(super) async fn send(
    addr: SocketAddr,
    method: Method,
    path: &str,
    headers: Headers<'_>,
    body: impl Into<Bytes>,
) -> Answer {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header(header::HOST, addr.to_string());
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body.into())).unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer { status: head.status, headers: head.headers, bytes }
}

/// A request of a handshake revision, without a session and without a version header.
pub(super) async fn plain(
    addr: SocketAddr,
    path: &str,
    headers: Headers<'_>,
    method: &str,
    params: Value,
) -> Answer {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    post(addr, path, headers, body.to_string()).await
}

/// A request of 2026-07-28 with everything it needs.
pub(super) async fn modern(
    addr: SocketAddr,
    path: &str,
    headers: Headers<'_>,
    method: &str,
    params: Value,
) -> Answer {
    let name = params.get("name").and_then(Value::as_str).map(str::to_owned);
    let mut all = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
    all.extend(name.as_deref().map(|name| ("mcp-name", name)));
    all.extend_from_slice(headers);
    post(addr, path, &all, modern_body(method, params).to_string()).await
}

/// The body of such a request.
pub(super) fn modern_body(method: &str, params: Value) -> Value {
    let mut params = match params {
        Value::Object(params) => params,
        _ => Map::new(),
    };
    params.insert(
        "_meta".to_owned(),
        json!({ meta::PROTOCOL_VERSION: "2026-07-28", meta::CLIENT_CAPABILITIES: {} }),
    );
    json!({ "jsonrpc": "2.0", "id": "m-1", "method": method, "params": params })
}

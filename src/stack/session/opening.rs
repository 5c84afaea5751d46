//! Opening a session: `initialize`, what the server agrees to, `notifications/initialized`.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Response, header as http_header};
use http_body_util::BodyExt;
use tower::Service;

use super::super::{
    answer::{self, Media},
    stage::{Hop, Introduced, next_id},
};
use crate::{
    body::{Body, Pieces},
    dialect::{
        declared::{self, Declared},
        south::{self, Incoming},
        sse,
    },
    error::Error,
    json::{self, Doc, Value},
    mcp::{LogLevel, Served, Version, header},
    model::reply::Final,
};

/// The most that an answer to `initialize` may hold.
const INITIALIZE_BYTES: usize = 256 * 1024;

/// How long a call waits for the answer to `logging/setLevel`, without which it can go on.
const LEVEL_TIME: Duration = Duration::from_secs(2);

/// What a server agreed on.
pub(super) struct Opened {
    /// A server may do without.
    pub id: Option<HeaderValue>,
    pub version: Version,
    pub served: Served,
}

/// The headers of a message of the handshake era.
pub(super) fn headers() -> HeaderMap {
    const JSON: HeaderValue = HeaderValue::from_static("application/json");
    const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
    let mut headers = HeaderMap::new();
    headers.insert(http_header::CONTENT_TYPE, JSON);
    headers.insert(http_header::ACCEPT, BOTH);
    headers
}

/// Opens a session that declares what the hop's client can be asked for.
pub(super) async fn open<S>(inner: &mut S, hop: &Hop) -> Result<Opened, Error>
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    let name = hop.upstream.name.as_str();
    let id = next_id();
    let asked = hop.upstream.pinned.unwrap_or(Version::LATEST_LEGACY);
    let body = south::initialize_body(id, asked, hop.capabilities);
    let response = inner.call(beside(hop, headers(), body.into())).await.map_err(not_called)?;
    let session_id = response.headers().get(header::SESSION_ID).cloned();
    let (version, Declared { served, instructions, name: said, version: of }) =
        agreed(response, id, name).await.map_err(not_called)?;
    // What one employee's session shows is not what the server serves everybody. Of a server that
    // an employee brought nobody else says it: its owner's first session does.
    let is_first = hop.upstream.name.is_key() && !hop.upstream.has_declared();
    if hop.caller.is_none() || hop.upstream.shares_sessions() || is_first {
        hop.upstream.set_served(served);
        hop.upstream.set_instructions(instructions);
        hop.upstream.set_introduced(Introduced {
            name: said,
            version: of,
            revision: Some(version),
        });
    }
    if hop.upstream.pinned.is_some_and(|pinned| pinned != version) {
        let what = format!("speaks {version}, and the configuration pins {asked}");
        return Err(not_called(answer::failure(name, &what)));
    }
    let opened = Opened { id: session_id, version, served };
    let mut initialized = beside(hop, headers(), south::INITIALIZED.into());
    opened.mark(&mut initialized.headers);
    let accepted = inner.call(initialized).await.map_err(not_called)?;
    if !accepted.status().is_success() {
        return Err(not_called(answer::failure(name, "refused `notifications/initialized`")));
    }
    Ok(opened)
}

/// A message beside a request, which may be one of another HTTP method.
pub(super) fn beside(hop: &Hop, headers: HeaderMap, body: Pieces) -> Hop {
    Hop { method: http::Method::POST, ..hop.beside(headers, body) }
}

impl Opened {
    /// Says in a request's headers that it belongs into this session.
    pub fn mark(&self, headers: &mut HeaderMap) {
        mark(headers, self.id.as_ref(), self.version);
    }
}

/// Says in a request's headers which session it belongs into.
pub(super) fn mark(headers: &mut HeaderMap, id: Option<&HeaderValue>, version: Version) {
    if let Some(id) = id {
        headers.insert(header::SESSION_ID, id.clone());
    }
    headers.insert(header::PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
}

/// The call itself has not left: whatever failed, it did not run.
fn not_called(error: Error) -> Error {
    error.with_known_outcome()
}

async fn agreed(
    response: Response<Body>,
    id: u64,
    upstream: &str,
) -> Result<(Version, Declared), Error> {
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        let failure =
            answer::standard_failure(head.status, &head.headers, body, id, upstream).await?;
        return Err(refused(&failure, upstream));
    }
    let end = match answer::media(&head.headers) {
        Media::EventStream => first_answer(body, id, upstream).await?,
        Media::Json => {
            let text = answer::collect(body, INITIALIZE_BYTES, upstream).await?;
            match south::read_message(text, id)? {
                Incoming::End(end) => end,
                _ => return Err(answer::failure(upstream, "gave `initialize` no answer")),
            }
        }
        Media::Html => {
            return Err(answer::failure(upstream, "answered with a web page: no MCP endpoint"));
        }
        Media::Other => return Err(answer::failure(upstream, "gave `initialize` no answer")),
    };
    let Final::Result(result) = end else { return Err(refused(&end, upstream)) };
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    let agreed = Doc::parse(result.raw, &limits).ok().and_then(|doc| {
        let version = doc.root().get("protocolVersion").and_then(Value::as_str)?;
        Some((Version::of_server(&version)?, declared::read(doc.root())))
    });
    agreed
        .filter(|(version, _)| !version.is_modern())
        .ok_or_else(|| answer::failure(upstream, "agreed on no protocol version that is spoken"))
}

fn refused(end: &Final, upstream: &str) -> Error {
    let code = if let Final::Error(error) = end { error.code } else { 0 };
    answer::failure(upstream, &format!("refused `initialize` (JSON-RPC error {code})"))
}

/// The answer on an event stream, which servers of this era like to use for everything.
async fn first_answer(mut body: Body, id: u64, upstream: &str) -> Result<Final, Error> {
    let mut parser = sse::Parser::new(INITIALIZE_BYTES);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|cause| answer::broken(upstream, cause))?;
        let Ok(data) = frame.into_data() else { continue };
        parser.push(data);
        while let Some(event) = parser.next() {
            let event = event.map_err(|cause| answer::broken(upstream, cause))?;
            if event.data.is_empty() {
                continue;
            }
            if let Incoming::End(end) = south::read_message(event.data, id)? {
                return Ok(end);
            }
        }
    }
    Err(answer::failure(upstream, "ended its stream before the answer to `initialize`"))
}

/// Tells a server which log messages are wanted. A call does not fail for it.
pub(super) async fn set_level<S>(inner: &mut S, mut hop: Hop, level: LogLevel)
where
    S: Service<Hop, Response = Response<Body>, Error = Error>,
{
    let name = hop.upstream.name.clone();
    let id = next_id();
    hop.body = south::set_level_body(id, level).into();
    let told = tokio::time::timeout(LEVEL_TIME, async {
        let response = inner.call(hop).await?;
        let status = response.status();
        // Read to its end, the answer gives its connection back.
        answer::collect(response.into_body(), INITIALIZE_BYTES, name.as_str()).await?;
        Ok::<_, Error>(status)
    });
    match told.await {
        Ok(Ok(status)) if status.is_success() => {}
        Ok(Ok(status)) => {
            tracing::debug!(upstream.name = %name, %status, "the log level was refused");
        }
        Ok(Err(error)) => {
            tracing::debug!(upstream.name = %name, %error, "the log level could not be told");
        }
        Err(_) => tracing::debug!(upstream.name = %name, "the log level was not answered"),
    }
}

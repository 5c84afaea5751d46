//! Finding out how a server speaks, by a request that does nothing.

use bytes::Bytes;
use tower::Service;

use super::{Watcher, listing::Listed};
use crate::{
    error::{Code, Error},
    json::{self, Doc, Value},
    mcp::{Family, Version, rpc},
    model::{
        reply::{Final, Reply, RpcError},
        server::DialectKind,
    },
    stack::stage::{Era, Routed, SouthRequest},
};

impl<S> Watcher<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send,
    S::Future: Send,
{
    /// The era of the upstream: as configured, as remembered, or as its answer to
    /// `server/discover` shows it. Never a call that acts: an old server might run it.
    pub(super) async fn era(&mut self) -> Result<Era, Error> {
        if let Some(era) = self.upstream.era() {
            return Ok(era);
        }
        let era = match (self.upstream.dialect, self.upstream.pinned) {
            (DialectKind::McpLite, _) => Era::Lite,
            // The transport is of one revision, and what followed it replaced the transport.
            (DialectKind::HttpSse, _) => Era::Legacy,
            (_, Some(version)) if version.is_modern() => Era::Modern(version),
            (_, Some(_)) => Era::Legacy,
            (DialectKind::Auto | DialectKind::StreamableHttp | DialectKind::Stdio, None) => {
                self.probe().await?
            }
        };
        self.upstream.set_era(Some(era));
        Ok(era)
    }

    async fn probe(&mut self) -> Result<Era, Error> {
        match self.ask(SouthRequest::Probe).await {
            Ok(Final::Result(body)) => match supported(&body.raw, "supportedVersions") {
                Some(true) => Ok(Era::Modern(Version::LATEST)),
                Some(false) => Err(self.no_common_version()),
                None => Ok(Era::Legacy),
            },
            Ok(Final::Error(error)) => self.judge(&error),
            // Nothing reached it, or it may yet answer: no word on its era.
            Err(error) if !error.unknown_outcome() && !answered(&error) => Err(error),
            Err(_) => Ok(Era::Legacy),
        }
    }

    /// Only a server of the stateless era knows its error codes.
    fn judge(&self, error: &RpcError) -> Result<Era, Error> {
        match i32::try_from(error.code).unwrap_or_default() {
            rpc::UNSUPPORTED_VERSION => {
                match error.data.as_ref().and_then(|data| supported(data, "supported")) {
                    Some(true) => Ok(Era::Modern(Version::LATEST)),
                    _ => Err(self.no_common_version()),
                }
            }
            rpc::HEADER_MISMATCH | rpc::MISSING_CAPABILITY => Ok(Era::Modern(Version::LATEST)),
            _ => Ok(Era::Legacy),
        }
    }

    fn no_common_version(&self) -> Error {
        let message = format!("`{}` speaks no protocol version of ours", self.upstream.name);
        Error::new(Code::ExternalServiceError, message).with_kind("version").from_upstream()
    }

    /// Whether an endpoint that takes no `initialize` is one of HTTP+SSE, which a GET shows. Asks
    /// for its tools that way, and goes on that way if it has them.
    pub(super) async fn over_event_stream(&mut self, error: &Error) -> Option<Listed> {
        // What such an endpoint says to a POST; one that wants a credential says something else.
        let no_post = matches!(error.kind(), Some("400" | "404" | "405" | "malformed"));
        if self.upstream.dialect != DialectKind::Auto
            || !no_post
            || self.upstream.reach.is_carried()
            || !self.upstream.reach.switch(true)
        {
            return None;
        }
        match self.pages().await {
            Ok(listed) => Some(listed),
            Err(error) => {
                tracing::debug!(upstream.name = %self.upstream.name, %error, "nor HTTP+SSE");
                self.upstream.reach.switch(false);
                None
            }
        }
    }

    /// Why an endpoint that speaks no MCP was taken for one: a provider's REST form is told by
    /// its name.
    pub(super) async fn diagnose(&mut self, error: Error) -> Error {
        let may_be =
            matches!(self.upstream.dialect, DialectKind::Auto | DialectKind::StreamableHttp);
        if !may_be || !answered(&error) {
            return error;
        }
        self.upstream.set_era(Some(Era::Lite));
        let lists = matches!(
            self.ask(SouthRequest::List { family: Family::Tools, cursor: None }).await,
            Ok(Final::Result(_))
        );
        self.upstream.set_era(None);
        if !lists {
            return error;
        }
        let message = format!(
            "`{}` is a REST endpoint, not JSON-RPC: set `dialect: mcp-lite`",
            self.upstream.name
        );
        Error::new(Code::ExternalServiceError, message)
            .with_kind("wrong_dialect")
            .with_cause(error)
            .from_upstream()
    }
}

/// The server answered, though not as hoped.
fn answered(error: &Error) -> bool {
    matches!(
        error.kind(),
        Some("malformed" | "stream_ended" | "400" | "401" | "403" | "404" | "405" | "4xx" | "5xx")
            | Some("406" | "409" | "415" | "422" | "500" | "501" | "502" | "503" | "504" | "3xx")
    )
}

/// Whether a list of versions names the one that is spoken; `None` where there is no list.
fn supported(object: &Bytes, member: &str) -> Option<bool> {
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    let doc = Doc::parse(object.clone(), &limits).ok()?;
    let list = doc.root().get(member).filter(|list| list.kind() == json::Kind::Array)?;
    let ours = |version: Value<'_>| version.is_str(Version::LATEST.as_str());
    let found = list.elements().any(ours);
    Some(found)
}

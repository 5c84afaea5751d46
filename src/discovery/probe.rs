//! Finding out how a server speaks, by a request that does nothing.

use bytes::Bytes;
use tower::Service;

use super::{Told, Watcher};
use crate::{
    dialect::declared,
    error::{Code, Error},
    json::{self, Doc, Value},
    mcp::{Family, Served, Version, rpc},
    model::{
        reply::{Final, Reply, RpcError},
        server::DialectKind,
    },
    stack::stage::{Era, Introduced, Routed, SouthRequest},
};

impl<S> Watcher<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send + Sync,
    S::Future: Send,
{
    /// The era of the upstream: as configured, as remembered, or as its answer to
    /// `server/discover` shows it. Never a call that acts: an old server might run it.
    ///
    /// What the server declares that it serves is known when this returns.
    pub(super) async fn learn(&self) -> Result<Era, Error> {
        let (era, heard) = match (self.upstream.era(), self.upstream.dialect, self.upstream.pinned)
        {
            (Some(era), ..) => (era, false),
            (None, DialectKind::McpLite, _) => (Era::Lite, false),
            // The transport is of one revision, and what followed it replaced the transport.
            (None, DialectKind::HttpSse, _) => (Era::Legacy, false),
            (None, _, Some(version)) if version.is_modern() => (Era::Modern(version), false),
            (None, _, Some(_)) => (Era::Legacy, false),
            (None, DialectKind::Auto | DialectKind::StreamableHttp | DialectKind::Stdio, None) => {
                let era = self.probe().await?;
                (era, matches!(era, Era::Modern(_)))
            }
        };
        self.upstream.set_era(Some(era));
        match era {
            // There is nothing else in this dialect.
            Era::Lite => self.upstream.set_served(Served::TOOLS),
            Era::Modern(_) if !heard => self.hear().await?,
            // The answer to `initialize` says it, and the session's layer reads that.
            Era::Legacy
                if self.sessions.greets_again(&self.upstream) || !self.upstream.has_declared() =>
            {
                self.ask(SouthRequest::Probe).await?;
            }
            Era::Modern(_) | Era::Legacy => {}
        }
        // Who said nothing yet has not said that it serves nothing: what it had would be gone.
        if !self.upstream.has_declared() {
            let message = format!("`{}` did not say what it serves", self.upstream.name);
            let error = Error::new(Code::ExternalServiceError, message);
            return Err(error.with_kind("malformed").from_upstream());
        }
        Ok(era)
    }

    /// Asks a stateless server again what it declares; what it said before stands where it does
    /// not answer, and its listings will tell the trouble.
    async fn hear(&self) -> Result<(), Error> {
        let unheard = !self.upstream.has_declared();
        match self.ask(SouthRequest::Probe).await {
            Ok(Final::Result(body)) => self.take_declared(&body.raw),
            // It is away: to ask for its lists would only take as long again.
            Err(error) if unheard || !answered(&error) => return Err(error),
            Ok(Final::Error(_)) if unheard => self.upstream.set_served(Served::TOOLS),
            Ok(Final::Error(_)) | Err(_) => {}
        }
        Ok(())
    }

    fn take_declared(&self, result: &Bytes) {
        let limits = json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 2 };
        if let Ok(doc) = Doc::parse(result.clone(), &limits) {
            let declared = declared::read(doc.root());
            self.upstream.set_served(declared.served);
            self.upstream.set_instructions(declared.instructions);
            let (name, version) = (declared.name, declared.version);
            self.upstream.set_introduced(Introduced { name, version, revision: None });
        }
    }

    async fn probe(&self) -> Result<Era, Error> {
        match self.ask(SouthRequest::Probe).await {
            Ok(Final::Result(body)) => match supported(&body.raw, "supportedVersions") {
                Some(true) => {
                    self.take_declared(&body.raw);
                    Ok(Era::Modern(Version::LATEST))
                }
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
                    Some(true) => self.heard_of(Version::LATEST),
                    _ => Err(self.no_common_version()),
                }
            }
            rpc::HEADER_MISMATCH | rpc::MISSING_CAPABILITY => self.heard_of(Version::LATEST),
            _ => Ok(Era::Legacy),
        }
    }

    /// A stateless server that does not answer `server/discover` as it must.
    fn heard_of(&self, version: Version) -> Result<Era, Error> {
        if !self.upstream.has_declared() {
            self.upstream.set_served(Served::TOOLS);
        }
        Ok(Era::Modern(version))
    }

    fn no_common_version(&self) -> Error {
        let message = format!("`{}` speaks no protocol version of ours", self.upstream.name);
        Error::new(Code::ExternalServiceError, message).with_kind("version").from_upstream()
    }

    /// Whether an endpoint that takes no `initialize` is one of HTTP+SSE, which a GET shows. Lists
    /// what it has that way, and goes on that way if it has anything.
    pub(super) async fn over_event_stream(&self, error: &Error, told: &mut Told) -> bool {
        // What such an endpoint says to a POST; one that wants a credential says something else.
        let no_post = matches!(error.kind(), Some("400" | "404" | "405" | "malformed"));
        if self.upstream.dialect != DialectKind::Auto
            || !no_post
            || self.upstream.reach.is_carried()
            || !self.upstream.reach.switch(true)
        {
            return false;
        }
        let error = match self.learn().await {
            Ok(_) => self.list(told).await,
            Err(error) => Some(error),
        };
        if let Some(error) = &error {
            tracing::debug!(upstream.name = %self.upstream.name, %error, "nor HTTP+SSE");
            self.upstream.reach.switch(false);
        }
        error.is_none()
    }

    /// Why an endpoint that speaks no MCP was taken for one: a provider's REST form is told by
    /// its name.
    pub(super) async fn diagnose(&self, error: Error) -> Error {
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

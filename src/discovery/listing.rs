//! One complete listing: every page, each tool read for itself.

use std::{collections::HashSet, sync::Arc};

use tower::Service;

use super::Watcher;
use crate::{
    dialect::south,
    error::{Code, Error},
    json::{Kind, Value},
    mcp::Family,
    model::{
        reply::{Final, Reply},
        server::DialectKind,
    },
    registry::{Definition, read_definition},
    stack::stage::{Era, Routed, SouthRequest},
};

/// Pages of one listing; a server that pages on is stopped here.
const PAGES_MAX: usize = 1_000;
/// Tools of one upstream.
const TOOLS_MAX: usize = 20_000;

/// What a listing brought.
pub(super) struct Listed {
    pub definitions: Vec<Arc<Definition>>,
    /// Tools that were left out, and why.
    pub faults: Vec<String>,
}

impl<S> Watcher<S>
where
    S: Service<Routed, Response = Reply, Error = Error> + Clone + Send,
    S::Future: Send,
{
    pub(super) async fn list(&mut self) -> Result<Listed, Error> {
        let known = self.upstream.era();
        let era = self.era().await?;
        match self.pages().await {
            Ok(listed) => Ok(listed),
            Err(error) => {
                if known.is_none()
                    && era == Era::Legacy
                    && let Some(listed) = self.over_event_stream(&error).await
                {
                    return Ok(listed);
                }
                // What was believed of the server may be what is wrong.
                self.upstream.set_era(None);
                if known.is_none() && era == Era::Legacy {
                    return Err(self.diagnose(error).await);
                }
                // Calls go on in the era that served so far, until a new probe says otherwise.
                if known.is_some() && !changed_its_mind(&error) {
                    self.upstream.set_era(known);
                } else if self.upstream.dialect == DialectKind::Auto {
                    self.upstream.reach.switch(false);
                }
                Err(error)
            }
        }
    }

    pub(super) async fn pages(&mut self) -> Result<Listed, Error> {
        let mut listed = Listed { definitions: Vec::new(), faults: Vec::new() };
        let mut names = HashSet::new();
        let mut cursors: HashSet<Box<str>> = HashSet::new();
        let mut cursor: Option<Box<str>> = None;
        for _ in 0..PAGES_MAX {
            let page = match self
                .ask(SouthRequest::List { family: Family::Tools, cursor: cursor.clone() })
                .await?
            {
                Final::Result(body) => body.raw,
                Final::Error(error) => return Err(self.refused(error.code)),
            };
            let doc = south::read_page(page)?;
            let tools = doc.root().get("tools").filter(|tools| tools.kind() == Kind::Array);
            let tools = tools.ok_or_else(|| self.malformed("a listing without `tools`"))?;
            for tool in tools.elements() {
                match read_definition(tool) {
                    Ok(definition) if names.insert(definition.name.clone()) => {
                        listed.definitions.push(Arc::new(definition));
                    }
                    Ok(definition) => {
                        listed.faults.push(format!("tool `{}` is listed twice", definition.name));
                    }
                    Err(fault) => listed.faults.push(fault.to_string()),
                }
                if listed.definitions.len() > TOOLS_MAX {
                    return Err(self.malformed("more tools than the gateway keeps"));
                }
            }
            let next = doc.root().get("nextCursor").and_then(Value::as_str);
            let Some(next) = next else { return Ok(listed) };
            let next: Box<str> = next.into();
            // A cursor that comes again leads in a circle: what it would bring is known.
            if !cursors.insert(next.clone()) {
                listed.faults.push("its pages lead in a circle; what came before is used".into());
                return Ok(listed);
            }
            cursor = Some(next);
        }
        Err(self.malformed("more pages than the gateway reads"))
    }

    fn refused(&self, code: i64) -> Error {
        let message =
            format!("`{}` refused to list its tools (JSON-RPC error {code})", self.upstream.name);
        Error::new(Code::ExternalServiceError, message).with_kind("rpc_error").from_upstream()
    }

    fn malformed(&self, what: &str) -> Error {
        let message = format!("`{}` answered with {what}", self.upstream.name);
        Error::new(Code::ExternalServiceError, message).with_kind("malformed").from_upstream()
    }
}

/// Whether a failure says that the server speaks otherwise than before, not merely that it is
/// away.
fn changed_its_mind(error: &Error) -> bool {
    matches!(error.kind(), Some("malformed" | "rpc_error" | "400" | "404" | "405" | "415"))
}

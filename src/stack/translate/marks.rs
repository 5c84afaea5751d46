//! What a server of 2026-07-28 wants repeated in headers, when it has changed under way.
//!
//! A call whose headers and arguments disagree is refused before it is begun, so that it may go
//! out once more. The definition in use stays the one that was pinned: only what is repeated
//! follows the server, for this call.

use std::{collections::HashSet, future::poll_fn};

use tokio::time::timeout_at;
use tower::Service;

use super::{
    super::stage::{Era, Hop, Repeat, Routed, SouthRequest},
    give_up::GiveUp,
    outgoing::{self, write},
    southbound::{Read, failed, read, timed_out},
    stream,
};
use crate::{
    body::Body,
    dialect::south,
    error::Error,
    json::Value,
    mcp::{Family, rpc},
    model::{
        call::{Client, Meta},
        reply::Final,
    },
    registry::{ParamHeader, read_definition},
};

/// Pages that are looked through for one tool.
const PAGES_MAX: usize = 100;

/// Whether a server of 2026-07-28 refuses a call for what its headers repeat.
pub(super) fn disagrees(routed: &Routed, end: &Final) -> bool {
    matches!(routed.request, SouthRequest::CallTool { .. })
        && matches!(routed.upstream.era(), Some(Era::Modern(_)))
        && matches!(end, Final::Error(error) if error.code == i64::from(rpc::HEADER_MISMATCH))
}

/// The marks that the called tool has at its server now; `None` where they are as they were, or
/// cannot be learnt.
pub(super) async fn anew<S>(inner: &mut S, routed: &Routed) -> Option<Box<[ParamHeader]>>
where
    S: Service<Hop, Response = http::Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let tool = routed.request.tool()?;
    let name = routed.upstream.name.as_str();
    let found = match find(inner, routed, tool.name()).await {
        Ok(found) => found?,
        Err(error) => {
            tracing::debug!(upstream.name = name, %error, "a tool could not be looked up again");
            return None;
        }
    };
    if found == tool.definition.params {
        return None;
    }
    let shown = &*tool.qualified;
    tracing::warn!(
        upstream.name = name,
        tool.name = shown,
        "the arguments that its headers repeat have changed under way"
    );
    Some(found)
}

/// Looks through the listing, as the caller, up to a tool.
async fn find<S>(
    inner: &mut S,
    routed: &Routed,
    tool: &str,
) -> Result<Option<Box<[ParamHeader]>>, Error>
where
    S: Service<Hop, Response = http::Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let mut cursors = HashSet::new();
    let mut cursor: Option<Box<str>> = None;
    for _ in 0..PAGES_MAX {
        let listing = Routed {
            request: SouthRequest::List { family: Family::Tools, cursor: cursor.take() },
            dialect: None,
            client: Client::default(),
            meta: Meta::default(),
            idempotency_key: None,
            repeat: Repeat::Never,
            refusals: Vec::new(),
            ..routed.clone()
        };
        let Some(Final::Result(page)) = aside(inner, &listing).await? else {
            return Ok(None);
        };
        let doc = south::read_page(page.raw)?;
        let list = doc.root().get(Family::Tools.member());
        let named = |element: &Value<'_>| element.get("name").is_some_and(|name| name.is_str(tool));
        if let Some(element) = list.iter().flat_map(|list| list.elements()).find(named) {
            return Ok(read_definition(element).ok().map(|definition| definition.params));
        }
        let next = doc.root().get("nextCursor").and_then(Value::as_str).map(Box::<str>::from);
        match next.filter(|next| cursors.insert(next.clone())) {
            Some(next) => cursor = Some(next),
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// The one answer to a question of the gateway's own beside a call; `None` for anything else.
async fn aside<S>(inner: &mut S, routed: &Routed) -> Result<Option<Final>, Error>
where
    S: Service<Hop, Response = http::Response<Body>, Error = Error> + Clone + Send + Sync + 'static,
    S::Future: Send,
{
    let (mut request, hop) = write(routed)?;
    let mut give_up = GiveUp::new(&request, &hop, inner);
    let answered = timeout_at(stream::deadline(&request), async {
        poll_fn(|cx| inner.poll_ready(cx)).await?;
        let response = inner.call(hop).await?;
        read(&request, &mut give_up, response).await
    });
    match answered.await.unwrap_or_else(|_| Err(timed_out(&request))) {
        Ok(Read::End(end)) => {
            give_up.disarm();
            request.close(Ok(&end));
            Ok(Some(end))
        }
        Ok(Read::Stream(..)) => Ok(None),
        Err(error) => Err(failed(request, give_up, error)),
    }
}

/// Makes a second attempt of a call, whose headers repeat what these marks want and nothing else.
pub(super) fn rewrite(hop: &mut Hop, routed: &Routed, params: &[ParamHeader]) {
    let SouthRequest::CallTool { tool, arguments, .. } = &routed.request else { return };
    for param in &tool.definition.params {
        hop.headers.remove(&param.header);
    }
    outgoing::repeat_arguments(&mut hop.headers, params, arguments.as_ref());
}

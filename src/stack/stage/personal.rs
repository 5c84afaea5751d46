//! Servers of employees' own: a small world beside the one of all, for whoever has any.
//!
//! What such a world consists of, and when it is made anew, is `app`'s; here is only what the
//! layers ask for, and which of the two worlds a call is about.

use std::{pin::Pin, sync::Arc};

use tokio::sync::watch;
use url::Url;

use super::World;
use crate::{
    error::Error,
    model::{
        call::{Call, Request, Surface, Target},
        caller::Caller,
        server::UpstreamName,
        server_key::normalised,
    },
    policy::View,
    registry::Listing,
};

/// An employee's own world, once it is known.
pub type Loading = Pin<Box<dyn Future<Output = Result<Option<Arc<World>>, Error>> + Send>>;

/// What an employee has of his own.
pub enum Own {
    Nothing,
    There(Arc<World>),
    /// The store has to be asked.
    Loading(Loading),
}

/// Where the servers of employees are known.
pub trait Personal: Send + Sync {
    /// What the caller's employee has of his own, bound to the rules of `base`.
    fn of(&self, caller: &Caller, base: &Arc<World>) -> Own;

    /// Sees each change of anybody's.
    fn watch(&self) -> watch::Receiver<u64>;
}

/// A second world, whose things a list has after those of the first.
#[derive(Clone)]
pub struct Beside {
    pub world: Arc<World>,
    pub view: Arc<View>,
}

/// Whether a call may be about what its employee has of his own. What is found among everybody's
/// is not.
pub fn may_be_own(call: &Call, base: &World) -> bool {
    if call.caller.principal.employee.is_none() {
        return false;
    }
    match &call.surface {
        Surface::Upstream(name) => name.is_key(),
        Surface::Aggregate => match &call.request {
            Request::CallTool(asked) => {
                asked.name.starts_with("mcp_") && !has_tool(base, &asked.name)
            }
            Request::Ask(ask) => match &ask.target {
                Target::Prompt(name) => name.starts_with("mcp_"),
                Target::Resource(uri) | Target::Template(uri) => uri.starts_with("mcp."),
                Target::Task(_) => true,
            },
            Request::List { .. }
            | Request::Initialize { .. }
            | Request::Discover
            | Request::Listen(_) => true,
            Request::Ping
            | Request::Notification(_)
            | Request::Misread(_)
            | Request::SetLevel(_) => false,
        },
    }
}

fn has_tool(base: &World, name: &str) -> bool {
    base.catalog.resolve(&Surface::Aggregate, name).is_some()
}

/// Whether a list on the aggregate has an employee's own things too.
pub fn is_of_both(call: &Call) -> bool {
    call.surface == Surface::Aggregate
        && matches!(
            call.request,
            Request::List { .. }
                | Request::Initialize { .. }
                | Request::Discover
                | Request::Listen(_)
        )
}

/// Whether an operator's upstream has this key at another address. No server of an employee's has
/// it then: calls that name the key, and credentials that are kept under it, would go to either.
pub fn is_taken(base: &World, key: &str, address: &Url) -> bool {
    let mut same = base.upstreams.iter().filter(|upstream| *upstream.server_key == *key);
    same.any(|upstream| upstream.address.as_deref() != Some(&*normalised(address)))
}

/// The operator's upstream of a server's key that a view lets somebody use: to whoever may use
/// nothing of it, it is no server of his. Of several it is the one on which he sees the tool, if one
/// is named. Of one that was never listed nobody knows what he would see there.
pub fn of_operator(
    base: &World,
    view: &View,
    key: &str,
    tool: Option<&str>,
) -> Option<UpstreamName> {
    let seen = view.visible();
    let mut first = None;
    for upstream in base.upstreams.iter().filter(|upstream| *upstream.server_key == *key) {
        let surface = Surface::Upstream(upstream.name.clone());
        let named = tool.and_then(|tool| base.catalog.resolve(&surface, tool));
        if named.is_some_and(|tool| seen.contains(tool.index)) {
            return Some(upstream.name.clone());
        }
        let shows = |name: &UpstreamName, index| *name == upstream.name && seen.contains(index);
        let is_open = base.catalog.listing(&upstream.name) != Some(&Listing::Listed)
            || base.catalog.tools().iter().any(|tool| shows(&tool.upstream, tool.index))
            || base.catalog.items().iter().any(|item| shows(&item.upstream, item.index));
        if is_open {
            first.get_or_insert_with(|| upstream.name.clone());
        }
    }
    first
}

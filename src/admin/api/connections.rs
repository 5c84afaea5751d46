//! Who is connected, and to whom the gateway is.

use futures_util::FutureExt;
use http::Method;

use super::{Route, tokens::Need};

pub(super) const SHOW: Route = Route {
    id: "showConnections",
    method: Method::GET,
    path: "/admin/api/connections",
    summary: "Connections of clients, and how each upstream is doing.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, _| async { Ok(api.gateway.connections()) }.boxed(),
};

//! The configuration in effect.

use futures_util::FutureExt;
use http::Method;

use super::{Route, tokens::Need};

pub(super) const SHOW: Route = Route {
    id: "showConfig",
    method: Method::GET,
    path: "/admin/api/config",
    summary: "The configuration in effect, defaults included and secrets left out.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, _| async { Ok(api.gateway.config()) }.boxed(),
};

//! The servers behind the gateway: who they say they are, how they do, how old their listing is.

use futures_util::FutureExt;
use http::Method;
use serde_json::json;

use super::{Failure, Route, tokens::Need};
use crate::error::Code;

pub(super) const SHOW: Route = Route {
    id: "listServers",
    method: Method::GET,
    path: "/admin/api/servers",
    summary: "Every server: its serverKey, what it says of itself, the revision and dialect that \
              it speaks, its health, its last listing and its last error.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, _| async { Ok(json!({ "servers": api.gateway.servers() })) }.boxed(),
};

pub(super) const ONE: Route = Route {
    id: "showServer",
    method: Method::GET,
    path: "/admin/api/servers/{upstream}",
    summary: "One server, by its upstream's name or its serverKey.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, asked| {
        async move {
            let given = asked.given();
            let is_it = |server: &serde_json::Value| {
                server["upstream"] == *given || server["serverKey"] == *given
            };
            let servers = api.gateway.servers();
            servers.into_iter().find(is_it).ok_or_else(|| {
                Failure::new(Code::NotFound, "there is no such server: GET /admin/api/servers")
            })
        }
        .boxed()
    },
};

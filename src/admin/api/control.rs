//! What changes the running gateway: loading anew, draining, the log.

use futures_util::FutureExt;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::{Failure, Route, tokens::Need};
use crate::error::Code;

pub(super) const RELOAD: Route = Route {
    id: "reload",
    method: Method::POST,
    path: "/admin/api/reload",
    summary: "Does what SIGHUP does, and says what became of it: policies `applied`, `unchanged` \
              or `rejected` with every fault, the certificate, and whether the configuration has \
              changed, which needs a new process.",
    need: Need::Operate,
    action: Some("reload"),
    query: &[],
    body: None,
    run: |api, _| {
        async {
            api.gateway.reload().await.map_err(|why| Failure {
                status: StatusCode::CONFLICT,
                ..Failure::new(Code::Conflict, why)
            })
        }
        .boxed()
    },
};

pub(super) const DRAIN: Route = Route {
    id: "drain",
    method: Method::POST,
    path: "/admin/api/drain",
    summary: "Does what SIGTERM does: not ready, then closed, then gone when the calls are.",
    need: Need::Operate,
    action: Some("drain"),
    query: &[],
    body: None,
    run: |api, _| {
        async {
            let state = if api.gateway.drain() { "begun" } else { "under way" };
            Ok(json!({ "drain": state }))
        }
        .boxed()
    },
};

pub(super) const LOG_LEVEL: Route = Route {
    id: "setLogLevel",
    method: Method::PUT,
    path: "/admin/api/log-level",
    summary: "Another filter for the log, until the process ends: a level, or what RUST_LOG takes.",
    need: Need::Operate,
    action: Some("log_level"),
    query: &[],
    body: Some(
        r#"{"type":"object","required":["filter"],"additionalProperties":false,"properties":{"filter":{"type":"string","description":"`debug`, or `info,hangu::stack=trace`"}}}"#,
    ),
    run: |api, asked| {
        async move {
            let wrong = |why: String| Failure::new(Code::InvalidArgs, why);
            let wanted: LogLevel = serde_json::from_slice(&asked.body)
                .map_err(|_| wrong("the body is a JSON object with `filter`, a text".to_owned()))?;
            let before = api.gateway.log_filter();
            api.gateway.set_log_filter(&wanted.filter).map_err(wrong)?;
            Ok(json!({ "filter": api.gateway.log_filter(), "before": before }))
        }
        .boxed()
    },
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    filter: String,
}

//! Definitions of tools: how each stands, and that somebody approves one.

use futures_util::FutureExt;
use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::{Failure, Route, tokens::Need};
use crate::{
    error::Code,
    model::{ids, server::UpstreamName},
    registry::{NotApproved, PinChoice},
};

pub(super) const SHOW: Route = Route {
    method: Method::GET,
    path: "/admin/api/pins",
    summary: "Every tool that was ever listed: the definition that its server lists now, the one \
              that somebody approved, and whether it is held.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, _| async { Ok(json!({ "pins": api.gateway.pins() })) }.boxed(),
};

pub(super) const APPROVE: Route = Route {
    method: Method::POST,
    path: "/admin/api/pins/approve",
    summary: "Approves one definition of a tool, by its digest: that it is the one that was looked \
              at. It stays approved across restarts.",
    need: Need::Approve,
    action: Some("pin_approve"),
    query: &[],
    body: Some(
        r#"{"type":"object","required":["upstream","tool","digest"],"additionalProperties":false,"properties":{"upstream":{"type":"string"},"tool":{"type":"string","description":"the server's own name"},"digest":{"type":"string","pattern":"^sha256:[0-9a-f]{64}$"}}}"#,
    ),
    run: |api, asked| {
        async move {
            let wrong = |why: &'static str| Failure::new(Code::InvalidArgs, why);
            let body: Body = serde_json::from_slice(&asked.body).map_err(|_| {
                wrong("the body is a JSON object with `upstream`, `tool` and `digest`, texts")
            })?;
            let digest = body.digest.strip_prefix("sha256:").and_then(ids::from_hex);
            let digest = digest.ok_or_else(|| {
                wrong(
                    "a digest is `sha256:` and 64 digits of 0-9 and a-f, as /admin/api/pins tells",
                )
            })?;
            let upstream = UpstreamName::parse(&body.upstream)
                .map_err(|_| wrong("`upstream` is no upstream's name"))?;
            let choice = PinChoice { upstream, tool: body.tool.into(), digest };
            match api.gateway.approve_pin(choice, &asked.who).await {
                Ok(()) => Ok(json!({ "approved": body.digest })),
                Err(NotApproved::Unknown) => Err(Failure::new(
                    Code::NotFound,
                    "no such tool has this definition, now or when it was seen first: GET \
                     /admin/api/pins",
                )),
                Err(NotApproved::Store(fault)) => {
                    tracing::error!(error = %fault, "An approved definition could not be kept");
                    Err(Failure::new(
                        Code::Internal,
                        "the store cannot be written: nothing is changed",
                    ))
                }
            }
        }
        .boxed()
    },
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    upstream: String,
    tool: String,
    digest: String,
}

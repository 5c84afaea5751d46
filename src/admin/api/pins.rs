//! Definitions of tools: how each stands, what it was before, what differs, and that somebody
//! approves one or goes back to one.

use std::sync::Arc;

use futures_util::FutureExt;
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, Asked, Failure, Parameter, Route, tokens::Need};
use crate::{
    error::Code,
    model::{
        caller::{EmployeeId, TenantId},
        ids,
    },
    registry::{
        PinFault, PinPair, PinWish,
        store::{How, Scope, Which},
    },
};

const TOOL: [Parameter; 2] = [
    Parameter {
        name: "upstream",
        what: "The upstream's name, or TENANT/EMPLOYEE/SERVERKEY of a server that an employee \
               registered.",
        required: true,
    },
    Parameter { name: "tool", what: "The server's own name of the tool.", required: true },
];

pub(super) const SHOW: Route = Route {
    id: "listPins",
    method: Method::GET,
    path: "/admin/api/pins",
    summary: "Every tool that is listed: the definition that its server lists now and its number, \
              the one that is approved, how the one differs from the other, and whether the tool \
              is held; `new`: no policy says what it may do. With `owner` those of the servers that \
              an employee registered.",
    need: Need::Look,
    action: None,
    query: &[Parameter { name: "owner", what: "TENANT/EMPLOYEE.", required: false }],
    body: None,
    run: |api, asked| {
        async move {
            let Some(owner) = asked.parameter("owner") else {
                return Ok(json!({ "pins": api.gateway.pins() }));
            };
            let owner = owner.rsplit_once('/').filter(|(tenant, _)| !tenant.is_empty());
            let owner = owner.and_then(|(tenant, employee)| {
                Some((TenantId::new(tenant), EmployeeId::parse(employee)?))
            });
            let (tenant, owner) =
                owner.ok_or_else(|| wrong("`owner` is a tenant and an employee: acme/E1001"))?;
            let pins = api.gateway.pins_of(tenant, owner).await.map_err(failure)?;
            Ok(json!({ "pins": pins }))
        }
        .boxed()
    },
};

pub(super) const HISTORY: Route = Route {
    id: "showPinHistory",
    method: Method::GET,
    path: "/admin/api/pins/history",
    summary: "Every definition of one tool that is kept, with when it was seen, and who approved \
              which of them when.",
    need: Need::Look,
    action: None,
    query: &TOOL,
    body: None,
    run: |api, asked| {
        async move {
            let (scope, tool) = tool(&asked)?;
            api.gateway.pin_history(scope, tool).await.map_err(failure)
        }
        .boxed()
    },
};

pub(super) const DIFF: Route = Route {
    id: "diffPins",
    method: Method::GET,
    path: "/admin/api/pins/diff",
    summary: "How two definitions of a tool differ, each difference with its class and place; and \
              the same of what is published, where a policy overrides it.",
    need: Need::Look,
    action: None,
    query: &[
        TOOL[0],
        TOOL[1],
        Parameter {
            name: "from",
            what: "A version's number or digest; without it, the approved one.",
            required: false,
        },
        Parameter {
            name: "to",
            what: "The same; without it, the one that is listed.",
            required: false,
        },
    ],
    body: None,
    run: |api, asked| {
        async move {
            let (scope, tool) = tool(&asked)?;
            let side = |name: &str| match asked.parameter(name) {
                None => Ok(None),
                Some(text) => which(&text).map(Some).ok_or_else(|| {
                    wrong(format!("`{name}` is a version's number, or `sha256:` and 64 digits"))
                }),
            };
            let (from, to) = (side("from")?, side("to")?);
            let pair = PinPair { scope, tool, from, to };
            api.gateway.pin_diff(pair).await.map_err(failure)
        }
        .boxed()
    },
};

const WISH: &str = r#"{"type":"object","required":["upstream","tool"],"additionalProperties":false,"properties":{"upstream":{"type":"string"},"tool":{"type":"string","description":"the server's own name"},"digest":{"type":"string","pattern":"^sha256:[0-9a-f]{64}$"},"version":{"type":"integer","minimum":1}}}"#;

pub(super) const APPROVE: Route = Route {
    id: "approvePin",
    method: Method::POST,
    path: "/admin/api/pins/approve",
    summary: "Approves one definition of a tool, by its digest or its version: that it is the one \
              that was looked at. It stays approved across restarts, at every replica. The answer \
              says how the tool stands then.",
    need: Need::Approve,
    action: Some("pin_approve"),
    query: &[],
    body: Some(WISH),
    run: |api, asked| approve(api, asked, How::Approve).boxed(),
};

pub(super) const ROLLBACK: Route = Route {
    id: "rollbackPin",
    method: Method::POST,
    path: "/admin/api/pins/rollback",
    summary: "Approves an earlier definition of a tool again; without `version` and `digest` the \
              one that was approved before the one that is. A tool whose server does not list that \
              one is held, or goes on by it where it only looks and policy lets it.",
    need: Need::Approve,
    action: Some("pin_rollback"),
    query: &[],
    body: Some(WISH),
    run: |api, asked| approve(api, asked, How::Rollback).boxed(),
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    upstream: String,
    tool: String,
    digest: Option<String>,
    version: Option<u64>,
}

async fn approve(api: &Api, asked: Asked<'_>, how: How) -> Result<Value, Failure> {
    let body: Body = serde_json::from_slice(&asked.body).map_err(|_| {
        wrong(
            "the body is a JSON object with `upstream` and `tool`, texts, and `digest`, a text, or \
             `version`, a number",
        )
    })?;
    let which = match (body.digest, body.version) {
        (Some(digest), None) => match digest.starts_with("sha256:").then(|| which(&digest)) {
            Some(Some(which)) => which,
            _ => {
                return Err(wrong(
                    "a digest is `sha256:` and 64 digits of 0-9 and a-f, as /admin/api/pins tells",
                ));
            }
        },
        (None, Some(version)) => Which::Version(version),
        (None, None) if how == How::Rollback => Which::Before,
        (None, None) => {
            return Err(wrong("say which definition is meant: its `digest`, or its `version`"));
        }
        (Some(_), Some(_)) => return Err(wrong("give one of `digest` and `version`")),
    };
    let scope = scope(&body.upstream)?;
    let wish = PinWish { scope, tool: body.tool.into(), which, how };
    api.gateway.approve_pin(wish, &asked.who).await.map_err(|fault| match (fault, which) {
        (PinFault::Unknown, Which::Before) => Failure::new(
            Code::NotFound,
            "no other definition of this tool was approved before: name a `version`, as \
             /admin/api/pins/history lists them",
        ),
        (fault, _) => failure(fault),
    })
}

fn wrong(why: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(Code::InvalidArgs, why)
}

fn failure(fault: PinFault) -> Failure {
    match fault {
        PinFault::Unknown => Failure::new(
            Code::NotFound,
            "no such tool has this definition, now or before: GET /admin/api/pins, and \
             /admin/api/pins/history of the tool",
        ),
        PinFault::Alone => Failure::new(
            Code::NotFound,
            "the tool has no other definition to compare this one with",
        ),
        PinFault::Store(fault) => {
            tracing::error!(error = %fault, "Definitions of tools cannot be read or kept");
            Failure::new(Code::Internal, "the store cannot be used: nothing is changed")
        }
    }
}

/// A number, or a digest.
fn which(text: &str) -> Option<Which> {
    match text.strip_prefix("sha256:") {
        Some(digits) => ids::from_hex(digits).map(Which::Digest),
        None => text.parse().ok().filter(|version| *version > 0).map(Which::Version),
    }
}

/// The tool that a query names.
fn tool(asked: &Asked<'_>) -> Result<(Scope, Arc<str>), Failure> {
    let missing = |name: &str| wrong(format!("`{name}` is missing"));
    let upstream = asked.parameter("upstream").ok_or_else(|| missing("upstream"))?;
    let scope = scope(&upstream)?;
    let tool = asked.parameter("tool").ok_or_else(|| missing("tool"))?;
    Ok((scope, tool.as_str().into()))
}

/// Whose tools are meant.
fn scope(text: &str) -> Result<Scope, Failure> {
    Scope::parse(text)
        .ok_or_else(|| wrong("`upstream` is an upstream's name, or TENANT/EMPLOYEE/SERVERKEY"))
}

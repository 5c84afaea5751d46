//! Tools as operators look at them: what each may do, how it stands, what is wrong with it.

use futures_util::FutureExt;
use http::Method;
use serde_json::{Value, json};

use super::{Asked, Failure, Parameter, Route, tokens::Need};
use crate::error::Code;

pub(super) const SHOW: Route = Route {
    id: "listTools",
    method: Method::GET,
    path: "/admin/api/tools",
    summary: "Every tool that is listed: its server, its risk and cost, how its definition stands, \
              why it is held if it is, and the score of its definition.",
    need: Need::Look,
    action: None,
    query: &[
        Parameter { name: "upstream", what: "Only tools of this upstream.", required: false },
        Parameter { name: "held", what: "`true`: only tools that are held.", required: false },
    ],
    body: None,
    run: |api, asked| {
        async move {
            let mut tools = api.gateway.tools();
            narrow(&mut tools, &asked)?;
            Ok(json!({ "tools": tools }))
        }
        .boxed()
    },
};

pub(super) const ONE: Route = Route {
    id: "showTool",
    method: Method::GET,
    path: "/admin/api/tools/{name}",
    summary: "One tool, by its name on the aggregate (`upstream__tool`) or its own, with every \
              finding about its definition, and the definition.",
    need: Need::Look,
    action: None,
    query: &[Parameter { name: "upstream", what: "Whose the tool is.", required: false }],
    body: None,
    run: |api, asked| {
        async move {
            let upstream = asked.parameter("upstream");
            let mut found = api.gateway.tool(asked.given());
            found.retain(|tool| upstream.as_ref().is_none_or(|of| tool["upstream"] == **of));
            match (found.len(), found.pop()) {
                (1, Some(tool)) => Ok(tool),
                (0, _) => {
                    Err(Failure::new(Code::NotFound, "there is no such tool: GET /admin/api/tools"))
                }
                _ => Err(Failure::new(
                    Code::InvalidArgs,
                    "several upstreams have such a tool: say which with `?upstream=`, or name it \
                     as the aggregate does",
                )),
            }
        }
        .boxed()
    },
};

fn narrow(tools: &mut Vec<Value>, asked: &Asked<'_>) -> Result<(), Failure> {
    if let Some(upstream) = asked.parameter("upstream") {
        tools.retain(|tool| tool["upstream"] == *upstream);
    }
    match asked.parameter("held").as_deref() {
        None => {}
        Some("true") => tools.retain(|tool| !tool["held"].is_null()),
        Some("false") => tools.retain(|tool| tool["held"].is_null()),
        Some(_) => {
            return Err(Failure::new(Code::InvalidArgs, "`held` is `true` or `false`"));
        }
    }
    Ok(())
}

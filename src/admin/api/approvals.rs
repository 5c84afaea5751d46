//! Calls that wait for somebody's yes, as those see them who look after the gateway: all of them,
//! never their arguments, and with a no. A yes is an employee's who has a rule's role, under his
//! own identity (`/v1/approvals`): no token gives one.

use futures_util::FutureExt;
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{Api, Asked, Failure, Parameter, Route, tokens::Need};
use crate::{
    approval::{
        Approval, ApprovalId, DecideFault, State,
        store::{Pick, StoreFault},
    },
    error::Code,
    model::caller::TenantId,
};

/// The most that one answer tells of.
const MOST: u32 = 500;
/// Unless something else is said.
const SOME: u32 = 100;
/// The longest comment, in characters.
const MAX_COMMENT: usize = 1_000;

pub(super) const LIST: Route = Route {
    id: "listApprovals",
    method: Method::GET,
    path: "/admin/api/approvals",
    summary: "Calls that wait for somebody's yes, and what became of others, the newest first: who \
              asked, for which tool, what the rules want and who has said what. Where `next` is \
              there, there may be older ones.",
    need: Need::Look,
    action: None,
    query: &[
        Parameter { name: "tenant", what: "Only of this tenant.", required: false },
        Parameter {
            name: "state",
            what: "`waiting`, `approved`, `refused`, `used` or `expired`.",
            required: false,
        },
        Parameter {
            name: "requester",
            what: "Only what this employee asked for.",
            required: false,
        },
        Parameter { name: "tool", what: "Only calls of this one: UPSTREAM/TOOL.", required: false },
        Parameter { name: "before", what: "The `next` of the answer before.", required: false },
        Parameter { name: "limit", what: "At most so many, 500 of them at most.", required: false },
    ],
    body: None,
    run: |api, asked| list(api, asked).boxed(),
};

pub(super) const SHOW: Route = Route {
    id: "showApproval",
    method: Method::GET,
    path: "/admin/api/approvals/{id}",
    summary: "One request for approval, without its arguments: those are for who decides.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, asked| {
        async move {
            let id = id(asked.given()).ok_or_else(unknown)?;
            let found = api.gateway.approval(id).await.map_err(failed)?;
            found.ok_or_else(unknown)
        }
        .boxed()
    },
};

pub(super) const REFUSE: Route = Route {
    id: "refuseApproval",
    method: Method::POST,
    path: "/admin/api/approvals/{id}/refuse",
    summary: "Says no to a call that waits, or whose yes has not been used yet, in the name of the \
              token. There is no such route for a yes: employees with a rule's role give it.",
    need: Need::Approve,
    action: Some("approval_refuse"),
    query: &[],
    body: Some(
        r#"{"type":"object","additionalProperties":false,"properties":{"comment":{"type":"string","maxLength":1000,"description":"why; whoever sees the request reads it"}}}"#,
    ),
    run: |api, asked| refuse(api, asked).boxed(),
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    comment: Option<String>,
}

async fn list(api: &Api, asked: Asked<'_>) -> Result<Value, Failure> {
    let most = usize::try_from(asked.number("limit", MOST, SOME)?).unwrap_or(usize::MAX);
    let state = asked.parameter("state").map(|text| {
        let state = State::ALL.into_iter().find(|state| state.as_str() == text);
        state.ok_or_else(|| {
            wrong("`state` is `waiting`, `approved`, `refused`, `used` or `expired`")
        })
    });
    let before = asked
        .parameter("before")
        .map(|text| id(&text).ok_or_else(|| wrong("`before` is the `next` of an answer before")));
    let pick =
        Pick { tenant: asked.parameter("tenant").map(TenantId::new), before: before.transpose()? };
    let (state, tool) = (state.transpose()?, asked.parameter("tool"));
    let requester = asked.parameter("requester");
    let wanted = Box::new(move |one: &Approval, now_ms: u64| {
        let subject = &one.request.subject;
        let by = subject.requester.as_ref().map(|by| by.as_str());
        state.is_none_or(|state| one.state(now_ms) == state)
            && tool.as_ref().is_none_or(|tool| *tool == *subject.tool)
            && (requester.is_none() || requester.as_deref() == by)
    });
    api.gateway.approvals(pick, most, wanted).await.map_err(failed)
}

async fn refuse(api: &Api, asked: Asked<'_>) -> Result<Value, Failure> {
    let id = id(asked.given()).ok_or_else(unknown)?;
    let body = if asked.body.is_empty() {
        Ok(Body { comment: None })
    } else {
        serde_json::from_slice(&asked.body)
    };
    let Body { comment } =
        body.map_err(|_| wrong("the body is a JSON object, with one text at most, `comment`"))?;
    let comment = comment.map(|comment| comment.trim().to_owned());
    let comment = comment.filter(|comment| !comment.is_empty());
    if comment.as_ref().is_some_and(|comment| comment.chars().count() > MAX_COMMENT) {
        return Err(wrong("`comment` is longer than 1000 characters"));
    }
    let refused = api.gateway.refuse_approval(id, &asked.who, comment).await;
    refused.map_err(|fault| match fault {
        DecideFault::Store(fault) => failed(fault),
        DecideFault::Over(_) => Failure::new(Code::Conflict, fault.to_string()),
        DecideFault::Unknown | DecideFault::Requester | DecideFault::Role | DecideFault::Twice => {
            unknown()
        }
    })
}

/// As it is told, in lower case and with hyphens.
fn id(text: &str) -> Option<ApprovalId> {
    ApprovalId::parse(text)
}

fn wrong(why: &'static str) -> Failure {
    Failure::new(Code::InvalidArgs, why)
}

fn unknown() -> Failure {
    Failure::new(Code::NotFound, "there is no such request for approval: GET /admin/api/approvals")
}

fn failed(fault: StoreFault) -> Failure {
    tracing::error!(error = %fault, "Requests for approval cannot be looked at or refused");
    Failure::new(
        Code::Internal,
        "the store did not answer as it should: ask again how the request stands",
    )
}

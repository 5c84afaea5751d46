//! `/v1/approvals`: what waits for somebody's yes, and saying yes or no to it.
//!
//! Always as a named employee, who sees what he asked for and what he may decide on. What is
//! unknown, another tenant's or not for him answers alike. Nothing here decides: the engine does.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    Person, answer, in_scope,
    input::{self, Input, choices, shown, wrong},
    recordable,
};
use crate::{
    approval::{Approval, ApprovalId, Approvals, DecideFault, State, Vote, store::StoreFault},
    audit::Audit,
    body::Body,
    clock::rfc3339,
    error::{Code, Error, Next},
    model::exchange::{ApprovalAnswer, Exchange},
    stack::v1::ApiRequest,
};

/// The longest comment, in characters.
const MAX_COMMENT: usize = 1_000;

/// How long whoever meets a store that fails is asked to wait.
const STORE_PAUSE: std::time::Duration = std::time::Duration::from_secs(5);

/// Opens the arguments that a request keeps; nothing where they were not kept, or not by this
/// gateway's key.
pub type OpenArguments = Arc<dyn Fn(&Approval) -> Option<Bytes> + Send + Sync>;

/// Requests for approval, for the people who wait for them and decide on them.
pub struct ApprovalsApi {
    pub approvals: Arc<Approvals>,
    pub audit: Arc<Audit>,
    pub open: OpenArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    List,
    Show,
    Decide { yes: bool },
}

// === impl ApprovalsApi ===

impl ApprovalsApi {
    pub(super) async fn answer(
        &self,
        target: Target,
        id: &str,
        person: &Person,
        request: &ApiRequest,
    ) -> Result<Response<Body>, Error> {
        let query = request.parts.uri.query();
        match target {
            Target::List => self.list(query, person).await,
            Target::Show => {
                input::query(query, [])?;
                self.show(id, person).await
            }
            Target::Decide { yes } => {
                input::query(query, [])?;
                self.decide(id, yes, person, request).await
            }
        }
    }

    async fn list(&self, query: Option<&str>, person: &Person) -> Result<Response<Body>, Error> {
        let [state] = input::query(query, ["state"])?;
        let state = state.map(|text| read_state(&text)).transpose()?;
        let Person { tenant, employee, roles, .. } = person;
        let all = self.approvals.list(tenant, employee, roles).await.map_err(store_failed)?;
        let now_ms = self.approvals.now_ms();
        let wanted = |one: &&Approval| state.is_none_or(|state| one.state(now_ms) == state);
        let told = Listed {
            approvals: all.iter().filter(wanted).map(|one| Told::of(one, person, now_ms)).collect(),
        };
        written(&told)
    }

    async fn show(&self, id: &str, person: &Person) -> Result<Response<Body>, Error> {
        let found = self.look(id, person).await?;
        let mut told = Told::of(&found, person, self.approvals.now_ms());
        let subject = &found.request.subject;
        let is_own = subject.requester.as_ref() == Some(&person.employee);
        if is_own || !found.rules_for(&person.roles).is_empty() {
            let raw = (self.open)(&found)
                .and_then(|text| RawValue::from_string(String::from_utf8(text.into()).ok()?).ok());
            told.arguments_kept = Some(raw.is_some());
            told.arguments = raw;
        }
        written(&told)
    }

    async fn decide(
        &self,
        id: &str,
        yes: bool,
        person: &Person,
        request: &ApiRequest,
    ) -> Result<Response<Body>, Error> {
        let exchange = &request.exchange;
        if let Some(id) = ApprovalId::parse(id) {
            let id = u128::from_be_bytes(id.to_bytes());
            exchange.facts().answer = Some(Box::new(ApprovalAnswer { id, yes, state: None }));
        }
        let headers = &request.parts.headers;
        let input = Input::read(headers, request.body.clone(), &["comment"])?;
        let comment = input.text("comment", MAX_COMMENT)?;
        let comment = comment.as_deref().map(str::trim).filter(|comment| !comment.is_empty());
        let found = self.look(id, person).await?;
        note(exchange, &found);
        self.check(&found, yes, request)?;
        let Person { tenant, employee, roles, .. } = person;
        let decided = self
            .approvals
            .decide(tenant, found.id, employee, roles, yes, comment)
            .await
            .map_err(refused)?;
        let now_ms = self.approvals.now_ms();
        if let Some(answer) = &mut exchange.facts().answer {
            answer.state = Some(decided.state(now_ms).as_str());
        }
        written(&Told::of(&decided, person, now_ms))
    }

    /// What the engine does not know of: whether a decision could be recorded, and what a token
    /// is good for.
    fn check(&self, found: &Approval, yes: bool, request: &ApiRequest) -> Result<(), Error> {
        let risk = found.request.risk;
        recordable(&self.audit, risk)?;
        // Whoever may not make such a call with this token may not let it be made either.
        if yes { in_scope(&request.caller, risk) } else { Ok(()) }
    }

    async fn look(&self, id: &str, person: &Person) -> Result<Approval, Error> {
        let Some(id) = ApprovalId::parse(id) else { return Err(unknown()) };
        let Person { tenant, employee, roles, .. } = person;
        let found = self.approvals.look(tenant, id, employee, roles).await.map_err(store_failed)?;
        found.ok_or_else(unknown)
    }
}

/// What a decision is about, for its record.
fn note(exchange: &Exchange, found: &Approval) {
    let mut facts = exchange.facts();
    facts.tool = Some(found.request.subject.tool.clone());
    facts.risk = Some(found.request.risk);
    facts.args_hash = Some(found.request.subject.arguments);
}

fn read_state(text: &str) -> Result<State, Error> {
    State::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
        let known = State::ALL.map(State::as_str);
        wrong(format!("unknown state `{}`: {}", shown(text), choices(&known)))
    })
}

// === Refusals ===

fn unknown() -> Error {
    Error::new(Code::NotFound, DecideFault::Unknown.to_string())
}

fn refused(fault: DecideFault) -> Error {
    let message = fault.to_string();
    match fault {
        DecideFault::Unknown => unknown(),
        DecideFault::Requester => {
            Error::new(Code::PermissionDenied, message).with_reason("own_request")
        }
        DecideFault::Role => Error::new(Code::PermissionDenied, message).with_reason("no_role"),
        DecideFault::Twice | DecideFault::Over(_) => Error::new(Code::Conflict, message),
        DecideFault::Store(fault) => store_failed(fault),
    }
}

fn store_failed(fault: StoreFault) -> Error {
    let error = match fault {
        // No request is made here, so that there is room for one is never asked.
        StoreFault::Unavailable | StoreFault::Full => {
            Error::new(Code::Internal, "the store of approvals cannot be used at present")
                .with_advice(true, Next::Wait)
                .with_retry_after(STORE_PAUSE)
        }
        StoreFault::Unclear => {
            let message = "the store did not say whether the decision was kept: look at it again";
            Error::new(Code::Internal, message).with_unknown_outcome()
        }
    };
    error.with_kind("store_unavailable").with_reason("store_unavailable").with_cause(fault)
}

// === What is told ===

/// A request as those see it who look after the gateway: with its tenant, without its arguments.
pub fn told_whole(approval: &Approval, now_ms: u64) -> serde_json::Value {
    // Texts and numbers: this cannot fail.
    serde_json::to_value(Told::whole(approval, now_ms)).unwrap_or_default()
}

#[derive(Serialize)]
struct Listed<'a> {
    approvals: Vec<Told<'a>>,
}

/// A request, as a person sees it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    id: String,
    state: &'static str,
    /// Where it is not plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    tool: &'a str,
    risk: &'static str,
    caller: &'a str,
    requester: Option<&'a str>,
    args_hash: String,
    revision: &'a str,
    asked_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_at: Option<String>,
    rules: Vec<ToldRule<'a>>,
    decisions: Vec<ToldVote<'a>>,
    /// Whether whoever is told may.
    #[serde(skip_serializing_if = "Option::is_none")]
    may_decide: Option<bool>,
    /// With one request alone, for those who may see them.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_kept: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct ToldRule<'a> {
    rule: &'a str,
    roles: Vec<&'a str>,
    count: u32,
    missing: u32,
}

#[derive(Serialize)]
struct ToldVote<'a> {
    by: String,
    decision: &'static str,
    rules: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<&'a str>,
    at: String,
}

impl<'a> Told<'a> {
    fn of(approval: &'a Approval, person: &Person, now_ms: u64) -> Self {
        let requester = approval.request.subject.requester.as_ref();
        let may_decide = approval.state(now_ms) == State::Waiting
            && requester != Some(&person.employee)
            && !approval.has_said(&person.employee)
            && !approval.rules_for(&person.roles).is_empty();
        Self { tenant: None, may_decide: Some(may_decide), ..Self::whole(approval, now_ms) }
    }

    /// As those see it who look after the gateway.
    fn whole(approval: &'a Approval, now_ms: u64) -> Self {
        let request = &approval.request;
        let subject = &request.subject;
        let state = approval.state(now_ms);
        let requester = subject.requester.as_ref();
        Self {
            id: approval.id.to_string(),
            state: state.as_str(),
            tenant: Some(subject.tenant.as_str()),
            tool: &subject.tool,
            risk: request.risk.as_str(),
            caller: subject.caller.as_str(),
            requester: requester.map(|requester| requester.as_str()),
            args_hash: subject.arguments.to_string(),
            revision: &subject.revision,
            asked_at: rfc3339(request.asked_ms),
            expires_at: rfc3339(request.expires_ms),
            used_at: approval.used_ms.map(rfc3339),
            rules: request
                .demands
                .iter()
                .map(|demand| ToldRule {
                    rule: &demand.rule,
                    roles: demand.roles.iter().map(|role| role.as_str()).collect(),
                    count: demand.count,
                    missing: approval.missing(demand),
                })
                .collect(),
            decisions: approval.votes.iter().map(ToldVote::of).collect(),
            may_decide: None,
            arguments_kept: None,
            arguments: None,
        }
    }
}

impl<'a> ToldVote<'a> {
    fn of(vote: &'a Vote) -> Self {
        Self {
            by: vote.by.to_string(),
            decision: if vote.yes { "approve" } else { "refuse" },
            rules: vote.rules.iter().map(|rule| &**rule).collect(),
            comment: vote.comment.as_deref(),
            at: rfc3339(vote.at_ms),
        }
    }
}

fn written(told: &impl Serialize) -> Result<Response<Body>, Error> {
    let json = serde_json::to_vec(told).map_err(|error| {
        Error::new(Code::Internal, "the answer cannot be written").with_cause(error)
    })?;
    Ok(answer(json))
}

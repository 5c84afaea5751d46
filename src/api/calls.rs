//! Calls of tools for requests under `/v1`: each enters the stack at `policy`, like one that
//! came by MCP, and leaves a record of its own.
//!
//! Here is only how one call is made and what is known of it afterwards. What a request says, and
//! how its answer looks, the resources know.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderName;
use tokio::time::Instant;
use tower::ServiceExt;

use super::{
    input::{shown, wrong},
    tools::Adapted,
};
use crate::{
    adapt::{is_rewritten, runtime_name},
    body::Body,
    clock::Clock,
    error::{Code, Error, Form},
    mcp::{Family, Method, header},
    model::{
        call::{Call, Client, Meta, Request, Surface, ToolCall},
        call_source::CallSource,
        caller::Caller,
        exchange::{Exchange, KeyedDigest, NorthDialect, Outcome},
        ids,
        reply::{ReplyHeaders, ResultBody},
        server::UpstreamName,
        server_key::is_server_key,
    },
    stack::{
        stage::{Keyed, Own, Personal, Upstreams, World, Worlds, server_of},
        translate::{QUESTION, lite_body, whole},
        v1::{ApiRequest, Calls},
    },
    telemetry::Telemetry,
};

/// Makes calls of tools. One for the process.
#[derive(Clone)]
pub struct ToolCalls {
    pub worlds: Arc<Worlds>,
    pub upstreams: Upstreams,
    pub personal: Option<Arc<dyn Personal>>,
    pub clock: Clock,
    pub telemetry: Arc<Telemetry>,
    /// Lists in the forms of runtimes.
    pub adapted: Adapted,
}

/// Whose tool is to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// An upstream, by its name.
    Upstream(Box<str>),
    /// Whichever server of this key the caller has.
    Key(Box<str>),
    /// Any: the tool is named as `/mcp` names it.
    Any,
}

/// A call that is to be made.
#[derive(Debug, Clone)]
pub struct Invocation {
    pub server: Server,
    /// As the server's own path names it, `/mcp/{upstream}`.
    pub tool: Box<str>,
    /// A JSON object that has been checked to be one, as it was written.
    pub arguments: Option<Bytes>,
    /// What the request's body says; it and the header must not differ.
    pub idempotency_key: Option<Box<str>>,
    /// What the header Idempotency-Key says, where the request makes no other call.
    pub key_header: Option<Box<str>>,
    /// Only what would happen is asked.
    pub dry_run: bool,
}

/// A call that was made, or refused.
#[derive(Debug)]
pub struct Made {
    pub result: Result<Answer, Error>,
    pub facts: CallFacts,
}

/// What a tool answered, be it good or `isError`.
#[derive(Debug)]
pub struct Answer {
    /// What layers say of limits and replays.
    pub headers: ReplyHeaders,
    body: ResultBody,
}

/// What is known of a call that is over.
#[derive(Debug, Clone)]
pub struct CallFacts {
    /// `toolCallId`, as the call's record has it.
    pub id: u128,
    pub latency: Duration,
    /// None where the call was refused before its arguments were looked at.
    pub args_hash: Option<KeyedDigest>,
    /// None where there is no result, or only one of a dry run.
    pub result_ref: Option<KeyedDigest>,
    pub outcome: Outcome,
    /// The error's code, where it ended in one.
    pub code: Option<Code>,
    /// The tool is one that the caller sees, whatever became of the call.
    pub admitted: bool,
}

// === impl ToolCalls ===

impl ToolCalls {
    /// The exchange of one of several calls that a request makes: in the request's trace, with a
    /// record and a span of its own. The request itself, too, leaves a record.
    pub fn part(&self, request: &ApiRequest) -> Arc<Exchange> {
        Arc::new(request.exchange.part(Instant::now(), self.clock.now_ms()))
    }

    /// Makes one call and waits for its end; `exchange` is the request's own where the request is
    /// nothing but this call, and one of [`Self::part`] otherwise.
    ///
    /// Whoever stops waiting ends the call, as with MCP-Lite.
    pub async fn make(
        &self,
        calls: Calls,
        request: &ApiRequest,
        exchange: &Arc<Exchange>,
        invocation: Invocation,
    ) -> Made {
        let began = Instant::now();
        {
            let mut facts = exchange.facts();
            facts.method = Some(Method::CallTool);
            facts.call_id.get_or_insert_with(|| ids::uuid_v7(exchange.started_ms));
        }
        let result = self.answered(calls, request, exchange, invocation).await;
        let mut facts = exchange.facts();
        if let Err(error) = &result {
            facts.failed(error);
            facts.status = Some(status(error));
        }
        let told = CallFacts {
            id: facts.call_id.unwrap_or_default(),
            latency: began.elapsed(),
            args_hash: facts.args_hash,
            result_ref: facts.result_ref,
            outcome: facts.outcome.unwrap_or(Outcome::Ok),
            code: facts.code,
            admitted: facts.admitted,
        };
        Made { result, facts: told }
    }

    async fn answered(
        &self,
        calls: Calls,
        request: &ApiRequest,
        exchange: &Arc<Exchange>,
        invocation: Invocation,
    ) -> Result<Answer, Error> {
        let surface = self.surface(&request.caller, exchange, &invocation).await?;
        let Invocation { tool, arguments, idempotency_key, key_header, dry_run, .. } = invocation;
        let _active = self.telemetry.metrics().enter(Method::CallTool);
        let call = Call {
            exchange: exchange.clone(),
            caller: request.caller.clone(),
            dialect: NorthDialect::McpLite,
            surface,
            request: Request::CallTool(Box::new(ToolCall {
                name: tool,
                arguments,
                others: Vec::new(),
            })),
            client: Client::default(),
            meta: Meta { idempotency_key, dry_run, ..Meta::default() },
            idempotency_key: key_header,
            headers: request.parts.headers.clone(),
        };
        let reply = calls.oneshot(call).await?;
        let (headers, body) = whole(reply, exchange).await.map_err(cannot_be_asked)?;
        Ok(Answer { headers, body })
    }

    /// One page of the tools that `/mcp` lists for the caller: what `tools/list` answers there.
    pub async fn list(
        &self,
        calls: Calls,
        request: &ApiRequest,
        cursor: Option<Box<str>>,
    ) -> Result<(ReplyHeaders, Bytes), Error> {
        let exchange = &request.exchange;
        exchange.facts().method = Some(Method::ListTools);
        let _active = self.telemetry.metrics().enter(Method::ListTools);
        let call = Call {
            exchange: exchange.clone(),
            caller: request.caller.clone(),
            dialect: NorthDialect::McpLite,
            surface: Surface::Aggregate,
            request: Request::List { family: Family::Tools, cursor },
            client: Client::default(),
            meta: Meta::default(),
            idempotency_key: None,
            headers: request.parts.headers.clone(),
        };
        let reply = calls.oneshot(call).await?;
        let (headers, body) = whole(reply, exchange).await?;
        Ok((headers, body.raw))
    }

    /// The name on `/mcp` of a tool that a runtime calls. Only what the caller sees is found
    /// under another name: of what is hidden he is told nothing.
    ///
    /// # Errors
    /// What the caller has of his own cannot be looked up.
    pub async fn named(&self, caller: &Caller, name: &str) -> Result<Box<str>, Error> {
        if !is_rewritten(name) {
            return Ok(name.into());
        }
        let found = |world: &World| {
            let view = world.view_by_now(caller)?;
            let mut seen = world
                .catalog
                .on(&Surface::Aggregate)
                .filter(|tool| view.visible().contains(tool.index));
            seen.find(|tool| runtime_name(&tool.alias) == name).map(|tool| (&*tool.alias).into())
        };
        let world = self.worlds.current();
        let found_there = match found(&world) {
            Some(found) => Some(found),
            None => self.own_world(&world, caller).await?.and_then(|own| found(&own)),
        };
        Ok(found_there.unwrap_or_else(|| name.into()))
    }

    /// The path on which the caller would find the tool.
    async fn surface(
        &self,
        caller: &Caller,
        exchange: &Exchange,
        invocation: &Invocation,
    ) -> Result<Surface, Error> {
        match &invocation.server {
            Server::Any => Ok(Surface::Aggregate),
            Server::Upstream(name) => match UpstreamName::parse(name) {
                Ok(name) => Ok(Surface::Upstream(name)),
                // As of one that could be there.
                Err(_) => {
                    let message = format!("there is no upstream `{}`", shown(name));
                    Err(Error::http(Code::NotFound, 404, message))
                }
            },
            Server::Key(key) => {
                let found = self.server(caller, key, &invocation.tool).await?;
                found.map(|(_, name)| Surface::Upstream(name)).ok_or_else(|| {
                    let mut facts = exchange.facts();
                    facts.tool_asked = Some(invocation.tool.chars().take(128).collect());
                    facts.server_key = is_server_key(key).then(|| (&**key).into());
                    not_configured(key)
                })
            }
        }
    }

    /// The server of a key that a caller's call of a tool goes to, and the world that knows it.
    pub(super) async fn server(
        &self,
        caller: &Caller,
        key: &str,
        tool: &str,
    ) -> Result<Option<(Arc<World>, UpstreamName)>, Error> {
        let Some(name) = UpstreamName::of_key(key) else { return Ok(None) };
        let world = self.worlds.current();
        let own = self.own_world(&world, caller).await?;
        let view = || world.view_by_now(caller);
        let found = server_of(&world, view, own.as_deref(), caller, key, Some(tool));
        Ok(match (found, own) {
            (Some(Keyed::Operators(name)), _) => Some((world, name)),
            (Some(Keyed::Own), Some(own)) => Some((own, name)),
            _ => None,
        })
    }

    /// What the employee has of his own beside a world, if he has anything.
    pub(super) async fn own_world(
        &self,
        world: &Arc<World>,
        caller: &Caller,
    ) -> Result<Option<Arc<World>>, Error> {
        let Some(personal) = &self.personal else { return Ok(None) };
        match personal.of(caller, world) {
            Own::Nothing => Ok(None),
            Own::There(own) => Ok(Some(own)),
            Own::Loading(loading) => loading.await,
        }
    }
}

// === impl Answer ===

impl Answer {
    /// The result object as its server wrote it, without what the gateway adds.
    pub fn raw(&self) -> &Bytes {
        &self.body.raw
    }

    pub fn is_error(&self) -> bool {
        self.body.is_error()
    }

    /// The result as MCP-Lite has it.
    pub fn into_body(self) -> Body {
        lite_body(&self.body)
    }
}

/// Notes where any request says that it comes from, which its caller has to be allowed to say.
/// One that says nothing counts as an agent's.
///
/// # Errors
/// `permission_denied` where the caller's `call_sources` do not list it.
pub(super) fn note_source(request: &ApiRequest) -> Result<(), Error> {
    match said(request)? {
        Some(_) => source(request, CallSource::Agent).map(|_| ()),
        None => {
            request.exchange.facts().source = Some(CallSource::Agent);
            Ok(())
        }
    }
}

/// Where a request says that its calls come from, if its caller may say so; what it says is in
/// the request's record, and in those of its calls. Whoever makes calls asks here first.
///
/// # Errors
/// `permission_denied` where the caller's `call_sources` do not list it.
pub(super) fn source(request: &ApiRequest, absent: CallSource) -> Result<CallSource, Error> {
    let source = said(request)?.unwrap_or(absent);
    request.exchange.facts().source = Some(source);
    let caller = &request.caller;
    if !caller.call_sources.contains(source) {
        let word = source.as_str();
        let message = format!(
            "the caller `{}` may not call as `{word}`: an operator has to list it in its \
             `call_sources`",
            caller.id
        );
        return Err(Error::http(Code::PermissionDenied, 403, message).with_reason("call_source"));
    }
    Ok(source)
}

/// Where a request says that it comes from.
fn said(request: &ApiRequest) -> Result<Option<CallSource>, Error> {
    let Some(text) = one_header(request, &header::CALL_SOURCE)? else { return Ok(None) };
    CallSource::parse(text).map(Some).ok_or_else(|| {
        let known = CallSource::NAMED.map(CallSource::as_str);
        let choices = super::input::choices(&known);
        let message = format!("the header X-Call-Source says `{}`: {choices}", shown(text));
        Error::http(Code::InvalidArgs, 400, message)
    })
}

/// A header that may stand only once.
pub(super) fn one_header<'r>(
    request: &'r ApiRequest,
    name: &HeaderName,
) -> Result<Option<&'r str>, Error> {
    let mut values = request.parts.headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    let bad = |what| Err(Error::http(Code::InvalidArgs, 400, format!("the header {name} {what}")));
    match (values.next(), first.to_str()) {
        (Some(_), _) => bad("is sent twice"),
        (None, Ok(text)) => Ok(Some(text.trim())),
        (None, Err(_)) => bad("is no text"),
    }
}

/// Refuses what is only to be tried and cannot be.
///
/// # Errors
/// With the reason why it cannot.
pub(super) fn never_tried(request: &ApiRequest, why: &str) -> Result<(), Error> {
    match one_header(request, &header::DRY_RUN)? {
        None | Some("false") => Ok(()),
        Some(_) => Err(wrong(why.to_owned()).with_reason("dry_run")),
    }
}

/// The HTTP status under which a refusal is told here.
fn status(error: &Error) -> u16 {
    match error.form() {
        Form::Http { status, .. } => *status,
        Form::Protocol { .. } | Form::Taxonomy => error.code().rest_status(),
    }
}

fn not_configured(key: &str) -> Error {
    let key = shown(key);
    let message = format!("there is no server `{key}` for you: it has to be configured first");
    Error::new(Code::ServerNotConfigured, message)
}

/// Nobody can be asked anything in the middle of a request under `/v1`.
fn cannot_be_asked(error: Error) -> Error {
    if error.kind() != Some(QUESTION) {
        return error;
    }
    let message = "the server must ask something before it answers, and who calls under /v1 \
                   cannot be asked: call the tool over MCP";
    Error::new(Code::CapabilityMissing, message).with_kind(QUESTION)
}

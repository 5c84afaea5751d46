//! Writing a request to a server: what it is asked, what it is told of the client, and the
//! headers that the protocol wants of both.

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    super::stage::{Era, Hop, Repeat, Routed, SouthRequest, Upstream, next_id},
    again,
    southbound::Request,
};
use crate::{
    dialect::{
        header_value, notices, questions,
        south::{Outbound, Speech},
        streamable_http, task,
    },
    error::{Code, Error},
    idempotency::{ReplayKey, Scope},
    mcp::{Capabilities, Method, Served, Version, header, meta},
    model::{
        call::{Client, Meta, RawMembers},
        exchange::{Attempt, Exchange, NorthDialect, Outcome},
        ids,
        trace::TraceParent,
    },
    registry::{MarkedArguments, ParamHeader},
};

/// Writes what a server is asked.
pub(super) fn write(routed: &Routed) -> Result<(Request, Hop), Error> {
    let Routed { exchange, caller, upstream, request, dialect, client, meta, headers, .. } = routed;
    let (dialect, client) = (*dialect, *client);
    let speech = speech(upstream, request)?;
    if speech == Speech::Lite
        && let SouthRequest::Ask { ask, .. } = request
    {
        // Its dialect has nothing but tools.
        return Err(streamable_http::unserved(ask.method.as_str()));
    }
    let id = next_id();
    let (method, tool, timeout, max_time) = match request {
        SouthRequest::CallTool { tool, timeout, max_time, .. } => {
            (Method::CallTool, Some(tool.clone()), *timeout, *max_time)
        }
        SouthRequest::List { family, .. } => {
            (family.list_method(), None, upstream.timeout, upstream.max_time)
        }
        SouthRequest::Ask { ask, timeout, max_time } => (ask.method, None, *timeout, *max_time),
        SouthRequest::Probe => {
            // A session is opened with what the server has to say, and so the ping is enough.
            let method =
                if matches!(speech, Speech::Legacy(_)) { Method::Ping } else { Method::Discover };
            (method, None, upstream.timeout, upstream.max_time)
        }
        SouthRequest::Listen(_) => (Method::Listen, None, upstream.timeout, upstream.max_time),
        SouthRequest::Subscribe { on, .. } => {
            let method = if *on { Method::Subscribe } else { Method::Unsubscribe };
            (method, None, upstream.timeout, upstream.max_time)
        }
    };
    let name = match request {
        SouthRequest::Ask { ask, .. } => Some(ask.target.name().into()),
        _ => tool.as_ref().map(|tool| tool.name().clone()),
    };
    let Begun { started, parent, tracestate, number: attempt } =
        begin(exchange, upstream, method, name, speech);
    let traceparent = parent.render();
    let params = match request {
        SouthRequest::Listen(wanted) => notices::listen_params(wanted),
        SouthRequest::Subscribe { uri, .. } => notices::uri_params(uri),
        _ => RawMembers::new(),
    };
    let (arguments, others, cursor) = match request {
        SouthRequest::CallTool { arguments, others, .. } => (arguments.as_ref(), others, None),
        SouthRequest::List { cursor, .. } => (None, &params, cursor.as_deref()),
        SouthRequest::Ask { ask, .. } => (None, &ask.params, None),
        SouthRequest::Probe | SouthRequest::Listen(_) | SouthRequest::Subscribe { .. } => {
            (None, &params, None)
        }
    };
    let user = caller
        .as_deref()
        .filter(|_| speech == Speech::Lite && upstream.inject_user && method == Method::CallTool);
    // The gateway's own discovery; what it asks beside a call is that caller's.
    let discovers = caller.is_none().then(|| upstream.discovers());
    let capabilities = match discovers {
        Some(all) => Some(declared(all)),
        None => capabilities(upstream, dialect, &client, meta),
    };
    let outbound = Outbound {
        speech,
        id,
        method,
        tool: tool.as_ref().map(|tool| &**tool.name()),
        arguments,
        target: match request {
            SouthRequest::Ask { ask, .. } => Some(&ask.target),
            _ => None,
        },
        others,
        cursor,
        meta,
        capabilities: capabilities.as_deref(),
        log_level: client.log_level,
        traceparent: &traceparent,
        tracestate: tracestate.as_deref(),
        user,
    };
    let body = outbound.body();
    if body.len() > upstream.max_request_bytes {
        return Err(Error::new(
            Code::PayloadTooLarge,
            format!(
                "the request is larger than the {} bytes that `{}` takes",
                upstream.max_request_bytes, upstream.name
            ),
        ));
    }
    let mut own = outbound.headers();
    if let (Speech::Modern(_), Some(tool)) = (speech, &tool)
        && !tool.definition.params.is_empty()
    {
        repeat_arguments(&mut own, &tool.definition.params, arguments);
    }
    if let Ok(value) = http::HeaderValue::from_str(&traceparent) {
        own.insert(header::TRACEPARENT, value);
    }
    if let Some(value) = tracestate.and_then(|state| http::HeaderValue::try_from(&*state).ok()) {
        own.insert(header::TRACESTATE, value);
    }
    if let Some(key) = key_header(routed, speech) {
        own.insert(header::IDEMPOTENCY_KEY, key);
    }
    let hop = Hop {
        exchange: exchange.clone(),
        caller: caller.clone(),
        upstream: upstream.clone(),
        method: http::Method::POST,
        path: match (speech, method) {
            (Speech::Lite, Method::CallTool) => "/tools/call",
            (Speech::Lite, _) => "/tools/list",
            _ => "",
        },
        headers: own,
        body,
        session: matches!(speech, Speech::Legacy(_)),
        capabilities: discovers.unwrap_or_else(|| upstream.declares(&client, dialect)),
        log_level: client.log_level,
        credential: None,
        held: None,
        tried: None,
        client_headers: headers.clone(),
    };
    let request = Request {
        id,
        upstream: upstream.clone(),
        exchange: exchange.clone(),
        caller: caller.clone(),
        dialect,
        client,
        method,
        speech,
        attempt,
        watched: again::is_watched(routed),
        probe: None,
        progress_token: meta.progress_token.clone(),
        end: started + max_time,
        timeout,
    };
    Ok((request, hop))
}

/// The key of a call as its server gets it in a header: as it is where the server is told whose it
/// is, as a provider is; else, if it honours keys, one that no other caller's call has.
fn key_header(routed: &Routed, speech: Speech) -> Option<http::HeaderValue> {
    let key = routed.idempotency_key.as_deref()?;
    if speech == Speech::Lite {
        return http::HeaderValue::from_str(key).ok();
    }
    let (Repeat::UnderKey { argument: None }, Some(caller), Some(tool)) =
        (&routed.repeat, &routed.caller, routed.request.tool())
    else {
        return None;
    };
    let key = ReplayKey::parse(key).ok()?;
    let scoped = Scope::of(caller, &tool.qualified, &key).for_server();
    http::HeaderValue::try_from(scoped).ok()
}

/// Repeats marked arguments in headers, from the body that is sent; a null or absent one has
/// none.
pub(super) fn repeat_arguments(
    headers: &mut http::HeaderMap,
    params: &[ParamHeader],
    arguments: Option<&Bytes>,
) {
    let marked = MarkedArguments::read(arguments);
    for param in params {
        let Some(text) = marked.text(param) else { continue };
        // An encoded value is visible ASCII.
        if let Ok(value) = http::HeaderValue::from_str(&header_value::encode(&text)) {
            headers.insert(param.header.clone(), value);
        }
    }
}

fn speech(upstream: &Upstream, request: &SouthRequest) -> Result<Speech, Error> {
    match upstream.era() {
        Some(Era::Modern(_) | Era::Lite) | None if matches!(request, SouthRequest::Probe) => {
            Ok(Speech::Modern(Version::LATEST))
        }
        Some(Era::Modern(version)) => Ok(Speech::Modern(version)),
        // The session knows which version it agreed on; this one is what is asked for.
        Some(Era::Legacy) => Ok(Speech::Legacy(upstream.pinned.unwrap_or(Version::LATEST_LEGACY))),
        Some(Era::Lite) => Ok(Speech::Lite),
        None => Err(Error::new(
            Code::ExternalServiceError,
            format!("how `{}` speaks is being found out: try again", upstream.name),
        )
        .with_kind("era_unknown")
        .with_advice(true, crate::error::Next::Retry)
        .from_upstream()),
    }
}

/// What a stateless server is told that the client can be asked for: what a stateless client
/// wrote itself, as far as it goes on; of any other, what it declared once. Tasks are nothing
/// that those can declare; the gateway does where it sees one through, or hears of one.
fn capabilities<'a>(
    upstream: &Upstream,
    dialect: Option<NorthDialect>,
    client: &Client,
    meta: &'a Meta,
) -> Option<Cow<'a, [u8]>> {
    match dialect {
        Some(NorthDialect::Modern) => {
            let is = |key: &Bytes| key.as_ref() == meta::CLIENT_CAPABILITIES.as_bytes();
            let member = meta.members.iter().find(|member| is(&member.key))?;
            Some(questions::carried(&member.value, extensions(upstream)))
        }
        Some(NorthDialect::Legacy(_)) => Some(declared(client.capabilities)),
        Some(NorthDialect::McpLite) | None => {
            let tasks = client.capabilities & Capabilities::TASKS;
            (!tasks.is_empty()).then(|| declared(tasks))
        }
    }
}

fn declared<'a>(capabilities: Capabilities) -> Cow<'a, [u8]> {
    Cow::Owned(capabilities.to_json(Version::LATEST).into_bytes())
}

/// The extensions whose declaration goes on to a server: those that it has and the gateway
/// carries.
fn extensions(upstream: &Upstream) -> &'static [&'static str] {
    if upstream.served().contains(Served::TASKS) { &[task::EXTENSION] } else { &[] }
}

/// An attempt that has begun.
pub(super) struct Begun {
    pub started: Instant,
    /// Its place among the exchange's attempts.
    pub number: usize,
    parent: TraceParent,
    tracestate: Option<Box<str>>,
}

/// Notes that an attempt begins.
pub(super) fn begin(
    exchange: &Exchange,
    upstream: &Upstream,
    method: Method,
    tool: Option<Arc<str>>,
    speech: Speech,
) -> Begun {
    let started = Instant::now();
    let span_id = ids::span_id();
    let mut facts = exchange.facts();
    let parent =
        TraceParent { trace_id: facts.trace.trace_id, span_id, sampled: facts.trace.sampled };
    facts.attempts.push(Attempt {
        upstream: upstream.name.shared(),
        method,
        tool,
        version: match speech {
            Speech::Modern(version) | Speech::Legacy(version) => Some(version),
            Speech::Lite => None,
        },
        span_id,
        started,
        ended: None,
        server: None,
        http_version: None,
        is_pipe: upstream.reach.is_pipe(),
        outcome: Outcome::Cancelled,
        error: None,
        rpc_code: None,
        code: None,
        number: 1,
    });
    Begun {
        started,
        number: facts.attempts.len() - 1,
        parent,
        tracestate: facts.trace.tracestate.clone(),
    }
}

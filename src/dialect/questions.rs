//! What servers ask clients in the middle of a call, and the answers, in the form of each era:
//! requests of the server's own before 2026-07-28, results that ask since.
//!
//! It knows no session, no stream and no state but as text; who may be asked is decided elsewhere.

use std::borrow::Cow;

use bytes::Bytes;

use super::{jsonrpc, north};
use crate::{
    json::{self, Doc, Kind, Value},
    mcp::{Capabilities, Method, Version, meta, rpc},
    model::reply::{ResultBody, RpcError},
};

/// The member of a call that brings answers.
pub const ANSWERS: &str = "inputResponses";
/// The member of a result that asks, and of the call that answers, which is the server's own.
pub const STATE: &str = "requestState";

const REQUESTS: &str = "inputRequests";

/// The answer to an elicitation by somebody who gives none.
pub const CANCEL: Bytes = Bytes::from_static(b"{\"action\":\"cancel\"}");

/// Outline: the result, its requests, a request, its params.
const LIMITS: json::Limits =
    json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 4 };

/// One thing that a server asks.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Under which its answer comes.
    pub key: Box<str>,
    pub method: Method,
    /// The raw `params` object, if any.
    pub params: Option<Bytes>,
}

/// A result that asks.
#[derive(Debug)]
pub struct Round {
    pub asked: Vec<Asked>,
    pub state: Option<String>,
}

// === What is asked ===

/// What a client must have declared to be asked this; `None` where no client can be asked.
pub fn needs(method: Method, params: Option<&Bytes>) -> Option<Capabilities> {
    match method {
        Method::CreateMessage => {
            let tools = params.and_then(parse).is_some_and(|doc| doc.root().get("tools").is_some());
            let more = if tools { Capabilities::SAMPLING_TOOLS } else { Capabilities::NONE };
            Some(Capabilities::SAMPLING | more)
        }
        Method::Elicit if is_url(params) => Some(Capabilities::ELICITATION_URL),
        Method::Elicit => Some(Capabilities::ELICITATION),
        Method::ListRoots => Some(Capabilities::ROOTS),
        _ => None,
    }
}

fn is_url(params: Option<&Bytes>) -> bool {
    params
        .and_then(parse)
        .is_some_and(|doc| doc.root().get("mode").is_some_and(|mode| mode.is_str("url")))
}

/// A question's params as 2026-07-28 writes them: an elicitation says its mode, a link has no id,
/// and nobody reports progress.
pub fn to_modern(method: Method, params: Option<Bytes>) -> Option<Bytes> {
    let params = without_token(params?);
    if method != Method::Elicit {
        return Some(params);
    }
    let Some(doc) = parse(&params) else { return Some(params) };
    if is_url(Some(&params)) {
        return Some(rewritten(doc.root(), &["elicitationId"], None));
    }
    if doc.root().get("mode").is_some() {
        return Some(params);
    }
    Some(rewritten(doc.root(), &[], Some(("mode", "form"))))
}

/// Params without a token for progress: what is put into a result has no request whose progress
/// could be told.
fn without_token(params: Bytes) -> Bytes {
    let Some(doc) = parse(&params) else { return params };
    let Some(member) = doc.root().get("_meta").filter(|m| m.get(meta::PROGRESS_TOKEN).is_some())
    else {
        return params;
    };
    let rest = rewritten(member, &[meta::PROGRESS_TOKEN], None);
    if rest == "{}" {
        return rewritten(doc.root(), &["_meta"], None);
    }
    let (start, end) = (member.offset(), member.offset() + member.raw().len());
    [&params[..start], &rest, &params[end..]].concat().into()
}

/// A question's params for a client of a handshake revision. Who is asked to follow a link gets
/// `id` as the link's id.
pub fn to_legacy(
    method: Method,
    params: Option<Bytes>,
    version: Version,
    id: &str,
) -> Option<Bytes> {
    let params = params?;
    if method != Method::Elicit {
        return Some(params);
    }
    let Some(doc) = parse(&params) else { return Some(params) };
    if is_url(Some(&params)) {
        return Some(rewritten(doc.root(), &["elicitationId"], Some(("elicitationId", id))));
    }
    if version >= Version::V2025_11_25 || doc.root().get("mode").is_none() {
        return Some(params);
    }
    Some(rewritten(doc.root(), &["mode"], None))
}

/// An object without some members, and with another in front.
fn rewritten(object: Value<'_>, without: &[&str], with: Option<(&str, &str)>) -> Bytes {
    let mut out = Vec::with_capacity(object.raw().len() + 64);
    out.push(b'{');
    if let Some((name, value)) = with {
        json::write_str(&mut out, name);
        out.push(b':');
        json::write_str(&mut out, value);
        out.push(b',');
    }
    for (key, value) in object.members() {
        if without.iter().any(|name| key.is(name)) {
            continue;
        }
        out.push(b'"');
        out.extend_from_slice(key.raw());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value.raw());
        out.push(b',');
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
    out.into()
}

/// The result that asks, as 2026-07-28 has it.
pub fn asking<'a>(asked: impl IntoIterator<Item = &'a Asked>, state: Option<&str>) -> ResultBody {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(b"{\"resultType\":\"input_required\",\"inputRequests\":{");
    for asked in asked {
        json::write_str(&mut out, &asked.key);
        out.extend_from_slice(b":{\"method\":");
        json::write_str(&mut out, asked.method.as_str());
        if let Some(params) = &asked.params {
            out.extend_from_slice(b",\"params\":");
            out.extend_from_slice(params);
        }
        out.extend_from_slice(b"},");
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
    if let Some(state) = state {
        out.extend_from_slice(b",\"requestState\":");
        json::write_str(&mut out, state);
    }
    out.push(b'}');
    own(out.into())
}

/// A result of the gateway's own that is dressed for its client like a server's.
fn own(raw: Bytes) -> ResultBody {
    let shape = parse(&raw).map(|doc| north::shape(doc.root())).unwrap_or_default();
    ResultBody::upstream(raw, shape)
}

/// Reads a result that asks.
///
/// # Errors
/// What is wrong with it, in a few words.
pub fn read(result: &Bytes) -> Result<Round, &'static str> {
    let doc = parse(result).ok_or("it cannot be read")?;
    let state = match doc.root().get(STATE) {
        Some(state) => Some(state.as_str().ok_or("its state is no text")?.into_owned()),
        None => None,
    };
    let mut asked = Vec::new();
    match doc.root().get(REQUESTS) {
        Some(requests) if requests.kind() == Kind::Object => {
            for (key, request) in requests.members() {
                let method = request.get("method").and_then(Value::as_str);
                let method = method.ok_or("a question of it has no method")?;
                asked.push(Asked {
                    key: key.unescaped().into(),
                    method: Method::parse(&method),
                    params: request.get("params").map(Value::bytes),
                });
            }
        }
        Some(_) => return Err("its questions are no object"),
        None => {}
    }
    if asked.is_empty() && state.is_none() {
        return Err("it neither says what nor has a state");
    }
    Ok(Round { asked, state })
}

/// A result that asks with another state in the place of its own, or with one where it has none.
pub fn with_state(result: &Bytes, state: &str) -> Option<ResultBody> {
    let doc = parse(result)?;
    let Some(old) = doc.root().get(STATE) else {
        return Some(own(rewritten(doc.root(), &[], Some((STATE, state)))));
    };
    let (start, end) = (old.offset(), old.offset() + old.raw().len());
    let mut raw = Vec::with_capacity(result.len() + state.len());
    raw.extend_from_slice(&result[..start]);
    json::write_str(&mut raw, state);
    raw.extend_from_slice(&result[end..]);
    Some(own(raw.into()))
}

/// The links that a server's error wants somebody to follow first, as a result that asks; only
/// 2025-11-25 has that error.
pub fn links(error: &RpcError) -> Option<ResultBody> {
    let doc = parse(error.data.as_ref()?)?;
    let listed = doc.root().get("elicitations").filter(|list| list.kind() == Kind::Array)?;
    let asked: Vec<Asked> = listed
        .elements()
        .enumerate()
        .map(|(index, link)| Asked {
            key: format!("link-{}", index + 1).into(),
            method: Method::Elicit,
            params: to_modern(Method::Elicit, Some(link.bytes())),
        })
        .collect();
    (!asked.is_empty()).then(|| asking(&asked, None))
}

/// The params of a question that wants a link followed. Of the revisions with such questions only
/// 2025-11-25 has ids of links.
pub fn link(url: &str, message: &str, id: Option<&str>) -> Bytes {
    let mut out = Vec::with_capacity(url.len() + message.len() + 96);
    out.extend_from_slice(b"{\"mode\":\"url\"");
    for (name, value) in [("elicitationId", id), ("url", Some(url)), ("message", Some(message))] {
        if let Some(value) = value {
            out.push(b',');
            json::write_str(&mut out, name);
            out.push(b':');
            json::write_str(&mut out, value);
        }
    }
    out.push(b'}');
    out.into()
}

/// The error that names what a client has to declare, as 2026-07-28 has it.
pub fn missing(needed: Capabilities, message: &str) -> RpcError {
    let mut text = Vec::with_capacity(message.len() + 2);
    json::write_str(&mut text, message);
    let data = format!("{{\"requiredCapabilities\":{}}}", needed.to_json(Version::LATEST));
    RpcError {
        code: i64::from(rpc::MISSING_CAPABILITY),
        message: text.into(),
        data: Some(data.into()),
    }
}

/// The capabilities that such an error names, as one JSON object.
pub fn required(error: &RpcError) -> Option<Bytes> {
    let doc = parse(error.data.as_ref()?)?;
    let required = doc.root().get("requiredCapabilities")?;
    (required.kind() == Kind::Object).then(|| required.bytes())
}

// === What is answered ===

/// The answers that a call brings, by their keys; `None` where that is no object of objects.
pub fn answers(raw: &Bytes) -> Option<Vec<(Box<str>, Bytes)>> {
    let doc = parse(raw)?;
    if doc.root().kind() != Kind::Object {
        return None;
    }
    let mut answers = Vec::new();
    for (key, value) in doc.root().members() {
        if value.kind() != Kind::Object {
            return None;
        }
        answers.push((key.unescaped().into(), value.bytes()));
    }
    Some(answers)
}

/// Writes answers as a call brings them.
pub fn write_answers(answers: &[(Box<str>, Bytes)]) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.push(b'{');
    for (key, value) in answers {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_str(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value);
    }
    out.push(b'}');
    out.into()
}

/// Whether an answer is one to such a question at all.
pub fn answers_to(method: Method, answer: &Bytes) -> bool {
    let Some(doc) = parse(answer) else { return false };
    let root = doc.root();
    let has = |name: &str, kind: Kind| root.get(name).is_some_and(|value| value.kind() == kind);
    match method {
        Method::Elicit => root
            .get("action")
            .is_some_and(|action| ["accept", "decline", "cancel"].iter().any(|a| action.is_str(a))),
        Method::CreateMessage => has("role", Kind::String) && root.get("content").is_some(),
        Method::ListRoots => has("roots", Kind::Array),
        _ => root.kind() == Kind::Object,
    }
}

/// `action` of an answer to an elicitation.
pub fn action(answer: &Bytes) -> Option<String> {
    let doc = parse(answer)?;
    doc.root().get("action").and_then(Value::as_str).map(Into::into)
}

/// The response to a server's own request.
pub fn response(id: &[u8], answer: &[u8]) -> Bytes {
    let mut out = jsonrpc::result_head(id, 112);
    out.extend_from_slice(answer);
    out.push(b'}');
    out.into()
}

/// The response to a server's own request that the client refused.
pub fn refusal(id: &[u8], error: &RpcError) -> Bytes {
    jsonrpc::error_response(Some(id), error.code, &error.message, error.data.as_deref())
}

/// The response to a server's own request that nobody will answer any more.
pub fn unanswered(id: &[u8], method: Method) -> Bytes {
    if method == Method::Elicit {
        return response(id, &CANCEL);
    }
    let code = i64::from(rpc::INTERNAL);
    jsonrpc::error_response(Some(id), code, b"\"nobody answered\"", None)
}

// === What is declared ===

/// A client's capabilities as it wrote them, without the extensions that do not go on.
pub fn carried<'a>(declared: &'a Bytes, extensions: &[&str]) -> Cow<'a, [u8]> {
    if memchr::memmem::find(declared, b"extensions").is_none() {
        return Cow::Borrowed(declared);
    }
    let Some(doc) = parse(declared) else { return Cow::Borrowed(b"{}") };
    let mut out = Vec::with_capacity(declared.len());
    out.push(b'{');
    for (key, value) in doc.root().members() {
        if key.is("extensions") {
            let kept = value.members().filter(|(id, _)| extensions.iter().any(|name| id.is(name)));
            let kept: Vec<_> = kept.collect();
            if kept.is_empty() {
                continue;
            }
            out.extend_from_slice(b"\"extensions\":{");
            for (id, settings) in kept {
                write_member(&mut out, id.raw(), settings.raw());
            }
            out.pop();
            out.extend_from_slice(b"},");
        } else {
            write_member(&mut out, key.raw(), value.raw());
        }
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
    Cow::Owned(out)
}

fn write_member(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(key);
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
    out.push(b',');
}

fn parse(text: &Bytes) -> Option<Doc> {
    Doc::parse(text.clone(), &LIMITS).ok()
}

#[cfg(test)]
mod tests;

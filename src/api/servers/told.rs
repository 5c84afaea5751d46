//! What is told of a server: never a secret, for there is none in what is kept of it.

use std::{collections::HashMap, sync::Arc};

use http::Response;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    api::answer,
    body::Body,
    clock::rfc3339,
    error::{Code, Error},
    json::{Doc, Duplicates, Limits, Value},
    mcp::{Family, Version},
    model::{caller::EmployeeId, server::Risk, trace::to_hex},
    registry::{
        read_definition,
        server::{Archive, Failure, Kept, Registration},
    },
};

#[derive(Serialize)]
pub(super) struct Listed<'a> {
    pub servers: Vec<Told<'a>>,
}

/// A server, as somebody who sees it is told of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told<'a> {
    server_key: &'a str,
    url: &'a str,
    name: Option<&'a str>,
    owner: &'a str,
    /// Whether it is of whoever asks.
    own: bool,
    /// With whom it is shared.
    team: Option<&'a str>,
    /// What kind of credential opens it.
    auth: &'static str,
    /// Whether whoever asks has set one.
    has_credential: bool,
    /// Where he grants one, if it is granted and not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_url: Option<String>,
    dialect: &'static str,
    /// How it turned out to speak: `modern`, `handshake`, `mcp-lite`.
    spoken: Option<&'static str>,
    /// Of the protocol.
    revision: Option<&'static str>,
    /// What it calls itself.
    server_info: Option<ToldInfo<'a>>,
    health: &'static str,
    last_error: Option<ToldFailure<'a>>,
    listed_at: Option<String>,
    tool_count: usize,
    prompt_count: usize,
    resource_count: usize,
    options: Box<RawValue>,
    created_at: String,
    updated_at: String,
    /// One more with each change.
    edition: u64,
    /// With one server alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<ToldTool>>,
}

#[derive(Serialize)]
struct ToldInfo<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct ToldFailure<'a> {
    message: &'a str,
    at: String,
}

/// By their names.
pub(super) type Standings = HashMap<Arc<str>, Standing>;

/// How a tool stands with policy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Nobody has said what it may do, so it is hidden.
    pub new: bool,
    /// It cannot be called before somebody has approved it.
    pub held: bool,
    pub risk: Risk,
}

/// A tool as it was last listed.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToldTool {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// SHA-256 over its canonical definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<&'static str>,
    /// Why it cannot be used at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
}

const LIMITS: Limits = Limits { depth: 512, duplicates: Duplicates::Allow, outline: 2 };

// === impl Told ===

impl<'a> Told<'a> {
    pub fn of(kept: &'a Kept, employee: &EmployeeId, has_credential: bool) -> Self {
        let Kept { registration, archive } = kept;
        let archive = archive.as_ref();
        let count = |family| archive.map_or(0, |archive| archive.of(family).len());
        let spoken = archive.and_then(|archive| archive.spoken);
        let listed_ms = archive.map(|archive| archive.listed_ms).filter(|ms| *ms > 0);
        let server = archive.and_then(|archive| archive.server.as_ref());
        Self {
            server_key: &registration.server_key,
            url: registration.url.as_str(),
            name: registration.name.as_deref(),
            owner: registration.owner.as_str(),
            own: registration.owner == *employee,
            team: registration.team.as_deref(),
            auth: registration.auth.as_str(),
            has_credential,
            connect_url: None,
            dialect: registration.dialect_name(),
            spoken: spoken.map(|spoken| spoken.as_str()),
            revision: spoken.and_then(|spoken| spoken.version()).map(Version::as_str),
            server_info: server
                .map(|server| ToldInfo { name: &server.name, version: &server.version }),
            health: health(archive),
            last_error: archive.and_then(|archive| archive.failure.as_ref()).map(ToldFailure::of),
            listed_at: listed_ms.map(rfc3339),
            tool_count: count(Family::Tools),
            prompt_count: count(Family::Prompts),
            resource_count: count(Family::Resources) + count(Family::Templates),
            options: options(registration),
            created_at: rfc3339(registration.created_ms),
            updated_at: rfc3339(registration.updated_ms),
            edition: registration.revision,
            tools: None,
        }
    }

    pub fn with_connect_url(self, connect_url: Option<String>) -> Self {
        Self { connect_url, ..self }
    }

    /// Also with what it was last seen to have.
    pub fn with_tools(self, kept: &Kept, standings: &Standings) -> Self {
        let elements = kept.archive.as_ref().map(|archive| archive.of(Family::Tools));
        let tools = elements.unwrap_or_default().iter().filter_map(|element| {
            let doc = Doc::parse(element.clone(), &LIMITS).ok()?;
            Some(ToldTool::of(doc.root(), standings))
        });
        Self { tools: Some(tools.collect()), ..self }
    }
}

impl ToldTool {
    fn of(listed: Value<'_>, standings: &Standings) -> Self {
        let text = |name: &str| listed.get(name).and_then(Value::as_str).map(|it| it.into_owned());
        let read = read_definition(listed);
        let digest = read.as_ref().ok().map(|read| format!("sha256:{}", to_hex(&read.digest)));
        let name = text("name").unwrap_or_default();
        let standing = standings.get(&*name);
        Self {
            name,
            title: text("title"),
            description: text("description"),
            schema_version: digest,
            new: standing.map(|standing| standing.new),
            held: standing.map(|standing| standing.held),
            risk: standing.map(|standing| standing.risk.as_str()),
            fault: read.err().map(|fault| fault.to_string()),
        }
    }
}

impl<'a> ToldFailure<'a> {
    fn of(failure: &'a Failure) -> Self {
        Self { message: &failure.message, at: rfc3339(failure.at_ms) }
    }
}

/// `ok`, `failing` since it was last listed, or `unknown`: never listed.
fn health(archive: Option<&Archive>) -> &'static str {
    match archive {
        Some(Archive { failure: Some(_), .. }) => "failing",
        Some(Archive { listed_ms: 1.., .. }) => "ok",
        _ => "unknown",
    }
}

/// As they are posted.
fn options(registration: &Registration) -> Box<RawValue> {
    let mut out = Vec::new();
    registration.options.write(&mut out);
    let text = String::from_utf8(out).ok();
    text.and_then(|text| RawValue::from_string(text).ok()).unwrap_or_default()
}

pub(super) fn written(told: &impl Serialize) -> Result<Response<Body>, Error> {
    let json = serde_json::to_vec(told).map_err(|error| {
        Error::new(Code::Internal, "the answer cannot be written").with_cause(error)
    })?;
    Ok(answer(json))
}

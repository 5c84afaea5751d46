//! The configuration in effect, for whoever runs the gateway: in the words of the file, with its
//! defaults, and without a secret.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{
    Caller, Config, EnvSource, HeaderSource, Issuer, Process, Store, ToolsCallErrors, TraceTrust,
    Upstream, raw::ALGORITHMS,
};
use crate::{
    mcp::Version,
    model::{
        call_source::{CallSource, CallSources},
        caller::Roles,
        server::DialectKind,
        template::Part,
    },
    upstream::PeerTlsFiles,
    yaml::duration_text,
};

/// Stands where a secret is.
pub(super) const SECRET: &str = "[secret]";

impl Config {
    /// All of it as JSON.
    pub fn shown(&self) -> Value {
        let texts = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>();
        let callers: Map<String, Value> =
            self.callers.iter().map(|one| (one.id.to_string(), caller(one))).collect();
        let issuers: Map<String, Value> =
            self.issuers.iter().map(|one| (one.name.to_string(), issuer(one))).collect();
        let upstreams: Map<String, Value> =
            self.upstreams.iter().map(|one| (one.name.to_string(), upstream(one))).collect();
        json!({
            "version": "hangu/v1",
            "listen": self.listen.to_string(),
            "workers": self.workers.map_or(0, std::num::NonZeroUsize::get),
            "admin": admin(self),
            "policies": self.policies,
            "pins": {
                "versions": self.pins.versions,
                "max_tools": self.pins.max_tools,
                "unlisted": duration_text(self.pins.unlisted),
            },
            "audit": {
                "file": self.audit.file,
                "strict": self.audit.strict.iter().map(|risk| risk.as_str()).collect::<Vec<_>>(),
            },
            "callers": callers,
            "issuers": issuers,
            "public_url": self.public_url.as_ref().map(ToString::to_string),
            "upstreams": upstreams,
            "tls": self.tls.as_ref().map(|tls| json!({ "cert": tls.cert, "key": tls.key })),
            "origins": texts(&mut self.origins.iter().map(ToString::to_string)),
            "trusted_proxies": texts(&mut self.trusted_proxies.iter().map(ToString::to_string)),
            "trace": { "trust": match self.trace.trust {
                TraceTrust::Authenticated => "authenticated",
                TraceTrust::Never => "never",
            } },
            "telemetry": { "max_tenants": self.telemetry.max_tenants },
            "errors": { "tools_call": match self.errors.tools_call {
                ToolsCallErrors::Result => "result",
                ToolsCallErrors::JsonRpc => "jsonrpc",
                ToolsCallErrors::Status => "status",
            } },
            "sessions": if self.sessions.required { "required" } else { "optional" },
            "session_ttl": time(self.sessions.ttl),
            "drain_delay": time(self.drain.delay),
            "drain_timeout": time(self.drain.timeout),
            "names": format!("{:?}", self.names).to_lowercase(),
            "lists": {
                "page_size": self.lists.page_size,
                "wait": time(self.lists.wait),
                "max_bytes": self.lists.max_bytes,
            },
            "store": match &self.store {
                Store::Memory => "memory".to_owned(),
                Store::Sqlite(file) => format!("sqlite:{}", file.display()),
                // Its address may hold a password.
                Store::Postgres(_) => format!("postgres:{SECRET}"),
            },
            "streams": streams(self),
            "credentials": {
                "cache_age": time(self.credentials.age),
                "cache_entries": self.credentials.entries,
            },
            "servers": servers(self),
            "edge": edge(self),
            "idempotency": idempotency(self),
            "questions": questions(self),
            "egress": {
                "allow": texts(&mut self.egress.allow.iter().map(ToString::to_string)),
                "ports": texts(&mut self.egress.ports.0.iter().map(ToString::to_string)),
                "resolve": time(self.egress.resolve),
            },
            "steps": {
                "max_time": time(self.steps.limits.max_time),
                "max_steps": self.steps.max_steps,
                "max_variables": self.steps.limits.max_variables,
            },
        })
    }
}

fn servers(config: &Config) -> Value {
    let servers = &config.servers;
    json!({
        "refresh": time(servers.refresh),
        "loaded": servers.loaded,
        "idle": time(servers.idle),
        "max_asked": servers.max_asked,
        "max_asked_each": servers.max_asked_each,
        "timeout": time(servers.timeout),
        "max_time": time(servers.max_time),
        "connect_timeout": time(servers.connect_timeout),
        "max_request_bytes": servers.max_request_bytes,
        "max_response_bytes": servers.max_response_bytes,
        "max_list_bytes": servers.max_list_bytes,
        "max_tools": servers.max_tools,
    })
}

fn time(duration: Duration) -> String {
    duration_text(duration)
}

fn roles(roles: &Roles) -> Vec<&str> {
    roles.iter().map(|role| role.as_str()).collect()
}

fn admin(config: &Config) -> Value {
    let tokens: Map<String, Value> = config
        .admin
        .tokens
        .iter()
        .map(|token| {
            let role = format!("{:?}", token.role).to_lowercase();
            (token.name.to_string(), json!({ "token": SECRET, "role": role }))
        })
        .collect();
    json!({ "listen": config.admin.listen.to_string(), "tokens": tokens })
}

fn caller(caller: &Caller) -> Value {
    let keys: Vec<Value> = caller
        .keys
        .iter()
        .map(|key| json!({ "key": SECRET, "expiresMs": key.expires_ms }))
        .collect();
    let fixed = caller.identity.fixed.as_ref();
    json!({
        "keys": keys,
        "tenant": caller.tenant.as_str(),
        "identity": {
            "header": caller.identity.header,
            "fixed": fixed.map(|one| json!({ "empId": one.id.as_str(), "roles": roles(&one.roles) })),
        },
        "catalog_roles": roles(&caller.catalog_roles),
        "call_sources": sources(caller.call_sources),
    })
}

fn sources(sources: CallSources) -> Vec<&'static str> {
    sources.iter().map(CallSource::as_str).collect()
}

fn issuer(issuer: &Issuer) -> Value {
    let name =
        |wanted| ALGORITHMS.known.iter().find(|(_, one)| one == wanted).map(|(name, _)| name);
    json!({
        "issuer": issuer.issuer,
        "jwks": issuer.jwks.as_str(),
        "audience": issuer.audience,
        "algorithms": issuer.algorithms.iter().filter_map(name).collect::<Vec<_>>(),
        "leeway": time(issuer.leeway),
        "refresh": time(issuer.refresh),
        "min_refresh": time(issuer.min_refresh),
        "stale": time(issuer.stale),
        "call_sources": sources(issuer.call_sources),
    })
}

fn upstream(upstream: &Upstream) -> Value {
    let headers: Map<String, Value> = upstream
        .headers
        .iter()
        .map(|header| (header.name.to_string(), source(&header.value).into()))
        .collect();
    let forwarded: Vec<&str> = upstream.forward_headers.iter().map(|name| name.as_str()).collect();
    json!({
        "urls": upstream.urls.iter().map(url::Url::as_str).collect::<Vec<_>>(),
        "process": upstream.process.as_ref().map(process),
        "dialect": match upstream.dialect {
            DialectKind::Auto => "auto",
            DialectKind::StreamableHttp => "streamable-http",
            DialectKind::HttpSse => "sse",
            DialectKind::Stdio => "stdio",
            DialectKind::McpLite => "mcp-lite",
        },
        "protocol": upstream.protocol.map_or("auto", Version::as_str),
        "auth": upstream.auth.shown(),
        "tls": upstream.tls.as_ref().map(peer_tls),
        "headers": headers,
        "forward_headers": forwarded,
        "inject_user": upstream.inject_user,
        "stateless": upstream.stateless,
        "park": upstream.park,
        "session_idle": time(upstream.session_idle),
        "max_sessions": upstream.max_sessions,
        "timeout": time(upstream.timeout),
        "max_time": time(upstream.max_time),
        "connect_timeout": time(upstream.connect_timeout),
        "poll": time(upstream.poll),
        "max_concurrency": upstream.max_concurrency,
        "max_request_bytes": upstream.max_request_bytes,
        "max_response_bytes": upstream.max_response_bytes,
    })
}

fn peer_tls(files: &PeerTlsFiles) -> Value {
    let client = files.client.as_ref();
    json!({
        "client_cert": client.map(|client| &client.certificate),
        "client_key": client.map(|client| &client.key),
        "ca": files.ca,
    })
}

fn source(source: &HeaderSource) -> String {
    let template = match source {
        HeaderSource::Template(template) => template,
        HeaderSource::Secret(_) => return SECRET.to_owned(),
        HeaderSource::Stored(name) => return format!("[secret {name}]"),
    };
    let part = |part: &Part| match part {
        Part::Literal(text) => text.to_string(),
        Part::Employee => "$ctx.user.empId".to_owned(),
        Part::Roles => "$ctx.user.roles".to_owned(),
        Part::Tenant => "$ctx.tenant".to_owned(),
        Part::Caller => "$ctx.caller".to_owned(),
        Part::CallSource => "$ctx.callSource".to_owned(),
        Part::RequestId => "$ctx.requestId".to_owned(),
        Part::TraceId => "$ctx.traceId".to_owned(),
    };
    template.parts().iter().map(part).collect()
}

fn process(process: &Process) -> Value {
    let env: Map<String, Value> = process
        .env
        .iter()
        .map(|(name, source)| {
            let value = match source {
                EnvSource::Plain(text) => text.as_str(),
                EnvSource::Secret(_) => SECRET,
            };
            (name.clone(), value.into())
        })
        .collect();
    json!({
        "command": process.program,
        "args": process.args,
        "env": env,
        "stop_wait": time(process.stop_wait),
        "max_processes": process.max_processes,
    })
}

fn streams(config: &Config) -> Value {
    let streams = config.streams;
    json!({
        "per_principal": streams.per_principal,
        "total": streams.total,
        "subscriptions": streams.subscriptions,
        "sessions": streams.sessions,
        "resume_window": time(streams.resume_window),
        "resume_bytes": streams.resume_bytes,
        "resume_total": streams.resume_total,
    })
}

fn edge(config: &Config) -> Value {
    let edge = config.edge;
    json!({
        "header_timeout": time(edge.header_timeout),
        "idle_timeout": time(edge.idle_timeout),
        "body_timeout": time(edge.body_timeout),
        "max_connections": edge.max_connections,
        "max_body": edge.max_body,
        "hold": time(edge.hold),
        "max_batch": edge.max_batch,
        "batch_concurrency": edge.batch_concurrency,
    })
}

fn idempotency(config: &Config) -> Value {
    let idempotency = config.idempotency;
    json!({
        "capacity_bytes": idempotency.capacity_bytes,
        "max_keys": idempotency.max_keys,
        "ttl": time(idempotency.ttl),
        "wait": time(idempotency.wait),
        "max_body": idempotency.max_body,
    })
}

fn questions(config: &Config) -> Value {
    let questions = config.questions;
    json!({
        "answer": time(questions.answer),
        "rounds": questions.rounds,
        "max_open": questions.max_open,
        "max_open_each": questions.max_open_each,
    })
}

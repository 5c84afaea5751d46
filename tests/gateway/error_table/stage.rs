//! The gateways and servers that the causes need, a request in each dialect, and what of an answer
//! is the same every time.

use std::{sync::OnceLock, time::Duration};

use regex::Regex;
use serde_json::{Value, json};

use crate::process_support::{
    Answer, KEY, Process, Response, Setup, Upstream, exchange, free_address, text_result, tool,
    until,
};

/// What upstreams say in their bodies, and the gateway never repeats.
pub const UPSTREAM_TEXT: &str = "the upstream's own words";

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Modern,
    Era(&'static str),
    Lite,
}

impl Speaks {
    pub const ALL: [Speaks; 5] = [
        Speaks::Modern,
        Speaks::Era("2025-11-25"),
        Speaks::Era("2025-06-18"),
        Speaks::Era("2025-03-26"),
        Speaks::Lite,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Speaks::Modern => "2026-07-28",
            Speaks::Era(revision) => revision,
            Speaks::Lite => "MCP-Lite",
        }
    }
}

/// Everything there is.
pub struct Stage {
    pub up: Upstream,
    pub lite: Upstream,
    pub gateway: Process,
    /// One that takes a single request of an address.
    pub address: Process,
    /// One with an issuer of tokens.
    pub tokens: Process,
    /// One whose audit file is full.
    pub full: Process,
    _gone: Upstream,
}

const RULES: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: all, effect: allow, roles: [member] }
  - { id: no, effect: deny, tools: [up/hidden] }
  - { id: eu, effect: deny, tools: [up/region], when: { arg: /region, not_in: [eu] }, say: Only in Europe. }
  - { id: ask, effect: require_approval, tools: [up/asks], approval: { roles: [owner], expires: 1h } }
limits:
  - { id: few, per: [tool], tools: [up/rated], rate: 1/1h }
  - { id: one, per: [tool], tools: [up/slot], concurrency: 1, queue: 0 }
";

const WRITES: &str = "pay: { risk: write_low, idempotency: required }, \
     unsure: { risk: write_low, idempotency: optional }";

const CALLERS: &str = "other: { keys: [{ env: OTHER_KEY }], tenant: acme }";

const EXPIRED: &str = "old: { keys: [{ env: OLD_KEY, expires: 2020-01-31T00:00:00Z }], tenant: acme, identity: header }";

fn tools() -> Vec<Value> {
    let mut tools: Vec<Value> =
        ["echo", "hidden", "region", "asks", "rated", "slot", "pay", "unsure"]
            .into_iter()
            .map(tool)
            .collect();
    tools.push(json!({
        "name": "typed",
        "inputSchema": {
            "type": "object", "required": ["n"], "properties": { "n": { "type": "integer" } },
        },
        "outputSchema": { "type": "object" },
    }));
    tools
}

impl Stage {
    pub fn start() -> Self {
        let (up, lite) = (Upstream::start(&tools()), Upstream::start(&[tool("echo")]));
        let mut gone = Upstream::start(&[tool("echo")]);
        let lite_entry =
            format!("{{ url: \"{}\", dialect: mcp-lite, poll: 1h, timeout: 400ms }}", lite.url());
        let gateway = Setup::new()
            .config("edge: { max_body: 8KiB }\nidempotency: { wait: 50ms }")
            .caller(CALLERS)
            .caller(EXPIRED)
            .env("OTHER_KEY", "acme-other-key-of-the-tests-")
            .env("OLD_KEY", "acme-old-key-of-the-tests---")
            .upstream_entry("rest", &lite_entry)
            .upstream("up", &up, "timeout: 400ms", WRITES)
            .upstream("small", &up, "max_request_bytes: 1KiB, max_response_bytes: 1KiB", "")
            .upstream("capped", &up, "timeout: 700ms, max_time: 1s", "")
            .upstream("gone", &gone, "", "")
            .upstream_at("never", &format!("http://{}/mcp", free_address()), "timeout: 1s", "")
            .policy("rules.yaml", RULES)
            .start();
        // All but one have listed.
        for name in ["up", "rest", "small", "capped", "gone"] {
            let path = format!("/mcp/{name}");
            let client = gateway.client(&path, crate::process_support::Dialect::Lite);
            let list = || client.send("tools/list", json!({})).status == 200;
            until(name, || list() && !client.list().is_empty());
        }
        gone.stop();
        let single = "version: hangu/v1\nkind: Policy\nscope: platform\nlimits:\n  \
                      - { id: address, per: [address], rate: 1/1h }\n";
        let address =
            Setup::new().upstream("up", &up, "", "").policy("limits.yaml", single).start();
        let issuer = "issuers:\n  corp: { issuer: \"https://sso.example\", jwks: \
                      \"http://127.0.0.1:1/keys\", audience: gw, tenant: acme }";
        let tokens = Setup::new().upstream("up", &up, "", "").config(issuer).start();
        let full = Setup::new()
            .config("store: memory")
            .upstream("up", &up, "", WRITES)
            .file_blocks(8)
            .start();
        let stage = Self { up, lite, gateway, address, tokens, full, _gone: gone };
        let _ = Ask::call("echo").send_to(&stage.address, Speaks::Lite);
        while Ask::call("unsure").send_to(&stage.full, Speaks::Lite).status == 200 {}
        stage
    }

    /// What the standard server answers to calls from now on.
    pub fn up_answers(&self, answer: Answer) {
        self.up.on_call(move |_| answer.clone());
    }

    /// It says what it is told to, in an answer to each request.
    pub fn up_says(&self, status: u16, member: &'static str, value: Value) {
        self.up.on_call(move |seen| {
            let id: Value = serde_json::from_str::<Value>(&seen.body).unwrap()["id"].clone();
            let mut message = json!({ "jsonrpc": "2.0", "id": id });
            message[member] = value.clone();
            Answer::json(status, &message)
        });
    }

    /// It takes its time.
    pub fn up_waits(&self, time: Duration) {
        self.up.on_call(move |seen| seen.result(text_result("late")).after(time));
    }

    pub fn lite_answers(&self, answer: Answer) {
        self.lite.on_call(move |_| answer.clone());
    }
}

/// A request, before it is written in a dialect.
#[derive(Debug, Clone)]
pub struct Ask {
    path: String,
    method: &'static str,
    params: Value,
    id: Value,
    headers: Vec<(String, String)>,
}

impl Ask {
    pub fn call(tool: &str) -> Self {
        Self::of("tools/call", json!({ "name": tool, "arguments": {} }))
    }

    pub fn of(method: &'static str, params: Value) -> Self {
        let headers =
            [("X-Api-Key", KEY), ("SSO-Emp-Id", "E1"), ("Content-Type", "application/json")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
        Self { path: "/mcp/up".to_owned(), method, params, id: 7.into(), headers }
    }

    pub fn at(mut self, path: &str) -> Self {
        self.path = path.to_owned();
        self
    }

    pub fn with(mut self, arguments: Value) -> Self {
        self.params["arguments"] = arguments;
        self
    }

    /// One more member of `_meta`.
    pub fn meta(mut self, name: &str, value: Value) -> Self {
        self.params["_meta"][name] = value;
        self
    }

    pub fn id(mut self, id: u64) -> Self {
        self.id = id.into();
        self
    }

    /// In the place of one of that name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub fn twice(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn send(&self, stage: &Stage, speaks: Speaks) -> Response {
        self.send_to(&stage.gateway, speaks)
    }

    pub fn send_to(&self, gateway: &Process, speaks: Speaks) -> Response {
        let (path, headers, body) = self.written(speaks);
        send(gateway, "POST", &path, &headers, body.to_string().as_bytes())
    }

    /// The request around another body, or by another method.
    pub fn raw(&self, stage: &Stage, speaks: Speaks, method: &str, body: &[u8]) -> Response {
        let (path, headers, _) = self.written(speaks);
        send(&stage.gateway, method, &path, &headers, body)
    }

    pub fn written(&self, speaks: Speaks) -> (String, Vec<(String, String)>, Value) {
        let mut headers = self.headers.clone();
        let mut add = |name: &str, value: &str| {
            if !headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        };
        add("Accept", "application/json, text/event-stream");
        let mut params = self.params.clone();
        match speaks {
            Speaks::Lite => {
                let path = format!("{}/{}", self.path, self.method);
                return (path, headers, params);
            }
            Speaks::Era(revision) => add("MCP-Protocol-Version", revision),
            Speaks::Modern => {
                add("MCP-Protocol-Version", "2026-07-28");
                add("Mcp-Method", self.method);
                if let Some(name) = params["name"].as_str() {
                    add("Mcp-Name", name);
                }
                let meta = &mut params["_meta"];
                meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
                meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            }
        }
        let mut message = json!({ "jsonrpc": "2.0", "method": self.method, "params": params });
        if !self.id.is_null() {
            message["id"] = self.id.clone();
        }
        (self.path.clone(), headers, message)
    }

    pub fn notification(mut self) -> Self {
        self.id = Value::Null;
        self
    }
}

fn send(
    gateway: &Process,
    method: &str,
    path: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> Response {
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    exchange(gateway.address, method, path, &headers, body).unwrap()
}

/// Status, headers and body, without what is another every time.
pub fn redacted(answer: &Response) -> String {
    static TRACE: OnceLock<[(Regex, &str); 5]> = OnceLock::new();
    let patterns = TRACE.get_or_init(|| {
        [
            (r#""traceId":"[0-9a-f]{32}""#, r#""traceId":"[trace]""#),
            (r#""retryAfterMs":\d+"#, r#""retryAfterMs":[ms]"#),
            (r"127\.0\.0\.1:\d+", "[host]"),
            (r"in \d+ s\b", "in [s] s"),
            ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "[id]"),
        ]
        .map(|(pattern, with)| (Regex::new(pattern).unwrap(), with))
    });
    let plain = |text: &str| {
        patterns.iter().fold(text.to_owned(), |text, (pattern, with)| {
            pattern.replace_all(&text, *with).into_owned()
        })
    };
    let mut headers: Vec<String> = answer
        .headers
        .iter()
        .filter(|(name, _)| !matches!(&**name, "date" | "content-length" | "connection"))
        .map(|(name, value)| match &**name {
            "x-trace-id" => format!("{name}: [trace]"),
            "retry-after" => format!("{name}: [s]"),
            "ratelimit" => format!("{name}: {}", value.split(";t=").next().unwrap_or_default()),
            "mcp-session-id" => format!("{name}: [session]"),
            _ => format!("{name}: {}", plain(value)),
        })
        .collect();
    headers.sort();
    let text = match answer.header("content-type") {
        // How much came before the end is a matter of time.
        Some("text/event-stream") => answer.json().to_string(),
        _ => answer.text(),
    };
    format!("{}\n  {}\n  {}\n", answer.status, headers.join(" | "), plain(&text))
}

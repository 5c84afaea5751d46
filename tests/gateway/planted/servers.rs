//! Servers that give away what they were sent: in bodies, in headers, in every way of failing.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::process_support::{Answer, Seen, Upstream, prompt, resource, text_result, tool};

/// Ways of failing in which a server can be asked to answer, and whether the caller may be told
/// what it said: an error response of MCP is the server's answer.
pub const WAYS: [(&str, bool); 21] = [
    ("400", false),
    ("401", false),
    ("403", false),
    ("404", false),
    ("409", false),
    ("422", false),
    ("429", false),
    ("500", false),
    ("503", false),
    ("json-400", false),
    ("json-401", false),
    ("json-404", false),
    ("json-500", false),
    ("rpc", true),
    ("not-ours", false),
    ("redirect", false),
    ("same-origin", false),
    ("html", false),
    ("malformed", false),
    ("broken-stream", false),
    ("cut", false),
];

/// How a server gives listings, while something is said here.
pub type Listing = Arc<Mutex<Option<&'static str>>>;

/// A server that echoes.
pub struct Echo {
    pub up: Upstream,
    pub listing: Listing,
}

impl Echo {
    pub fn start(session: Option<&str>) -> Self {
        let up = Upstream::start(&tools());
        let listing = Listing::default();
        echo(&up, &listing, session);
        Self { up, listing }
    }
}

pub fn tools() -> Vec<Value> {
    let strict = json!({ "name": "strict", "description": "Takes one word.",
        "inputSchema": { "type": "object", "additionalProperties": false,
            "properties": { "said": { "type": "string", "maxLength": 3, "enum": ["a"] } } } });
    ["look", "write", "purge"].map(tool).into_iter().chain([strict]).collect()
}

/// Has a server echo; whatever it did before it does where nothing else is asked for.
pub fn echo(up: &Upstream, listing: &Listing, session: Option<&str>) {
    let (listing, session) = (listing.clone(), session.map(str::to_owned));
    up.before(move |seen| answer(seen, *listing.lock(), session.as_deref()));
}

fn answer(seen: &Seen, listing: Option<&str>, session: Option<&str>) -> Option<Answer> {
    let asked = seen.params["arguments"]["do"].as_str();
    let uri = seen.params["uri"].as_str().and_then(|uri| Some(uri.split_once("do=")?.1));
    if let Some(failed) = asked.or(uri).and_then(|way| fail(seen, way)) {
        return Some(failed);
    }
    if let Some(way) = listing
        && !seen.method.starts_with("notifications/")
        && seen.method != "tools/call"
    {
        return fail(seen, way);
    }
    let capabilities = json!({ "tools": {}, "prompts": {}, "resources": {} });
    let modern = json!({ "resultType": "complete", "ttlMs": 0, "cacheScope": "public" });
    let with = |name: &str, value: Value| {
        let mut result = modern.clone();
        result[name] = value;
        seen.result(result)
    };
    Some(match &*seen.method {
        "server/discover" if session.is_some() => Answer::body(400, "text/plain", &all(seen)),
        "initialize" => {
            let result = json!({ "protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": { "name": "echo", "version": "1" } });
            seen.result(result).with_header("Mcp-Session-Id", session?)
        }
        method if method.starts_with("notifications/") => Answer::body(202, "text/plain", ""),
        "server/discover" => seen.result(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": capabilities, "ttlMs": 0, "cacheScope": "public",
        })),
        "prompts/list" => with("prompts", json!([prompt("greet")])),
        "resources/list" => with("resources", json!([resource("file:///a?do=ok")])),
        "resources/templates/list" => with("resourceTemplates", json!([])),
        "prompts/get" => with(
            "messages",
            json!([{ "role": "user", "content": { "type": "text", "text": all(seen) } }]),
        ),
        "resources/read" => {
            with("contents", json!([{ "uri": seen.params["uri"], "text": all(seen) }]))
        }
        "tools/call" => {
            let mut result = text_result(&all(seen));
            result["isError"] = (asked == Some("tool-error")).into();
            seen.result(result)
        }
        _ => return None,
    })
}

/// Everything that came, and something of the server's own where a tool is called.
fn all(seen: &Seen) -> String {
    let headers = seen.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
    let own = match &*seen.method {
        "tools/call" | "prompts/get" | "resources/read" => super::kinds::odd("result"),
        _ => "nothing of its own".to_owned(),
    };
    format!("{}{}{own}\n", headers.collect::<String>(), seen.body)
}

fn fail(seen: &Seen, way: &str) -> Option<Answer> {
    let said = all(seen);
    let sent = ["authorization", "x-provider-key"].iter().find_map(|name| seen.header(name));
    let sent = sent.unwrap_or("none");
    let error = json!({ "code": "invalid_args", "message": said });
    let rpc = |code: i32| {
        let id: Value = serde_json::from_str(&seen.body).unwrap_or_default();
        let error = json!({ "code": code, "message": said, "data": said });
        Answer::json(400, &json!({ "jsonrpc": "2.0", "id": id["id"], "error": error }))
    };
    Some(match way {
        "rpc" => rpc(-32_000),
        // As if the gateway itself had asked wrongly.
        "not-ours" => rpc(-32_020),
        "redirect" => {
            let to = format!("http://elsewhere.example/?token={sent}");
            Answer::body(302, "text/plain", &said).with_header("Location", &to)
        }
        "same-origin" => {
            let to = format!("/mcp?token={}", sent.replace(' ', "%20"));
            Answer::body(307, "text/plain", &said).with_header("Location", &to)
        }
        "html" => Answer::body(200, "text/html", &said),
        "malformed" => Answer::body(200, "application/json", &format!("{{\"jsonrpc\": {said}")),
        "broken-stream" => Answer::body(200, "text/event-stream", &format!("data: {{{said}\n\n")),
        "cut" => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999";
            Answer::Raw(format!("{head}\r\nX-Sent: {sent}\r\n\r\n{said}").into_bytes())
        }
        way => {
            let (kind, status) = match way.split_once('-') {
                Some((_, status)) => ("application/json", status),
                None => ("text/plain", way),
            };
            let said = if kind == "text/plain" {
                said.clone()
            } else {
                json!({ "error": error }).to_string()
            };
            Answer::body(status.parse().ok()?, kind, &said)
                .with_header("WWW-Authenticate", &format!("Bearer realm=\"{sent}\""))
                .with_header("X-Sent", sent)
        }
    })
}

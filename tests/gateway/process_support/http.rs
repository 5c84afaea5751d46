//! A small blocking client: one connection per request, each dialect's form of a call.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

/// What a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 2026-07-28.
    Modern,
    /// 2025-11-25, without a session unless one is opened.
    Legacy,
    Lite,
}

impl Dialect {
    pub const ALL: [Dialect; 3] = [Dialect::Modern, Dialect::Legacy, Dialect::Lite];
}

/// Who calls, where, and how.
#[derive(Debug, Clone)]
pub struct Client {
    pub address: SocketAddr,
    /// `/mcp`, or that of one upstream.
    path: String,
    pub dialect: Dialect,
    headers: Vec<(String, String)>,
    meta: Value,
}

impl Client {
    pub fn new(address: SocketAddr, path: &str, dialect: Dialect) -> Self {
        Self { address, path: path.to_owned(), dialect, headers: Vec::new(), meta: json!({}) }
    }

    pub fn key(self, key: &str) -> Self {
        self.without("X-Api-Key").header("X-Api-Key", key)
    }

    pub fn employee(self, employee: &str) -> Self {
        self.without("SSO-Emp-Id").header("SSO-Emp-Id", employee)
    }

    /// One more header, also of a name that is there already.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// One more member of `_meta`.
    pub fn meta(mut self, name: &str, value: Value) -> Self {
        self.meta[name] = value;
        self
    }

    pub fn call(&self, tool: &str, arguments: Value) -> Response {
        self.send("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// The names that are listed.
    #[track_caller]
    pub fn list(&self) -> Vec<String> {
        let answer = self.send("tools/list", json!({}));
        let result = answer.result();
        let tools = result["tools"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// A request with these params, in the client's dialect.
    pub fn send(&self, method: &str, params: Value) -> Response {
        self.try_send(method, params).unwrap()
    }

    pub fn try_send(&self, method: &str, mut params: Value) -> io::Result<Response> {
        let mut headers = self.headers.clone();
        let mut meta = self.meta.clone();
        let mut path = self.path.clone();
        match self.dialect {
            Dialect::Modern => {
                headers.push(("MCP-Protocol-Version".into(), "2026-07-28".into()));
                headers.push(("Mcp-Method".into(), method.into()));
                if let Some(name) = params["name"].as_str() {
                    headers.push(("Mcp-Name".into(), sentinel(name)));
                }
                meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
                meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            }
            Dialect::Legacy if method != "initialize" => {
                headers.push(("MCP-Protocol-Version".into(), "2025-11-25".into()));
            }
            Dialect::Legacy => {}
            Dialect::Lite => path += &format!("/{method}"),
        }
        if meta.as_object().is_some_and(|meta| !meta.is_empty()) {
            let given = params["_meta"].take();
            params["_meta"] = meta;
            if let Some(given) = given.as_object() {
                for (name, value) in given {
                    params["_meta"][name] = value.clone();
                }
            }
        }
        let body = match self.dialect {
            Dialect::Lite => params,
            _ => json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }),
        };
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        self.raw(&path, &headers, body.to_string().as_bytes())
    }

    /// A POST of these bytes, with these headers beside what a JSON body needs.
    pub fn raw(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> io::Result<Response> {
        let mut all = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        all.extend(headers);
        exchange(self.address, "POST", path, &all, body)
    }

    /// Another method than POST, on the client's path.
    pub fn method(&self, method: &str) -> Response {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
        exchange(self.address, method, &self.path, &headers, b"").unwrap()
    }

    /// Opens a session and keeps its id.
    #[track_caller]
    pub fn initialize(&self) -> (Self, Response) {
        let answer = self.send(
            "initialize",
            json!({ "protocolVersion": "2025-11-25", "capabilities": {},
                    "clientInfo": { "name": "tests", "version": "1" } }),
        );
        let client = match answer.header("mcp-session-id") {
            Some(id) => self.clone().header("Mcp-Session-Id", id),
            None => self.clone(),
        };
        (client, answer)
    }
}

/// A name as the header carries it.
fn sentinel(name: &str) -> String {
    use base64::Engine;
    let plain = !name.is_empty()
        && !name.starts_with(' ')
        && !name.ends_with(' ')
        && name.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && !name.starts_with("=?base64?");
    if plain {
        return name.to_owned();
    }
    format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(name))
}

/// An answer, whole.
#[derive(Debug, Clone)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The message: of an event stream the last one.
    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.text();
        let message = match self.header("content-type") {
            Some("text/event-stream") => {
                text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap()
            }
            _ => &text,
        };
        serde_json::from_str(message).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The result, whatever envelope it came in.
    #[track_caller]
    pub fn result(&self) -> Value {
        let message = self.json();
        if message.get("jsonrpc").is_some() { message["result"].clone() } else { message }
    }

    /// The gateway's error object, wherever the dialect puts it.
    #[track_caller]
    pub fn fault(&self) -> Value {
        let message = self.json();
        let places =
            ["/result/_meta/dev.hangu~1error", "/error/data", "/error", "/_meta/dev.hangu~1error"];
        let found = places
            .iter()
            .find_map(|place| message.pointer(place).filter(|object| object["code"].is_string()));
        found.cloned().unwrap_or(Value::Null)
    }

    /// The word of the taxonomy; `ok` for a result, `tool_error` for a failed tool.
    #[track_caller]
    pub fn word(&self) -> String {
        if let Some(code) = self.fault()["code"].as_str() {
            return code.to_owned();
        }
        let message = self.json();
        if let Some(code) = message.pointer("/error/code") {
            return code.to_string();
        }
        if self.result()["isError"] == true { "tool_error".into() } else { "ok".into() }
    }

    /// The first text of a tool's result.
    #[track_caller]
    pub fn said(&self) -> String {
        self.result()["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    }
}

/// One request on a connection of its own, and the whole answer.
pub fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if method == "POST" || !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    // An answer may come before the body is read.
    let _ = stream.write_all(&request);
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    match parse(&answer) {
        Some(response) => Ok(response),
        None => Err(read.err().unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, format!("{answer:?} is no answer"))
        })),
    }
}

fn parse(answer: &[u8]) -> Option<Response> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&answer[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let rest = &answer[end + 4..];
    let has = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, v)| &**v);
    let body = if has("transfer-encoding") == Some("chunked") {
        chunks(rest)?
    } else if let Some(length) = has("content-length").and_then(|length| length.parse().ok()) {
        rest.get(..length)?.to_vec()
    } else {
        rest.to_vec()
    };
    Some(Response { status, headers, body })
}

fn chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|bytes| bytes == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).ok()?, 16).ok()?;
        rest = &rest[line + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size + 2..)?;
    }
}

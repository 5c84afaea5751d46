//! A client that writes its own bytes: repeated, malformed and missing headers included.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::{Value, json};

use super::{Gateway, gateway::KEY, member};

/// How long an answer may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request as it is written.
#[derive(Debug, Clone)]
pub struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Request {
    /// Any request, with the key and a `Host`.
    pub fn new(method: &'static str, path: &str, body: impl Into<Vec<u8>>) -> Self {
        let request =
            Self { method, path: path.to_owned(), headers: Vec::new(), body: body.into() };
        request.header("Host", "localhost").header("X-Api-Key", KEY)
    }

    /// A JSON body for the MCP endpoint of the upstream `up`, without a version header.
    pub fn plain(body: impl Into<Vec<u8>>) -> Self {
        Self::new("POST", "/mcp/up", body)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
    }

    /// A message of 2025-11-25, outside a session.
    pub fn handshake(body: impl Into<Vec<u8>>) -> Self {
        Self::plain(body).header("MCP-Protocol-Version", "2025-11-25")
    }

    /// A message of 2026-07-28 with the headers that mirror its body.
    pub fn stateless(body: &str) -> Self {
        let method = unquoted(&member(body, &["method"]).unwrap());
        let named = match &*method {
            "resources/read" => "uri",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => "name",
        };
        let name = member(body, &["params", named]).map(|name| unquoted(&name));
        let request = Self::plain(body)
            .header("MCP-Protocol-Version", "2026-07-28")
            .header("Mcp-Method", &method);
        match name {
            Some(name) => request.header("Mcp-Name", &name),
            None => request,
        }
    }

    /// A message of 2026-07-28 from a client that can be asked nothing.
    pub fn modern(method: &str, mut params: Value) -> Self {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        Self::stateless(&body.to_string())
    }

    /// A call of such a client.
    pub fn call(tool: &str, arguments: &Value) -> Self {
        Self::modern("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// A body of MCP-Lite for the upstream `up`.
    pub fn lite(method: &str, body: impl Into<Vec<u8>>) -> Self {
        let path = format!("/mcp/up/{method}");
        Self::new("POST", &path, body).header("Content-Type", "application/json")
    }

    /// Adds a header, also one that is there already.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    /// Takes a header away.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(other, _)| !other.eq_ignore_ascii_case(name));
        self
    }

    /// Gives a header another value.
    pub fn set(self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.without(name).header(name, value)
    }

    /// Sends another body under the same headers.
    pub fn with_body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{} {} HTTP/1.1\r\n", self.method, self.path).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        if !self.body.is_empty() || self.method == "POST" {
            out.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }

    /// Sends it on a connection of its own.
    pub fn ask(&self, gateway: &Gateway) -> Reply {
        Client::of(gateway).ask(self)
    }
}

fn unquoted(text: &str) -> String {
    serde_json::from_str(text).unwrap()
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The body as text; what is no UTF-8 fails the test.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The one message, or the last of a stream.
    pub fn message(&self) -> String {
        let text = self.text();
        if !self.header("content-type").is_some_and(|value| value.starts_with("text/event-stream"))
        {
            return text;
        }
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
        let data = last.lines().filter_map(|line| line.strip_prefix("data:"));
        data.map(|data| data.strip_prefix(' ').unwrap_or(data)).collect::<Vec<_>>().join("\n")
    }

    /// A member of the message, as it was written.
    pub fn member(&self, path: &[&str]) -> Option<String> {
        member(&self.message(), path)
    }

    /// The id, as the JSON token that it is.
    pub fn id(&self) -> Option<String> {
        self.member(&["id"])
    }

    pub fn rpc_code(&self) -> Option<i64> {
        self.member(&["error", "code"])?.parse().ok()
    }

    /// Whether the result says that the tool failed.
    pub fn is_error(&self) -> bool {
        self.member(&["result", "isError"]).as_deref() == Some("true")
    }

    /// The gateway's error object, in whichever form it came.
    #[track_caller]
    pub fn fault(&self) -> Value {
        const PLACES: [&str; 3] = ["/result/_meta/dev.hangu~1error", "/error/data", "/error"];
        let message: Value = serde_json::from_str(&self.message()).unwrap();
        PLACES.iter().find_map(|place| message.pointer(place).cloned()).unwrap_or_default()
    }

    /// The word of the taxonomy for a refusal, in whichever form it came.
    pub fn refusal(&self) -> Option<String> {
        const PLACES: [&[&str]; 3] = [
            &["result", "_meta", "dev.hangu/error", "code"],
            &["error", "data", "code"],
            &["error", "code"],
        ];
        let word = |path: &&[&str]| serde_json::from_str::<String>(&self.member(path)?).ok();
        PLACES.iter().find_map(word)
    }
}

/// One connection.
pub struct Client {
    reader: BufReader<TcpStream>,
    /// Of an event stream: what was read and is no whole event yet.
    pending: Vec<u8>,
}

impl Client {
    pub fn of(gateway: &Gateway) -> Self {
        let stream = TcpStream::connect(gateway.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { reader: BufReader::new(stream), pending: Vec::new() }
    }

    pub fn ask(&mut self, request: &Request) -> Reply {
        self.send(request);
        self.read()
    }

    pub fn send(&mut self, request: &Request) {
        self.send_raw(&request.bytes());
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.reader.get_mut().write_all(bytes).unwrap();
    }

    /// Reads a whole answer.
    pub fn read(&mut self) -> Reply {
        let mut reply = self.head();
        if is_chunked(&reply) {
            while let Some(chunk) = self.chunk() {
                reply.body.extend(chunk);
            }
        } else if let Some(length) = reply.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut body).unwrap();
            reply.body = body;
        } else if !matches!(reply.status, 202 | 204) {
            self.reader.read_to_end(&mut reply.body).unwrap();
        }
        reply
    }

    /// Reads the head of an answer whose body is read event by event.
    pub fn head(&mut self) -> Reply {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line).unwrap();
            assert!(read > 0, "the connection was closed without an answer: {lines:?}");
            if line.trim_end().is_empty() {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let status = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap();
        let headers = lines.iter().skip(1).map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_owned(), value.trim().to_owned())
        });
        Reply { status: status.parse().unwrap(), headers: headers.collect(), body: Vec::new() }
    }

    /// The next event of a stream; `None` at its end.
    pub fn event(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.pending.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.pending.drain(..end + 2).collect();
                return Some(String::from_utf8(event).unwrap());
            }
            let chunk = self.chunk()?;
            self.pending.extend(chunk);
        }
    }

    fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let size = usize::from_str_radix(line.trim(), 16).unwrap_or_else(|_| panic!("{line:?}"));
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).unwrap();
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }
}

fn is_chunked(reply: &Reply) -> bool {
    reply.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"))
}

/// A session of the handshake era: its id.
pub fn open_session(gateway: &Gateway, version: &str) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}"#
    );
    let reply = Request::plain(body).ask(gateway);
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.header("mcp-session-id").unwrap().to_owned()
}

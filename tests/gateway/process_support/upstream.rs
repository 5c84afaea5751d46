//! A server behind the gateway that does what a test tells it: standard MCP of either era, or
//! MCP-Lite. It remembers what came.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

/// What came, as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `tools/call`, …, whatever the dialect.
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// The params.
    pub params: Value,
    id: Value,
    lite: bool,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    pub fn tool(&self) -> &str {
        self.params["name"].as_str().unwrap_or_default()
    }

    /// What it answers to a method that it does not know.
    pub fn unknown_method(&self) -> Answer {
        let error = json!({ "code": -32601, "message": "Method not found" });
        Answer::json(404, &json!({ "jsonrpc": "2.0", "id": self.id, "error": error }))
    }

    /// The message that this result is.
    pub fn message(&self, result: &Value) -> String {
        json!({ "jsonrpc": "2.0", "id": self.id, "result": result }).to_string()
    }

    /// The answer that this result is.
    pub fn result(&self, result: Value) -> Answer {
        let body = if self.lite {
            result
        } else {
            json!({ "jsonrpc": "2.0", "id": self.id, "result": result })
        };
        Answer::json(200, &body)
    }
}

/// What it answers.
#[derive(Debug, Clone)]
pub enum Answer {
    Body {
        status: u16,
        headers: Vec<(String, String)>,
        body: String,
    },
    After(Duration, Box<Answer>),
    /// An event stream, with a pause before each event; the last one ends it.
    Events(Duration, Vec<String>),
    /// These bytes, then the end of the connection.
    Raw(Vec<u8>),
}

impl Answer {
    pub fn json(status: u16, body: &Value) -> Self {
        Self::body(status, "application/json", &body.to_string())
    }

    pub fn body(status: u16, kind: &str, body: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), kind.to_owned())];
        Answer::Body { status, headers, body: body.to_owned() }
    }

    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Answer::Body { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub fn after(self, pause: Duration) -> Self {
        Answer::After(pause, Box::new(self))
    }
}

pub fn text_result(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A tool that takes anything.
pub fn tool(name: &str) -> Value {
    json!({ "name": name, "description": "Does it.", "inputSchema": { "type": "object" } })
}

type Handler = Arc<dyn Fn(&Seen) -> Option<Answer> + Send + Sync>;

/// A server that runs until it is dropped.
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

struct Shared {
    stopped: AtomicBool,
    seen: Mutex<Vec<Seen>>,
    tools: Mutex<Vec<Value>>,
    handler: Mutex<Handler>,
    connections: Mutex<HashMap<u64, TcpStream>>,
}

impl Upstream {
    /// A stateless server with these tools, each of which says `ok`.
    pub fn start(tools: &[Value]) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), tools)
    }

    /// The same at an address that is known already.
    pub fn at(address: SocketAddr, tools: &[Value]) -> Self {
        Self::answering(address, tools, |_: &Seen| None)
    }

    /// The same with what it answers from its first connection on: one who waits for it to come
    /// back may be there before anybody could say that with [`Self::on`].
    pub fn answering(
        address: SocketAddr,
        tools: &[Value],
        handler: impl Fn(&Seen) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            stopped: AtomicBool::new(false),
            seen: Mutex::default(),
            tools: Mutex::new(tools.to_vec()),
            handler: Mutex::new(Arc::new(handler)),
            connections: Mutex::default(),
        });
        let serving = shared.clone();
        let thread = thread::spawn(move || {
            for (number, stream) in (0..).zip(listener.incoming()) {
                if serving.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if let Ok(clone) = stream.try_clone() {
                    serving.connections.lock().insert(number, clone);
                }
                let shared = serving.clone();
                // It ends with its connection; a broken one is what some tests are about.
                thread::spawn(move || {
                    drop(serve(stream, &shared));
                    shared.connections.lock().remove(&number);
                });
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// What it answers from now on; `None` is the ordinary answer.
    pub fn on(&self, handler: impl Fn(&Seen) -> Option<Answer> + Send + Sync + 'static) -> &Self {
        *self.shared.handler.lock() = Arc::new(handler);
        self
    }

    /// What it answers instead from now on, where there is something.
    pub fn before(
        &self,
        handler: impl Fn(&Seen) -> Option<Answer> + Send + Sync + 'static,
    ) -> &Self {
        let after = self.shared.handler.lock().clone();
        self.on(move |seen| handler(seen).or_else(|| after(seen)))
    }

    pub fn on_call(&self, answer: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> &Self {
        self.on(move |seen| (seen.method == "tools/call").then(|| answer(seen)))
    }

    /// Lists other tools from now on.
    pub fn lists(&self, tools: &[Value]) {
        *self.shared.tools.lock() = tools.to_vec();
    }

    /// Forgets what came.
    pub fn forget(&self) {
        self.shared.seen.lock().clear();
    }

    /// The calls that came.
    pub fn calls(&self) -> Vec<Seen> {
        self.requests("tools/call")
    }

    pub fn requests(&self, method: &str) -> Vec<Seen> {
        self.shared.seen.lock().iter().filter(|seen| seen.method == method).cloned().collect()
    }

    /// Refuses connections from now on, and breaks those there are.
    pub fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the accept loop, which looks before it serves.
        let _ = TcpStream::connect(self.address);
        let _ = thread.join();
        for (_, stream) in self.shared.connections.lock().drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(seen) = read(&mut reader)? {
        shared.seen.lock().push(seen.clone());
        let handler = shared.handler.lock().clone();
        let answer = handler(&seen).unwrap_or_else(|| ordinary(&seen, shared));
        if !write(&mut writer, answer)? {
            return writer.shutdown(Shutdown::Both);
        }
    }
    Ok(())
}

fn ordinary(seen: &Seen, shared: &Shared) -> Answer {
    match &*seen.method {
        "server/discover" => seen.result(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "public",
        })),
        "tools/list" => {
            let tools = shared.tools.lock().clone();
            seen.result(if seen.lite {
                json!({ "tools": tools })
            } else {
                json!({ "resultType": "complete", "tools": tools, "ttlMs": 0,
                        "cacheScope": "public" })
            })
        }
        "tools/call" => seen.result(text_result("ok")),
        _ => seen.unknown_method(),
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Seen>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers: Vec<(String, String)> = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let body = String::from_utf8_lossy(&body).into_owned();
    let message: Value = serde_json::from_str(&body).unwrap_or_default();
    let lite = path.ends_with("/tools/list") || path.ends_with("/tools/call");
    let (method, params) = if lite {
        let method = if path.ends_with("/tools/list") { "tools/list" } else { "tools/call" };
        (method.to_owned(), message.clone())
    } else {
        let method = message["method"].as_str().unwrap_or_default();
        (method.to_owned(), message["params"].clone())
    };
    Ok(Some(Seen { method, path, headers, body, params, id: message["id"].clone(), lite }))
}

/// Whether the connection goes on.
fn write(writer: &mut TcpStream, answer: Answer) -> io::Result<bool> {
    match answer {
        Answer::After(pause, answer) => {
            thread::sleep(pause);
            write(writer, *answer)
        }
        Answer::Events(pause, events) => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
            write!(writer, "{head}Transfer-Encoding: chunked\r\n\r\n")?;
            for event in events {
                thread::sleep(pause);
                write!(writer, "{:x}\r\ndata: {event}\n\n\r\n", event.len() + 8)?;
            }
            writer.write_all(b"0\r\n\r\n")?;
            Ok(true)
        }
        Answer::Raw(bytes) => {
            writer.write_all(&bytes)?;
            Ok(false)
        }
        Answer::Body { status, headers, body } => {
            let mut text = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
            for (name, value) in headers {
                text += &format!("{name}: {value}\r\n");
            }
            text += "\r\n";
            text += &body;
            writer.write_all(text.as_bytes())?;
            Ok(true)
        }
    }
}

//! A server that tells of changes: on `subscriptions/listen`, or on the GET stream of its
//! session. The test says what it lists and when it tells.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Stateless,
    Handshake,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub headers: String,
    pub message: Value,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.headers.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim())
    }
}

struct Stream {
    number: u64,
    /// Of the request that opened it.
    id: Value,
    employee: String,
    socket: TcpStream,
}

struct State {
    era: Era,
    capabilities: Value,
    tools: Mutex<Vec<String>>,
    resources: Mutex<Vec<String>>,
    streams: Mutex<Vec<Stream>>,
    seen: Mutex<Vec<Seen>>,
    no_stream: AtomicBool,
    stopped: AtomicBool,
    next: AtomicU64,
}

pub struct Server {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Server {
    pub fn start(era: Era, capabilities: Value) -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)), era, capabilities)
    }

    pub fn at(address: SocketAddr, era: Era, capabilities: Value) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            era,
            capabilities,
            tools: Mutex::new(vec!["open".to_owned()]),
            resources: Mutex::new(vec!["a://one".to_owned(), "a://two".to_owned()]),
            streams: Mutex::default(),
            seen: Mutex::default(),
            no_stream: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            next: AtomicU64::new(1),
        });
        let serving = state.clone();
        thread::spawn(move || {
            for socket in listener.incoming() {
                if serving.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = serving.clone();
                thread::spawn(move || state.serve(socket.unwrap()));
            }
        });
        Self { address, state }
    }

    /// Answers a GET with 405 from now on.
    pub fn without_stream(self) -> Self {
        self.state.no_stream.store(true, Ordering::Relaxed);
        self
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn lists_tools(&self, tools: &[&str]) {
        *self.state.tools.lock() = tools.iter().map(|tool| (*tool).to_owned()).collect();
    }

    pub fn lists_resources(&self, uris: &[&str]) {
        *self.state.resources.lock() = uris.iter().map(|uri| (*uri).to_owned()).collect();
    }

    /// Tells every stream, or those of one employee.
    pub fn tell(&self, employee: Option<&str>, method: &str, params: &Value) {
        let mut streams = self.state.streams.lock();
        streams.retain_mut(|stream| {
            if employee.is_some_and(|employee| employee != stream.employee) {
                return true;
            }
            let mut params = params.clone();
            if self.state.era == Era::Stateless {
                params["_meta"]["io.modelcontextprotocol/subscriptionId"] = stream.id.clone();
            }
            let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            write_event(&mut stream.socket, &message).is_ok()
        });
    }

    pub fn updated(&self, uri: &str) {
        self.tell(None, "notifications/resources/updated", &json!({ "uri": uri }));
    }

    /// Requests of a method; the stream of a session is `GET`.
    pub fn seen(&self, method: &str) -> Vec<Seen> {
        self.state.seen.lock().iter().filter(|seen| seen.method == method).cloned().collect()
    }

    /// Streams that are open, and the employees they are for; the gateway's own is for nobody.
    pub fn streams(&self) -> Vec<String> {
        let streams = self.state.streams.lock();
        streams.iter().map(|stream| stream.employee.clone()).collect()
    }

    /// The URIs of the newest stream for an employee.
    pub fn filter_of(&self, employee: &str) -> Vec<String> {
        let of = |seen: &&Seen| seen.header("x-employee") == Some(employee);
        let seen = self.seen("subscriptions/listen");
        let Some(newest) = seen.iter().rev().find(of) else { return Vec::new() };
        let uris = &newest.message["params"]["notifications"]["resourceSubscriptions"];
        let mut uris: Vec<String> = serde_json::from_value(uris.clone()).unwrap_or_default();
        uris.sort();
        uris
    }

    pub fn break_streams(&self) {
        for stream in self.state.streams.lock().drain(..) {
            let _ = stream.socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        self.break_streams();
        drop(TcpStream::connect(self.address));
    }
}

impl State {
    fn serve(&self, socket: TcpStream) {
        let mut reader = BufReader::new(socket);
        while let Some((http, seen)) = read(&mut reader) {
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            self.seen.lock().push(seen.clone());
            let mut socket = reader.get_ref().try_clone().unwrap();
            if http == "GET" || seen.method == "subscriptions/listen" {
                if http == "GET" && self.no_stream.load(Ordering::Relaxed) {
                    plain(&mut socket, "405 Method Not Allowed", "");
                    continue;
                }
                self.stream(&seen, socket);
                // Nothing more comes but its end.
                let number = self.next.load(Ordering::Relaxed) - 1;
                let _ = reader.read(&mut [0; 1]);
                self.streams.lock().retain(|stream| stream.number != number);
                return;
            }
            self.answer(&seen, &mut socket);
        }
    }

    fn stream(&self, seen: &Seen, mut socket: TcpStream) {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        socket.write_all(head.as_bytes()).unwrap();
        let id = seen.message["id"].clone();
        if self.era == Era::Stateless {
            let mut honoured = seen.message["params"]["notifications"].clone();
            if let Some(uris) = honoured["resourceSubscriptions"].as_array_mut() {
                uris.retain(|uri| !uri.as_str().unwrap().contains("refused"));
            } else {
                honoured.as_object_mut().unwrap().remove("resourceSubscriptions");
            }
            if let Some(ids) = honoured["taskIds"].as_array_mut() {
                ids.retain(|id| !id.as_str().unwrap().contains("refused"));
            } else {
                honoured.as_object_mut().unwrap().remove("taskIds");
            }
            let message = json!({ "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": { "notifications": honoured,
                            "_meta": { "io.modelcontextprotocol/subscriptionId": id } } });
            write_event(&mut socket, &message).unwrap();
        }
        let employee = seen.header("x-employee").unwrap_or_default().to_owned();
        let mut streams = self.streams.lock();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        streams.push(Stream { number, id, employee, socket });
    }

    fn answer(&self, seen: &Seen, socket: &mut TcpStream) {
        let stateless = self.era == Era::Stateless;
        let mut result = match &*seen.method {
            "server/discover" if stateless => json!({
                "supportedVersions": ["2026-07-28"], "capabilities": self.capabilities,
            }),
            "initialize" if !stateless => json!({
                "protocolVersion": "2025-11-25", "capabilities": self.capabilities,
                "serverInfo": { "name": "s", "version": "1" },
            }),
            "tools/list" => {
                let tools = self.tools.lock();
                let tool = |name| json!({ "name": name, "inputSchema": { "type": "object" } });
                json!({ "tools": tools.iter().map(tool).collect::<Vec<_>>() })
            }
            "resources/list" => {
                let resources = self.resources.lock();
                let resource = |uri: &String| json!({ "uri": uri, "name": uri });
                json!({ "resources": resources.iter().map(resource).collect::<Vec<_>>() })
            }
            "resources/templates/list" => json!({ "resourceTemplates": [] }),
            "prompts/list" => json!({ "prompts": [] }),
            "resources/subscribe" | "resources/unsubscribe" if !stateless => {
                if seen.message["params"]["uri"].as_str().unwrap().contains("refused") {
                    let error = json!({ "jsonrpc": "2.0", "id": seen.message["id"],
                        "error": { "code": -32002, "message": "no such resource" } });
                    return plain(socket, "200 OK", &error.to_string());
                }
                json!({})
            }
            "tools/call" => match seen.message["params"]["arguments"]["becomes"].as_str() {
                Some(id) => json!({ "resultType": "task", "taskId": id, "status": "working",
                    "ttlMs": 60_000 }),
                None => json!({ "content": [] }),
            },
            method if method.starts_with("notifications/") => {
                return plain(socket, "202 Accepted", "");
            }
            "DELETE" => return plain(socket, "204 No Content", ""),
            _ => {
                let error = json!({ "jsonrpc": "2.0", "id": seen.message["id"],
                    "error": { "code": -32601, "message": "no such method" } });
                return plain(socket, "404 Not Found", &error.to_string());
            }
        };
        if stateless {
            if result["resultType"].is_null() {
                result["resultType"] = json!("complete");
            }
            if result["ttlMs"].is_null() {
                result["ttlMs"] = json!(0);
            }
            result["cacheScope"] = json!("private");
        }
        let body = json!({ "jsonrpc": "2.0", "id": seen.message["id"], "result": result });
        plain(socket, "200 OK", &body.to_string());
    }
}

fn plain(socket: &mut TcpStream, status: &str, body: &str) {
    let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
    let session = "Mcp-Session-Id: s-1\r\n";
    let text =
        format!("HTTP/1.1 {status}\r\n{kind}{session}Content-Length: {}\r\n\r\n{body}", body.len());
    let _ = socket.write_all(text.as_bytes());
}

fn write_event(socket: &mut TcpStream, message: &Value) -> std::io::Result<()> {
    let event = format!("data: {message}\n\n");
    write!(socket, "{:x}\r\n{event}\r\n", event.len())
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<(String, Seen)> {
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") {
        if reader.read_line(&mut headers).ok()? == 0 {
            return None;
        }
    }
    let http = headers.split(' ').next().unwrap_or_default().to_owned();
    let mut seen = Seen { method: http.clone(), headers, message: Value::Null };
    let length = seen.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    if !body.is_empty() {
        seen.message = serde_json::from_slice(&body).unwrap();
        seen.method = seen.message["method"].as_str().unwrap_or_default().to_owned();
    }
    Some((http, seen))
}

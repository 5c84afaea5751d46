//! A server that asks its client in the middle of a call, in either era: what it asks stands in
//! the call's arguments.
//!
//! `rounds`: lists of `{method, params}`, one list after the other. `pauses`: so many results with
//! nothing but a state come first (2026-07-28). `links`: wants links followed, and serves the
//! call when it comes again. `needs`: refuses for want of these capabilities. `log`: log messages
//! of these levels come first. `cut`: the stream ends so often before the answer, which then goes
//! on by its id. The result's text is all that it was answered, as one JSON array.

use std::{
    collections::{HashMap, HashSet},
    io::{BufReader, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::upstream::{Received, Speaks, read};

const TOOLS: &str = r#"[{"name":"ask","description":"Asks.","inputSchema":{"type":"object"}},
{"name":"other","description":"Asks, too.","inputSchema":{"type":"object"}}]"#;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

struct State {
    speaks: Speaks,
    received: Mutex<Vec<Received>>,
    /// By the id of the question.
    answers: Mutex<HashMap<String, Value>>,
    answered: Condvar,
    sessions: Mutex<HashSet<String>>,
    serial: AtomicU32,
    /// What is left to be said on a stream that was cut off: by the last event's id.
    rest: Mutex<HashMap<String, Vec<String>>>,
    open: Mutex<Vec<TcpStream>>,
    /// Whether sessions have streams of their own, and the last that was opened.
    offers_streams: AtomicBool,
    aside: Mutex<Option<TcpStream>>,
    stopped: AtomicBool,
    /// Says 400 of sessions that it does not know, as many servers do.
    says_400: AtomicBool,
}

/// A running server.
pub struct Asker {
    address: SocketAddr,
    state: Arc<State>,
}

impl Asker {
    pub fn start(speaks: Speaks) -> Self {
        let state = Arc::new(State {
            speaks,
            received: Mutex::default(),
            answers: Mutex::default(),
            answered: Condvar::new(),
            sessions: Mutex::default(),
            serial: AtomicU32::new(0),
            rest: Mutex::default(),
            open: Mutex::default(),
            offers_streams: AtomicBool::new(false),
            aside: Mutex::default(),
            stopped: AtomicBool::new(false),
            says_400: AtomicBool::new(false),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = state.clone();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                if serving.stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (state, stream) = (serving.clone(), stream.unwrap());
                state.open.lock().push(stream.try_clone().unwrap());
                thread::spawn(move || state.serve(stream, number));
            }
        });
        Self { address, state }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn received(&self) -> Vec<Received> {
        self.state.received.lock().clone()
    }

    /// Requests of a method.
    pub fn of(&self, method: &str) -> Vec<Received> {
        let named = |request: &Received| {
            request.member(&["method"]).is_some_and(|name| name == format!("\"{method}\""))
        };
        self.received().into_iter().filter(named).collect()
    }

    /// Requests of an HTTP method.
    pub fn by(&self, verb: &str) -> Vec<Received> {
        self.received().into_iter().filter(|request| request.head.starts_with(verb)).collect()
    }

    /// What was answered to its questions, in the order in which it came.
    pub fn responses(&self) -> Vec<Value> {
        let is =
            |request: &&Received| !request.body.is_empty() && request.member(&["method"]).is_none();
        let all = self.received();
        all.iter().filter(is).map(|request| serde_json::from_str(request.text()).unwrap()).collect()
    }

    /// Gives each session a stream of its own, for whoever asks for it.
    pub fn offer_streams(&self) {
        self.state.offers_streams.store(true, Ordering::Relaxed);
    }

    /// Knows no session any more.
    pub fn forget(&self) {
        self.state.sessions.lock().clear();
    }

    /// From now on it says 400 of sessions that it does not know.
    pub fn say_400(&self) {
        self.state.says_400.store(true, Ordering::Relaxed);
    }

    /// Closes every connection, and takes no other.
    pub fn stop(&self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        for stream in self.state.open.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.stop();
    }
}

impl State {
    fn serve(&self, stream: TcpStream, connection: usize) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream);
        while let Some(request) = read(&mut reader, connection) {
            self.received.lock().push(request.clone());
            if self.answer(&request, reader.get_mut()).is_err() {
                break;
            }
        }
        let _ = reader.get_ref().shutdown(Shutdown::Both);
    }

    fn answer(&self, request: &Received, out: &mut TcpStream) -> std::io::Result<()> {
        let body: Value = serde_json::from_str(request.text()).unwrap_or_default();
        let legacy = matches!(self.speaks, Speaks::Handshake(_));
        let method = body["method"].as_str().unwrap_or_default();
        let known = || {
            let id = request.header("mcp-session-id").unwrap_or_default();
            self.sessions.lock().contains(id)
        };
        if legacy && !matches!(method, "initialize" | "server/discover") && !known() {
            if self.says_400.load(Ordering::Relaxed) {
                let message = "Bad Request: No valid session ID provided";
                let error = json!({ "code": -32000, "message": message });
                let body = json!({ "jsonrpc": "2.0", "error": error, "id": body["id"] });
                return plain(out, "400 Bad Request", "", &body);
            }
            return plain(out, "404 Not Found", "", &json!({ "error": "no such session" }));
        }
        let result = match method {
            "" if request.head.starts_with("GET") => return self.go_on(request, out),
            "" if request.head.starts_with("DELETE") => {
                let id = request.header("mcp-session-id").unwrap_or_default();
                self.sessions.lock().remove(id);
                return out.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            }
            "" => {
                let id = body["id"].as_str().unwrap().to_owned();
                self.answers.lock().insert(id, body);
                self.answered.notify_all();
                return out.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
            }
            "initialize" => {
                let Speaks::Handshake(version) = self.speaks else { return refuse(out, &body) };
                let id = format!("session-{}", self.serial.fetch_add(1, Ordering::Relaxed));
                self.sessions.lock().insert(id.clone());
                let result = json!({ "protocolVersion": version,
                    "capabilities": { "tools": {}, "logging": {} },
                    "serverInfo": { "name": "asker", "version": "1" } });
                let head = format!("Mcp-Session-Id: {id}\r\n");
                return plain(out, "200 OK", &head, &response(&body["id"], result));
            }
            "server/discover" if !legacy => json!({ "resultType": "complete",
                "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} },
                "ttlMs": 0, "cacheScope": "private" }),
            "ping" | "logging/setLevel" => json!({}),
            "tools/list" => {
                let tools: Value = serde_json::from_str(TOOLS).unwrap();
                json!({ "resultType": "complete", "tools": tools, "ttlMs": 0,
                        "cacheScope": "private" })
            }
            "tools/call" => return self.call(&body, out),
            method if method.starts_with("notifications/") => {
                return out.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
            }
            _ => return refuse(out, &body),
        };
        plain(out, "200 OK", "", &response(&body["id"], result))
    }

    fn call(&self, body: &Value, out: &mut TcpStream) -> std::io::Result<()> {
        let params = &body["params"];
        let arguments = &params["arguments"];
        let id = &body["id"];
        if let Some(needs) = arguments.get("needs") {
            let error = json!({ "code": -32021, "message": "needs more",
                                "data": { "requiredCapabilities": needs } });
            let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            return plain(out, "400 Bad Request", "", &answer);
        }
        if let Some(links) = arguments.get("links")
            && self.calls_of(arguments) == 1
        {
            let error = json!({ "code": -32042, "message": "follow these",
                                "data": { "elicitations": links } });
            return plain(
                out,
                "200 OK",
                "",
                &json!({ "jsonrpc": "2.0", "id": id, "error": error }),
            );
        }
        match self.speaks {
            Speaks::Handshake(_) => self.ask_on_the_stream(id, params, out),
            _ => {
                let result = asking_result(params);
                let mut events: Vec<String> = logs(arguments).collect();
                let end = response(id, result);
                if events.is_empty() {
                    return plain(out, "200 OK", "", &end);
                }
                events.push(end.to_string());
                begin(out)?;
                events.iter().try_for_each(|event| write(out, &format!("data: {event}\n\n")))?;
                out.write_all(b"0\r\n\r\n")
            }
        }
    }

    /// How many calls came with these arguments.
    fn calls_of(&self, arguments: &Value) -> usize {
        let same = |request: &&Received| {
            let body: Value = serde_json::from_str(request.text()).unwrap_or_default();
            body["method"] == "tools/call" && body["params"]["arguments"] == *arguments
        };
        self.received.lock().iter().filter(same).count()
    }

    fn ask_on_the_stream(
        &self,
        id: &Value,
        params: &Value,
        out: &mut TcpStream,
    ) -> std::io::Result<()> {
        let arguments = &params["arguments"];
        if arguments["aside"] == true {
            let said = {
                let aside = self.aside.lock();
                let mut aside = aside.as_ref().expect("nobody listens").try_clone()?;
                self.ask(arguments, &mut aside)?
            };
            return plain(out, "200 OK", "", &response(id, done(&said)));
        }
        begin(out)?;
        if let Some(token) = params["_meta"].get("progressToken") {
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                                   "params": { "progressToken": token, "progress": 1 } });
            write(out, &format!("data: {progress}\n\n"))?;
        }
        for log in logs(arguments) {
            write(out, &format!("data: {log}\n\n"))?;
        }
        let said = self.ask(arguments, out)?;
        let end = response(id, done(&said));
        let cuts = arguments["cut"].as_u64().unwrap_or_default();
        if cuts == 0 {
            write(out, &format!("data: {end}\n\n"))?;
            return out.write_all(b"0\r\n\r\n");
        }
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        let event = |number: u64| format!("e-{serial}-{number}");
        let mut rest: Vec<String> = (1..cuts)
            .map(|number| format!("id: {}\nretry: 50\ndata:\n\n", event(number)))
            .collect();
        rest.push(format!("id: {}\ndata: {end}\n\n", event(cuts)));
        rest.reverse();
        let first = format!("id: {}\nretry: 120\ndata:\n\n", event(0));
        self.rest.lock().insert(event(0), rest);
        write(out, &first)?;
        out.write_all(b"0\r\n\r\n")
    }

    /// Asks everything on a stream, and gives what was said to it.
    fn ask(&self, arguments: &Value, out: &mut TcpStream) -> std::io::Result<Vec<Value>> {
        let mut said = Vec::new();
        for round in arguments["rounds"].as_array().into_iter().flatten() {
            let mut ids = Vec::new();
            for question in round.as_array().unwrap() {
                let id = format!("s-{}", self.serial.fetch_add(1, Ordering::Relaxed));
                let mut question = question.clone();
                question["jsonrpc"] = json!("2.0");
                question["id"] = json!(id);
                write(out, &format!("data: {question}\n\n"))?;
                ids.push(id);
            }
            for id in ids {
                said.push(self.wait_for(&id)?);
            }
        }
        Ok(said)
    }

    fn wait_for(&self, id: &str) -> std::io::Result<Value> {
        let mut answers = self.answers.lock();
        let until = std::time::Instant::now() + PATIENCE;
        while !answers.contains_key(id) {
            if self.answered.wait_until(&mut answers, until).timed_out() {
                return Err(std::io::ErrorKind::TimedOut.into());
            }
        }
        let answer = answers.remove(id).unwrap();
        Ok(answer.get("result").or_else(|| answer.get("error")).unwrap().clone())
    }

    /// Goes on behind the last event that the client got.
    fn go_on(&self, request: &Received, out: &mut TcpStream) -> std::io::Result<()> {
        let last = request.header("last-event-id").unwrap_or_default().to_owned();
        if last.is_empty() && self.offers_streams.load(Ordering::Relaxed) {
            *self.aside.lock() = Some(out.try_clone()?);
            return begin(out);
        }
        let Some(mut rest) = self.rest.lock().remove(&last) else {
            let none = json!({ "error": "no stream" });
            return plain(out, "405 Method Not Allowed", "", &none);
        };
        let next = rest.pop().unwrap();
        let id = next.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
        if !rest.is_empty() {
            self.rest.lock().insert(id, rest);
        }
        begin(out)?;
        write(out, &next)?;
        out.write_all(b"0\r\n\r\n")
    }
}

fn logs(arguments: &Value) -> impl Iterator<Item = String> {
    let levels = arguments["log"].as_array().cloned().unwrap_or_default();
    levels.into_iter().map(|level| {
        json!({ "jsonrpc": "2.0", "method": "notifications/message",
                "params": { "level": level, "data": format!("a {level} message") } })
        .to_string()
    })
}

/// The state is what has been said so far, and how often only a state was given.
fn asking_result(params: &Value) -> Value {
    let arguments = &params["arguments"];
    let state: Value = params["requestState"]
        .as_str()
        .map_or(json!({ "paused": 0, "asked": 0, "said": [] }), |state| {
            serde_json::from_str(state).unwrap()
        });
    let (paused, asked) = (state["paused"].as_u64().unwrap(), state["asked"].as_u64().unwrap());
    let mut said = state["said"].as_array().unwrap().clone();
    if paused < arguments["pauses"].as_u64().unwrap_or_default() {
        let state = json!({ "paused": paused + 1, "asked": asked, "said": said }).to_string();
        return json!({ "resultType": "input_required", "requestState": state });
    }
    let empty = Vec::new();
    let rounds = arguments["rounds"].as_array().unwrap_or(&empty);
    if let Some(answers) = params.get("inputResponses") {
        let round = rounds[usize::try_from(asked).unwrap() - 1].as_array().unwrap();
        said.extend((0..round.len()).map(|place| answers[format!("k{place}")].clone()));
    }
    let Some(round) = rounds.get(usize::try_from(asked).unwrap()) else { return done(&said) };
    let requests: serde_json::Map<String, Value> = round
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
        .map(|(place, question)| (format!("k{place}"), question.clone()))
        .collect();
    let state = json!({ "paused": paused, "asked": asked + 1, "said": said }).to_string();
    json!({ "resultType": "input_required", "inputRequests": requests, "requestState": state })
}

fn done(said: &[Value]) -> Value {
    json!({ "resultType": "complete",
            "content": [{ "type": "text", "text": Value::from(said.to_vec()).to_string() }] })
}

fn response(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

fn refuse(out: &mut TcpStream, body: &Value) -> std::io::Result<()> {
    let error = json!({ "code": -32601, "message": "no such method" });
    let answer = json!({ "jsonrpc": "2.0", "id": body["id"], "error": error });
    plain(out, "404 Not Found", "", &answer)
}

fn plain(out: &mut TcpStream, status: &str, head: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{head}Content-Length: {length}\r\n\r\n{body}"
    );
    out.write_all(text.as_bytes())
}

fn begin(out: &mut TcpStream) -> std::io::Result<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
}

fn write(out: &mut TcpStream, text: &str) -> std::io::Result<()> {
    out.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
}

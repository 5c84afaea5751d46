//! A server whose answers to what is called, got, read and completed a test writes; everything
//! else it answers as a server of its dialect does. It records each request and serves one thread a connection.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;

use super::{
    answer::{After, Answer, Writer, reset},
    member,
};

/// What the server speaks.
#[derive(Debug, Clone, Copy)]
pub enum Speaks {
    /// 2026-07-28.
    Stateless,
    /// The handshake, agreeing on this revision.
    Handshake(&'static str),
    Lite,
}

/// What every server of the tests lists.
const TOOLS: &str = r#"[{"name":"echo","description":"Says it again.","inputSchema":{"type":"object"}},
{"name":"slow","description":"Takes its time.","inputSchema":{"type":"object"}},
{"name":"read_doc","description":"Reads.","inputSchema":{"type":"object"}},
{"name":"strict","description":"Wants a number.","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},
{"name":"wipe","description":"Deletes.","inputSchema":{"type":"object"}}]"#;

/// What a test's script answers.
const SCRIPTED: [&str; 4] = ["tools/call", "prompts/get", "resources/read", "completion/complete"];

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// The number of its connection.
    pub connection: usize,
    /// Request line and headers.
    pub head: String,
    pub body: Vec<u8>,
}

impl Received {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }

    /// A member of the body, as it was written.
    pub fn member(&self, path: &[&str]) -> Option<String> {
        member(self.text(), path)
    }

    /// The arguments of a call, as they were written.
    pub fn arguments(&self) -> String {
        let standard = self.member(&["params", "arguments"]);
        standard.or_else(|| self.member(&["arguments"])).unwrap()
    }

    /// The JSON-RPC method, or the path's end where there is none.
    pub fn method(&self) -> String {
        let named = self.member(&["method"]).and_then(|raw| serde_json::from_str(&raw).ok());
        named.unwrap_or_else(|| {
            self.path().trim_start_matches("/mcp/").trim_start_matches("/mcp").to_owned()
        })
    }
}

type Script = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

/// Answers to methods beside calls, where it has one.
type Beside = Arc<dyn Fn(&Received) -> Option<Answer> + Send + Sync>;

struct State {
    speaks: Speaks,
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    tools: Mutex<String>,
    /// What it declares beside tools, the members of an object.
    declared: Mutex<String>,
    /// Results by method, where a test gave them.
    results: Mutex<HashMap<String, String>>,
    beside: Mutex<Beside>,
    idle_close: Mutex<Option<Duration>>,
    /// Connections that the other side closed while it waited for an answer.
    hang_ups: AtomicUsize,
    connections: AtomicUsize,
    poured: AtomicUsize,
    stopped: AtomicBool,
}

/// A running server.
pub struct Upstream {
    address: SocketAddr,
    state: Arc<State>,
}

impl Upstream {
    /// With the same answer to each call.
    pub fn answering(speaks: Speaks, answer: Answer) -> Self {
        Self::scripted(speaks, move |_| answer.clone())
    }

    pub fn scripted(
        speaks: Speaks,
        script: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::new(State {
            speaks,
            script: Mutex::new(Arc::new(script)),
            received: Mutex::default(),
            tools: Mutex::new(TOOLS.to_owned()),
            declared: Mutex::default(),
            results: Mutex::default(),
            beside: Mutex::new(Arc::new(|_| None)),
            idle_close: Mutex::default(),
            hang_ups: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            poured: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
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
                state.connections.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    state.serve(stream, number);
                    state.connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, state }
    }

    /// Answers otherwise from now on, and forgets what was received.
    pub fn answers(&self, answer: Answer) {
        *self.state.script.lock() = Arc::new(move |_| answer.clone());
        self.state.received.lock().clear();
    }

    /// Answers methods beside calls from now on, where this has an answer.
    pub fn beside(&self, script: impl Fn(&Received) -> Option<Answer> + Send + Sync + 'static) {
        *self.state.beside.lock() = Arc::new(script);
    }

    /// Lists other tools from now on, a JSON array.
    pub fn lists(&self, tools: &str) {
        tools.clone_into(&mut self.state.tools.lock());
    }

    /// Declares more than tools from now on: members of an object, such as `"prompts":{}`.
    pub fn declares(&self, members: &str) {
        *self.state.declared.lock() = format!(",{members}");
    }

    /// Answers a method with this result from now on.
    pub fn gives(&self, method: &str, result: &str) {
        self.state.results.lock().insert(method.to_owned(), result.to_owned());
    }

    /// Closes connections on which nothing comes for so long.
    pub fn close_idle(&self, after: Duration) {
        *self.state.idle_close.lock() = Some(after);
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The configuration's word for what it speaks.
    pub fn dialect(&self) -> &'static str {
        match self.state.speaks {
            Speaks::Lite => "mcp-lite",
            _ => "auto",
        }
    }

    pub fn received(&self) -> Vec<Received> {
        self.state.received.lock().clone()
    }

    /// Requests that carry a call.
    pub fn calls(&self) -> Vec<Received> {
        self.of("tools/call")
    }

    /// Requests of a method.
    pub fn of(&self, method: &str) -> Vec<Received> {
        self.received().into_iter().filter(|request| request.method() == method).collect()
    }

    /// Requests for a stream outside of calls.
    pub fn gets(&self) -> usize {
        self.received().iter().filter(|request| request.head.starts_with("GET ")).count()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Bytes of texts that are written over and over, as far as they were written.
    pub fn poured(&self) -> usize {
        self.state.poured.load(Ordering::Relaxed)
    }

    pub fn hang_ups(&self) -> usize {
        self.state.hang_ups.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Relaxed);
        // Wakes the accepting thread, which then ends.
        drop(TcpStream::connect(self.address));
    }
}

impl State {
    fn serve(&self, stream: TcpStream, connection: usize) {
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream);
        // A connection on which nothing has come yet is not idle.
        let mut idle = None;
        loop {
            reader.get_ref().set_read_timeout(idle).unwrap();
            let Some(request) = read(&mut reader, connection) else { return };
            self.received.lock().push(request.clone());
            let answer = self.answer(&request);
            let (stream, poured) = (reader.get_ref(), &self.poured);
            let mut writer = Writer { request, stream, hung_up: false, poured };
            let written = writer.write(&answer);
            if writer.hung_up {
                self.hang_ups.fetch_add(1, Ordering::Relaxed);
            }
            idle = answer.idle.or(*self.idle_close.lock());
            match (written, answer.after) {
                (Ok(()), After::Keep) => {}
                (Ok(()), After::Reset) => return reset(reader.into_inner()),
                _ => {
                    let _ = reader.get_ref().shutdown(Shutdown::Both);
                    return;
                }
            }
        }
    }

    fn answer(&self, request: &Received) -> Answer {
        let method = request.method();
        if SCRIPTED.contains(&&*method) {
            let script = self.script.lock().clone();
            return script(request);
        }
        let beside = self.beside.lock().clone();
        if let Some(answer) = beside(request) {
            return answer;
        }
        if request.head.starts_with("GET ") {
            // No stream is offered.
            return Answer::new("405 Method Not Allowed", "", "").header("Allow", "POST");
        }
        let tools = self.tools.lock().clone();
        let declared = self.declared.lock().clone();
        if let Some(result) = self.results.lock().get(&method) {
            return Answer::json(format!(
                r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#
            ));
        }
        let result = match (method.as_str(), self.speaks) {
            ("tools/list", Speaks::Lite) => return Answer::json(format!(r#"{{"tools":{tools}}}"#)),
            ("tools/list", Speaks::Handshake(_)) => format!(r#"{{"tools":{tools}}}"#),
            ("tools/list", Speaks::Stateless) => format!(
                r#"{{"resultType":"complete","tools":{tools},"ttlMs":0,"cacheScope":"private"}}"#
            ),
            ("server/discover", Speaks::Stateless) => format!(
                r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}{declared}}},"ttlMs":0,"cacheScope":"private"}}"#
            ),
            ("ping", Speaks::Handshake(_)) => "{}".to_owned(),
            ("initialize", Speaks::Handshake(version)) => {
                let result = format!(
                    r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}{declared}}},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
                );
                return Answer::json(result).header("Mcp-Session-Id", "session-of-the-server");
            }
            // Notifications, and answers to what the server asked.
            (method, _)
                if method.starts_with("notifications/")
                    || request.member(&["method"]).is_none() =>
            {
                return Answer::new("202 Accepted", "", "");
            }
            _ => {
                let error = r#"{"jsonrpc":"2.0","id":{{id}},"error":{"code":-32601,"message":"no such method"}}"#;
                return Answer::new("404 Not Found", "application/json", error);
            }
        };
        Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#))
    }
}

/// Reads one request; `None` where the connection ended or was idle for too long.
pub fn read(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Received> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut request = Received { connection, head, body: Vec::new() };
    let length = request.header("content-length").map_or(0, |value| value.parse().unwrap());
    assert!(request.header("transfer-encoding").is_none(), "the gateway knows what it sends");
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}

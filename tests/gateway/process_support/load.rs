//! Mixed load on a real gateway: clients of every kind that call, stream, cancel, leave, come
//! back and make mistakes, before servers that are restarted under them. Each answer is checked
//! to be the one that was asked for.

use std::{
    collections::{BTreeMap, HashSet},
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Answer, Client, Dialect, KEY, Process, Response, Seen, Upstream, text_result, tool};

/// Pauses of the servers: between events, and before a slow answer.
const EVENT: Duration = Duration::from_millis(10);
const SLOW: Duration = Duration::from_millis(150);

/// A server that can go away and come back at the same address.
pub struct Server {
    handshake: bool,
    sessions: Arc<Mutex<HashSet<String>>>,
    upstream: Upstream,
}

impl Server {
    /// Of the stateless revision, or of the handshake.
    pub fn start(handshake: bool) -> Self {
        let sessions = Arc::<Mutex<HashSet<String>>>::default();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let upstream = Upstream::answering(any, &tools(), answer(handshake, sessions.clone()));
        Self { handshake, sessions, upstream }
    }

    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Breaks what there is; everything it knew is gone.
    pub fn restart(&mut self, away: Duration) {
        let address = self.upstream.address();
        self.upstream.stop();
        thread::sleep(away);
        self.sessions.lock().clear();
        let answer = answer(self.handshake, self.sessions.clone());
        self.upstream = Upstream::answering(address, &tools(), answer);
    }
}

fn tools() -> [Value; 3] {
    ["echo", "slow", "stream"].map(tool)
}

fn answer(
    handshake: bool,
    sessions: Arc<Mutex<HashSet<String>>>,
) -> impl Fn(&Seen) -> Option<Answer> + Send + Sync {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    move |seen: &Seen| {
        if handshake {
            match &*seen.method {
                "server/discover" => return Some(Answer::body(400, "text/plain", "no session")),
                "initialize" => {
                    let id = format!("s-{}", NEXT.fetch_add(1, Ordering::Relaxed));
                    sessions.lock().insert(id.clone());
                    let result = json!({ "protocolVersion": "2025-11-25",
                        "capabilities": { "tools": {} },
                        "serverInfo": { "name": "old", "version": "1" } });
                    return Some(seen.result(result).with_header("Mcp-Session-Id", &id));
                }
                method if method.starts_with("notifications/") => {
                    return Some(Answer::body(202, "text/plain", ""));
                }
                _ if !seen
                    .header("mcp-session-id")
                    .is_some_and(|id| sessions.lock().contains(id)) =>
                {
                    return Some(Answer::body(404, "text/plain", "no such session"));
                }
                _ => {}
            }
        }
        if seen.method != "tools/call" {
            return None;
        }
        let result = text_result(seen.params["arguments"]["say"].as_str().unwrap_or_default());
        Some(match seen.tool() {
            "slow" => seen.result(result).after(SLOW),
            "stream" => {
                let token = &seen.params["_meta"]["progressToken"];
                let progress = |number| {
                    json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                            "params": { "progressToken": token, "progress": number } })
                    .to_string()
                };
                let events = (1..6).map(progress).chain([seen.message(&result)]);
                Answer::Events(EVENT, events.collect())
            }
            _ => seen.result(result),
        })
    }
}

/// What was done so far, by its name: how often, and how often with the answer wanted.
pub type Done = BTreeMap<&'static str, (u64, u64)>;

/// One client after another, until it is told to stop.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<Done>>,
}

impl Crowd {
    pub fn start(gateway: &Process, clients: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let begin = |number| {
            let who = Who { address: gateway.address, number, turn: 0, done: Done::new() };
            let stop = stop.clone();
            thread::spawn(move || who.act_until(&stop))
        };
        Self { threads: (0..clients).map(begin).collect(), stop }
    }

    /// Ends when the last of them has its last answer.
    pub fn stop(self) -> Done {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Done::new();
        for thread in self.threads {
            for (name, (times, good)) in thread.join().unwrap() {
                let sum = all.entry(name).or_default();
                *sum = (sum.0 + times, sum.1 + good);
            }
        }
        all
    }
}

struct Who {
    address: SocketAddr,
    number: u64,
    turn: u64,
    done: Done,
}

impl Who {
    fn act_until(mut self, stop: &AtomicBool) -> Done {
        // Each begins elsewhere in the round.
        self.turn = self.number * 5;
        while !stop.load(Ordering::Relaxed) {
            self.turn += 1;
            let path = if self.turn.is_multiple_of(3) { "/mcp/old" } else { "/mcp/new" };
            match self.turn % 12 {
                0 => self.call("modern call", path, Dialect::Modern, "echo"),
                1 => self.call("lite call", path, Dialect::Lite, "echo"),
                2 => self.call("modern stream", path, Dialect::Modern, "stream"),
                3 => self.call("legacy stream", path, Dialect::Legacy, "stream"),
                4 => self.call("slow call", path, Dialect::Legacy, "slow"),
                5 => self.session(path),
                6 => self.leave("modern client that leaves", path, Dialect::Modern, "stream"),
                7 => self.leave("legacy client that leaves", path, Dialect::Legacy, "slow"),
                8 => self.cancel(path),
                9 => self.batch(path),
                10 => self.list(),
                _ => self.mistake(path),
            }
        }
        self.done
    }

    fn client(&self, path: &str, dialect: Dialect) -> Client {
        let employee = if self.number.is_multiple_of(2) { "E1" } else { "E2" };
        Client::new(self.address, path, dialect).key(KEY).employee(employee)
    }

    /// What nobody else says.
    fn own(&self) -> String {
        format!("c{}-{}", self.number, self.turn)
    }

    fn note(&mut self, name: &'static str, good: bool) {
        let done = self.done.entry(name).or_default();
        *done = (done.0 + 1, done.1 + u64::from(good));
    }

    fn call(&mut self, name: &'static str, path: &str, dialect: Dialect, tool: &str) {
        let own = self.own();
        let client = self.client(path, dialect).meta("progressToken", json!(own));
        let answer = client.call(tool, json!({ "say": own }));
        let good = own_answer(&answer, &own);
        self.note(name, good);
    }

    fn session(&mut self, path: &str) {
        let (session, hello) = self.client(path, Dialect::Legacy).initialize();
        assert_eq!(hello.status, 200, "{hello:?}");
        let own = self.own();
        let good = own_answer(&session.call("echo", json!({ "say": own })), &own);
        assert_eq!(session.send("ping", json!({})).status, 200);
        assert_eq!(session.method("DELETE").status, 204);
        assert_eq!(session.call("echo", json!({ "say": own })).status, 404);
        self.note("session", good);
    }

    /// Sends a request and closes the connection before its answer is there.
    fn leave(&mut self, name: &'static str, path: &str, dialect: Dialect, tool: &str) {
        let mut stream = self.begin(path, dialect, tool, None);
        thread::sleep(EVENT * 2);
        let _ = stream.shutdown(Shutdown::Both);
        drop(stream.read(&mut [0; 64]));
        self.note(name, true);
    }

    /// Begins a call in a session, cancels it from elsewhere, and waits for the end.
    fn cancel(&mut self, path: &str) {
        let (session, hello) = self.client(path, Dialect::Legacy).initialize();
        let id = hello.header("mcp-session-id").unwrap().to_owned();
        let mut stream = self.begin(path, Dialect::Legacy, "slow", Some(&id));
        thread::sleep(EVENT * 2);
        let body =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        let employee = if self.number.is_multiple_of(2) { "E1" } else { "E2" };
        let headers = [("X-Api-Key", KEY), ("SSO-Emp-Id", employee), ("Mcp-Session-Id", &id)];
        let answer = session.raw(path, &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 202, "{answer:?}");
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        let cancelled = rest.starts_with("HTTP/1.1 202");
        assert!(cancelled || rest.starts_with("HTTP/1.1 200"), "{rest}");
        assert_eq!(session.method("DELETE").status, 204);
        self.note("cancelled call", cancelled);
    }

    fn begin(&self, path: &str, dialect: Dialect, tool: &str, session: Option<&str>) -> TcpStream {
        let own = self.own();
        let mut meta = json!({ "progressToken": own });
        let mut headers = "MCP-Protocol-Version: 2025-11-25\r\n".to_owned();
        if dialect == Dialect::Modern {
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
            headers = format!(
                "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
            );
        }
        if let Some(session) = session {
            headers += &format!("Mcp-Session-Id: {session}\r\n");
        }
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": { "name": tool, "arguments": { "say": own }, "_meta": meta } })
        .to_string();
        let employee = if self.number.is_multiple_of(2) { "E1" } else { "E2" };
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Api-Key: {KEY}\r\nSSO-Emp-Id: {employee}\r\n{headers}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn batch(&mut self, path: &str) {
        let own = self.own();
        let call = |id: u32, tool: &str| {
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                    "params": { "name": tool, "arguments": { "say": format!("{own}-{id}") } } })
        };
        let batch = json!([call(1, "echo"), call(2, "slow"), call(3, "echo")]).to_string();
        let headers = [("X-Api-Key", KEY), ("SSO-Emp-Id", "E1")];
        let client = self.client(path, Dialect::Legacy);
        let answer = client.raw(path, &headers, batch.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let answers = answer.json();
        let answers = answers.as_array().unwrap();
        let mut good = answers.len() == 3;
        for (id, answer) in (1_u64..).zip(answers) {
            assert_eq!(answer["id"], id, "{answers:?}");
            let failed = answer["result"]["isError"] == true;
            let text = &answer["result"]["content"][0]["text"];
            assert!(failed || *text == format!("{own}-{id}"), "{answers:?}");
            good &= !failed;
        }
        self.note("batch", good);
    }

    fn list(&mut self) {
        let mut good = true;
        for dialect in Dialect::ALL {
            let answer = self.client("/mcp", dialect).send("tools/list", json!({}));
            assert_eq!(answer.status, 200, "{answer:?}");
            good &= answer.text().contains("new__echo");
        }
        self.note("list", good);
    }

    /// What is refused is refused, whatever else goes on.
    fn mistake(&mut self, path: &str) {
        let client = self.client(path, Dialect::Legacy);
        assert_eq!(client.call("no-such-tool", json!({})).json()["error"]["code"], -32602);
        let headers = [("X-Api-Key", KEY), ("SSO-Emp-Id", "E1")];
        assert_eq!(client.raw(path, &headers, b"{\"jsonrpc\":").unwrap().status, 400);
        assert_eq!(
            client.clone().header("Mcp-Session-Id", "AQAA").call("echo", json!({})).status,
            404
        );
        assert_eq!(client.key("nobody's").call("echo", json!({})).status, 401);
        self.note("mistake", true);
    }
}

/// Whether a call went well. One that did not is told so, under its id, and nobody's answer is
/// ever another's.
fn own_answer(answer: &Response, own: &str) -> bool {
    let text = answer.text();
    for part in text.split("\"progressToken\":").skip(1) {
        assert!(part.starts_with(&format!("\"{own}\"")), "another's progress: {text}");
    }
    match answer.word().as_str() {
        "ok" => {
            assert_eq!(answer.said(), own, "{text}");
            true
        }
        // A server that is away, or came back without the session. Nothing else may fail.
        "external_service_error" => false,
        word => panic!("{word}: {answer:?}"),
    }
}

//! Servers of HTTP+SSE (2024-11-05): an event stream that names where messages go, and brings
//! every answer.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process_support::{Client, Dialect, Process, Setup, Upstream, text_result, tool, until};

/// What the first event says.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Names {
    /// `/messages?session=N`.
    Path,
    /// The same with scheme and host.
    Whole,
    Foreign,
    Nothing,
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Writes {
    Whole,
    /// Byte by byte, lines ended by CR LF, comments between, data over two lines.
    Odd,
}

struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    address: SocketAddr,
    names: Names,
    writes: Writes,
    stopped: AtomicBool,
    /// Streams by the number of their session.
    streams: Mutex<Vec<Option<TcpStream>>>,
    posts: Mutex<Vec<(String, Value)>>,
    /// How POSTs are answered, before anything else is done.
    refusing: Mutex<Option<&'static str>>,
    /// Wrong GETs and POSTs: what another transport would send.
    strays: AtomicUsize,
}

impl Server {
    fn start(names: Names, writes: Writes) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            address,
            names,
            writes,
            stopped: AtomicBool::new(false),
            streams: Mutex::default(),
            posts: Mutex::default(),
            refusing: Mutex::default(),
            strays: AtomicUsize::new(0),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.stopped.load(Ordering::Relaxed) {
                    break;
                }
                let (shared, stream) = (serving.clone(), stream.unwrap());
                // A broken connection is what some tests are about.
                thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Self { address, shared }
    }

    fn url(&self) -> String {
        format!("http://{}/sse", self.address)
    }

    fn streams(&self) -> usize {
        self.shared.streams.lock().iter().flatten().count()
    }

    /// Messages of a method, with the heads they came with.
    fn posts(&self, method: &str) -> Vec<(String, Value)> {
        let posts = self.shared.posts.lock();
        posts.iter().filter(|(_, message)| message["method"] == method).cloned().collect()
    }

    fn gateway(&self, more: &str) -> Process {
        Setup::new().upstream_at("up", &self.url(), more, "").start()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        for stream in self.shared.streams.lock().iter().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn serve(self: &Arc<Self>, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut writer = stream.try_clone()?;
        let mut reader = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let line = head.lines().next().unwrap_or_default().to_owned();
            if line.starts_with("GET /sse ") {
                return self.open(writer);
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
            });
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body)?;
            let session = line
                .strip_prefix("POST /messages?session=")
                .and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
            let refusing = *self.refusing.lock();
            let status = match (session, refusing) {
                (None, _) => {
                    self.strays.fetch_add(1, Ordering::Relaxed);
                    "405 Method Not Allowed"
                }
                (Some(_), Some(status)) => status,
                (Some(session), None) if self.streams.lock()[session].is_none() => "404 Not Found",
                (Some(_), None) => "202 Accepted",
            };
            write!(writer, "HTTP/1.1 {status}\r\nContent-Length: 8\r\n\r\nAccepted")?;
            if let (Some(session), true) = (session, status.starts_with("202")) {
                let message: Value = serde_json::from_slice(&body).unwrap();
                self.posts.lock().push((head, message.clone()));
                let shared = self.clone();
                thread::spawn(move || shared.take(session, &message));
            }
        }
    }

    fn open(&self, mut writer: TcpStream) -> std::io::Result<()> {
        let kind = "Content-Type: text/event-stream";
        write!(writer, "HTTP/1.1 200 OK\r\n{kind}\r\nTransfer-Encoding: chunked\r\n\r\n")?;
        let session = {
            let mut streams = self.streams.lock();
            streams.push(Some(writer));
            streams.len() - 1
        };
        let path = format!("/messages?session={session}");
        match self.names {
            Names::Path => self.event(session, "endpoint", &path),
            Names::Whole => {
                let whole = format!("http://{}{path}", self.address);
                self.event(session, "endpoint", &whole);
            }
            Names::Foreign => {
                self.event(session, "endpoint", &format!("http://127.0.0.1:9{path}"));
            }
            Names::Nothing => {}
        }
        Ok(())
    }

    fn event(&self, session: usize, name: &str, data: &str) {
        let text = match self.writes {
            Writes::Whole => format!("event: {name}\ndata: {data}\n\n"),
            Writes::Odd => {
                let (first, rest) = data.split_once("\"jsonrpc\"").unwrap_or((data, ""));
                let rest = match rest {
                    "" => String::new(),
                    rest => format!("data: \"jsonrpc\"{rest}\r\n"),
                };
                format!(": ping\r\n\r\nid: 4\r\nevent: {name}\r\ndata: {first}\r\n{rest}\r\n")
            }
        };
        let pieces: Vec<&[u8]> = match self.writes {
            Writes::Whole => vec![text.as_bytes()],
            Writes::Odd => text.as_bytes().chunks(1).collect(),
        };
        let mut streams = self.streams.lock();
        let Some(stream) = &mut streams[session] else { return };
        for piece in pieces {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            // The other side may be gone; then nobody waits for it.
            let _ = stream.write_all(&chunk);
        }
    }

    fn say(&self, session: usize, message: &Value) {
        self.event(session, "message", &message.to_string());
    }

    fn end(&self, session: usize) {
        if let Some(stream) = self.streams.lock()[session].take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn take(&self, session: usize, message: &Value) {
        let (id, params) = (&message["id"], &message["params"]);
        let answer = |result: Value| {
            self.say(session, &json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        };
        match message["method"].as_str() {
            Some("initialize") => answer(json!({
                "protocolVersion": "2024-11-05", "capabilities": { "tools": {} },
                "serverInfo": { "name": "s", "version": "1" } })),
            Some("ping") => answer(json!({})),
            Some("tools/list") => {
                let names = ["echo", "progress", "slow", "break", "session", "huge"];
                answer(json!({ "tools": names.map(tool) }));
            }
            Some("tools/call") => match params["name"].as_str().unwrap() {
                "echo" => answer(text_result(&params["arguments"].to_string())),
                "session" => answer(text_result(&session.to_string())),
                "slow" => {
                    thread::sleep(Duration::from_millis(
                        params["arguments"]["ms"].as_u64().unwrap(),
                    ));
                    answer(text_result("at last"));
                }
                "progress" => {
                    let token = &params["_meta"]["progressToken"];
                    for step in 1..=3 {
                        let params = json!({ "progressToken": token, "progress": step });
                        self.say(
                            session,
                            &json!({ "jsonrpc": "2.0",
                            "method": "notifications/progress", "params": params }),
                        );
                    }
                    // A question outside any call: nobody but the gateway can answer.
                    self.say(session, &json!({ "jsonrpc": "2.0", "id": "p1", "method": "ping" }));
                    answer(text_result("done"));
                }
                "break" => self.end(session),
                "huge" => answer(text_result(&"x".repeat(200_000))),
                other => panic!("{other}"),
            },
            _ => {}
        }
    }
}

fn lists(client: &Client) -> bool {
    client.send("tools/list", json!({})).text().contains("\"echo\"")
}

#[track_caller]
fn ready(gateway: &Process) -> Client {
    let client = gateway.client("/mcp/up", Dialect::Modern);
    until("its tools are listed", || lists(&client));
    client
}

#[test]
fn it_lists_and_answers_however_its_events_are_written() {
    for (names, writes) in
        [(Names::Path, Writes::Whole), (Names::Whole, Writes::Whole), (Names::Path, Writes::Odd)]
    {
        let server = Server::start(names, writes);
        let gateway = server.gateway("dialect: sse, headers: { X-Region: north }");
        let client = ready(&gateway);
        let answer = client.call("echo", json!({ "a": "é\n" }));
        assert_eq!(answer.said(), "{\"a\":\"é\\n\"}", "{names:?} {writes:?}: {answer:?}");
        let (head, _) = server.posts("tools/call").remove(0);
        assert!(head.to_ascii_lowercase().contains("x-region: north"), "{head}");
        assert!(!head.to_ascii_lowercase().contains("mcp-session-id"), "{head}");
        assert_eq!(server.shared.strays.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn it_is_found_out_where_nothing_is_said_of_it() {
    let server = Server::start(Names::Path, Writes::Whole);
    let gateway = server.gateway("");
    let client = ready(&gateway);
    assert_eq!(client.call("echo", json!({})).said(), "{}");
    let strays = server.shared.strays.load(Ordering::Relaxed);
    assert!((1..=3).contains(&strays), "a probe and an `initialize`: {strays}");
    // It is remembered: neither polls nor calls try the other transport again.
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(client.call("echo", json!({})).said(), "{}");
    assert_eq!(server.shared.strays.load(Ordering::Relaxed), strays);
}

#[test]
fn what_takes_its_place_is_found_out_too() {
    let server = Server::start(Names::Path, Writes::Whole);
    let address = server.address;
    let gateway = server.gateway("");
    let client = ready(&gateway);
    drop(server);
    until("its port is free", || TcpListener::bind(address).is_ok());
    let successor = Upstream::at(address, &[tool("echo"), tool("newer")]);
    let lists_newer = || client.send("tools/list", json!({})).text().contains("\"newer\"");
    until("the new tools are listed", lists_newer);
    assert_eq!(client.call("echo", json!({})).said(), "ok");
    assert_eq!(successor.calls().len(), 1);
}

#[test]
fn progress_comes_under_the_clients_own_token() {
    let server = Server::start(Names::Path, Writes::Odd);
    let gateway = server.gateway("dialect: sse");
    let client = ready(&gateway).meta("progressToken", json!("mine"));
    let answer = client.call("progress", json!({}));
    let text = answer.text();
    assert_eq!(text.matches("\"progressToken\":\"mine\"").count(), 3, "{text}");
    assert_eq!(answer.said(), "done");
    until("the ping is answered", || {
        let posts = server.shared.posts.lock();
        posts.iter().any(|(_, message)| message["id"] == "p1" && message["result"].is_object())
    });
}

#[test]
fn each_employee_has_a_stream_and_calls_run_side_by_side() {
    let server = Server::start(Names::Path, Writes::Whole);
    let gateway = server.gateway("dialect: sse");
    let client = ready(&gateway);
    let of = |employee: &str| client.clone().employee(employee).call("session", json!({})).said();
    let (first, second) = (of("E1"), of("E2"));
    assert_ne!(first, second);
    assert_eq!(of("E1"), first);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(client.call("slow", json!({ "ms": 400 })).said(), "at last");
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    assert_eq!(server.streams(), 3, "two employees' and the listing's");
}

#[test]
fn a_stream_that_breaks_is_told_and_the_next_call_works() {
    let server = Server::start(Names::Path, Writes::Whole);
    let gateway = server.gateway("dialect: sse");
    let client = ready(&gateway);
    let answer = client.call("break", json!({}));
    assert_eq!(answer.fault()["code"], "external_service_error", "{answer:?}");
    assert_eq!(answer.fault()["outcome"], "unknown", "{answer:?}");
    assert!(answer.text().contains("broke off its event stream"), "{answer:?}");
    assert_eq!(server.posts("tools/call").len(), 1, "it is not sent again");
    assert_eq!(client.call("echo", json!({})).said(), "{}");
}

#[test]
fn a_session_that_the_server_forgot_is_opened_again() {
    let server = Server::start(Names::Path, Writes::Whole);
    let gateway = server.gateway("dialect: sse");
    let client = ready(&gateway);
    let session: usize = client.call("session", json!({})).said().parse().unwrap();
    // The stream stays, and posts find nothing.
    let forgotten = server.shared.streams.lock()[session].take();
    let again: usize = client.call("session", json!({})).said().parse().unwrap();
    assert_ne!(again, session);
    drop(forgotten);
}

#[test]
fn a_refused_message_is_an_error_of_its_own_call() {
    let server = Server::start(Names::Path, Writes::Whole);
    let gateway = server.gateway("dialect: sse");
    let client = ready(&gateway);
    assert_eq!(client.call("echo", json!({})).said(), "{}");
    *server.shared.refusing.lock() = Some("503 Service Unavailable");
    let answer = client.call("echo", json!({}));
    assert_eq!(answer.word(), "external_service_error", "{answer:?}");
    *server.shared.refusing.lock() = None;
    assert_eq!(client.call("echo", json!({})).said(), "{}");
}

#[test]
fn messages_are_never_sent_to_another_origin() {
    let server = Server::start(Names::Foreign, Writes::Whole);
    let mut gateway = server.gateway("dialect: sse");
    let log = gateway.wait_for_log("listing failed");
    assert!(log.contains("another origin"), "{log}");
    assert_eq!(server.shared.posts.lock().len(), 0);
}

#[test]
fn a_stream_without_its_first_event_is_given_up() {
    let server = Server::start(Names::Nothing, Writes::Whole);
    let mut gateway = server.gateway("dialect: sse, timeout: 500ms");
    let log = gateway.wait_for_log("listing failed");
    assert!(log.contains("`up` did not"), "{log}");
}

#[test]
fn a_slow_answer_ends_with_its_time_and_is_told_to_the_server() {
    let server = Server::start(Names::Path, Writes::Whole);
    let gateway = server.gateway("dialect: sse, timeout: 300ms");
    let client = ready(&gateway);
    let answer = client.call("slow", json!({ "ms": 2_000 }));
    assert_eq!(answer.word(), "timeout", "{answer:?}");
    until("the server is told", || !server.posts("notifications/cancelled").is_empty());
    assert_eq!(client.call("echo", json!({})).said(), "{}");
}

#[test]
fn a_message_that_is_too_large_ends_its_call() {
    let server = Server::start(Names::Path, Writes::Whole);
    let gateway = server.gateway("dialect: sse, max_response_bytes: 64KiB");
    let client = ready(&gateway);
    let answer = client.call("huge", json!({}));
    assert_eq!(answer.word(), "payload_too_large", "{answer:?}");
    assert_eq!(client.call("echo", json!({})).said(), "{}");
}

#[test]
fn a_drain_closes_the_streams() {
    let server = Server::start(Names::Path, Writes::Whole);
    let mut gateway = server.gateway("dialect: sse");
    let client = ready(&gateway);
    assert_eq!(client.call("echo", json!({})).said(), "{}");
    gateway.signal(15);
    let begun = Instant::now();
    assert!(gateway.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

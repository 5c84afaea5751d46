//! A server whose answers to `tools/call` a test writes byte by byte; everything else it answers
//! as a server of its dialect does. It records each request and serves one thread a connection.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::member;

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

/// How an answer's body is framed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Length,
    Chunked,
    /// The pieces are the whole answer, head included.
    Raw,
}

/// What becomes of the connection after the last piece.
#[derive(Debug, Clone, Copy, PartialEq)]
enum After {
    Keep,
    /// The body ends as it should, then the connection does.
    Close,
    /// The connection ends where the body does not.
    Break,
    Reset,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Pause(Duration),
    /// Until the test says so.
    Until(Signal),
}

/// Lets an answer go on, one step each time it is given.
#[derive(Debug, Clone)]
pub struct Signal {
    give: mpsc::Sender<()>,
    take: Arc<Mutex<mpsc::Receiver<()>>>,
}

impl Signal {
    pub fn new() -> Self {
        let (give, take) = mpsc::channel();
        Self { give, take: Arc::new(Mutex::new(take)) }
    }

    pub fn give(&self) {
        self.give.send(()).unwrap();
    }
}

/// What is answered to a call: `{{id}}` and `{{token}}` stand for what the request carried.
#[derive(Debug, Clone)]
pub struct Answer {
    status: &'static str,
    headers: Vec<(&'static str, String)>,
    pieces: Vec<Piece>,
    framing: Framing,
    after: After,
    coded: bool,
    cut: usize,
}

impl Answer {
    pub fn new(status: &'static str, content_type: &str, body: impl Into<String>) -> Self {
        let headers = match content_type {
            "" => Vec::new(),
            content_type => vec![("Content-Type", content_type.to_owned())],
        };
        Self {
            status,
            headers,
            pieces: vec![Piece::Text(body.into())],
            framing: Framing::Length,
            after: After::Keep,
            coded: false,
            cut: usize::MAX,
        }
    }

    pub fn json(body: impl Into<String>) -> Self {
        Self::new("200 OK", "application/json", body)
    }

    /// An event stream, each piece one write.
    pub fn events<T: Into<String>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let pieces = pieces.into_iter().map(|piece| Piece::Text(piece.into())).collect();
        Self { pieces, framing: Framing::Chunked, ..Self::new("200 OK", "text/event-stream", "") }
    }

    /// The very bytes, head included.
    pub fn raw(text: impl Into<String>) -> Self {
        Self { framing: Framing::Raw, ..Self::new("", "", text) }
    }

    /// No answer: the request is read and the connection closed.
    pub fn none() -> Self {
        Self { pieces: Vec::new(), after: After::Break, ..Self::raw("") }
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Waits before anything is written.
    pub fn delayed(mut self, by: Duration) -> Self {
        self.pieces.insert(0, Piece::Pause(by));
        self
    }

    /// Holds back each piece until the signal is given.
    pub fn stepwise(mut self, signal: &Signal) -> Self {
        let until = || Piece::Until(signal.clone());
        self.pieces = self.pieces.into_iter().flat_map(|piece| [until(), piece]).collect();
        self
    }

    /// Waits before each piece.
    pub fn every(mut self, time: Duration) -> Self {
        let pause = || Piece::Pause(time);
        self.pieces = self.pieces.into_iter().flat_map(|piece| [pause(), piece]).collect();
        self
    }

    /// Waits before the last piece.
    pub fn paused_before_last(mut self, by: Duration) -> Self {
        let last = self.pieces.len().saturating_sub(1);
        self.pieces.insert(last, Piece::Pause(by));
        self
    }

    pub fn gzip(mut self) -> Self {
        self.coded = true;
        self.header("Content-Encoding", "gzip")
    }

    /// Writes no more than so many bytes at once.
    pub fn cut(mut self, bytes: usize) -> Self {
        self.cut = bytes;
        self
    }

    pub fn then_close(mut self) -> Self {
        self.after = After::Close;
        self
    }

    pub fn then_break(mut self) -> Self {
        self.after = After::Break;
        self
    }

    pub fn then_reset(mut self) -> Self {
        self.after = After::Reset;
        self
    }
}

type Script = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

struct State {
    speaks: Speaks,
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    idle_close: Mutex<Option<Duration>>,
    /// Connections that the other side closed while it waited for an answer.
    hang_ups: AtomicUsize,
    connections: AtomicUsize,
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
            idle_close: Mutex::default(),
            hang_ups: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
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

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
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
        loop {
            reader.get_ref().set_read_timeout(*self.idle_close.lock()).unwrap();
            let Some(request) = read(&mut reader, connection) else { return };
            self.received.lock().push(request.clone());
            let answer = self.answer(&request);
            let written = Writer { state: self, request, stream: reader.get_ref() }.write(&answer);
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
        if method == "tools/call" {
            let script = self.script.lock().clone();
            return script(request);
        }
        let result = match (method.as_str(), self.speaks) {
            ("tools/list", Speaks::Lite) => return Answer::json(format!(r#"{{"tools":{TOOLS}}}"#)),
            ("tools/list", Speaks::Handshake(_)) => format!(r#"{{"tools":{TOOLS}}}"#),
            ("tools/list", Speaks::Stateless) => format!(
                r#"{{"resultType":"complete","tools":{TOOLS},"ttlMs":0,"cacheScope":"private"}}"#
            ),
            ("server/discover", Speaks::Stateless) => r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#.to_owned(),
            ("initialize", Speaks::Handshake(version)) => {
                let result = format!(
                    r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{{"protocolVersion":"{version}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"s","version":"1"}}}}}}"#
                );
                return Answer::json(result).header("Mcp-Session-Id", "session-of-the-server");
            }
            (method, _) if method.starts_with("notifications/") => {
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
fn read(reader: &mut BufReader<TcpStream>, connection: usize) -> Option<Received> {
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

/// Ends a connection so that the other side meets a reset.
fn reset(stream: TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _inside = runtime.enter();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    stream.set_zero_linger().unwrap();
}

struct Writer<'a> {
    state: &'a State,
    request: Received,
    stream: &'a TcpStream,
}

impl Writer<'_> {
    fn write(&mut self, answer: &Answer) -> std::io::Result<()> {
        let id = self.request.member(&["id"]).unwrap_or_default();
        let token = self.request.member(&["params", "_meta", "progressToken"]).unwrap_or_default();
        let filled = |text: &String| text.replace("{{id}}", &id).replace("{{token}}", &token);
        let mut coder = answer.coded.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        let texts = answer.pieces.iter().filter(|piece| matches!(piece, Piece::Text(_))).count();
        let (mut seen, mut head) = (0, (answer.framing != Framing::Raw).then_some(()));
        for piece in &answer.pieces {
            let text = match piece {
                Piece::Pause(time) => {
                    self.pause(*time)?;
                    continue;
                }
                Piece::Until(signal) => {
                    // A test that ends gives no more signals.
                    if signal.take.lock().recv_timeout(Duration::from_secs(10)).is_err() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    continue;
                }
                Piece::Text(text) => filled(text).into_bytes(),
            };
            seen += 1;
            let bytes = match coder.take() {
                None => text,
                Some(mut encoder) => {
                    encoder.write_all(&text)?;
                    if seen == texts {
                        encoder.finish()?
                    } else {
                        encoder.flush()?;
                        let bytes = std::mem::take(encoder.get_mut());
                        coder = Some(encoder);
                        bytes
                    }
                }
            };
            if head.take().is_some() {
                self.head(answer, bytes.len())?;
            }
            for part in bytes.chunks(answer.cut) {
                self.part(answer.framing, part)?;
            }
        }
        if answer.framing == Framing::Chunked && matches!(answer.after, After::Keep | After::Close)
        {
            self.stream.write_all(b"0\r\n\r\n")?;
        }
        Ok(())
    }

    fn head(&mut self, answer: &Answer, length: usize) -> std::io::Result<()> {
        let mut head = format!("HTTP/1.1 {}\r\n", answer.status);
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&match answer.framing {
            Framing::Chunked => "Transfer-Encoding: chunked\r\n\r\n".to_owned(),
            _ => format!("Content-Length: {length}\r\n\r\n"),
        });
        self.stream.write_all(head.as_bytes())
    }

    fn part(&mut self, framing: Framing, part: &[u8]) -> std::io::Result<()> {
        if framing != Framing::Chunked {
            return self.stream.write_all(part);
        }
        let mut chunk = format!("{:x}\r\n", part.len()).into_bytes();
        chunk.extend_from_slice(part);
        chunk.extend_from_slice(b"\r\n");
        self.stream.write_all(&chunk)
    }

    /// Waits, and sees whether the other side goes away meanwhile.
    fn pause(&mut self, time: Duration) -> std::io::Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.peek(&mut [0]) {
                Ok(0) => {
                    self.state.hang_ups.fetch_add(1, Ordering::Relaxed);
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                Ok(_) => thread::sleep(left),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => {
                    self.state.hang_ups.fetch_add(1, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    }
}

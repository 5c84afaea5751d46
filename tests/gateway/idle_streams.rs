//! What a thousand clients cost that do nothing but listen, measured at the real process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::process_support::{Dialect, KEY, Process, Setup, Upstream, tool, until};

const STREAMS: usize = 1_000;

/// The bound of the design, 100 MB, is that of an optimised build. One for tests has larger futures
/// and checks in every allocation; what a stream adds has one bound in both.
const RESIDENT: u64 = if cfg!(debug_assertions) { 160_000_000 } else { 100_000_000 };

/// What one stream may add to what the gateway takes without any.
const EACH: u64 = 64 * 1024;

const LISTEN: &str = r#"{"jsonrpc":"2.0","id":"a","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

struct Stream(BufReader<TcpStream>);

impl Stream {
    fn open(gateway: &Process, request: &str) -> Self {
        let mut socket = TcpStream::connect(gateway.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut stream = Self(BufReader::with_capacity(512, socket));
        let head = stream.until("\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        stream
    }

    fn until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let read = self.0.read_line(&mut text).unwrap();
            assert!(read > 0, "it ended: {text}");
        }
        text
    }

    /// Whether nothing has come.
    fn is_silent(&mut self) -> bool {
        self.0.get_ref().set_nonblocking(true).unwrap();
        let silent = self.0.buffer().is_empty() && self.0.read(&mut [0]).is_err();
        self.0.get_ref().set_nonblocking(false).unwrap();
        silent
    }
}

fn modern() -> String {
    format!(
        "POST /mcp/up HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {KEY}\r\nSSO-Emp-Id: E1\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n\
         Content-Length: {}\r\n\r\n{LISTEN}",
        LISTEN.len()
    )
}

fn legacy(session: &str) -> String {
    format!(
        "GET /mcp/up HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {KEY}\r\nSSO-Emp-Id: E1\r\n\
         Accept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
    )
}

#[test]
fn a_thousand_idle_streams_cost_little_and_no_server_anything() {
    let up = Upstream::start(&[tool("echo")]);
    let setup = Setup::new().config("streams: { per_principal: 2000 }");
    let gateway = setup.upstream("up", &up, "", "").start();
    until("it is listed", || !gateway.client("/mcp/up", Dialect::Modern).list().is_empty());
    let before = gateway.resident();
    let mut streams = Vec::with_capacity(STREAMS);
    for number in 0..STREAMS {
        streams.push(if number % 2 == 0 {
            let mut stream = Stream::open(&gateway, &modern());
            assert!(stream.until("\n\n").contains("acknowledged"));
            stream.until("\r\n");
            stream
        } else {
            let client = gateway.client("/mcp/up", Dialect::Legacy);
            let (_, answer) = client.initialize();
            Stream::open(&gateway, &legacy(answer.header("mcp-session-id").unwrap()))
        });
    }
    let open = gateway.resident();
    let each = open.saturating_sub(before) / STREAMS as u64;
    println!("resident: {before} without streams, {open} with {STREAMS}: {each} each");
    assert!(open < RESIDENT, "{open} bytes resident");
    assert!(each < EACH, "{each} bytes a stream");
    for method in ["subscriptions/listen", ""] {
        assert_eq!(up.requests(method).len(), 0, "a server was asked for a stream");
    }
    // They are idle, and alive: each hears of a change, once.
    assert!(streams.iter_mut().all(Stream::is_silent));
    up.lists(&[tool("echo"), tool("more")]);
    for stream in &mut streams {
        assert!(stream.until("\n\n").contains("notifications/tools/list_changed"));
        stream.until("\r\n");
    }
    assert!(streams.iter_mut().all(Stream::is_silent));
    let told = gateway.resident();
    assert!(told < RESIDENT, "{told} bytes resident");
    drop(streams);
    until("every stream is recorded", || {
        let listened = |record: &&serde_json::Value| {
            record["event"] == "call" && record.to_string().contains("subscriptions/listen")
        };
        gateway.home().audit().iter().filter(listened).count() == STREAMS
    });
}

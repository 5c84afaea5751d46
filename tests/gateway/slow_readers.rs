//! Streams and those who read them: slow ones cost the gateway no memory and hold up nobody else,
//! and a server is heard no longer than a call may take.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    process_support::{self, Dialect, Process, Setup},
    support::{
        Answer, Client, Gateway, OK, Request, Signal, Speaks, Upstream, client::open_session,
        member, wait_for,
    },
};

const MIB: usize = 1 << 20;

/// What a server pours.
const POUR: usize = 200 * MIB;

/// How much of it is read: all of it only where there is time, for the gateway is built for tests.
fn wanted() -> usize {
    if std::env::var_os("HANGU_SOAK_SECONDS").is_some() { POUR } else { 16 * MIB }
}

/// How much a gateway may grow meanwhile: one event on either side, the queue of a handshake call,
/// and what an allocator keeps for each core and each size of block, which is most of it.
const GROWTH: u64 = 40 * 1024;

/// How much one more call may add whose client reads nothing, once the allocator has its pages:
/// what is read from the server and what waits to be written, 400 KiB each at most, and an event
/// in three forms.
const EACH: u64 = 2 * 1024;

const SOON: Duration = Duration::from_secs(5);

fn progress(filling: usize) -> String {
    let filling = "x".repeat(filling);
    format!(
        "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{{\"progressToken\":{{{{token}}}},\"progress\":1,\"message\":\"{filling}\"}}}}\n\n"
    )
}

fn last() -> String {
    format!("data: {OK}\n\n")
}

/// Pours events of 64 KiB and then the answer.
fn pouring(speaks: Speaks) -> (Upstream, Process) {
    let event = progress(64 * 1024);
    let times = POUR / event.len();
    let answer = Answer::events([last()]).repeating(event, times);
    let upstream = Upstream::answering(speaks, answer);
    let more = "max_response_bytes: 1GiB, timeout: 60s, max_time: 120s";
    let gateway = Setup::new().upstream_at("up", &upstream.url(), more, "").start();
    (upstream, gateway)
}

/// Sends a call that asks for progress and returns the connection, its answer unread.
fn call(gateway: &Process, dialect: Dialect) -> TcpStream {
    let meta = match dialect {
        Dialect::Modern => {
            r#","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#
        }
        _ => "",
    };
    let headers = match dialect {
        Dialect::Modern => {
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: slow\r\n"
        }
        _ => "MCP-Protocol-Version: 2025-11-25\r\n",
    };
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"slow","arguments":{{}},"_meta":{{"progressToken":"p"{meta}}}}}}}"#
    );
    let request = format!(
        "POST /mcp/up HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Api-Key: {}\r\nSSO-Emp-Id: E1\r\n{headers}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        process_support::KEY,
        body.len()
    );
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Waits until what the sockets on the way take is taken, and the server waits; says how much
/// that was.
fn waits(upstream: &Upstream) -> usize {
    let mut poured = 0;
    wait_for("the server waits", Duration::from_secs(30), || {
        let before = std::mem::replace(&mut poured, upstream.poured());
        thread::sleep(Duration::from_millis(400));
        poured == before
    });
    poured
}

#[test]
fn a_slow_reader_gets_everything_and_costs_no_memory() {
    for (speaks, dialect) in [
        (Speaks::Stateless, Dialect::Modern),
        (Speaks::Stateless, Dialect::Legacy),
        (Speaks::Handshake("2025-11-25"), Dialect::Modern),
    ] {
        let (upstream, gateway) = pouring(speaks);
        let before = gateway.memory();
        let mut most = before;
        let mut stream = call(&gateway, dialect);
        wait_for("it pours", SOON, || upstream.poured() > 0);
        let poured = waits(&upstream);
        assert!(poured < POUR / 4, "{dialect:?}: {poured} bytes wait for a reader");
        most = most.max(gateway.memory());
        let (mut read, mut tail) = (0, Vec::new());
        let mut buffer = vec![0; MIB];
        while wanted() == POUR || read < wanted() {
            let n = stream.read(&mut buffer).unwrap();
            if n == 0 {
                break;
            }
            read += n;
            if read % (4 * MIB) < n {
                thread::sleep(Duration::from_millis(20));
                most = most.max(gateway.memory());
            }
            tail.extend_from_slice(&buffer[..n]);
            let keep = tail.len().saturating_sub(4096);
            tail.drain(..keep);
        }
        assert!(read > wanted(), "{dialect:?}: {read} bytes of {POUR}");
        assert!(upstream.poured() > poured, "{dialect:?}: what is read makes room");
        let tail = String::from_utf8_lossy(&tail);
        let all = wanted() < POUR || tail.contains(r#""id":1,"result""#);
        assert!(all, "{dialect:?}: {tail}");
        let grown = most - before;
        assert!(grown < GROWTH, "{dialect:?}: {grown} KiB more than the {before} before");
    }
}

/// The least of several looks, with something to do between them: what an allocator is about to
/// give back is not what a call holds.
fn at_rest(gateway: &Process) -> u64 {
    let look = |_| {
        gateway.client("/mcp/up", Dialect::Modern).list();
        thread::sleep(Duration::from_millis(100));
        gateway.memory()
    };
    (0..10).map(look).min().unwrap()
}

/// Nor does it cost those beside it anything, and one that leaves lets go of the server.
#[test]
fn who_reads_nothing_holds_up_nobody_else() {
    const FIRST: usize = 8;
    const MORE: usize = 8;
    let (upstream, gateway) = pouring(Speaks::Stateless);
    let stick = |calls: usize, all: usize| {
        let stuck: Vec<TcpStream> = (0..calls).map(|_| call(&gateway, Dialect::Modern)).collect();
        wait_for("all calls are there", 2 * SOON, || upstream.calls().len() == all);
        waits(&upstream);
        stuck
    };
    let empty = at_rest(&gateway);
    let mut stuck = stick(FIRST, FIRST);
    let before = at_rest(&gateway);
    let grown = before.saturating_sub(empty);
    assert!(grown < GROWTH, "{grown} KiB for the first {FIRST} that read nothing");
    stuck.extend(stick(MORE, FIRST + MORE));
    let grown = at_rest(&gateway).saturating_sub(before);
    assert!(grown < EACH * MORE as u64, "{grown} KiB for {MORE} more that read nothing");
    let begun = Instant::now();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    assert!(client.list().contains(&"echo".to_owned()));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    let connections = upstream.connections();
    drop(stuck);
    let stuck = FIRST + MORE;
    wait_for("the server is let go", 2 * SOON, || upstream.connections() + stuck <= connections);
}

#[test]
fn a_server_that_never_stops_is_heard_no_longer_than_a_call_may_take() {
    for speaks in [Speaks::Stateless, Speaks::Handshake("2025-11-25")] {
        let answer = Answer::events([last()]).repeating(progress(1), 100_000_000);
        let upstream = Upstream::answering(speaks, answer);
        let of_upstream = "timeout: 1s, max_time: 1s, max_response_bytes: 1GiB";
        let gateway = Gateway::before_with(&upstream, of_upstream, "");
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{},"_meta":{"progressToken":"p"}}}"#;
        let begun = Instant::now();
        let reply = Request::handshake(body).ask(&gateway);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert_eq!(reply.refusal().as_deref(), Some("timeout"));
        assert!(reply.message().contains("`up`"), "it says who: {}", reply.message());
        wait_for("the server is let go", SOON, || upstream.connections() <= 2);
    }
}

/// A stream is also bounded as a whole.
#[test]
fn a_stream_that_is_too_large_ends_with_its_own_error() {
    let answer = Answer::events([last()]).repeating(progress(1_000), 1_000);
    let upstream = Upstream::answering(Speaks::Stateless, answer);
    let gateway = Gateway::before_with(&upstream, "max_response_bytes: 100KiB", "");
    let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{},"_meta":{"progressToken":"p"}}}"#;
    let reply = Request::handshake(body).ask(&gateway);
    assert_eq!(reply.refusal().as_deref(), Some("payload_too_large"), "{}", reply.message());
    let events = reply.text().matches("notifications/progress").count();
    assert!((50..120).contains(&events), "{events}");
}

/// The status waits for the first thing that comes: an error in a stream is an error of HTTP too.
#[test]
fn a_status_is_held_until_the_first_event() {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"echo","arguments":{{}},{meta}}}}}"#
    );
    for (code, status) in [(-32601, 404), (-32021, 400), (-32602, 200)] {
        let error = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":{{{{id}}}},\"error\":{{\"code\":{code},\"message\":\"m\",\"data\":{{\"requiredCapabilities\":{{}}}}}}}}\n\n"
        );
        let answer =
            Answer::events([": nothing yet\n\n".to_owned(), "data:\n\n".to_owned(), error])
                .every(Duration::from_millis(50));
        let upstream = Upstream::answering(Speaks::Stateless, answer);
        let gateway = Gateway::before(&upstream);
        let reply = Request::stateless(&call).ask(&gateway);
        assert_eq!(reply.status, status, "{code}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"), "{code}");
        // Older clients take any status but 200 for a broken transport.
        let before = call.replace(&format!(",{meta}"), "");
        assert_eq!(Request::handshake(before).ask(&gateway).status, 200, "{code}");
    }
}

/// But not for ever: whoever takes streams gets one, and then what the call comes to.
#[test]
fn a_head_is_held_only_so_long() {
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let modern = format!(
        r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"echo","arguments":{{}},{meta}}}}}"#
    );
    let before = modern.replace(&format!(",{meta}"), "");
    let unknown = OK.replace(
        r#""result":{"content":[{"type":"text","text":"ok"}]}"#,
        r#""error":{"code":-32601,"message":"m"}"#,
    );
    for (answer, has) in [(OK, r#""text":"ok""#), (unknown.as_str(), "-32601")] {
        let go_on = Signal::new();
        let upstream =
            Upstream::answering(Speaks::Stateless, Answer::json(answer).stepwise(&go_on));
        let gateway = Gateway::before_with(&upstream, "", "edge: { hold: 100ms }");
        for request in [Request::stateless(&modern), Request::handshake(before.as_str())] {
            let mut client = Client::of(&gateway);
            client.send(&request);
            let head = client.head();
            assert_eq!(
                (head.status, head.header("content-type")),
                (200, Some("text/event-stream"))
            );
            go_on.give();
            let event = client.event().unwrap();
            let data = event.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
            assert_eq!(member(data, &["id"]).as_deref(), Some("3"), "{event}");
            assert!(data.contains(has), "{event}");
            assert_eq!(client.event(), None);
            // Whoever takes none waits for the one answer.
            let mut client = Client::of(&gateway);
            client.send(&request.set("Accept", "application/json"));
            thread::sleep(Duration::from_millis(200));
            go_on.give();
            let reply = client.read();
            assert_eq!(reply.header("content-type"), Some("application/json"));
            assert!(reply.text().contains(has), "{}", reply.text());
        }
    }
}

/// A call that was cancelled while its head was held, or whose stream has begun, says no more.
#[test]
fn nothing_is_sent_after_a_cancellation() {
    for hold in ["edge: { hold: 50ms }", "edge: { hold: 60s }"] {
        let go_on = Signal::new();
        let events = [progress(1), progress(2), progress(3), last()];
        let upstream =
            Upstream::answering(Speaks::Stateless, Answer::events(events).stepwise(&go_on));
        let gateway = Gateway::before_with(&upstream, "", hold);
        let session = open_session(&gateway, "2025-11-25");
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow","arguments":{},"_meta":{"progressToken":"p"}}}"#;
        let mut client = Client::of(&gateway);
        client.send(&Request::handshake(body).header("Mcp-Session-Id", &session));
        go_on.give();
        assert_eq!(client.head().header("content-type"), Some("text/event-stream"));
        // The first event of a stream that can be taken up again is no message.
        assert!(client.event().unwrap().contains("retry:"));
        assert!(client.event().unwrap().contains("progress"));
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
        let cancel = Request::handshake(cancel).header("Mcp-Session-Id", &session);
        assert_eq!(cancel.ask(&gateway).status, 202);
        (0..3).for_each(|_| go_on.give());
        assert_eq!(client.event(), None, "{hold}");
        gateway.audited("the cancelled call", |record| record["outcome"] == "cancelled");
    }
}

//! What one client may do, and how long it may take.

use std::task::{Context, Poll};

use http::Version;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::Instant;

use super::*;

fn hasty() -> ServerConfig {
    ServerConfig { header_timeout: ms(100), idle_timeout: ms(300), ..ServerConfig::default() }
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let gate = gate(1, ServerConfig::default());
    let mut client = Client::connect(&gate).await;
    for _ in 0..3 {
        let (head, body) = client.ask("/", "hello").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(!head.contains("connection: close"), "{head}");
        assert_eq!(body, "hello");
    }
    assert_eq!(gate.stats.accepted(), 1);
}

#[tokio::test]
async fn a_client_that_says_nothing_is_cut() {
    let gate = gate(1, hasty());
    let mut client = Client::connect(&gate).await;
    assert!(!client.ends_within(ms(70)).await);
    assert!(client.ends_within(ms(200)).await);
    // Counted when the connection has ended, which its client may see first.
    tokio::time::sleep(ms(20)).await;
    assert_eq!(gate.stats.refused(), 1);
}

#[tokio::test]
async fn a_client_that_dawdles_over_its_head_is_cut() {
    for begin in ["P", "PRI", "POST / HTT", "POST / HTTP/1.1\r\nhost: h\r\nx: "] {
        let gate = gate(1, hasty());
        let mut client = Client::connect(&gate).await;
        client.write(begin).await;
        assert!(!client.ends_within(ms(70)).await, "{begin}");
        assert!(client.ends_within(ms(250)).await, "{begin}");
    }
}

#[tokio::test]
async fn a_later_head_has_no_more_time_than_the_first() {
    let gate = gate(1, hasty());
    let mut client = Client::connect(&gate).await;
    client.ask("/", "one").await;
    tokio::time::sleep(ms(120)).await;
    client.write("POST / HTT").await;
    assert!(!client.ends_within(ms(60)).await);
    assert!(client.ends_within(ms(150)).await);
}

#[tokio::test]
async fn an_idle_connection_outlives_the_time_of_a_head() {
    let gate = gate(1, hasty());
    let mut client = Client::connect(&gate).await;
    client.ask("/", "one").await;
    tokio::time::sleep(ms(200)).await;
    assert_eq!(client.ask("/", "two").await.1, "two");
    assert!(!client.ends_within(ms(250)).await, "idle for less than it may");
    assert!(client.ends_within(ms(400)).await, "idle for longer than it may");
}

#[tokio::test]
async fn a_call_may_take_longer_than_any_of_these_times() {
    let mut config = hasty();
    config.idle_timeout = ms(60);
    let gate = gate(1, config);
    let mut client = Client::connect(&gate).await;
    client.ask("/", "one").await;
    assert_eq!(client.ask("/slow", "").await.1, "late");
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut() {
    let gate = gate(1, hasty());
    let mut client = Client::connect(&gate).await;
    client.write("POST /pour HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n").await;
    // Slow, but it takes something each time.
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..10 {
        tokio::time::sleep(ms(100)).await;
        assert!(client.0.read(&mut buffer).await.unwrap() > 0);
    }
    tokio::time::sleep(ms(1_000)).await;
    let ended = async { while client.0.read(&mut buffer).await.is_ok_and(|read| read > 0) {} };
    assert!(tokio::time::timeout(ms(2_000), ended).await.is_ok(), "it pours on");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_408() {
    let gate = gate(1, ServerConfig::default());
    let mut client = Client::connect(&gate).await;
    client.write("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nhalf").await;
    let (head, _) = client.answer().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    assert!(client.ends_within(ms(200)).await);
}

#[tokio::test]
async fn a_body_over_the_cap_is_a_413() {
    let gate = gate(1, ServerConfig::default());
    let mut client = Client::connect(&gate).await;
    let (head, _) = client.ask("/", "more than sixteen bytes").await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    let mut client = Client::connect(&gate).await;
    client.write("POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n").await;
    client.write("9\r\n123456789\r\n9\r\n123456789\r\n0\r\n\r\n").await;
    let (head, _) = client.answer().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
}

#[tokio::test]
async fn a_client_that_sends_far_too_much_can_still_read_why_it_was_refused() {
    let gate = gate(1, ServerConfig::default());
    let mut client = Client::connect(&gate).await;
    let (head, _) = client.ask("/", &"x".repeat(3_000_000)).await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert_eq!(client.ask("/", "more").await.1, "more", "and may go on");
}

#[tokio::test]
async fn a_head_over_the_cap_is_a_431() {
    let gate = gate(1, ServerConfig { max_header_bytes: 8192, ..ServerConfig::default() });
    let mut client = Client::connect(&gate).await;
    client.write(&format!("GET / HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", "x".repeat(9000))).await;
    let (head, _) = client.answer().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 431 "), "{head}");
}

#[tokio::test]
async fn at_the_cap_a_connection_waits_for_another_to_end() {
    let gate = gate(2, ServerConfig { max_connections: 2, ..ServerConfig::default() });
    let (mut one, mut two) = (Client::connect(&gate).await, Client::connect(&gate).await);
    one.ask("/", "1").await;
    two.ask("/", "2").await;
    let mut three = Client::connect(&gate).await;
    let waiting = tokio::spawn(async move { three.ask("/", "3").await.1 });
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished());
    assert_eq!((gate.stats.open(), gate.stats.full() > 0), (2, true));
    drop(one);
    assert_eq!(waiting.await.unwrap(), "3");
}

#[tokio::test]
async fn connections_are_spread_evenly_over_the_cores() {
    let listener = Listener::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let shutdown = Shutdown::new();
    let workers = serve(listener, ServerConfig::default(), 2, &shutdown, |core| {
        let index = core.index;
        tower::service_fn(move |_: Request<Incoming>| async move {
            Ok::<_, Infallible>(Response::new(Body::from(index.to_string())))
        })
    })
    .unwrap();
    let gate = Gate { address: workers.address(), stats: workers.stats().clone(), shutdown };
    let mut clients = Vec::new();
    let mut counts = [0; 2];
    for _ in 0..10 {
        let mut client = Client::connect(&gate).await;
        let core: usize = client.ask("/", "").await.1.parse().unwrap();
        counts[core] += 1;
        clients.push(client);
    }
    assert_eq!(counts, [5, 5]);
}

#[tokio::test]
async fn http_2_is_understood_without_being_announced() {
    let gate = gate(1, hasty());
    let stream = TcpStream::connect(gate.address).await.unwrap();
    let (mut sender, driver) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(driver);
    let request = |path: &str, body| {
        Request::post(format!("http://h{path}")).body(Full::<Bytes>::from(body)).unwrap()
    };
    let slow = sender.send_request(request("/slow", ""));
    let quick = sender.send_request(request("/", "quick")).await.unwrap();
    assert_eq!(quick.version(), Version::HTTP_2);
    assert_eq!(quick.into_body().collect().await.unwrap().to_bytes(), "quick");
    let slow = slow.await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(slow.to_bytes(), "late");
    // Idle for longer than it may: told to go, and gone.
    tokio::time::timeout(ms(800), async {
        while sender.ready().await.is_ok() {
            tokio::time::sleep(ms(10)).await;
        }
    })
    .await
    .expect("an idle connection ends");
}

#[tokio::test]
async fn pieces_of_a_stream_leave_as_they_come() {
    let gate = gate(1, ServerConfig::default());
    let mut client = Client::connect(&gate).await;
    client.write("GET /stream HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let begun = Instant::now();
    let mut seen = String::new();
    while !seen.contains("1\r\nx\r\n") {
        let mut piece = [0; 1024];
        let n = client.0.read(&mut piece).await.unwrap();
        seen.push_str(std::str::from_utf8(&piece[..n]).unwrap());
    }
    assert!(begun.elapsed() < ms(150), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_forwarding_header_counts_only_from_a_trusted_proxy() {
    let plain = gate(1, ServerConfig::default());
    let proxied = gate(
        1,
        ServerConfig {
            trusted_proxies: TrustedProxies::parse(["127.0.0.1"]).unwrap(),
            ..ServerConfig::default()
        },
    );
    for (gate, expected) in [(&plain, "127.0.0.1"), (&proxied, "203.0.113.7")] {
        let mut client = Client::connect(gate).await;
        client.write("GET /who HTTP/1.1\r\nhost: h\r\n").await;
        client.write("x-forwarded-for: 198.51.100.9, 203.0.113.7\r\n\r\n").await;
        assert_eq!(client.answer().await.unwrap().1, expected);
    }
}

/// A stack that is never ready when it is asked for the first time.
#[derive(Clone)]
struct Reluctant(bool);

impl tower::Service<Request<Incoming>> for Reluctant {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        assert!(std::mem::replace(&mut self.0, false), "called before it was ready");
        std::future::ready(Ok(Response::new(Body::from("ready"))))
    }
}

#[tokio::test]
async fn a_stack_that_is_not_ready_is_waited_for() {
    let listener = Listener::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let shutdown = Shutdown::new();
    let config = ServerConfig::default();
    let workers = serve(listener, config, 1, &shutdown, |_| Reluctant(false)).unwrap();
    let gate = Gate { address: workers.address(), stats: workers.stats().clone(), shutdown };
    let mut client = Client::connect(&gate).await;
    for _ in 0..3 {
        assert_eq!(client.ask("/", "").await.1, "ready");
    }
}

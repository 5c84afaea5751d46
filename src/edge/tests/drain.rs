//! The end: nothing new, nothing dropped.

use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::time::Instant;

use super::*;

#[tokio::test]
async fn a_call_under_way_is_finished_while_new_connections_are_refused() {
    let gate = gate(2, ServerConfig::default());
    let mut busy = Client::connect(&gate).await;
    let call = tokio::spawn(async move { (busy.ask("/slow", "").await, busy) });
    tokio::time::sleep(ms(50)).await;
    let shutdown = gate.shutdown.clone();
    let drain = tokio::spawn(async move { shutdown.drain(ms(0), ms(2000)).await });
    tokio::time::sleep(ms(50)).await;
    assert!(TcpStream::connect(gate.address).await.is_err(), "nobody listens any more");
    let ((head, body), mut busy) = call.await.unwrap();
    assert_eq!(body, "late");
    assert!(head.contains("connection: close"), "{head}");
    assert!(busy.ends_within(ms(100)).await);
    assert_eq!(drain.await.unwrap(), Drained::Clean);
}

#[tokio::test]
async fn http_2_finishes_what_it_took_on_and_takes_on_nothing_more() {
    let gate = gate(1, ServerConfig::default());
    let stream = TcpStream::connect(gate.address).await.unwrap();
    let (mut sender, driver) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(driver);
    let request = || Request::get("http://h/slow").body(Empty::<Bytes>::new()).unwrap();
    let call = sender.send_request(request());
    tokio::time::sleep(ms(50)).await;
    let shutdown = gate.shutdown.clone();
    let drain = tokio::spawn(async move { shutdown.drain(ms(0), ms(2000)).await });
    let answer = call.await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(answer.to_bytes(), "late");
    assert_eq!(drain.await.unwrap(), Drained::Clean);
    driver.await.unwrap().unwrap();
    assert!(sender.send_request(request()).await.is_err());
}

#[tokio::test]
async fn a_request_that_was_on_its_way_gets_the_last_answer() {
    let gate = gate(1, ServerConfig::default());
    let mut client = Client::connect(&gate).await;
    client.ask("/", "one").await;
    gate.shutdown.advance(Phase::Closing);
    tokio::time::sleep(ms(50)).await;
    let (head, body) = client.ask("/", "two").await;
    assert_eq!(body, "two");
    assert!(head.contains("connection: close"), "{head}");
    assert!(client.ends_within(ms(100)).await);
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let gate = gate(1, ServerConfig::default());
    let mut idle = Client::connect(&gate).await;
    idle.ask("/", "one").await;
    let mut silent = Client::connect(&gate).await;
    tokio::time::sleep(ms(20)).await;
    let begun = Instant::now();
    assert_eq!(gate.shutdown.drain(ms(0), ms(5000)).await, Drained::Clean);
    assert!(begun.elapsed() < ms(800), "{:?}", begun.elapsed());
    assert!(idle.ends_within(ms(50)).await && silent.ends_within(ms(50)).await);
}

#[tokio::test]
async fn the_delay_serves_on_while_it_says_that_it_is_not_ready() {
    let gate = gate(1, ServerConfig::default());
    let shutdown = gate.shutdown.clone();
    let drain = tokio::spawn(async move { shutdown.drain(ms(150), ms(1000)).await });
    tokio::time::sleep(ms(50)).await;
    assert!(gate.shutdown.is_draining());
    let mut client = Client::connect(&gate).await;
    let (head, _) = client.ask("/", "one").await;
    assert!(!head.contains("connection: close"), "{head}");
    assert_eq!(drain.await.unwrap(), Drained::Clean);
}

#[tokio::test]
async fn when_the_time_is_up_calls_are_dropped() {
    let gate = gate(1, ServerConfig::default());
    let mut client = Client::connect(&gate).await;
    client.write("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    tokio::time::sleep(ms(50)).await;
    assert_eq!(gate.shutdown.drain(ms(0), ms(20)).await, Drained::CutShort);
    assert!(client.answer().await.is_none());
}

#[tokio::test]
async fn what_goes_on_without_its_client_is_waited_for() {
    let listener = Listener::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let shutdown = Shutdown::new();
    let (done, mut finished) = tokio::sync::mpsc::channel(1);
    let workers = serve(listener, ServerConfig::default(), 1, &shutdown, move |core| {
        let (core, done) = (core.clone(), done.clone());
        tower::service_fn(move |_: Request<Incoming>| {
            let (hold, done) = (core.hold(), done.clone());
            tokio::spawn(async move {
                tokio::time::sleep(ms(100)).await;
                done.send(()).await.unwrap();
                drop(hold);
            });
            async { Ok::<_, Infallible>(Response::new(Body::Empty)) }
        })
    })
    .unwrap();
    let gate = Gate { address: workers.address(), stats: workers.stats().clone(), shutdown };
    Client::connect(&gate).await.ask("/", "").await;
    assert_eq!(gate.shutdown.drain(ms(0), ms(5000)).await, Drained::Clean);
    assert!(finished.try_recv().is_ok());
}

#[tokio::test]
async fn under_load_every_call_that_was_sent_is_answered() {
    let gate = gate(2, ServerConfig::default());
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let address = gate.address;
            tokio::spawn(async move {
                let mut client = Client(TcpStream::connect(address).await.unwrap());
                for calls in 1.. {
                    let (head, body) = client.ask("/", "ping").await;
                    assert_eq!(body, "ping");
                    if head.contains("connection: close") {
                        return calls;
                    }
                }
                0
            })
        })
        .collect();
    tokio::time::sleep(ms(50)).await;
    assert_eq!(gate.shutdown.drain(ms(0), ms(5000)).await, Drained::Clean);
    for client in clients {
        assert!(client.await.expect("no call was dropped") > 1);
    }
}

#[tokio::test]
async fn a_core_that_panics_ends_the_gateway() {
    let listener = Listener::bind(&ListenConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let shutdown = Shutdown::new();
    let workers = serve(listener, ServerConfig::default(), 2, &shutdown, |core| {
        assert_eq!(core.index, 0, "this core cannot be built");
        stack()
    })
    .unwrap();
    tokio::time::timeout(ms(2000), shutdown.reached(Phase::Aborted)).await.unwrap();
    tokio::task::spawn_blocking(move || workers.join()).await.unwrap();
}

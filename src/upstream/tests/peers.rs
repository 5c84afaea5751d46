//! Connections: reuse, what happens when they die, and which address takes the call.

use std::time::Duration;

use http::{HeaderValue, header};
use tokio::time::Instant;

use super::{
    wire::{Step, Wire, answer, nobody, write},
    *,
};
use crate::error::Code;

#[tokio::test]
async fn calls_in_turn_share_one_connection() {
    let wire = Wire::echo().await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    for _ in 0..100 {
        assert_eq!(call(&core, &shop).await.unwrap(), "{\"call\":1}");
    }
    assert_eq!(wire.connections(), 1);
    assert_eq!(core.idle(&shop), 1);
}

#[tokio::test]
async fn calls_at_a_time_have_a_connection_each_and_it_is_kept() {
    let wire = Wire::echo().await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    for _ in 0..3 {
        let calls = (0..8).map(|_| call(&core, &shop));
        for answer in futures_util::future::join_all(calls).await {
            answer.unwrap();
        }
    }
    assert_eq!(wire.connections(), 8);
}

#[tokio::test]
async fn the_pool_keeps_no_more_than_it_may() {
    let wire = Wire::echo().await;
    let core = Upstreams::new(transport());
    let mut config = cluster(&[wire.url()]).config().clone();
    config.pool_size = 2;
    let shop = Cluster::new(config, &transport()).unwrap();
    futures_util::future::join_all((0..8).map(|_| call(&core, &shop))).await;
    assert_eq!(core.idle(&shop), 2);
}

#[tokio::test]
async fn a_connection_that_closed_while_idle_is_noticed_before_it_is_used() {
    let wire = Wire::start([vec![Step::Read, answer("ok")]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    for _ in 0..20 {
        assert_eq!(call(&core, &shop).await.unwrap(), "ok");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(wire.requests().len(), 20, "every call arrived once");
}

#[tokio::test]
async fn a_connection_is_not_used_near_the_time_at_which_its_server_closes_it() {
    for (header, kept) in [
        ("", 1),
        ("Keep-Alive: timeout=5\r\n", 1),
        ("Keep-Alive: timeout=5, max=100\r\n", 1),
        ("keep-alive: max=100, TIMEOUT = 2\r\n", 1),
        ("Keep-Alive: timeout=1\r\n", 0),
        ("Keep-Alive: timeout=0\r\n", 0),
        ("Keep-Alive: timeout=soon\r\n", 1),
    ] {
        let text = format!("HTTP/1.1 200 OK\r\n{header}content-length: 2\r\n\r\nok");
        let wire = Wire::start([vec![Step::Read, write(&text), Step::Read]]).await;
        let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
        assert_eq!(call(&core, &shop).await.unwrap(), "ok");
        assert_eq!(core.idle(&shop), kept, "{header}");
    }
    let text = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=3\r\ncontent-length: 2\r\n\r\nok";
    let wire = Wire::start([vec![Step::Read, write(text), Step::Read]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    call(&core, &shop).await.unwrap();
    tokio::time::sleep(Duration::from_millis(2_600)).await;
    assert_eq!(core.idle(&shop), 0, "before its server does");
}

#[tokio::test]
async fn a_call_that_was_read_is_never_sent_again() {
    let first = vec![Step::Read, answer("ok"), Step::Read];
    let wire = Wire::start([first, vec![Step::Echo]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    call(&core, &shop).await.unwrap();
    let error = call(&core, &shop).await.unwrap_err();
    assert!(error.unknown_outcome());
    assert_eq!(error.kind(), Some("connection_closed"));
    assert_eq!(
        error.message(),
        "The upstream `shop` closed the connection before its answer was complete."
    );
    assert_eq!(wire.requests().len(), 2);
    assert_eq!(wire.connections(), 1);
}

#[tokio::test]
async fn a_reset_after_the_call_left_is_an_unknown_outcome() {
    let wire = Wire::start([vec![Step::Reset], vec![Step::Echo]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let error = call(&core, &shop).await.unwrap_err();
    assert!(error.unknown_outcome() && Failure::of(&error).unwrap().sent());
    assert_eq!(wire.connections(), 1);
}

#[tokio::test]
async fn a_dead_address_is_passed_over() {
    let wire = Wire::echo().await;
    let dead = format!("http://{}/mcp", nobody().await);
    let (core, shop) = (Upstreams::new(transport()), cluster(&[dead, wire.url()]));
    for _ in 0..10 {
        call(&core, &shop).await.unwrap();
    }
    assert!(shop.healthy());
}

#[tokio::test]
async fn when_nobody_takes_the_call_nothing_was_sent() {
    let urls = [nobody().await, nobody().await].map(|dead| format!("http://{dead}/mcp"));
    let (core, shop) = (Upstreams::new(transport()), cluster(&urls));
    let error = call(&core, &shop).await.unwrap_err();
    assert_eq!(error.code(), Code::ExternalServiceError);
    assert_eq!(error.kind(), Some("connection_refused"));
    assert_eq!(error.message(), "The upstream `shop` refused the connection.");
    assert!(!error.unknown_outcome() && !Failure::of(&error).unwrap().sent());
    assert!(Failure::of(&error).unwrap().endpoint().is_some());
    assert!(!shop.healthy());
}

#[tokio::test]
async fn a_connection_that_is_not_taken_runs_out_of_time() {
    // A listener whose queue is full never completes the handshake.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let _queue: Vec<_> =
        (0..4).map(|_| tokio::spawn(tokio::net::TcpStream::connect(address))).collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[format!("http://{address}/mcp")]));
    let begun = Instant::now();
    let error = call(&core, &shop).await.unwrap_err();
    assert_eq!(error.kind(), Some("timeout"));
    assert!(!error.unknown_outcome());
    assert!(begun.elapsed() < Duration::from_millis(1000), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn calls_go_to_the_addresses_in_turn() {
    let (one, two) = (Wire::echo().await, Wire::echo().await);
    let (core, shop) = (Upstreams::new(transport()), cluster(&[one.url(), two.url()]));
    for _ in 0..10 {
        call(&core, &shop).await.unwrap();
    }
    assert_eq!((one.requests().len(), two.requests().len()), (5, 5));
}

#[tokio::test]
async fn upstreams_with_one_address_share_no_connection() {
    let wire = Wire::echo().await;
    let core = Upstreams::new(transport());
    let (shop, other) = (cluster(&[wire.url()]), cluster(&[wire.url()]));
    for _ in 0..3 {
        call(&core, &shop).await.unwrap();
        call(&core, &other).await.unwrap();
    }
    assert_eq!(wire.connections(), 2);
}

#[tokio::test]
async fn a_name_is_looked_up_by_the_first_call() {
    let wire = Wire::echo().await;
    let url = format!("http://localhost:{}/mcp", wire.address.port());
    let (core, shop) = (Upstreams::new(transport()), cluster(&[url]));
    assert!(!shop.healthy(), "nothing is known of it yet");
    call(&core, &shop).await.unwrap();
    assert!(shop.healthy());
    assert!(wire.requests()[0].contains(&format!("host: localhost:{}", wire.address.port())));
}

#[tokio::test]
async fn a_name_without_an_address_is_told_as_that() {
    let (core, shop) =
        (Upstreams::new(transport()), cluster(&["http://nowhere.invalid/mcp".to_owned()]));
    let error = call(&core, &shop).await.unwrap_err();
    assert_eq!(error.kind(), Some("dns"));
    assert!(!error.unknown_outcome());
}

#[tokio::test]
async fn a_health_check_finds_what_is_dead_and_what_is_back() {
    let address = nobody().await;
    let mut config = cluster(&[format!("http://{address}/mcp")]).config().clone();
    config.health_interval = Duration::from_millis(20);
    let shop = Cluster::new(config, &transport()).unwrap();
    let watch = tokio::spawn(shop.clone().watch());
    assert!(shop.healthy(), "not known to be dead");
    let until = |healthy| {
        let shop = &shop;
        async move {
            while shop.healthy() != healthy {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    let patience = Duration::from_secs(2);
    tokio::time::timeout(patience, until(false)).await.expect("found dead");
    let _listener = tokio::net::TcpListener::bind(address).await.unwrap();
    tokio::time::timeout(patience, until(true)).await.expect("found alive");
    watch.abort();
}

#[tokio::test]
async fn what_is_about_one_hop_stays_here() {
    let wire = Wire::echo().await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let mut outgoing = outgoing(&shop);
    outgoing.suffix = "/tools/call";
    let headers = outgoing.request.headers_mut();
    for (name, value) in [
        ("connection", "x-hop, keep-alive"),
        ("x-hop", "1"),
        ("te", "trailers"),
        ("upgrade", "h2c"),
        ("proxy-authorization", "x"),
        ("host", "elsewhere.example"),
        ("content-length", "99"),
        ("transfer-encoding", "chunked"),
        ("x-kept", "1"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    text(send(&core, outgoing).await.unwrap()).await.unwrap();
    let request = wire.requests().remove(0);
    let expected = format!(
        "POST /mcp/tools/call HTTP/1.1\r\nx-kept: 1\r\nhost: {}\r\ncontent-length: 10\r\n\r\n\
         {{\"call\":1}}",
        wire.address
    );
    assert_eq!(request, expected);
}

#[tokio::test]
async fn the_answer_names_the_endpoint_it_comes_from() {
    let wire = Wire::echo().await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let response = send(&core, outgoing(&shop)).await.unwrap();
    let endpoint = response.body().endpoint().unwrap();
    assert_eq!((&**endpoint.host(), endpoint.port()), ("127.0.0.1", wire.address.port()));
}

#[tokio::test]
async fn an_early_answer_before_the_next_call_spoils_only_the_connection() {
    // Some servers say 408 into an idle connection before they close it.
    let script = vec![Step::Read, answer("ok"), write("HTTP/1.1 408 Late\r\n\r\n")];
    let wire = Wire::start([script, vec![Step::Echo]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    call(&core, &shop).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(call(&core, &shop).await.unwrap(), "{\"call\":1}");
    assert_eq!(shop.name().as_ref(), "shop");
    assert!(
        send(&core, outgoing(&shop)).await.unwrap().headers().contains_key(header::CONTENT_LENGTH)
    );
}

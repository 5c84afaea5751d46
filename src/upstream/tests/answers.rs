//! Answers: whole and half, live, encoded, redirected, and those that are none.

use std::io::Write as _;
use std::time::Duration;

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};
use http_body_util::BodyExt;
use tokio::time::Instant;

use super::{
    wire::{Step, Wire, answer, write},
    *,
};

async fn answered(script: Vec<Step>) -> (Wire, Result<Bytes, Error>) {
    let wire = Wire::start([script]).await;
    let answer = call(&Upstreams::new(transport()), &cluster(&[wire.url()])).await;
    (wire, answer)
}

#[tokio::test]
async fn half_an_answer_is_an_unknown_outcome() {
    for half in [
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\ncontent-le",
    ] {
        let (_, answer) = answered(vec![Step::Read, write(half)]).await;
        let error = answer.unwrap_err();
        assert!(error.unknown_outcome(), "{half}");
    }
}

#[tokio::test]
async fn what_is_not_http_is_told_as_that() {
    for garbage in ["SSH-2.0-x\r\n\r\n", "HTTP/9.9 200 OK\r\n\r\n"] {
        let (_, answer) = answered(vec![Step::Read, write(garbage)]).await;
        assert_eq!(answer.unwrap_err().kind(), Some("bad_response"), "{garbage}");
    }
}

#[tokio::test]
async fn a_head_over_the_cap_is_refused() {
    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(70_000));
    let (_, answer) = answered(vec![Step::Read, write(&head)]).await;
    assert!(answer.unwrap_err().unknown_outcome());
}

#[tokio::test]
async fn an_event_stream_arrives_as_it_is_written() {
    let pause = Duration::from_millis(40);
    let mut script = vec![
        Step::Read,
        write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        ),
    ];
    for _ in 0..3 {
        script.extend([write("9\r\ndata: 1\n\n\r\n"), Step::Pause(pause)]);
    }
    script.extend([write("0\r\n\r\n"), Step::Echo]);
    let wire = Wire::start([script]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let mut body = send(&core, outgoing(&shop)).await.unwrap().into_body();
    let begun = Instant::now();
    for n in 0..3 {
        let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(event, "data: 1\n\n");
        let late = begun.elapsed();
        assert!(late < pause * n + pause / 2, "event {n} after {late:?}");
    }
    assert!(body.frame().await.is_none());
    call(&core, &shop).await.unwrap();
    assert_eq!(wire.connections(), 1, "a stream read to its end gives its connection back");
}

#[tokio::test]
async fn a_stream_that_is_dropped_takes_its_connection_with_it() {
    let endless = vec![
        Step::Read,
        write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n"),
        Step::Read,
    ];
    let wire = Wire::start([endless, vec![Step::Echo]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let mut body = send(&core, outgoing(&shop)).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    drop(body);
    assert_eq!(core.idle(&shop), 0);
    assert_eq!(call(&core, &shop).await.unwrap(), "{\"call\":1}");
    assert_eq!(wire.connections(), 2);
}

#[tokio::test]
async fn interim_answers_and_trailers_are_passed_over() {
    let script = vec![
        Step::Read,
        write("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n"),
        write(
            "trailer: x-sum\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n",
        ),
        Step::Echo,
    ];
    let wire = Wire::start([script]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    assert_eq!(call(&core, &shop).await.unwrap(), "ok");
    call(&core, &shop).await.unwrap();
    assert_eq!(wire.connections(), 1);
}

#[tokio::test]
async fn an_answer_without_a_body_gives_its_connection_back_at_once() {
    let empty = write("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n");
    let wire = Wire::start([vec![Step::Read, empty, Step::Echo]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let response = send(&core, outgoing(&shop)).await.unwrap();
    assert_eq!(response.status(), 202);
    assert_eq!(core.idle(&shop), 1, "although nobody has looked at the body");
}

#[tokio::test]
async fn a_large_answer_arrives_whole() {
    let body = "0123456789abcdef".repeat(1 << 16);
    let (_, answer) = answered(vec![Step::Read, answer(&body)]).await;
    assert_eq!(answer.unwrap(), body);
}

// === codings ===

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn codings_that_nobody_asked_for_are_taken_off() {
    let text = "a".repeat(200_000);
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
    zlib.write_all(text.as_bytes()).unwrap();
    let mut bare = DeflateEncoder::new(Vec::new(), Compression::default());
    bare.write_all(text.as_bytes()).unwrap();
    let (zlib, bare) = (zlib.finish().unwrap(), bare.finish().unwrap());
    let halves = [gzip(&text[..100_000]), gzip(&text[100_000..])].concat();
    for (coding, body) in [
        ("gzip", gzip(&text)),
        ("X-Gzip", gzip(&text)),
        ("gzip", halves),
        ("deflate", zlib),
        ("deflate", bare),
        ("identity", text.clone().into_bytes()),
    ] {
        let script = vec![Step::Read, Step::Write(coded(coding, &body))];
        let (wire, answer) = answered(script).await;
        assert!(answer.unwrap() == text, "{coding}");
        assert!(!wire.requests()[0].contains("accept-encoding"));
    }
}

#[tokio::test]
async fn a_coded_answer_has_none_of_the_headers_of_its_coding() {
    let wire = Wire::start([vec![Step::Read, Step::Write(coded("gzip", &gzip("ok")))]]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let response = send(&core, outgoing(&shop)).await.unwrap();
    assert!(response.headers().is_empty(), "{:?}", response.headers());
    assert_eq!(text(response).await.unwrap(), "ok");
}

#[tokio::test]
async fn a_coded_event_stream_stays_live() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut script = vec![
        Step::Read,
        write("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n"),
    ];
    for _ in 0..2 {
        encoder.write_all(b"data: 1\n\n").unwrap();
        encoder.flush().unwrap();
        let flushed = std::mem::take(encoder.get_mut());
        script.extend([Step::Write(flushed), Step::Pause(Duration::from_millis(60))]);
    }
    script.push(Step::Write(encoder.finish().unwrap()));
    let wire = Wire::start([script]).await;
    let (core, shop) = (Upstreams::new(transport()), cluster(&[wire.url()]));
    let begun = Instant::now();
    let mut body = send(&core, outgoing(&shop)).await.unwrap().into_body();
    let event = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(event, "data: 1\n\n");
    assert!(begun.elapsed() < Duration::from_millis(50));
    assert_eq!(body.collect().await.unwrap().to_bytes(), "data: 1\n\n");
}

#[tokio::test]
async fn a_coding_that_is_unknown_or_broken_is_an_error() {
    let half = &gzip(&"text ".repeat(100))[..30];
    for (coding, body) in [
        ("br", &b"xx"[..]),
        ("gzip, gzip", b"xx"),
        ("gzip", b"this is not gzip"),
        ("deflate", b"\xff\xff\xff\xff\xff"),
        ("gzip", half),
    ] {
        let (_, answer) = answered(vec![Step::Read, Step::Write(coded(coding, body))]).await;
        assert_eq!(answer.unwrap_err().kind(), Some("bad_encoding"), "{coding}");
    }
}

// === redirects ===

fn redirect(status: u16, to: &str) -> Step {
    write(&format!("HTTP/1.1 {status} Elsewhere\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n"))
}

#[tokio::test]
async fn one_redirect_within_the_origin_is_followed_with_method_and_body() {
    for status in [307, 308] {
        let wire = Wire::start([vec![Step::Read, redirect(status, "/mcp/?x=1"), Step::Echo]]).await;
        let answer = call(&Upstreams::new(transport()), &cluster(&[wire.url()])).await;
        assert_eq!(answer.unwrap(), "{\"call\":1}");
        assert!(wire.requests()[1].starts_with("POST /mcp/?x=1 HTTP/1.1\r\n"));
        assert_eq!(wire.connections(), 1);
    }
}

#[tokio::test]
async fn every_other_redirect_is_an_error_that_names_it() {
    for (status, to, unknown) in [
        (301, "/mcp/", false),
        (302, "/mcp/", false),
        (303, "/mcp/", true),
        (304, "/mcp/", false),
        (307, "http://elsewhere.example/mcp", false),
        (307, "https://127.0.0.1/mcp", false),
        (307, "//127.0.0.1:1/mcp", false),
        (307, "", false),
        (307, "/mcp", false),
    ] {
        let wire = Wire::start([vec![
            Step::Read,
            redirect(status, to),
            Step::Read,
            redirect(status, to),
            Step::Read,
        ]])
        .await;
        let answer = call(&Upstreams::new(transport()), &cluster(&[wire.url()])).await;
        let error = answer.unwrap_err();
        let says = "The upstream `shop` answered with a redirect to another place.";
        assert_eq!(error.message(), says, "{status} {to}");
        assert_eq!(error.unknown_outcome(), unknown, "{status} {to}");
        assert!(wire.requests().len() <= 2, "{status} {to}");
    }
}

//! The edge against real sockets.

#![allow(clippy::disallowed_methods, reason = "clients of a test end with its runtime")]

mod connections;
mod drain;
mod process;
mod tls;

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower::util::BoxCloneSyncService;

use super::*;
use crate::{
    body::{Body, read_body},
    error::Form,
};

type Stack = BoxCloneSyncService<Request<Incoming>, Response<Body>, Infallible>;

/// What the tests serve: `/slow` answers after 200 ms, `/stream` sends two pieces 200 ms apart,
/// `/pour` pieces without end,
/// `/who` tells the client's address, `/pid` the server's process, and everything else echoes its body, of at most 16 bytes
/// within 200 ms.
fn stack() -> Stack {
    BoxCloneSyncService::new(tower::service_fn(|request: Request<Incoming>| async {
        Ok(answer(request).await)
    }))
}

async fn answer(request: Request<Incoming>) -> Response<Body> {
    match request.uri().path() {
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(200)).await;
            Response::new(Body::from("late"))
        }
        "/pour" => {
            let piece = Bytes::from(vec![b'x'; 64 * 1024]);
            let pieces = futures_util::stream::repeat_with(move || {
                Ok(http_body::Frame::data(piece.clone()))
            });
            Response::new(Body::stream(http_body_util::StreamBody::new(pieces)))
        }
        "/stream" => {
            let pieces = futures_util::stream::unfold(0, |n| async move {
                if n == 1 {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                (n < 2).then(|| (Ok(http_body::Frame::data(Bytes::from_static(b"x"))), n + 1))
            });
            Response::new(Body::stream(http_body_util::StreamBody::new(pieces)))
        }
        "/pid" => Response::new(Body::from(std::process::id().to_string())),
        "/who" => {
            let crate::model::call::ClientAddr { ip: address, .. } =
                request.extensions().get().unwrap();
            Response::new(Body::from(address.to_string()))
        }
        _ => match read_body(request.into_body(), 16, Duration::from_millis(200)).await {
            Ok(body) => Response::new(Body::from(body)),
            Err(error) => {
                let Form::Http { status, .. } = *error.form() else { unreachable!() };
                refuse(
                    StatusCode::from_u16(status).unwrap(),
                    0,
                    "refused",
                    &http::Extensions::new(),
                )
            }
        },
    }
}

/// A server that is stopped when the test ends.
struct Gate {
    address: std::net::SocketAddr,
    stats: std::sync::Arc<Stats>,
    shutdown: Shutdown,
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shutdown.abort();
    }
}

fn gate(workers: usize, config: ServerConfig) -> Gate {
    gate_on(ListenConfig::new("127.0.0.1:0".parse().unwrap()), workers, config)
}

fn gate_on(listen: ListenConfig, workers: usize, config: ServerConfig) -> Gate {
    let listener = Listener::bind(&listen).unwrap();
    let shutdown = Shutdown::new();
    let workers = serve(listener, config, workers, &shutdown, |_| stack()).unwrap();
    Gate { address: workers.address(), stats: workers.stats().clone(), shutdown }
}

/// A client that speaks HTTP/1.1 by hand.
struct Client(TcpStream);

impl Client {
    async fn connect(gate: &Gate) -> Self {
        Self(TcpStream::connect(gate.address).await.unwrap())
    }

    async fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends a request and returns head and body of the answer.
    async fn ask(&mut self, path: &str, body: &str) -> (String, String) {
        let length = body.len();
        self.write(&format!(
            "POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .await;
        self.answer().await.expect("an answer")
    }

    /// One answer with a `content-length`; `None` when the connection ends first.
    async fn answer(&mut self) -> Option<(String, String)> {
        let mut seen = Vec::new();
        let mut piece = [0; 1024];
        loop {
            let text = String::from_utf8(seen.clone()).unwrap();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.unwrap().parse().unwrap() {
                    return Some((head.to_owned(), body.to_owned()));
                }
            }
            match self.0.read(&mut piece).await {
                Ok(n) if n > 0 => seen.extend_from_slice(&piece[..n]),
                _ => return None,
            }
        }
    }

    /// Whether the other side ends the connection within this time.
    async fn ends_within(&mut self, time: Duration) -> bool {
        let mut rest = Vec::new();
        tokio::time::timeout(time, self.0.read_to_end(&mut rest)).await.is_ok()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

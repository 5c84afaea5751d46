//! A server that does exactly as its script says, and counts.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// What is done on a connection, step by step; from the last step the connection closes.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reads one request to the end of its body.
    Read,
    Write(Vec<u8>),
    Pause(Duration),
    /// Closes with bytes unread, which the other side sees as a reset.
    Reset,
    /// Reads and answers, again and again.
    Echo,
}

pub fn write(text: &str) -> Step {
    Step::Write(text.as_bytes().to_vec())
}

/// A whole answer with a body of this text.
pub fn answer(body: &str) -> Step {
    write(&format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// A scripted server.
pub struct Wire {
    pub address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
    /// Heads and bodies, as they came.
    pub requests: Arc<Mutex<Vec<String>>>,
}

impl Wire {
    /// Each connection gets the next script; the last one is for all that follow.
    pub async fn start(scripts: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let mut scripts: VecDeque<_> = scripts.into_iter().collect();
        let (connections, requests) = (wire.connections.clone(), wire.requests.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, SeqCst);
                let script = match scripts.len() {
                    1 => scripts[0].clone(),
                    _ => scripts.pop_front().unwrap(),
                };
                tokio::spawn(play(stream, script, requests.clone()));
            }
        });
        wire
    }

    /// A server that answers whatever it is asked.
    pub async fn echo() -> Self {
        Self::start([vec![Step::Echo]]).await
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }
}

async fn play(mut stream: TcpStream, script: Vec<Step>, requests: Arc<Mutex<Vec<String>>>) {
    for step in script {
        match step {
            Step::Read => match read(&mut stream).await {
                Some(request) => requests.lock().push(request),
                None => return,
            },
            Step::Write(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Step::Pause(time) => tokio::time::sleep(time).await,
            Step::Reset => {
                let _ = stream.readable().await;
                return;
            }
            Step::Echo => {
                while let Some(request) = read(&mut stream).await {
                    let body = request.split_once("\r\n\r\n").unwrap().1.to_owned();
                    requests.lock().push(request);
                    let Step::Write(bytes) = answer(&body) else { unreachable!() };
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

/// One request with a `content-length`, or `None` at the end.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let text = String::from_utf8(request.clone()).unwrap();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if body.len() >= length {
                return Some(text);
            }
        }
        match stream.read(&mut piece).await {
            Ok(n) if n > 0 => request.extend_from_slice(&piece[..n]),
            _ => return None,
        }
    }
}

/// An address where nobody listens.
pub async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

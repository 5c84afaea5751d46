//! Answers as a test writes them, and the bytes that they become: framed, coded, cut, held back
//! and broken off.

use std::{
    io::{ErrorKind, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::upstream::Received;

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
pub enum After {
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
    /// The same text, so many times.
    Often(String, usize),
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
    pub after: After,
    coded: bool,
    cut: usize,
    /// How long the connection may be idle after it, whatever the server's own time is.
    pub idle: Option<Duration>,
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
            idle: None,
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

    /// Writes a text so many times before the last piece.
    pub fn repeating(mut self, text: String, times: usize) -> Self {
        let last = self.pieces.len().saturating_sub(1);
        self.pieces.insert(last, Piece::Often(text, times));
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

    /// Keeps the connection for so long.
    pub fn keeping(mut self, idle: Duration) -> Self {
        self.idle = Some(idle);
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

/// Ends a connection so that the other side meets a reset.
pub fn reset(stream: TcpStream) {
    stream.set_nonblocking(true).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let _inside = runtime.enter();
    let stream = tokio::net::TcpStream::from_std(stream).unwrap();
    stream.set_zero_linger().unwrap();
}

/// Writes the answer to one request.
pub struct Writer<'a> {
    pub request: Received,
    pub stream: &'a TcpStream,
    /// The other side went away while it waited.
    pub hung_up: bool,
    /// Counts the bytes of texts that are written over and over.
    pub poured: &'a AtomicUsize,
}

impl Writer<'_> {
    pub fn write(&mut self, answer: &Answer) -> std::io::Result<()> {
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
                Piece::Often(text, times) => {
                    let text = filled(text);
                    if head.take().is_some() {
                        self.head(answer, text.len())?;
                    }
                    for _ in 0..*times {
                        self.part(answer.framing, text.as_bytes())?;
                        self.poured.fetch_add(text.len(), Ordering::Relaxed);
                    }
                    continue;
                }
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
                    self.hung_up = true;
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                Ok(_) => thread::sleep(left),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => {
                    self.hung_up = true;
                    return Err(error);
                }
            }
        }
    }
}

//! The load: keep-alive connections that send one prepared HTTP/1.1 request again and
//! again and look at as much of each answer as tells where it ends and whether it is
//! the right one. Hand-written, so that it takes little of the machine it measures.

use std::{io, sync::Arc, thread, time::Duration};

use memchr::memmem;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};

const THREADS: usize = 2;

/// One request to one server.
#[derive(Debug, Clone)]
pub struct Shot {
    pub address: String,
    /// Head and body as they go over the wire.
    pub request: Arc<[u8]>,
    /// How long the body of the answer is; unknown until it was asked once.
    pub body_bytes: Option<usize>,
}

/// What a run of shots took.
#[derive(Debug, Default)]
pub struct Run {
    pub calls: u64,
    pub elapsed: Duration,
    /// Microseconds, sorted.
    latencies: Vec<u32>,
}

impl Shot {
    pub fn new(address: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Self {
        let mut request = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        let request = request.into_bytes().into();
        Self { address: address.to_owned(), request, body_bytes: None }
    }

    /// Sends it once and gives the body of the answer, whose length is expected from then on.
    pub async fn probe(&mut self) -> io::Result<Vec<u8>> {
        let mut connection = Connection::open(&self.address).await?;
        let mut body = Vec::new();
        connection.exchange(&self.request, Some(&mut body)).await?;
        self.body_bytes = Some(body.len());
        Ok(body)
    }

    /// Sends it over so many connections for a while.
    pub async fn fire(&self, connections: usize, time: Duration) -> io::Result<Run> {
        let begun = Instant::now();
        let threads = THREADS.min(connections);
        let parts = (0..threads).map(|part| (connections + part) / threads).map(|share| {
            let shot = self.clone();
            let (done, result) = tokio::sync::oneshot::channel();
            thread::spawn(move || done.send(shot.fire_here(share, begun + time)));
            result
        });
        let mut run = Run::default();
        for part in parts.collect::<Vec<_>>() {
            run.latencies.extend(part.await.map_err(io::Error::other)??);
        }
        run.elapsed = begun.elapsed();
        run.calls = run.latencies.len() as u64;
        run.latencies.sort_unstable();
        Ok(run)
    }

    /// This thread's share of the connections.
    fn fire_here(&self, connections: usize, until: Instant) -> io::Result<Vec<u32>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..connections {
                tasks.spawn(self.clone().repeat(until));
            }
            let mut latencies = Vec::new();
            while let Some(task) = tasks.join_next().await {
                latencies.extend(task.map_err(io::Error::other)??);
            }
            Ok(latencies)
        })
    }

    async fn repeat(self, until: Instant) -> io::Result<Vec<u32>> {
        let mut connection = Connection::open(&self.address).await?;
        let mut latencies = Vec::with_capacity(1 << 16);
        let mut begun = Instant::now();
        while begun < until {
            let bytes = connection.exchange(&self.request, None).await?;
            if self.body_bytes.is_some_and(|expected| expected != bytes) {
                return Err(io::Error::other(format!("an answer of {bytes} bytes")));
            }
            let ended = Instant::now();
            latencies.push(u32::try_from((ended - begun).as_micros()).unwrap_or(u32::MAX));
            begun = ended;
        }
        Ok(latencies)
    }
}

impl Run {
    pub fn per_second(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds below which that part of the calls stayed.
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let at = (part * last as f64).round() as usize;
        self.latencies.get(at).copied().map_or(f64::NAN, f64::from)
    }
}

// === impl Connection ===

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// What of the buffer has come and is not used.
    begin: usize,
    end: usize,
}

impl Connection {
    async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 128 << 10], begin: 0, end: 0 })
    }

    /// One request and its answer; the length of its body, which is kept where asked.
    async fn exchange(
        &mut self,
        request: &[u8],
        mut keep: Option<&mut Vec<u8>>,
    ) -> io::Result<usize> {
        self.stream.write_all(request).await?;
        let head = self.until(b"\r\n\r\n").await?;
        let good = head.starts_with("HTTP/1.1 200 ");
        let body = match length(&head) {
            Some(length) => {
                self.body(length, &mut keep).await?;
                length
            }
            None => self.chunks(&mut keep).await?,
        };
        if good {
            return Ok(body);
        }
        Err(io::Error::other(format!("refused: {}", head.lines().next().unwrap_or_default())))
    }

    async fn chunks(&mut self, keep: &mut Option<&mut Vec<u8>>) -> io::Result<usize> {
        let mut total = 0;
        loop {
            let line = self.until(b"\r\n").await?;
            let size = line.split([';', '\r']).next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            self.body(size, keep).await?;
            self.until(b"\r\n").await?;
            total += size;
            if size == 0 {
                return Ok(total);
            }
        }
    }

    /// Everything up to and with a mark.
    async fn until(&mut self, mark: &[u8]) -> io::Result<String> {
        loop {
            let came = self.buffer.get(self.begin..self.end).unwrap_or_default();
            if let Some(at) = memmem::find(came, mark) {
                let text = came.get(..at + mark.len()).unwrap_or_default();
                let text = String::from_utf8_lossy(text).into_owned();
                self.begin += at + mark.len();
                return Ok(text);
            }
            self.more().await?;
        }
    }

    async fn body(&mut self, bytes: usize, keep: &mut Option<&mut Vec<u8>>) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            if self.begin == self.end {
                self.more().await?;
            }
            let part = left.min(self.end - self.begin);
            if let Some(keep) = keep {
                let came = self.buffer.get(self.begin..self.begin + part);
                keep.extend_from_slice(came.unwrap_or_default());
            }
            self.begin += part;
            left -= part;
        }
        Ok(())
    }

    /// Reads on, behind what has come and is not used.
    async fn more(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        match self.stream.read(room).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.end += read;
                Ok(())
            }
        }
    }
}

/// The length the head announces; none for a body in chunks.
fn length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    })
}

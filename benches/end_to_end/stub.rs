//! The upstream both proxies stand before: an MCP server of revision 2026-07-28 whose
//! answers are made beforehand, so that it costs as little as it can. It is a process
//! of its own, ends with its standard input, and takes answers to repeat (`PUT`), by
//! which nginx serves the very bytes that the gateway made.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::Read,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, Response, StatusCode, body::Incoming, header, service::service_fn};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;

/// The tools that answer with a result of a given size, and that size.
pub const SIZES: [(&str, usize); 3] =
    [("result_300", 300), ("result_10k", 10 << 10), ("result_1m", 1 << 20)];

/// Sizes of catalog it can show, at `/mcp/{tools}`.
pub const CATALOGS: [usize; 3] = [10, 20, 1_000];

const THREADS: usize = 2;

#[derive(Debug)]
struct Answers {
    /// By tool name: the result object.
    results: HashMap<&'static str, Bytes>,
    /// By path: the result of `tools/list`.
    lists: HashMap<String, Bytes>,
    discover: Bytes,
    /// By path: whole bodies that somebody put here.
    kept: Mutex<HashMap<String, Bytes>>,
}

/// As much of a request as tells the answer.
#[derive(Deserialize)]
struct Asked<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(default)]
    params: Params<'a>,
}

#[derive(Default, Deserialize)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Option<&'a str>,
}

/// Serves until standard input ends; prints the address first.
pub fn run() -> std::io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    listener.set_nonblocking(true)?;
    say(&listener.local_addr()?.to_string());
    let answers = Arc::new(Answers::new());
    for _ in 0..THREADS {
        let (listener, answers) = (listener.try_clone()?, answers.clone());
        thread::spawn(move || serve(listener, &answers));
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "how the bench learns the address")]
fn say(line: &str) {
    println!("{line}");
}

fn serve(listener: TcpListener, answers: &Arc<Answers>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answers = answers.clone();
            connections.spawn(async move {
                let service = service_fn(move |request| answer(answers.clone(), request));
                let http = hyper::server::conn::http1::Builder::new();
                drop(http.serve_connection(TokioIo::new(stream), service).await);
            });
            while connections.try_join_next().is_some() {}
        }
    })
}

async fn answer(
    answers: Arc<Answers>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    if head.method == Method::PUT {
        answers.kept().insert(head.uri.path().to_owned(), body);
        return Ok(json(StatusCode::OK, Bytes::new()));
    }
    if head.method != Method::POST {
        return Ok(json(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()));
    }
    if head.uri.path().starts_with("/kept/") {
        let kept = answers.kept().get(head.uri.path()).cloned();
        let status = if kept.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        return Ok(json(status, kept.unwrap_or_default()));
    }
    Ok(answers.rpc(head.uri.path(), &body))
}

fn json(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let kind = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

// === impl Answers ===

impl Answers {
    fn new() -> Self {
        let results = SIZES.map(|(tool, size)| (tool, result_of(size)));
        let lists = CATALOGS.map(|tools| (format!("/mcp/{tools}"), list_of(tools)));
        Self {
            results: HashMap::from(results),
            lists: HashMap::from(lists),
            discover: Bytes::from_static(
                br#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":60000,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"stub","version":"1"}}}"#,
            ),
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<String, Bytes>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rpc(&self, path: &str, body: &[u8]) -> Response<Full<Bytes>> {
        let Ok(asked) = serde_json::from_slice::<Asked<'_>>(body) else {
            return json(StatusCode::BAD_REQUEST, Bytes::new());
        };
        let Some(id) = asked.id else {
            return json(StatusCode::ACCEPTED, Bytes::new());
        };
        let result = match asked.method {
            "tools/call" => asked.params.name.and_then(|name| self.results.get(name)),
            "tools/list" => self.lists.get(path),
            "server/discover" => Some(&self.discover),
            _ => None,
        };
        let mut out = Vec::with_capacity(result.map_or(0, Bytes::len) + 64);
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.get().as_bytes());
        let Some(result) = result else {
            out.extend_from_slice(br#","error":{"code":-32601,"message":"method not found"}}"#);
            return json(StatusCode::NOT_FOUND, out.into());
        };
        out.extend_from_slice(br#","result":"#);
        out.extend_from_slice(result);
        out.push(b'}');
        json(StatusCode::OK, out.into())
    }
}

/// A result of about that many bytes: text, as most tools answer.
fn result_of(size: usize) -> Bytes {
    const HEAD: &str = r#"{"resultType":"complete","content":[{"type":"text","text":""#;
    const TAIL: &str = r#""}]}"#;
    const TEXT: &str = "row 17: order 4711, shipped to Lyon, 3 items \u{2013} ";
    let mut text = String::from(HEAD);
    while text.len() + TEXT.len() + TAIL.len() < size {
        text.push_str(TEXT);
    }
    while text.len() + TAIL.len() < size {
        text.push('.');
    }
    text.push_str(TAIL);
    Bytes::from(text)
}

pub fn list_of(tools: usize) -> Bytes {
    let names = SIZES.map(|(name, _)| name.to_owned()).into_iter();
    let names = names.chain((0..).map(|number| format!("tool_{number:04}"))).take(tools);
    let mut list = String::from(r#"{"resultType":"complete","tools":["#);
    for (number, name) in names.enumerate() {
        if number > 0 {
            list.push(',');
        }
        let written = write!(
            list,
            r#"{{"name":"{name}","description":"Finds orders by customer, region and state; the newest come first","inputSchema":{{"type":"object","properties":{{"query":{{"type":"string","description":"What to look for","maxLength":200}},"region":{{"type":"string","enum":["eu-west","eu-north","us-east"]}},"limit":{{"type":"integer","minimum":1,"maximum":100}}}},"required":["query"],"additionalProperties":false}},"annotations":{{"readOnlyHint":true}}}}"#
        );
        written
            .unwrap_or_else(|never: std::fmt::Error| unreachable!("a String takes all: {never}"));
    }
    list.push_str(r#"],"ttlMs":60000,"cacheScope":"private"}"#);
    Bytes::from(list)
}

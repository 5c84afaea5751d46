//! What a process looks like to the layers above: a server of Streamable HTTP, with sessions, a
//! stream to get and an end to ask for.

use std::{sync::Arc, time::Duration};

use hangu::{
    body::Body,
    channel::{Channels, EnvValue, ProcessConfig, Processes},
    error::Error,
    upstream::{Destination, Outgoing, Transport, Trust, UpstreamBody, Upstreams},
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tempfile::TempDir;
use tokio::time::timeout;
use tower::Service;

use crate::{
    process_support::until,
    stdio_server::{self, alive},
};

struct Scene {
    core: Upstreams,
    channels: Arc<Channels>,
    processes: Arc<Processes>,
    place: TempDir,
}

const SESSION: &str = "mcp-session-id";
const PATIENCE: Duration = Duration::from_secs(10);

impl Scene {
    /// To be called on a runtime.
    fn new(mode: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let transport = Transport::new(Trust::System);
        let channels = Channels::new(transport.clone());
        let (program, args) = stdio_server::words();
        let plain = |text: &str| EnvValue::Plain(text.into());
        let config = ProcessConfig {
            name: "up".into(),
            program: program.into(),
            args: args.iter().map(Into::into).collect(),
            env: vec![
                (stdio_server::MODE.into(), plain(mode)),
                (stdio_server::PLACE.into(), plain(place.path().to_str().unwrap())),
            ],
            stop_wait: Duration::from_millis(500),
            max_processes: 4,
            max_message: 1 << 20,
            opening: Duration::from_secs(5),
            shared: false,
        };
        let processes = Processes::new(config, channels.clone());
        Self { core: Upstreams::new(transport), channels, processes, place }
    }

    async fn send(
        &self,
        method: Method,
        session: Option<&str>,
        body: &str,
    ) -> Result<Response<UpstreamBody>, Error> {
        let mut request = Request::builder().method(method).body(Body::from(body.to_owned()));
        if let (Some(session), Ok(request)) = (session, &mut request) {
            request.headers_mut().insert(SESSION, session.parse().unwrap());
        }
        let to = Destination::Carrier(self.processes.clone());
        let outgoing = Outgoing { to, suffix: "", request: request.unwrap(), tried: None };
        timeout(PATIENCE, self.core.clone().call(outgoing)).await.unwrap()
    }

    async fn status(&self, method: Method, session: Option<&str>, body: &str) -> StatusCode {
        self.send(method, session, body).await.unwrap().status()
    }

    /// A session that is open.
    async fn open(&self) -> String {
        let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        let response = self.send(Method::POST, None, initialize).await.unwrap();
        let session = response.headers()[SESSION].to_str().unwrap().to_owned();
        assert!(text(response).await.contains("2024-11-05"));
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let status = self.status(Method::POST, Some(&session), initialized).await;
        assert_eq!(status, StatusCode::ACCEPTED);
        session
    }
}

fn call(id: u64, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
    )
}

async fn text(response: Response<UpstreamBody>) -> String {
    let body = timeout(PATIENCE, response.into_body().collect()).await.unwrap();
    String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
}

/// The first piece of an event stream that holds something.
async fn piece(body: &mut UpstreamBody, wanted: &str) -> String {
    let mut read = String::new();
    while !read.contains(wanted) {
        let frame = timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
        read.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
    }
    read
}

#[tokio::test]
async fn a_session_has_a_stream_of_what_belongs_to_no_request() {
    let scene = Scene::new("legacy");
    let session = scene.open().await;
    assert_eq!(scene.status(Method::GET, None, "").await, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(scene.status(Method::GET, Some("0"), "").await, StatusCode::NOT_FOUND);
    let stream = scene.send(Method::GET, Some(&session), "").await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut stream = stream.into_body();
    let changed = scene.send(Method::POST, Some(&session), &call(2, "change", "{}")).await.unwrap();
    let own = text(changed).await;
    assert!(own.contains("changed") && !own.contains("list_changed"), "{own}");
    piece(&mut stream, "notifications/tools/list_changed").await;
    // A question outside any call is for whoever listens; the answer is posted.
    let question = piece(&mut stream, "roots/list").await;
    assert!(question.contains("\"id\":\"q2\""), "{question}");
    let answer = r#"{"jsonrpc":"2.0","id":"q2","result":{"roots":[]}}"#;
    let status = scene.status(Method::POST, Some(&session), answer).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let seen = scene.send(Method::POST, Some(&session), &call(3, "seen", "{}")).await.unwrap();
    assert!(text(seen).await.contains("q2"));
    scene.channels.stop();
    let rest = timeout(PATIENCE, stream.collect()).await.expect("the stream ends");
    assert_eq!(rest.unwrap().to_bytes().trim_ascii(), b"");
}

#[tokio::test]
async fn an_ended_session_answers_what_is_under_way_and_takes_nothing_more() {
    let scene = Scene::new("legacy");
    let session = scene.open().await;
    let slow = call(2, "slow", r#"{"ms":700}"#);
    let slow = scene.send(Method::POST, Some(&session), &slow).await.unwrap();
    assert_eq!(scene.status(Method::DELETE, Some(&session), "").await, StatusCode::OK);
    let echo = call(3, "echo", "{}");
    assert_eq!(
        scene.status(Method::POST, Some(&session), &echo).await,
        StatusCode::NOT_FOUND,
        "so that another session is opened"
    );
    assert!(text(slow).await.contains("at last"));
    tokio::task::spawn_blocking(move || {
        until("the process ends", || alive(scene.place.path()).is_empty());
        until("its place is free", || scene.processes.running() == 0);
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_session_that_nobody_opens_to_its_end_is_ended() {
    let scene = Scene::new("legacy");
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    // Given up before its answer is read, and refused by a server that knows no sessions.
    drop(scene.send(Method::POST, None, initialize).await.unwrap());
    let modern = Scene::new("modern");
    let refused = modern.send(Method::POST, None, initialize).await.unwrap();
    assert!(text(refused).await.contains("-32601"));
    tokio::task::spawn_blocking(move || {
        for scene in [&scene, &modern] {
            until("the process ends", || alive(scene.place.path()).is_empty());
            until("its place is free", || scene.processes.running() == 0);
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_request_without_a_session_goes_to_the_one_process_and_back_alone() {
    let scene = Scene::new("modern");
    // More at once, and more bytes, than any pipe or queue holds.
    let (requests, filler) = (1..=300, "x".repeat(20_000));
    let requests = requests.map(|id| {
        let (scene, filler) = (&scene, &filler);
        async move {
            let body = call(id, "echo", &format!("{{\"n\":{id},\"filler\":\"{filler}\"}}"));
            let answer = text(scene.send(Method::POST, None, &body).await.unwrap()).await;
            assert!(answer.contains(&format!("\"id\":{id},")), "{answer}");
            assert!(answer.contains(filler), "{id}");
            assert_eq!(answer.matches("\"jsonrpc\"").count(), 1, "{answer}");
        }
    });
    futures_util::future::join_all(requests).await;
    assert_eq!(scene.processes.running(), 1);
    let change = scene.send(Method::POST, None, &call(50, "change", "{}")).await.unwrap();
    assert!(!text(change).await.contains("list_changed"));
    scene.channels.stop();
    let late = scene.send(Method::POST, None, &call(60, "echo", "{}")).await;
    assert!(late.is_err(), "nothing is started any more");
    assert_eq!(alive(scene.place.path()), [0; 0]);
}

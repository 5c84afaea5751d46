//! The stack, composed by another program around a server of its own: `cargo run --example
//! own_stack`.
//!
//! The server is a tower service in this process; no socket is opened. Who calls is known here
//! already, so the layers for keys and employees are left out, and so are limits, idempotency and
//! audit. A layer of this program's own refuses writes while nothing may change.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    error::Error as StdError,
    future::{Ready, ready},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response};
use tower::{Layer, Service, ServiceExt, layer::layer_fn, service_fn};

use hangu::{
    audit::Keys,
    body::{self, Body},
    clock::Clock,
    credential::{InProcess, Vault, VaultLimits},
    error::{Code, Error},
    fault::Source,
    identity::{
        cursor::{self, Cursors},
        seal::Sealer,
        session,
    },
    json::{self, Doc, Duplicates},
    mcp::Served,
    model::{
        call::{Route, Surface},
        caller::{Auth, Caller, CallerId, EmployeeId, Principal, Role, Roles, TenantId},
        exchange::{Closing, Exchange, Facts},
        reply::Reply,
        server::{DialectKind, UpstreamName},
    },
    policy::{Policies, PolicyFile, Subject},
    registry::{Registry, read_definition},
    stack::{
        asked::Asked,
        client_sessions::ClientStates,
        credential::CredentialLayer,
        parked::{ParkedCalls, QuestionLimits},
        policy::PolicyLayer,
        respond::RespondLayer,
        route::RouteLayer,
        stage::{
            Era, ListConfig, Permitted, Serial, Upstream, UpstreamAuth, Upstreams, World, Worlds,
        },
        trace::TraceLayer,
        translate::{
            Cancels, ResumeLimits, Streams,
            northbound::{Known, NorthboundConfig, NorthboundLayer},
            southbound::SouthboundLayer,
        },
        validate::ValidateLayer,
    },
    telemetry::{self, Metrics, Telemetry},
    upstream::{
        Breaker, BreakerConfig, Cluster, ClusterConfig, Egress, EgressConfig, Endpoint, Guard,
        Outgoing, Retries, RetryConfig, Transport, Trust,
    },
};

type Outcome<T> = Result<T, Box<dyn StdError>>;

const TOOLS: &[u8] = br#"[
    {"name": "now", "inputSchema": {"type": "object"}},
    {"name": "set", "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}},
     "required": ["to"]}}
]"#;

const POLICY: &str = "\
version: hangu/v1
kind: Tools
upstreams:
  clock: { tools: { now: { risk: read_low }, set: { risk: write_low, idempotency: none } } }
---
version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: everybody, effect: allow, roles: [member] }
";

/// The server: what it is sent is what a provider would get over the network.
async fn clock_server(outgoing: Outgoing) -> Result<Response<Body>, Error> {
    println!("the server is asked at {}", outgoing.suffix);
    let result = br#"{"content":[{"type":"text","text":"It is noon."}],"isError":false}"#;
    Ok(Response::new(Body::from(Bytes::from_static(result))))
}

/// This program's own layer: calls that write are refused. It stands below policy, so it knows
/// what the call may do at worst.
#[derive(Clone)]
struct Freeze<S>(S);

impl<S> Service<Permitted> for Freeze<S>
where
    S: Service<Permitted, Response = Reply, Error = Error>,
{
    type Response = Reply;
    type Error = Error;
    type Future = Either<Ready<Result<Reply, Error>>, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, permitted: Permitted) -> Self::Future {
        if permitted.tool.is_some() && permitted.risk().is_write() {
            let error = Error::new(Code::UnsafeActionBlocked, "nothing may change before Monday");
            return Either::Left(ready(Err(error)));
        }
        Either::Right(self.0.call(permitted))
    }
}

/// Takes what is known of each exchange when it is over; the gateway makes its audit record here.
struct Told;

impl Closing for Told {
    fn close(&self, _: &Exchange, facts: Facts) {
        let outcome = facts.outcome.map_or("unknown", |outcome| outcome.as_str());
        println!("{}: {outcome}", facts.tool.as_deref().unwrap_or("no tool"));
    }
}

/// What there is, and the rules that are bound to it.
fn world(clock: &UpstreamName, upstreams: Upstreams) -> Outcome<World> {
    let limits = json::Limits { depth: 32, duplicates: Duplicates::Refuse, outline: 2 };
    let listing = Doc::parse(Bytes::from_static(TOOLS), &limits)?;
    let tools = listing.root().elements().map(|tool| read_definition(tool).map(Arc::new));
    let registry = Registry::new([clock.clone()]);
    registry.listed(clock, tools.collect::<Result<_, _>>()?);
    let catalog = Arc::new(registry.catalog());
    let source = Source { name: "own.yaml".to_owned(), text: POLICY.to_owned() };
    let file = PolicyFile { path: source.name.clone(), source: Arc::new(source) };
    let (policies, faults) = Policies::compile(vec![file]);
    let policies = policies.ok_or_else(|| format!("{faults:?}"))?;
    let tools = catalog.tools().iter();
    let subjects: Vec<_> =
        tools.map(|tool| Subject::tool(tool.upstream.as_str(), tool.name())).collect();
    let rules = Arc::new(policies.bind(&subjects));
    Ok(World::new(catalog, upstreams, rules))
}

fn upstreams(clock: &UpstreamName) -> Outcome<Upstreams> {
    // Every upstream has an address; the terminal service decides that nothing dials this one.
    let address = Endpoint::parse("http://127.0.0.1:9/")?;
    let guard = Guard::written(&Egress::new(EgressConfig::default()));
    let cluster = ClusterConfig {
        suffixes: &["/tools/call"],
        ..ClusterConfig::new(clock.shared(), vec![address], guard)
    };
    let upstream = Upstream {
        serial: Serial::next(),
        name: clock.clone(),
        address: None,
        server_key: clock.shared(),
        dialect: DialectKind::McpLite,
        pinned: None,
        reach: Cluster::new(cluster, &Transport::new(Trust::System))?.into(),
        auth: UpstreamAuth::None,
        headers: Vec::new(),
        forward: Vec::new(),
        inject_user: true,
        stateless: true,
        park: false,
        session_idle: Duration::from_secs(60),
        max_sessions: 1,
        timeout: Duration::from_secs(1),
        max_time: Duration::from_secs(5),
        max_request_bytes: 1 << 20,
        max_response_bytes: 1 << 20,
        retries: Retries::new(RetryConfig::default()),
        breaker: Arc::new(Breaker::new(clock.shared(), Some(BreakerConfig::default()))),
        era: Some(Era::Lite).into(),
        served: Served::TOOLS.bits().into(),
        instructions: None.into(),
        introduced: None.into(),
    };
    Ok([Arc::new(upstream)].into())
}

/// Whoever calls: here always the same.
fn caller() -> Caller {
    let roles = Roles::new([Role::new("member")]);
    Caller {
        tenant: TenantId::new("acme"),
        id: CallerId::new("own-program"),
        principal: Principal { employee: EmployeeId::parse("E1"), roles, auth: Auth::Fixed },
        names_employees: false,
        catalog_roles: Roles::default(),
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        policies: 0,
        granted: None,
        missing_scopes: None,
        call_sources: hangu::model::call_source::CallSources::default(),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let name = UpstreamName::parse("clock")?;
    let worlds = Arc::new(Worlds::new(world(&name, upstreams(&name)?)?));
    let clock = Clock::system();
    let metrics = Arc::new(Metrics::new(1, clock.clone()));
    let settings = telemetry::env::Settings::default();
    let trust = telemetry::Trust::Never;
    let telemetry = Arc::new(Telemetry::new(&settings, trust, "own-program", metrics)?);
    let sealer = Sealer::random(session::PURPOSE)?;
    let sessions = Arc::new(session::Sessions::new(sealer, Duration::from_secs(3600)));
    let cursors = Arc::new(Cursors::new(Sealer::random(cursor::PURPOSE)?));
    let lists = ListConfig::default();
    let northbound = NorthboundConfig {
        max_body: 1 << 20,
        body_timeout: Duration::from_secs(5),
        max_depth: 64,
        sessions_required: false,
        hold: Duration::from_secs(10),
        max_batch: 50,
        batch_concurrency: 8,
    };

    // This server asks nothing.
    let questions =
        QuestionLimits { answer: Duration::ZERO, rounds: 0, max_open: 0, max_open_each: 0 };

    // Nobody has a credential of his own here.
    let store = Arc::new(InProcess::default());
    let vault = Arc::new(Vault::new(store, None, VaultLimits::default(), clock.clone()));

    // From the inside out, as in `stack::build`. The types say what fits: without `PolicyLayer`
    // there is no `Permitted`, and this does not compile.
    let stack = CredentialLayer::new(vault).layer(service_fn(clock_server));
    let parked = Arc::new(ParkedCalls::new(questions));
    let stack = SouthboundLayer::new(parked, Arc::default()).layer(stack);
    let stack = RouteLayer::new(cursors, lists, clock.clone()).layer(stack);
    let stack = ValidateLayer::new(Arc::new(Keys::random())).layer(stack);
    let stack = layer_fn(Freeze).layer(stack);
    let stack = PolicyLayer::new(worlds, lists.wait).layer(stack);
    let cancels = Arc::new(Cancels::default());
    let asked = Arc::new(Asked::new(questions));
    let known = Known {
        sessions,
        states: Arc::new(ClientStates::new(1_000)),
        streams: Arc::new(Streams::new(ResumeLimits::default())),
    };
    let stack =
        NorthboundLayer::new(northbound, known, clock.clone(), cancels, asked, telemetry.clone())
            .layer(stack);
    let stack = RespondLayer::default().layer(stack);
    let stack = TraceLayer::new(telemetry, Arc::new(Told), clock).layer(stack);

    for (tool, arguments) in [("now", "{}"), ("set", r#"{"to":"midnight"}"#)] {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call",
                "params":{{"name":"clock__{tool}","arguments":{arguments}}}}}"#
        );
        let mut request = Request::post("/mcp")
            .header("content-type", "application/json")
            .body(Body::from(Bytes::from(body)))?;
        request.extensions_mut().insert(Route::Mcp(Surface::Aggregate));
        request.extensions_mut().insert(caller());
        let answer = stack.clone().oneshot(request).await?;
        let status = answer.status();
        let text = body::collect(answer.into_body(), 1 << 20).await;
        let text = text.map_err(|cut_off| format!("{cut_off:?}"))?;
        println!("{status} {}\n", String::from_utf8_lossy(&text));
    }
    Ok(())
}

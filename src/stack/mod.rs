//! The tower stack: the order in which a call meets its layers, as code.
//!
//! Each layer is public and can be used by another program, in another order or with layers of
//! its own between them; the types say which orders make sense. A call that skipped policy does
//! not compile, because only `policy` makes a [`Permitted`](stage::Permitted).
//!
//! Futures are boxed where a layer waits and where the type of the call changes; the layers that
//! only decide forward the inner future as it is.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use tower::{Layer, Service};

pub mod answer;
pub mod api_key;
pub mod approval;
pub mod asked;
pub mod audit;
pub mod challenge;
pub mod client_sessions;
pub mod consent;
pub mod continuation;
pub mod credential;
pub mod dry_run;
pub mod idempotency;
pub mod listen;
pub mod naming;
pub mod notices;
pub mod parked;
pub mod policy;
pub mod principal;
pub mod quota;
pub mod rate_limit;
pub mod respond;
pub mod route;
pub mod session;
pub mod stage;
pub mod task;
pub mod token;
pub mod trace;
pub mod translate;
pub mod v1;
pub mod validate;

use self::{
    api_key::ApiKeyLayer,
    approval::ApprovalLayer,
    asked::Asked,
    audit::AuditLayer,
    challenge::Challenges,
    client_sessions::ClientStates,
    consent::ConsentLayer,
    continuation::ContinuationLayer,
    credential::CredentialLayer,
    dry_run::DryRunLayer,
    idempotency::IdempotencyLayer,
    listen::ListenLayer,
    naming::NamingLayer,
    notices::Notices,
    parked::ParkedCalls,
    policy::PolicyLayer,
    principal::PrincipalLayer,
    quota::QuotaLayer,
    rate_limit::{AddressLimitLayer, RateLimitLayer},
    respond::{RespondLayer, ToolsCallErrors},
    route::RouteLayer,
    session::{SessionLayer, Sessions},
    stage::{ListConfig, Personal, Routed, Upstreams, Worlds},
    task::TaskLayer,
    token::TokenLayer,
    translate::{
        Cancels, SideStreams, Streams,
        northbound::{Known, NorthboundConfig, NorthboundLayer},
        southbound::SouthboundLayer,
    },
    v1::{Api, V1Layer},
    validate::ValidateLayer,
};
use crate::{
    approval::{Approvals, ArgumentSeal},
    audit::{Audit, Keys},
    body::{Body, BoxError},
    clock::Clock,
    credential::Vault,
    error::Error,
    idempotency::Replays,
    identity::{
        api_key::Callers, cursor::Cursors, session::Sessions as ClientSessions, state::States,
        task::TaskIds, token::Issuers,
    },
    model::reply::Reply,
    telemetry::Telemetry,
    upstream::{Origin, Outgoing},
};

/// Everything the layers decide with. One for the process; each core builds its stack from it.
#[derive(Clone)]
pub struct Engines {
    pub clock: Clock,
    pub callers: Arc<Callers>,
    /// Whose tokens are taken.
    pub issuers: Arc<Issuers>,
    pub challenges: Arc<Challenges>,
    /// Of clients, towards the gateway.
    pub client_sessions: Arc<ClientSessions>,
    /// Of servers that asked something, on its way through clients.
    pub states: Arc<States>,
    /// Of tasks of servers, that clients ask for.
    pub tasks: Arc<TaskIds>,
    pub cursors: Arc<Cursors>,
    pub cancels: Arc<Cancels>,
    /// Of clients of the handshake era, in the middle of their calls.
    pub asked: Arc<Asked>,
    /// Calls at servers of the handshake era that wait for answers.
    pub parked: Arc<ParkedCalls>,
    /// Streams of sessions on which such servers may ask, too.
    pub sides: Arc<SideStreams>,
    pub worlds: Arc<Worlds>,
    pub upstreams: Upstreams,
    /// Servers of employees' own; `None`: nobody can have any.
    pub personal: Option<Arc<dyn Personal>>,
    pub replays: Arc<Replays>,
    /// Credentials of employees, and secrets that operators have named.
    pub vault: Arc<Vault>,
    /// Calls that wait for somebody's yes.
    pub approvals: Arc<Approvals>,
    /// Seals their arguments for those who decide.
    pub argument_seal: Arc<ArgumentSeal>,
    /// The longest arguments that are kept for them, in bytes.
    pub max_arguments: usize,
    pub audit: Arc<Audit>,
    pub keys: Arc<Keys>,
    /// Of the gateway, towards servers.
    pub sessions: Arc<Sessions>,
    pub telemetry: Arc<Telemetry>,
    /// Who listens for notices.
    pub notices: Arc<Notices>,
    /// What clients have set up in their sessions.
    pub client_states: Arc<ClientStates>,
    /// Answers that a client can take up again.
    pub streams: Arc<Streams>,
    pub northbound: NorthboundConfig,
    pub lists: ListConfig,
    pub tools_call_errors: ToolsCallErrors,
    /// Serves `/v1`.
    pub api: Arc<dyn Api>,
}

/// The part of the stack from `respond` down to a terminal service, in the order of a call.
///
/// `trace` is not in it: it stands outside whatever guards the listener has, so that every
/// answer, theirs too, carries a trace id.
pub fn build<T, B, R>(
    engines: &Engines,
    terminal: T,
) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ 'static
+ use<T, B, R>
where
    T: Service<Outgoing, Response = Response<R>, Error = Error> + Clone + Send + Sync + 'static,
    T::Future: Send,
    R: http_body::Body<Data = Bytes> + Origin + Send + 'static,
    R::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError> + Send,
{
    let e = engines;
    let bottom = lower(e, terminal);
    // From the inside out. What a task asks is a question like any other to the layer above.
    let stack = TaskLayer::new(e.tasks.clone(), e.clock.clone()).layer(bottom);
    // What a server asks reaches its client, and the answers the server; the layers above see
    // one call.
    let stack = ContinuationLayer::new(
        e.states.clone(),
        e.clock.clone(),
        e.asked.clone(),
        e.parked.clone(),
    )
    .layer(stack);
    let stack = RouteLayer::new(e.cursors.clone(), e.lists, e.clock.clone()).layer(stack);
    // What a client sets up here concerns no upstream's answer.
    let stack = ListenLayer::new(e.notices.clone(), e.client_states.clone())
        .with_tasks(e.tasks.clone(), e.clock.clone())
        .layer(stack);
    // The last thing before a call leaves: its intent is on disk.
    let stack = AuditLayer::new(e.audit.clone()).layer(stack);
    // What is only tried ends here: all checks are above, and nothing has been written.
    let stack = DryRunLayer.layer(stack);
    // What leaves is paid for before its intent is written; what is replayed is not.
    let stack = QuotaLayer::new(e.telemetry.metrics().clone()).layer(stack);
    // Nobody is asked about a replay, and nobody twice about what is charged or refused anyway.
    let stack = ApprovalLayer {
        approvals: e.approvals.clone(),
        seal: e.argument_seal.clone(),
        keys: e.keys.clone(),
        audit: e.audit.clone(),
        states: e.states.clone(),
        asked: e.asked.clone(),
        max_arguments: e.max_arguments,
    }
    .layer(stack);
    // A replay ends here: it reaches no upstream and leaves no second intent.
    let stack = IdempotencyLayer::new(e.replays.clone(), e.keys.clone()).layer(stack);
    // Replays are charged too, or a key would be a way around the limits.
    let stack = RateLimitLayer.layer(stack);
    // What waits for a grant takes no slot, and what ends for want of one has been let go by all
    // that is below.
    let stack = ConsentLayer {
        states: e.states.clone(),
        asked: e.asked.clone(),
        vault: e.vault.clone(),
        clock: e.clock.clone(),
    }
    .layer(stack);
    // Wrong arguments cost no quota: whoever repairs them can try again.
    let stack = ValidateLayer::new(e.keys.clone()).layer(stack);
    // What is stored and recorded below has the server's names, what goes up the caller's.
    let stack = NamingLayer.layer(stack);
    // Nothing below runs for a call that is not permitted.
    let stack = PolicyLayer::new(e.worlds.clone(), e.lists.wait)
        .with_personal(e.personal.clone())
        .with_tasks(e.tasks.clone(), e.clock.clone())
        .with_challenges(e.challenges.clone())
        .layer(stack);
    let calls = stack.clone();
    // From bytes to a call: needs to know the caller, whose session it may be.
    let stack = NorthboundLayer::new(
        e.northbound.clone(),
        Known {
            sessions: e.client_sessions.clone(),
            states: e.client_states.clone(),
            streams: e.streams.clone(),
        },
        e.clock.clone(),
        e.cancels.clone(),
        e.asked.clone(),
        e.telemetry.clone(),
    )
    .layer(stack);
    // What is under `/v1` is not MCP; the calls that it makes are decided like all others.
    let stack = V1Layer {
        api: e.api.clone(),
        calls,
        max_body: e.northbound.max_body,
        body_timeout: e.northbound.body_timeout,
    }
    .layer(stack);
    // Whose call it is; the key has said which caller may name an employee.
    let stack = PrincipalLayer::new(e.worlds.clone()).layer(stack);
    let stack = ApiKeyLayer::new(
        e.callers.clone(),
        e.challenges.clone(),
        e.clock.clone(),
        e.telemetry.clone(),
    )
    .layer(stack);
    // A good token may stand in for a key; a bad one is refused beside any.
    let stack = TokenLayer::new(
        e.issuers.clone(),
        e.challenges.clone(),
        e.clock.clone(),
        e.telemetry.clone(),
    )
    .layer(stack);
    // Before any work is done for an address.
    let stack = AddressLimitLayer::new(e.worlds.clone()).layer(stack);
    // Every error from below becomes an answer here.
    RespondLayer(e.tools_call_errors).layer(stack)
}

/// The part that talks to servers: what the gateway's own discovery uses too.
pub fn lower<T, R>(
    engines: &Engines,
    terminal: T,
) -> impl Service<Routed, Response = Reply, Error = Error, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static
+ use<T, R>
where
    T: Service<Outgoing, Response = Response<R>, Error = Error> + Clone + Send + Sync + 'static,
    T::Future: Send,
    R: http_body::Body<Data = Bytes> + Origin + Send + 'static,
    R::Error: Into<BoxError>,
{
    // Secrets are opened last and seen by nothing above.
    let stack = CredentialLayer::new(engines.vault.clone()).layer(terminal);
    // A session needs the credential to be opened with.
    let stack = SessionLayer::new(engines.sessions.clone(), engines.vault.clone()).layer(stack);
    SouthboundLayer::new(engines.parked.clone(), engines.sides.clone())
        .with_metrics(engines.telemetry.metrics().clone())
        .layer(stack)
}

//! Puts the parts together: each gets its configuration in its own terms.

use std::{sync::Arc, time::Duration};

use super::{
    App, Options, StartError,
    admin::Operations,
    background::{Background, Drain},
    build_info,
    certificates::Certificates,
    keys::{Source, Watch},
    news::Bell,
    oauth::{self, Oauth},
    personal::{self, PersonalServers},
    pins::{Pins, bounds},
    probes, reach,
    stored::{Stored, stored},
    webhook,
    world::Governed,
};
use crate::{
    admin::{AdminState, api::Api},
    api::{Adapted, ApprovalsApi, StepsApi, ToolCalls, V1},
    approval::{self, Approvals, ArgumentSeal},
    audit::{self, Audit, Keys, Observer},
    channel::Channels,
    clock::Clock,
    config::{self, Config},
    credential::{self, Purpose},
    edge::Shutdown,
    identity::{
        api_key::{CallerEntry, Callers, Fixed, Identity, KeyDigest},
        cursor::{self, Cursors},
        seal::Sealer,
        session::{self, Sessions as ClientSessions},
        state::{self, States},
        task::{self, TaskIds},
        ticket::{self, Tickets},
    },
    limit::LimitFault,
    policy::Policies,
    registry::Registry,
    stack::{
        Engines,
        asked::Asked,
        challenge::Challenges,
        client_sessions::ClientStates,
        notices::{Notices, StreamLimits},
        parked::{ParkedCalls, QuestionLimits},
        respond::ToolsCallErrors,
        session::Sessions,
        stage::{ListConfig, Personal},
        trace::{Closer, TraceLayer},
        translate::{Cancels, ResumeLimits, Streams, northbound::NorthboundConfig},
    },
    steps,
    store::Store,
    telemetry::{self, Metrics, Telemetry},
    upstream::{Egress, Transport, Trust},
};

/// How deep a request's JSON may nest.
pub(super) const MAX_DEPTH: usize = 128;

pub(super) fn app(
    config: Config,
    policies: Policies,
    options: &Options,
) -> Result<App, StartError> {
    let clock = Clock::system();
    let source = Source::of(&config, options, &clock)?;
    let keys = Arc::new(Keys::new(source.secrets(Purpose::Digests)?));
    let metrics = Arc::new(Metrics::new(config.telemetry.max_tenants, clock.clone()));
    let telemetry = Arc::new(telemetry(&config, options, metrics.clone())?);
    let audit = Arc::new(Audit::start(
        audit::Config {
            strict: config.audit.strict.clone(),
            ..audit::Config::new(&config.audit.file, &options.instance)
        },
        keys.clone(),
        clock.clone(),
        Arc::new(AuditMetrics(metrics.clone())),
    )?);
    let Stored { replays, approvals, ledger, pins, last_pin, vault, servers, store } =
        stored(&config, &source, &clock)?;
    let certificates = Certificates::load(&config)?;
    let transport = Transport::new(Trust::System);
    let channels = Channels::new(transport.clone());
    let egress = Egress::resolving(config.egress.clone(), options.resolver.clone());
    let identity = source.identity()?;
    let tickets = Sealer::new(ticket::PURPOSE, &source.secrets(Purpose::Tokens)?);
    let tickets = Arc::new(Tickets::new(tickets));
    let oauth = Oauth::new(oauth::Parts {
        transport: transport.clone(),
        egress: egress.clone(),
        clock: clock.clone(),
        vault: vault.clone(),
        tickets: tickets.clone(),
        once: approvals.clone(),
        public_url: config.public_url.as_ref().map(ToString::to_string),
        identity: identity.clone(),
        entries: config.credentials.entries,
        audit: audit.clone(),
    });
    let around = reach::Around {
        transport: &transport,
        egress: &egress,
        channels: &channels,
        oauth: &oauth,
        certificates: &certificates,
        metrics: &metrics,
    };
    let upstreams = reach::upstreams(&config, &around)?;
    let names = upstreams.iter().map(|upstream| upstream.name.clone());
    let registry = Arc::new(Registry::naming(config.names, names));
    let own_limits = super::limits::own_limits(&config);
    let governed = Governed::new(registry.clone(), upstreams.clone(), policies, own_limits, ledger);
    let governed = Arc::new(governed.map_err(limits)?);
    let maker = personal::Maker::new(
        transport.clone(),
        egress.clone(),
        channels.clone(),
        oauth.clone(),
        personal::limits(&config.servers),
    );
    let (own, asker) = PersonalServers::new(servers, maker, &config.servers, clock.clone());
    let personal: Option<Arc<dyn Personal>> = Some(Arc::new(own.clone()));
    let worlds = governed.worlds.clone();
    let told = webhook::webhook(&config, &transport, &egress, &metrics, &clock)?;
    let (outbox, courier) = told.unzip();
    let approvals = Approvals::new(approvals, clock.clone())
        .with_bounds(approval::Bounds {
            total: config.approvals.max_waiting,
            each: config.approvals.max_waiting_each,
        })
        .observed(Arc::new(ApprovalMetrics(metrics.clone())));
    let approvals = Arc::new(match outbox {
        Some(outbox) => approvals.notifying(Arc::new(outbox)),
        None => approvals,
    });
    let argument_seal = Arc::new(ArgumentSeal::new(&source.secrets(Purpose::Approvals)?));
    let opening = argument_seal.clone();
    let of_approvals = ApprovalsApi {
        approvals: approvals.clone(),
        audit: audit.clone(),
        open: Arc::new(move |approval| opening.open(approval)),
    };
    let tools = ToolCalls {
        worlds: worlds.clone(),
        upstreams: upstreams.clone(),
        personal: personal.clone(),
        clock: clock.clone(),
        telemetry: telemetry.clone(),
        adapted: Adapted::default(),
    };
    let kept = (pins.clone(), bounds(&config.pins));
    let of_servers = own.api(governed.clone(), vault.clone(), audit.clone(), kept);
    let step_keys = Arc::new(steps::Keys::new(source.secrets(Purpose::Steps)?));
    let config::Steps { max_steps, limits } = config.steps;
    let of_steps = StepsApi { keys: step_keys.clone(), max_steps, limits };
    let inviting = oauth.clone();
    let invite = Arc::new(move |key: &str, caller: &_| inviting.invitation(key, caller));
    let api = V1::new(worlds.clone(), of_approvals, tools, of_servers, of_steps, invite);
    let tokens = source.secrets(Purpose::Tokens)?;
    let sealer = |purpose| Sealer::new(purpose, &tokens);
    let client_sessions =
        Arc::new(ClientSessions::new(sealer(session::PURPOSE), config.sessions.ttl));
    let questions = QuestionLimits {
        answer: config.questions.answer,
        rounds: config.questions.rounds,
        max_open: config.questions.max_open,
        max_open_each: config.questions.max_open_each,
    };
    let (issuers, fetchers) = super::jwks::issuers(&config, &transport, &egress)?;
    let engines = Engines {
        challenges: Arc::new(Challenges {
            tokens: !config.issuers.is_empty(),
            public_url: config.public_url.as_ref().map(|url| url.as_str().into()),
            tls: config.tls.is_some(),
            base: config.issuers.iter().flat_map(|issuer| issuer.scopes.base.clone()).collect(),
        }),
        issuers: Arc::new(issuers),
        callers: Arc::new(callers(&config)?),
        client_sessions,
        states: Arc::new(States::new(sealer(state::PURPOSE), config.questions.answer)),
        tasks: Arc::new(TaskIds::new(sealer(task::PURPOSE))),
        cursors: Arc::new(Cursors::new(sealer(cursor::PURPOSE))),
        cancels: Arc::new(Cancels::default()),
        asked: Arc::new(Asked::new(questions)),
        parked: Arc::new(ParkedCalls::new(questions)),
        sides: Arc::default(),
        worlds: worlds.clone(),
        upstreams: upstreams.clone(),
        personal: personal.clone(),
        replays,
        vault: vault.clone(),
        approvals,
        argument_seal,
        max_arguments: to_usize(config.approvals.max_arguments),
        audit: audit.clone(),
        keys: keys.clone(),
        sessions: Arc::new(Sessions::measured(telemetry.metrics().clone())),
        telemetry: telemetry.clone(),
        northbound: NorthboundConfig {
            max_body: to_usize(config.edge.max_body),
            body_timeout: config.edge.body_timeout,
            max_depth: MAX_DEPTH,
            sessions_required: config.sessions.required,
            hold: config.edge.hold,
            max_batch: config.edge.max_batch,
            batch_concurrency: config.edge.batch_concurrency,
        },
        notices: Arc::new(
            Notices::new(
                StreamLimits {
                    per_principal: config.streams.per_principal,
                    total: config.streams.total,
                    subscriptions: config.streams.subscriptions,
                },
                worlds.clone(),
            )
            .with_personal(personal),
        ),
        client_states: Arc::new(ClientStates::new(config.streams.sessions)),
        streams: Arc::new(Streams::new(ResumeLimits {
            window: config.streams.resume_window,
            bytes: to_usize(config.streams.resume_bytes),
            total: to_usize(config.streams.resume_total),
        })),
        lists: ListConfig { page_size: config.lists.page_size, wait: config.lists.wait },
        tools_call_errors: match config.errors.tools_call {
            config::ToolsCallErrors::Result => ToolsCallErrors::Result,
            config::ToolsCallErrors::JsonRpc => ToolsCallErrors::JsonRpc,
            config::ToolsCallErrors::Status => ToolsCallErrors::Status,
        },
        api: Arc::new(api),
        clock: clock.clone(),
    };
    let shutdown = Shutdown::new();
    let probes = Arc::new(probes::State {
        started: false.into(),
        worlds,
        freshness: Arc::default(),
        upstreams: upstreams.clone(),
        registry: registry.clone(),
        audit: audit.clone(),
        store: store.as_ref().map(Store::health),
        shutdown: shutdown.clone(),
    });
    let closing = Arc::new(Closer::new(telemetry.clone(), audit.clone(), keys));
    let pins = Arc::new(Pins {
        governed: governed.clone(),
        store: pins,
        settings: config.pins,
        server_keys: upstreams.iter().map(|it| (it.name.clone(), it.server_key.clone())).collect(),
        audit: audit.clone(),
        metrics: metrics.clone(),
        clock: clock.clone(),
        last: last_pin.map(Into::into),
        behind: false.into(),
        own: own.clone().into(),
    });
    own.govern(governed.clone(), pins.clone());
    oauth.pages.telling(on_grant(engines.client_states.clone(), own.clone()));
    let used = source.in_use(vault.clone(), &clock);
    let background = Background {
        transport: transport.clone(),
        on_change: governed.clone().on_change(),
        pins: pins.clone(),
        registry,
        closing: closing.clone(),
        polls: config.upstreams.iter().map(|upstream| upstream.poll).collect(),
        certificates: certificates.clone(),
        listings: super::limits::listings(&config),
        fetchers,
        courier,
        personal: Some((own.clone(), asker)),
        keyring: used.clone().map(|used| Watch {
            used,
            steps: step_keys,
            tickets,
            identity: identity.clone(),
        }),
        keep_approvals: config.approvals.keep,
        drain: Drain {
            asked: Arc::default(),
            delay: config.drain.delay,
            timeout: config.drain.timeout,
        },
    };
    let (bell, stats) = (Arc::<Bell>::default(), Arc::default());
    let operations = Operations {
        config: config.shown(),
        governed: governed.clone(),
        freshness: probes.freshness.clone(),
        audit_file: config.audit.file.clone(),
        stats: Arc::clone(&stats),
        probes: probes.clone(),
        shutdown: shutdown.clone(),
        bell: bell.clone(),
        drain: background.drain.asked.clone(),
        pins,
        vault,
        approvals: engines.approvals.clone(),
        own,
        keyring: used,
    };
    let tokens = super::admin::tokens(&config.admin.tokens);
    let admin = Arc::new(AdminState {
        metrics,
        probes: probes.clone(),
        build: build_info(&options.instance),
        api: Api::new(tokens, Arc::new(operations), audit.clone(), clock.clone()),
    });
    let trace = TraceLayer::new(telemetry, closing, clock);
    Ok(App {
        config,
        engines,
        transport,
        channels,
        trace,
        background,
        governed,
        reload: None,
        admin,
        probes,
        bell,
        stats,
        shutdown,
        certificates,
        store,
        identity,
        pages: oauth.pages,
    })
}

/// Whoever waits for an employee's grant learns that it has come: the client that was told where it
/// is given, and the list of a server that the employee himself brought.
fn on_grant(states: Arc<ClientStates>, own: PersonalServers) -> oauth::OnGrant {
    Box::new(move |oauth::Granted { whose, owner, told }| {
        let credential::Owner::Employee(employee) = &whose.owner else { return };
        if let Some((session, link)) = told
            && let Some(state) = states.find(session, Some(employee))
        {
            state.followed(&link);
        }
        if owner.as_ref() == Some(employee) {
            own.granted(whose.tenant, employee.clone(), whose.server_key);
        }
    })
}

fn telemetry(
    config: &Config,
    options: &Options,
    metrics: Arc<Metrics>,
) -> Result<Telemetry, StartError> {
    let settings = telemetry::env::Settings::from_env();
    for note in &settings.notes {
        tracing::warn!("{note}");
    }
    let trust = match config.trace.trust {
        config::TraceTrust::Authenticated => telemetry::Trust::Authenticated,
        config::TraceTrust::Never => telemetry::Trust::Never,
    };
    Ok(Telemetry::new(&settings, trust, &options.instance, metrics)?)
}

/// Brings the audit log's own figures to the metrics.
struct AuditMetrics(Arc<Metrics>);

impl Observer for AuditMetrics {
    fn written(&self, records: u64, took: Duration) {
        self.0.audit_written(records, took);
    }

    fn dropped(&self, records: u64) {
        self.0.audit_dropped(records);
    }

    fn failed(&self, records: u64) {
        self.0.audit_failed(records);
    }

    fn depth(&self, records: u64) {
        self.0.audit_depth(records);
    }
}

/// And how requests for approval end.
struct ApprovalMetrics(Arc<Metrics>);

impl approval::Observer for ApprovalMetrics {
    fn ended(&self, end: approval::Ended, waited: Duration) {
        let state = match end {
            approval::Ended::Granted => "granted",
            approval::Ended::Refused => "refused",
            approval::Ended::Expired => "expired",
        };
        self.0.approval_ended(state, waited);
    }
}

fn callers(config: &Config) -> Result<Callers, StartError> {
    let entry = |caller: &config::Caller| {
        let fixed = caller
            .identity
            .fixed
            .as_ref()
            .map(|fixed| Fixed::new(fixed.id.clone(), fixed.roles.clone()));
        CallerEntry {
            id: caller.id.clone(),
            tenant: caller.tenant.clone(),
            keys: caller
                .keys
                .iter()
                .map(|key| KeyDigest { sha256: key.digest, expires_ms: key.expires_ms })
                .collect(),
            identity: match (caller.identity.header, fixed) {
                (true, None) => Identity::Header,
                (true, Some(fixed)) => Identity::HeaderOr(fixed),
                (false, Some(fixed)) => Identity::Fixed(fixed),
                (false, None) => Identity::None,
            },
            catalog_roles: caller.catalog_roles.clone(),
            call_sources: caller.call_sources,
        }
    };
    Callers::new(config.callers.iter().map(entry).collect())
        .map_err(|fault| StartError::Callers(fault.to_string()))
}

pub(super) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn limits(fault: LimitFault) -> StartError {
    StartError::Limits(fault.to_string())
}

//! What the store that the file names keeps for the engines, or what stands in for one.

use std::{sync::Arc, time::Duration};

use super::{StartError, build::to_usize, credentials, keys::Source};
use crate::{
    approval::{self, store::ApprovalStore},
    clock::Clock,
    config::{self, Config},
    credential::{InProcess, Purpose, Vault},
    idempotency::{Bodies, Replays, Settings},
    limit::Ledger,
    registry::{
        self,
        server::{OptionLimits, ServerStore},
        store::PinStore,
    },
    store::{self, Store},
};

/// What is kept, by whatever keeps it.
pub(super) struct Stored {
    /// Records of calls with a key.
    pub replays: Arc<Replays>,
    pub approvals: Arc<dyn ApprovalStore>,
    /// Of what is spent.
    pub ledger: Arc<Ledger>,
    pub pins: Arc<dyn PinStore>,
    /// The last approval of a definition; `None`: no other process knows of them.
    pub last_pin: Option<u64>,
    pub vault: Arc<Vault>,
    /// Of employees' own.
    pub servers: Arc<dyn ServerStore>,
    pub store: Option<Store>,
}

pub(super) fn stored(
    config: &Config,
    source: &Source,
    clock: &Clock,
) -> Result<Stored, StartError> {
    let settings = replay_settings(config);
    let address = match &config.store {
        config::Store::Memory => {
            let replays = Replays::new(settings, clock.clone());
            let approvals = Arc::new(approval::Local::default());
            let ledger = Ledger::in_process(clock.clone());
            let pins = Arc::new(registry::Local::default());
            let last_pin = None;
            let vault = credentials::vault(Arc::new(InProcess::default()), config, source, clock)?;
            let servers = Arc::<registry::server::Local>::default();
            return Ok(Stored {
                replays,
                approvals,
                ledger,
                pins,
                last_pin,
                vault,
                servers,
                store: None,
            });
        }
        config::Store::Sqlite(path) => store::Address::Sqlite(path.clone()),
        config::Store::Postgres(url) => store::Address::Postgres(url.clone()),
    };
    let bodies = Bodies::new(&source.secrets(Purpose::Replays)?);
    let opened = store::Store::open(&address, clock)?;
    let replays = Replays::durable(settings, clock.clone(), opened.replays, bodies, opened.usage);
    let ledger = Ledger::durable(clock.clone(), opened.quotas);
    let vault = credentials::vault(opened.credentials, config, source, clock)?;
    Ok(Stored {
        replays,
        approvals: opened.approvals,
        ledger,
        pins: opened.pins,
        last_pin: Some(opened.last_pin),
        vault,
        servers: opened.servers,
        store: Some(opened.store),
    })
}

fn replay_settings(config: &Config) -> Settings {
    /// For what a call does beside waiting for its upstream.
    const MARGIN: Duration = Duration::from_secs(60);
    // A call waits for a slot for as long as its upstream may take to answer, and then runs.
    let longest = config.upstreams.iter().map(|upstream| upstream.timeout + upstream.max_time);
    // An employee may say as much of his own servers.
    let own = OptionLimits::default();
    let longest = longest.chain([own.timeout + own.max_time]);
    Settings {
        keep: config.idempotency.ttl,
        wait: config.idempotency.wait,
        max_keys: config.idempotency.max_keys,
        capacity: config.idempotency.capacity_bytes,
        max_answer: to_usize(config.idempotency.max_body),
        // And somebody may have to confirm it first.
        lease: longest.max().unwrap_or_default() + config.questions.answer + MARGIN,
        ..Settings::default()
    }
}

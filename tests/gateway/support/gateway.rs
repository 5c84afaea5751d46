//! The gateway in this process, as `hangu serve` would run it, on ports of its own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use hangu::{
    app::{App, Options, Running},
    config::Config,
    fault::Source,
    model::call::Surface,
    policy::{Policies, PolicyFile},
    registry::Listing,
    stack::Engines,
    telemetry::Format,
    upstream::Resolve,
};
use serde_json::Value;
use tempfile::TempDir;

use super::{Upstream, wait_for};

/// The key of the caller that the standard configuration knows.
pub const KEY: &str = "key-of-a-test";

/// Members may call what the fixtures' servers list, but for `wipe`.
const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: member-read, effect: allow, roles: [member], risk: [read_low] }
";

/// Everybody of the tenant may call whatever `up` lists.
pub const ALL_OF_UP: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: read, effect: allow, risk: [read_low] }
---
version: hangu/v1
kind: Tools
upstreams: { up: { default: { risk: read_low } } }
";

/// One caller with one employee; further keys are free to be added.
const CALLER: &str = "callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { empId: E1, roles: [member] } }
";

/// A gateway that serves until it is dropped.
pub struct Gateway {
    running: Option<Running>,
    address: SocketAddr,
    folder: Arc<TempDir>,
}

impl Gateway {
    /// In front of one server, which it calls `up`.
    pub fn before(upstream: &Upstream) -> Self {
        Self::before_with(upstream, "", "")
    }

    /// The same with further keys of the upstream (`timeout: 1s, …`) and of the file.
    pub fn before_with(upstream: &Upstream, of_upstream: &str, of_file: &str) -> Self {
        let url = upstream.url();
        let dialect = upstream.dialect();
        let comma = if of_upstream.is_empty() { "" } else { ", " };
        let yaml = format!(
            "{of_file}\n{CALLER}upstreams:\n  up: {{ url: \"{url}\", dialect: {dialect}{comma}{of_upstream} }}\n"
        );
        let tools = "version: hangu/v1\nkind: Tools\nupstreams:\n  up:\n    default: { risk: read_low }\n    tools: { wipe: { risk: write_high } }\n";
        Self::start(&yaml, &[POLICY, tools])
    }

    /// From a whole configuration but for where it listens and logs; returns when every
    /// upstream's first listing has ended. `KEY` is the one secret there is.
    pub fn start(yaml: &str, policies: &[&str]) -> Self {
        Self::start_in(Arc::new(tempfile::tempdir().unwrap()), None, yaml, policies)
    }

    /// The same in a folder that others were or will be in, and with a secret that is theirs too.
    pub fn start_in(
        folder: Arc<TempDir>,
        secret: Option<[u8; 32]>,
        yaml: &str,
        policies: &[&str],
    ) -> Self {
        Self::start_as(folder, Options { secret, ..Options::default() }, yaml, policies)
    }

    /// The same where names stand for what a test says.
    pub fn resolving(resolver: Arc<dyn Resolve>, yaml: &str, policies: &[&str]) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::start_as(folder, Options { resolver, ..Options::default() }, yaml, policies)
    }

    fn start_as(folder: Arc<TempDir>, options: Options, yaml: &str, policies: &[&str]) -> Self {
        let audit = folder.path().join("audit.jsonl");
        let yaml = format!(
            "version: hangu/v1\nlisten: \"127.0.0.1:0\"\nadmin: {{ listen: \"127.0.0.1:0\" }}\nworkers: 1\naudit: {{ file: \"{}\" }}\n{yaml}",
            audit.display()
        );
        let env = |name: &str| (name == "KEY").then(|| KEY.to_owned());
        let loaded = Config::read("test.yaml", yaml, folder.path(), &env);
        let config = loaded.config.unwrap_or_else(|| panic!("{:#?}", loaded.faults));
        let files = policies.iter().enumerate().map(|(number, text)| PolicyFile {
            path: format!("policies/{number}.yaml"),
            source: Arc::new(Source {
                name: format!("policies/{number}.yaml"),
                text: (*text).to_owned(),
            }),
        });
        let (policies, faults) = Policies::compile(files.collect());
        let policies = policies.unwrap_or_else(|| panic!("{faults:#?}"));
        let options = Options { instance: "test".to_owned(), ..options };
        let running = App::new(config, policies, &options).unwrap();
        let running = running.start().unwrap();
        let worlds = running.engines().worlds.clone();
        wait_for("every upstream has been asked for its tools", Duration::from_secs(10), || {
            let world = worlds.current();
            let mut listings = world.catalog.listings(&Surface::Aggregate);
            listings.all(|(_, listing)| *listing != Listing::Pending)
        });
        Self { address: running.address(), running: Some(running), folder }
    }

    /// Where clients are served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the layers decide with.
    pub fn engines(&self) -> &Engines {
        self.running.as_ref().unwrap().engines()
    }

    /// What `/metrics` tells.
    pub fn metrics(&self) -> String {
        self.engines().telemetry.metrics().expose(Format::Prometheus)
    }

    /// What waits for somebody's yes.
    pub fn approvals(&self) -> &hangu::approval::Approvals {
        &self.running.as_ref().unwrap().engines().approvals
    }

    /// Where the audit log is.
    pub fn audit_file(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    /// The complete lines of the audit log so far.
    pub fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.audit_file()).unwrap();
        let (complete, _) = text.rsplit_once('\n').unwrap_or_default();
        complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for a record of a call of which `is` holds.
    pub fn audited(&self, what: &str, is: impl Fn(&Value) -> bool) {
        wait_for(what, Duration::from_secs(5), || {
            self.audit().iter().any(|record| record["event"] == "call" && is(record))
        });
    }
}

impl From<&Gateway> for SocketAddr {
    fn from(gateway: &Gateway) -> Self {
        gateway.address
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop(Duration::from_millis(200));
        }
    }
}

//! What a configuration means: defaults, every key, secrets.

mod approvals;
mod auth;
mod auth_faults;
mod egress;
mod faults;
mod peer_tls;

use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use super::*;
use crate::{
    credential::{CacheLimits, Keeper, KeyringFile},
    fault::{Fault, Severity},
    model::{call_source::CallSource, caller::Role},
};

/// The least that is a configuration.
pub(super) const LEAST: &str = "
version: hangu/v1
callers:
  gate: { keys: [{ env: GATE_KEY }], tenant: acme }
upstreams:
  crm: { url: \"http://127.0.0.1:7001/mcp\" }
";

pub(super) fn env(name: &str) -> Option<String> {
    let value = match name {
        "GATE_KEY" => "gate-key",
        "NEW_KEY" => "new-key",
        "TOKEN" => "Bearer hunter2",
        "PORT" => "9000",
        "DATABASE" => "postgres://u:hunter2@h/db",
        "EMPTY" => "",
        "HOOK" => "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=",
        "BROKEN" => "two\nlines",
        "URL" => "https://user:hunter2@crm.example/mcp",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Reads a configuration beside a folder `policies/`.
pub(super) fn read(text: &str) -> Loaded {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    std::fs::write(folder.path().join("secret.txt"), "from-file\n").unwrap();
    std::fs::write(folder.path().join("cert.pem"), "").unwrap();
    Config::read("hangu.yaml", text.to_owned(), folder.path(), &env)
}

/// `code line:column message` of each fault.
pub(super) fn told(faults: &[Fault]) -> Vec<String> {
    let line = |f: &Fault| format!("{} {}:{} {}", f.code, f.at.line, f.at.column, f.message);
    faults.iter().map(line).collect()
}

/// What is warned of is as it is meant.
fn config(text: &str) -> Config {
    let mut loaded = read(text);
    loaded.faults.retain(|fault| fault.severity() == Severity::Error);
    assert_eq!(told(&loaded.faults), Vec::<String>::new(), "{text}");
    loaded.config.unwrap()
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn roles(names: &[&str]) -> Roles {
    Roles::new(names.iter().map(|name| Role::new(*name)))
}

fn digest(key: &str) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[test]
fn what_is_not_said_has_a_default() {
    let config = config(LEAST);
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin.listen.to_string(), "127.0.0.1:9090");
    assert_eq!(config.workers, None);
    assert!(config.policies.is_some_and(|folder| folder.ends_with("policies")));
    assert!(config.audit.file.ends_with("audit/hangu.jsonl"));
    assert_eq!(config.audit.strict, [Risk::WriteLow, Risk::WriteHigh]);
    assert!(matches!(&config.store, Store::Sqlite(path) if path.ends_with("hangu.db")));
    assert_eq!(config.trace.trust, TraceTrust::Authenticated);
    assert_eq!(config.telemetry.max_tenants, 200);
    assert_eq!(config.errors.tools_call, ToolsCallErrors::Result);
    assert!(!config.sessions.required && config.tls.is_none() && config.origins.is_empty());
    // Any call can end.
    assert_eq!(config.drain, Drain { delay: secs(0), timeout: secs(120) });
    assert_eq!(config.names, Names::Always);
    assert_eq!((config.lists.page_size, config.lists.wait), (1_000, secs(20)));
    assert_eq!(config.lists.max_bytes, 32 << 20);
    let servers = config.servers;
    assert_eq!((servers.max_list_bytes, servers.max_tools), (8 << 20, 1_000));
    let streams = config.streams;
    assert_eq!((streams.per_principal, streams.total, streams.subscriptions), (32, 10_000, 256));
    assert_eq!((streams.sessions, streams.resume_window), (100_000, secs(60)));
    assert_eq!((streams.resume_bytes, streams.resume_total), (1 << 20, 64 << 20));
    let idempotency = config.idempotency;
    assert_eq!((idempotency.ttl, idempotency.wait), (secs(86_400), secs(2)));
    assert_eq!(idempotency.max_body, 256 << 10);
    let approvals = config.approvals;
    assert_eq!((approvals.keep, approvals.max_arguments), (secs(7 * 86_400), 64 << 10));
    assert_eq!((approvals.max_waiting, approvals.max_waiting_each), (10_000, 100));
    let steps = config.steps;
    assert_eq!((steps.max_steps, steps.limits.max_time), (100, secs(300)));
    assert_eq!(steps.limits.max_variables, 4 << 20);
    let servers = config.servers;
    assert_eq!((servers.refresh, servers.loaded, servers.max_asked), (secs(600), 2_000, 16));
    assert_eq!(servers.max_asked_each, 2);
    assert_eq!((servers.timeout, servers.max_time), (secs(15), secs(120)));
    let pins = Pins { versions: 20, max_tools: 20_000, unlisted: secs(90 * 86_400) };
    assert_eq!(config.pins, pins);
    let upstream = &config.upstreams[0];
    assert_eq!(
        (upstream.timeout, upstream.max_time, upstream.poll),
        (secs(15), secs(120), secs(30))
    );
    assert_eq!((upstream.max_request_bytes, upstream.max_response_bytes), (1 << 20, 4 << 20));
    assert_eq!((upstream.max_concurrency.get(), upstream.dialect), (64, DialectKind::Auto));
    assert!(upstream.inject_user && !upstream.stateless && upstream.protocol.is_none());
    let retries = upstream.retries;
    assert_eq!((retries.max, retries.budget, retries.reserve), (2, 20, 10));
    assert_eq!(retries.backoff, Duration::from_millis(50));
    let breaker = upstream.breaker.unwrap();
    assert_eq!((breaker.failures, breaker.window), (20, secs(30)));
    assert_eq!((breaker.pause, breaker.max_pause), (Duration::from_millis(500), secs(60)));
    assert_eq!(config.callers[0].identity, Identity::default());
}

#[test]
fn every_key_is_read() {
    let config = config(
        "
version: hangu/v1
listen: 0.0.0.0:${PORT}
workers: 3
admin: { listen: 127.0.0.1:9191 }
store: memory
shared: local
policies: policies
audit: { file: /var/log/hangu.jsonl, strict: [write_high], employee: plain }
callers:
  gate: { keys: [{ env: GATE_KEY }], tenant: acme, identity: header, catalog_roles: [member], call_sources: [cli, agent, cli] }
upstreams:
  crm:
    urls: [https://a.example/mcp, https://b.example/mcp]
    dialect: streamable-http
    protocol: 2025-11-25
    forward_headers: [X-Region]
    stateless: true
    timeout: 20s
    max_time: 5m
    connect_timeout: 2s
    poll: 1m
    max_concurrency: 8
    max_request_bytes: 64KiB
    max_response_bytes: 8MiB
    retries: { max: 1, budget: 5, reserve: 2, backoff: 10ms }
    breaker: { failures: 5, window: 10s, pause: 2m }
  plain: { url: http://127.0.0.1:7001/mcp, dialect: mcp-lite, inject_user: false, breaker: off }
tls: { cert: cert.pem, key: cert.pem }
origins: [https://app.example]
trusted_proxies: [10.0.0.0/8, 192.0.2.1]
trace: { trust: never }
telemetry: { max_tenants: 20 }
errors: { tools_call: status }
sessions: required
session_ttl: 1h
names: conflict
lists: { page_size: 10, wait: 1s, max_bytes: 2MiB }
drain_delay: 5s
drain_timeout: 30s
edge: { header_timeout: 5s, idle_timeout: 60s, body_timeout: 20s, max_connections: 100, max_body: 2MiB, hold: 3s, max_batch: 20, batch_concurrency: 4 }
streams: { per_principal: 4, total: 50, subscriptions: 7, sessions: 60, resume_window: 0s, resume_bytes: 2KiB, resume_total: 3MiB }
approvals: { keep: 1d, max_arguments: 1KiB, max_waiting: 10, max_waiting_each: 2 }
steps: { max_time: 1m, max_steps: 7, max_variables: 1KiB }
servers: { refresh: 1m, loaded: 5, idle: 1m, max_asked: 2, max_asked_each: 1, timeout: 3s, max_time: 9s, connect_timeout: 1s, max_request_bytes: 1KiB, max_response_bytes: 2KiB, max_list_bytes: 3KiB, max_tools: 4 }
pins: { versions: 5, max_tools: 100, unlisted: 1d }
idempotency: { capacity_bytes: 1MiB, max_keys: 10, ttl: 1h, wait: 0s, max_body: 1KiB }
",
    );
    assert_eq!(config.listen.to_string(), "0.0.0.0:9000");
    assert_eq!(config.workers.map(NonZeroUsize::get), Some(3));
    assert_eq!(config.admin.listen.port(), 9191);
    assert_eq!(config.audit.file, PathBuf::from("/var/log/hangu.jsonl"));
    assert_eq!(config.audit.strict, [Risk::WriteHigh]);
    assert_eq!(config.callers[0].catalog_roles, roles(&["member"]));
    assert!(config.callers[0].call_sources.iter().eq([CallSource::Agent, CallSource::Cli]));
    assert!(config.tls.is_some_and(|tls| tls.cert.ends_with("cert.pem")));
    assert_eq!(config.origins[0].as_str(), "https://app.example");
    assert!(config.trusted_proxies[0].contains("10.9.9.9".parse().unwrap()));
    assert_eq!(config.trace.trust, TraceTrust::Never);
    assert_eq!(config.telemetry.max_tenants, 20);
    assert_eq!(config.errors.tools_call, ToolsCallErrors::Status);
    assert_eq!(config.sessions, Sessions { required: true, ttl: secs(3_600) });
    assert_eq!(config.drain, Drain { delay: secs(5), timeout: secs(30) });
    let edge = config.edge;
    assert_eq!(
        (edge.header_timeout, edge.idle_timeout, edge.body_timeout),
        (secs(5), secs(60), secs(20))
    );
    assert_eq!((edge.max_connections, edge.max_body), (100, 2 << 20));
    assert_eq!(config.names, Names::Conflict);
    assert_eq!((config.lists.page_size, config.lists.wait), (10, secs(1)));
    assert_eq!(config.lists.max_bytes, 2 << 20);
    let streams = config.streams;
    assert_eq!((streams.per_principal, streams.total, streams.subscriptions), (4, 50, 7));
    assert_eq!((streams.sessions, streams.resume_window), (60, secs(0)));
    assert_eq!((streams.resume_bytes, streams.resume_total), (2 << 10, 3 << 20));
    assert_eq!((edge.hold, edge.max_batch, edge.batch_concurrency), (secs(3), 20, 4));
    let idempotency = config.idempotency;
    assert_eq!((idempotency.capacity_bytes, idempotency.max_keys), (1 << 20, 10));
    let approvals = config.approvals;
    assert_eq!((approvals.keep, approvals.max_arguments), (secs(86_400), 1 << 10));
    assert_eq!((approvals.max_waiting, approvals.max_waiting_each), (10, 2));
    let steps = config.steps;
    assert_eq!((steps.max_steps, steps.limits.max_time), (7, secs(60)));
    assert_eq!(steps.limits.max_variables, 1 << 10);
    let servers = config.servers;
    assert_eq!((servers.refresh, servers.loaded, servers.max_asked), (secs(60), 5, 2));
    assert_eq!(servers.max_asked_each, 1);
    assert_eq!((servers.idle, servers.timeout, servers.max_time), (secs(60), secs(3), secs(9)));
    let sizes = (servers.max_request_bytes, servers.max_response_bytes);
    assert_eq!((servers.connect_timeout, sizes), (secs(1), (1 << 10, 2 << 10)));
    assert_eq!((servers.max_list_bytes, servers.max_tools), (3 << 10, 4));
    assert_eq!(config.pins, Pins { versions: 5, max_tools: 100, unlisted: secs(86_400) });
    assert_eq!(
        (idempotency.ttl, idempotency.wait, idempotency.max_body),
        (secs(3_600), secs(0), 1_024)
    );
    let [crm, plain] = &config.upstreams[..] else { panic!() };
    assert_eq!(crm.urls.len(), 2);
    assert_eq!(
        (crm.dialect, crm.protocol),
        (DialectKind::StreamableHttp, Some(Version::V2025_11_25))
    );
    assert_eq!(crm.forward_headers, ["x-region"]);
    assert!(crm.stateless && !plain.inject_user && plain.dialect == DialectKind::McpLite);
    assert_eq!((crm.timeout, crm.max_time), (secs(20), secs(300)));
    assert_eq!((crm.connect_timeout, crm.poll, crm.max_concurrency.get()), (secs(2), secs(60), 8));
    assert_eq!((crm.max_request_bytes, crm.max_response_bytes), (65_536, 8 << 20));
    let backoff = Duration::from_millis(10);
    assert_eq!(crm.retries, RetryConfig { max: 1, budget: 5, reserve: 2, backoff });
    let (pause, window) = (secs(120), secs(10));
    let breaker = BreakerConfig { failures: 5, window, pause, max_pause: pause };
    assert_eq!(crm.breaker, Some(breaker));
    assert!(config.upstreams[1].breaker.is_none());
}

#[test]
fn a_keyring_is_a_file_and_perhaps_a_program() {
    let kept = tempfile::tempdir().unwrap();
    let path = kept.path().join("k.json");
    let file = KeyringFile::new(&path);
    let cache = CacheLimits { age: secs(1), uses: 1 };
    Keeper::new(file, None, cache, crate::clock::Clock::system()).create().unwrap();
    let at = |more: &str| format!("{LEAST}keyring: {{ file: {}{more} }}\n", path.display());
    let keyring = config(&at("")).keyring.unwrap();
    assert_eq!((&keyring.file, keyring.exec), (&path, None));
    let more = ", exec: [./kms, --region, eu], timeout: 2s, cache_age: 1m, cache_uses: 7";
    let keyring = config(&at(more)).keyring.unwrap();
    let exec = keyring.exec.unwrap();
    assert!(exec.program.is_absolute() && exec.program.ends_with("kms"), "{exec:?}");
    assert_eq!((exec.args, exec.timeout), (vec!["--region".into(), "eu".into()], secs(2)));
    assert_eq!(keyring.cache, CacheLimits { age: secs(60), uses: 7 });
    let faults = |text: &str| told(&read(text).faults).join("\n");
    for (more, told) in [
        (", exec: []", "`exec` names no program"),
        (", exec: [\"\"]", "`exec` names no program"),
        (", timeout: 2s", "`timeout` is about `exec`"),
        (", cache_age: 2s", "`cache_age` is about `exec`"),
        (", cache_uses: 2", "`cache_uses` is about `exec`"),
        (", exec: [kms], timeout: 2m", "not between 100ms and 1m"),
        (", key: x", "unknown key `key`"),
    ] {
        let faults = faults(&at(more));
        assert!(faults.contains(told), "{more}: {faults}");
    }
    let absent = faults(&format!("{LEAST}keyring: {{ file: none.json }}\n"));
    assert!(absent.contains("Y001 7:18") && absent.contains("`hangu keys new`"), "{absent}");
    let (keyring, store) = {
        let config = kept.path().join("hangu.yaml");
        // Secrets that are not at hand do not matter to whoever looks after keys.
        let text = at("").replace("GATE_KEY", "NOT_SET") + "store: memory\n";
        std::fs::write(&config, text).unwrap();
        Config::keys(&config, &env).unwrap()
    };
    assert_eq!(keyring.unwrap().file, path);
    assert!(matches!(store, Store::Memory));
}

#[test]
fn a_store_is_a_word_a_file_or_an_address() {
    let store = |value: &str| config(&format!("{LEAST}store: {value}\n")).store;
    assert!(matches!(store("memory"), Store::Memory));
    for (value, file) in
        [("sqlite:a/b.db", "a/b.db"), ("sqlite:/c.db", "/c.db"), ("\"sqlite://d.db\"", "d.db")]
    {
        let Store::Sqlite(path) = store(value) else { panic!("{value}") };
        assert!(path.is_absolute() && path.ends_with(file), "{path:?}");
    }
    for value in ["postgres://u@h/db?sslmode=require", "postgresql:///db", "{ env: DATABASE }"] {
        let store = store(value);
        assert!(matches!(store, Store::Postgres(_)), "{value}");
        assert!(!format!("{store:?}").contains("hunter2"));
    }
}

#[test]
fn keys_are_kept_as_digests_with_their_expiry() {
    let hex: String = digest("third").iter().map(|byte| format!("{byte:02x}")).collect();
    let text = LEAST.replace(
        "[{ env: GATE_KEY }]",
        &format!(
            "[{{ env: GATE_KEY }}, {{ file: secret.txt, expires: 2999-01-31T00:00:00Z }}, \
             {{ sha256: {hex} }}]"
        ),
    );
    let config = config(&text);
    let keys = &config.callers[0].keys;
    assert_eq!(
        keys.iter().map(|key| key.digest).collect::<Vec<_>>(),
        [digest("gate-key"), digest("from-file"), digest("third")]
    );
    assert_eq!(
        keys.iter().map(|key| key.expires_ms).collect::<Vec<_>>(),
        [None, Some(32_474_736_000_000), None]
    );
    assert!(!format!("{config:?}").contains("gate-key"));
}

#[test]
fn an_employee_is_named_by_header_by_the_file_or_both() {
    let fixed =
        |names| Some(FixedEmployee { id: EmployeeId::parse("E1").unwrap(), roles: roles(names) });
    for (identity, header, employee) in [
        ("header", true, None),
        ("{ empId: E1, roles: [member] }", false, fixed(&["member"])),
        ("{ empId: E1 }", false, fixed(&[])),
        ("{ header: true, fallback: { empId: E1, roles: [member] } }", true, fixed(&["member"])),
        ("{ header: true }", true, None),
    ] {
        let text = LEAST.replace("tenant: acme", &format!("tenant: acme, identity: {identity}"));
        let expected = Identity { header, fixed: employee };
        assert_eq!(config(&text).callers[0].identity, expected, "{identity}");
    }
}

fn headers(body: &str) -> Vec<(String, String)> {
    let url = "url: \"http://127.0.0.1:7001/mcp\"";
    let config = config(&LEAST.replace(url, &format!("{url}, {body}")));
    let shown = config.upstreams[0].headers.iter().map(|header| {
        let value = match &header.value {
            HeaderSource::Template(template) => format!("{:?}", template.parts()),
            HeaderSource::Secret(secret) => secret.expose_secret().to_owned(),
            HeaderSource::Stored(name) => format!("kept as {name}"),
        };
        (header.name.to_string(), value)
    });
    shown.collect()
}

#[test]
fn headers_and_options_mean_the_same() {
    let expected = vec![
        ("x-api-key".to_owned(), "from-file".to_owned()),
        ("authorization".to_owned(), "Bearer hunter2".to_owned()),
        ("sso-emp-id".to_owned(), "[Employee]".to_owned()),
        ("x-from".to_owned(), "[Literal(\"hangu \"), Tenant]".to_owned()),
    ];
    let plain = "headers: { X-Api-Key: { file: secret.txt }, Authorization: { env: TOKEN }, \
                 SSO-Emp-Id: $ctx.user.empId, X-From: hangu $ctx.tenant }";
    assert_eq!(headers(plain), expected);
    let options = "options: { mcp.headers.X-Api-Key: { file: secret.txt }, \
                   mcp.headers.Authorization: { env: TOKEN }, \
                   mcp.headers.SSO-Emp-Id: $ctx.user.empId, \
                   mcp.headers.X-From: hangu $ctx.tenant }";
    assert_eq!(headers(options), expected);
    let list = "headers: { X-Api-Key: { file: secret.txt }, Authorization: { env: TOKEN } }, \
                options: [mcp.headers.SSO-Emp-Id=$ctx.user.empId, \
                \"mcp.headers.X-From = hangu $ctx.tenant\"]";
    assert_eq!(headers(list), expected);
}

#[test]
fn a_command_is_a_program_with_arguments_and_variables() {
    let process = |body: &str| {
        let mut config = config(&LEAST.replace("url: \"http://127.0.0.1:7001/mcp\"", body));
        let upstream = config.upstreams.remove(0);
        assert_eq!((upstream.dialect, upstream.urls.len()), (DialectKind::Stdio, 0), "{body}");
        upstream.process.unwrap()
    };
    let plain = process("command: npx");
    assert_eq!((plain.program.to_str(), plain.args.len(), plain.env.len()), (Some("npx"), 0, 0));
    assert_eq!((plain.stop_wait, plain.max_processes), (secs(2), 32));
    let whole = process(
        "command: [./bin/server, -v], args: [--all, \"\"], dialect: stdio, protocol: 2024-11-05, \
         env: { LEVEL: \"7\", API_TOKEN: { file: secret.txt } }, stop_wait: 500ms, max_processes: 8",
    );
    assert!(whole.program.is_absolute() && whole.program.ends_with("bin/server"));
    assert_eq!(whole.args, ["-v", "--all", ""]);
    assert_eq!((whole.stop_wait, whole.max_processes), (Duration::from_millis(500), 8));
    let [(level, EnvSource::Plain(seven)), (token, EnvSource::Secret(secret))] = &whole.env[..]
    else {
        panic!()
    };
    assert_eq!((&**level, &**seven, &**token), ("LEVEL", "7", "API_TOKEN"));
    assert_eq!(secret.expose_secret(), "from-file");
    assert!(!format!("{whole:?}").contains("from-file"));
}

#[test]
fn a_longer_timeout_alone_stretches_the_cap_and_a_shorter_cap_alone_cuts_the_timeout() {
    let url = "url: \"http://127.0.0.1:7001/mcp\"";
    let times = |body: &str| {
        let config = config(&LEAST.replace(url, &format!("{url}, {body}")));
        (config.upstreams[0].timeout, config.upstreams[0].max_time)
    };
    assert_eq!(times("timeout: 5m"), (secs(300), secs(300)));
    assert_eq!(times("max_time: 10s"), (secs(10), secs(10)));
}

#[test]
fn paths_start_at_the_files_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("policies")).unwrap();
    std::fs::write(folder.path().join("hangu.yaml"), LEAST).unwrap();
    let loaded = Config::look(&folder.path().join("hangu.yaml"), &env);
    let config = loaded.config.unwrap();
    assert_eq!(config.audit.file, folder.path().join("audit/hangu.jsonl"));
    assert_eq!(loaded.policies, Some(folder.path().join("policies")));
    let missing = Config::load(&folder.path().join("other.yaml")).unwrap_err();
    assert_eq!(missing[0].code.as_str(), "Y001");
}

#[test]
fn without_a_policy_folder_nothing_is_allowed_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = Config::read("hangu.yaml", LEAST.to_owned(), folder.path(), &env);
    assert_eq!(loaded.faults[0].code.as_str(), "C104");
    assert_eq!(loaded.config.unwrap().policies, None);
    let named = format!("{LEAST}policies: nowhere\n");
    let loaded = Config::read("hangu.yaml", named, folder.path(), &env);
    assert_eq!(loaded.faults[0].code.as_str(), "Y001");
}

//! `hangu demo`: gateway, test platform and order server in one process, on loopback.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::mpsc, time::Duration};

use secrecy::SecretString;

use super::serve::ended;
use crate::{
    clock::Clock,
    demo::{
        gateway::{self, Places},
        orders,
        platform::{self, PlatformConfig},
    },
    model::{server_key::server_key, trace::to_hex},
    telemetry::logs,
};

/// Runs everything.
#[derive(Debug, clap::Args)]
pub(super) struct Demo {
    /// Where the gateway listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where probes and metrics are
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    admin_listen: SocketAddr,
}

/// The demo's servers, once they listen.
struct Servers {
    platform: SocketAddr,
    orders: SocketAddr,
}

impl Demo {
    pub fn run(self) -> ExitCode {
        for (name, address) in [("--listen", self.listen), ("--admin-listen", self.admin_listen)] {
            if !address.ip().is_loopback() {
                return super::fail(format!(
                    "{name} {address}: the demo's keys are public, so it stays on loopback"
                ));
            }
        }
        let settings = logs::Settings::from_env();
        // The calls to copy are what a person looks for; the log is there for who asks for it.
        let quiet = logs::Settings {
            filter: if std::env::var_os("RUST_LOG").is_some() {
                settings.filter.clone()
            } else {
                "warn".to_owned()
            },
            ..settings
        };
        if let Err(error) = logs::init(&quiet) {
            return super::fail(format!("the log cannot be started: {error}"));
        }
        let key = SecretString::from(to_hex(&rand::random::<[u8; 16]>()));
        let servers = match serve_beside(key.clone()) {
            Ok(servers) => servers,
            Err(error) => return super::fail(error),
        };
        let audit = AuditFile::new();
        let app = gateway::app(&Places {
            listen: self.listen,
            admin: self.admin_listen,
            platform: servers.platform,
            orders: servers.orders,
            platform_key: &key,
            audit: &audit.0,
        });
        let app = match app {
            Ok(app) => app,
            Err(error) => return super::fail(error),
        };
        let file = audit.0.display().to_string();
        let orders = orders_key(servers.orders);
        ended(app.host(false, move |address, admin| banner(address, admin, &file, &orders)))
    }
}

/// Records of the demo live as long as it does.
struct AuditFile(PathBuf);

impl AuditFile {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("hangu-demo-{}.jsonl", std::process::id())))
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        // A file that was never written, or is gone already, is as good as removed.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Starts the platform and the order server on a thread of their own, as if they were elsewhere.
fn serve_beside(key: SecretString) -> Result<Servers, String> {
    let (started, servers) = mpsc::channel();
    let run = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error.to_string()))),
        };
        runtime.block_on(async move {
            let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
            let platform = platform::start(PlatformConfig {
                listen: loopback,
                gateway_key: key,
                token_employee: None,
                run_step: Duration::from_secs(1),
                database: None,
                clock: Clock::system(),
            })
            .await;
            let orders = orders::start(loopback).await;
            match (platform, orders) {
                (Ok(platform), Ok(orders)) => {
                    let servers = Servers { platform: platform.addr(), orders: orders.addr() };
                    // Whoever waits for it is the demo itself.
                    let _ = started.send(Ok(servers));
                    std::future::pending::<()>().await;
                }
                (Err(error), _) | (_, Err(error)) => {
                    let _ = started.send(Err(error.to_string()));
                }
            }
        });
    };
    std::thread::Builder::new()
        .name("demo-servers".into())
        .spawn(run)
        .map_err(|error| error.to_string())?;
    servers.recv().map_err(|_| "the demo's servers did not start".to_owned())?
}

/// The key under which steps name the order server.
fn orders_key(orders: SocketAddr) -> String {
    let url = url::Url::parse(&format!("http://{orders}/mcp"));
    url.map(|url| server_key(&url).to_string()).unwrap_or_default()
}

/// What to try, ready to be copied.
fn banner(address: SocketAddr, admin: SocketAddr, audit: &str, orders: &str) {
    let at = format!("http://{address}");
    let json = "-H 'Content-Type: application/json'";
    let key = format!("-H 'X-Api-Key: {}'", gateway::GATEWAY_KEY);
    let mut out = format!(
        "Hangu {version} demo: a test platform and an order server behind the gateway.\n\n\
         \x20 MCP      {at}/mcp   (one upstream: {at}/mcp/platform, /mcp/platform-mcp, /mcp/orders)\n\
         \x20 MCP-Lite {at}/mcp/tools/list and /mcp/tools/call\n\
         \x20 probes   http://{admin}/readyz   metrics http://{admin}/metrics\n\
         \x20 audit    {audit}   (removed at the end)\n\n\
         \x20 key {gateway}   acme; the header SSO-Emp-Id names the employee:\n\
         \x20     E1001 tester, owns 3 tasks   E1002 member, none   E1003 member, one is shared \
         with them   E1009 admin\n\
         \x20 key {dev}       acme, always E1001\n\
         \x20 key {globex}    globex: E2001, reads only\n\n",
        version = env!("CARGO_PKG_VERSION"),
        gateway = gateway::GATEWAY_KEY,
        dev = gateway::DEV_KEY,
        globex = gateway::GLOBEX_KEY,
    );
    // As it was started, which works where the reader is.
    let program = std::env::args().next().unwrap_or_else(|| "hangu".to_owned());
    let mut call = |title: &str, command: String| {
        out.push_str(&format!("# {title}\n{command}\n\n"));
    };
    call(
        "1. What a member sees",
        format!("curl -s {at}/mcp/tools/list {key} -H 'SSO-Emp-Id: E1002' -d '{{}}' {json}"),
    );
    call(
        "2. The owner's tasks, over standard MCP",
        format!(
            "curl -s {at}/mcp/platform {key} -H 'SSO-Emp-Id: E1001' {json} \\\n  \
             -d '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{\"name\":\
             \"list_test_tasks\",\"arguments\":{{}}}}}}'"
        ),
    );
    call(
        "3. A run that starts once, however often this is sent",
        format!(
            "curl -s {at}/mcp/tools/call -H 'X-Api-Key: {dev}' {json} \\\n  \
             -d '{{\"name\":\"platform__start_test_run\",\"arguments\":{{\"taskId\":\"T-1001\",\
             \"idempotencyKey\":\"try-1\"}}}}'",
            dev = gateway::DEV_KEY,
        ),
    );
    call(
        "4. Refused, with the reason: the argument has the wrong type, and nothing left the gateway",
        format!(
            "curl -s {at}/mcp/tools/call {key} -H 'SSO-Emp-Id: E1001' {json} \\\n  \
             -d '{{\"name\":\"platform__get_test_task\",\"arguments\":{{\"taskId\":7}}}}'"
        ),
    );
    call(
        "5. Waits for somebody's yes, then runs once: E1010 says yes, and the same call again",
        format!(
            "curl -s {at}/mcp/tools/call {key} -H 'SSO-Emp-Id: E1001' {json} \\\n  \
             -d '{{\"name\":\"platform__stop_test_run\",\"arguments\":{{\"runId\":\"R-1003\",\
             \"idempotencyKey\":\"stop-1\"}}}}'\n\
             export HANGU_URL={at} HANGU_API_KEY={gateway} HANGU_EMP_ID=E1010\n\
             {program} approvals ls     # tells its ID\n\
             {program} approvals approve ID",
            gateway = gateway::GATEWAY_KEY,
        ),
    );
    call(
        "6. A declarative step, compiled for the tenant and run for whoever asks",
        format!(
            "export HANGU_URL={at} HANGU_API_KEY={gateway} HANGU_EMP_ID=E1001\n\
             {program} steps compile - <<'END' | {program} steps run - \\\n  \
             --context '{{\"url\":\"https://shop.example/orders?orderId=O-1001\"}}'\n\
             {{\"stepIndex\":3,\"type\":\"mcpCall\",\"mcp\":{{\"serverKey\":\"{orders}\",\n  \
             \"toolName\":\"query_order\",\"saveAs\":\"orderQueryResult\",\"failurePolicy\":\"required\",\n  \
             \"inputBindings\":{{\"orderId\":{{\"source\":\"page.url\",\"path\":\"orderId\"}}}}}}}}\nEND",
            gateway = gateway::GATEWAY_KEY,
        ),
    );
    out.push_str("Ctrl-C ends it.\n");
    print!("{out}");
}

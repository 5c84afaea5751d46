//! The gateway of the demo: the shipped policies, and a configuration written here for the
//! ports that the demo's servers got.

use std::{net::SocketAddr, path::Path};

use secrecy::{ExposeSecret, SecretString};

use crate::{
    app::{App, Options, StartError},
    config::Config,
    fault::Fault,
    policy::{self, Policies},
};

/// Whoever tries the demo may know these: they open nothing but it.
pub const GATEWAY_KEY: &str = "demo-gateway-key";
pub const DEV_KEY: &str = "demo-dev-key";
pub const GLOBEX_KEY: &str = "demo-globex-key";

/// Where the gateway listens, and where the demo's servers do.
#[derive(Debug)]
pub struct Places<'a> {
    pub listen: SocketAddr,
    pub admin: SocketAddr,
    pub platform: SocketAddr,
    pub orders: SocketAddr,
    /// The key that the platform wants of the gateway.
    pub platform_key: &'a SecretString,
    pub audit: &'a Path,
}

/// Why the demo's gateway cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("the demo's own configuration has faults: {0}")]
    Config(String),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// The demo's gateway, not yet running.
pub fn app(places: &Places<'_>) -> Result<App, DemoError> {
    // The policies that ship with the gateway are the ones that the demo runs on.
    let (policies, faults) = Policies::compile(policy::shipped());
    let policies = policies.ok_or_else(|| told(&faults))?;
    let env = |name: &str| {
        let secret = match name {
            "PLATFORM_KEY" => places.platform_key.expose_secret(),
            "GATEWAY_KEY" => GATEWAY_KEY,
            "DEV_KEY" => DEV_KEY,
            "GLOBEX_KEY" => GLOBEX_KEY,
            _ => return None,
        };
        Some(secret.to_owned())
    };
    let loaded = Config::read("demo.yaml", configuration(places), Path::new(""), &env);
    let config = loaded.config.ok_or_else(|| told(&loaded.faults))?;
    Ok(App::new(config, policies, &Options { instance: "demo".to_owned(), ..Options::default() })?)
}

fn told(faults: &[Fault]) -> DemoError {
    let messages: Vec<String> =
        faults.iter().map(|fault| format!("{}: {}", fault.at, fault.message)).collect();
    DemoError::Config(messages.join("; "))
}

/// What a user would write into `hangu.yaml` for the same.
fn configuration(places: &Places<'_>) -> String {
    let Places { listen, admin, platform, orders, audit, .. } = places;
    let audit = audit.display();
    format!(
        r#"version: hangu/v1
listen: "{listen}"
admin: {{ listen: "{admin}" }}
audit: {{ file: "{audit}" }}
store: memory
callers:
  corp-gateway:
    keys: [{{ env: GATEWAY_KEY }}]
    tenant: acme
    identity: header
    catalog_roles: [member]
    call_sources: [agent, web, script, post_action, cli]
  local-dev:
    keys: [{{ env: DEV_KEY }}]
    tenant: acme
    identity: {{ empId: E1001, roles: [member, tester] }}
  globex-gateway:
    {{ keys: [{{ env: GLOBEX_KEY }}], tenant: globex, identity: header, catalog_roles: [member] }}
upstreams:
  # Path A: the platform's own REST form; the gateway tells it who calls beside the body.
  platform:
    url: "http://{platform}/mcp"
    dialect: mcp-lite
    poll: 5s
    headers:
      X-Api-Key: {{ env: PLATFORM_KEY }}
      SSO-Emp-Id: $ctx.user.empId
  # Path B: the same platform over standard MCP.
  platform-mcp:
    url: "http://{platform}/mcp/http"
    poll: 5s
    headers: {{ X-Api-Key: {{ env: PLATFORM_KEY }} }}
    options: ["mcp.headers.SSO-Emp-Id=$ctx.user.empId"]
  # A third party's server, over standard MCP.
  orders:
    url: "http://{orders}/mcp"
    poll: 5s
"#
    )
}

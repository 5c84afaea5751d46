//! What stands before the stack: which hosts and origins are let in, and how connections are
//! served, in the edge's own terms.

use std::collections::HashSet;

use super::StartError;
use crate::{
    config::Config,
    edge::{GuardConfig, GuardLayer, ServerConfig, TrustedProxies},
};

pub(super) fn guard(config: &Config, loopback: bool) -> GuardLayer {
    // Browsers say of the gateway's own forms, too, where they come from.
    let origins = config.origins.iter().chain(&config.public_url);
    let origins: HashSet<Box<str>> = origins.map(|origin| origin.as_str().into()).collect();
    // Behind a proxy the Host is the proxy's to check.
    let loopback = loopback && config.trusted_proxies.is_empty();
    GuardLayer::new(GuardConfig { loopback, origins })
}

pub(super) fn server(config: &Config) -> Result<ServerConfig, StartError> {
    let proxies: Vec<String> = config.trusted_proxies.iter().map(ToString::to_string).collect();
    let trusted_proxies =
        TrustedProxies::parse(proxies.iter().map(String::as_str)).map_err(StartError::Proxies)?;
    Ok(ServerConfig {
        header_timeout: config.edge.header_timeout,
        idle_timeout: config.edge.idle_timeout,
        max_connections: config.edge.max_connections,
        trusted_proxies,
        ..ServerConfig::default()
    })
}

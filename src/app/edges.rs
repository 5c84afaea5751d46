//! What clients meet before the stack, in the edge's terms.

use std::collections::HashSet;

use super::StartError;
use crate::{
    config::Config,
    edge::{GuardConfig, GuardLayer, ServerConfig, TrustedProxies},
};

pub(super) fn guard(config: &Config, loopback: bool) -> GuardLayer {
    let origins: HashSet<Box<str>> =
        config.origins.iter().map(|origin| origin.as_str().into()).collect();
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

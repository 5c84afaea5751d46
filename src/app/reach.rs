//! Upstreams as the stack knows them: how each is reached, in the terms of whatever reaches it.

use std::{ffi::OsString, sync::Arc};

use url::Url;

use super::{StartError, build::to_usize, certificates::Certificates, oauth::Oauth};
use crate::{
    channel::{Channels, EnvValue, HttpSse, HttpSseConfig, ProcessConfig, Processes},
    config::{self, Config, EnvSource},
    model::{
        server::DialectKind,
        server_key::{normalised, server_key},
    },
    stack::stage::{Serial, Upstream, Upstreams},
    telemetry::Metrics,
    upstream::{
        Breaker, Cluster, ClusterConfig, Egress, Endpoint, Guard, Reach, Retries, Transport,
    },
};

/// What a process has of the gateway's own environment.
const INHERITED: [&str; 3] = ["PATH", "HOME", "LANG"];

/// What upstreams are made with.
pub(super) struct Around<'a> {
    pub transport: &'a Transport,
    pub egress: &'a Arc<Egress>,
    pub channels: &'a Arc<Channels>,
    pub oauth: &'a Oauth,
    pub certificates: &'a Certificates,
    pub metrics: &'a Arc<Metrics>,
}

pub(super) fn upstreams(config: &Config, around: &Around<'_>) -> Result<Upstreams, StartError> {
    let build = |upstream: &config::Upstream| {
        let reach = match &upstream.process {
            Some(process) => Reach::by(processes(upstream, process, around.channels)),
            None => over_http(upstream, around)?,
        };
        Ok(Arc::new(Upstream {
            serial: Serial::next(),
            name: upstream.name.clone(),
            server_key: key(upstream),
            address: upstream.urls.first().map(|url| normalised(url).into()),
            brought_by: None,
            dialect: upstream.dialect,
            pinned: upstream.protocol,
            reach,
            auth: around.oauth.auth(upstream, around.certificates.of(&upstream.name))?,
            headers: upstream
                .headers
                .iter()
                .map(|header| (header.name.clone(), header.value.clone()))
                .collect(),
            forward: upstream.forward_headers.clone(),
            inject_user: upstream.inject_user,
            stateless: upstream.stateless,
            park: upstream.park,
            session_idle: upstream.session_idle,
            max_sessions: upstream.max_sessions,
            timeout: upstream.timeout,
            max_time: upstream.max_time,
            max_request_bytes: to_usize(upstream.max_request_bytes),
            max_response_bytes: to_usize(upstream.max_response_bytes),
            retries: Retries::new(upstream.retries),
            breaker: Arc::new(
                Breaker::new(upstream.name.shared(), upstream.breaker)
                    .with_metrics(around.metrics.clone()),
            ),
            era: None.into(),
            served: 0.into(),
            instructions: None.into(),
            introduced: None.into(),
        }))
    };
    let built: Result<Vec<_>, StartError> = config.upstreams.iter().map(build).collect();
    Ok(built?.into())
}

/// Of the first address. A process has none but its configured name: two commands of one name
/// never run in one gateway, and a changed argument makes no other server.
fn key(upstream: &config::Upstream) -> Arc<str> {
    let named = || Url::parse(&format!("stdio://{}", upstream.name)).ok();
    let url = upstream.urls.first().cloned().or_else(named);
    url.as_ref().map_or_else(|| upstream.name.shared(), server_key)
}

fn over_http(upstream: &config::Upstream, around: &Around<'_>) -> Result<Reach, StartError> {
    let failed = |source| StartError::Upstream { name: upstream.name.to_string(), source };
    let endpoints: Result<Vec<_>, _> =
        upstream.urls.iter().map(|url| Endpoint::parse(url.as_str())).collect();
    let cluster = ClusterConfig {
        suffixes: match upstream.dialect {
            // The others too: a wrong endpoint is diagnosed by asking for its REST form.
            DialectKind::McpLite | DialectKind::Auto | DialectKind::StreamableHttp => {
                &["", "/tools/list", "/tools/call"]
            }
            DialectKind::HttpSse | DialectKind::Stdio => &[""],
        },
        connect_timeout: upstream.connect_timeout,
        tls: around.certificates.of(&upstream.name).cloned(),
        ..ClusterConfig::new(
            upstream.name.shared(),
            endpoints.map_err(|error| failed(error.into()))?,
            Guard::written(around.egress),
        )
    };
    let cluster = Cluster::new(cluster, around.transport).map_err(failed)?;
    let event_stream = || {
        let config = HttpSseConfig {
            name: upstream.name.shared(),
            max_message: to_usize(upstream.max_response_bytes),
            opening: upstream.timeout,
            // What was opened with one employee's credential serves no other.
            // What one employee's credential has opened carries nobody else's calls.
            shared: upstream.stateless
                && matches!(
                    upstream.auth,
                    config::UpstreamAuth::None | config::UpstreamAuth::Client(_)
                ),
        };
        HttpSse::new(config, cluster.clone(), around.channels.clone())
    };
    Ok(match upstream.dialect {
        DialectKind::HttpSse => Reach::either(cluster.clone(), event_stream(), true),
        DialectKind::Auto => Reach::either(cluster.clone(), event_stream(), false),
        _ => cluster.into(),
    })
}

fn processes(
    upstream: &config::Upstream,
    process: &config::Process,
    channels: &Arc<Channels>,
) -> Arc<Processes> {
    let inherited = INHERITED.iter().filter_map(|name| {
        let value = std::env::var_os(name)?;
        Some((OsString::from(name), EnvValue::Plain(value)))
    });
    let given = process.env.iter().map(|(name, value)| {
        let value = match value {
            EnvSource::Plain(value) => EnvValue::Plain(value.into()),
            EnvSource::Secret(value) => EnvValue::Secret(value.clone()),
        };
        (name.into(), value)
    });
    let config = ProcessConfig {
        name: upstream.name.shared(),
        program: process.program.clone().into(),
        args: process.args.iter().map(OsString::from).collect(),
        // What is given comes later, and so wins.
        env: inherited.chain(given).collect(),
        stop_wait: process.stop_wait,
        max_processes: process.max_processes,
        max_message: to_usize(upstream.max_response_bytes),
        // A session is opened within the time of one answer, and a word after it.
        opening: upstream.timeout * 2,
        shared: upstream.stateless,
    };
    Processes::new(config, channels.clone())
}

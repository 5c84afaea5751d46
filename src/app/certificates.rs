//! Certificates that are taken over when they are renewed: the one that clients are greeted with,
//! and those that upstreams are shown.
//!
//! Files are looked at once a minute, and when somebody asks for it. One that cannot be used
//! changes nothing: what was read before stays in use.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::StartError;
use crate::{
    config::{self, Config},
    edge,
    model::server::UpstreamName,
    upstream::PeerTls,
};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(super) struct Certificates(Arc<Inner>);

struct Inner {
    listener: Option<edge::Tls>,
    upstreams: HashMap<UpstreamName, PeerTls>,
}

/// What became of one of them.
pub(super) enum Renewed {
    Loaded,
    Failed(String),
}

impl Certificates {
    pub fn load(config: &Config) -> Result<Self, StartError> {
        let listener = config.tls.as_ref().map(|files| {
            let (certificate, key) = (files.cert.clone(), files.key.clone());
            edge::Tls::load(edge::TlsFiles { certificate, key })
        });
        let with_tls = |upstream: &config::Upstream| {
            let files = upstream.tls.clone()?;
            let failed = |source| StartError::PeerTls { name: upstream.name.to_string(), source };
            let loaded = PeerTls::load(files).map_err(failed);
            Some(loaded.map(|tls| (upstream.name.clone(), tls)))
        };
        let upstreams = config.upstreams.iter().filter_map(with_tls);
        let upstreams = upstreams.collect::<Result<_, _>>()?;
        Ok(Self(Arc::new(Inner { listener: listener.transpose()?, upstreams })))
    }

    pub fn listener(&self) -> Option<&edge::Tls> {
        self.0.listener.as_ref()
    }

    /// How an upstream is met.
    pub fn of(&self, upstream: &UpstreamName) -> Option<&PeerTls> {
        self.0.upstreams.get(upstream)
    }

    /// Reads all of them again; nothing, where there is none.
    pub fn reload(&self) -> Option<Renewed> {
        let mut failures = Vec::new();
        if let Some(Err(error)) = self.0.listener.as_ref().map(edge::Tls::reload) {
            failures.push(error.to_string());
        }
        for (name, tls) in &self.0.upstreams {
            match tls.reload() {
                Ok(true) => tracing::info!(
                    upstream.name = name.as_str(),
                    "New connections to an upstream are made with a renewed certificate"
                ),
                Ok(false) => {}
                Err(error) => failures.push(format!("upstream `{name}`: {error}")),
            }
        }
        if self.0.listener.is_none() && self.0.upstreams.is_empty() {
            return None;
        }
        Some(match failures.is_empty() {
            true => Renewed::Loaded,
            false => Renewed::Failed(failures.join("; ")),
        })
    }

    /// Looks at them until it is dropped.
    pub async fn follow(self) {
        loop {
            tokio::time::sleep(LOOK).await;
            if let Some(Renewed::Failed(error)) = self.reload() {
                tracing::error!(
                    error,
                    "a certificate cannot be reloaded; the old one stays in use"
                );
            }
        }
    }
}

//! pingora's transport connectors: TCP and TLS, and whom TLS trusts.
//!
//! Shared by all cores: they are touched when a connection is made, never when one is reused.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use pingora::{
    connectors::{ConnectorOptions, TransportConnector},
    tls,
};

use super::cluster::ClusterError;

/// Whose certificates an upstream may show.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// The system's roots, or those of `SSL_CERT_FILE`.
    #[default]
    System,
    /// The roots of one PEM file, and no others.
    File(PathBuf),
}

/// How every core dials.
#[derive(Clone)]
pub struct Transport(Arc<Inner>);

struct Inner {
    trust: Trust,
    plain: TransportConnector,
    /// Loaded for the first upstream that needs it: the system's roots take a megabyte.
    tls: OnceLock<TransportConnector>,
}

impl Transport {
    pub fn new(trust: Trust) -> Self {
        // An empty root store, for roots cost memory: this connector speaks no TLS, or with the
        // roots of one upstream alone.
        let mut options = ConnectorOptions::new(1);
        options.ca_file = Some("/dev/null".to_owned());
        let plain = TransportConnector::new(Some(options));
        Self(Arc::new(Inner { trust, plain, tls: OnceLock::new() }))
    }

    pub(super) fn plain(&self) -> &TransportConnector {
        &self.0.plain
    }

    /// The connector of a peer. `load_tls` has run for every cluster with TLS peers that the
    /// system's roots vouch for. One that trusts nobody is good for those who bring their own.
    pub(super) fn of(&self, by_system: bool) -> Option<&TransportConnector> {
        if by_system { self.0.tls.get() } else { Some(&self.0.plain) }
    }

    /// Loads the roots, unless they are loaded.
    pub(super) fn load_tls(&self) -> Result<(), ClusterError> {
        if self.0.tls.get().is_some() {
            return Ok(());
        }
        // pingora panics on roots it cannot use, so they are tried beforehand.
        let mut options = ConnectorOptions::new(1);
        match &self.0.trust {
            Trust::System => try_roots(tls::load_platform_certs_incl_env_into_store)?,
            Trust::File(path) => {
                try_roots(|store| tls::load_ca_file_into_store(path, store))?;
                options.ca_file = Some(utf8(path)?.to_owned());
            }
        }
        let _ = self.0.tls.set(TransportConnector::new(Some(options)));
        Ok(())
    }
}

fn try_roots(
    load: impl FnOnce(&mut tls::RootCertStore) -> pingora::Result<()>,
) -> Result<(), ClusterError> {
    let mut store = tls::RootCertStore::empty();
    load(&mut store).map_err(|error| ClusterError::Roots(error.to_string()))?;
    if store.is_empty() {
        return Err(ClusterError::Roots("there are none".to_owned()));
    }
    Ok(())
}

fn utf8(path: &Path) -> Result<&str, ClusterError> {
    path.to_str().ok_or_else(|| ClusterError::Roots("the file's name is not UTF-8".to_owned()))
}

//! Why a gateway cannot start, in words for whoever starts it.

use std::io;

use crate::{
    audit,
    edge::{self, ListenError},
    store,
    telemetry::ExportError,
    upstream::{ClusterError, PeerTlsError},
};

/// Why a gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("callers: {0}")]
    Callers(String),
    #[error("limits: {0}")]
    Limits(String),
    #[error("upstream `{name}`: {source}")]
    Upstream { name: String, source: ClusterError },
    #[error("issuer `{name}`: {source}")]
    Issuer { name: String, source: ClusterError },
    #[error("approvals.webhook: {0}")]
    Webhook(ClusterError),
    #[error("the audit log cannot be opened: {0}")]
    Audit(#[from] audit::StartError),
    #[error("traces cannot be exported: {0}")]
    Export(#[from] ExportError),
    #[error("store: {0}")]
    Store(#[from] store::OpenError),
    #[error("{0}")]
    Listen(ListenError),
    #[error("the admin listener: {0}")]
    Admin(ListenError),
    #[error("the certificate cannot be used: {0}")]
    Tls(#[from] edge::TlsError),
    #[error("upstream `{name}`: {source}")]
    PeerTls { name: String, source: PeerTlsError },
    #[error("trusted_proxies: {0}")]
    Proxies(String),
    #[error("keyring: {0}")]
    Keyring(String),
    #[error("there is no randomness for keys: {0}")]
    Randomness(String),
    #[error("{0}")]
    Runtime(io::Error),
}

//! TLS towards clients: one certificate, exchanged while the gateway runs.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::TlsAcceptor;

/// Where certificate and key are.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// PEM: the server's certificate first, then the chain.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    #[error("the key in {} is not the certificate's: {source}", key.display())]
    Mismatch { key: PathBuf, source: rustls::Error },
}

/// A certificate that connections are greeted with; clones share it.
#[derive(Clone)]
pub struct Tls {
    files: Arc<TlsFiles>,
    current: Arc<Current>,
    acceptor: TlsAcceptor,
}

/// What the next handshake shows.
struct Current(ArcSwap<CertifiedKey>);

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let key = read(&files, &provider)?;
        let current = Arc::new(Current(ArcSwap::from_pointee(key)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|source| TlsError::Mismatch { key: files.key.clone(), source })?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(Self { files: Arc::new(files), current, acceptor })
    }

    /// Reads the files again. On failure the certificate in use stays.
    pub fn reload(&self) -> Result<(), TlsError> {
        let key = read(&self.files, &ring::default_provider())?;
        self.current.0.store(Arc::new(key));
        Ok(())
    }

    pub(super) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tls").field(&self.files).finish()
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn read(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let file = |path: &Path, problem: String| TlsError::File { path: path.to_owned(), problem };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| file(&files.certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(file(&files.certificate, "there is no certificate in it".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| file(&files.key, error.to_string()))?;
    CertifiedKey::from_der(chain, key, provider)
        .map_err(|source| TlsError::Mismatch { key: files.key.clone(), source })
}

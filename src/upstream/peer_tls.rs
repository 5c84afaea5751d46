//! What the gateway shows one server in the handshake, and whose certificates it takes there:
//! a certificate of its own with its key, and roots in the place of the system's.
//!
//! Files are read whole before they are used: what cannot be used is an error here and never one
//! of pingora's panics. What was renewed is shown to connections that are made from then on.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use pingora::{
    protocols::tls::CaType,
    tls::RootCertStore,
    upstreams::peer::HttpPeer,
    utils::tls::{CertKey, WrappedX509, parse_x509},
};
use rustls::{crypto::ring, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTlsFiles {
    pub client: Option<ClientFiles>,
    /// PEM: who vouches for the server, in the place of the system's roots.
    pub ca: Option<PathBuf>,
}

/// A certificate of the gateway's own, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// PEM: the gateway's certificate first, then the chain.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Which of the files it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerFile {
    Certificate,
    Key,
    Ca,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerTlsError {
    #[error("`{}` cannot be read: {problem}", path.display())]
    Unreadable { file: PeerFile, path: PathBuf, problem: String },
    #[error("`{}` {problem}", path.display())]
    Unfit { file: PeerFile, path: PathBuf, problem: String },
    #[error("the key in `{}` is not the certificate's", key.display())]
    Mismatch { key: PathBuf },
}

/// What is shown and whom is trusted; clones share it.
#[derive(Clone)]
pub struct PeerTls(Arc<Inner>);

struct Inner {
    files: PeerTlsFiles,
    current: ArcSwap<Loaded>,
}

struct Loaded {
    client: Option<Arc<CertKey>>,
    ca: Option<Arc<CaType>>,
    /// Of all that was read.
    digest: [u8; 32],
    validity: Option<Validity>,
}

/// From when to when a certificate is good, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub from_ms: u64,
    pub until_ms: u64,
}

// === impl PeerTls ===

impl PeerTls {
    pub fn load(files: PeerTlsFiles) -> Result<Self, PeerTlsError> {
        let current = ArcSwap::from_pointee(read(&files)?);
        Ok(Self(Arc::new(Inner { files, current })))
    }

    /// Reads the files again, and says whether they hold something else now. On failure what is
    /// in use stays.
    pub fn reload(&self) -> Result<bool, PeerTlsError> {
        let loaded = read(&self.0.files)?;
        let is_new = loaded.digest != self.0.current.load().digest;
        if is_new {
            self.0.current.store(Arc::new(loaded));
        }
        Ok(is_new)
    }

    /// From when to when the gateway's certificate is good, where it has one.
    pub fn validity(&self) -> Option<Validity> {
        self.0.current.load().validity
    }

    /// A peer that is met with it.
    pub(super) fn dress(&self, dial: &HttpPeer) -> HttpPeer {
        let current = self.0.current.load();
        let mut dial = dial.clone();
        dial.client_cert_key.clone_from(&current.client);
        dial.options.ca.clone_from(&current.ca);
        dial
    }

    /// Whether servers are shown a certificate.
    pub(super) fn shows(&self) -> bool {
        self.0.files.client.is_some()
    }

    /// Whether the system's roots do not matter.
    pub(super) fn has_ca(&self) -> bool {
        self.0.files.ca.is_some()
    }
}

/// Without what was read.
impl fmt::Debug for PeerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerTls").field(&self.0.files).finish()
    }
}

// === impl Validity ===

impl Validity {
    /// The clock is the reader's.
    pub fn holds(self, now_ms: u64) -> bool {
        (self.from_ms..=self.until_ms).contains(&now_ms)
    }
}

// === reading ===

fn read(files: &PeerTlsFiles) -> Result<Loaded, PeerTlsError> {
    let mut digest = Sha256::new();
    let mut loaded = Loaded { client: None, ca: None, digest: [0; 32], validity: None };
    if let Some(client) = &files.client {
        let (key, validity) = read_client(client, &mut digest)?;
        (loaded.client, loaded.validity) = (Some(Arc::new(key)), Some(validity));
    }
    if let Some(path) = &files.ca {
        loaded.ca = Some(read_ca(path, &mut digest)?);
    }
    loaded.digest = digest.finalize().into();
    Ok(loaded)
}

fn read_client(
    files: &ClientFiles,
    digest: &mut Sha256,
) -> Result<(CertKey, Validity), PeerTlsError> {
    let ClientFiles { certificate, key: key_path } = files;
    let chain = certificates(PeerFile::Certificate, certificate)?;
    let mut validity = None;
    for one in &chain {
        let unfit = || unfit(PeerFile::Certificate, certificate, "holds what is no certificate");
        let (_, parsed) = X509Certificate::from_der(one).map_err(|_| unfit())?;
        let ms = |seconds: i64| u64::try_from(seconds).unwrap_or(0).saturating_mul(1_000);
        let parsed = parsed.validity();
        validity.get_or_insert(Validity {
            from_ms: ms(parsed.not_before.timestamp()),
            until_ms: ms(parsed.not_after.timestamp()),
        });
    }
    let key = PrivateKeyDer::from_pem_file(key_path)
        .map_err(|error| failed(PeerFile::Key, key_path, &error, "holds no private key in PEM"))?;
    let raw = key.secret_der().to_vec();
    // pingora finds out by itself of which form a key is.
    let is_known = PrivateKeyDer::try_from(raw.as_slice()).is_ok();
    let provider = ring::default_provider();
    if !is_known || provider.key_provider.load_private_key(key.clone_key()).is_err() {
        let problem = "holds a key of a kind that TLS does not use";
        return Err(unfit(PeerFile::Key, key_path, problem));
    }
    let mismatch = || PeerTlsError::Mismatch { key: key_path.clone() };
    CertifiedKey::from_der(chain.clone(), key, &provider).map_err(|_| mismatch())?;
    for part in chain.iter().map(AsRef::as_ref).chain([raw.as_slice()]) {
        digest.update(part);
    }
    let validity = validity.ok_or_else(mismatch)?;
    let chain = chain.iter().map(|one| one.to_vec()).collect();
    Ok((CertKey::new(chain, raw), validity))
}

fn read_ca(path: &Path, digest: &mut Sha256) -> Result<Arc<CaType>, PeerTlsError> {
    let roots = certificates(PeerFile::Ca, path)?;
    let mut store = RootCertStore::empty();
    for root in &roots {
        let is_one = X509Certificate::from_der(root).is_ok() && store.add(root.clone()).is_ok();
        if !is_one {
            return Err(unfit(PeerFile::Ca, path, "holds a certificate that vouches for nobody"));
        }
        digest.update(root);
    }
    Ok(roots.iter().map(|root| WrappedX509::new(root.to_vec(), parse_x509)).collect())
}

/// All of a file; one at least.
fn certificates(file: PeerFile, path: &Path) -> Result<Vec<CertificateDer<'static>>, PeerTlsError> {
    let none = "holds no certificate in PEM";
    let all = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| failed(file, path, &error, none))?;
    if all.iter().all(|one| one.is_empty()) {
        return Err(unfit(file, path, none));
    }
    Ok(all)
}

fn failed(file: PeerFile, path: &Path, error: &pem::Error, otherwise: &str) -> PeerTlsError {
    match error {
        pem::Error::Io(problem) => {
            PeerTlsError::Unreadable { file, path: path.to_owned(), problem: problem.to_string() }
        }
        // What a file holds is never repeated.
        _ => unfit(file, path, otherwise),
    }
}

fn unfit(file: PeerFile, path: &Path, problem: &str) -> PeerTlsError {
    PeerTlsError::Unfit { file, path: path.to_owned(), problem: problem.to_owned() }
}

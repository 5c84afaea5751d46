//! What upstreams are shown, and who vouches for them: files that can be used, which is tried
//! here. They are read again when the gateway starts, so that no key lies in a configuration.

use std::path::Path;

use url::Url;

use super::raw::RawPeerTls;
use crate::{
    clock::Clock,
    fault::{FaultCode, Faults, Span},
    upstream::{ClientFiles, PeerFile, PeerTls, PeerTlsError, PeerTlsFiles},
    yaml::Spanned,
};

pub(super) fn build(
    raw: RawPeerTls,
    urls: &[Url],
    folder: &Path,
    faults: &mut Faults,
) -> Option<PeerTlsFiles> {
    let RawPeerTls { at, client_cert, client_key, ca } = raw;
    if urls.iter().any(|url| url.scheme() == "http") {
        let message = "`tls` is about `https`: over `http` nobody is shown a certificate";
        faults.add(FaultCode::Contradiction, &at, message);
    }
    let at_of = |file: Option<&Spanned<String>>| file.map(|file| file.at.clone());
    let places = [at_of(client_cert.as_ref()), at_of(client_key.as_ref()), at_of(ca.as_ref())];
    let path = |file: Spanned<String>| folder.join(file.value);
    let client = match (client_cert, client_key) {
        (Some(certificate), Some(key)) => {
            Some(ClientFiles { certificate: path(certificate), key: path(key) })
        }
        (None, None) => None,
        (certificate, _) => {
            let missing = if certificate.is_some() { "client_key" } else { "client_cert" };
            faults.add(FaultCode::MissingKey, &at, format!("`{missing}` is missing"));
            return None;
        }
    };
    let files = PeerTlsFiles { client, ca: ca.map(path) };
    if files == (PeerTlsFiles { client: None, ca: None }) {
        let message = "`tls` says nothing";
        let fault = faults.add(FaultCode::MissingKey, &at, message);
        fault.suggest("write `client_cert` and `client_key`, or `ca`");
        return None;
    }
    match PeerTls::load(files.clone()) {
        Ok(tls) => {
            let now_ms = Clock::system().now_ms();
            if let (Some(validity), [Some(at), ..]) = (tls.validity(), &places)
                && !validity.holds(now_ms)
            {
                let message = match now_ms < validity.from_ms {
                    true => "this certificate is not good yet: servers will refuse it",
                    false => "this certificate has expired: servers will refuse it",
                };
                faults.add(FaultCode::ExpiredKey, at, message);
            }
        }
        Err(error) => tell(&error, &at, &places, faults),
    }
    Some(files)
}

fn tell(
    error: &PeerTlsError,
    at: &Span,
    [certificate, key, ca]: &[Option<Span>; 3],
    faults: &mut Faults,
) {
    let place = |file: &PeerFile| match file {
        PeerFile::Certificate => certificate.as_ref(),
        PeerFile::Key => key.as_ref(),
        PeerFile::Ca => ca.as_ref(),
    };
    let (code, place) = match error {
        PeerTlsError::Unreadable { file, .. } => (FaultCode::Unreadable, place(file)),
        PeerTlsError::Unfit { file, .. } => (FaultCode::BadValue, place(file)),
        PeerTlsError::Mismatch { .. } => (FaultCode::Contradiction, key.as_ref()),
    };
    faults.add(code, place.unwrap_or(at), error.to_string());
}

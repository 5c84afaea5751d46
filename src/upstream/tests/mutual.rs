//! Servers that ask for a certificate: who is shown which, and what becomes of a wrong one.

use std::{fs, path::Path, sync::atomic::Ordering::SeqCst, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    RootCertStore, SupportedProtocolVersion,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;

use super::{tls::Https, *};

/// Somebody who vouches for clients.
struct Authority(Issuer<'static, KeyPair>, rcgen::Certificate);

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self(Issuer::new(params, key), certificate)
    }

    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut roots = RootCertStore::empty();
        roots.add(self.1.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build().unwrap()
    }

    /// Writes a certificate for this name, and its key.
    fn write(&self, folder: &Path, name: &str) -> ClientFiles {
        let key = KeyPair::generate().unwrap();
        let certificate = named(name).signed_by(&key, &self.0).unwrap();
        let files = ClientFiles {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}.key")),
        };
        fs::write(&files.certificate, certificate.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A server that asks, the one who vouches for its clients, and a folder for their files.
struct Scene {
    https: Https,
    authority: Authority,
    folder: TempDir,
}

const BOTH: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];

impl Scene {
    async fn new(alpn: &[&str], versions: &[&'static SupportedProtocolVersion]) -> Self {
        let authority = Authority::new("authority");
        let https = Https::asking(alpn, versions, Some(authority.verifier())).await;
        Self { https, authority, folder: tempfile::tempdir().unwrap() }
    }

    fn tls(&self, client: Option<ClientFiles>) -> PeerTls {
        let ca = Some(self.https.roots.path().to_owned());
        PeerTls::load(PeerTlsFiles { client, ca }).unwrap()
    }

    fn cluster(&self, tls: &PeerTls, transport: &Transport) -> Arc<Cluster> {
        let endpoint = Endpoint::parse(&self.https.url("localhost")).unwrap();
        let mut config = ClusterConfig::new("shop", vec![endpoint], written());
        config.connect_timeout = Duration::from_secs(2);
        config.tls = Some(tls.clone());
        Cluster::new(config, transport).unwrap()
    }
}

/// System roots that cannot be had: what brings its own does not need them.
fn rootless() -> Transport {
    Transport::new(Trust::File("/nonexistent.pem".into()))
}

#[tokio::test]
async fn each_upstream_shows_its_own_certificate_on_connections_of_its_own() {
    for alpn in ["h2", "http/1.1"] {
        let scene = Scene::new(&[alpn], BOTH).await;
        let transport = rootless();
        let core = Upstreams::new(transport.clone());
        let mut shops = Vec::new();
        for name in ["alpha", "beta"] {
            let tls = scene.tls(Some(scene.authority.write(scene.folder.path(), name)));
            shops.push((name, scene.cluster(&tls, &transport)));
        }
        for _ in 0..4 {
            for (name, shop) in &shops {
                let said = call(&core, shop).await.unwrap();
                assert!(said.starts_with(format!("{name} HTTP/").as_bytes()), "{said:?}");
            }
        }
        assert_eq!(scene.https.connections.load(SeqCst), 2, "{alpn}: one each, kept");
    }
}

#[tokio::test]
async fn a_server_that_is_shown_no_certificate_or_another_one_has_read_nothing() {
    for alpn in ["h2", "http/1.1"] {
        for version in [&TLS12, &TLS13] {
            let scene = Scene::new(&[alpn], &[version]).await;
            let stranger = Authority::new("stranger").write(scene.folder.path(), "stranger");
            let right = scene.authority.write(scene.folder.path(), "right");
            for (client, says) in [
                (Some(right), None),
                (Some(stranger), Some("did not accept the certificate")),
                (None, Some("wants to be shown a certificate")),
            ] {
                let transport = rootless();
                let shop = scene.cluster(&scene.tls(client), &transport);
                let called = call(&Upstreams::new(transport), &shop).await;
                let Some(says) = says else {
                    assert!(called.is_ok(), "{alpn} {version:?} {called:?}");
                    continue;
                };
                let error = called.unwrap_err();
                let place = format!("{alpn} {version:?} {error:?}");
                assert_eq!(error.kind(), Some("client_certificate"), "{place}");
                assert!(error.to_string().contains(says), "{place}");
                assert!(!error.unknown_outcome(), "{place}");
                assert_eq!(error.trouble(), Some(crate::error::Trouble::Unusable), "{place}");
            }
        }
    }
}

#[tokio::test]
async fn a_server_is_vouched_for_by_the_roots_of_its_upstream_and_by_no_others() {
    let scene = Scene::new(&["http/1.1"], BOTH).await;
    let right = scene.authority.write(scene.folder.path(), "right");
    let elsewhere = scene.folder.path().join("elsewhere.pem");
    fs::write(&elsewhere, Authority::new("elsewhere").1.pem()).unwrap();
    let files = PeerTlsFiles { client: Some(right.clone()), ca: Some(elsewhere) };
    // Also where the system's would.
    let system = Transport::new(Trust::File(scene.https.roots.path().to_owned()));
    let shop = scene.cluster(&PeerTls::load(files).unwrap(), &system);
    let error = call(&Upstreams::new(system.clone()), &shop).await.unwrap_err();
    assert_eq!(error.kind(), Some("tls"), "{error:?}");
    // Without roots of its own the system's are who vouches.
    let files = PeerTlsFiles { client: Some(right), ca: None };
    let shop = scene.cluster(&PeerTls::load(files).unwrap(), &system);
    let said = call(&Upstreams::new(system), &shop).await.unwrap();
    assert!(said.starts_with(b"right "), "{said:?}");
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_from_then_on_and_a_broken_one_never() {
    let scene = Scene::new(&["http/1.1"], BOTH).await;
    let transport = rootless();
    let files = scene.authority.write(scene.folder.path(), "first");
    let tls = scene.tls(Some(files.clone()));
    let shop = scene.cluster(&tls, &transport);
    let said = |core: Upstreams| {
        let shop = shop.clone();
        async move { String::from_utf8(call(&core, &shop).await.unwrap().to_vec()).unwrap() }
    };
    let core = Upstreams::new(transport.clone());
    assert!(said(core.clone()).await.starts_with("first "));
    assert!(!tls.reload().unwrap(), "nothing has changed");
    let second = scene.authority.write(scene.folder.path(), "second");
    fs::copy(&second.certificate, &files.certificate).unwrap();
    // The key is still the first one's.
    assert!(matches!(tls.reload(), Err(PeerTlsError::Mismatch { .. })));
    assert!(said(Upstreams::new(transport.clone())).await.starts_with("first "));
    fs::copy(&second.key, &files.key).unwrap();
    assert!(tls.reload().unwrap());
    assert!(said(Upstreams::new(transport.clone())).await.starts_with("second "));
    // A connection that is there stays what it was.
    assert!(said(core).await.starts_with("first "));
    let debug = format!("{tls:?} {:?}", shop.config());
    let key = fs::read_to_string(&files.key).unwrap();
    assert!(!debug.contains(key.lines().nth(1).unwrap()), "{debug}");
}

//! HTTPS: both HTTPs, certificates that change, clients that do not speak it.

use std::{path::Path, sync::Arc};

use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

/// Writes a new certificate for `localhost` and returns what trusts it.
fn certificate(dir: &Path) -> RootCertStore {
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), own.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), own.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(own.cert.der().clone()).unwrap();
    roots
}

fn files(dir: &Path) -> TlsFiles {
    TlsFiles { certificate: dir.join("cert.pem"), key: dir.join("key.pem") }
}

async fn connect(
    gate: &Gate,
    roots: &RootCertStore,
    alpn: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let stream = TcpStream::connect(gate.address).await?;
    TlsConnector::from(Arc::new(config)).connect("localhost".try_into().unwrap(), stream).await
}

fn secure(tls: &Tls) -> Gate {
    let mut listen = ListenConfig::new("127.0.0.1:0".parse().unwrap());
    listen.tls = Some(tls.clone());
    gate_on(listen, 1, ServerConfig { header_timeout: ms(300), ..ServerConfig::default() })
}

fn request() -> Request<Full<Bytes>> {
    Request::post("https://localhost/").header("host", "localhost").body("ping".into()).unwrap()
}

#[tokio::test]
async fn both_https_are_spoken_as_the_client_wishes() {
    let dir = TempDir::new().unwrap();
    let roots = certificate(dir.path());
    let gate = secure(&Tls::load(files(dir.path())).unwrap());

    let io = TokioIo::new(connect(&gate, &roots, "h2").await.unwrap());
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(driver);
    let answer = sender.send_request(request()).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_2);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ping");

    let io = TokioIo::new(connect(&gate, &roots, "http/1.1").await.unwrap());
    let (mut sender, driver) = http1::handshake(io).await.unwrap();
    tokio::spawn(driver);
    let answer = sender.send_request(request()).await.unwrap();
    assert_eq!(answer.version(), http::Version::HTTP_11);
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ping");
}

#[tokio::test]
async fn a_new_certificate_is_shown_from_its_reload_on() {
    let dir = TempDir::new().unwrap();
    let old = certificate(dir.path());
    let tls = Tls::load(files(dir.path())).unwrap();
    let gate = secure(&tls);
    let new = certificate(dir.path());
    connect(&gate, &old, "h2").await.expect("the old one is still in use");
    tls.reload().unwrap();
    connect(&gate, &new, "h2").await.expect("the new one is in use");
    assert!(connect(&gate, &old, "h2").await.is_err());
    std::fs::write(dir.path().join("cert.pem"), "nothing").unwrap();
    assert!(tls.reload().is_err());
    connect(&gate, &new, "h2").await.expect("a failed reload changes nothing");
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_turned_away() {
    let dir = TempDir::new().unwrap();
    certificate(dir.path());
    let gate = secure(&Tls::load(files(dir.path())).unwrap());
    let mut client = Client::connect(&gate).await;
    client.write("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    assert!(client.ends_within(ms(200)).await);
    let mut silent = Client::connect(&gate).await;
    assert!(silent.ends_within(ms(600)).await);
    // Counted when the connection has ended, which its client may see first.
    tokio::time::sleep(ms(20)).await;
    assert_eq!(gate.stats.refused(), 2);
}

#[test]
fn files_that_are_no_certificate_are_named() {
    let dir = TempDir::new().unwrap();
    let told = || Tls::load(files(dir.path())).unwrap_err().to_string();
    assert!(told().contains("cert.pem"), "{}", told());
    certificate(dir.path());
    std::fs::remove_file(dir.path().join("key.pem")).unwrap();
    assert!(told().contains("key.pem"), "{}", told());
    let other = TempDir::new().unwrap();
    certificate(other.path());
    std::fs::copy(other.path().join("key.pem"), dir.path().join("key.pem")).unwrap();
    assert!(told().contains("is not the certificate's"), "{}", told());
}

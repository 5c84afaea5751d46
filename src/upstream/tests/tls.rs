//! TLS and HTTP/2 towards upstreams.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::NamedTempFile;
use tokio::{io::AsyncWriteExt, net::TcpListener};
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::*;
use crate::body::BoxError;

/// An HTTPS server whose certificate is for `localhost`, and the file to trust it by.
pub(super) struct Https {
    pub address: SocketAddr,
    pub roots: NamedTempFile,
    pub connections: Arc<AtomicUsize>,
}

impl Https {
    async fn start(alpn: &[&str]) -> Self {
        Self::asking(alpn, rustls::ALL_VERSIONS, None).await
    }

    /// One that asks clients for a certificate, where it is told who vouches for those.
    pub async fn asking(
        alpn: &[&str],
        versions: &[&'static rustls::SupportedProtocolVersion],
        clients: Option<Arc<dyn ClientCertVerifier>>,
    ) -> Self {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let roots = NamedTempFile::new().unwrap();
        std::fs::write(roots.path(), own.cert.pem()).unwrap();
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap();
        let config = match clients {
            Some(clients) => config.with_client_cert_verifier(clients),
            None => config.with_no_client_auth(),
        };
        let mut config = config
            .with_single_cert(vec![own.cert.der().clone()], PrivateKeyDer::from(key))
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let count = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, SeqCst);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let stream = match acceptor.accept(stream).into_fallible().await {
                        Ok(stream) => stream,
                        Err((_, mut tcp)) => {
                            // What was sent meanwhile is read: else the client is told of a reset,
                            // and perhaps not of what was wrong.
                            let _ = tcp.shutdown().await;
                            let _ = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
                            return;
                        }
                    };
                    let session = stream.get_ref().1;
                    let h2 = session.alpn_protocol() == Some(b"h2");
                    let who = session.peer_certificates().map(|chain| chain[0].to_vec());
                    let who = who.map(|one| name_of(&one)).unwrap_or_default();
                    let echo = service_fn(move |request| echo(who.clone(), request));
                    let io = TokioIo::new(stream);
                    if h2 {
                        let builder = http2::Builder::new(TokioExecutor::new());
                        let _ = builder.serve_connection(io, echo).await;
                    } else {
                        let _ = http1::Builder::new().serve_connection(io, echo).await;
                    }
                });
            }
        });
        Self { address, roots, connections }
    }

    pub fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/mcp", self.address.port())
    }

    fn cluster(&self, host: &str) -> (Upstreams, Arc<Cluster>) {
        let transport = Transport::new(Trust::File(self.roots.path().to_owned()));
        let mut config =
            ClusterConfig::new("shop", vec![Endpoint::parse(&self.url(host)).unwrap()], written());
        config.connect_timeout = Duration::from_secs(2);
        let shop = Cluster::new(config, &transport).unwrap();
        (Upstreams::new(transport), shop)
    }
}

/// What a certificate's holder is called.
fn name_of(certificate: &[u8]) -> String {
    let (_, parsed) = X509Certificate::from_der(certificate).unwrap();
    let name = parsed.subject().iter_common_name().next().unwrap();
    format!("{} ", name.as_str().unwrap())
}

/// Tells whoever showed a certificate, version and authority before the body.
async fn echo(who: String, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    match request.uri().path() {
        "/refused" => return Err(h2::Error::from(h2::Reason::REFUSED_STREAM).into()),
        "/cancelled" => return Err(h2::Error::from(h2::Reason::CANCEL).into()),
        _ => {}
    }
    let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
    let authority = request.uri().authority().map(ToString::to_string);
    let said = format!("{who}{:?} {} ", request.version(), authority.or(host).unwrap());
    let body = request.into_body().collect().await?.to_bytes();
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(Response::new(Body::from_parts([Bytes::from(said), body])))
}

#[tokio::test]
async fn http_2_is_spoken_where_the_server_offers_it_on_one_connection() {
    let https = Https::start(&["h2", "http/1.1"]).await;
    let (core, shop) = https.cluster("localhost");
    let expected = format!("HTTP/2.0 localhost:{} {{\"call\":1}}", https.address.port());
    for answer in futures_util::future::join_all((0..20).map(|_| call(&core, &shop))).await {
        assert_eq!(answer.unwrap(), expected);
    }
    call(&core, &shop).await.unwrap();
    assert_eq!(https.connections.load(SeqCst), 1);
}

#[tokio::test]
async fn a_request_that_http_2_refuses_unread_is_known_not_to_have_run() {
    let https = Https::start(&["h2"]).await;
    for (path, kind, unknown) in
        [("refused", "stream_refused", false), ("cancelled", "connection_closed", true)]
    {
        let transport = Transport::new(Trust::File(https.roots.path().to_owned()));
        let url = https.url("localhost").replace("mcp", path);
        let config = ClusterConfig::new("shop", vec![Endpoint::parse(&url).unwrap()], written());
        let shop = Cluster::new(config, &transport).unwrap();
        let error = call(&Upstreams::new(transport), &shop).await.unwrap_err();
        assert_eq!((error.kind(), error.unknown_outcome()), (Some(kind), unknown), "{error:?}");
        assert!(error.trouble().is_some());
    }
}

#[tokio::test]
async fn http_1_is_spoken_where_the_server_offers_nothing_else() {
    let https = Https::start(&["http/1.1"]).await;
    let (core, shop) = https.cluster("localhost");
    let expected = format!("HTTP/1.1 localhost:{} {{\"call\":1}}", https.address.port());
    for _ in 0..5 {
        assert_eq!(call(&core, &shop).await.unwrap(), expected);
    }
    assert_eq!(https.connections.load(SeqCst), 1);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_before_anything_is_sent() {
    let https = Https::start(&["h2"]).await;
    let (core, shop) = https.cluster("127.0.0.1");
    let error = call(&core, &shop).await.unwrap_err();
    assert_eq!(error.kind(), Some("tls"));
    assert!(!error.unknown_outcome());
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused() {
    let https = Https::start(&["h2"]).await;
    let stranger = Https::start(&["h2"]).await;
    let (core, _) = stranger.cluster("localhost");
    let transport = Transport::new(Trust::File(stranger.roots.path().to_owned()));
    let endpoint = Endpoint::parse(&https.url("localhost")).unwrap();
    let shop =
        Cluster::new(ClusterConfig::new("shop", vec![endpoint], written()), &transport).unwrap();
    assert_eq!(call(&core, &shop).await.unwrap_err().kind(), Some("tls"));
}

#[test]
fn roots_that_cannot_be_used_are_an_error_and_no_panic() {
    let endpoint = || vec![Endpoint::parse("https://h.example/").unwrap()];
    let file = NamedTempFile::new().unwrap();
    for (content, path) in [
        ("", file.path().to_owned()),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", file.path().to_owned()),
        ("", "/nonexistent.pem".into()),
    ] {
        std::fs::write(file.path(), content).unwrap();
        let transport = Transport::new(Trust::File(path));
        let made = Cluster::new(ClusterConfig::new("shop", endpoint(), written()), &transport);
        assert!(matches!(made, Err(ClusterError::Roots(_))), "{content}");
    }
}

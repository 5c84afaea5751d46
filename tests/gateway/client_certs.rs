//! Servers that ask for a certificate: each upstream shows its own, and what a server does not
//! accept is told as such.

use std::{fs, net::SocketAddr, path::Path, sync::Arc, thread};

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::process_support::{
    Dialect, Home, Process, Response, Setup, Upstream, exchange, tool, until,
};

const TOKEN: &str = "the-one-token-of-the-tests";

/// Takes connections over TLS from whoever shows a certificate of its authority, and hands them
/// on to the server that is there for that very certificate.
struct Front {
    address: SocketAddr,
    authority: Issuer<'static, KeyPair>,
    /// PEM: who vouches for the front.
    roots: String,
    servers: Arc<Mutex<Vec<(CertificateDer<'static>, SocketAddr)>>>,
    open: Arc<Mutex<Vec<AbortHandle>>>,
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str) -> (Issuer<'static, KeyPair>, rcgen::Certificate) {
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    (Issuer::new(params, key), certificate)
}

/// Writes a certificate and its key under this name.
fn write(folder: &Path, name: &str, by: &Issuer<'static, KeyPair>) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let certificate = named(name).signed_by(&key, by).unwrap();
    fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    certificate.der().clone()
}

impl Front {
    fn start() -> Self {
        let (authority, root) = authority("authority");
        let key = KeyPair::generate().unwrap();
        let own = named("front").signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(vec![own.der().clone()], key)
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let front = Self {
            address: listener.local_addr().unwrap(),
            authority,
            roots: root.pem(),
            servers: Arc::default(),
            open: Arc::default(),
        };
        let (servers, open) = (front.servers.clone(), front.open.clone());
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                let acceptor = TlsAcceptor::from(Arc::new(config));
                while let Ok((stream, _)) = listener.accept().await {
                    let serving = tokio::spawn(serve(acceptor.clone(), stream, servers.clone()));
                    open.lock().push(serving.abort_handle());
                }
            });
        });
        front
    }

    fn url(&self) -> String {
        format!("https://localhost:{}/mcp", self.address.port())
    }

    /// Makes a certificate for a server behind the front.
    fn admit(&self, folder: &Path, name: &str, server: &Upstream) {
        let certificate = write(folder, name, &self.authority);
        self.servers.lock().push((certificate, server.address()));
    }

    /// Closes what connections there are.
    fn close(&self) {
        for serving in self.open.lock().drain(..) {
            serving.abort();
        }
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    servers: Arc<Mutex<Vec<(CertificateDer<'static>, SocketAddr)>>>,
) {
    let mut stream = match acceptor.accept(stream).into_fallible().await {
        Ok(stream) => stream,
        Err((_, mut tcp)) => {
            // What was sent meanwhile is read, so that what was wrong is heard.
            let _ = tcp.shutdown().await;
            let _ = tokio::io::copy(&mut tcp, &mut tokio::io::sink()).await;
            return;
        }
    };
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
    let server = servers.lock().iter().find(|(known, _)| *known == shown).map(|(_, at)| *at);
    let mut server = TcpStream::connect(server.unwrap()).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
}

fn entry(front: &Front, name: &str) -> String {
    format!(
        "{{ url: \"{}\", poll: 1s, tls: {{ client_cert: {name}.pem, client_key: {name}.key, \
         ca: roots.pem }} }}",
        front.url()
    )
}

fn setup(front: &Front, names: &[&str]) -> Setup {
    let setup = Setup::new().admin_more("token: { env: ADMIN }").env("ADMIN", TOKEN);
    names.iter().fold(setup, |setup, name| setup.upstream_entry(name, &entry(front, name)))
}

fn home(front: &Front, setup: &Setup) -> Home {
    let home = setup.write();
    fs::write(home.path("roots.pem"), &front.roots).unwrap();
    home
}

fn admin(gateway: &Process, method: &str, path: &str) -> Response {
    let bearer = format!("Bearer {TOKEN}");
    exchange(gateway.admin, method, path, &[("Authorization", &*bearer)], b"").unwrap()
}

fn call(gateway: &Process, upstream: &str) -> Response {
    let client = gateway.client(&format!("/mcp/{upstream}"), Dialect::Modern).employee("E1");
    client.call("echo", json!({}))
}

#[test]
fn each_upstream_is_served_for_the_certificate_that_it_shows() {
    let front = Front::start();
    let servers = ["alpha", "beta"].map(|name| (name, Upstream::start(&[tool("echo")])));
    let home = home(&front, &setup(&front, &["alpha", "beta"]));
    for (name, server) in &servers {
        front.admit(&home.path(""), name, server);
    }
    let gateway = home.serve(&[]);
    for (name, _) in &servers {
        until("it is listed", || call(&gateway, name).word() == "ok");
    }
    servers.iter().for_each(|(_, server)| server.forget());
    thread::scope(|scope| {
        for number in 0..32 {
            let gateway = &gateway;
            let name = servers[number % 2].0;
            scope.spawn(move || assert_eq!(call(gateway, name).word(), "ok"));
        }
    });
    for (name, server) in &servers {
        assert_eq!(server.calls().len(), 16, "{name}");
    }
    // Where the key is, is no secret; what is in it, is.
    let key = fs::read_to_string(home.path("alpha.key")).unwrap();
    let inside = key.lines().nth(1).unwrap();
    let shown = admin(&gateway, "GET", "/admin/api/config");
    assert!(shown.text().contains("alpha.key") && !shown.text().contains(inside), "{shown:?}");
    assert!(!gateway.log().contains(inside));
}

#[test]
fn a_certificate_is_renewed_in_place_and_one_that_is_not_accepted_is_told() {
    let front = Front::start();
    let server = Upstream::start(&[tool("echo")]);
    let home = home(&front, &setup(&front, &["alpha"]));
    front.admit(&home.path(""), "alpha", &server);
    let gateway = home.serve(&[]);
    until("it is listed", || call(&gateway, "alpha").word() == "ok");
    let reload = || admin(&gateway, "POST", "/admin/api/reload").json()["certificate"].clone();
    // One of somebody's whom the server does not trust.
    let (stranger, _) = authority("stranger");
    write(&home.path(""), "alpha", &stranger);
    assert_eq!(reload(), "loaded");
    // What is open stays open; what is made anew is made with it.
    server.forget();
    front.close();
    until("it is refused", || call(&gateway, "alpha").word() == "external_service_error");
    let refused = call(&gateway, "alpha");
    assert!(refused.text().contains("did not accept the certificate"), "{refused:?}");
    assert!(server.calls().is_empty());
    let told = admin(&gateway, "GET", "/admin/api/servers").text();
    until("the listing tells it, too", || {
        let servers: Value = admin(&gateway, "GET", "/admin/api/servers").json();
        servers.to_string().contains("did not accept the certificate")
    });
    assert!(!told.contains("PRIVATE KEY"), "{told}");
    // A file that cannot be used changes nothing.
    fs::write(home.path("alpha.key"), "hunter2").unwrap();
    let kept = reload();
    assert!(kept.as_str().unwrap().contains("alpha.key") && !kept.to_string().contains("hunter2"));
    front.admit(&home.path(""), "alpha", &server);
    assert_eq!(reload(), "loaded");
    until("it is accepted again", || call(&gateway, "alpha").word() == "ok");
}

#[test]
fn a_server_that_is_shown_none_says_what_it_wants() {
    let front = Front::start();
    let entry = format!("{{ url: \"{}\", poll: 1s, tls: {{ ca: roots.pem }} }}", front.url());
    let setup = Setup::new()
        .admin_more("token: { env: ADMIN }")
        .env("ADMIN", TOKEN)
        .upstream_entry("alpha", &entry);
    let gateway = home(&front, &setup).serve(&[]);
    until("the listing tells it", || {
        let servers: Value = admin(&gateway, "GET", "/admin/api/servers").json();
        servers.to_string().contains("wants to be shown a certificate")
    });
    assert_eq!(call(&gateway, "alpha").word(), "external_service_error");
}

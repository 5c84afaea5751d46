//! `auth:` of an upstream: each kind with all its keys.

use std::path::{Path, PathBuf};

use super::{LEAST, config};
use crate::{
    clock::Clock,
    config::{TokensAt, UpstreamAuth},
    credential::{
        CacheLimits, Keeper, KeyringFile,
        oauth::{ClientProof, NamedAs, TokenType},
    },
};

/// A keyring, for as long as the folder is there.
pub(super) fn keyring() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.json");
    let cache = CacheLimits { age: super::secs(1), uses: 1 };
    Keeper::new(KeyringFile::new(&path), None, cache, Clock::system()).create().unwrap();
    (folder, path)
}

/// The least configuration with this `auth`.
pub(super) fn with(auth: &str) -> String {
    let body = format!("{{ url: \"https://a.example/mcp\", auth: {{ {auth} }} }}");
    LEAST.replace("{ url: \"http://127.0.0.1:7001/mcp\" }", &body)
}

/// The same with a keyring, and a name by which others reach the gateway.
pub(super) fn whole(auth: &str, keyring: &Path) -> String {
    let text = with(auth);
    format!("{text}keyring: {{ file: {} }}\npublic_url: https://gw.example\n", keyring.display())
}

fn auth(text: &str) -> UpstreamAuth {
    let (_folder, keyring) = keyring();
    config(&whole(text, &keyring)).upstreams.remove(0).auth
}

const CLIENT: &str = "client_id: hangu, client_secret: { env: TOKEN }";

#[test]
fn every_key_of_every_kind_is_read() {
    assert!(matches!(auth("type: none"), UpstreamAuth::None));
    assert!(matches!(auth("type: employee"), UpstreamAuth::Employee));
    let all = format!(
        "type: client_credentials, {CLIENT}, secret_in: body, issuer: https://as.example, \
         scope: a b, resource: https://b.example"
    );
    let UpstreamAuth::Client(own) = auth(&all) else { panic!() };
    let client = &own.as_client;
    assert_eq!(client.client.id, "hangu");
    assert!(matches!(client.client.proof, ClientProof::SecretInBody(_)));
    assert_eq!(client.at, TokensAt::Issuer("https://as.example".to_owned()));
    assert_eq!(
        (own.scope.as_deref(), own.resource.as_deref()),
        (Some("a b"), Some("https://b.example"))
    );
    let UpstreamAuth::Consent(consent) = auth(&format!(
        "type: oauth, {CLIENT}, issuer: https://as.example, scope: a, \
         listing: {{ tenant: acme, empId: E1 }}"
    )) else {
        panic!()
    };
    assert_eq!(consent.client.unwrap().id, "hangu");
    assert_eq!(consent.listing.unwrap().1.as_str(), "E1");
    let UpstreamAuth::Signed(signed) = auth(
        "type: signed_jwt, issuer: https://i.example, subject: hangu, audience: crm, \
         employee_as: sub, scope: a, lifetime: 1m",
    ) else {
        panic!()
    };
    assert_eq!((&*signed.issuer, &*signed.subject), ("https://i.example", "hangu"));
    assert_eq!((signed.audience.as_deref(), signed.scope.as_deref()), (Some("crm"), Some("a")));
    assert_eq!((signed.employee_as, signed.lifetime), (NamedAs::Subject, super::secs(60)));
    let UpstreamAuth::Signed(signed) = auth("type: signed_jwt") else { panic!() };
    assert_eq!((&*signed.issuer, &*signed.subject), ("https://gw.example", "https://gw.example"));
    assert_eq!((signed.employee_as, signed.lifetime), (NamedAs::Actor, super::secs(300)));
    assert_eq!((signed.audience, signed.scope), (None, None));
    let UpstreamAuth::Exchange(exchange) = auth(
        "type: token_exchange, client_id: hangu, key: gateway, token_url: https://as.example/t, \
         scope: a, resource: https://b.example, audience: crm, requested_token_type: jwt, \
         actor_token: true, listing: { tenant: acme, empId: E1 }",
    ) else {
        panic!()
    };
    assert!(exchange.as_client.own_key && exchange.actor_token);
    assert!(matches!(&exchange.as_client.at, TokensAt::Url(url) if url.path() == "/t"));
    assert_eq!(
        (&*exchange.issuer, exchange.audience.as_deref()),
        ("https://gw.example", Some("crm"))
    );
    assert_eq!(exchange.requested, Some(TokenType::Jwt));
    assert!(exchange.listing.is_some());
    let UpstreamAuth::Exchange(exchange) = auth(&format!("type: token_exchange, {CLIENT}")) else {
        panic!()
    };
    assert_eq!(exchange.as_client.at, TokensAt::Discovered);
    assert!(exchange.requested.is_none() && !exchange.actor_token && exchange.listing.is_none());
}

#[test]
fn what_is_shown_has_no_secret() {
    let (_folder, keyring) = keyring();
    let shown = |auth: &str| {
        let shown = config(&whole(auth, &keyring)).shown()["upstreams"]["crm"]["auth"].clone();
        assert!(!shown.to_string().contains("hunter2"), "{shown}");
        shown.to_string()
    };
    for (auth, parts) in [
        (
            format!("type: client_credentials, {CLIENT}"),
            ["\"client_secret\":\"[secret]\"", "\"type\":\"client_credentials\""],
        ),
        (
            format!("type: token_exchange, {CLIENT}, secret_in: body"),
            ["\"secret_in\":\"body\"", "\"actor_token\":false"],
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway".to_owned(),
            ["\"key\":\"gateway\"", "\"client_id\":\"hangu\""],
        ),
        (format!("type: oauth, {CLIENT}"), ["\"client_id\":\"hangu\"", "\"type\":\"oauth\""]),
        ("type: signed_jwt".to_owned(), ["\"lifetime\":\"5m\"", "\"employee_as\":\"act\""]),
    ] {
        let shown = shown(&auth);
        for part in parts {
            assert!(shown.contains(part), "{auth}: {shown}");
        }
    }
}

#[test]
fn no_rendering_of_a_fault_shows_what_may_be_a_secret() {
    for auth in [
        "type: token_exchange, client_id: c, client_secret: hunter2",
        "type: client_credentials, client_id: c, key: hunter2",
        "type: oauth, client_id: c, client_secret: { env: TOKEN }, issuer: \"https://u:hunter2@as.example\"",
        "type: token_exchange, client_id: c, key: gateway, token_url: \"https://u:hunter2@as.example\"",
    ] {
        super::faults::shows_nothing(&with(auth));
    }
}

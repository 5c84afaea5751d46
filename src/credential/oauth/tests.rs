//! What is believed of servers and authorization servers, and what they are sent.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret, SecretBox};
use serde_json::{Value, json};
use url::Url;

use super::*;
use crate::{
    credential::{Owner, Whose},
    model::{
        caller::{EmployeeId, TenantId},
        keys::{KeySecret, KeySecrets},
    },
};

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn challenge(values: &[&str]) -> Option<Challenge> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap());
    }
    Challenge::of(&headers)
}

#[test]
fn a_challenge_is_found_among_others() {
    let full = Challenge {
        resource_metadata: Some("https://a/x".to_owned()),
        scope: Some("r w".to_owned()),
        error: Some("insufficient_scope".to_owned()),
    };
    let text = r#"Bearer resource_metadata="https://a/x", scope="r w", error="insufficient_scope""#;
    for values in [
        vec![text],
        vec![r#"bearer error=insufficient_scope,scope="r w" ,resource_metadata="https://a/x""#],
        vec!["Basic realm=\"a, Bearer scope=x\"", text],
        vec![
            r#"Basic realm="x", Bearer scope="r w", error="insufficient_scope", resource_metadata = "https://a/x", DPoP scope="z""#,
        ],
        vec!["Negotiate", text],
    ] {
        assert_eq!(challenge(&values), Some(full.clone()), "{values:?}");
    }
    assert_eq!(challenge(&["Bearer"]), Some(Challenge::default()));
    assert_eq!(challenge(&[r#"Bearer scope="a\"b""#]).unwrap().scope.as_deref(), Some("a\"b"));
    for values in [vec![], vec!["Basic realm=\"x\""], vec!["Bearer scope=\"open"]] {
        assert_eq!(challenge(&values), None, "{values:?}");
    }
}

#[test]
fn a_resource_speaks_of_the_server_it_was_asked_about() {
    let read = |resource: &str, server: &str| {
        let document = json!({ "resource": resource, "authorization_servers": ["https://as"] });
        ProtectedResource::read(document.to_string().as_bytes(), &url(server))
    };
    for (resource, server) in [
        ("https://a/mcp", "https://a/mcp"),
        ("https://a", "https://a/mcp"),
        ("https://a/", "https://a/mcp"),
        ("https://a:443/mcp", "https://a/mcp"),
        ("https://a/mcp", "https://a/mcp/x"),
    ] {
        assert_eq!(read(resource, server).unwrap().resource, resource, "{resource} {server}");
    }
    for (resource, server) in [
        ("https://evil/mcp", "https://a/mcp"),
        ("http://a/mcp", "https://a/mcp"),
        ("https://a:444/mcp", "https://a/mcp"),
        ("https://a/mcp2", "https://a/mcp"),
        ("https://a/mc", "https://a/mcp"),
        ("https://a/mcp#x", "https://a/mcp"),
        ("a", "https://a/mcp"),
    ] {
        let refused = read(resource, server).unwrap_err();
        assert_eq!(refused, MetadataFault::OtherResource, "{resource} {server}");
    }
    let nobody = json!({ "resource": "https://a/mcp" }).to_string();
    let refused = ProtectedResource::read(nobody.as_bytes(), &url("https://a/mcp"));
    assert_eq!(refused.unwrap_err(), MetadataFault::NoServer);
}

#[test]
fn documents_are_looked_for_in_the_order_of_the_specification() {
    let texts = |places: Vec<Url>| places.into_iter().map(String::from).collect::<Vec<_>>();
    assert_eq!(
        texts(ProtectedResource::places(&url("https://a/t/mcp?x=1"), None)),
        [
            "https://a/.well-known/oauth-protected-resource/t/mcp",
            "https://a/.well-known/oauth-protected-resource",
        ]
    );
    let named = ProtectedResource::places(&url("https://a/mcp"), Some("https://b/doc"));
    assert_eq!(texts(named), ["https://b/doc"]);
    assert_eq!(
        texts(AuthorizationServer::places(&url("https://as/t1"))),
        [
            "https://as/.well-known/oauth-authorization-server/t1",
            "https://as/.well-known/openid-configuration/t1",
            "https://as/t1/.well-known/openid-configuration",
        ]
    );
    assert_eq!(
        texts(AuthorizationServer::places(&url("https://as"))),
        [
            "https://as/.well-known/oauth-authorization-server",
            "https://as/.well-known/openid-configuration",
        ]
    );
}

fn server(more: Value) -> Result<AuthorizationServer, MetadataFault> {
    let mut document = json!({ "issuer": "https://as", "token_endpoint": "https://as/token" });
    for (name, value) in more.as_object().unwrap() {
        document[name] = value.clone();
    }
    AuthorizationServer::read(document.to_string().as_bytes(), "https://as")
}

#[test]
fn an_issuer_is_the_one_that_was_asked_for_to_the_letter() {
    assert!(server(json!({})).is_ok());
    for issuer in ["https://as/", "https://AS", "http://as", "https://as:443", "https://evil"] {
        let refused = server(json!({ "issuer": issuer })).unwrap_err();
        assert_eq!(refused, MetadataFault::OtherIssuer, "{issuer}");
    }
    for endpoint in
        ["http://as/token", "https://u:p@as/token", "ftp://as", "token", "https://as/#x"]
    {
        let refused = server(json!({ "token_endpoint": endpoint })).unwrap_err();
        assert_eq!(refused, MetadataFault::Insecure("token_endpoint"), "{endpoint}");
    }
    assert!(server(json!({ "token_endpoint": "http://127.0.0.1:9/token" })).is_ok());
}

#[test]
fn nobody_is_sent_to_a_server_without_pkce() {
    let endpoint = json!({ "authorization_endpoint": "https://as/authorize" });
    let with = |methods: Value| {
        let mut more = endpoint.clone();
        more["code_challenge_methods_supported"] = methods;
        server(more).unwrap()
    };
    assert!(with(json!(["plain", "S256"])).authorization_endpoint().is_ok());
    for known in [with(json!(["plain"])), with(json!([])), server(endpoint.clone()).unwrap()] {
        let refused = known.authorization_endpoint().unwrap_err();
        assert_eq!(refused, MetadataFault::Missing("PKCE with S256"));
    }
}

fn asked(proof: ClientProof, methods: &[&str]) -> (Option<String>, Vec<(String, String)>) {
    let client = Client { id: "a b".to_owned(), proof };
    let methods = json!({ "token_endpoint_auth_methods_supported": methods });
    let server = server(methods).unwrap();
    let parameters = [("grant_type", "client_credentials"), ("scope", "")];
    let request =
        TokenRequest::new(&client, Some(&server), "https://as", &parameters, 1_000_000).unwrap();
    let header = request.headers.get(header::AUTHORIZATION);
    assert!(header.is_none_or(HeaderValue::is_sensitive));
    let form = url::form_urlencoded::parse(request.body.as_bytes()).into_owned().collect();
    (header.map(|value| value.to_str().unwrap().to_owned()), form)
}

#[test]
fn a_client_proves_itself_as_the_server_takes_it() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let grant = pair("grant_type", "client_credentials");
    let in_body = vec![grant.clone(), pair("client_id", "a b"), pair("client_secret", "p:w")];
    let secret = || ClientProof::Secret("p:w".into());
    let basic = Some("Basic YStiOnAlM0F3".to_owned());
    for (proof, methods, header, form) in [
        (
            secret(),
            &["client_secret_basic", "client_secret_post"][..],
            basic.clone(),
            vec![grant.clone()],
        ),
        (secret(), &["client_secret_post"], None, in_body.clone()),
        (secret(), &["private_key_jwt"], basic, vec![grant.clone()]),
        (ClientProof::SecretInBody("p:w".into()), &["client_secret_basic"], None, in_body),
        (ClientProof::None, &["none"], None, vec![grant.clone(), pair("client_id", "a b")]),
    ] {
        assert_eq!(asked(proof, methods), (header, form), "{methods:?}");
    }
    assert!(!format!("{:?}", secret()).contains("p:w"));
}

fn secrets(primary: u8, others: &[u8]) -> KeySecrets {
    let secret = |n: u8| KeySecret { id: n.into(), secret: SecretBox::new(Box::new([n; 32])) };
    KeySecrets { primary: secret(primary), others: others.iter().copied().map(secret).collect() }
}

#[test]
fn an_assertion_is_signed_by_a_key_that_is_published() {
    let identity = Identity::new(&secrets(1, &[2])).unwrap();
    let again = Identity::new(&secrets(1, &[2])).unwrap();
    assert_eq!(identity.jwks(), again.jwks(), "the same keys from the same keyring");
    assert_eq!(identity.jwks()["keys"].as_array().unwrap().len(), 2);
    let key = identity.signer().unwrap();
    let (_, form) = asked(ClientProof::Key(key), &["private_key_jwt"]);
    let value = |name: &str| form.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert_eq!(value("client_id"), "a b");
    let assertion = value("client_assertion");
    let head = jsonwebtoken::decode_header(&assertion).unwrap();
    let keys: jsonwebtoken::jwk::JwkSet = serde_json::from_value(identity.jwks()).unwrap();
    let jwk = keys.find(head.kid.as_deref().unwrap()).unwrap();
    let key = jsonwebtoken::DecodingKey::from_jwk(jwk).unwrap();
    let mut validation = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::ES256);
    validation.set_audience(&["https://as"]);
    validation.validate_exp = false;
    let claims = jsonwebtoken::decode::<Value>(&assertion, &key, &validation).unwrap().claims;
    assert_eq!((&claims["iss"], &claims["sub"]), (&json!("a b"), &json!("a b")));
    assert_eq!((&claims["iat"], &claims["exp"]), (&json!(1_000), &json!(1_060)));
    identity.rekey(&secrets(2, &[1])).unwrap();
    assert_ne!(identity.jwks(), again.jwks());
}

#[test]
fn operators_bring_keys_in_any_usual_form() {
    let ec = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let p384 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let ed = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    for (key, algorithm) in [(ec, "ES256"), (p384, "ES384"), (ed, "EdDSA")] {
        let pem = key.serialize_pem();
        let signer = Signer::from_pem(&pem).unwrap();
        let token = signer.sign("JWT", &json!({ "a": 1 })).unwrap();
        let head = jsonwebtoken::decode_header(&token).unwrap();
        assert_eq!(format!("{:?}", head.alg).to_uppercase(), algorithm.to_uppercase());
        assert!(!format!("{signer:?}").contains(pem.lines().nth(1).unwrap()));
        assert_eq!(signer.jwk(), None, "an operator publishes his own");
    }
    for bad in ["", "text", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"] {
        assert_eq!(Signer::from_pem(bad).unwrap_err(), SignerFault::Form, "{bad}");
    }
}

#[test]
fn an_answer_is_a_bearer_token_or_a_word() {
    let read = |value: Value| TokenAnswer::read(true, value.to_string().as_bytes());
    let given = read(json!({ "access_token": "t", "token_type": "bearer", "expires_in": 60,
                             "refresh_token": "r", "scope": "a b", "more": {} }));
    let given = given.unwrap();
    assert_eq!(given.access.expose_secret(), "t");
    assert_eq!(given.refresh.as_ref().unwrap().expose_secret(), "r");
    assert_eq!((given.expires_in, given.scope.as_deref()), (Some(60), Some("a b")));
    assert!(!format!("{given:?}").contains('t') || !format!("{given:?}").contains("\"t\""));
    for (bad, fault) in [
        (json!({ "access_token": "t" }), AnswerFault::Form),
        (json!({ "access_token": "t", "token_type": "mac" }), AnswerFault::Kind),
        (json!({ "access_token": "", "token_type": "Bearer" }), AnswerFault::Form),
        (json!({ "access_token": "a\nb", "token_type": "Bearer" }), AnswerFault::Form),
        (json!([]), AnswerFault::Form),
    ] {
        assert_eq!(read(bad.clone()).unwrap_err(), fault, "{bad}");
    }
    let refused = |text: &str| TokenAnswer::read(false, text.as_bytes()).unwrap_err();
    let word = refused(r#"{"error":"invalid_client","error_description":"secret is x"}"#);
    assert_eq!(word, AnswerFault::Refused("invalid_client".to_owned()));
    // It may repeat what it was sent.
    for other in [r#"{"error":"<b>\n"}"#, r#"{"error":"the-secret-of-a-client"}"#] {
        assert_eq!(refused(other), AnswerFault::Refused("another_error".to_owned()));
    }
    assert_eq!(refused("<html>"), AnswerFault::Form);
}

#[test]
fn scopes_are_a_set_in_their_order() {
    assert_eq!(union("a b", "b  c a"), "a b c");
    assert_eq!(union("", ""), "");
}

fn employees() -> Whose {
    Whose {
        tenant: TenantId::new("acme"),
        owner: Owner::Employee(EmployeeId::parse("E1").unwrap()),
        server_key: "mcp_a_00000000".into(),
    }
}

#[test]
fn a_statement_says_whose_rights_it_stands_for_and_who_uses_them() {
    let signer = Signer::derived(&SecretBox::new(Box::new([7; 32]))).unwrap();
    let employee = employees();
    let gateway = Whose { owner: Owner::Gateway, ..employees() };
    for (named, whose, sub, act) in [
        (NamedAs::Actor, Some(&employee), "gw", Some(json!({ "sub": "E1", "tenant": "acme" }))),
        (NamedAs::Subject, Some(&employee), "E1", Some(json!({ "sub": "gw" }))),
        (NamedAs::Actor, None, "gw", None),
        (NamedAs::Subject, None, "gw", None),
        (NamedAs::Subject, Some(&gateway), "gw", None),
    ] {
        let (subject, actor) = named.parties("gw", whose);
        let statement = Statement {
            issuer: "https://gw.example",
            audience: "crm",
            subject,
            actor,
            scope: None,
            life: 60,
        };
        let token = statement.sign(&signer, 5_000).unwrap();
        let claims = token.expose_secret().split('.').nth(1).unwrap();
        let claims = URL_SAFE_NO_PAD.decode(claims).unwrap();
        let claims: Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!((&claims["sub"], claims.get("act")), (&json!(sub), act.as_ref()), "{named:?}");
        assert_eq!(claims.get("tenant"), (sub == "E1").then(|| json!("acme")).as_ref());
        assert_eq!((&claims["iss"], &claims["aud"]), (&json!("https://gw.example"), &json!("crm")));
        assert_eq!((&claims["iat"], &claims["exp"]), (&json!(5), &json!(65)));
        assert_eq!(claims.get("scope"), None);
    }
}

#[test]
fn what_was_exchanged_has_to_be_usable_and_what_was_asked_for() {
    let given = |kind: Option<&str>| {
        let mut answer = json!({ "access_token": "t", "token_type": "bearer" });
        if let Some(kind) = kind {
            answer["issued_token_type"] = format!("urn:ietf:params:oauth:token-type:{kind}").into();
        }
        TokenAnswer::read(true, answer.to_string().as_bytes()).unwrap()
    };
    let (access, jwt) = (Some(TokenType::AccessToken), Some(TokenType::Jwt));
    for (kind, requested, fits) in [
        (Some("access_token"), None, true),
        (Some("jwt"), None, true),
        (Some("access_token"), access, true),
        (Some("jwt"), jwt, true),
        (Some("jwt"), access, false),
        (Some("access_token"), jwt, false),
        (Some("id_token"), None, false),
        (Some("refresh_token"), None, false),
        (None, None, false),
        (None, access, false),
    ] {
        assert_eq!(given(kind).exchanged(requested).is_ok(), fits, "{kind:?} {requested:?}");
    }
}

#[test]
fn scopes_are_believed_up_to_what_anybody_needs() {
    let words =
        |count: usize| (0..count).map(|number| format!("s{number}")).collect::<Vec<_>>().join(" ");
    for (text, is_good) in [
        (words(100), true),
        (words(101), false),
        ("x".repeat(2_048), true),
        ("x".repeat(2_049), false),
    ] {
        let length = text.len();
        assert_eq!(bounded(text.clone()).is_some(), is_good, "{length}");
        let asked = challenge(&[&format!("Bearer scope=\"{text}\"")]).unwrap();
        assert_eq!(asked.scope.is_some(), is_good, "{length}");
        let given = json!({ "access_token": "t", "token_type": "Bearer", "scope": text });
        let given = TokenAnswer::read(true, given.to_string().as_bytes());
        assert_eq!(given.is_ok(), is_good, "{length}");
        let document = json!({ "resource": "https://a/mcp", "authorization_servers": ["https://as"],
                               "scopes_supported": text.split(' ').collect::<Vec<_>>() });
        let read = ProtectedResource::read(document.to_string().as_bytes(), &url("https://a/mcp"))
            .unwrap();
        assert_eq!(read.scope().is_some(), is_good, "{length}");
    }
    assert_eq!(union("a b", "b c a"), "a b c");
    assert_eq!(union(&words(100), "a b"), "a b", "what is wanted now is not lost");
    // As many as fit into an answer.
    let many = words(40_000);
    assert_eq!(scopes_of(&format!("{many} {many}")).len(), 40_000);
}

#[test]
fn no_address_is_longer_than_anybody_needs() {
    let long = format!("https://as/{}", "x".repeat(2_048));
    for name in ["authorization_endpoint", "token_endpoint", "registration_endpoint"] {
        assert_eq!(server(json!({ name: long })).unwrap_err(), MetadataFault::TooLong(name));
    }
    let read = |resource: &str, issuer: &str| {
        let document = json!({ "resource": resource, "authorization_servers": [issuer] });
        ProtectedResource::read(document.to_string().as_bytes(), &url("https://a/mcp")).unwrap_err()
    };
    assert_eq!(read(&long, "https://as"), MetadataFault::TooLong("resource"));
    assert_eq!(read("https://a/mcp", &long), MetadataFault::TooLong("authorization_servers"));
    let asked = challenge(&[&format!("Bearer resource_metadata=\"{long}\"")]).unwrap();
    assert_eq!(asked, Challenge::default());
    let endless = json!({ "access_token": "t", "token_type": "Bearer",
                          "refresh_token": "x".repeat(32 * 1024 + 1) });
    let read = TokenAnswer::read(true, endless.to_string().as_bytes());
    assert_eq!(read.unwrap_err(), AnswerFault::Form);
}

#[test]
fn what_is_kept_of_a_client_is_read_again() {
    let client = |secret: Option<&str>| Client {
        id: "c".to_owned(),
        proof: secret.map_or(ClientProof::None, |text| ClientProof::Secret(text.into())),
    };
    for secret in [None, Some("s")] {
        let kept = Registered {
            issuer: "https://as".to_owned(),
            redirect: "https://gate/v1/oauth/callback/x".to_owned(),
            client: client(secret),
            until_ms: Some(7),
        };
        let sealed = kept.to_credential().unwrap();
        assert!(!format!("{kept:?} {sealed:?}").contains("\"s\""));
        assert_eq!(format!("{:?}", Registered::of(&sealed).unwrap()), format!("{kept:?}"));
    }
    let first = FirstIssuer { client_id: "c".to_owned(), issuer: "https://as".to_owned() };
    assert_eq!(FirstIssuer::of(&first.to_credential().unwrap()), Some(first));
}

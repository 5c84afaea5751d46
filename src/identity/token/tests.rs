//! Which tokens are believed, and what they say.

use jsonwebtoken::{EncodingKey, Header, jwk::Jwk};
use serde_json::{Value, json};

use super::{keys::KeySetFault, *};

const NOW: u64 = 1_800_000_000_000;
const NOW_S: u64 = NOW / 1_000;

/// A key pair of an issuer.
struct Pair {
    id: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
    /// Of Ed25519: what is published.
    public: Option<Vec<u8>>,
}

fn ec(id: &'static str) -> Pair {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let key = EncodingKey::from_ec_der(pair.serialized_der());
    Pair { id, algorithm: Algorithm::ES256, key, public: None }
}

fn ed(id: &'static str) -> Pair {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let key = EncodingKey::from_ed_der(pair.serialized_der());
    let public = Some(pair.public_key_raw().to_vec());
    Pair { id, algorithm: Algorithm::EdDSA, key, public }
}

fn rsa(id: &'static str, der: &[u8]) -> Pair {
    Pair { id, algorithm: Algorithm::RS256, key: EncodingKey::from_rsa_der(der), public: None }
}

const RSA: &[u8] = include_bytes!("../../../tests/fixtures/token-rsa.der");

impl Pair {
    fn jwk(&self) -> Value {
        if let Some(public) = &self.public {
            use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
            let x = URL_SAFE_NO_PAD.encode(public);
            return json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.id });
        }
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.id.to_owned());
        serde_json::to_value(jwk).unwrap()
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.to_owned());
        jsonwebtoken::encode(&header, claims, &self.key).unwrap()
    }
}

fn set(keys: &[Value]) -> Vec<Jwk> {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

fn issuer() -> Issuer {
    Issuer {
        name: CallerId::new("corp"),
        issuer: "https://sso.example".to_owned(),
        audience: vec!["gw".to_owned()],
        algorithms: vec![Algorithm::ES256, Algorithm::RS256, Algorithm::EdDSA],
        employee: ClaimPath::new("sub"),
        tenant: TenantSource::Claim(ClaimPath::new("/org/tenant")),
        roles: Some(ClaimPath::new("https://example/roles")),
        leeway: Duration::from_secs(60),
        scopes: ScopeRules::default(),
        call_sources: CallSources::default(),
        keys: KeySource::new(Duration::from_secs(3_600), Duration::from_secs(30)),
    }
}

fn with_keys(keys: &[Value]) -> Issuers {
    let issuers = Issuers::new([issuer()]);
    issuers.issuers[0].keys.replace(&set(keys), NOW);
    issuers
}

fn claims(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Value {
    let mut claims = json!({
        "iss": "https://sso.example",
        "sub": "E1001",
        "aud": "gw",
        "exp": NOW_S + 300,
        "org": { "tenant": "acme" },
        "https://example/roles": ["member", "tester"],
        "scope": "mcp tools",
    });
    change(claims.as_object_mut().unwrap());
    claims
}

fn fault(issuers: &Issuers, token: &str) -> Option<TokenFault> {
    issuers.verify(token, NOW).err().map(|(fault, _)| fault)
}

#[test]
fn a_good_token_says_who_calls() {
    for pair in [ec("k1"), ed("k1"), rsa("k1", RSA)] {
        let issuers = with_keys(&[pair.jwk()]);
        let verified = issuers.verify(&pair.sign(&claims(|_| {})), NOW).unwrap();
        assert_eq!(verified.caller.id.as_str(), "corp");
        assert_eq!(verified.caller.tenant.as_str(), "acme");
        assert_eq!(verified.principal.employee.as_ref().unwrap().as_str(), "E1001");
        assert!(verified.principal.roles.contains("tester"));
        assert_eq!(verified.principal.auth, Auth::Token);
        assert_eq!(*verified.scopes, ["mcp".into(), "tools".into()]);
    }
}

#[test]
fn a_token_without_an_employee_speaks_for_its_program_alone() {
    let pair = ec("k1");
    let token = pair.sign(&claims(|claims| _ = claims.remove("sub")));
    let verified = with_keys(&[pair.jwk()]).verify(&token, NOW).unwrap();
    assert_eq!(verified.principal.employee, None);
    assert!(verified.principal.roles.is_empty());
    assert_eq!(verified.principal.auth, Auth::Key);
}

/// C66.
#[test]
fn the_audience_is_one_text_or_several_and_must_name_the_gateway() {
    let pair = ec("k1");
    let issuers = with_keys(&[pair.jwk()]);
    for (aud, good) in [
        (json!("gw"), true),
        (json!(["gw", "other"]), true),
        (json!(["other"]), false),
        (json!([]), false),
        (json!(null), false),
        (json!(5), false),
        (json!("gw other"), false),
    ] {
        let token = pair.sign(&claims(|claims| _ = claims.insert("aud".into(), aud.clone())));
        let expected = if good { None } else { Some(TokenFault::Audience) };
        assert_eq!(fault(&issuers, &token), expected, "{aud}");
    }
    let token = pair.sign(&claims(|claims| _ = claims.remove("aud")));
    assert_eq!(fault(&issuers, &token), Some(TokenFault::Audience));
}

/// C67.
#[test]
fn times_have_a_leeway_both_ways_and_are_numbers() {
    let pair = ec("k1");
    let issuers = with_keys(&[pair.jwk()]);
    for (name, value, good) in [
        ("nbf", json!(NOW_S + 4), true),
        ("nbf", json!(NOW_S + 600), false),
        ("nbf", json!("soon"), false),
        ("nbf", json!(-5), false),
        ("exp", json!(NOW_S - 10), true),
        ("exp", json!(NOW_S - 600), false),
        ("exp", json!(1e10), true),
        ("exp", json!(1e300), true),
        ("exp", json!("9999999999"), false),
        ("exp", json!(null), false),
    ] {
        let token = pair.sign(&claims(|claims| _ = claims.insert(name.into(), value.clone())));
        let expected = if good { None } else { Some(TokenFault::Time) };
        assert_eq!(fault(&issuers, &token), expected, "{name}: {value}");
    }
    let token = pair.sign(&claims(|claims| _ = claims.remove("exp")));
    assert_eq!(fault(&issuers, &token), Some(TokenFault::Time));
}

#[test]
fn a_token_that_was_believed_still_expires() {
    let pair = ec("k1");
    let issuers = with_keys(&[pair.jwk()]);
    let token = pair.sign(&claims(|_| {}));
    assert!(issuers.verify(&token, NOW).is_ok());
    let later = NOW + 361_000;
    assert_eq!(issuers.verify(&token, later).unwrap_err().0, TokenFault::Time);
}

#[test]
fn nobody_chooses_the_algorithm_but_the_operator() {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let pair = rsa("k1", RSA);
    let issuers = with_keys(&[pair.jwk()]);
    let body = URL_SAFE_NO_PAD.encode(claims(|_| {}).to_string());
    // No signature at all.
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"k1"}"#);
    for token in [format!("{none}.{body}."), format!("{none}.{body}"), format!("{none}.{body}.AA")]
    {
        assert_eq!(fault(&issuers, &token), Some(TokenFault::Malformed), "{token}");
    }
    // The public key taken for a shared secret.
    let public = pair.jwk()["n"].as_str().unwrap().to_owned();
    for secret in [public.as_bytes(), &URL_SAFE_NO_PAD.decode(&public).unwrap()] {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("k1".to_owned());
        let key = EncodingKey::from_secret(secret).unwrap();
        let token = jsonwebtoken::encode(&header, &claims(|_| {}), &key).unwrap();
        assert_eq!(fault(&issuers, &token), Some(TokenFault::Algorithm));
    }
    // An allowed algorithm of another kind of key.
    let stranger = ec("k1");
    let token = stranger.sign(&claims(|_| {}));
    assert_eq!(fault(&issuers, &token), Some(TokenFault::UnknownKey));
    // One that the key could do, and the operator did not list.
    let other = Pair { algorithm: Algorithm::PS256, ..rsa("k1", RSA) };
    assert_eq!(fault(&issuers, &other.sign(&claims(|_| {}))), Some(TokenFault::Algorithm));
}

#[test]
fn a_signature_covers_all_of_a_token() {
    let (pair, stranger) = (ec("k1"), ec("k1"));
    let issuers = with_keys(&[pair.jwk()]);
    let good = pair.sign(&claims(|_| {}));
    assert_eq!(fault(&issuers, &stranger.sign(&claims(|_| {}))), Some(TokenFault::Signature));
    let other = pair.sign(&claims(|claims| _ = claims.insert("sub".into(), json!("E1009"))));
    let [head, _, signature] = good.split('.').collect::<Vec<_>>()[..] else { unreachable!() };
    let body = other.split('.').nth(1).unwrap();
    let forged = format!("{head}.{body}.{signature}");
    assert_eq!(fault(&issuers, &forged), Some(TokenFault::Signature));
    for broken in ["", "a", "a.b", "a.b.c", "....", &good[1..], &good[..good.len() - 8]] {
        let fault = fault(&issuers, broken);
        assert!(
            matches!(fault, Some(TokenFault::Malformed | TokenFault::Signature)),
            "{broken:?}: {fault:?}"
        );
    }
    let long = "a".repeat(MAX_TOKEN + 1);
    assert_eq!(fault(&issuers, &long), Some(TokenFault::Malformed));
}

#[test]
fn what_must_be_understood_and_is_not_is_refused() {
    let pair = ec("k1");
    let mut header = Header::new(Algorithm::ES256);
    header.kid = Some("k1".to_owned());
    header.crit = Some(vec!["exp".to_owned()]);
    let token = jsonwebtoken::encode(&header, &claims(|_| {}), &pair.key).unwrap();
    assert_eq!(fault(&with_keys(&[pair.jwk()]), &token), Some(TokenFault::Malformed));
}

#[test]
fn keys_are_replaced_and_old_ones_no_longer_believed() {
    let (one, two) = (ec("k1"), ec("k2"));
    let issuers = with_keys(&[one.jwk()]);
    let (first, second) = (one.sign(&claims(|_| {})), two.sign(&claims(|_| {})));
    assert_eq!(fault(&issuers, &first), None);
    let (unknown, whom) = issuers.verify(&second, NOW).unwrap_err();
    assert_eq!(unknown, TokenFault::UnknownKey);
    // Its issuer may have newer keys.
    let keys = &whom.unwrap().keys;
    keys.replace(&set(&[one.jwk(), two.jwk()]), NOW);
    assert_eq!((fault(&issuers, &first), fault(&issuers, &second)), (None, None));
    keys.replace(&set(&[two.jwk()]), NOW);
    assert_eq!(fault(&issuers, &first), Some(TokenFault::UnknownKey));
}

#[test]
fn keys_that_could_not_be_renewed_are_believed_for_a_while() {
    let pair = ec("k1");
    let issuers = with_keys(&[pair.jwk()]);
    let token = pair.sign(&claims(|claims| _ = claims.insert("exp".into(), json!(NOW_S + 9_999))));
    assert!(issuers.verify(&token, NOW + 3_600_000).is_ok());
    let (fault, whom) = issuers.verify(&token, NOW + 3_600_001).unwrap_err();
    assert_eq!(fault, TokenFault::NoKeys);
    assert!(whom.is_some());
}

#[test]
fn a_token_without_a_key_id_is_of_the_only_key_that_fits() {
    let (one, two) = (ec("k1"), ec("k2"));
    let key = EncodingKey::clone(&one.key);
    let token =
        jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims(|_| {}), &key).unwrap();
    assert_eq!(fault(&with_keys(&[one.jwk(), rsa("k3", RSA).jwk()]), &token), None);
    let both = with_keys(&[one.jwk(), two.jwk()]);
    assert_eq!(fault(&both, &token), Some(TokenFault::UnknownKey));
}

#[test]
fn a_set_of_keys_is_read_for_what_can_verify() {
    let good = ec("k1").jwk();
    let with = |name: &str, value: Value| {
        let mut jwk = good.clone();
        jwk[name] = value;
        jwk
    };
    for (keys, expected) in [
        (json!([good, { "kty": "new", "x": 1 }]), Ok(())),
        (json!([with("use", json!("sig"))]), Ok(())),
        (json!([]), Err(KeySetFault::Empty)),
        (json!([with("use", json!("enc"))]), Err(KeySetFault::Empty)),
        (json!([with("key_ops", json!(["sign"]))]), Err(KeySetFault::Empty)),
        (json!([with("alg", json!("RS256"))]), Err(KeySetFault::Empty)),
        (json!([{ "kty": "oct", "k": "c2VjcmV0", "kid": "k1" }]), Err(KeySetFault::Empty)),
        (json!([{ "kty": "RSA", "n": "_".repeat(171), "e": "AQAB" }]), Err(KeySetFault::Empty)),
        (json!("keys"), Err(KeySetFault::NotASet)),
        (Value::Array(vec![good.clone(); 101]), Err(KeySetFault::TooMany)),
    ] {
        let text = json!({ "keys": keys }).to_string();
        assert_eq!(KeySet::parse(text.as_bytes()).map(|_| ()), expected, "{text:.120}");
    }
    assert_eq!(KeySet::parse(b"<html>").map(|_| ()), Err(KeySetFault::NotASet));
}

#[test]
fn a_token_of_a_stranger_or_of_no_tenant_speaks_for_nobody() {
    let pair = ec("k1");
    let issuers = with_keys(&[pair.jwk()]);
    for (name, value, expected) in [
        ("iss", json!("https://sso.example/"), TokenFault::UnknownIssuer),
        ("iss", json!(["https://sso.example"]), TokenFault::UnknownIssuer),
        ("org", json!({}), TokenFault::NoTenant),
        ("org", json!({ "tenant": ["acme"] }), TokenFault::NoTenant),
        ("org", json!({ "tenant": "a b" }), TokenFault::NoTenant),
        ("sub", json!("no good, name"), TokenFault::NoEmployee),
        ("sub", json!(1001), TokenFault::NoEmployee),
    ] {
        let token = pair.sign(&claims(|claims| _ = claims.insert(name.into(), value.clone())));
        assert_eq!(fault(&issuers, &token), Some(expected), "{name}: {value}");
    }
}

#[test]
fn broader_scopes_count_for_narrower_ones() {
    let list = |scopes: &[&str]| scopes.iter().map(|scope| (*scope).into()).collect::<Vec<_>>();
    let rules = ScopeRules {
        base: list(&["mcp"]),
        by_risk: [list(&["read"]), Vec::new(), list(&["write"]), list(&["write", "admin"])],
    };
    for (held, risk, missing) in [
        (&["mcp"][..], None, None),
        (&[], None, Some("mcp")),
        (&["mcp", "read"], Some(0), None),
        (&["mcp", "write"], Some(0), None),
        (&["mcp"], Some(0), Some("mcp read")),
        (&["read"], Some(0), Some("mcp read")),
        // Nothing is said of reading much.
        (&["mcp"], Some(1), None),
        (&["mcp", "read"], Some(2), Some("mcp write")),
        (&["mcp", "admin"], Some(3), Some("mcp write admin")),
        (&["mcp", "write", "admin"], Some(3), None),
    ] {
        let got = rules.missing(&list(held), risk).map(|scopes| scopes.join(" "));
        assert_eq!(got.as_deref(), missing, "{held:?} {risk:?}");
    }
    assert_eq!(rules.all(), ["mcp", "read", "write", "admin"]);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_unknown_keys_is_no_storm_of_fetches() {
    let keys = KeySource::new(Duration::from_secs(3_600), Duration::from_secs(30));
    let begun = tokio::time::Instant::now();
    // Nobody fetches: it waits no longer than it is told to.
    keys.renewed(NOW, Duration::from_secs(3)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    keys.attempted(NOW);
    keys.renewed(NOW + 29_000, Duration::from_secs(3)).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(3), "within the gap nothing is waited for");
    let fetched = async {
        keys.wanted().await;
        keys.attempted(NOW + 30_000);
    };
    tokio::join!(keys.renewed(NOW + 30_000, Duration::from_secs(3)), fetched);
    assert_eq!(begun.elapsed(), Duration::from_secs(3), "the fetch wakes who waits for it");
}

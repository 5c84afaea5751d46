//! What the gateway believes of authorization servers, and keeps of them: the first one that a server
//! names, and no endless texts; and what is told of grants.

use std::time::Duration;

use hangu::{credential::Owner, model::caller::TenantId};
use serde_json::{Value, json};

use super::{
    Pair, base,
    consent::{Browser, POLICY, call, connect_url, query, yaml},
};
use crate::{
    egress::Names,
    support::{Gateway, wait_for},
};

const SOON: Duration = Duration::from_secs(5);
const NAMED: &str = ", client_id: hangu, client_secret: { env: KEY }";

fn gateway(pair: &Pair, of_auth: &str) -> Gateway {
    Gateway::start(&yaml(pair, of_auth, "store: memory"), &[POLICY])
}

/// The server names another authorization server, which is as willing.
fn moved(pair: &Pair) -> Pair {
    let other = Pair::start();
    pair.rules.lock().named = Some(base(&other.auth));
    other
}

#[test]
fn a_named_client_is_shown_to_the_first_authorization_server_alone() {
    for (is_written, status) in [(false, 502), (true, 303)] {
        let pair = Pair::start();
        let issuer = format!("{NAMED}, issuer: \"{}\"", base(&pair.auth));
        let gateway = gateway(&pair, if is_written { &issuer } else { NAMED });
        let url = connect_url(&call(&gateway, "E1"));
        assert_eq!(Browser::default().connect(&gateway, &pair, &url).status, 200);
        let other = moved(&pair);
        pair.revoke();
        pair.rules.lock().refresh.clear();
        let url = connect_url(&call(&gateway, "E1"));
        let away = Browser::default().go(&gateway, &url);
        assert_eq!(away.status, status, "{is_written} {away:?}");
        // Where an issuer is written down, the client is of no other: there it is a new one.
        if let Some(location) = away.header("location") {
            assert_eq!(query(location)["client_id"], "registered");
        }
        assert!(other.requests_for_tokens().is_empty());
    }
}

#[test]
fn registrations_of_a_server_do_not_pile_up() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "");
    let vault = gateway.engines().vault.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kept = || {
        let listed = vault.list(TenantId::new(""), Owner::Gateway);
        let listed = runtime.block_on(listed).unwrap().into_iter();
        listed.filter(|one| one.server_key.starts_with("oauth-client:")).count()
    };
    let others: Vec<Pair> = (0..3)
        .map(|number| {
            let other = moved(&pair);
            let url = connect_url(&call(&gateway, &format!("E{number}")));
            let location = Browser::default().leave(&gateway, &url);
            assert!(location.starts_with(&base(&other.auth)), "{location}");
            other
        })
        .collect();
    assert_eq!(kept(), 1, "the last one");
    // As the same client again.
    let url = connect_url(&call(&gateway, "E5"));
    let other = others.last().unwrap();
    let mut browser = Browser::default();
    let location = browser.leave(&gateway, &url);
    let back = browser.consent(other, &location);
    assert_eq!(browser.get(&gateway, &back).status, 200);
    assert_eq!(other.rules.lock().registered, 1);
    // One that has no end is not taken.
    let other = moved(&pair);
    other.rules.lock().client_id = Some("x".repeat(2_049));
    let url = connect_url(&call(&gateway, "E6"));
    assert_eq!(Browser::default().go(&gateway, &url).status, 502);
    assert_eq!(kept(), 1);
}

#[test]
fn a_grant_with_endless_scopes_is_not_kept() {
    let pair = Pair::start();
    let scopes: Vec<String> = (0..20_000).map(|number| format!("scope-{number}")).collect();
    pair.rules.lock().given_scope = Some(scopes.join(" "));
    let gateway = gateway(&pair, "");
    let url = connect_url(&call(&gateway, "E1"));
    assert_eq!(Browser::default().connect(&gateway, &pair, &url).status, 502);
    connect_url(&call(&gateway, "E1"));
}

#[test]
fn a_grant_is_recorded_and_what_is_none_too() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "");
    let key = gateway.engines().worlds.current().upstreams[0].server_key.to_string();
    let records = || {
        let is = |record: &Value| record["event"] == "server_change";
        gateway.audit().into_iter().filter(is).collect::<Vec<_>>()
    };
    type Case = (&'static str, fn(String) -> String, Value);
    let cases: [Case; 3] = [
        ("granted", |back| back, json!(["ok", null, null])),
        (
            "refused",
            |back| back + "&error=access_denied",
            json!(["denied", "permission_denied", "not_granted"]),
        ),
        (
            "another one",
            |back| back + "&iss=https://evil.example",
            json!(["denied", "permission_denied", "other_issuer"]),
        ),
    ];
    for (number, (name, change, expected)) in cases.into_iter().enumerate() {
        let employee = format!("E{number}");
        let url = connect_url(&call(&gateway, &employee));
        let mut browser = Browser::default();
        let location = browser.leave(&gateway, &url);
        assert_eq!(records().len(), number, "{name}: he has not come back yet");
        let back = change(browser.consent(&pair, &location));
        browser.get(&gateway, &back);
        wait_for("it is recorded", SOON, || records().len() > number);
        let record = records().remove(number);
        assert_eq!(record["tenant"], "acme", "{name} {record}");
        assert_eq!(record["principal"]["empId"], *employee, "{name} {record}");
        assert_eq!(record["serverKey"], *key, "{name} {record}");
        let change = json!({ "issuer": base(&pair.auth), "what": "connect" });
        assert_eq!(record["change"], change, "{name} {record}");
        assert_eq!(record["source"]["address"], "127.0.0.1", "{name} {record}");
        assert_eq!(record["method"], "GET /v1/oauth/callback", "{name} {record}");
        let found = json!([record["outcome"], record["code"], record["reason"]]);
        assert_eq!(found, expected, "{name} {record}");
        assert!(!record.to_string().contains("planted"), "{name} {record}");
    }
}

#[test]
fn documents_are_believed_over_tls_or_from_this_machine() {
    let pair = Pair::start();
    let names = Names::new("sso.example", &["127.0.0.1"]);
    let issuer = format!("http://sso.example:{}", pair.auth.address().port());
    {
        let mut rules = pair.rules.lock();
        (rules.named, rules.issuer) = (Some(issuer.clone()), Some(issuer));
    }
    let yaml = yaml(&pair, "", "store: memory");
    let gateway = Gateway::resolving(names, &yaml, &[POLICY]);
    let url = connect_url(&call(&gateway, "E1"));
    let away = Browser::default().go(&gateway, &url);
    assert_eq!((away.status, away.header("location")), (502, None), "{away:?}");
    assert!(away.text().contains("do not agree"), "{away:?}");
    assert!(pair.auth.requests("").is_empty());
}

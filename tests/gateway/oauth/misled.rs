//! What somebody gains who leads another one's browser: by a link of his own, by a page elsewhere,
//! or by an authorization server that sends it on to another.

use serde_json::{Value, json};

use super::{
    Pair, base,
    consent::{Browser, POLICY, PUBLIC, call, connect_url, query, yaml},
};
use crate::{
    process_support::exchange,
    support::{Gateway, Reply, Request},
};

const GATE: &str = "https://gate.example";

fn gateway(pair: &Pair, of_auth: &str) -> Gateway {
    Gateway::start(&yaml(pair, of_auth, "store: memory"), &[POLICY])
}

/// One that browsers reach by TLS, at a name.
fn public(pair: &Pair, of_auth: &str) -> Gateway {
    let yaml = yaml(pair, of_auth, "store: memory").replace(PUBLIC, GATE);
    Gateway::start(&yaml, &[POLICY])
}

fn ask(gateway: &Gateway, employee: &str, server: &str) -> Reply {
    let path = format!("/v1/oauth/connect/{server}");
    Request::new("POST", &path, "").header("SSO-Emp-Id", employee).ask(gateway)
}

#[test]
fn a_link_leads_on_by_its_own_page_s_form_alone_and_once() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "");
    let url = connect_url(&call(&gateway, "E1"));
    let nobody_was_asked = || assert!(pair.auth.requests("").is_empty());
    // Whoever is sent there by a link sees the page first.
    let skipped = Browser::default().get(&gateway, &format!("{url}&go=1"));
    assert_eq!((skipped.status, skipped.header("location")), (200, None), "{skipped:?}");
    let (mut own, mut other) = (Browser::default(), Browser::default());
    let action = own.open(&gateway, &url);
    let foreign = other.open(&gateway, &url);
    let from = |name, value| vec![(name, value)];
    for (name, browser, action, from) in [
        ("no page was shown", &mut Browser::default(), &action, from("Origin", PUBLIC)),
        ("another browser's page", &mut own.clone(), &foreign, from("Origin", PUBLIC)),
        ("nobody says where from", &mut own.clone(), &action, vec![]),
        ("another site", &mut own.clone(), &action, from("Sec-Fetch-Site", "cross-site")),
        ("a sibling", &mut own.clone(), &action, from("Sec-Fetch-Site", "same-site")),
        ("another origin", &mut own.clone(), &action, from("Origin", "http://127.0.0.1:4712")),
        ("hidden", &mut own.clone(), &action, from("Origin", "null")),
        (
            "two that differ",
            &mut own.clone(),
            &action,
            vec![("Origin", PUBLIC), ("Sec-Fetch-Site", "cross-site")],
        ),
    ] {
        let refused = browser.ask(&gateway, "POST", action, &from);
        assert!(matches!(refused.status, 400 | 403), "{name}: {refused:?}");
        assert_eq!(refused.header("location"), None, "{name}");
        nobody_was_asked();
    }
    assert_eq!(own.get(&gateway, &action).status, 200, "only a form leads on");
    let action = own.open(&gateway, &url);
    let from = [("Origin", PUBLIC), ("Sec-Fetch-Site", "same-origin")];
    assert_eq!(own.ask(&gateway, "POST", &action, &from).status, 303);
    let asked = pair.auth.requests("").len();
    let again = own.ask(&gateway, "POST", &action, &from);
    assert!(again.status == 400 && again.text().contains("used already"), "{again:?}");
    let again = other.ask(&gateway, "POST", &foreign, &from);
    assert!(again.status == 400 && again.text().contains("used already"), "{again:?}");
    assert_eq!(pair.auth.requests("").len(), asked, "each link has others asked once");
}

#[test]
fn the_page_says_who_is_connected_and_not_where_the_server_is() {
    let pair = Pair::start();
    let gateway = gateway(&pair, "");
    let url = connect_url(&call(&gateway, "E1"));
    let page = Browser::default().get(&gateway, &url);
    let text = page.text();
    assert!(text.contains("<h1>Connect E1 to up</h1>") && text.contains("E1 of acme"), "{text}");
    assert!(!text.contains("127.0.0.1"), "{text}");
    // Else a browser would say of the form that it comes from nowhere.
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
}

#[test]
fn with_tls_no_other_host_can_set_the_cookies() {
    let pair = Pair::start();
    let gateway = public(&pair, "");
    let url = connect_url(&call(&gateway, "E1")).replace(GATE, "");
    let mut browser = Browser::default();
    let page = browser.get(&gateway, &url);
    let action = browser.open(&gateway, &url);
    let away = browser.ask(&gateway, "POST", &action, &[("Origin", GATE)]);
    assert_eq!(away.status, 303, "{away:?}");
    for (answer, site) in [(page, "Strict"), (away, "Lax")] {
        let cookie = answer.header("set-cookie").unwrap();
        let (pair, attributes) = cookie.split_once("; ").unwrap();
        assert!(pair.starts_with("__Host-hangu-"), "{cookie}");
        let mut attributes: Vec<_> = attributes.split("; ").collect();
        attributes.sort_unstable();
        let site = format!("SameSite={site}");
        assert_eq!(attributes, ["HttpOnly", "Max-Age=600", "Path=/", &site, "Secure"]);
    }
}

/// An authorization server that is asked may send the browser on to another one, to have the code
/// of that one brought to itself.
#[test]
fn a_code_is_not_brought_to_another_authorization_server() {
    let (honest, evil) = (Pair::start(), Pair::start());
    evil.rules.lock().open_lists = true;
    let yaml = yaml(&honest, "", "store: memory");
    let bad = format!("  bad: {{ url: \"{}\", auth: {{ type: oauth }} }}\n", evil.up.url());
    let gateway = Gateway::start(
        &(yaml + &bad),
        &[&POLICY.replace("up: {", "bad: { default: { risk: read_low } }, up: {")],
    );
    let link = |server: &str| {
        let told: Value = serde_json::from_slice(&ask(&gateway, "E1", server).body).unwrap();
        told["connectUrl"].as_str().unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    let mut browser = Browser::default();
    let at_honest = browser.leave(&gateway, &link("up"));
    let own = query(&at_honest)["redirect_uri"].clone();
    let location = browser.leave(&gateway, &link("bad"));
    let other = query(&location)["redirect_uri"].clone();
    assert_ne!(own, other);
    let sent_on = location.replace(&base(&evil.auth), &base(&honest.auth));
    // As it is, the other one does not know it.
    let path = sent_on.strip_prefix(&base(&honest.auth)).unwrap();
    assert_eq!(exchange(honest.auth.address(), "GET", path, &[], b"").unwrap().status, 400);
    let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
    let (own, other): (String, String) = (encoded(&own), encoded(&other));
    let back = browser.consent(&honest, &sent_on.replace(&other, &own));
    assert!(back.contains("code=planted"), "{back}");
    let refused = browser.get(&gateway, &back);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(evil.requests_for_tokens().is_empty() && honest.requests_for_tokens().is_empty());
    // Nobody else's way is barred.
    let back = browser.consent(&honest, &at_honest);
    assert_eq!(browser.get(&gateway, &back).status, 200);
}

#[test]
fn the_shared_client_is_for_those_who_say_who_they_are() {
    let shared = format!("{GATE}/v1/oauth/callback");
    let document = format!("{GATE}/v1/oauth/client.json");
    for (names_issuer, written, is_shared) in
        [(false, false, false), (true, false, true), (false, true, true)]
    {
        let pair = Pair::start();
        {
            let mut rules = pair.rules.lock();
            (rules.takes_documents, rules.names_issuer) = (true, names_issuer);
        }
        let issuer = format!(", issuer: \"{}\"", base(&pair.auth));
        let gateway = public(&pair, if written { &issuer } else { "" });
        let url = connect_url(&call(&gateway, "E1")).replace(GATE, "");
        let mut browser = Browser::default();
        let action = browser.open(&gateway, &url);
        let away = browser.ask(&gateway, "POST", &action, &[("Origin", GATE)]);
        let asked = query(away.header("location").unwrap());
        let found = (asked["client_id"] == document, asked["redirect_uri"] == shared);
        assert_eq!(found, (is_shared, is_shared), "{names_issuer} {written} {asked:?}");
        let back = browser.consent(&pair, away.header("location").unwrap()).replace(GATE, "");
        assert_eq!(browser.get(&gateway, &back).status, 200);
        let told = browser.get(&gateway, "/v1/oauth/client.json").json();
        assert_eq!(told["redirect_uris"], json!([shared]), "{told}");
    }
}

#[test]
fn an_invitation_is_for_who_sees_the_server() {
    let pair = Pair::start();
    let yaml = yaml(&pair, "", "store: memory");
    let others = POLICY.replace("risk: [read_low]", "risk: [read_low], roles: [boss]");
    for (policy, status) in [(POLICY, 200), (&*others, 404)] {
        let gateway = Gateway::start(&yaml, &[policy]);
        let key = gateway.engines().worlds.current().upstreams[0].server_key.to_string();
        for server in ["up", &key] {
            let told = ask(&gateway, "E1", server);
            assert_eq!(told.status, status, "{server} {}", told.text());
            if status == 404 {
                // Like one that there is not.
                let unknown = ask(&gateway, "E1", "other");
                let message = |reply: &Reply| {
                    let told: Value = serde_json::from_slice(&reply.body).unwrap();
                    told["error"]["message"].as_str().unwrap().replace(server, "other")
                };
                assert_eq!(message(&told), message(&unknown));
            }
        }
    }
}

//! What the gateway signs itself about whoever calls.

use std::{collections::HashSet, sync::Arc, thread};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    base, bearer,
    consent::{POLICY, PUBLIC, call, refusal},
    folder_with_keys, said, unchecked,
};
use crate::{
    process_support::{Answer, Upstream, tool},
    support::{self, Gateway, Request, Speaks},
};

/// `more`: of `auth:`; `around`: of the upstream.
fn gateway(url: &str, more: &str, around: &str) -> Gateway {
    let yaml = format!(
        "keyring: {{ file: keyring.json }}\nstore: memory\npublic_url: {PUBLIC}
callers:
  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, catalog_roles: [member] }}
upstreams:
  up: {{ url: \"{url}\", auth: {{ type: signed_jwt{more} }}{around} }}\n"
    );
    Gateway::start_in(folder_with_keys(), None, &yaml, &[POLICY])
}

fn server() -> Upstream {
    Upstream::start(&[tool("echo")])
}

#[test]
fn a_token_says_who_calls_and_is_signed_once_for_each() {
    let up = server();
    let gateway = gateway(&up.url(), ", subject: hangu, scope: tools, lifetime: 10m", "");
    thread::scope(|scope| {
        for number in 0..24 {
            let gateway = &gateway;
            scope.spawn(move || {
                let reply = call(gateway, &format!("E{}", number % 3));
                assert!(!reply.is_error(), "{}", reply.text());
            });
        }
    });
    let tokens: HashSet<String> = up.calls().iter().map(|seen| bearer(seen).to_owned()).collect();
    assert_eq!(tokens.len(), 3, "one for each employee");
    let audience = format!("{}/mcp", base(&up));
    let mut employees = HashSet::new();
    let mut ids = HashSet::new();
    for token in &tokens {
        let said = said(&gateway, token, &audience);
        assert_eq!((&said["iss"], &said["sub"]), (&json!(PUBLIC), &json!("hangu")));
        assert_eq!((&said["act"]["tenant"], &said["scope"]), (&json!("acme"), &json!("tools")));
        let time = |name: &str| said[name].as_u64().unwrap();
        assert_eq!(time("exp") - time("iat"), 600);
        assert_eq!(said.get("tenant"), None, "the gateway is of no tenant: {said}");
        employees.insert(said["act"]["sub"].as_str().unwrap().to_owned());
        ids.insert(said["jti"].as_str().unwrap().to_owned());
    }
    assert_eq!(employees, ["E0", "E1", "E2"].map(str::to_owned).into());
    assert_eq!(ids.len(), 3);
    // The gateway lists for nobody.
    let listing = &up.requests("tools/list")[0];
    let said = said(&gateway, bearer(listing), &audience);
    assert_eq!((&said["sub"], said.get("act")), (&json!("hangu"), None), "{said}");
    let audit = gateway.audit().iter().map(Value::to_string).collect::<String>();
    for text in [audit, gateway.metrics(), call(&gateway, "E1").text()] {
        assert!(!text.contains("eyJ"), "{text}");
    }
}

#[test]
fn whose_rights_it_stands_for_is_the_operator_s_to_say() {
    for (more, issuer, audience, subject, actor) in [
        ("", PUBLIC, None, json!({ "sub": PUBLIC }), json!({ "sub": "E1", "tenant": "acme" })),
        (
            ", employee_as: sub, subject: hangu, audience: crm",
            PUBLIC,
            Some("crm"),
            json!({ "sub": "E1", "tenant": "acme" }),
            json!({ "sub": "hangu" }),
        ),
        (
            ", issuer: \"https://other.example\"",
            "https://other.example",
            None,
            json!({ "sub": "https://other.example" }),
            json!({ "sub": "E1", "tenant": "acme" }),
        ),
    ] {
        let up = server();
        let gateway = gateway(&up.url(), more, "");
        assert!(!call(&gateway, "E1").is_error());
        let address = format!("{}/mcp", base(&up));
        let said = said(&gateway, bearer(&up.calls()[0]), audience.unwrap_or(&address));
        assert_eq!((&said["iss"], &said["act"]), (&json!(issuer), &actor), "{more}");
        assert_eq!((&said["sub"], said.get("tenant")), (&subject["sub"], subject.get("tenant")));
    }
}

#[test]
fn a_server_that_refuses_a_token_gets_one_more_and_then_the_error_is_told() {
    let up = server();
    let taken = Arc::new(Mutex::new(HashSet::new()));
    // Each is good once: for a call.
    up.on(move |seen| {
        let is_new = seen.method != "tools/call" || taken.lock().insert(bearer(seen).to_owned());
        (!is_new).then(|| Answer::json(401, &json!({ "error": "planted-words" })))
    });
    let gateway = gateway(&up.url(), "", "");
    assert!(!call(&gateway, "E1").is_error());
    let reply = call(&gateway, "E1");
    assert!(!reply.is_error(), "{}", reply.text());
    assert_eq!(up.calls().len(), 3, "the second call was sent again with another token");
    for (status, headers, tries) in [
        (401, None, 2),
        // Nobody but the operator says what the gateway grants.
        (403, Some("Bearer error=\"insufficient_scope\", scope=\"all\""), 1),
    ] {
        up.on(move |seen| {
            let refused = Answer::json(status, &json!({ "error": "planted-words" }));
            (seen.method == "tools/call").then(|| match headers {
                Some(challenge) => refused.with_header("WWW-Authenticate", challenge),
                None => refused,
            })
        });
        up.forget();
        let reply = call(&gateway, "E1");
        assert_eq!(refusal(&reply)["code"], "permission_denied", "{}", reply.text());
        assert!(!reply.text().contains("planted"), "{}", reply.text());
        let tokens: HashSet<String> =
            up.calls().iter().map(|seen| bearer(seen).to_owned()).collect();
        assert_eq!((up.calls().len(), tokens.len()), (tries, tries), "{status}");
    }
}

#[test]
fn a_call_in_which_no_employee_is_named_is_not_made() {
    let up = server();
    let yaml = format!(
        "keyring: {{ file: keyring.json }}\nstore: memory\npublic_url: {PUBLIC}
callers:
  tests: {{ keys: [{{ env: KEY }}], tenant: acme }}
upstreams:
  up: {{ url: \"{}\", auth: {{ type: signed_jwt }} }}\n",
        up.url()
    );
    let policy = POLICY.replace("effect: allow,", "effect: allow, callers: [tests],");
    let gateway = Gateway::start_in(folder_with_keys(), None, &yaml, &[&policy]);
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "echo", "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {} } } });
    let reply = Request::stateless(&body.to_string()).ask(&gateway);
    assert_eq!(refusal(&reply)["code"], "server_not_configured", "{}", reply.text());
    assert!(up.calls().is_empty());
}

#[test]
fn a_session_at_the_server_is_each_employee_s_own() {
    let handshake = Speaks::Handshake("2025-11-25");
    let ok = r#"{"jsonrpc":"2.0","id":{{id}},"result":{"content":[]}}"#;
    let up = support::Upstream::answering(handshake, support::Answer::json(ok));
    // As if it kept nothing of a session: it was opened in somebody's name all the same.
    let gateway = gateway(&up.url(), "", ", stateless: true");
    for employee in ["E1", "E2", "E1"] {
        let reply = call(&gateway, employee);
        assert!(!reply.is_error(), "{}", reply.text());
    }
    let actor = |request: &support::Received| {
        let token = request.header("authorization").unwrap().strip_prefix("Bearer ").unwrap();
        unchecked(token)["act"]["sub"].as_str().map(str::to_owned)
    };
    let opened: Vec<_> = up.of("initialize").iter().filter_map(actor).collect();
    assert_eq!(opened, ["E1", "E2"]);
    let called: Vec<_> = up.calls().iter().filter_map(actor).collect();
    assert_eq!(called, ["E1", "E2", "E1"]);
}

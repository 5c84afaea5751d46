//! Tokens that an authorization server gives for what the gateway says of an employee.

use std::{collections::HashSet, thread, time::Duration};

use serde_json::{Value, json};

use super::{
    Pair, base, bearer,
    consent::{POLICY, PUBLIC, call, refusal},
    folder_with_keys, form, said,
};
use crate::{
    process_support::Upstream,
    support::{Gateway, Reply, Request},
};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";
const SECRET: &str = ", client_secret: { env: KEY }";

/// `more`: of `auth:`; `file`: further keys of the file.
fn gateway(pair: &Pair, more: &str, file: &str) -> Gateway {
    let yaml = format!(
        "keyring: {{ file: keyring.json }}\nstore: memory\npublic_url: {PUBLIC}
egress: {{ allow: [127.0.0.1] }}\n{file}
callers:
  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, catalog_roles: [member] }}
upstreams:
  up: {{ url: \"{}\", auth: {{ type: token_exchange, client_id: hangu{more} }} }}\n",
        pair.up.url()
    );
    Gateway::start_in(folder_with_keys(), None, &yaml, &[POLICY])
}

/// Lists need no token.
fn open() -> Pair {
    let pair = Pair::start();
    pair.rules.lock().open_lists = true;
    pair
}

#[test]
fn what_the_gateway_says_of_an_employee_is_exchanged_for_a_token_of_his() {
    let pair = open();
    let gateway = gateway(&pair, &format!("{SECRET}, scope: tools"), "");
    let reply = call(&gateway, "E1");
    assert!(!reply.is_error(), "{}", reply.text());
    assert_eq!(bearer(&pair.up.calls()[0]), "planted-token-1");
    let request = &pair.requests_for_tokens()[0];
    let asked = form(request);
    assert_eq!(request.header("authorization"), Some("Basic aGFuZ3U6a2V5LW9mLWEtdGVzdA=="));
    assert_eq!((&*asked["grant_type"], &*asked["subject_token_type"]), (GRANT, JWT));
    assert_eq!(asked["resource"], format!("{}/mcp", base(&pair.up)));
    assert_eq!(asked["scope"], "tools");
    for absent in ["audience", "requested_token_type", "actor_token", "actor_token_type"] {
        assert!(!asked.contains_key(absent), "{absent}");
    }
    let said = said(&gateway, &asked["subject_token"], &base(&pair.auth));
    assert_eq!((&said["iss"], &said["sub"]), (&json!(PUBLIC), &json!("E1")));
    assert_eq!((&said["tenant"], said.get("act")), (&json!("acme"), None));
    // The listing needed none, and so asked for none.
    assert_eq!(pair.requests_for_tokens().len(), 1);
    let audit = gateway.audit().iter().map(Value::to_string).collect::<String>();
    for text in [audit, gateway.metrics(), reply.text()] {
        assert!(!text.contains("planted") && !text.contains("eyJ"), "{text}");
    }
}

#[test]
fn secrets_and_assertions_go_to_the_first_authorization_server_alone() {
    for proof in [SECRET, ", key: gateway"] {
        let (pair, other) = (open(), open());
        for one in [&pair, &other] {
            let methods = json!(["client_secret_basic", "private_key_jwt"]);
            one.rules.lock().methods = Some(methods);
        }
        let gateway = gateway(&pair, proof, "");
        assert!(!call(&gateway, "E1").is_error());
        {
            // Asked for another token, the gateway asks who gives it.
            let mut rules = pair.rules.lock();
            (rules.named, rules.scope) = (Some(base(&other.auth)), Some("more".to_owned()));
        }
        let reply = call(&gateway, "E1");
        assert_eq!(refusal(&reply)["code"], "external_service_error", "{}", reply.text());
        // Nor what is said of another employee.
        assert!(call(&gateway, "E2").is_error());
        assert!(other.requests_for_tokens().is_empty(), "{proof}");
        // Back at the first one, all is well again.
        pair.rules.lock().named = None;
        let reply = call(&gateway, "E1");
        assert!(!reply.is_error(), "{}", reply.text());
    }
}

#[test]
fn what_is_asked_for_and_as_whom_is_said_in_the_file() {
    let pair = open();
    pair.rules.lock().exchanged = Some(json!({ "issued_token_type": JWT }));
    let more = format!(
        ", key: gateway, token_url: \"{}/token\", audience: crm, requested_token_type: jwt, \
         actor_token: true",
        base(&pair.auth)
    );
    let gateway = gateway(&pair, &more, "");
    let reply = call(&gateway, "E1");
    assert!(!reply.is_error(), "{}", reply.text());
    let asked = form(&pair.requests_for_tokens()[0]);
    assert_eq!((&*asked["audience"], &*asked["requested_token_type"]), ("crm", JWT));
    assert!(!asked.contains_key("resource") && !asked.contains_key("scope"), "{asked:?}");
    let audience = format!("{}/token", base(&pair.auth));
    let actor = said(&gateway, &asked["actor_token"], &audience);
    assert_eq!((&actor["sub"], &*asked["actor_token_type"]), (&json!("hangu"), JWT));
    let client = said(&gateway, &asked["client_assertion"], &audience);
    assert_eq!((&client["iss"], &client["sub"]), (&json!("hangu"), &json!("hangu")));
    assert_eq!(said(&gateway, &asked["subject_token"], &audience)["sub"], "E1");
    // An address beside the audience is asked for where it is given.
    let pair = open();
    let more = format!(
        "{SECRET}, audience: crm, resource: \"https://b.example/\", issuer: \"{}\"",
        base(&pair.auth)
    );
    let gateway = self::gateway(&pair, &more, "");
    assert!(!call(&gateway, "E1").is_error());
    assert_eq!(form(&pair.requests_for_tokens()[0])["resource"], "https://b.example/");
}

/// A call that tells the server for whom it is made.
fn told(gateway: &Gateway, employee: &str) -> Reply {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "echo", "arguments": { "me": employee }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {} } } });
    Request::stateless(&body.to_string()).header("SSO-Emp-Id", employee).ask(gateway)
}

/// Every call that came carried a token that was given for whoever made it.
#[track_caller]
fn each_had_his_own(pair: &Pair) {
    let rules = pair.rules.lock();
    for seen in pair.up.calls() {
        let (given_for, me) = (&rules.given_for[bearer(&seen)], &seen.params["arguments"]["me"]);
        assert_eq!(me, given_for.as_str());
    }
}

#[test]
fn each_employee_has_a_token_of_his_own_and_one_asks_for_all_his_calls() {
    for (expires, exact) in [(3_600, true), (1, false)] {
        let pair = open();
        pair.rules.lock().expires_in = Some(expires);
        let gateway = gateway(&pair, SECRET, "");
        thread::scope(|scope| {
            for number in 0..48 {
                let gateway = &gateway;
                scope.spawn(move || {
                    let reply = told(gateway, &format!("E{}", number % 6));
                    assert!(!reply.is_error(), "{}", reply.text());
                });
            }
        });
        assert_eq!(pair.up.calls().len(), 48);
        each_had_his_own(&pair);
        let asked = pair.requests_for_tokens().len();
        assert!(if exact { asked == 6 } else { asked >= 6 }, "{asked}");
    }
}

#[test]
fn tokens_are_at_hand_for_so_many_employees_and_no_more() {
    let pair = open();
    let gateway = gateway(&pair, SECRET, "credentials: { cache_entries: 2 }");
    for employee in ["E1", "E1", "E2", "E3", "E4", "E5", "E1"] {
        assert!(!told(&gateway, employee).is_error());
    }
    let asked = pair.requests_for_tokens().len();
    assert_eq!(asked, 6, "the first one's had to give way");
    each_had_his_own(&pair);
}

#[test]
fn one_that_the_server_takes_no_more_is_exchanged_anew() {
    let pair = open();
    let gateway = gateway(&pair, SECRET, "");
    assert!(!call(&gateway, "E1").is_error());
    assert!(!call(&gateway, "E2").is_error());
    // Not so soon that another one would fare the same.
    thread::sleep(Duration::from_millis(10_100));
    pair.revoke();
    assert!(!call(&gateway, "E1").is_error());
    assert_eq!(pair.requests_for_tokens().len(), 3);
    // One that takes no token is not asked without end.
    pair.rules.lock().takes_none = true;
    pair.up.forget();
    let reply = call(&gateway, "E1");
    assert_eq!(refusal(&reply)["code"], "permission_denied", "{}", reply.text());
    assert!(pair.up.calls().len() <= 2, "{}", pair.up.calls().len());
}

#[test]
fn more_scopes_are_asked_for_where_a_call_needs_them_and_for_nobody_else() {
    let pair = open();
    let gateway = gateway(&pair, &format!("{SECRET}, scope: read"), "");
    pair.rules.lock().scope = Some("read write".to_owned());
    assert!(!call(&gateway, "E1").is_error());
    assert!(!call(&gateway, "E2").is_error());
    let asked: Vec<_> =
        pair.requests_for_tokens().iter().map(|it| form(it)["scope"].clone()).collect();
    assert_eq!(asked, ["read", "read write", "read"]);
    // Not without end.
    pair.rules.lock().scope = Some("never".to_owned());
    pair.up.forget();
    let reply = call(&gateway, "E1");
    assert_eq!(refusal(&reply)["code"], "permission_denied", "{}", reply.text());
    assert!(pair.up.calls().len() <= 3, "{}", pair.up.calls().len());
}

#[test]
fn a_scope_that_is_not_given_is_not_asked_for_again() {
    let pair = open();
    // So short that every call needs another token.
    pair.rules.lock().expires_in = Some(0);
    let gateway = gateway(&pair, &format!("{SECRET}, scope: read"), "");
    pair.rules.lock().scope = Some("all".to_owned());
    pair.rules.lock().too_much = Some("all".to_owned());
    let reply = call(&gateway, "E1");
    assert_eq!(refusal(&reply)["code"], "permission_denied", "{}", reply.text());
    pair.rules.lock().scope = None;
    assert!(!call(&gateway, "E1").is_error(), "what is enough for other calls is still had");
}

#[test]
fn what_an_authorization_server_refuses_is_told_without_its_words() {
    let denied = "permission_denied";
    let failed = "external_service_error";
    let fine = json!({ "access_token": "planted", "token_type": "Bearer" });
    let with = |name: &str, value: &str| {
        let mut answer = fine.clone();
        answer[name] = value.into();
        answer
    };
    for (status, answer, code, retryable) in [
        (400, json!({ "error": "invalid_target", "error_description": "planted" }), denied, false),
        (400, json!({ "error": "invalid_request" }), denied, false),
        (401, json!({ "error": "invalid_client" }), denied, false),
        (503, json!({ "error": "planted" }), failed, true),
        (400, json!("planted"), failed, false),
        // It has to say what it gave, and that this can be used.
        (200, fine.clone(), failed, false),
        (
            200,
            with("issued_token_type", "urn:ietf:params:oauth:token-type:id_token"),
            failed,
            false,
        ),
        (200, with("token_type", "N_A"), failed, false),
    ] {
        let pair = open();
        pair.rules.lock().refuses = Some((status, answer.clone()));
        let gateway = gateway(&pair, SECRET, "");
        let reply = call(&gateway, "E1");
        let refusal = refusal(&reply);
        assert_eq!(
            (&refusal["code"], &refusal["retryable"]),
            (&json!(code), &json!(retryable)),
            "{answer} {}",
            reply.text()
        );
        assert!(!reply.text().contains("planted"), "{}", reply.text());
        assert!(pair.up.calls().is_empty(), "without a token nothing is sent");
        // Nothing is remembered against him.
        pair.rules.lock().refuses = None;
        assert!(!call(&gateway, "E1").is_error(), "{answer}");
    }
}

#[test]
fn another_type_than_was_asked_for_is_not_taken() {
    let pair = open();
    let gateway = gateway(&pair, &format!("{SECRET}, requested_token_type: jwt"), "");
    let reply = call(&gateway, "E1");
    assert_eq!(refusal(&reply)["code"], "external_service_error", "{}", reply.text());
    assert!(pair.up.calls().is_empty());
}

#[test]
fn an_authorization_server_that_is_away_is_told_as_such() {
    let mut pair = open();
    let more = format!("{SECRET}, token_url: \"{}/token\"", base(&pair.auth));
    let gateway = gateway(&pair, &more, "");
    Upstream::stop(&mut pair.auth);
    let reply = call(&gateway, "E1");
    let refusal = refusal(&reply);
    assert_eq!(
        (&refusal["code"], &refusal["retryable"]),
        (&json!("external_service_error"), &json!(true)),
        "{}",
        reply.text()
    );
    assert!(pair.up.calls().is_empty());
}

#[test]
fn listings_are_made_as_the_employee_who_is_named_for_them() {
    let pair = Pair::start();
    let listing = ", listing: { tenant: acme, empId: E7 }";
    let gateway = gateway(&pair, &format!("{SECRET}{listing}"), "");
    let given_for = |seen: &crate::process_support::Seen| {
        pair.rules.lock().given_for.get(bearer(seen)).cloned()
    };
    let listed: HashSet<_> = pair.up.requests("tools/list").iter().filter_map(given_for).collect();
    assert_eq!(listed, HashSet::from(["E7".to_owned()]));
    assert!(!told(&gateway, "E1").is_error());
    each_had_his_own(&pair);
}

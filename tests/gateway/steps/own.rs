//! Steps that name a server which an employee has brought: each who runs them needs his own.

use super::*;

const SELF_SERVICE: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  default: { risk: read_low, pin: first_use }
rules: []
";

/// Registers a server under a token, for somebody.
#[track_caller]
fn bring(gateway: &Gateway, who: &str, server: &Upstream) -> String {
    let auth = json!({ "type": "bearer", "token": format!("token-of-{who}") });
    let asked = json!({ "url": server.url(), "auth": auth }).to_string();
    let reply = post("/v1/servers", who, asked).ask(gateway);
    assert_eq!(reply.status, 201, "{}", reply.text());
    body(&reply)["serverKey"].as_str().unwrap().to_owned()
}

#[test]
fn a_step_runs_with_the_server_and_the_credential_of_whoever_runs_it() {
    let (one, own) = (server(), server());
    let more = "store: memory\negress: { allow: [127.0.0.1] }";
    let gateway = gateway_with(&[("one", &one)], more, &[SELF_SERVICE]);
    let key = bring(&gateway, "E1", &own);
    let steps = json!([
        step(1, &key_of(&gateway, "one"), "echo", json!({}), json!({})),
        step(
            2,
            &key,
            "query",
            json!({ "orderId": constant(json!("O-1")) }),
            json!({ "saveAs": "a" })
        ),
    ]);
    // Its author has to know the server.
    let reply = compile(&gateway, "E2", &steps);
    assert_eq!(body(&reply)["error"]["faults"][0]["fault"], "unknown_server", "{}", reply.text());
    let reply = compile(&gateway, "E1", &steps);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let compiled = body(&reply)["compiled"].take();
    assert!(!compiled.to_string().contains("token-of"), "{compiled}");
    assert_eq!(ran(&run(&gateway, "E1", &compiled, json!({}))).1, ["ok", "ok"]);
    // Another has nothing of it until he has brought it himself, and then his own credential.
    let states = ran(&run(&gateway, "E2", &compiled, json!({}))).1;
    assert_eq!(states, ["ok", "failed server_not_configured"]);
    assert_eq!(bring(&gateway, "E2", &own), key);
    assert_eq!(ran(&run(&gateway, "E2", &compiled, json!({}))).1, ["ok", "ok"]);
    let given: Vec<_> =
        own.calls().iter().map(|call| call.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(given, ["Bearer token-of-E1", "Bearer token-of-E2"]);
}

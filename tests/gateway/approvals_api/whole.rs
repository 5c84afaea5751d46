//! From a call that waits to the one that runs: the real gateway, the real command, a webhook.

use std::process::Command;

use serde_json::json;

use super::webhook::Receiver;
use crate::process_support::{Dialect, KEY, Setup, Upstream, exchange, tool};

const DIRECTORY: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member] }
  E2: { tenant: acme, roles: [owner] }
";

const TWO_EYES: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: two-eyes, effect: require_approval, tools: [crm/purge], approval: { roles: [owner], expires: 15m } }
";

#[test]
fn a_call_that_waits_runs_once_when_somebody_has_said_yes() {
    let up = Upstream::start(&[tool("purge")]);
    let receiver = Receiver::start(&[]);
    let mut gateway = Setup::new()
        .policy("directory.yaml", DIRECTORY)
        .policy("eyes.yaml", TWO_EYES)
        .upstream("crm", &up, "", "purge: { risk: write_low, idempotency: none }")
        .env("HOOK", "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=")
        .config(&format!(
            "approvals: {{ webhook: {{ url: \"http://{}/\", secret: {{ env: HOOK }} }} }}",
            receiver.address
        ))
        .start();
    let client = gateway.client("/mcp/crm", Dialect::Modern);
    let arguments = || json!({ "region": "eu-west", "n": 1.0 });
    let waits = client.call("purge", arguments());
    assert_eq!(waits.word(), "approval_required", "{waits:?}");
    let id = waits.fault()["approvalId"].as_str().unwrap().to_owned();
    receiver.wait(1);

    let path = format!("/v1/approvals/{id}");
    let as_owner = [("X-Api-Key", KEY), ("SSO-Emp-Id", "E2")];
    let shown = exchange(gateway.address, "GET", &path, &as_owner, b"").unwrap().text();
    let kept = "\"argumentsKept\":true,\"arguments\":";
    assert!(shown.contains(kept) && shown.contains("\"n\":1.0"), "{shown}");

    let said = Command::new(env!("CARGO_BIN_EXE_hangu"))
        .args(["approvals", "approve", &id, "--url", &format!("http://{}", gateway.address)])
        .env_clear()
        .env("HANGU_API_KEY", KEY)
        .env("HANGU_EMP_ID", "E2")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "approved: crm/purge for E1\n", "{said:?}");
    receiver.wait(2);

    assert_eq!(up.calls().len(), 0, "a yes alone runs nothing");
    assert_eq!(client.call("purge", arguments()).word(), "ok");
    let again = client.call("purge", arguments());
    assert_eq!(again.word(), "approval_required", "a yes is good once");
    assert_ne!(again.fault()["approvalId"], json!(id));
    assert_eq!(up.calls().len(), 1);
    let events = gateway.audit_until(|records| {
        ["approval_request", "approval_answer"]
            .iter()
            .all(|event| records.iter().any(|record| record["event"] == *event))
    });
    let of = |event: &str| events.iter().find(|record| record["event"] == event).unwrap();
    assert_eq!(of("approval_request")["approval"]["id"], json!(id));
    assert_eq!(
        of("approval_answer")["approval"],
        json!({ "answer": "yes", "id": id, "state": "approved" })
    );
    gateway.signal(15);
    assert!(gateway.wait().success());
}

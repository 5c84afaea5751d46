//! What was acknowledged is there after a kill, and what was not is whole or not there.

use std::{sync::mpsc, thread, time::Duration};

use serde_json::{Value, json};

use crate::process_support::{Dialect, KEY, Process, Response, Setup, Upstream, exchange, tool};

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  max_each: 1000
  default: { risk: read_low, pin: first_use }
rules: []
";

fn ask(gateway: &Process, method: &str, path: &str, body: &Value) -> std::io::Result<Response> {
    let headers = [("X-Api-Key", KEY), ("SSO-Emp-Id", "E1"), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    exchange(gateway.address, method, path, &headers, body.as_bytes())
}

#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let up = Upstream::start(&[tool("echo")]);
    let home = Setup::new()
        .config("keyring: { file: keyring.json }\negress: { allow: [127.0.0.1] }")
        .policy("own.yaml", POLICY)
        .write();
    assert!(home.output(&["keys", "new"]).status.success());
    let mut gateway = home.serve(&[]);
    let mut next = 0;
    for round in 0..3 {
        let address = gateway.address;
        let (first, url) = (next, up.url());
        let (registered, registrations) = mpsc::channel();
        let writer = thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for number in first.. {
                let body = json!({
                    "url": format!("{url}?n={number}"),
                    "auth": { "type": "bearer", "token": format!("token-{number}") },
                });
                let headers = [
                    ("X-Api-Key", KEY),
                    ("SSO-Emp-Id", "E1"),
                    ("Content-Type", "application/json"),
                ];
                let body = body.to_string();
                match exchange(address, "POST", "/v1/servers", &headers, body.as_bytes()) {
                    Ok(answer) if answer.status == 201 => {
                        let key = answer.json()["serverKey"].as_str().unwrap().to_owned();
                        acknowledged.push((number, key));
                        let _ = registered.send(());
                    }
                    _ => return (acknowledged, number + 1),
                }
            }
            unreachable!("it is killed before")
        });
        let first = registrations.recv_timeout(Duration::from_secs(60));
        first.expect("something is registered");
        // Somewhere in the middle of one of the next.
        thread::sleep(Duration::from_millis(170 * round));
        gateway.signal(9);
        gateway.wait();
        let (acknowledged, tried) = writer.join().unwrap();
        gateway = home.serve(&[]);
        let listed = ask(&gateway, "GET", "/v1/servers", &Value::Null).unwrap().json();
        let listed = listed["servers"].as_array().unwrap().clone();
        for (number, key) in &acknowledged {
            let server = listed.iter().find(|server| server["serverKey"] == key.as_str());
            let server = server.unwrap_or_else(|| panic!("{number} is gone: {listed:?}"));
            assert_eq!((&server["toolCount"], &server["hasCredential"]), (&json!(1), &json!(true)));
        }
        // One that was not acknowledged may be there; it has its credential then.
        assert!(listed.iter().all(|server| server["hasCredential"] == true), "{listed:?}");
        let (number, key) = acknowledged.last().unwrap();
        let client = gateway.client(&format!("/mcp/{key}"), Dialect::Modern).employee("E1");
        assert_eq!(client.call("echo", json!({})).word(), "ok");
        let seen = up.calls().pop().unwrap();
        assert_eq!(seen.header("authorization"), Some(format!("Bearer token-{number}").as_str()));
        next = tried;
    }
}

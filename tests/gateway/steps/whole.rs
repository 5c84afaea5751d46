//! Steps at the gateway as its users have it: a keyring that rotates, and the demo.

use std::process::Command;

use hangu::model::server_key::server_key;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::process_support::{Process, Response, Setup, Upstream, exchange, tool};

const SCRIPTS: &str = "key-of-scripts";

fn post(gateway: &Process, path: &str, body: &Value) -> Response {
    let headers =
        [("X-Api-Key", SCRIPTS), ("SSO-Emp-Id", "E1"), ("Content-Type", "application/json")];
    exchange(gateway.address, "POST", path, &headers, body.to_string().as_bytes()).unwrap()
}

#[test]
fn what_was_compiled_outlives_restarts_and_rotations_but_not_its_key() {
    let up = Upstream::start(&[tool("echo")]);
    let hash: String = Sha256::digest(SCRIPTS).iter().map(|b| format!("{b:02x}")).collect();
    let home = Setup::new()
        .config("keyring: { file: keyring.json }")
        .caller(&format!(
            "scripts: {{ keys: [{{ sha256: \"{hash}\" }}], tenant: acme, identity: header, call_sources: [script] }}"
        ))
        .upstream("up", &up, "", "")
        .write();
    let keys = |args: &[&str]| -> String {
        let output = home.output(&[&["keys"], args, &["--format", "json"]].concat());
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        told["id"].as_str().unwrap().to_owned()
    };
    let first = keys(&["new"]);
    let key = server_key(&up.url().parse().unwrap());
    let steps = json!({ "steps": [{ "stepIndex": 1, "type": "mcpCall",
        "mcp": { "serverKey": &*key, "toolName": "echo" } }] });
    let gateway = home.serve(&[]);
    let compile = |gateway: &Process| post(gateway, "/v1/steps/compile", &steps).json();
    let old = compile(&gateway);
    let digest = |compiled: &Value| compiled["compiled"]["digest"].as_str().unwrap().to_owned();
    assert!(digest(&old).starts_with(&format!("hmac-sha256:{first}:")), "{old}");
    drop(gateway);

    let mut gateway = home.serve(&[]);
    assert_eq!(compile(&gateway), old);
    let second = keys(&["rotate"]);
    gateway.wait_for_log(&format!("\"key.id\":\"{second}\""));
    assert_eq!(compile(&gateway), old, "a pending key makes nothing");
    keys(&["promote"]);
    gateway.wait_for_log("is primary now, it was pending");
    let new = compile(&gateway);
    assert!(digest(&new).starts_with(&format!("hmac-sha256:{second}:")), "{new}");
    let run = |gateway: &Process, compiled: &Value| post(gateway, "/v1/steps/run", compiled);
    for compiled in [&old, &new] {
        let ran = run(&gateway, compiled);
        assert_eq!((ran.status, &ran.json()["state"]), (200, &json!("completed")), "{ran:?}");
    }
    keys(&["destroy", &first, "--yes", "--force"]);
    gateway.wait_for_log("is destroyed now, it was retiring");
    assert_eq!(run(&gateway, &new).status, 200);
    let void = run(&gateway, &old);
    assert_eq!(void.status, 400, "{void:?}");
    assert!(void.text().contains("compile them again"), "{void:?}");
}

/// The call that the demo prints last, as a shell runs it.
#[test]
fn the_step_that_the_demo_prints_compiles_and_runs() {
    let demo = Process::demo();
    let log = demo.log();
    let (_, printed) = log.split_once("# 6. ").unwrap();
    let (_, printed) = printed.split_once('\n').unwrap();
    let (command, _) = printed.split_once("\nEND\n").unwrap();
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("{command}\nEND\n"))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command}\n{out}{error}");
    for words in ["completed", "ok           query_order", "orderQueryResult = {", "O-1001"] {
        assert!(out.contains(words), "{words}: {out}{error}");
    }
}

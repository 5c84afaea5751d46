//! Credentials, calls that wait, and the keyring, as those see them who look after the gateway:
//! by the API, and by the commands that ask it.

use std::{process::Output, thread, time::Duration};

use serde_json::{Value, json};

use super::{TOKENS, VIEWER, ask, keyed, told};
use crate::process_support::{
    Client, Dialect, Home, KEY, Process, Response, Setup, Upstream, exchange, tool, until,
};

const SECURITY: &str = TOKENS[3].1;
const APPROVER: &str = TOKENS[2].1;

const DIRECTORY: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member], teams: [payments] }
  E2: { tenant: acme, roles: [member, owner], teams: [payments] }
";

const OWN: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  max_each: 1000
  share: { roles: [member] }
  default: { risk: read_low, pin: first_use }
rules:
  - { id: two-eyes, effect: require_approval, tools: [up/pay], approval: { roles: [owner], expires: 15m } }
";

fn start(up: &Upstream, more: &str) -> Process {
    let home = keyed(Setup::new())
        .config(&format!("egress: {{ allow: [127.0.0.1] }}\n{more}"))
        .policy("directory.yaml", DIRECTORY)
        .policy("own.yaml", OWN)
        .upstream("up", up, "", "pay: { risk: write_low, idempotency: none }")
        .write();
    assert!(home.output(&["keys", "new"]).status.success());
    home.serve(&[])
}

/// What an employee asks.
fn of(gateway: &Process, who: &str, method: &str, path: &str, body: &Value) -> Response {
    let headers = [("X-Api-Key", KEY), ("SSO-Emp-Id", who), ("Content-Type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    exchange(gateway.address, method, path, &headers, body.as_bytes()).unwrap()
}

/// Registers the server, with a credential, and says what it is called.
#[track_caller]
fn bring(gateway: &Process, who: &str, url: &str) -> String {
    let auth = json!({ "type": "bearer", "token": format!("planted-{who}") });
    let answer = of(gateway, who, "POST", "/v1/servers", &json!({ "url": url, "auth": auth }));
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["serverKey"].as_str().unwrap().to_owned()
}

/// Runs a command with a token, against this gateway.
fn run(gateway: &Process, token: &str, args: &[&str]) -> Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_hangu"));
    command.args(args).env_clear().current_dir(gateway.home().path(""));
    command.env("HANGU_ADMIN_TOKEN", token);
    command.env("HANGU_ADMIN_URL", format!("http://{}", gateway.admin));
    command.output().unwrap()
}

#[track_caller]
fn ended(output: &Output, code: i32) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{out}{error}");
    assert!(!format!("{out}{error}").contains("planted"), "a secret is told: {out}{error}");
    if code == 0 { out } else { error }
}

fn client(gateway: &Process, key: &str, who: &str) -> Client {
    gateway.client(&format!("/mcp/{key}"), Dialect::Modern).employee(who)
}

// === Credentials ===

#[test]
fn who_has_what_is_listed_and_taken_away_at_once() {
    let (up, theirs) = (Upstream::start(&[tool("pay")]), Upstream::start(&[tool("echo")]));
    let gateway = start(&up, "");
    let one = bring(&gateway, "E1", &theirs.url());
    let other = bring(&gateway, "E1", &format!("{}?n=2", theirs.url()));
    bring(&gateway, "E2", &theirs.url());
    let secret = json!({ "value": "planted-secret" }).to_string();
    assert_eq!(ask(&gateway, SECURITY, "PUT", "/admin/api/secrets/crm", &secret).status, 200);

    let list = |query: &str| {
        let told = told(&gateway, VIEWER, "GET", &format!("/admin/api/credentials{query}"));
        assert!(!told.to_string().contains("planted"), "{told}");
        let row = |it: &Value| {
            let text = |name: &str| it[name].as_str().unwrap_or("-").to_owned();
            [text("tenant"), text("employee"), text("serverKey"), text("secret"), text("kind")]
                .join(" ")
        };
        let all = told["credentials"].as_array().unwrap().iter().map(row).collect::<Vec<_>>();
        (all, told)
    };
    let mut mine = [format!("acme E1 {one} - bearer"), format!("acme E1 {other} - bearer")];
    mine.sort();
    let (all, raw) = list("");
    let hers = format!("acme E2 {one} - bearer");
    assert_eq!(all, ["- - - crm value", &mine[0], &mine[1], &hers]);
    let first = &raw["credentials"][1];
    assert!(first["createdMs"].is_u64() && first["renewedMs"].is_null(), "{first}");
    let keys = told(&gateway, VIEWER, "GET", "/admin/api/keys");
    assert_eq!(first["keyId"], keys["keys"][0]["id"]);
    assert_eq!(list("?employee=E2").0, [hers.as_str()]);
    assert_eq!(list(&format!("?tenant=acme&serverKey={other}")).0.len(), 1);
    assert_eq!(list("?tenant=globex").0, [""; 0]);
    // Page by page it is the same.
    let (mut pages, mut after) = (Vec::new(), String::new());
    loop {
        let (page, raw) = list(&format!("?limit=1{after}"));
        assert_eq!(page.len(), 1);
        pages.extend(page);
        match raw["next"].as_str() {
            Some(next) => after = format!("&after={}", next.replace(':', "%3A")),
            None => break,
        }
    }
    assert_eq!(pages, all);
    for bad in ["limit=0", "limit=501", "limit=x", "employee=%20", "after=x", "emplyee=E1"] {
        let answer = ask(&gateway, VIEWER, "GET", &format!("/admin/api/credentials?{bad}"), "");
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }

    // It is used until it is taken away, and then no more.
    assert_eq!(client(&gateway, &one, "E1").call("echo", json!({})).word(), "ok");
    let path = format!("/admin/api/credentials/acme/E1/{one}");
    let gone = ask(&gateway, SECURITY, "DELETE", &path, "");
    assert_eq!((gone.status, &gone.json()["revoked"]), (200, &json!([one])), "{gone:?}");
    assert!(gone.json()["otherReplicasWithinMs"].as_u64().is_some_and(|ms| ms > 0), "{gone:?}");
    let calls = theirs.calls().len();
    let refused = client(&gateway, &one, "E1").call("echo", json!({}));
    assert_eq!(refused.word(), "server_not_configured", "{refused:?}");
    assert_eq!(theirs.calls().len(), calls, "nothing has left");
    assert_eq!(client(&gateway, &one, "E2").call("echo", json!({})).word(), "ok", "another's");
    assert_eq!(ask(&gateway, SECURITY, "DELETE", &path, "").status, 404);

    // All of one employee's.
    assert_eq!(client(&gateway, &other, "E1").call("echo", json!({})).word(), "ok");
    let gone = ask(&gateway, SECURITY, "DELETE", "/admin/api/credentials/acme/E1", "");
    assert_eq!((gone.status, &gone.json()["revoked"]), (200, &json!([other])), "{gone:?}");
    let refused = client(&gateway, &other, "E1").call("echo", json!({}));
    assert_eq!(refused.word(), "server_not_configured", "{refused:?}");
    let shown = of(&gateway, "E1", "GET", &format!("/v1/servers/{other}"), &Value::Null).json();
    assert_eq!(shown["hasCredential"], false, "the server is there: {shown}");
    assert_eq!(list("").0, ["- - - crm value", &hers]);
    let targets = |records: &[Value]| -> Vec<String> {
        let is =
            |record: &&Value| record["action"] == "credential_revoke" && record["outcome"] == "ok";
        let of = |record: &Value| record["target"].as_str().unwrap().to_owned();
        records.iter().filter(is).map(of).collect()
    };
    let records = gateway.audit_until(|records| targets(records).len() == 2);
    assert_eq!(targets(&records), [format!("acme/E1/{one}"), "acme/E1".to_owned()]);
    assert!(!gateway.log().contains("planted"));
}

#[test]
fn credentials_are_listed_and_revoked_by_command() {
    let (up, theirs) = (Upstream::start(&[tool("pay")]), Upstream::start(&[tool("echo")]));
    let gateway = start(&up, "");
    let key = bring(&gateway, "E1", &theirs.url());
    let listed = ended(&run(&gateway, VIEWER, &["credentials", "ls"]), 0);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("TENANT  OWNER"), "{listed}");
    for word in ["acme", "E1", &key, "bearer"] {
        assert!(lines[1].contains(word), "{word}: {listed}");
    }
    let asked = ["credentials", "ls", "--employee", "E1", "--format", "json"];
    let json = ended(&run(&gateway, VIEWER, &asked), 0);
    let told: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["credentials"][0]["serverKey"], json!(key));
    let nobody = ["credentials", "ls", "--employee", "E9"];
    assert_eq!(ended(&run(&gateway, VIEWER, &nobody), 0), "No such credential is kept.\n");

    let revoke = ["credentials", "revoke", "acme/E1", &key];
    let refused = ended(&run(&gateway, VIEWER, &revoke), 1);
    assert!(refused.contains("the role `viewer` may not do this"), "{refused}");
    let said = ended(&run(&gateway, SECURITY, &revoke), 0);
    assert!(said.contains("acme/E1 has no credential any more") && said.contains(&key), "{said}");
    assert!(said.contains("Other replicas"), "{said}");
    let all = ["credentials", "revoke", "acme/E1", "--all"];
    let none = ended(&run(&gateway, SECURITY, &all), 1);
    assert!(none.contains("no such credential is kept"), "{none}");
    for (args, says) in [
        (&["credentials", "revoke", "E1", &key][..], "TENANT/EMPLOYEE"),
        (&["credentials", "revoke", "acme/E1"], "SERVERKEY"),
        (&["credentials", "revoke", "acme/E1", &key, "--all"], "cannot be used with"),
    ] {
        let error = ended(&run(&gateway, SECURITY, args), 2);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

// === Calls that wait ===

/// Asks for a call that waits for an owner: its request's id.
#[track_caller]
fn waiting(gateway: &Process, n: u64) -> String {
    // Ids are in the order of milliseconds.
    thread::sleep(Duration::from_millis(2));
    let answer = gateway.client("/mcp/up", Dialect::Modern).call("pay", json!({ "planted": n }));
    assert_eq!(answer.word(), "approval_required", "{answer:?}");
    answer.fault()["approvalId"].as_str().unwrap().to_owned()
}

fn pay(gateway: &Process, n: u64) -> String {
    gateway.client("/mcp/up", Dialect::Modern).call("pay", json!({ "planted": n })).word()
}

fn approve(gateway: &Process, id: &str) -> Response {
    of(gateway, "E2", "POST", &format!("/v1/approvals/{id}/approve"), &json!({}))
}

#[test]
fn calls_that_wait_are_seen_by_all_tokens_refused_by_some_and_approved_by_none() {
    let up = Upstream::start(&[tool("pay")]);
    let gateway = start(&up, "");
    let ids = [1, 2, 3].map(|n| waiting(&gateway, n));
    let list = |query: &str| -> Vec<String> {
        let told = told(&gateway, VIEWER, "GET", &format!("/admin/api/approvals{query}"));
        assert!(!told.to_string().contains("planted"), "arguments are told: {told}");
        let all = told["approvals"].as_array().unwrap();
        all.iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let newest_first: Vec<String> = ids.iter().rev().cloned().collect();
    assert_eq!(list(""), newest_first);
    assert_eq!(list("?tenant=acme&state=waiting&requester=E1&tool=up%2Fpay"), newest_first);
    assert_eq!(list("?limit=2"), newest_first[..2]);
    assert_eq!(list(&format!("?before={}", ids[1])), [ids[0].as_str()]);
    for none in ["tenant=globex", "state=used", "requester=E2", "tool=up%2Fecho"] {
        assert_eq!(list(&format!("?{none}")), [""; 0], "{none}");
    }
    let bad = ask(&gateway, VIEWER, "GET", "/admin/api/approvals?state=open", "");
    assert_eq!(bad.status, 400, "{bad:?}");
    let shown = told(&gateway, VIEWER, "GET", &format!("/admin/api/approvals/{}", ids[0]));
    assert_eq!((&shown["tenant"], &shown["requester"]), (&json!("acme"), &json!("E1")));
    assert!(shown.get("mayDecide").is_none() && shown.get("arguments").is_none(), "{shown}");

    // No token says yes, not even the one that may do everything.
    let yes = format!("/admin/api/approvals/{}/approve", ids[0]);
    for (_, token) in TOKENS {
        assert_eq!(ask(&gateway, token, "POST", &yes, "{}").status, 404);
    }
    assert_eq!(pay(&gateway, 1), "approval_required");

    // A no ends what waits, and a yes that is not used yet.
    assert_eq!(approve(&gateway, &ids[1]).status, 200);
    for id in &ids[..2] {
        let path = format!("/admin/api/approvals/{id}/refuse");
        let body = json!({ "comment": "not before Monday" }).to_string();
        let refused = ask(&gateway, APPROVER, "POST", &path, &body);
        assert_eq!((refused.status, &refused.json()["state"]), (200, &json!("refused")));
        let last = refused.json()["decisions"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(
            (&last["by"], &last["comment"]),
            (&json!("token:reviews"), &json!("not before Monday"))
        );
        assert_eq!(ask(&gateway, APPROVER, "POST", &path, "").status, 409, "once");
        assert_eq!(approve(&gateway, id).status, 409);
    }
    assert_eq!(pay(&gateway, 2), "permission_denied", "the yes is taken back");
    let seen = of(&gateway, "E1", "GET", &format!("/v1/approvals/{}", ids[0]), &Value::Null);
    assert!(seen.text().contains("not before Monday"), "who asked is told: {seen:?}");
    assert_eq!(approve(&gateway, &ids[2]).status, 200);
    assert_eq!(pay(&gateway, 3), "ok", "others go on");
    let used = format!("/admin/api/approvals/{}/refuse", ids[2]);
    assert_eq!(ask(&gateway, SECURITY, "POST", &used, "").status, 409, "its call was made");
    gateway.audit_until(|records| {
        let is = |record: &&Value| {
            record["action"] == "approval_refuse"
                && record["target"] == ids[0].as_str()
                && record["outcome"] == "ok"
                && record["principal"]["caller"] == "reviews"
        };
        records.iter().filter(is).count() == 1
    });
}

#[test]
fn calls_that_wait_are_looked_at_and_refused_by_command_with_a_token() {
    let up = Upstream::start(&[tool("pay")]);
    let gateway = start(&up, "");
    let ids = [1, 2].map(|n| waiting(&gateway, n));
    let listed = ended(&run(&gateway, VIEWER, &["approvals", "ls", "--admin"]), 0);
    assert!(listed.lines().nth(1).is_some_and(|line| line.starts_with(&ids[1])), "{listed}");
    assert!(listed.contains("E1 of acme") && !listed.contains("you may decide"), "{listed}");
    let none = ["approvals", "ls", "--admin", "--tenant", "globex"];
    assert_eq!(ended(&run(&gateway, VIEWER, &none), 0), "No such request is kept.\n");
    let shown = ended(&run(&gateway, VIEWER, &["approvals", "show", &ids[0], "--admin"]), 0);
    assert!(shown.contains("tenant     acme") && !shown.contains("hangu approvals"), "{shown}");
    let refuse = ["approvals", "refuse", &ids[0], "--admin", "--comment", "no"];
    let said = ended(&run(&gateway, APPROVER, &refuse), 0);
    assert_eq!(said, "refused: up/pay for E1 of acme\n");
    let shown = ended(&run(&gateway, VIEWER, &["approvals", "show", &ids[0], "--admin"]), 0);
    assert!(shown.contains("refuse by token:reviews"), "{shown}");
    for (token, args, code, says) in [
        (VIEWER, &["approvals", "refuse", &ids[1], "--admin"][..], 1, "`viewer` may not"),
        (SECURITY, &["approvals", "approve", &ids[1], "--admin"], 2, "a token approves nothing"),
        (VIEWER, &["approvals", "ls", "--tenant", "acme"], 2, "--admin"),
        (VIEWER, &["approvals", "ls"], 2, "set HANGU_API_KEY"),
    ] {
        let error = ended(&run(&gateway, token, args), code);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

// === Keys ===

/// What a command on the file says, as JSON.
#[track_caller]
fn keys(home: &Home, args: &[&str]) -> Value {
    let output = home.output(&[&["keys"], args, &["--format", "json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_rotation_is_followed_and_finished_at_a_running_gateway() {
    let (up, theirs) = (Upstream::start(&[tool("pay")]), Upstream::start(&[tool("echo")]));
    let gateway = start(&up, "");
    let home = gateway.home().clone();
    let key = bring(&gateway, "E1", &theirs.url());
    bring(&gateway, "E2", &theirs.url());
    let status = || told(&gateway, VIEWER, "GET", "/admin/api/keys");
    let before = status();
    assert_eq!((&before["ready"], &before["current"]), (&json!(true), &json!(true)), "{before:#}");
    assert_eq!(before["rewrap"]["state"], "never");
    assert!(before["purposes"].as_array().unwrap().contains(&json!("storage")), "{before:#}");
    let old = before["keys"][0]["id"].clone();
    assert_eq!(before["keys"][0]["stored"]["credentials"], 2, "{before:#}");
    // The command on the file tells the same.
    let file = keys(&home, &["status"]);
    for member in ["keys", "otherKeys", "findings"] {
        assert_eq!(file[member], before[member], "{member}");
    }
    let new = keys(&home, &["rotate"])["id"].clone();
    until("the replica has the new key", || status()["current"] == true);
    assert_eq!(status()["keys"][1]["state"], "pending");
    keys(&home, &["promote"]);
    // At once: it waits until the replica uses what was promoted.
    let begun = ask(&gateway, SECURITY, "POST", "/admin/api/keys/rewrap", "");
    assert_eq!(begun.status, 200, "{begun:?}");
    until("it is through", || status()["rewrap"]["state"] == "done");
    let after = status();
    let of = |id: &Value| -> Value {
        let all = after["keys"].as_array().unwrap();
        all.iter().find(|key| key["id"] == *id).unwrap()["stored"]["credentials"].clone()
    };
    assert_eq!((of(&old), of(&new)), (json!(0), json!(2)), "{after:#}");
    assert_eq!(after["rewrap"]["rewrapped"], 2, "{after:#}");
    assert_eq!(after["rewrap"]["key"], new);
    keys(&home, &["destroy", old.as_str().unwrap(), "--yes"]);
    assert_eq!(status()["keys"][0]["state"], "destroyed");
    until("it is seen", || status()["ready"] == true);
    assert_eq!(client(&gateway, &key, "E1").call("echo", json!({})).word(), "ok");
    assert_eq!(theirs.calls().pop().unwrap().header("authorization"), Some("Bearer planted-E1"));

    // By command, at one replica or several.
    let url = format!("http://{}", gateway.admin);
    let shown = ended(&run(&gateway, VIEWER, &["keys", "status", "--url", &url]), 0);
    assert!(shown.contains(&format!("{url}: ready")) && shown.contains("2 credentials"), "{shown}");
    let again = ended(&run(&gateway, SECURITY, &["keys", "rewrap", "--url", &url]), 0);
    assert!(again.contains("0 credentials wrapped anew"), "{again}");
    let refused = ended(&run(&gateway, VIEWER, &["keys", "rewrap", "--url", &url]), 1);
    assert!(refused.contains("`viewer` may not"), "{refused}");
    // A file that cannot be used is told, and the replica is not ready.
    let whole = std::fs::read(home.path("keyring.json")).unwrap();
    std::fs::write(home.path("keyring.json"), "{").unwrap();
    let broken = status();
    assert_eq!((&broken["ready"], &broken["current"]), (&json!(false), &json!(false)));
    assert!(broken["fault"].as_str().unwrap().contains("is not a keyring"), "{broken:#}");
    assert_eq!(broken["keys"][1]["id"], new, "what is in use is told");
    let both = run(&gateway, VIEWER, &["keys", "status", "--url", &url, "--url", &url]);
    assert_eq!(both.status.code(), Some(1), "{both:?}");
    assert!(String::from_utf8_lossy(&both.stdout).contains("not ready"), "{both:?}");
    std::fs::write(home.path("keyring.json"), whole).unwrap();
    until("it is ready again", || status()["ready"] == true);
}

#[test]
fn without_a_keyring_that_is_said() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = super::setup(&up).start();
    let told = told(&gateway, VIEWER, "GET", "/admin/api/keys");
    assert_eq!(told, json!({ "keyring": null, "ready": false }));
    let refused = ask(&gateway, super::TOKEN, "POST", "/admin/api/keys/rewrap", "");
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.text().contains("keyring: { file"), "{refused:?}");
}

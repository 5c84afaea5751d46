//! Who sees and calls what of a server that an employee has brought, by every way there is.

use std::fs;

use serde_json::{Value, json};

use super::POLICY;
use crate::process_support::{
    Client, Dialect, Process, Response, Setup, Upstream, exchange, tool, until,
};

const DESK: &str = "key-of-the-desk";
const GLOBEX_DESK: &str = "key-of-the-other-desk";

const GLOBEX: &str = "version: hangu/v1
kind: Policy
scope: { tenant: globex }
self_service: { roles: [member], hosts: [\"127.0.0.1:*\"], default: { risk: read_low, pin: first_use } }
rules:
  - { id: globex-read, effect: allow, roles: [member], risk: [read_low] }
";

/// E5 is to leave the team, and E6 the company.
const BEFORE: &str = "version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member], teams: [payments] }
  E2: { tenant: acme, roles: [member], teams: [payments] }
  E3: { tenant: acme, roles: [member], teams: [payments] }
  E4: { tenant: acme, roles: [member], teams: [others] }
  E5: { tenant: acme, roles: [member], teams: [payments] }
  E6: { tenant: acme, roles: [member], teams: [payments] }
  G1: { tenant: globex, roles: [member], teams: [payments] }
";

fn after() -> String {
    let moved = BEFORE.replace(
        "E5: { tenant: acme, roles: [member], teams: [payments] }",
        "E5: { tenant: acme, roles: [member], teams: [others] }",
    );
    moved.replace("  E6: { tenant: acme, roles: [member], teams: [payments] }\n", "")
}

struct House {
    gateway: Process,
    key: String,
    /// The steps that name it, as E1 compiled them.
    compiled: Value,
}

impl House {
    fn post(&self, who: &str, path: &str, body: &Value) -> Response {
        ask(&self.gateway, who, "POST", path, body)
    }

    fn client(&self, who: &str, path: &str) -> Client {
        Client::new(self.gateway.address, path, Dialect::Modern).key(key_for(who)).employee(who)
    }

    /// What it is called on `/mcp`.
    fn alias(&self) -> String {
        format!("{}__echo", self.key)
    }

    /// Each way, and what comes of it for somebody: `-` where it is not listed, `list` where it is;
    /// otherwise the word of the answer, or its status.
    fn row(&self, who: &str) -> Vec<(&'static str, String)> {
        let path = format!("/mcp/{}", self.key);
        let of = format!("/v1/servers/{}", self.key);
        let listed = |there: bool| if there { "list" } else { "-" }.to_owned();
        let told = |reply: &Response| match reply.status {
            200 | 201 => reply.word(),
            status => format!("{status} {}", reply.word()),
        };
        let get = |path: &str| ask(&self.gateway, who, "GET", path, &Value::Null);
        let own = self.client(who, &path).send("tools/list", json!({}));
        let tools = get("/v1/tools?format=openai").json();
        let runtime = json!({ "id": "c1", "type": "function",
            "function": { "name": self.alias(), "arguments": "{}" } });
        let invoke = json!({ "serverKey": self.key, "toolName": "echo", "arguments": {} });
        let steps = json!({ "compiled": self.compiled, "context": {}, "variables": {} });
        let run = self.post(who, "/v1/steps/run", &steps);
        let step = match run.status {
            200 => {
                let step = &run.json()["steps"][0];
                step["error"]["code"].as_str().unwrap_or("ok").to_owned()
            }
            _ => told(&run),
        };
        let servers = get("/v1/servers").json();
        let servers = servers["servers"].as_array().unwrap().clone();
        vec![
            ("/mcp list", listed(self.client(who, "/mcp").list().contains(&self.alias()))),
            ("/mcp call", told(&self.client(who, "/mcp").call(&self.alias(), json!({})))),
            (
                "own list",
                match own.status {
                    200 => {
                        listed(own.result()["tools"].as_array().is_some_and(|all| !all.is_empty()))
                    }
                    _ => told(&own),
                },
            ),
            ("own call", told(&self.client(who, &path).call("echo", json!({})))),
            ("invoke", told(&self.post(who, "/v1/invoke", &invoke))),
            ("step", step),
            ("adapter list", listed(tools["map"].get(self.alias()).is_some())),
            (
                "adapter call",
                match self.post(who, "/v1/invoke?format=openai", &runtime) {
                    reply if reply.status == 200 => {
                        let said = reply.json()["content"].as_str().unwrap().to_owned();
                        said.split(&self.key).next().unwrap().trim_end_matches(" `").to_owned()
                    }
                    reply => told(&reply),
                },
            ),
            ("servers", listed(servers.iter().any(|one| one["serverKey"] == self.key.as_str()))),
            ("server", told(&get(&of))),
            ("asset", told(&get(&format!("{of}/asset")))),
            ("refresh", told(&self.post(who, &format!("{of}/refresh"), &Value::Null))),
            (
                "share",
                told(&ask(
                    &self.gateway,
                    who,
                    "PUT",
                    &format!("{of}/share"),
                    &json!({ "team": "payments" }),
                )),
            ),
        ]
    }
}

fn key_for(who: &str) -> &'static str {
    if who.starts_with('G') { GLOBEX_DESK } else { DESK }
}

fn ask(gateway: &Process, who: &str, method: &str, path: &str, body: &Value) -> Response {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let mut headers = vec![("X-Api-Key", key_for(who)), ("SSO-Emp-Id", who)];
    if !body.is_null() {
        headers.push(("Content-Type", "application/json"));
    }
    exchange(gateway.address, method, path, &headers, text.as_bytes()).unwrap()
}

#[test]
fn who_sees_and_calls_what() {
    let up = Upstream::start(&[tool("echo")]);
    let home = Setup::new()
        .config("keyring: { file: keyring.json }\negress: { allow: [127.0.0.1] }")
        .caller("desk: { keys: [{ env: DESK }], tenant: acme, identity: header, call_sources: [agent, script] }")
        .caller("globe: { keys: [{ env: GLOBEX_DESK }], tenant: globex, identity: header, call_sources: [agent, script] }")
        .env("GLOBEX_DESK", GLOBEX_DESK)
        .env("DESK", DESK)
        .policy("own.yaml", POLICY)
        .policy("globex.yaml", GLOBEX)
        .policy("directory.yaml", BEFORE)
        .write();
    assert!(home.output(&["keys", "new"]).status.success());
    let gateway = home.serve(&[]);
    let token = |who: &str| json!({ "type": "bearer", "token": format!("token-of-{who}") });
    let bring = |who: &str, url: &str| {
        let body = json!({ "url": url, "auth": token(who) });
        let told = ask(&gateway, who, "POST", "/v1/servers", &body);
        assert_eq!(told.status, 201, "{told:?}");
        let key = told.json()["serverKey"].as_str().unwrap().to_owned();
        let share = ask(
            &gateway,
            who,
            "PUT",
            &format!("/v1/servers/{key}/share"),
            &json!({ "team": "payments" }),
        );
        assert_eq!(share.status, 200, "{share:?}");
        key
    };
    let key = bring("E1", &up.url());
    let left = bring("E6", &format!("{}?of=E6", up.url()));
    for (who, key) in [("E2", &key), ("E5", &key), ("E2", &left)] {
        let path = format!("/v1/servers/{key}/credential");
        assert_eq!(ask(&gateway, who, "PUT", &path, &token(who)).status, 200);
    }
    let compiled = |key: &str| {
        let steps = json!({ "steps": [{ "stepIndex": 1, "type": "mcpCall",
            "mcp": { "serverKey": key, "toolName": "echo", "inputBindings": {} } }] });
        let told = ask(&gateway, "E2", "POST", "/v1/steps/compile", &steps);
        assert_eq!(told.status, 200, "{told:?}");
        told.json()["compiled"].clone()
    };
    let (compiled, of_left) = (compiled(&key), compiled(&left));
    let house = House { gateway, key, compiled };
    let all = |house: &House, people: &[&str]| {
        let rows: Vec<_> = people.iter().map(|who| house.row(who)).collect();
        let mut out = format!("{:14}", "");
        people.iter().for_each(|who| out += &format!("{who:38}"));
        for line in 0..rows[0].len() {
            out += &format!("\n{:14}", rows[0][line].0);
            rows.iter().for_each(|row| out += &format!("{:38}", row[line].1));
        }
        out.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
    };
    let people = ["E1", "E2", "E3", "E4", "E5", "G1"];
    insta::assert_snapshot!("who_sees_what", all(&house, &people));
    for call in up.calls() {
        // Each with his own.
        let bearer = call.header("authorization").unwrap().to_owned();
        assert!(["E1", "E2", "E5"].iter().any(|who| bearer == format!("Bearer token-of-{who}")));
    }

    // E5 leaves the team, E6 the company: what the one had seen he sees no more, and what the
    // other has shared stays, with those who have a credential of their own.
    let path = home.path("policies").join("directory.yaml");
    fs::write(path.with_extension("new"), after()).unwrap();
    fs::rename(path.with_extension("new"), &path).unwrap();
    until("the directory is another", || {
        !house.client("E5", "/mcp").list().contains(&house.alias())
    });
    insta::assert_snapshot!("who_sees_what_after_he_moved", all(&house, &["E1", "E5"]));
    let calls = up.calls().len();
    let House { gateway, .. } = house;
    let house = House { gateway, key: left, compiled: of_left };
    insta::assert_snapshot!("who_sees_what_of_who_left", all(&house, &["E6", "E2", "E3"]));
    for call in &up.calls()[calls..] {
        assert_eq!(call.header("authorization"), Some("Bearer token-of-E2"));
    }
}

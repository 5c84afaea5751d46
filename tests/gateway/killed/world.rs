//! The gateway whose process comes and goes, with all that is around it and stays.

use std::{collections::HashMap, io, net::SocketAddr};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::kinds;
use crate::{
    admin_api::{TOKENS, keyed},
    process_support::{
        Client, Dialect, Home, KEY, Process, Response, Setup, Shelf, Shop, Upstream, exchange,
        tool, until,
    },
};

/// Credentials that nobody changes, and that are wrapped anew in each round.
const KEEPERS: usize = 40;

/// What outlives the process.
pub struct World {
    pub home: Home,
    pub up: Upstream,
    pub personal: Upstream,
    _pinned: Upstream,
    shop: Shop,
    /// Of the process that runs, for employees and for operators.
    pub at: Mutex<(SocketAddr, SocketAddr)>,
    /// Ids of requests for approval, by connection and write; and revisions of policies.
    pub ids: Mutex<HashMap<(&'static str, usize, u64), String>>,
    /// What operators were told that it was done, by its action.
    pub done: Mutex<HashMap<&'static str, usize>>,
}

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"127.0.0.1:*\"]
  max_each: 1000
  share: { roles: [member] }
  default: { risk: read_low, pin: first_use }
rules:
  - { id: two-eyes, effect: require_approval, tools: [up/pay], approval: { roles: [owner], expires: 1h } }
";

const PINNED: &str = "version: hangu/v1
kind: Tools
upstreams:
  pinned: { default: { risk: read_low, pin: approve } }
";

fn directory() -> String {
    let mut text = "version: hangu/v1\nkind: Directory\nemployees:\n".to_owned();
    let of = |kind: &str, many: usize| (0..many).map(|n| format!("{kind}{n}")).collect::<Vec<_>>();
    for who in [of("C", 3), of("S", 3), of("A", 3), of("K", KEEPERS), vec!["E1".into()]].concat() {
        text += &format!("  {who}: {{ tenant: acme, roles: [member], teams: [payments] }}\n");
    }
    text + "  OWNER: { tenant: acme, roles: [member, owner] }\n"
}

impl World {
    pub fn new(store: &str, env: &[(&'static str, String)]) -> Self {
        let up = Upstream::start(&[tool("echo"), tool("pay")]);
        let personal = Upstream::start(&[tool("echo")]);
        let tools = || (0..3).map(|n| tool(&format!("t{n}"))).collect::<Vec<Value>>();
        let (pinned, shop) = Shelf { tools: tools(), ..Shelf::default() }.serve();
        let mut setup = keyed(Setup::new())
            .config(&format!("{store}\negress: {{ allow: [127.0.0.1] }}"))
            .config("approvals: { max_waiting: 100000, max_waiting_each: 100000 }")
            .policy("directory.yaml", &directory())
            .policy("own.yaml", POLICY)
            .upstream(
                "up",
                &up,
                "headers: { X-S0: { secret: s0 }, X-S1: { secret: s1 } }",
                "pay: { risk: write_low, idempotency: none }",
            )
            .upstream("theirs", &personal, "auth: { type: employee }", "")
            .upstream("pinned", &pinned, "", "")
            .policy("tools-pinned.yaml", PINNED);
        for (name, value) in env {
            setup = setup.env(name, value);
        }
        let home = setup.write();
        assert!(home.output(&["keys", "new"]).status.success());
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            home,
            up,
            personal,
            _pinned: pinned,
            shop,
            at: Mutex::new((nowhere, nowhere)),
            ids: Mutex::default(),
            done: Mutex::default(),
        }
    }

    pub fn start(&mut self) -> Process {
        let gateway = self.home.serve(&[]);
        *self.at.lock() = (gateway.address, gateway.admin);
        gateway
    }

    /// What is there before anybody writes: two secrets that are set, two definitions of each
    /// tool, and credentials that stay as they are.
    pub fn prepare(&self) {
        for n in 0..2 {
            kinds::put_secret(self, n, 0).unwrap();
        }
        until("all is listed", || self.is_listed());
        let seen = |version: u64| {
            move || {
                let all = self.pins();
                all.len() == 3 && all.values().all(|(seen, _)| *seen == Some(version))
            }
        };
        until("the first definitions are kept", seen(1));
        self.shop.change(|shelf| {
            for tool in &mut shelf.tools {
                tool["description"] = json!("Does it otherwise.");
            }
        });
        until("the second definitions are kept", seen(2));
        for n in 0..KEEPERS {
            let body = json!({ "type": "bearer", "token": format!("kept-{n}") });
            let answer = self.of(&format!("K{n}"), "PUT", "/v1/servers/theirs/credential", &body);
            assert_eq!(answer.unwrap().status, 200);
        }
    }

    /// A rotation begins, which the writers then finish.
    pub fn before_round(&self) {
        for verb in ["rotate", "promote"] {
            assert!(self.home.output(&["keys", verb]).status.success());
            until("it is seen", || self.keys()["current"] == true);
        }
    }

    pub fn is_listed(&self) -> bool {
        let told = self.told("/admin/api/servers");
        let all = told["servers"].as_array().unwrap();
        all.len() == 3 && all.iter().all(|server| server["listing"] == "listed")
    }

    /// What is of no connection's: keys and records.
    pub fn check(&self, gateway: &Process) {
        // Nothing needs the old key any more, and it can go.
        let of = |state: &str| -> Vec<String> {
            let all = self.keys()["keys"].as_array().unwrap().clone();
            let is = all.into_iter().filter(|key| key["state"] == *state);
            is.map(|key| key["id"].as_str().unwrap().to_owned()).collect()
        };
        for old in of("retiring") {
            let gone = self.home.output(&["keys", "destroy", &old, "--yes"]);
            assert!(gone.status.success(), "{gone:?}");
        }
        until("it is seen", || of("retiring").is_empty());
        for n in [0, KEEPERS / 2, KEEPERS - 1] {
            assert_eq!(self.used(gateway, &format!("K{n}")), format!("kept-{n}"));
        }
        // Whoever was told that it is done finds the record of it; the chain is looked at, too.
        let records = self.home.audit();
        for (action, times) in &*self.done.lock() {
            let is = |record: &&Value| {
                record["event"] == "admin_action"
                    && record["action"] == **action
                    && record["outcome"] == "ok"
            };
            let found = records.iter().filter(is).count();
            assert!(found >= *times, "{action}: {times} were acknowledged, {found} are recorded");
        }
    }

    // === Asking ===

    pub fn of(&self, who: &str, method: &str, path: &str, body: &Value) -> io::Result<Response> {
        let headers =
            [("X-Api-Key", KEY), ("SSO-Emp-Id", who), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        exchange(self.at.lock().0, method, path, &headers, body.as_bytes())
    }

    /// What the one token may do that may do everything.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> io::Result<Response> {
        let bearer = format!("Bearer {}", TOKENS[4].1);
        let headers = [("Authorization", &*bearer), ("Content-Type", "application/json")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        exchange(self.at.lock().1, method, path, &headers, body.as_bytes())
    }

    /// The same of what is recorded.
    pub fn act(
        &self,
        action: &'static str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> io::Result<Response> {
        let answer = self.admin(method, path, body)?;
        if answer.status == 200 {
            *self.done.lock().entry(action).or_default() += 1;
        }
        Ok(answer)
    }

    pub fn told(&self, path: &str) -> Value {
        let answer = self.admin("GET", path, &Value::Null).unwrap();
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    pub fn keys(&self) -> Value {
        self.told("/admin/api/keys")
    }

    /// Of each tool the version that is listed, and the one that is approved.
    pub fn pins(&self) -> HashMap<String, (Option<u64>, Option<u64>)> {
        let told = self.told("/admin/api/pins");
        let of = told["pins"].as_array().unwrap().iter().filter(|pin| pin["upstream"] == "pinned");
        let of = of.map(|pin| {
            let versions =
                (pin["schemaVersion"]["ordinal"].as_u64(), pin["approvedVersion"].as_u64());
            (pin["tool"].as_str().unwrap().to_owned(), versions)
        });
        of.collect()
    }

    /// With which credential an employee is let in.
    pub fn used(&self, gateway: &Process, who: &str) -> String {
        let client: Client = gateway.client("/mcp/theirs", Dialect::Modern).employee(who);
        let answer = client.call("echo", json!({}));
        if answer.word() == "server_not_configured" {
            return "-".to_owned();
        }
        assert_eq!(answer.word(), "ok", "{answer:?}");
        let sent = self.personal.calls().pop().unwrap();
        sent.header("authorization").unwrap().strip_prefix("Bearer ").unwrap().to_owned()
    }
}

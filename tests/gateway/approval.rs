//! Calls that somebody has to approve: in every era they wait, are decided on elsewhere, and run
//! once.

use std::{sync::Arc, thread, time::Duration};

use hangu::{
    approval::{Approval, ApprovalId, State},
    model::caller::{EmployeeId, Role, Roles, TenantId},
};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, SqliteConnection};
use tempfile::TempDir;

use crate::{
    process_support::{self, Dialect, Setup},
    support::{Answer, Gateway, OK, Reply, Request, Speaks, Upstream, wait_for},
};

mod confirm;
mod continued;
mod dry_run;

/// How clients speak.
const CLIENTS: [&str; 3] = ["2026-07-28", "2025-11-25", "mcp-lite"];

const SECRET: [u8; 32] = [7; 32];

const CALLER: &str = "callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { header: true, fallback: { empId: E1, roles: [member] } } }
";

const PEOPLE: &str = "version: hangu/v1
kind: Directory
employees: { E1: { tenant: acme, roles: [member, owner] }, E2: { tenant: acme, roles: [owner] }, E3: { tenant: acme, roles: [member] } }
---
version: hangu/v1
kind: Tools
upstreams: { up: { default: { risk: read_low }, tools: { wipe: { risk: write_low, idempotency: optional } } } }
";

const RULES: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: all, effect: allow, roles: [member] }
  - id: ask
    effect: require_approval
    tools: [up/wipe]
    prompts: [up/greet]
    approval: { roles: [owner], expires: 1h }
";

/// A gateway whose requests for approval outlive it.
struct Fixture {
    upstream: Upstream,
    folder: Arc<TempDir>,
    gateway: Gateway,
}

impl Fixture {
    fn new() -> Self {
        Self::with(RULES)
    }

    fn with(rules: &str) -> Self {
        let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
        Self::before(upstream, rules)
    }

    fn before(upstream: Upstream, rules: &str) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let gateway = start(&folder, &upstream.url(), rules);
        Self { upstream, folder, gateway }
    }

    /// The next process, with these rules.
    fn restarted(self, rules: &str) -> Self {
        let Self { upstream, folder, gateway } = self;
        drop(gateway);
        let gateway = start(&folder, &upstream.url(), rules);
        Self { upstream, folder, gateway }
    }

    fn call(&self, client: &str, arguments: &Value) -> Reply {
        request(client, "wipe", arguments).ask(&self.gateway)
    }

    /// How many calls the server got.
    fn made(&self) -> usize {
        self.upstream.calls().len()
    }

    /// The id under which a call waits.
    #[track_caller]
    fn waits(&self, client: &str, arguments: &Value) -> String {
        waiting(&self.call(client, arguments))
    }

    fn decide(&self, id: &str, by: &str, yes: bool) {
        decide(&self.gateway, id, by, yes);
    }

    fn state(&self, id: &str) -> State {
        look(&self.gateway, id).state(self.gateway.engines().approvals.now_ms())
    }
}

/// What is kept of a request.
fn look(gateway: &Gateway, id: &str) -> Approval {
    let approvals = &gateway.engines().approvals;
    let (acme, by, owner) = (acme(), employee("E2"), owner());
    let found = approvals.look(&acme, ApprovalId::parse(id).unwrap(), &by, &owner);
    block_on(found).unwrap().unwrap()
}

fn start(folder: &Arc<TempDir>, url: &str, rules: &str) -> Gateway {
    let yaml = format!("{CALLER}upstreams:\n  up: {{ url: \"{url}\" }}\n");
    Gateway::start_in(folder.clone(), Some(SECRET), &yaml, &[rules, PEOPLE])
}

fn decide(gateway: &Gateway, id: &str, by: &str, yes: bool) {
    let approvals = &gateway.engines().approvals;
    let id = ApprovalId::parse(id).unwrap();
    let (acme, by, owner) = (acme(), employee(by), owner());
    let decided = approvals.decide(&acme, id, &by, &owner, yes, Some("because I say so"));
    block_on(decided).unwrap();
}

fn acme() -> TenantId {
    TenantId::new("acme")
}

fn employee(id: &str) -> EmployeeId {
    EmployeeId::parse(id).unwrap()
}

fn owner() -> Roles {
    Roles::new([Role::new("owner")])
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A call as a client of that revision makes it, outside of sessions.
fn request(client: &str, tool: &str, arguments: &Value) -> Request {
    with_meta(client, tool, arguments, &json!({}))
}

fn with_meta(client: &str, tool: &str, arguments: &Value, meta: &Value) -> Request {
    let mut params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
    let body = |params: &Value| {
        json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params }).to_string()
    };
    match client {
        "2026-07-28" => {
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
            Request::stateless(&body(&params))
        }
        "2025-11-25" => Request::handshake(body(&params)),
        _ => Request::lite("tools/call", params.to_string()),
    }
}

fn value(reply: &Reply) -> Value {
    serde_json::from_str(&reply.message()).unwrap_or_else(|_| panic!("{}", reply.text()))
}

/// The error object of a refusal, in whichever form it came.
#[track_caller]
fn fault(reply: &Reply) -> Value {
    let message = value(reply);
    let places = ["/result/_meta/dev.hangu~1error", "/error/data", "/error"];
    let found = places.iter().find_map(|place| message.pointer(place));
    found.cloned().unwrap_or_else(|| panic!("no refusal: {message}"))
}

#[track_caller]
fn waiting(reply: &Reply) -> String {
    let fault = fault(reply);
    assert_eq!(fault["code"], "approval_required", "{fault}");
    assert_eq!((&fault["next"], &fault["retryable"]), (&json!("ask_human"), &json!(false)));
    let id = fault["approvalId"].as_str().unwrap_or_else(|| panic!("{fault}")).to_owned();
    let message = fault["message"].as_str().unwrap();
    assert!(message.contains(&format!("/v1/approvals/{id}")), "{message}");
    assert!(message.contains(&format!("hangu approvals show {id}")), "{message}");
    id
}

#[track_caller]
fn ran(reply: &Reply) {
    assert!(reply.text().contains("ok") && reply.refusal().is_none(), "{}", reply.text());
}

#[test]
fn a_call_waits_is_approved_and_runs_once_in_every_era() {
    let it = Fixture::new();
    for (made, client) in CLIENTS.into_iter().enumerate() {
        let arguments = json!({ "of": client, "n": 1.0 });
        let id = it.waits(client, &arguments);
        assert_eq!(it.waits(client, &arguments), id, "the same call is the same request");
        assert_eq!(it.made(), made);
        it.decide(&id, "E2", true);
        ran(&it.call(client, &arguments));
        assert_eq!((it.made(), it.state(&id)), (made + 1, State::Used), "{client}");
        assert_eq!(it.upstream.calls()[made].arguments(), arguments.to_string());
        assert_ne!(it.waits(client, &arguments), id, "{client}: it is used up");
        assert_eq!(it.made(), made + 1);
        let of = |state: &'static str, outcome: &'static str| {
            let id = id.clone();
            move |record: &Value| {
                record["approval"] == json!({ "id": id, "state": state })
                    && record["decision"] == "require_approval"
                    && record["reason"] == "rule_approval"
                    && record["rules"] == json!(["ask"])
                    && record["outcome"] == outcome
            }
        };
        it.gateway.audited("it waited", of("waiting", "approval_pending"));
        it.gateway.audited("it ran", of("granted", "ok"));
        let asked = |record: &&Value| {
            record["event"] == "approval_request" && record["approval"]["id"] == *id
        };
        let records = it.gateway.audit();
        let events: Vec<_> = records.iter().filter(asked).collect();
        assert_eq!(events.len(), 1, "{client}");
        assert!(events[0]["argsHash"].is_string(), "{}", events[0]);
        assert_eq!(events[0]["principal"]["empId"], "E1");
    }
    let metrics = it.gateway.metrics();
    let line = r#"hangu_approval_requests_total{hangu_approval_state="granted"} 3"#;
    assert!(metrics.contains(line), "{metrics}");
    let line = r#"hangu_approval_wait_duration_seconds_count{hangu_approval_state="granted"} 3"#;
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn a_yes_is_good_for_the_same_call_alone() {
    let it = Fixture::new();
    let id = it.waits("mcp-lite", &json!({ "a": 1, "b": "x" }));
    it.decide(&id, "E2", true);
    for other in [json!({ "a": 2, "b": "x" }), json!({ "a": 1 }), json!({ "a": 1, "b": "y" })] {
        assert_ne!(it.waits("mcp-lite", &other), id, "{other}");
    }
    let call = request("mcp-lite", "wipe", &json!({ "a": 1, "b": "x" }));
    let theirs = call.clone().header("SSO-Emp-Id", "E3").ask(&it.gateway);
    assert_ne!(waiting(&theirs), id, "somebody else's");
    // What a server might read beside the arguments belongs to the call, too.
    let body = json!({ "name": "wipe", "arguments": { "a": 1, "b": "x" }, "force": true });
    let more = call.clone().with_body(body.to_string()).ask(&it.gateway);
    assert_ne!(waiting(&more), id, "with more");
    assert_eq!((it.made(), it.state(&id)), (0, State::Approved));
    // Written otherwise, and by another client, it is the same.
    let body = r#"{"arguments":{"b":"\u0078","a":1},"name":"wipe"}"#;
    ran(&call.with_body(body).ask(&it.gateway));
    assert_eq!((it.made(), it.state(&id)), (1, State::Used));
}

#[test]
fn a_restart_keeps_what_was_asked_and_other_policies_ask_again() {
    let arguments = json!({ "n": 1 });
    let it = Fixture::new();
    let id = it.waits("2026-07-28", &arguments);
    let it = it.restarted(RULES);
    assert_eq!(it.waits("2026-07-28", &arguments), id);
    it.decide(&id, "E2", true);
    let changed = RULES.replace("expires: 1h", "expires: 2h");
    let it = it.restarted(&changed);
    let other = it.waits("2026-07-28", &arguments);
    assert_ne!(other, id, "another revision");
    let it = it.restarted(RULES);
    ran(&it.call("2026-07-28", &arguments));
    assert_eq!((it.made(), it.state(&id)), (1, State::Used));
    // What was kept for those who decide opens in another process.
    let (engines, kept) = (it.gateway.engines(), look(&it.gateway, &id));
    assert_eq!(engines.argument_seal.open(&kept).as_deref(), Some(&br#"{"n":1}"#[..]));
}

#[test]
fn a_kill_forgets_no_request() {
    let up = process_support::Upstream::start(&[process_support::tool("wipe")]);
    let wipe = "wipe: { risk: write_low, idempotency: none }";
    let rules = RULES.replace("    prompts: [up/greet]\n", "");
    let home = Setup::new().upstream("up", &up, "", wipe).policy("rules.yaml", &rules).write();
    let count = |id: &str| {
        let url = format!("sqlite:{}", home.path("hangu.db").display());
        let find = "SELECT count(*) FROM approval WHERE settled = 0 AND body LIKE $1";
        block_on(async {
            let mut store = SqliteConnection::connect(&url).await.unwrap();
            let like = format!("%{id}%");
            let row = sqlx::query_scalar::<_, i64>(find).bind(like).fetch_one(&mut store).await;
            store.close().await.unwrap();
            row.unwrap()
        })
    };
    for dialect in Dialect::ALL {
        let mut gateway = home.serve(&[]);
        let ask = |n: u32| {
            let answer = gateway.client("/mcp/up", dialect).call("wipe", json!({ "n": n }));
            assert_eq!(answer.word(), "approval_required", "{answer:?}");
            answer.fault()["approvalId"].as_str().unwrap().to_owned()
        };
        let ids = [ask(1), ask(2)];
        gateway.signal(9);
        gateway.wait();
        assert_eq!(ids.map(|id| count(&id)), [1, 1], "{dialect:?}");
    }
    assert!(up.calls().is_empty());
}

#[test]
fn a_refusal_says_so_and_not_by_whom() {
    let it = Fixture::new();
    for client in CLIENTS {
        let arguments = json!({ "of": client });
        let id = it.waits(client, &arguments);
        it.decide(&id, "E2", false);
        for _ in 0..2 {
            let reply = it.call(client, &arguments);
            let fault = fault(&reply);
            assert_eq!(fault["code"], "permission_denied", "{fault}");
            assert_eq!((&fault["approvalId"], &fault["next"]), (&json!(id), &json!("stop")));
            assert!(fault["message"].as_str().unwrap().contains("refused"), "{fault}");
            assert!(!reply.text().contains("E2") && !reply.text().contains("because"), "{fault}");
        }
        it.gateway.audited("it was refused", |record| {
            record["approval"] == json!({ "id": id, "state": "refused" })
                && record["outcome"] == "denied"
        });
    }
    assert_eq!(it.made(), 0);
}

#[test]
fn a_yes_expires() {
    let it = Fixture::with(&RULES.replace("expires: 1h", "expires: 400ms"));
    let id = it.waits("mcp-lite", &json!({}));
    it.decide(&id, "E2", true);
    wait_for("the yes expires", Duration::from_secs(5), || it.state(&id) == State::Expired);
    assert_ne!(it.waits("mcp-lite", &json!({})), id);
    assert_eq!(it.made(), 0);
}

#[test]
fn of_two_at_once_after_one_yes_one_runs() {
    let slow = Answer::json(OK).delayed(Duration::from_millis(200));
    let it = Fixture::before(Upstream::answering(Speaks::Stateless, slow), RULES);
    for round in 0..3 {
        let arguments = json!({ "round": round });
        let id = it.waits("mcp-lite", &arguments);
        it.decide(&id, "E2", true);
        let replies: Vec<Reply> = thread::scope(|scope| {
            let call = |client| {
                let (it, arguments) = (&it, &arguments);
                scope.spawn(move || it.call(client, arguments))
            };
            let calls: Vec<_> = CLIENTS.into_iter().map(call).collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let refused = replies.iter().filter(|reply| reply.refusal().is_some());
        let refused: Vec<_> = refused.map(waiting).collect();
        assert_eq!(refused.len(), 2);
        assert_eq!(refused[0], refused[1]);
        assert_ne!(refused[0], id);
        assert_eq!(it.made(), round + 1);
    }
}

#[test]
fn a_replay_needs_no_second_yes() {
    let it = Fixture::new();
    for (made, client) in CLIENTS.into_iter().enumerate() {
        let call = request(client, "wipe", &json!({ "of": client }))
            .header("Idempotency-Key", format!("key-{client}"));
        let id = waiting(&call.ask(&it.gateway));
        assert_eq!(waiting(&call.ask(&it.gateway)), id, "a call that waits holds no key");
        it.decide(&id, "E2", true);
        ran(&call.ask(&it.gateway));
        let replayed = call.ask(&it.gateway);
        ran(&replayed);
        assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
        assert_eq!(it.made(), made + 1);
    }
}

#[test]
fn a_call_that_never_left_gives_its_yes_back() {
    let it = Fixture::new();
    let id = it.waits("2026-07-28", &json!({}));
    it.decide(&id, "E2", true);
    let Fixture { upstream, folder, gateway } = it;
    drop(upstream);
    let call = request("2026-07-28", "wipe", &json!({}));
    wait_for("the server is gone", Duration::from_secs(5), || {
        let reply = call.ask(&gateway);
        assert_eq!(reply.refusal().as_deref(), Some("external_service_error"), "{reply:?}");
        fault(&reply)["message"].as_str().unwrap().contains("refused the connection")
    });
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let it = Fixture { upstream, folder, gateway };
    wait_for("it is given back", Duration::from_secs(5), || it.state(&id) == State::Approved);
}

#[test]
fn without_its_store_nothing_runs() {
    let it = Fixture::new();
    let id = it.waits("mcp-lite", &json!({}));
    it.decide(&id, "E2", true);
    let url = format!("sqlite:{}", it.folder.path().join("hangu.db").display());
    block_on(async {
        let mut other = SqliteConnection::connect(&url).await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        for client in CLIENTS {
            let fault = fault(&it.call(client, &json!({})));
            assert_eq!(fault["code"], "internal", "{fault}");
            assert_eq!((&fault["retryable"], &fault["next"]), (&json!(true), &json!("wait")));
            assert!(fault["message"].as_str().unwrap().contains("approval"), "{fault}");
        }
        // Whoever needs no approval is not concerned.
        ran(&request("mcp-lite", "echo", &json!({})).ask(&it.gateway));
        assert_eq!(it.made(), 1);
        other.execute("ROLLBACK").await.unwrap();
    });
    wait_for("it is back", Duration::from_secs(10), || {
        it.call("mcp-lite", &json!({})).refusal().is_none()
    });
    assert_eq!((it.made(), it.state(&id)), (2, State::Used));
}

#[test]
fn as_many_may_wait_as_the_file_says() {
    let upstream = Upstream::answering(Speaks::Stateless, Answer::json(OK));
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let yaml = format!(
        "approvals: {{ max_waiting_each: 2, max_arguments: 20 }}\nstore: memory\n{CALLER}upstreams:\n  up: {{ url: \"{}\" }}\n",
        upstream.url()
    );
    let gateway = Gateway::start_in(folder, Some(SECRET), &yaml, &[RULES, PEOPLE]);
    let ask = |arguments: Value| request("mcp-lite", "wipe", &arguments).ask(&gateway);
    let (short, long) = (ask(json!({ "n": 1 })), ask(json!({ "n": "a text too long to be kept" })));
    for (reply, kept) in [(&short, true), (&long, false)] {
        assert_eq!(look(&gateway, &waiting(reply)).request.sealed.is_some(), kept);
    }
    let full = fault(&ask(json!({ "n": 2 })));
    assert_eq!(full["code"], "rate_limited", "{full}");
    assert_eq!(full["limit"], "approvals.max_waiting", "{full}");
    assert_eq!(waiting(&ask(json!({ "n": 1 }))), waiting(&short));
}

#[test]
fn a_prompt_waits_like_a_tool() {
    let upstream = Upstream::answering(
        Speaks::Stateless,
        Answer::json(
            r#"{"jsonrpc":"2.0","id":{{id}},"result":{"resultType":"complete","messages":[]}}"#,
        ),
    );
    upstream.declares(r#""prompts":{}"#);
    upstream.gives("prompts/list", r#"{"resultType":"complete","prompts":[{"name":"greet","arguments":[{"name":"who"}]}],"ttlMs":0,"cacheScope":"private"}"#);
    let it = Fixture::before(upstream, RULES);
    let get = |who: &str| {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "prompts/get",
            "params": { "name": "greet", "arguments": { "who": who } } });
        Request::handshake(body.to_string()).ask(&it.gateway)
    };
    let id = waiting(&get("a"));
    assert_eq!(waiting(&get("a")), id);
    assert_ne!(waiting(&get("b")), id);
    it.decide(&id, "E2", true);
    assert!(value(&get("a"))["result"]["messages"].is_array());
    assert_eq!(it.upstream.of("prompts/get").len(), 1);
    assert_ne!(waiting(&get("a")), id);
}

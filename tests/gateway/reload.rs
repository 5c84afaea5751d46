//! Policies that change under a running gateway: applied whole, or not at all, and told.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process_support::{
    ALLOW_MEMBERS, Dialect, Home, KEY, Process, Setup, Upstream, exchange, text_result, tool, until,
};

/// How long a change may take until it holds.
const SOON: Duration = Duration::from_secs(2);

/// Members may call these tools, by a rule of this id.
fn rules(id: &str, tools: &str) -> String {
    format!(
        "version: hangu/v1\nkind: Policy\nscope: platform\nrules:\n  \
         - {{ id: {id}, effect: allow, roles: [member], tools: [\"{tools}\"] }}\n"
    )
}

fn upstream() -> Upstream {
    let up = Upstream::start(&["echo", "other"].map(tool));
    up.on_call(|seen| seen.result(text_result("done")));
    up
}

fn setup(up: &Upstream) -> Setup {
    Setup::new().upstream("up", up, "", "").policy("platform.yaml", &rules("first", "*/echo"))
}

/// Replaces a file as an editor does that loses nothing.
fn put(home: &Home, name: &str, text: &str) {
    let path = home.path("policies").join(name);
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

#[track_caller]
fn soon(what: &str, mut so: impl FnMut() -> bool) {
    let begun = Instant::now();
    until(what, &mut so);
    assert!(begun.elapsed() < SOON, "{what}: it took {:?}", begun.elapsed());
}

fn lists(gateway: &Process) -> Vec<String> {
    gateway.client("/mcp/up", Dialect::Modern).list()
}

/// The answer of `/readyz`, and what it says of the policies.
fn ready(gateway: &Process) -> (u16, Value) {
    let answer = exchange(gateway.admin, "GET", "/readyz", &[], b"").unwrap();
    let body = answer.json();
    let checks = body["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "policy").unwrap();
    (answer.status, check.clone())
}

fn counted(gateway: &Process, result: &str) -> u64 {
    let name = format!("hangu_policy_reloads_total{{hangu_reload_result=\"{result}\"}} ");
    let page = gateway.metrics();
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |number| number.parse::<f64>().unwrap() as u64)
}

fn events(gateway: &Process, event: &str) -> Vec<Value> {
    let mut records = gateway.home().audit();
    records.retain(|record| record["event"] == event);
    records
}

/// Opens a stream of notices; each message that comes on it is sent.
fn listen(gateway: &Process) -> mpsc::Receiver<Value> {
    let body = json!({ "jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": {
        "notifications": { "toolsListChanged": true },
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                   "io.modelcontextprotocol/clientCapabilities": {} } } })
    .to_string();
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    write!(
        stream,
        "POST /mcp/up HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {KEY}\r\nSSO-Emp-Id: E1\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let (send, messages) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            // A chunk may end between the field's name and what it says.
            if let Ok(message) = serde_json::from_str::<Value>(line.trim_start_matches("data: "))
                && message.is_object()
                && send.send(message).is_err()
            {
                return;
            }
        }
    });
    let first = messages.recv_timeout(SOON).unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    messages
}

#[test]
fn an_edited_file_changes_lists_and_calls_and_whoever_listens_is_told() {
    let up = upstream();
    let gateway = setup(&up).start();
    assert_eq!(lists(&gateway), ["echo"]);
    let notices = listen(&gateway);
    put(gateway.home(), "platform.yaml", &rules("second", "*/other"));
    soon("the list changes", || lists(&gateway) == ["other"]);
    let told = notices.recv_timeout(SOON).unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect);
        assert_eq!(client.call("other", json!({})).word(), "ok");
        assert_ne!(client.call("echo", json!({})).word(), "ok");
    }
    assert_eq!((counted(&gateway, "applied"), counted(&gateway, "rejected")), (1, 0));
    let answer = gateway.client("/mcp/up", Dialect::Modern).call("other", json!({}));
    let record = gateway.record_of(&answer);
    assert_eq!(record["rules"], json!(["second"]));
    let applied = events(&gateway, "policy_applied");
    assert_eq!(applied.len(), 1, "{applied:?}");
    assert_eq!(applied[0]["revision"], record["revision"]);
    let (status, check) = ready(&gateway);
    assert_eq!(status, 200);
    assert_eq!(check["state"], format!("revision {}", record["revision"].as_str().unwrap()));
}

#[test]
fn a_broken_file_leaves_the_last_good_in_force_until_it_is_repaired() {
    let up = upstream();
    let gateway = setup(&up).start();
    let (_, before) = ready(&gateway);
    let broken = "version: hangu/v1\nkind: Policy\nscope: platform\nrules:\n  \
                  - { id: first, effect: alow, roles: [member] }\n";
    put(gateway.home(), "platform.yaml", broken);
    soon("it is stale", || ready(&gateway).1["state"] == "stale");
    let (status, check) = ready(&gateway);
    assert_eq!((status, &check["ok"], &check["faults"]), (200, &json!(true), &json!(1)));
    assert!(check["since"].as_str().unwrap().ends_with('Z'), "{check}");
    assert_eq!(format!("revision {}", check["revision"].as_str().unwrap()), before["state"]);
    assert_eq!(lists(&gateway), ["echo"]);
    // Also once it was looked at again.
    thread::sleep(SOON);
    assert_eq!((counted(&gateway, "applied"), counted(&gateway, "rejected")), (0, 1));
    let log = gateway.log();
    let places = log.lines().filter(|line| line.contains("platform.yaml:5:26: ")).count();
    assert_eq!(places, 1, "{log}");
    let rejected = events(&gateway, "policy_rejected");
    assert_eq!((rejected.len(), &rejected[0]["faults"]), (1, &json!(1)));
    assert_eq!(rejected[0]["revision"], check["revision"]);
    // Back to what it was: nothing is applied, and nothing is stale.
    put(gateway.home(), "platform.yaml", &rules("first", "*/echo"));
    soon("it is fresh", || ready(&gateway).1 == before);
    assert_eq!((counted(&gateway, "applied"), counted(&gateway, "unchanged")), (0, 1));
    put(gateway.home(), "platform.yaml", &rules("first", "*/*"));
    soon("it is applied", || lists(&gateway) == ["echo", "other"]);
}

#[test]
fn what_the_directory_says_takes_effect() {
    let up = upstream();
    let gateway = setup(&up).start();
    let directory = |employee: &str| {
        format!("version: hangu/v1\nkind: Directory\nemployees:\n  E1: {{ {employee} }}\n")
    };
    put(gateway.home(), "directory.yaml", &directory("tenant: acme, roles: [visitor]"));
    soon("the role is gone", || lists(&gateway).is_empty());
    put(gateway.home(), "directory.yaml", &directory("tenant: globex, roles: [member]"));
    let client = gateway.client("/mcp/up", Dialect::Modern);
    soon("another tenant's", || client.call("echo", json!({})).status == 403);
    put(gateway.home(), "directory.yaml", &directory("tenant: acme, roles: [member]"));
    soon("the role is back", || client.call("echo", json!({})).word() == "ok");
}

#[test]
fn a_limit_that_did_not_change_goes_on_counting() {
    let up = upstream();
    let limits = |hourly: u32, more: &str| {
        format!(
            "{}limits:\n  - {{ id: hourly, per: [principal], rate: {hourly}/1h, burst: {hourly} }}\n{more}",
            rules("first", "*/echo")
        )
    };
    let gateway = setup(&up).policy("platform.yaml", &limits(2, "")).start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    let words = |times| -> Vec<String> {
        (0..times).map(|_| client.call("echo", json!({})).word()).collect()
    };
    assert_eq!(words(3), ["ok", "ok", "rate_limited"]);
    put(gateway.home(), "platform.yaml", &limits(2, "  - { id: b, per: [tool], rate: 9/1h }\n"));
    soon("it is applied", || counted(&gateway, "applied") == 1);
    assert_eq!(words(1), ["rate_limited"]);
    put(gateway.home(), "platform.yaml", &limits(3, ""));
    soon("it is applied", || counted(&gateway, "applied") == 2);
    assert_eq!(words(4), ["ok", "ok", "ok", "rate_limited"]);
}

/// Writes a version of the files as the kubelet does, and makes it the one that is seen.
fn swap(folder: &Path, version: &str, files: &[(String, String)]) {
    let hidden = folder.join(version);
    fs::create_dir(&hidden).unwrap();
    for (name, text) in files {
        fs::write(hidden.join(name), text).unwrap();
    }
    let old = fs::read_link(folder.join("..data")).ok();
    symlink(version, folder.join("..data_tmp")).unwrap();
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    for (name, _) in files {
        let link = folder.join(name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(name), link).unwrap();
        }
    }
    if let Some(old) = old {
        fs::remove_dir_all(folder.join(old)).unwrap();
    }
}

#[test]
fn a_mounted_config_map_is_followed_from_swap_to_swap() {
    let up = upstream();
    let home = setup(&up).write();
    let folder = home.path("policies");
    let mut files: Vec<(String, String)> = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        files.push((name, fs::read_to_string(&path).unwrap()));
        fs::remove_file(path).unwrap();
    }
    let mut version = |number: u32, tools: &str| {
        for (name, text) in &mut files {
            if name == "platform.yaml" {
                *text = rules("first", tools);
            }
        }
        swap(&folder, &format!("..2026_11_30_{number}"), &files);
    };
    version(0, "*/echo");
    let gateway = home.serve(&[]);
    assert_eq!(lists(&gateway), ["echo"]);
    for (number, tool) in (1..).zip(["other", "echo", "other"]) {
        version(number, &format!("*/{tool}"));
        soon("the swap is seen", || lists(&gateway) == [tool]);
    }
    assert_eq!(counted(&gateway, "rejected"), 0, "{}", gateway.log());
}

#[test]
fn a_hangup_loads_at_once_and_says_what_needs_a_restart() {
    let up = upstream();
    let mut gateway = setup(&up).start();
    gateway.signal(1);
    let log = gateway.wait_for_log("SIGHUP: loaded anew what can be");
    let said = |log: &str| -> Value {
        let line = log.lines().rfind(|line| line.contains("SIGHUP: loaded")).unwrap();
        serde_json::from_str(line).unwrap()
    };
    let first = said(&log);
    assert_eq!(
        (&first["policies"], &first["configuration"]),
        (&json!("unchanged"), &json!("unchanged"))
    );
    assert_eq!(counted(&gateway, "unchanged"), 1);
    let file = gateway.home().path("hangu.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}# changed\n")).unwrap();
    put(gateway.home(), "platform.yaml", &rules("second", "*/other"));
    gateway.signal(1);
    gateway.wait_for_log("it needs a restart");
    // At once, unless the folder was faster.
    assert_eq!(counted(&gateway, "applied"), 1);
    assert_eq!(lists(&gateway), ["other"]);
}

#[test]
fn under_load_a_reload_drops_no_call_and_no_call_mixes_two_revisions() {
    let up = upstream();
    // Whose role it is and what the role may do change together, in two files.
    let directory = |role: &str| {
        format!(
            "version: hangu/v1\nkind: Directory\nemployees:\n  E1: {{ tenant: acme, roles: [{role}] }}\n"
        )
    };
    let policy = |role: &str| {
        rules(&format!("of-{role}"), "*/echo").replace("[member]", &format!("[{role}]"))
    };
    let home = setup(&up)
        .policy("platform.yaml", &policy("red"))
        .policy("directory.yaml", &directory("red"))
        .write();
    let both = |role: &str| format!("{}---\n{}", policy(role), directory(role));
    fs::remove_file(home.path("policies/directory.yaml")).unwrap();
    put(&home, "platform.yaml", &both("red"));
    let gateway = home.serve(&[]);
    assert_eq!(lists(&gateway), ["echo"]);
    let stop = AtomicBool::new(false);
    let calls: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let client = gateway.client("/mcp/up", Dialect::ALL[number % 3]);
                let stop = &stop;
                scope.spawn(move || {
                    let mut calls = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let answer = client.call("echo", json!({}));
                        assert_eq!(answer.word(), "ok", "{answer:?}");
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        for round in 0..50 {
            put(&home, "platform.yaml", &both(["blue", "red"][round % 2]));
            gateway.signal(1);
            thread::sleep(Duration::from_millis(100));
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let applied = counted(&gateway, "applied");
    assert!(applied >= 20, "{applied} reloads");
    let is_call = |record: &&Value| record["event"] == "call" && record["method"] == "tools/call";
    let records = gateway.audit_until(|records| records.iter().filter(is_call).count() >= calls);
    // Of each revision: the rule that decides by it, and the role that is meant.
    let mut known: HashMap<&str, (&Value, &Value)> = HashMap::new();
    for record in records.iter().filter(is_call) {
        let now = (&record["rules"], &record["principal"]["roles"]);
        let revision = record["revision"].as_str().unwrap();
        let first = *known.entry(revision).or_insert(now);
        assert_eq!(first, now, "{record}");
        let role = now.1[0].as_str().unwrap();
        assert_eq!(*now.0, json!([format!("of-{role}")]), "{record}");
    }
    assert_eq!(known.len(), 2, "both revisions decided calls");
    assert_eq!(records.iter().filter(is_call).count(), calls);
}

#[test]
fn a_file_in_shadow_is_decided_by_what_was_enforced_of_it_also_after_a_restart() {
    let up = upstream();
    let home = setup(&up).write();
    let shadow = rules("second", "*/other").replace("rules:", "mode: shadow\nrules:");
    let mut gateway = home.serve(&[]);
    gateway.wait_for_log("Hangu serves");
    until("what is enforced is kept", || home.path("audit/hangu.jsonl.policies/enforced").exists());
    put(&home, "platform.yaml", &shadow);
    soon("it is applied", || counted(&gateway, "applied") == 1);
    assert_eq!(lists(&gateway), ["echo"]);
    let kept = home.path("audit/hangu.jsonl.policies/revisions");
    until("both are kept", || fs::read_dir(&kept).unwrap().count() == 2);
    gateway.signal(15);
    gateway.wait();
    let mut gateway = home.serve(&[]);
    assert!(!gateway.log().contains("P120"), "{}", gateway.log());
    gateway.wait_for_log("Policy mode shadow");
    assert_eq!(lists(&gateway), ["echo"]);
    gateway.signal(15);
    gateway.wait();
    // Nobody knows any more what was enforced.
    fs::remove_dir_all(home.path("audit/hangu.jsonl.policies")).unwrap();
    let gateway = home.serve(&[]);
    assert!(gateway.log().contains("P120"), "{}", gateway.log());
    assert!(lists(&gateway).is_empty());
    put(&home, "platform.yaml", ALLOW_MEMBERS);
    soon("it is enforced", || lists(&gateway) == ["echo", "other"]);
}

/// Files that contradict their own tables are no policies that anybody meant.
#[test]
fn a_case_that_does_not_hold_keeps_the_last_good_in_force() {
    let up = upstream();
    let gateway = setup(&up).start();
    assert_eq!(lists(&gateway), ["echo"]);
    let case = |tool: &str| {
        format!(
            "version: hangu/v1\nkind: PolicyTest\ncases:\n  - {{ name: it stays open, as: {{ tenant: \
             acme, roles: [member] }}, call: up/{tool}, expect: {{ decision: allow }} }}\n"
        )
    };
    put(gateway.home(), "cases.yaml", &case("echo"));
    put(gateway.home(), "platform.yaml", &rules("second", "*/other"));
    soon("it is rejected", || counted(&gateway, "rejected") > 0);
    assert_eq!(lists(&gateway), ["echo"]);
    let log = gateway.log();
    assert!(
        log.contains("P017") && log.contains("the case `it stays open` does not hold"),
        "{log}"
    );
    put(gateway.home(), "cases.yaml", &case("other"));
    soon("it is in force", || lists(&gateway) == ["other"]);
}

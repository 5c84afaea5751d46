//! What outlives a process, and what several know of each other.

use std::{
    process::Command,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{EVERYTHING, EYES, asked, pins, with_tokens};
use crate::{
    process_support::{Dialect, Process, Setup, Shelf, Upstream, text_result, tool, until},
    support::postgres,
};

const SEND: &str = "send: { risk: write_low, idempotency: none }";

fn described(name: &str, text: &str) -> Value {
    let mut tool = tool(name);
    tool["description"] = json!(text);
    tool
}

fn names(gateway: &Process) -> Vec<String> {
    gateway.client("/mcp/up", Dialect::Modern).list()
}

fn word(gateway: &Process, tool: &str) -> String {
    gateway.client("/mcp/up", Dialect::Modern).call(tool, json!({})).word()
}

#[test]
fn a_first_use_outlives_the_process() {
    let (up, shop) = Shelf { tools: vec![tool("send"), tool("look")], ..Shelf::default() }.serve();
    let setup = with_tokens(Setup::new()).upstream("up", &up, "", SEND);
    let gateway = setup.policy("all.yaml", EVERYTHING).start();
    assert_eq!(names(&gateway), ["send", "look"]);
    let first_use =
        |record: &Value| record["event"] == "pin_change" && record["action"] == "first_use";
    gateway.audit_until(|records| records.iter().filter(|it| first_use(it)).count() == 2);
    let home = gateway.home().clone();
    gateway.signal(9);
    drop(gateway);
    // It changes while nobody looks.
    shop.change(|shelf| {
        shelf.tools = vec![described("send", "Sends it to me."), described("look", "Looks at me.")];
    });
    let gateway = home.serve(&[]);
    assert_eq!(names(&gateway), ["look"]);
    assert_eq!(word(&gateway, "send"), "unsafe_action_blocked");
    let listed = gateway.client("/mcp/up", Dialect::Modern).send("tools/list", json!({})).result();
    assert!(!listed.to_string().contains("at me"), "{listed}");
    assert!(gateway.log().contains("a tool's definition has changed under way"));
    let (_, listed) = pins(&gateway, EYES, &["ls", "--held"]);
    assert!(listed.starts_with("changed  up/send  version 2 listed sha256:"), "{listed}");
}

/// Two gateways with one store, whose servers do not agree.
fn two_with(store: &str, env: &[(&'static str, String)]) {
    let serve =
        |text: &str| Shelf { tools: vec![described("send", text)], ..Shelf::default() }.serve();
    let ((one, shop), (two, _)) = (serve("one"), serve("two"));
    let start = |up| {
        let mut setup = with_tokens(Setup::new()).config(store).upstream("up", up, "", SEND);
        for (name, value) in env {
            setup = setup.env(name, value);
        }
        setup.policy("all.yaml", EVERYTHING).start()
    };
    let here = start(&one);
    assert_eq!(names(&here), ["send"]);
    let there = start(&two);
    assert_eq!(names(&there), [""; 0], "another has seen another first");
    assert_eq!(word(&there, "send"), "unsafe_action_blocked");

    let (code, said) = pins(&here, EYES, &["approve", "up/send", "--version", "2"]);
    assert!(code == Some(0) && said.contains("held: its server lists version 1"), "{said}");
    assert_eq!(names(&here), [""; 0], "at once where it was asked for");
    until("the other hears of it", || names(&there) == ["send"]);
    let (code, said) = pins(&there, EYES, &["rollback", "up/send"]);
    assert!(code == Some(0) && said.contains("back to up/send version 1"), "{said}");
    until("and of going back", || names(&here) == ["send"]);
    assert_eq!(names(&there), [""; 0]);
    // Both agree at last.
    shop.change(|shelf| shelf.tools = vec![described("send", "two")]);
    until("it has changed", || names(&here).is_empty());
    assert_eq!(pins(&here, EYES, &["approve", "up/send"]).0, Some(0));
    assert_eq!(names(&here), ["send"]);
    until("at both", || names(&there) == ["send"]);
    let history = asked(&there, &["ls", "up/send"]);
    assert_eq!(history["versions"].as_array().unwrap().len(), 2, "{history:#}");
    let how: Vec<_> =
        history["approvals"].as_array().unwrap().iter().map(|it| &it["how"]).collect();
    assert_eq!(how, ["first_use", "approve", "rollback", "approve"]);
}

#[test]
fn processes_with_one_file_agree_on_definitions() {
    let folder = tempfile::tempdir().unwrap();
    two_with(&format!("store: \"sqlite:{}/shared.db\"", folder.path().display()), &[]);
}

#[test]
fn processes_with_one_database_agree_on_definitions() {
    let Some(server) = postgres::shared() else { return };
    let name = format!("hangu_pins_{:016x}", rand::random::<u64>());
    crate::durable::create_database(&server, &name);
    two_with("store: { env: DATABASE }", &[("DATABASE", format!("{server}/{name}"))]);
}

/// What was acknowledged is there, at whatever moment the process is killed.
#[test]
fn a_kill_loses_no_approval_that_was_acknowledged() {
    let (up, shop) = Shelf { tools: vec![tool("send")], ..Shelf::default() }.serve();
    let setup = with_tokens(Setup::new()).upstream("up", &up, "", SEND);
    let mut gateway = setup.policy("all.yaml", EVERYTHING).start();
    let home = gateway.home().clone();
    assert_eq!(names(&gateway), ["send"]);
    shop.change(|shelf| shelf.tools = vec![described("send", "other")]);
    until("it is known", || asked(&gateway, &["ls", "up/send"])["versions"][1].is_object());
    let mut acknowledged = 1;
    for round in 0..4_u64 {
        let (done, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let wishes = [("rollback", "2"), ("approve", "1")];
                for (wish, version) in wishes.into_iter().cycle() {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let (code, _) = pins(&gateway, EYES, &[wish, "up/send", "--version", version]);
                    answered.fetch_add(usize::from(code == Some(0)), Ordering::Relaxed);
                }
            });
            until("one is answered", || answered.load(Ordering::Relaxed) > 0);
            // Somewhere in the middle of one of the next.
            thread::sleep(Duration::from_millis(37 * round));
            gateway.signal(9);
            done.store(true, Ordering::Relaxed);
        });
        acknowledged += answered.into_inner();
        drop(gateway);
        gateway = home.serve(&[]);
        let history = asked(&gateway, &["ls", "up/send"]);
        let kept = history["approvals"].as_array().unwrap();
        assert!(kept.len() >= acknowledged, "{acknowledged} of {history:#}");
        // One that was not answered may be there as well.
        acknowledged = kept.len();
        let in_force = kept.last().unwrap()["version"].as_u64();
        let expected: &[&str] = if in_force == Some(2) { &["send"] } else { &[] };
        assert_eq!(names(&gateway), expected);
    }
}

#[test]
fn what_cannot_be_kept_is_held_and_all_else_goes_on() {
    let up = Upstream::start(&[tool("pay"), tool("echo")]);
    up.on_call(|seen| seen.result(text_result("done")));
    let setup = with_tokens(Setup::new()).upstream("up", &up, "", "").file_blocks(100_000);
    let gateway = setup.start();
    assert_eq!(names(&gateway), ["pay", "echo"]);
    let room = |bytes: &str| {
        let limit = ["--pid", &gateway.pid().to_string(), &format!("--fsize={bytes}:")];
        assert!(Command::new("prlimit").args(limit).status().unwrap().success());
    };
    // Nothing more can be written.
    room("1024");
    up.lists(&["pay", "echo", "fresh"].map(tool));
    until("it is told", || gateway.log().contains("new definitions of tools cannot be kept"));
    assert_eq!(names(&gateway), ["pay", "echo"]);
    assert_eq!(word(&gateway, "fresh"), "unsafe_action_blocked");
    assert_eq!(word(&gateway, "echo"), "ok");
    let (_, listed) = pins(&gateway, EYES, &["ls", "--held"]);
    assert!(listed.starts_with("unkept   up/fresh  version - listed sha256:"), "{listed}");
    let (code, said) = pins(&gateway, EYES, &["approve", "up/fresh"]);
    assert!(code != Some(0) && !said.contains("approved"), "{said}");
    room("unlimited");
    until("it is kept", || names(&gateway) == ["pay", "echo", "fresh"]);
    assert_eq!(word(&gateway, "fresh"), "ok");
}

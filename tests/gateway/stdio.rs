//! Servers that are child processes: who gets which, what they may do wrong, and that nothing is
//! left of them.

use std::{path::Path, thread, time::Duration};

use hangu::cli::check;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{
    process_support::{Client, Dialect, Process, Setup, until},
    stdio_server::{alive, command, started, variables},
};

/// A gateway before one server, and where the processes leave their traces.
struct Scene {
    gateway: Option<Process>,
    place: TempDir,
}

impl Scene {
    fn new(mode: &str, more: &str) -> Self {
        Self::with(mode, more, |setup| setup)
    }

    fn with(mode: &str, more: &str, change: impl FnOnce(Setup) -> Setup) -> Self {
        let place = tempfile::tempdir().unwrap();
        let entry = format!(
            "{{ command: {}, poll: 1s, env: {{ {} }}{}{more} }}",
            command(),
            variables(mode, place.path()),
            if more.is_empty() { "" } else { ", " },
        );
        let setup = change(Setup::new().upstream_entry("up", &entry));
        Self { gateway: Some(setup.start()), place }
    }

    fn gateway(&self) -> &Process {
        self.gateway.as_ref().unwrap()
    }

    fn client(&self) -> Client {
        self.gateway().client("/mcp/up", Dialect::Modern)
    }

    fn place(&self) -> &Path {
        self.place.path()
    }

    #[track_caller]
    fn ready(self) -> Self {
        until("its tools are listed", || lists(&self.client()));
        self
    }

    /// Ends the gateway as an operator does.
    #[track_caller]
    fn stop(&mut self) -> String {
        let mut gateway = self.gateway.take().unwrap();
        gateway.signal(15);
        assert!(gateway.wait().success());
        gateway.log()
    }
}

/// Whether the server's tools are known; before that a listing is an error.
fn lists(client: &Client) -> bool {
    client.send("tools/list", json!({})).text().contains("\"echo\"")
}

const MODES: [&str; 2] = ["legacy", "modern"];

#[test]
fn a_process_lists_and_answers() {
    for mode in MODES {
        let mut scene = Scene::new(mode, "").ready();
        let answer = scene.client().call("echo", json!({ "a": "b\nc", "n": 1.0 }));
        assert_eq!((answer.word(), answer.said()), ("ok".into(), r#"{"a":"b\nc","n":1.0}"#.into()));
        for dialect in Dialect::ALL {
            let answer = scene.gateway().client("/mcp/up", dialect).call("echo", json!({}));
            assert_eq!(answer.said(), "{}", "{mode} {dialect:?}: {answer:?}");
        }
        scene.stop();
        assert_eq!(alive(scene.place()), [0; 0], "{mode}");
    }
}

#[test]
fn arguments_over_several_lines_are_one_message() {
    let scene = Scene::new("legacy", "").ready();
    let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\",\n\
                \"arguments\":{\r\n\"a\":\n1}}}";
    let client = scene.gateway().client("/mcp/up", Dialect::Legacy);
    let key = [("X-Api-Key", crate::process_support::KEY), ("SSO-Emp-Id", "E1")];
    let answer = client.raw("/mcp/up", &key, body.as_bytes()).unwrap();
    assert_eq!(answer.said(), "{\"a\":1}", "{answer:?}");
}

#[test]
fn progress_comes_under_the_clients_own_token() {
    for mode in MODES {
        let scene = Scene::new(mode, "").ready();
        let client = scene.client().meta("progressToken", json!("mine"));
        let answer = client.call("progress", json!({}));
        let text = answer.text();
        assert_eq!(text.matches("\"progressToken\":\"mine\"").count(), 3, "{mode}: {text}");
        assert_eq!(answer.said(), "done", "{mode}");
    }
}

#[test]
fn calls_run_side_by_side() {
    for mode in MODES {
        let scene = Scene::new(mode, "").ready();
        let begun = Instant::now();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let answer = scene.client().call("slow", json!({ "ms": 500 }));
                    assert_eq!(answer.said(), "at last", "{answer:?}");
                });
            }
            // While they are under way another call is answered.
            let answer = scene.client().call("echo", json!({ "quick": true }));
            assert_eq!(answer.said(), "{\"quick\":true}");
        });
        assert!(begun.elapsed() < Duration::from_secs(3), "{mode}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_cancelled_call_is_told_to_the_server() {
    for mode in MODES {
        let scene = Scene::new(mode, "timeout: 300ms").ready();
        let answer = scene.client().call("slow", json!({ "ms": 4_000 }));
        assert_eq!(answer.word(), "timeout", "{mode}: {answer:?}");
        until("the server is told", || {
            let seen = scene.client().call("seen", json!({})).said();
            seen.contains("notifications/cancelled")
        });
    }
}

#[test]
fn each_employee_has_a_process_with_its_own_state() {
    let scene = Scene::new("legacy", "").ready();
    let of = |employee: &str| scene.client().employee(employee);
    let (first, second) = (of("E1").call("pid", json!({})), of("E2").call("pid", json!({})));
    assert_ne!(first.said(), second.said());
    assert_eq!(of("E1").call("pid", json!({})).said(), first.said(), "and keeps it");
    assert_eq!(of("E1").call("count", json!({})).said(), "3");
    assert_eq!(of("E2").call("count", json!({})).said(), "2");
    // Beside theirs one for the gateway's own listing; the one that was asked for its era ends.
    until("the others end", || alive(scene.place()).len() == 3);
}

#[test]
fn a_stateless_server_has_one_process_for_all() {
    let scene = Scene::new("modern", "").ready();
    let of = |employee: &str| scene.client().employee(employee).call("pid", json!({})).said();
    assert_eq!(of("E1"), of("E2"));
    assert_eq!(started(scene.place()).len(), 1);
}

#[test]
fn employees_share_a_process_where_the_operator_says_so() {
    let scene = Scene::new("legacy", "stateless: true").ready();
    let of = |employee: &str| scene.client().employee(employee).call("pid", json!({})).said();
    assert_eq!(of("E1"), of("E2"));
}

#[test]
fn a_crash_in_the_middle_of_a_call_is_told_and_the_next_call_works() {
    for mode in MODES {
        let scene = Scene::new(mode, "").ready();
        let before = scene.client().call("pid", json!({})).said();
        let answer = scene.client().call("crash", json!({}));
        let fault = answer.fault();
        assert_eq!(fault["code"], "external_service_error", "{mode}: {answer:?}");
        assert_eq!(fault["outcome"], "unknown", "{mode}: {answer:?}");
        let message = answer.text();
        assert!(message.contains("ended before it answered"), "{mode}: {message}");
        assert!(message.contains("exit status: 3"), "{mode}: {message}");
        let after = scene.client().call("pid", json!({}));
        assert_eq!(after.word(), "ok", "{mode}: {after:?}");
        assert_ne!(after.said(), before, "{mode}");
    }
}

#[test]
fn calls_that_keep_crashing_a_server_are_told_to_wait() {
    let scene = Scene::new("legacy", "").ready();
    let mut crashes = 0;
    let refused = loop {
        let answer = scene.client().call("crash", json!({}));
        assert_eq!(answer.word(), "external_service_error", "{answer:?}");
        if answer.text().contains("times in a row") {
            break answer;
        }
        assert!(answer.text().contains("before it answered"), "{answer:?}");
        crashes += 1;
        assert!(crashes < 10, "it is started again and again");
    };
    assert!(crashes >= 2, "the first crash is forgiven");
    assert_eq!(refused.fault()["retryable"], true, "{refused:?}");
    assert!(refused.fault()["outcome"].is_null(), "it was not called: {refused:?}");
    until("it is started again", || scene.client().call("echo", json!({})).word() == "ok");
}

#[test]
fn the_last_words_of_a_process_are_heard() {
    let scene = Scene::new("legacy", "").ready();
    assert_eq!(scene.client().call("close", json!({})).said(), "my last words");
    let next = scene.client().call("echo", json!({})).said();
    // A call that reaches it while it is ending is told so, and the one after that has another.
    if next.contains("ended before it answered") {
        assert_eq!(scene.client().call("echo", json!({})).said(), "{}");
    } else {
        assert_eq!(next, "{}");
    }
}

#[test]
fn a_server_that_cannot_start_is_left_alone_ever_longer() {
    let scene = Scene::new("broken", "");
    thread::sleep(Duration::from_secs(4));
    let starts = started(scene.place()).len();
    assert!((2..=7).contains(&starts), "{starts} starts in 4 s");
    let ready = scene.gateway().log();
    assert!(ready.contains("it cannot start: nothing works"), "its words are in the log: {ready}");
    assert!(ready.contains("exit status: 7"), "{ready}");
    // The first failure is in the warning, the others are not repeated.
    assert_eq!(ready.matches("listing failed:").count(), 1, "{ready}");
    let word = scene.client().call("echo", json!({})).word();
    assert_ne!(word, "ok");
}

#[test]
fn a_command_that_is_none_is_told_by_the_listing() {
    let entry = "{ command: [/nowhere/at-all], poll: 1s }";
    let mut gateway = Setup::new().upstream_entry("up", entry).start();
    let log = gateway.wait_for_log("listing failed");
    assert!(log.contains("`up` cannot be started"), "{log}");
}

#[test]
fn noise_on_the_output_is_ignored_and_a_flood_ends_the_process() {
    let scene = Scene::new("legacy", "").ready();
    let answer = scene.client().call("noise", json!({ "lines": 500 }));
    assert_eq!(answer.said(), "after the noise", "{answer:?}");
    assert!(scene.gateway().log().contains("what is no message"), "the operator is told");
    let answer = scene.client().call("noise", json!({ "lines": 5_000 }));
    assert_eq!(answer.word(), "external_service_error", "{answer:?}");
    assert!(answer.text().contains("no message"), "{answer:?}");
    assert_eq!(scene.client().call("echo", json!({})).word(), "ok");
}

#[test]
fn a_message_that_is_too_large_ends_its_call_and_no_other() {
    for mode in MODES {
        let scene = Scene::new(mode, "max_response_bytes: 64KiB").ready();
        let before = scene.client().call("pid", json!({})).said();
        thread::scope(|scope| {
            scope.spawn(|| {
                let slow = scene.client().call("slow", json!({ "ms": 700 }));
                assert_eq!(slow.said(), "at last", "{mode}: {slow:?}");
            });
            thread::sleep(Duration::from_millis(200));
            let huge = scene.client().call("huge", json!({ "bytes": 3_000_000 }));
            assert_eq!(huge.word(), "payload_too_large", "{mode}: {huge:?}");
        });
        let fits = scene.client().call("huge", json!({ "bytes": 60_000 }));
        assert_eq!(fits.said().len(), 60_000, "{mode}");
        assert_eq!(scene.client().call("pid", json!({})).said(), before, "{mode}");
    }
}

#[test]
fn a_flood_of_errors_output_holds_nobody_up() {
    let mut scene = Scene::new("legacy", "").ready();
    let answer = scene.client().call("chatter", json!({}));
    assert_eq!(answer.said(), "chattered", "{answer:?}");
    let log = scene.stop();
    let lines = log.lines().filter(|line| line.contains("chatter ")).count();
    assert!((1..=200).contains(&lines), "{lines} lines");
    assert!(log.contains("says too much to be logged"), "{log}");
    assert!(!log.contains("\"level\":\"ERROR\""), "{log}");
}

#[test]
fn a_process_sees_what_the_operator_lists_and_nothing_else() {
    let more = |setup: Setup| setup.env("SECRET_OF_THE_GATEWAY", "hidden").env("TOKEN", "t0ken");
    let place = tempfile::tempdir().unwrap();
    let entry = format!(
        "{{ command: {}, poll: 1s, env: {{ {}, LEVEL: \"7\", API_TOKEN: {{ env: TOKEN }} }} }}",
        command(),
        variables("modern", place.path()),
    );
    let gateway = more(Setup::new().upstream_entry("up", &entry)).start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    until("its tools are listed", || lists(&client));
    let said = client.call("env", json!({})).said();
    let names: Vec<&str> = said.lines().filter_map(|line| line.split('=').next()).collect();
    let allowed =
        ["API_TOKEN", "HANGU_TEST_PLACE", "HANGU_TEST_SERVER", "HOME", "LANG", "LEVEL", "PATH"];
    let strangers: Vec<&&str> = names.iter().filter(|name| !allowed.contains(name)).collect();
    assert!(strangers.is_empty(), "{strangers:?}");
    assert!(said.contains("API_TOKEN=t0ken") && said.contains("LEVEL=7"), "{said}");
    assert!(!gateway.log().contains("t0ken"));
}

#[test]
fn a_process_inherits_no_socket_and_no_file_of_the_gateway() {
    let scene = Scene::new("legacy", "").ready();
    let said = scene.client().call("files", json!({})).said();
    let strangers: Vec<&str> = said
        .lines()
        .filter(|file| !file.starts_with("pipe:") && !file.starts_with("/proc/"))
        .filter(|file| !file.starts_with("/dev/null"))
        .collect();
    assert!(strangers.is_empty() && said.contains("pipe:"), "{said}");
}

#[test]
fn a_question_of_a_server_is_refused_and_its_call_goes_on() {
    let scene = Scene::new("legacy", "").ready();
    let answer = scene.client().call("ask", json!({}));
    assert_eq!(answer.said(), "-32601", "{answer:?}");
}

#[test]
fn a_server_that_does_not_answer_the_probe_or_dies_of_it_is_spoken_to() {
    for mode in ["silent", "fragile"] {
        let scene = Scene::new(mode, "timeout: 1s").ready();
        assert_eq!(scene.client().call("echo", json!({})).said(), "{}", "{mode}");
        // The listing's process and the employee's; the one that was probed is gone.
        until("the probed process ends", || alive(scene.place()).len() == 2);
    }
}

#[test]
fn there_are_no_more_processes_than_allowed() {
    let scene = Scene::new("legacy", "max_processes: 2").ready();
    assert_eq!(scene.client().employee("E1").call("echo", json!({})).word(), "ok");
    let refused = scene.client().employee("E2").call("echo", json!({}));
    assert_eq!(refused.word(), "rate_limited", "{refused:?}");
    assert!(refused.text().contains("max_processes"), "{refused:?}");
    // Whoever has one keeps it.
    assert_eq!(scene.client().employee("E1").call("echo", json!({})).word(), "ok");
    assert!(alive(scene.place()).len() <= 2);
}

#[test]
fn nothing_is_left_after_a_drain() {
    for (mode, wrap) in
        [("legacy", false), ("modern", false), ("stubborn", false), ("stubborn", true)]
    {
        let place = tempfile::tempdir().unwrap();
        // What ignores SIGTERM is killed.
        let command = match wrap {
            true => command().replacen(
                '[',
                "[\"/bin/sh\", \"-c\", \"trap '' TERM; exec \\\"$0\\\" \\\"$@\\\"\", ",
                1,
            ),
            false => command(),
        };
        let entry = format!(
            "{{ command: {command}, poll: 1s, stop_wait: 300ms, env: {{ {} }} }}",
            variables(mode, place.path())
        );
        let mut gateway = Setup::new().upstream_entry("up", &entry).start();
        let client = gateway.client("/mcp/up", Dialect::Modern);
        until("its tools are listed", || lists(&client));
        // A process that the server started itself is of its group.
        assert_eq!(client.call("child", json!({})).said(), "a child");
        assert!(alive(place.path()).len() >= 2, "{mode}");
        gateway.signal(15);
        let begun = Instant::now();
        assert!(gateway.wait().success());
        assert!(begun.elapsed() < Duration::from_secs(4), "{mode} {wrap}: {:?}", begun.elapsed());
        until("nothing is left", || alive(place.path()).is_empty());
    }
}

#[test]
fn servers_see_the_end_of_a_gateway_that_is_killed() {
    let mut scene = Scene::new("legacy", "").ready();
    assert_eq!(scene.client().call("echo", json!({})).word(), "ok");
    assert!(!alive(scene.place()).is_empty());
    let mut gateway = scene.gateway.take().unwrap();
    gateway.signal(9);
    gateway.wait();
    until("their input has ended, and so have they", || alive(scene.place()).is_empty());
}

#[test]
fn a_pipe_is_a_pipe_in_the_metrics() {
    let scene = Scene::new("modern", "").ready();
    assert_eq!(scene.client().call("echo", json!({})).word(), "ok");
    let is_call = |line: &&str| {
        line.starts_with("mcp_client_operation_duration_seconds_count")
            && line.contains("tools/call")
    };
    until("the call is counted", || scene.gateway().metrics().lines().any(|line| is_call(&line)));
    let metrics = scene.gateway().metrics();
    let line = metrics.lines().find(is_call).unwrap();
    assert!(line.contains("network_transport=\"pipe\""), "{line}");
    assert!(!line.contains("network_protocol_name"), "{line}");
}

#[test]
fn check_starts_nothing() {
    let place = tempfile::tempdir().unwrap();
    let mark = place.path().join("it-ran");
    let entry = format!("{{ command: [touch, \"{}\"] }}", mark.display());
    let home = Setup::new().upstream_entry("up", &entry).write();
    let env = |_: &str| Some("a-key-of-the-tests".to_owned());
    let checked = check::check(&home.path("hangu.yaml"), &env);
    assert!(checked.report.faults.iter().all(|fault| fault.code.as_str() != "C002"));
    assert!(!mark.exists());
}

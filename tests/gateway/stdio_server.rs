//! An MCP server that is a process: this very test binary, started again with a word in its
//! environment that makes it one. What it is asked to do it does literally: answer, be silent,
//! crash, write nonsense.

#![allow(clippy::exit, clippy::zombie_processes, reason = "how it ends is what tests are about")]

use std::{
    env, fs,
    io::{self, BufRead, Write},
    path::PathBuf,
    process,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::process_support::{text_result, tool};

/// What makes a server of this binary: how it speaks.
pub const MODE: &str = "HANGU_TEST_SERVER";
/// A folder in which each process leaves a file named by its number.
pub const PLACE: &str = "HANGU_TEST_PLACE";

const TOOLS: [&str; 16] = [
    "echo", "progress", "slow", "crash", "pid", "count", "noise", "huge", "chatter", "env", "ask",
    "close", "seen", "child", "change", "files",
];

/// The program, and its arguments.
pub fn words() -> (PathBuf, [&'static str; 4]) {
    let arguments = ["stdio_server::serve", "--exact", "--ignored", "--nocapture"];
    (env::current_exe().unwrap(), arguments)
}

/// The same as a configuration has it.
pub fn command() -> String {
    let (program, arguments) = words();
    format!("[\"{}\", \"{}\"]", program.display(), arguments.join("\", \""))
}

/// The variables of a server that leaves its traces in `place`.
pub fn variables(mode: &str, place: &std::path::Path) -> String {
    format!("{MODE}: {mode}, {PLACE}: \"{}\"", place.display())
}

/// The processes that were started, by their numbers.
pub fn started(place: &std::path::Path) -> Vec<u32> {
    let entries = fs::read_dir(place).unwrap();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// Those of them that still run.
pub fn alive(place: &std::path::Path) -> Vec<u32> {
    let runs = |pid: &u32| {
        // A process that has ended and whose end nobody has asked for does not run.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    started(place).into_iter().filter(runs).collect()
}

#[test]
#[ignore = "a server for other tests, which start it; by itself it is nothing"]
fn serve() {
    let Ok(mode) = env::var(MODE) else { return };
    leave_trace(process::id());
    if mode == "broken" {
        eprintln!("it cannot start: nothing works");
        process::exit(7);
    }
    if mode == "indiscreet" {
        for (name, value) in env::vars() {
            eprintln!("{name} is {value}");
            write(&format!("no message: {value}"));
        }
    }
    let server = Arc::new(Server { mode, calls: AtomicU64::new(0), seen: Mutex::default() });
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            server.take(message);
        }
    }
    if server.mode == "stubborn" {
        thread::sleep(Duration::from_secs(60));
    }
    process::exit(0);
}

fn leave_trace(pid: u32) {
    if let Ok(place) = env::var(PLACE) {
        fs::write(format!("{place}/{pid}"), "").unwrap();
    }
}

struct Server {
    mode: String,
    calls: AtomicU64,
    /// What came that was no call, and what was answered to questions.
    seen: Mutex<Vec<Value>>,
}

fn write(line: &str) {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.write_all(b"\n").unwrap();
    out.flush().unwrap();
}

fn answer(id: &Value, result: &Value) {
    write(&json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string());
}

impl Server {
    fn is_modern(&self) -> bool {
        self.mode == "modern"
    }

    fn take(self: &Arc<Self>, message: Value) {
        let id = message["id"].clone();
        let params = message["params"].clone();
        match message["method"].as_str() {
            Some("initialize") if !self.is_modern() => answer(
                &id,
                &json!({ "protocolVersion": "2024-11-05", "capabilities": { "tools": {} },
                         "serverInfo": { "name": "s", "version": "1" } }),
            ),
            Some("server/discover") if self.is_modern() => answer(
                &id,
                &json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
                         "capabilities": { "tools": {} }, "ttlMs": 0, "cacheScope": "private" }),
            ),
            Some("server/discover") if self.mode == "silent" => {}
            Some("server/discover") if self.mode == "fragile" => process::exit(9),
            Some("tools/list") => {
                let tools: Vec<Value> = TOOLS.iter().map(|name| tool(name)).collect();
                answer(
                    &id,
                    &json!({ "resultType": "complete", "tools": tools, "ttlMs": 0,
                                     "cacheScope": "private" }),
                );
            }
            Some("tools/call") => {
                let server = self.clone();
                self.calls.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || server.call(&id, &params));
            }
            Some(_) if !id.is_null() => write(
                &json!({ "jsonrpc": "2.0", "id": id,
                         "error": { "code": -32601, "message": "no such method" } })
                .to_string(),
            ),
            _ => self.seen.lock().push(message),
        }
    }

    fn call(&self, id: &Value, params: &Value) {
        let arguments = &params["arguments"];
        let say = |text: &str| answer(id, &text_result(text));
        match params["name"].as_str().unwrap() {
            "echo" => say(&arguments.to_string()),
            "progress" => {
                let token = &params["_meta"]["progressToken"];
                for step in 1..=3 {
                    let params = json!({ "progressToken": token, "progress": step });
                    write(
                        &json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                                   "params": params })
                        .to_string(),
                    );
                }
                say("done");
            }
            "slow" => {
                thread::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap()));
                say("at last");
            }
            "crash" => process::exit(3),
            "close" => {
                say("my last words");
                process::exit(0);
            }
            "pid" => say(&process::id().to_string()),
            "count" => say(&self.calls.load(Ordering::Relaxed).to_string()),
            "noise" => {
                for _ in 0..arguments["lines"].as_u64().unwrap() {
                    write("{ this is no message");
                }
                say("after the noise");
            }
            "huge" => {
                say(&"x".repeat(usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap()))
            }
            "chatter" => {
                let mut err = io::stderr().lock();
                for n in 0..20_000 {
                    writeln!(err, "chatter {n} {}", "y".repeat(200)).unwrap();
                }
                say("chattered");
            }
            "env" => {
                let mut names: Vec<String> =
                    env::vars().map(|(name, value)| format!("{name}={value}")).collect();
                names.sort();
                say(&names.join("\n"));
            }
            "ask" => {
                write(r#"{"jsonrpc":"2.0","id":"q1","method":"roots/list"}"#);
                for _ in 0..500 {
                    let answer =
                        self.seen.lock().iter().find(|message| message["id"] == "q1").cloned();
                    if let Some(answer) = answer {
                        return say(&answer["error"]["code"].to_string());
                    }
                    thread::sleep(Duration::from_millis(10));
                }
            }
            "change" => {
                write(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
                say("changed");
                write(r#"{"jsonrpc":"2.0","id":"q2","method":"roots/list"}"#);
            }
            "files" => {
                let open = fs::read_dir("/proc/self/fd").unwrap();
                let open = open.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
                let open: Vec<String> = open.map(|file| file.display().to_string()).collect();
                say(&open.join("\n"));
            }
            "seen" => say(&json!(*self.seen.lock()).to_string()),
            "child" => {
                let child = process::Command::new("sleep").arg("60").spawn().unwrap();
                leave_trace(child.id());
                say("a child");
            }
            other => panic!("{other}"),
        }
    }
}

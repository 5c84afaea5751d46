//! `hangu call`: the real command against a gateway, and against what is none.

use std::process::Output;

use super::*;
use crate::support::{
    command::{ended, hangu},
    gateway::KEY,
};

fn run(url: &str, key: &str, args: &[&str], input: &str) -> Output {
    hangu("call", args, &[("HANGU_URL", url), ("HANGU_API_KEY", key)], input)
}

fn at(gateway: &Gateway) -> String {
    format!("http://{}", gateway.address())
}

#[test]
fn the_command_calls_a_tool_and_tells_what_it_says() {
    const ARGUMENTS: &str = r#"{"n": 1.0,"big":123456789012345678901}"#;
    let answer = r#"{"content":[{"type":"text","text":"one\ntwo \u001b[31m"},{"type":"image","data":"","mimeType":"image/png"}],"isError":false}"#;
    let upstream = Upstream::answering(Speaks::Lite, Answer::json(answer));
    let gateway = gateway(&upstream);
    let at = at(&gateway);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ARGUMENTS).unwrap();
    let in_file = format!("@{}", file.path().display());
    let by_key = format!("{}/echo", key_of(&upstream));
    for (tool, args, input) in [
        ("up/echo", ARGUMENTS, ""),
        ("up/echo", "-", ARGUMENTS),
        (by_key.as_str(), in_file.as_str(), ""),
    ] {
        let (out, error) = ended(&run(&at, KEY, &[tool, "--args", args], input), 0);
        assert_eq!(out, "one\ntwo \\u{1b}[31m\n[image: --format json shows it]\n", "{error}");
        let seen = upstream.calls().pop().unwrap();
        assert_eq!(seen.arguments(), ARGUMENTS);
        assert_eq!(seen.header("x-call-source"), Some("cli"));
    }
    let (out, _) = ended(&run(&at, KEY, &["up/echo", "--format", "json"], ""), 0);
    assert_eq!(out, format!("{answer}\n"));
    let keyed = ["up/slow", "--args", "{\"n\":1}", "--idempotency-key", "k", "--format", "json"];
    ended(&run(&at, KEY, &keyed, ""), 0);
    let (out, _) = ended(&run(&at, KEY, &keyed, ""), 0);
    assert!(out.contains("\"dev.hangu/replayed\":true"), "{out}");
    let made = upstream.calls().len();
    let (out, _) = ended(&run(&at, KEY, &["up/slow", "--dry-run"], ""), 0);
    assert!(out.starts_with("Dry run of `slow`"), "{out}");
    assert_eq!(upstream.calls().len(), made);
    upstream
        .answers(Answer::json(r#"{"content":[],"structuredContent":{"why":"no"},"isError":true}"#));
    let (out, _) = ended(&run(&at, KEY, &["up/echo"], ""), 1);
    assert_eq!(out, "{\n  \"why\": \"no\"\n}\n");
}

#[test]
fn what_is_refused_says_what_to_do_next() {
    let upstream = Upstream::answering(Speaks::Lite, good(Speaks::Lite));
    let limits = "version: hangu/v1\nkind: Policy\nscope: platform\nlimits:\n  - { id: few, per: [tenant], tools: [up/read_doc], rate: 1/1h }\nrules:\n  - { id: ask, effect: require_approval, tools: [up/slow], approval: { roles: [owner], expires: 1h } }\n";
    let gateway = gateway_with(&upstream, ", timeout: 300ms", "", &[limits]);
    let at = at(&gateway);
    ended(&run(&at, KEY, &["up/read_doc"], ""), 0);
    for (key, tool, args, code, says) in [
        (
            KEY,
            "up/ecko",
            "{}",
            1,
            vec!["unknown tool: ecko (not_found, trace ", "did you mean `up/echo`, "],
        ),
        // What is hidden is among nobody's.
        (KEY, "up/wipe", "{}", 1, vec!["unknown tool: wipe", "did you mean"]),
        (KEY, "upp/echo", "{}", 1, vec!["there is no upstream `upp`", "did you mean `up/echo`, "]),
        (
            KEY,
            "mcp_nobody_00000000/echo",
            "{}",
            1,
            vec!["server_not_configured", "configure the server"],
        ),
        (KEY, "up/strict", "{\"n\":\"x\"}", 1, vec!["the argument at /n", "invalid_args"]),
        (KEY, "up/slow", "{}", 1, vec!["approval_required", "`hangu approvals show "]),
        (KEY, "up/read_doc", "{}", 1, vec!["rate_limited", "can be made again in "]),
        (QUIET, "up/echo", "{}", 1, vec!["may not call as `cli`", "`call_sources`"]),
        ("wrong", "up/echo", "{}", 1, vec!["the API key is not valid"]),
    ] {
        let (out, error) = ended(&run(&at, key, &[tool, "--args", args], ""), code);
        assert_eq!(out, "");
        assert!(error.starts_with("hangu: "), "{error}");
        for words in says {
            assert!(error.contains(words), "{words}: {error}");
        }
        if tool == "up/wipe" {
            assert!(!error.contains("`up/wipe`"), "{error}");
        }
    }
    upstream.answers(Answer::json(LITE_OK).delayed(Duration::from_secs(3)));
    let (_, error) = ended(&run(&at, KEY, &["up/echo"], ""), 4);
    assert!(error.contains("(timeout, trace "), "{error}");
}

#[test]
fn what_makes_no_sense_is_said_before_anybody_is_asked() {
    let nobody = "http://127.0.0.1:1";
    for (url, key, args, code, says) in [
        (nobody, "", vec!["up/echo"], 2, "set HANGU_API_KEY"),
        (nobody, "k", vec!["echo"], 2, "such as `platform/list_test_tasks`"),
        (nobody, "k", vec!["up/echo", "--args", "{"], 2, "--args: not JSON"),
        (nobody, "k", vec!["up/echo", "--args", "[1]"], 2, "arguments are a JSON object"),
        (nobody, "k", vec!["up/echo", "--args", "@/nowhere"], 2, "cannot be read"),
        (nobody, "k", vec!["up/echo"], 4, "refused the connection"),
        ("gw", "k", vec!["up/echo"], 2, "--url (or HANGU_URL)"),
    ] {
        let (_, error) = ended(&run(url, key, &args, ""), code);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

//! Rules about arguments: what may be called like this, and what only after somebody said yes.

use std::process::Command;

use serde_json::{Value, json};

use crate::process_support::{Dialect, GLOBEX_KEY, Setup, Upstream, tool};

const RULES: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: all, effect: allow, roles: [member] }
  - id: eu-only
    effect: deny
    tools: [up/echo]
    when: { arg: /region, not_in: [eu-west, eu-north] }
    say: Only regions in Europe.
  - id: much
    effect: require_approval
    tools: [up/echo]
    when: { arg: /count, range: [100, null] }
    approval: { roles: [owner], expires: 1h }
";

#[test]
fn arguments_decide_a_call_of_a_tool_that_is_listed_all_the_same() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, "", "").policy("rules.yaml", RULES).start();
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/up", dialect);
        assert_eq!(client.list(), ["echo"], "{dialect:?}");
        let before = up.calls().len();
        for (arguments, word, decision, rule, says) in [
            (
                json!({ "region": "us" }),
                "permission_denied",
                "deny",
                "eu-only",
                "Only regions in Europe.",
            ),
            (json!({}), "permission_denied", "deny", "eu-only", "Only regions in Europe."),
            (
                json!({ "region": "eu-west", "count": 100 }),
                "approval_required",
                "require_approval",
                "much",
                "This call needs the approval of another person.",
            ),
        ] {
            let answer = client.call("echo", arguments.clone());
            assert_eq!(answer.word(), word, "{dialect:?} {arguments}: {answer:?}");
            assert!(answer.text().contains(says), "{answer:?}");
            let record = gateway.record_of(&answer);
            assert_eq!(record["decision"], decision, "{record:#}");
            assert_eq!(record["rules"], json!([rule]), "{record:#}");
            let outcome = if word == "approval_required" { "approval_pending" } else { "denied" };
            assert_eq!(record["outcome"], outcome, "{record:#}");
        }
        assert_eq!(up.calls().len(), before, "nothing left");
        let answer = client.call("echo", json!({ "region": "eu-north", "count": 99 }));
        assert_eq!(answer.word(), "ok", "{dialect:?} {answer:?}");
        assert_eq!(up.calls().len(), before + 1);
    }
}

/// What is only looked at so far, of another argument.
const SHADOW: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
mode: shadow
rules:
  - id: named
    effect: deny
    tools: [up/echo]
    when: [{ arg: /name, regex: \"^x\" }, { arg: /access_token, max_len: 3 }]
";

#[test]
fn records_tell_what_rules_looked_at_and_calls_are_decided_again_by_it() {
    let up = Upstream::start(&[tool("echo"), tool("plain")]);
    let gateway = Setup::new()
        .upstream("up", &up, "", "")
        .policy("rules.yaml", RULES)
        .policy("acme.yaml", SHADOW)
        .start();
    let client = gateway.client("/mcp/up", Dialect::Modern);
    let facts = |arguments| gateway.record_of(&client.call("echo", arguments))["argFacts"].clone();
    let told = facts(json!({
        "region": "eu-west", "count": 99.50, "name": "xyz", "access_token": "hush", "other": "o",
    }));
    assert_eq!(
        told,
        json!({
            "/access_token": { "withheld": true }, "/count": { "number": "99.5" },
            "/name": "xyz", "/region": "eu-west",
        })
    );
    let told = facts(json!({ "region": ["us"], "count": 100, "name": "x".repeat(300) }));
    assert_eq!(
        told,
        json!({
            "/access_token": { "absent": true }, "/count": 100, "/name": { "characters": 300 },
            "/region": { "elements": 1 },
        })
    );
    // No rule is about these arguments, or the caller would not see the tool.
    let plain = gateway.record_of(&client.call("plain", json!({ "region": "us" })));
    assert_eq!(plain.get("argFacts"), None, "{plain:#}");
    assert_eq!(plain["shadow"], json!({ "decision": "allow", "reason": "rule_allow" }));
    let globex = gateway.client("/mcp/up", Dialect::Modern).key(GLOBEX_KEY).employee("G1");
    let answer = globex.call("echo", json!({ "region": "eu-west", "count": 1, "name": "xyz" }));
    let record = gateway.record_of(&answer);
    assert_eq!(record["argFacts"], json!({ "/count": 1, "/region": "eu-west" }), "{record:#}");
    let own = json!({ "region": "eu-west", "name": "x", "access_token": "abc" });
    let shadow = gateway.record_of(&client.call("echo", own));
    assert_eq!(shadow["decision"], "allow", "{shadow:#}");
    assert_eq!(shadow["shadow"], json!({ "decision": "deny", "reason": "rule_deny" }));

    // The rules that decided decide so again, and each call's facts are enough for them.
    let home = gateway.home();
    let replay = |policies: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hangu"));
        command.args(["policy", "replay", "--records", "audit/hangu.jsonl", policies]);
        let output = command.args(["--format", "json"]).current_dir(home.path("")).output();
        serde_json::from_slice::<Value>(&output.unwrap().stdout).unwrap()
    };
    std::fs::remove_file(home.path("policies/acme.yaml")).unwrap();
    let same = replay("policies");
    assert_eq!((&same["decided"], &same["notDecided"]), (&json!(5), &json!(0)), "{same:#}");
    assert_eq!(same["changes"], json!([]), "{same:#}");
    // Other conditions on what was looked at are decided; what nobody looked at is not guessed.
    let edit = |from: &str, to: &str| {
        let file = home.path("policies/rules.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{text}");
        std::fs::write(file, text.replacen(from, to, 1)).unwrap();
    };
    edit("range: [100, null]", "range: [99.25, 99.75]");
    let moved = replay("policies");
    assert_eq!((&moved["decided"], &moved["notDecided"]), (&json!(5), &json!(0)), "{moved:#}");
    let changes = moved["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{moved:#}");
    assert_eq!((&changes[0]["is"], &changes[0]["calls"]), (&json!("require_approval"), &json!(1)));
    edit("arg: /count, range: [99.25, 99.75]", "arg: /other, eq: o");
    let other = replay("policies");
    assert_eq!((&other["decided"], &other["notDecided"]), (&json!(1), &json!(4)), "{other:#}");
    // Only how long a text is was told of the long one, and that is enough for its length alone.
    edit("arg: /other, eq: o", "arg: /name, max_len: 299");
    let long = replay("policies");
    assert_eq!((&long["decided"], &long["notDecided"]), (&json!(4), &json!(1)), "{long:#}");
    edit("arg: /name, max_len: 299", "arg: /access_token, max_len: 299");
    assert_eq!(replay("policies")["notDecided"], json!(3), "withheld, or not looked at");
}

//! Rules about arguments: what may be called like this, and what only after somebody said yes.

use serde_json::json;

use crate::process_support::{Dialect, Setup, Upstream, tool};

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

//! A server's question and the call that answers it: its state is sealed on the way, and nobody
//! else can bring it back.

use crate::support::{Answer, ECHO, Gateway, OK, Request, Speaks, Upstream};

const ASKS: &str = r#"{"jsonrpc":"2.0","id":{{id}},"result":{"resultType":"input_required","requestState":"round \"1\" é","inputRequests":{"ok":{"method":"elicitation/create","params":{"mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}}}}"#;

/// Two callers, each with one employee.
const CALLERS: &str = "callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { header: true, fallback: { empId: E1, roles: [member] } } }
";

fn call(extra: &str) -> Request {
    Request::stateless(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","arguments":{{"x":1}},{extra}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}}}}}}}}}}"#
    ))
}

fn asking() -> Upstream {
    Upstream::scripted(Speaks::Stateless, |received| {
        let answered = received.member(&["params", "inputResponses"]).is_some();
        Answer::json(if answered { OK } else { ASKS })
    })
}

fn start(upstream: &Upstream) -> Gateway {
    let yaml = format!("{CALLERS}upstreams:\n  up: {{ url: \"{}\" }}\n", upstream.url());
    let policy = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nrules:\n  - { id: read, effect: allow, risk: [read_low] }\n---\nversion: hangu/v1\nkind: Tools\nupstreams: { up: { default: { risk: read_low } } }\n";
    Gateway::start(&yaml, &[policy])
}

#[test]
fn a_state_leaves_sealed_and_comes_back_as_it_was_given() {
    let upstream = asking();
    let gateway = start(&upstream);
    let question = call("").ask(&gateway);
    assert_eq!(question.status, 200, "{}", question.text());
    let state = question.member(&["result", "requestState"]).unwrap();
    assert!(!state.contains("round"), "{state}");
    assert!(question.text().contains("Sure?"), "{}", question.text());

    let answer =
        format!(r#""inputResponses":{{"ok":{{"action":"accept"}}}},"requestState":{state},"#);
    let done = call(&answer).ask(&gateway);
    assert_eq!((done.status, done.rpc_code()), (200, None), "{}", done.text());
    let last = upstream.received().pop().unwrap();
    assert_eq!(
        last.member(&["params", "requestState"]).as_deref(),
        Some(r#""round \"1\" é""#),
        "the server's own state, to the letter"
    );

    // Another employee holds nothing with it, and neither does whoever changes it.
    let calls = upstream.calls().len();
    let foreign = call(&answer).header("SSO-Emp-Id", "E2").ask(&gateway);
    assert_eq!((foreign.status, foreign.rpc_code()), (200, Some(-32602)), "{}", foreign.text());
    let forged = call(r#""inputResponses":{},"requestState":"AQAA","#).ask(&gateway);
    assert_eq!((forged.status, forged.rpc_code()), (200, Some(-32602)), "{}", forged.text());
    assert_eq!(upstream.calls().len(), calls, "refused before anything left");
}

#[test]
fn a_caller_without_a_form_for_questions_is_told_so() {
    let upstream = asking();
    let gateway = start(&upstream);
    let legacy = ECHO.replace("\"arguments\"", "\"inputResponses\":{},\"arguments\"");
    let refused = Request::handshake(legacy).ask(&gateway);
    assert_eq!((refused.status, refused.rpc_code()), (200, Some(-32602)), "{}", refused.text());
    // A server that asks a caller of the REST form has not answered.
    let lite = Request::lite("tools/call", r#"{"name":"echo","arguments":{"x":1}}"#).ask(&gateway);
    assert_eq!(lite.status, 502, "{}", lite.text());
}

//! What servers ask in the middle of a call, and what clients of every revision say to it: with
//! servers of either era, all the way there and back.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Asker, Client, Gateway, Reply, Request, Speaks, wait_for};

mod ends;
mod refusals;

/// A server's eras, as the tests' servers speak them.
const ERAS: [Speaks; 2] = [Speaks::Handshake("2025-11-25"), Speaks::Stateless];

const SOON: Duration = Duration::from_secs(5);

/// All that a client can be asked.
fn everything() -> Value {
    json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} })
}

fn elicit() -> Value {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    json!({ "method": "elicitation/create",
            "params": { "message": "Zoë?", "requestedSchema": schema } })
}

fn sample() -> Value {
    json!({ "method": "sampling/createMessage",
            "params": { "messages": [{ "role": "user", "content": { "type": "text", "text": "1.0" } }],
                        "maxTokens": 20 } })
}

fn roots() -> Value {
    json!({ "method": "roots/list" })
}

/// An answer that fits the question.
fn answer_to(question: &Value) -> Value {
    match question["method"].as_str().unwrap() {
        "elicitation/create" => {
            json!({ "action": "accept", "content": { "n": 12345678901234567890_u64 } })
        }
        "sampling/createMessage" => json!({ "role": "assistant", "model": "m",
                                            "content": { "type": "text", "text": "said" } }),
        "roots/list" => json!({ "roots": [{ "uri": "file:///a" }] }),
        other => panic!("{other}"),
    }
}

/// Several callers and employees before one server.
fn gateway(asker: &Asker, of_upstream: &str, of_file: &str) -> Gateway {
    let callers = "callers:
  tests: { keys: [{ env: KEY }], tenant: acme, identity: { header: true, fallback: { empId: E1, roles: [member] } } }
";
    let directory = "version: hangu/v1\nkind: Directory\nemployees: { E1: { tenant: acme, roles: [member] }, E2: { tenant: acme, roles: [member] } }\n";
    let policy = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nrules:\n  - { id: read, effect: allow, roles: [member], risk: [read_low, write_low] }\n---\nversion: hangu/v1\nkind: Tools\nupstreams: { up: { default: { risk: read_low }, tools: { other: { risk: write_low } } } }\n";
    let comma = if of_upstream.is_empty() { "" } else { ", " };
    let yaml = format!(
        "{of_file}\n{callers}upstreams:\n  up: {{ url: \"{}\"{comma}{of_upstream} }}\n",
        asker.url()
    );
    Gateway::start(&yaml, &[policy, directory])
}

// === Clients of 2026-07-28 ===

/// A call of 2026-07-28.
fn modern(arguments: &Value, capabilities: &Value, more: &Value) -> Request {
    let mut params = json!({ "name": "ask", "arguments": arguments,
        "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                   "io.modelcontextprotocol/clientCapabilities": capabilities } });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    Request::stateless(&body.to_string())
}

fn message(reply: &Reply) -> Value {
    serde_json::from_str(&reply.message()).unwrap_or_else(|_| panic!("{}", reply.text()))
}

/// What a result that asks wants of the next call, with answers that fit.
fn answers(asking: &Value) -> Value {
    let requests = asking["result"]["inputRequests"].as_object().unwrap();
    let responses: serde_json::Map<String, Value> =
        requests.iter().map(|(key, question)| (key.clone(), answer_to(question))).collect();
    json!({ "inputResponses": responses, "requestState": asking["result"]["requestState"] })
}

// === Clients of the handshake revisions ===

/// A client with a session.
struct Legacy<'a> {
    gateway: &'a Gateway,
    session: String,
    version: &'static str,
}

impl<'a> Legacy<'a> {
    fn open(gateway: &'a Gateway, version: &'static str, capabilities: &Value) -> Self {
        let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": version, "capabilities": capabilities,
                        "clientInfo": { "name": "t", "version": "1" } } });
        let reply = Request::plain(body.to_string()).ask(gateway);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let session = reply.header("mcp-session-id").unwrap().to_owned();
        Self { gateway, session, version }
    }

    fn request(&self, body: &Value) -> Request {
        Request::plain(body.to_string())
            .header("MCP-Protocol-Version", self.version)
            .header("Mcp-Session-Id", &self.session)
    }

    /// A call whose answer is read event by event.
    fn call(&self, arguments: &Value) -> Client {
        let mut client = self.begin(arguments);
        let head = client.head();
        assert_eq!(head.header("content-type"), Some("text/event-stream"), "{arguments}");
        client
    }

    /// The same, its answer wholly unread.
    fn begin(&self, arguments: &Value) -> Client {
        let params =
            json!({ "name": "ask", "arguments": arguments, "_meta": { "progressToken": "p" } });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
        let mut client = Client::of(self.gateway);
        client.send(&self.request(&body));
        client
    }

    fn answer(&self, question: &Value, member: &str, value: &Value) -> u16 {
        let body = json!({ "jsonrpc": "2.0", "id": question["id"], member: value });
        self.request(&body).ask(self.gateway).status
    }
}

/// The next message of a stream that is a question or the end.
fn next(client: &mut Client) -> Option<Value> {
    loop {
        let event = client.event()?;
        let data: String =
            event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
        let Ok(message) = serde_json::from_str::<Value>(&data) else { continue };
        if message.get("id").is_some() {
            return Some(message);
        }
    }
}

/// All that was answered to a server, as its result tells it.
fn said(end: &Value) -> Value {
    let text = end["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{end}"));
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{end}"))
}

/// Runs a call to its end: gives the questions as they were asked, and the end.
fn run(gateway: &Gateway, client: &str, arguments: &Value) -> (Vec<Value>, Value) {
    let mut asked = Vec::new();
    let version = match client {
        "2026-07-28" => {
            let mut more = json!({});
            loop {
                let reply = message(&modern(arguments, &everything(), &more).ask(gateway));
                if reply["result"]["resultType"] != "input_required" {
                    return (asked, reply);
                }
                let requests = reply["result"]["inputRequests"].as_object().unwrap();
                asked.extend(requests.values().cloned());
                more = answers(&reply);
            }
        }
        "2025-11-25" => "2025-11-25",
        _ => "2025-06-18",
    };
    let legacy = Legacy::open(gateway, version, &everything());
    let mut client = legacy.call(arguments);
    loop {
        let message = next(&mut client).unwrap();
        if message.get("method").is_none() {
            return (asked, message);
        }
        assert_eq!(legacy.answer(&message, "result", &answer_to(&message)), 202);
        asked.push(message);
    }
}

const CLIENTS: [&str; 3] = ["2025-06-18", "2025-11-25", "2026-07-28"];

#[test]
fn every_question_reaches_every_client_and_every_answer_its_server() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "");
        for client in CLIENTS {
            for question in [elicit(), sample(), roots()] {
                let case = format!("{client} before {speaks:?}: {question}");
                let (asked, end) = run(&gateway, client, &json!({ "rounds": [[question]] }));
                assert_eq!(asked.len(), 1, "{case}");
                assert_eq!(asked[0]["method"], question["method"], "{case}");
                let mut params = asked[0]["params"].clone();
                if question["method"] == "elicitation/create" {
                    // Only the stateless revision's servers say it, and 2025-11-25 may.
                    let mode = params.as_object_mut().unwrap().remove("mode");
                    let says = client == "2026-07-28" && matches!(speaks, Speaks::Handshake(_));
                    assert!(!says || mode == Some(json!("form")), "{case}: {mode:?}");
                    assert!(client != "2025-06-18" || mode.is_none(), "{case}: {mode:?}");
                }
                assert_eq!(params, question["params"], "{case}");
                assert_eq!(said(&end), json!([answer_to(&question)]), "{case}");
                assert_eq!(end["id"], 7, "{case}");
            }
        }
        assert_eq!(asker.of("notifications/cancelled").len(), 0, "{speaks:?}");
    }
}

#[test]
fn several_things_are_asked_at_once_and_in_several_rounds() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "");
        let rounds = json!([[elicit(), sample(), elicit()], [roots()], [elicit()]]);
        for client in CLIENTS {
            let calls = asker.of("tools/call").len();
            let (asked, end) = run(&gateway, client, &json!({ "rounds": rounds }));
            let methods: Vec<&str> =
                asked.iter().map(|asked| asked["method"].as_str().unwrap()).collect();
            assert_eq!(methods.len(), 5, "{client} before {speaks:?}: {methods:?}");
            let all: Vec<Value> = rounds
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|round| round.as_array().unwrap())
                .map(answer_to)
                .collect();
            assert_eq!(said(&end), Value::from(all), "{client} before {speaks:?}");
            // One call at a server that holds it, one more for each round at one that does not.
            let made = asker.of("tools/call").len() - calls;
            let expected = if matches!(speaks, Speaks::Stateless) { 4 } else { 1 };
            assert_eq!(made, expected, "{client} before {speaks:?}");
        }
    }
}

#[test]
fn a_call_that_asks_too_often_ends() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "questions: { rounds: 2 }");
        let arguments = json!({ "rounds": [[elicit()], [elicit()], [elicit()]] });
        for client in CLIENTS {
            let (asked, end) = run(&gateway, client, &arguments);
            // What a stateless server asks a stateless client is between the two.
            let free = client == "2026-07-28" && matches!(speaks, Speaks::Stateless);
            assert_eq!(asked.len(), if free { 3 } else { 2 }, "{client} before {speaks:?}");
            assert_eq!(end["result"]["isError"] == true, !free, "{client}: {end}");
        }
        if matches!(speaks, Speaks::Handshake(_)) {
            wait_for("the server is told", SOON, || {
                asker.of("notifications/cancelled").len() == CLIENTS.len()
            });
        }
    }
}

#[test]
fn progress_goes_on_under_the_token_of_the_call_that_brings_the_answer() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "");
    let arguments = json!({ "rounds": [[elicit()]] });
    let token = |token: &str, more: Value| {
        let mut more = more;
        more["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": everything(), "progressToken": token });
        modern(&arguments, &everything(), &more).ask(&gateway)
    };
    let first = token("first", json!({}));
    assert!(first.text().contains(r#""progressToken":"first""#), "{}", first.text());
    let second = token("second", answers(&message(&first)));
    assert_eq!(said(&message(&second)).as_array().unwrap().len(), 1, "{}", second.text());
}

#[test]
fn a_state_is_good_for_its_employee_and_its_call_alone() {
    for speaks in ERAS {
        let asker = Asker::start(speaks);
        let gateway = gateway(&asker, "", "");
        let arguments = json!({ "rounds": [[elicit()]] });
        let ask = || message(&modern(&arguments, &everything(), &json!({})).ask(&gateway));
        let asking = ask();
        let good = answers(&asking);
        let state = asking["result"]["requestState"].as_str().unwrap();
        assert!(!state.contains("asked"), "{state}");
        let calls = asker.of("tools/call").len();
        let other_call = json!({ "rounds": [[elicit()]], "x": 1 });
        let mut forged = good.clone();
        forged["requestState"] = json!(format!("B{}", &state[1..]));
        let mut swapped = good.clone();
        swapped["requestState"] = ask()["result"]["requestState"].clone();
        for (what, request) in [
            (
                "another employee",
                modern(&arguments, &everything(), &good).header("SSO-Emp-Id", "E2"),
            ),
            ("other arguments", modern(&other_call, &everything(), &good)),
            ("a forged state", modern(&arguments, &everything(), &forged)),
        ] {
            let reply = request.ask(&gateway);
            assert_eq!(
                (reply.status, reply.rpc_code()),
                (200, Some(-32602)),
                "{what}: {}",
                reply.text()
            );
        }
        assert_eq!(
            asker.of("tools/call").len(),
            calls + 1,
            "{speaks:?}: refused before anything left"
        );
        // The order of members and the spelling of numbers are no other call.
        let done = message(&modern(&arguments, &everything(), &good).ask(&gateway));
        assert_eq!(said(&done), json!([answer_to(&elicit())]));
        let done = message(&modern(&arguments, &everything(), &swapped).ask(&gateway));
        assert_eq!(said(&done), json!([answer_to(&elicit())]), "two at once do not mix");
        if matches!(speaks, Speaks::Handshake(_)) {
            let again = modern(&arguments, &everything(), &good).ask(&gateway);
            assert_eq!(again.rpc_code(), Some(-32602), "used: {}", again.text());
        }
        gateway.audited("the question", |record| record["outcome"] == "input_required");
    }
}

#[test]
fn answers_that_are_missing_are_asked_for_again_and_wrong_ones_are_refused() {
    let asker = Asker::start(ERAS[0]);
    let gateway = gateway(&asker, "", "");
    let arguments = json!({ "rounds": [[elicit(), roots()]] });
    let call = |more: &Value| modern(&arguments, &everything(), more).ask(&gateway);
    let asking = message(&call(&json!({})));
    let state = asking["result"]["requestState"].clone();
    for wrong in [
        json!([]),
        json!({ "q1": 1 }),
        json!({ "q1": { "action": "perhaps" } }),
        json!({ "q1": answer_to(&elicit()), "q2": { "roots": 1 } }),
    ] {
        let reply = call(&json!({ "inputResponses": wrong, "requestState": state }));
        assert_eq!((reply.status, reply.rpc_code()), (200, Some(-32602)), "{}", reply.text());
    }
    assert!(asker.responses().is_empty(), "nothing of it left");
    // One answer, and one to a question that nobody asked.
    let some = json!({ "q2": answer_to(&roots()), "q9": {} });
    let again = message(&call(&json!({ "inputResponses": some, "requestState": state })));
    let left = again["result"]["inputRequests"].as_object().unwrap();
    assert_eq!(left.keys().collect::<Vec<_>>(), ["q1"], "{again}");
    let done = message(&call(&answers(&again)));
    assert_eq!(said(&done), json!([answer_to(&elicit()), answer_to(&roots())]));
}

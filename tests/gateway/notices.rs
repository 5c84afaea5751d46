//! Notices of change: who is told what, on `subscriptions/listen` and on the GET stream of a
//! session, before servers of both eras.

mod measured;
mod own;
mod server;
mod tasks;

use std::time::Duration;

use serde_json::{Value, json};

use self::server::{Era, Server};
use crate::support::{Client, Gateway, Reply, Request, wait_for};

const ERAS: [Era; 2] = [Era::Stateless, Era::Handshake];

const POLICY: &str = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: members, effect: allow, roles: [member], tools: [\"*/open*\"], prompts: [\"*/*\"], resources: [\"*/a://*\"] }
---
version: hangu/v1
kind: Directory
employees:
  E1: { tenant: acme, roles: [member] }
  E2: { tenant: acme, roles: [member] }
---
version: hangu/v1
kind: Tools
upstreams:
  up: { default: { risk: read_low } }
";

const SECOND: Duration = Duration::from_secs(1);

fn everything() -> Value {
    json!({ "tools": { "listChanged": true }, "logging": {},
            "resources": { "subscribe": true, "listChanged": true } })
}

fn gateway(server: &Server, more: &str) -> Gateway {
    gateway_with(server, more, "poll: 60s")
}

fn gateway_with(server: &Server, more: &str, of_upstream: &str) -> Gateway {
    let yaml = format!(
        "{more}\ncallers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, catalog_roles: [member] }}\n\
         upstreams:\n  up: {{ url: \"{}\", {of_upstream}, headers: {{ X-Employee: \"$ctx.user.empId\" }} }}\n",
        server.url()
    );
    Gateway::start(&yaml, &[POLICY])
}

/// A stream of notices, read message by message.
struct Listener(Client);

impl Listener {
    /// By `subscriptions/listen`, up to the acknowledgement, which it gives.
    fn modern(
        gateway: &Gateway,
        path: &str,
        employee: &str,
        id: &str,
        filter: &Value,
    ) -> (Self, Value) {
        let mut listener = Self::open(gateway, &listen(path, employee, id, filter));
        let first = listener.message().unwrap();
        (listener, first)
    }

    fn of_session(gateway: &Gateway, session: &str, employee: &str) -> Self {
        Self::open(gateway, &get(session, employee))
    }

    fn open(gateway: &Gateway, request: &Request) -> Self {
        let mut client = Client::of(gateway);
        client.send(request);
        let head = client.head();
        assert_eq!(head.status, 200, "{:?}", head.headers);
        assert_eq!(head.header("content-type"), Some("text/event-stream"));
        assert_eq!(head.header("x-accel-buffering"), Some("no"));
        Self(client)
    }

    /// The next message; `None` at the end of the stream.
    fn message(&mut self) -> Option<Value> {
        loop {
            let event = self.0.event()?;
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            if let Some(data) = data {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The method and the URI of the next message.
    fn told(&mut self) -> (String, Value) {
        let message = self.message().unwrap();
        (message["method"].as_str().unwrap().to_owned(), message["params"]["uri"].clone())
    }
}

fn listen(path: &str, employee: &str, id: &str, filter: &Value) -> Request {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{filter},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    Request::stateless(&body).at(path).header("SSO-Emp-Id", employee)
}

fn get(session: &str, employee: &str) -> Request {
    Request::new("GET", "/mcp/up", "")
        .header("Accept", "text/event-stream")
        .header("MCP-Protocol-Version", "2025-11-25")
        .header("Mcp-Session-Id", session)
        .header("SSO-Emp-Id", employee)
}

fn session_of(gateway: &Gateway, employee: &str) -> String {
    let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let reply = Request::plain(body).header("SSO-Emp-Id", employee).ask(gateway);
    reply.header("mcp-session-id").unwrap().to_owned()
}

fn in_session(
    gateway: &Gateway,
    session: &str,
    employee: &str,
    method: &str,
    params: &Value,
) -> Reply {
    let body = json!({ "jsonrpc": "2.0", "id": 5, "method": method, "params": params });
    Request::handshake(body.to_string())
        .header("Mcp-Session-Id", session)
        .header("SSO-Emp-Id", employee)
        .ask(gateway)
}

fn subscribe(gateway: &Gateway, session: &str, employee: &str, uri: &str) -> Reply {
    in_session(gateway, session, employee, "resources/subscribe", &json!({ "uri": uri }))
}

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

fn updated(uri: &str) -> (String, Value) {
    (UPDATED.to_owned(), json!(uri))
}

/// The first message says what of the filter is honoured, under the id as the client wrote it.
#[test]
fn a_stream_begins_with_what_is_honoured() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway(&server, "");
        let all = json!({ "toolsListChanged": true, "promptsListChanged": true,
            "resourcesListChanged": true,
            "resourceSubscriptions": ["a://one", "b://hidden", "a://refused", "a://one"] });
        for id in ["9", "\"9\"", "\"\\u00e9\"", "12345678901234567890"] {
            let (_, first) = Listener::modern(&gateway, "/mcp/up", "E1", id, &all);
            // There are no prompts; the one URI is hidden, the other the server's to refuse.
            let expected = json!({
                "jsonrpc": "2.0",
                "method": "notifications/subscriptions/acknowledged",
                "params": {
                    "_meta": { "io.modelcontextprotocol/subscriptionId":
                               serde_json::from_str::<Value>(id).unwrap() },
                    "notifications": { "toolsListChanged": true, "resourcesListChanged": true,
                                       "resourceSubscriptions": ["a://one"] },
                },
            });
            assert_eq!(first, expected, "{era:?} {id}");
        }
        let (_, first) = Listener::modern(&gateway, "/mcp/up", "E1", "1", &json!({}));
        assert_eq!(first["params"]["notifications"], json!({}));
        let wrong = listen("/mcp/up", "E1", "1", &json!([])).ask(&gateway);
        assert_eq!(wrong.rpc_code(), Some(-32602));
    }
}

/// A server's word brings the listing at once, and whoever sees what changed is told of it.
#[test]
fn what_changes_for_a_caller_is_told_and_nothing_else() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway(&server, "");
        wait_for("the gateway listens", 5 * SECOND, || server.streams() == [""]);
        let wanted = json!({ "toolsListChanged": true });
        let (mut modern, _) = Listener::modern(&gateway, "/mcp/up", "E1", "3", &wanted);
        let (mut aggregate, _) = Listener::modern(&gateway, "/mcp", "E1", "4", &wanted);
        let unwanted = json!({ "resourcesListChanged": true });
        let (mut other, _) = Listener::modern(&gateway, "/mcp/up", "E1", "5", &unwanted);
        let session = session_of(&gateway, "E1");
        let mut legacy = Listener::of_session(&gateway, &session, "E1");
        // Hidden: nobody is told.
        server.lists_tools(&["open", "secret"]);
        server.tell(None, TOOLS_CHANGED, &json!({}));
        wait_for("it is listed", 5 * SECOND, || server.seen("tools/list").len() >= 2);
        std::thread::sleep(SECOND);
        server.lists_tools(&["open", "open_too"]);
        server.tell(None, TOOLS_CHANGED, &json!({}));
        for (listener, id) in
            [(&mut modern, Some(3)), (&mut aggregate, Some(4)), (&mut legacy, None)]
        {
            let message = listener.message().unwrap();
            assert_eq!(message["method"], TOOLS_CHANGED);
            let tag = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
            assert_eq!(tag, &id.map_or(Value::Null, |id| json!(id)), "{era:?}");
        }
        // It has not been asked for each stream: one for the gateway's own is enough.
        assert_eq!(server.streams(), [""]);
        drop(gateway);
        // The drain's end is the first thing that the others hear after their acknowledgement.
        let end = other.message().unwrap();
        assert_eq!(end["id"], 5);
        assert_eq!(end["result"]["resultType"], "complete");
        assert_eq!(end["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 5);
        assert_eq!(other.message(), None);
        assert_eq!(modern.message().unwrap()["id"], 3);
        assert_eq!(modern.message(), None);
        assert_eq!(legacy.message(), None);
    }
}

/// The same of resources, which a stream hears of apart from tools.
#[test]
fn a_changed_list_of_resources_is_told_to_who_sees_it() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway(&server, "");
        wait_for("the gateway listens", 5 * SECOND, || server.streams() == [""]);
        let wanted = json!({ "resourcesListChanged": true });
        let (mut listener, _) = Listener::modern(&gateway, "/mcp", "E1", "1", &wanted);
        let changed = "notifications/resources/list_changed";
        for (uris, tools) in [
            (&["a://one", "a://two", "b://hidden"][..], &["open", "open_too"][..]),
            (&["a://one", "a://three"], &["open"]),
        ] {
            let listed = server.seen("resources/list").len();
            server.lists_resources(uris);
            server.lists_tools(tools);
            server.tell(None, changed, &json!({}));
            wait_for("it is listed", 5 * SECOND, || server.seen("resources/list").len() > listed);
            std::thread::sleep(SECOND);
        }
        // Once, for the second of them: neither what is hidden nor tools concern it.
        assert_eq!(listener.told().0, changed, "{era:?}");
        drop(gateway);
        assert!(listener.message().unwrap()["result"].is_object());
    }
}

/// Each hears of what it asked for, whoever else does, under the name that it knows.
#[test]
fn who_watches_a_resource_is_told_of_it() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway(&server, "");
        let watch = |uris: Value| json!({ "resourceSubscriptions": uris });
        let (mut one, _) =
            Listener::modern(&gateway, "/mcp/up", "E1", "1", &watch(json!(["a://one"])));
        let (mut two, _) =
            Listener::modern(&gateway, "/mcp/up", "E1", "2", &watch(json!(["a://two"])));
        let (mut aggregate, first) =
            Listener::modern(&gateway, "/mcp", "E2", "3", &watch(json!(["up+a://one"])));
        assert_eq!(first["params"]["notifications"], watch(json!(["up+a://one"])));
        let session = session_of(&gateway, "E2");
        let mut legacy = Listener::of_session(&gateway, &session, "E2");
        let reply = subscribe(&gateway, &session, "E2", "a://two");
        assert_eq!(reply.member(&["result"]).as_deref(), Some("{}"), "{}", reply.text());
        wait_for("each has a stream of its own", 5 * SECOND, || {
            let mut streams = server.streams();
            streams.sort();
            streams == ["", "E1", "E2"]
        });
        if era == Era::Stateless {
            assert_eq!(server.filter_of("E1"), ["a://one", "a://two"]);
            assert_eq!(server.filter_of("E2"), ["a://one", "a://two"]);
        }
        server.updated("a://one");
        server.updated("a://unwatched");
        server.updated("a://two");
        assert_eq!(one.told(), updated("a://one"));
        assert_eq!(two.told(), updated("a://two"));
        assert_eq!(aggregate.told(), updated("up+a://one"));
        assert_eq!(legacy.told(), updated("a://two"));
        // What one employee's server says is not told another.
        server.tell(Some("E1"), UPDATED, &json!({ "uri": "a://one" }));
        assert_eq!(one.told(), updated("a://one"));
        server.tell(Some("E2"), UPDATED, &json!({ "uri": "a://one/part" }));
        assert_eq!(aggregate.told(), updated("up+a://one/part"));
        // The last who leaves takes the server's stream along.
        drop((one, two));
        wait_for("nobody listens for E1", 5 * SECOND, || !server.streams().contains(&"E1".into()));
        let reply = in_session(
            &gateway,
            &session,
            "E2",
            "resources/unsubscribe",
            &json!({ "uri": "a://two" }),
        );
        assert_eq!(reply.member(&["result"]).as_deref(), Some("{}"));
        drop(aggregate);
        wait_for("nobody listens for E2", 5 * SECOND, || server.streams() == [""]);
        if era == Era::Handshake {
            let gone = server.seen("resources/unsubscribe");
            let uris: Vec<_> = gone.iter().map(|seen| &seen.message["params"]["uri"]).collect();
            assert_eq!(uris.len(), 4, "{uris:?}");
        }
    }
}

/// A hidden resource answers like one that is not there; a server's own refusal is passed on.
#[test]
fn what_may_not_be_watched_is_refused() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway(&server, "");
        let session = session_of(&gateway, "E1");
        let hidden = subscribe(&gateway, &session, "E1", "b://one");
        let nowhere = subscribe(&gateway, &session, "E1", "c://nowhere");
        for reply in [&hidden, &nowhere] {
            assert_eq!((reply.status, reply.rpc_code()), (200, Some(-32002)), "{}", reply.text());
        }
        let message = |reply: &Reply, uri| {
            reply.member(&["error", "message"]).unwrap_or_default().replace(uri, "URI")
        };
        assert_eq!(message(&hidden, "b://one"), message(&nowhere, "c://nowhere"));
        assert_eq!(server.seen("resources/subscribe").len(), 0);
        let refused = subscribe(&gateway, &session, "E1", "a://refused");
        assert_eq!(refused.rpc_code(), Some(-32002), "{era:?} {}", refused.text());
        // And it is not kept.
        wait_for("nothing is asked any more", 5 * SECOND, || server.streams() == [""]);
    }
    for era in ERAS {
        let server = Server::start(era, json!({ "tools": {}, "resources": {} }));
        let gateway = gateway(&server, "");
        let session = session_of(&gateway, "E1");
        for (method, params) in [
            ("resources/subscribe", json!({ "uri": "a://one" })),
            ("resources/unsubscribe", json!({ "uri": "a://one" })),
            ("logging/setLevel", json!({ "level": "info" })),
        ] {
            let reply = in_session(&gateway, &session, "E1", method, &params);
            assert_eq!((reply.status, reply.rpc_code()), (200, Some(-32601)), "{}", reply.text());
        }
        let filter = json!({ "resourceSubscriptions": ["a://one"] });
        let (_, first) = Listener::modern(&gateway, "/mcp/up", "E1", "1", &filter);
        assert_eq!(first["params"]["notifications"], json!({}));
        assert_eq!(server.streams(), Vec::<String>::new());
    }
}

/// C22: 405 means that there is no stream: it is remembered, and the rest goes on.
#[test]
fn a_server_without_a_stream_is_not_asked_again() {
    let server = Server::start(Era::Handshake, everything()).without_stream();
    let gateway = gateway_with(&server, "", "poll: 1s");
    wait_for("it is polled", 15 * SECOND, || server.seen("tools/list").len() >= 4);
    assert_eq!(server.seen("GET").len(), 1);
    let session = session_of(&gateway, "E1");
    let mut legacy = Listener::of_session(&gateway, &session, "E1");
    let reply = subscribe(&gateway, &session, "E1", "a://one");
    assert_eq!(reply.member(&["result"]).as_deref(), Some("{}"), "{}", reply.text());
    assert_eq!(server.seen("resources/subscribe").len(), 1);
    // Polling still finds what changes.
    server.lists_tools(&["open", "open_too"]);
    assert_eq!(legacy.told().0, TOOLS_CHANGED);
}

/// A stream that breaks is opened anew, with all that is still wanted.
#[test]
fn broken_streams_of_a_server_come_back() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let address = server.address;
        let gateway = gateway(&server, "");
        let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a://one"] });
        let (mut listener, _) = Listener::modern(&gateway, "/mcp/up", "E1", "1", &filter);
        wait_for("both streams", 5 * SECOND, || server.streams().len() == 2);
        server.break_streams();
        wait_for("both are back", 5 * SECOND, || server.streams().len() == 2);
        if era == Era::Handshake {
            wait_for("subscribed anew", 5 * SECOND, || {
                server.seen("resources/subscribe").len() == 2
            });
        }
        server.updated("a://one");
        assert_eq!(listener.told(), updated("a://one"));
        // The whole server goes and another comes.
        drop(server);
        std::thread::sleep(SECOND / 2);
        let server = Server::at(address, era, everything());
        server.lists_tools(&["open", "open_too"]);
        assert_eq!(listener.told().0, TOOLS_CHANGED, "{era:?}");
        wait_for("both are back", 15 * SECOND, || server.streams().len() == 2);
        server.updated("a://one");
        assert_eq!(listener.told(), updated("a://one"), "{era:?}");
    }
}

/// One stream a session, the newest; a session's end is its streams' too.
#[test]
fn a_session_has_one_stream() {
    let server = Server::start(Era::Stateless, everything());
    let gateway = gateway(&server, "");
    let session = session_of(&gateway, "E1");
    let mut first = Listener::of_session(&gateway, &session, "E1");
    let mut second = Listener::of_session(&gateway, &session, "E1");
    assert_eq!(first.message(), None);
    // Another's session is none, and a GET without one has no meaning.
    let foreign = get(&session, "E2").ask(&gateway);
    assert_eq!(foreign.status, 404);
    let none = get("", "E1").without("Mcp-Session-Id").ask(&gateway);
    assert_eq!(none.status, 405);
    assert_eq!(none.header("allow"), Some("POST, DELETE"));
    let modern = get(&session, "E1").set("MCP-Protocol-Version", "2026-07-28").ask(&gateway);
    assert_eq!(modern.status, 405);
    let json = get(&session, "E1").set("Accept", "application/json").ask(&gateway);
    assert_eq!(json.status, 406);
    let reply = subscribe(&gateway, &session, "E1", "a://one");
    assert_eq!(reply.member(&["result"]).as_deref(), Some("{}"));
    wait_for("it is watched", 5 * SECOND, || server.streams().len() == 2);
    let end = Request::new("DELETE", "/mcp/up", "")
        .header("Mcp-Session-Id", &session)
        .header("SSO-Emp-Id", "E1")
        .ask(&gateway);
    assert_eq!(end.status, 204);
    assert_eq!(second.message(), None);
    wait_for("nothing is watched", 5 * SECOND, || server.streams() == [""]);
    assert_eq!(get(&session, "E1").ask(&gateway).status, 404);
    gateway.audited("the stream is recorded", |record| {
        record["rpc"]["method"] == "subscriptions/listen"
            || record.to_string().contains("subscriptions/listen")
    });
}

/// The level of a session is its own, and goes with it.
#[test]
fn a_log_level_is_set_for_a_session() {
    let server = Server::start(Era::Stateless, everything());
    let gateway = gateway(&server, "");
    let session = session_of(&gateway, "E1");
    let level = |level: &str| json!({ "level": level });
    let reply = in_session(&gateway, &session, "E1", "logging/setLevel", &level("warning"));
    assert_eq!(reply.member(&["result"]).as_deref(), Some("{}"), "{}", reply.text());
    let reply = in_session(&gateway, &session, "E1", "logging/setLevel", &level("loud"));
    assert_eq!(reply.rpc_code(), Some(-32602));
    let alone = Request::handshake(
        r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}"#,
    );
    assert_eq!(alone.header("SSO-Emp-Id", "E1").ask(&gateway).rpc_code(), Some(-32600));
}

#[test]
fn capabilities_say_what_is_told() {
    for era in ERAS {
        let server = Server::start(era, everything());
        let gateway = gateway(&server, "");
        for path in ["/mcp", "/mcp/up"] {
            let body = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
            let reply = Request::plain(body).at(path).header("SSO-Emp-Id", "E1").ask(&gateway);
            let declared: Value =
                serde_json::from_str(&reply.member(&["result", "capabilities"]).unwrap()).unwrap();
            assert_eq!(declared["tools"]["listChanged"], true, "{declared}");
            assert_eq!(declared["resources"], json!({ "subscribe": true, "listChanged": true }));
            assert_eq!(declared["logging"], json!({}));
            assert_eq!(declared["prompts"], Value::Null);
        }
    }
}

/// A cap is told as what it is, with the word for it.
#[test]
fn streams_beyond_the_cap_are_refused() {
    let server = Server::start(Era::Stateless, everything());
    let gateway = gateway(&server, "streams: { per_principal: 2, subscriptions: 1 }");
    let filter = json!({ "toolsListChanged": true });
    let (first, _) = Listener::modern(&gateway, "/mcp/up", "E1", "1", &filter);
    let (_second, _) = Listener::modern(&gateway, "/mcp/up", "E1", "2", &filter);
    let refused = listen("/mcp/up", "E1", "3", &filter).ask(&gateway);
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    assert!(refused.text().contains("streams.per_principal"), "{}", refused.text());
    let (_other, _) = Listener::modern(&gateway, "/mcp/up", "E2", "4", &filter);
    drop(first);
    wait_for("a place is free", 5 * SECOND, || {
        let mut client = Client::of(&gateway);
        client.send(&listen("/mcp/up", "E1", "5", &filter));
        client.head().status == 200
    });
    let many = json!({ "resourceSubscriptions": ["a://one", "a://two"] });
    let refused = listen("/mcp/up", "E2", "6", &many).ask(&gateway);
    assert_eq!(refused.rpc_code(), Some(-32602), "{}", refused.text());
    let session = session_of(&gateway, "E2");
    assert!(subscribe(&gateway, &session, "E2", "a://one").text().contains("result"));
    let refused = subscribe(&gateway, &session, "E2", "a://two");
    assert_eq!(refused.refusal().as_deref(), Some("rate_limited"), "{}", refused.text());
}

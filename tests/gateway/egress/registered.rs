//! What employees bring: wherever an address leads, only the open Internet is dialled (C60, C61).

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Names, PATIENCE, Place, port};
use crate::support::{Answer, Gateway, Reply, Request, Speaks, Upstream, wait_for};

/// Members may register whatever they like: it is egress alone that stands in between.
const POLICY: &str = "version: hangu/v1
kind: Policy
scope: { tenant: acme }
self_service:
  roles: [member]
  hosts: [\"*:*\", \"http://srv.example:*\"]
  max_each: 100
  default: { risk: read_low, pin: first_use }
rules:
  - { id: member-read, effect: allow, roles: [member], risk: [read_low] }
";

fn gateway(names: Option<&Arc<Names>>, egress: &str) -> Gateway {
    let yaml = format!(
        "store: memory\n{egress}
callers:
  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }}, call_sources: [agent] }}
upstreams: {{}}\n"
    );
    match names {
        Some(names) => Gateway::resolving(names.clone(), &yaml, &[POLICY]),
        None => Gateway::start(&yaml, &[POLICY]),
    }
}

fn register(gateway: &Gateway, url: &str, dialect: &str) -> Reply {
    let body = json!({ "url": url, "dialect": dialect }).to_string();
    let request = Request::new("POST", "/v1/servers", body);
    request.header("Content-Type", "application/json").ask(gateway)
}

fn call(gateway: &Gateway, key: &str) -> Reply {
    Request::call("echo", &json!({})).at(&format!("/mcp/{key}")).ask(gateway)
}

/// What whoever brings or calls such a server is told, whenever that is.
fn sentence(at: &str) -> String {
    format!(
        "This gateway may not call `{at}`: of servers that employees bring it calls those on the \
         open Internet, at the ports that are open for them. Bring another address, or ask whoever \
         runs the gateway to open `{at}` (`egress.allow`)."
    )
}

#[track_caller]
fn assert_blocked(reply: &Reply, at: &str) {
    let told: Value = serde_json::from_slice(&reply.body).unwrap();
    let error = &told["error"];
    assert_eq!(reply.status, 403, "{at}: {told}");
    assert_eq!(error["code"], "unsafe_action_blocked", "{at}: {told}");
    assert_eq!(error["message"], sentence(at), "{at}");
    assert_eq!((&error["retryable"], &error["next"]), (&json!(false), &json!("stop")), "{at}");
}

/// Each as it stands, told as this host; and, where it leads to this machine, at a port where
/// somebody listens.
fn refused(urls: &[(&str, &str)]) {
    let inside = Place::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned());
    let gateway = gateway(None, "");
    for (text, host) in urls {
        let mut there = url::Url::parse(text).unwrap();
        there.set_port(Some(inside.address.port())).unwrap();
        for url in [text, there.as_str()] {
            let port = url::Url::parse(url).unwrap().port_or_known_default().unwrap();
            for dialect in ["auto", "sse", "mcp-lite", "streamable-http"] {
                assert_blocked(&register(&gateway, url, dialect), &format!("{host}:{port}"));
            }
        }
    }
    assert_eq!(inside.came(), 0);
    let listed = Request::new("GET", "/v1/servers", "").ask(&gateway);
    assert_eq!((listed.status, listed.text().as_str()), (200, r#"{"servers":[]}"#));
}

/// C60.
#[test]
fn a_registered_url_that_points_inside_is_refused_and_not_dialled() {
    refused(&[
        ("http://169.254.169.254/mcp", "169.254.169.254"),
        ("http://127.0.0.1:22/", "127.0.0.1"),
        ("http://localhost/", "localhost"),
        ("http://10.0.0.5/", "10.0.0.5"),
        ("http://172.16.0.1/", "172.16.0.1"),
        ("http://192.168.1.1/", "192.168.1.1"),
        ("http://100.64.0.1/", "100.64.0.1"),
        ("http://0.0.0.0/", "0.0.0.0"),
        ("http://[::1]/", "[::1]"),
        ("http://[fd00::1]/", "[fd00::1]"),
        ("http://[fe80::1]/", "[fe80::1]"),
        ("http://[fd00:ec2::254]/", "[fd00:ec2::254]"),
    ]);
    let gateway = gateway(None, "");
    for url in ["file:///etc/passwd", "gopher://x/"] {
        assert_eq!(register(&gateway, url, "auto").status, 400, "{url}");
    }
}

/// C61.
#[test]
fn another_spelling_of_an_internal_address_is_the_same_address() {
    refused(&[
        ("http://[::ffff:127.0.0.1]/", "[::ffff:127.0.0.1]"),
        ("http://[::ffff:7f00:1]/", "[::ffff:127.0.0.1]"),
        ("http://[64:ff9b::a9fe:a9fe]/", "[64:ff9b::a9fe:a9fe]"),
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7f.1/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://127.1/", "127.0.0.1"),
        ("http://localhost./", "localhost"),
        ("http://LOCALHOST/", "localhost"),
    ]);
}

#[test]
fn a_name_that_leads_inside_is_refused_in_every_way_and_its_address_is_not_told() {
    let server = Upstream::answering(Speaks::Stateless, Answer::none());
    let names = Names::new("srv.example", &["127.0.0.1", "10.1.2.3"]);
    let public_url = "public_url: https://gate.example\n";
    let gateway = gateway(Some(&names), public_url);
    let url = format!("http://srv.example:{}/mcp", port(&server));
    let at = format!("srv.example:{}", port(&server));
    let bearer = json!({ "type": "bearer", "token": "t" });
    for (dialect, auth) in [
        ("auto", json!({ "type": "none" })),
        ("sse", json!({ "type": "none" })),
        ("mcp-lite", bearer),
        // Kept without being asked, were it not for the address.
        ("auto", json!({ "type": "oauth" })),
    ] {
        let body = json!({ "url": url, "dialect": dialect, "auth": auth }).to_string();
        let request = Request::new("POST", "/v1/servers", body);
        let reply = request.header("Content-Type", "application/json").ask(&gateway);
        assert_blocked(&reply, &at);
        for inside in ["127.0.0.1", "10.1.2.3", "private", "loopback"] {
            assert!(!reply.text().contains(inside), "{}", reply.text());
        }
    }
    let file = json!({ "mcpServers": { "a": { "url": url } } }).to_string();
    let request = Request::new("POST", "/v1/servers/import", file);
    let reply = request.header("Content-Type", "application/json").ask(&gateway);
    let told: Value = serde_json::from_slice(&reply.body).unwrap();
    let entry = &told["servers"][0];
    assert_eq!(entry["outcome"], "refused", "{told}");
    assert_eq!(entry["error"]["code"], "unsafe_action_blocked", "{told}");
    assert_eq!(entry["error"]["message"], sentence(&at), "{told}");
    assert_eq!(server.received().len(), 0);
    let listed = Request::new("GET", "/v1/servers", "").ask(&gateway);
    assert_eq!(listed.text(), r#"{"servers":[]}"#);
}

#[test]
fn a_server_whose_name_is_turned_inside_later_is_dialled_no_more() {
    for (speaks, dialect) in [
        (Speaks::Stateless, "auto"),
        (Speaks::Handshake("2025-11-25"), "auto"),
        (Speaks::Lite, "mcp-lite"),
    ] {
        let said = r#"{"content":[{"type":"text","text":"said"}],"isError":false,"resultType":"complete"}"#;
        let answer = match speaks {
            Speaks::Lite => said.to_owned(),
            _ => format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{said}}}"#),
        };
        let server = Upstream::answering(speaks, Answer::json(answer));
        // The same port at an address that no entry names.
        let inside = Place::at(&format!("127.0.0.9:{}", port(&server)));
        let names = Names::new("srv.example", &["127.0.0.1"]);
        let gateway = gateway(Some(&names), "egress: { allow: [127.0.0.1], resolve: 1s }");
        let url = format!("http://srv.example:{}/mcp", port(&server));
        let reply = register(&gateway, &url, dialect);
        let told: Value = serde_json::from_slice(&reply.body).unwrap();
        let key = told["serverKey"].as_str().unwrap_or_else(|| panic!("{told}"));
        let good = call(&gateway, key);
        assert!(good.text().contains("said"), "{}", good.text());
        names.lead("srv.example", &["127.0.0.9"]);
        let denied = || call(&gateway, key).text().contains("unsafe_action_blocked");
        wait_for("the name is looked up again", PATIENCE, denied);
        let calls = server.calls().len();
        let reply = call(&gateway, key);
        assert_eq!(reply.refusal().as_deref(), Some("unsafe_action_blocked"), "{}", reply.text());
        assert!(!reply.text().contains("127.0.0"), "{}", reply.text());
        let at = format!("srv.example:{}", port(&server));
        assert!(reply.text().contains(&sentence(&at)), "{}", reply.text());
        // The same where its owner has it asked again, and it is told where he looks at it.
        let path = format!("/v1/servers/{key}");
        let again = Request::new("POST", &format!("{path}/refresh"), "").ask(&gateway);
        assert_blocked(&again, &at);
        let shown = Request::new("GET", &path, "").ask(&gateway);
        let shown: Value = serde_json::from_slice(&shown.body).unwrap();
        assert_eq!(shown["lastError"]["message"], sentence(&at), "{shown}");
        gateway.audited("the refusal has its reason", |record| {
            record["reason"] == "egress_denied" && record["serverKey"] == key
        });
        assert_eq!((server.calls().len(), inside.came()), (calls, 0));
        names.lead("srv.example", &["127.0.0.1"]);
        let good = || call(&gateway, key).text().contains("said");
        wait_for("the name leads home again", PATIENCE, good);
    }
}

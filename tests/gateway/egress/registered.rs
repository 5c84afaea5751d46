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
  hosts: [\"*:*\"]
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

/// Each as it stands and, where it leads to this machine, at a port where somebody listens.
fn refused(urls: &[&str]) {
    let inside = Place::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned());
    let gateway = gateway(None, "");
    let refuse = |url: &str| {
        for dialect in ["auto", "sse", "mcp-lite"] {
            let reply = register(&gateway, url, dialect);
            assert!(matches!(reply.status, 400 | 403 | 502), "{url}: {}", reply.text());
            // No more than what was posted.
            assert!(!reply.text().contains("egress.allow"), "{url}: {}", reply.text());
        }
    };
    for text in urls {
        refuse(text);
        if let Ok(mut url) = url::Url::parse(text)
            && url.set_port(Some(inside.address.port())).is_ok()
        {
            refuse(url.as_str());
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
        "http://169.254.169.254/mcp",
        "http://127.0.0.1:22/",
        "http://localhost/",
        "http://10.0.0.5/",
        "http://100.64.0.1/",
        "http://0.0.0.0/",
        "http://[fd00::1]/",
        "file:///etc/passwd",
        "gopher://x/",
    ]);
}

/// C61.
#[test]
fn another_spelling_of_an_internal_address_is_the_same_address() {
    refused(&[
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://localhost./",
        "http://LOCALHOST/",
    ]);
}

#[test]
fn a_name_that_leads_inside_is_refused_and_its_address_is_not_told() {
    let server = Upstream::answering(Speaks::Stateless, Answer::none());
    let names = Names::new("srv.example", &["127.0.0.1", "10.1.2.3"]);
    let gateway = gateway(Some(&names), "");
    let reply = register(&gateway, &format!("http://srv.example:{}/mcp", port(&server)), "auto");
    assert_ne!(reply.status, 201);
    for inside in ["127.0.0.1", "10.1.2.3", "private", "loopback"] {
        assert!(!reply.text().contains(inside), "{}", reply.text());
    }
    assert_eq!(server.received().len(), 0);
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
        gateway.audited("the refusal has its reason", |record| {
            record["reason"] == "egress_denied" && record["serverKey"] == key
        });
        assert_eq!((server.calls().len(), inside.came()), (calls, 0));
        names.lead("srv.example", &["127.0.0.1"]);
        let good = || call(&gateway, key).text().contains("said");
        wait_for("the name leads home again", PATIENCE, good);
    }
}

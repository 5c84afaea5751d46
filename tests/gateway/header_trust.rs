//! What of a client's head reaches a server: nothing that nobody listed.

use serde_json::json;

use crate::process_support::{Dialect, Process, Seen, Setup, Upstream, tool};

const LITE: &str = "dialect: mcp-lite";

fn start(more: &str) -> (Upstream, Process) {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, more, "").env("UP", "UPSECRET-of-tests").start();
    (up, gateway)
}

fn last(up: &Upstream) -> Seen {
    up.calls().pop().unwrap()
}

/// C42.
#[test]
fn a_clients_credentials_stay_at_the_gateway() {
    for more in ["", LITE] {
        let (up, gateway) = start(more);
        for dialect in Dialect::ALL {
            let planted = [
                ("Authorization", "Bearer PLANTED"),
                ("Proxy-Authorization", "Basic PLANTED"),
                ("Cookie", "sid=PLANTED"),
                ("X-Vault-Token", "PLANTED"),
                ("X-Employee-Id", "PLANTED"),
                ("X-Forwarded-For", "192.0.2.77"),
                ("User-Agent", "PLANTED"),
                ("Via", "1.1 PLANTED"),
                ("X-Call-Source", "PLANTED"),
                ("X-Trace-Id", "PLANTED"),
                ("baggage", "a=PLANTED"),
            ];
            let client = gateway.client("/mcp/up", dialect);
            let client =
                planted.iter().fold(client, |client, (name, value)| client.header(name, value));
            let answer = client.call("echo", json!({ "x": 1 }));
            assert_eq!(answer.word(), "ok", "{answer:?}");
            let seen = last(&up);
            let text = format!("{seen:?}");
            for secret in ["PLANTED", crate::process_support::KEY, "192.0.2.77"] {
                assert!(!text.contains(secret), "{dialect:?} {more}: {text}");
            }
            for name in ["authorization", "cookie", "x-api-key", "x-vault-token", "x-employee-id"] {
                assert_eq!(seen.header(name), None, "{dialect:?} {more}");
            }
            // What the gateway says itself is its own.
            assert_eq!(seen.header("x-call-source"), Some("mcp"), "{text}");
            assert_eq!(seen.header("x-trace-id"), answer.header("x-trace-id"), "{text}");
            assert!(!text.contains("sso-emp-id"), "{text}");
        }
    }
}

#[test]
fn a_listed_header_is_forwarded_and_no_other() {
    for more in ["", LITE] {
        let comma = if more.is_empty() { "" } else { ", " };
        let (up, gateway) = start(&format!("{more}{comma}forward_headers: [X-Locale, X-Region]"));
        for dialect in Dialect::ALL {
            let client = gateway
                .client("/mcp/up", dialect)
                .header("X-Locale", "de-AT")
                .header("x-tenant", "globex");
            assert_eq!(client.call("echo", json!({})).word(), "ok");
            let seen = last(&up);
            assert_eq!(seen.header("x-locale"), Some("de-AT"), "{dialect:?}");
            assert_eq!(seen.header("x-region"), None, "{dialect:?}");
            assert_eq!(seen.header("x-tenant"), None, "{dialect:?}");
            // What breaks a header is refused, not cleaned.
            let before = up.calls().len();
            let odd = gateway.client("/mcp/up", dialect).header("X-Locale", "\u{fc}");
            let answer = odd.call("echo", json!({}));
            assert_eq!(answer.word(), "invalid_args", "{dialect:?} {answer:?}");
            assert_eq!(up.calls().len(), before, "{dialect:?}");
        }
    }
}

#[test]
fn templates_say_who_calls_and_secrets_are_attached() {
    let more = "headers: { X-Api-Key: { env: UP }, SSO-Emp-Id: $ctx.user.empId, \
                X-Roles: $ctx.user.roles, X-Tenant: $ctx.tenant, X-Caller: $ctx.caller, \
                X-Trace: $ctx.traceId, X-Source: $ctx.callSource, X-Request: $ctx.requestId }";
    for dialect in Dialect::ALL {
        for kind in ["", "dialect: mcp-lite, "] {
            let (up, gateway) = start(&format!("{kind}{more}"));
            let answer = gateway.client("/mcp/up", dialect).call("echo", json!({}));
            assert_eq!(answer.word(), "ok", "{answer:?}");
            let seen = last(&up);
            let trace = answer.header("x-trace-id").unwrap();
            let wanted = [
                ("x-api-key", "UPSECRET-of-tests"),
                ("sso-emp-id", "E1"),
                ("x-roles", "member"),
                ("x-tenant", "acme"),
                ("x-caller", "gate"),
                ("x-trace", trace),
                ("x-source", "mcp"),
            ];
            for (name, value) in wanted {
                assert_eq!(seen.header(name), Some(value), "{dialect:?} {kind} {name}");
            }
            assert!(seen.header("x-request").is_some_and(|id| !id.is_empty()), "{seen:?}");
            // The user object is a provider's, and says the same.
            let user = json!({ "empId": "E1", "tenant": "acme", "roles": ["member"] });
            let told = seen.params.get("user");
            assert_eq!(told, (!kind.is_empty()).then_some(&user), "{dialect:?} {seen:?}");
        }
    }
}

#[test]
fn a_user_object_of_a_client_is_removed() {
    for more in ["", LITE, "dialect: mcp-lite, inject_user: false"] {
        let (up, gateway) = start(more);
        for dialect in Dialect::ALL {
            let body = json!({ "name": "echo", "arguments": {}, "user": { "empId": "BOSS" } });
            let answer = gateway.client("/mcp/up", dialect).send("tools/call", body);
            assert_eq!(answer.word(), "ok", "{answer:?}");
            let seen = last(&up);
            assert!(!seen.body.contains("BOSS"), "{dialect:?} {more}: {seen:?}");
            let injected = seen.params.get("user").is_some();
            assert_eq!(injected, more == LITE, "{dialect:?} {more}: {seen:?}");
        }
    }
}

/// C44.
#[test]
fn a_line_break_in_a_value_never_becomes_a_header() {
    let more = "headers: { X-User: $ctx.user.empId }";
    for kind in ["", "dialect: mcp-lite, "] {
        let (up, gateway) = start(&format!("{kind}{more}"));
        for dialect in Dialect::ALL {
            // As it can stand in a head at all; the rest is refused as no HTTP.
            let values = [
                "a\r\nX-Role: admin",
                "a\nX-Role: admin",
                "a\r\n\r\n{}",
                "a\u{0}b",
                "\u{fc}",
                "a\tb",
                "a%0d%0aX-Role:admin",
            ];
            for value in values {
                let before = up.calls().len();
                let client = gateway.client("/mcp/up", dialect).employee(value);
                let answer = client.try_send("tools/call", json!({ "name": "echo" }));
                // What is no HTTP is refused without a word. A break may as well end the line:
                // then the words behind it are another header, and the employee is `a`, whom
                // nobody knows.
                let answer = answer.unwrap();
                assert!((200..500).contains(&answer.status), "{value:?}: {answer:?}");
                let wordless = answer.status == 400 && answer.body.is_empty();
                assert!(wordless || answer.word() != "ok", "{value:?}: {answer:?}");
                assert_eq!(up.calls().len(), before, "{dialect:?} {value:?}");
            }
        }
        assert!(!gateway.log().contains("\nX-Role"), "{}", gateway.log());
        // It still serves.
        let answer = gateway.client("/mcp/up", Dialect::Modern).call("echo", json!({}));
        assert_eq!(answer.word(), "ok");
    }
}

#[test]
fn a_header_without_a_value_refuses_the_call() {
    // Rules may let a caller in for whom there is no employee; a server that wants one gets none.
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new()
        .upstream("up", &up, "headers: { SSO-Emp-Id: $ctx.user.empId }", "")
        .upstream("plain", &up, "", "")
        .policy(
            "callers.yaml",
            "version: hangu/v1\nkind: Policy\nscope: platform\nrules:\n  \
             - { id: bot, effect: allow, callers: [bot], risk: [read_low] }\n",
        )
        .env("BOT_KEY", "bot-key-of-the-tests---------")
        .caller("bot: { keys: [{ env: BOT_KEY }], tenant: acme }")
        .start();
    for dialect in Dialect::ALL {
        let bot = |path: &str| {
            let client = gateway.client(path, dialect).without("SSO-Emp-Id");
            client.key("bot-key-of-the-tests---------")
        };
        assert_eq!(bot("/mcp/plain").call("echo", json!({})).word(), "ok", "{dialect:?}");
        let before = up.calls().len();
        let answer = bot("/mcp/up").call("echo", json!({}));
        assert_eq!(answer.word(), "permission_denied", "{dialect:?}: {answer:?}");
        assert_eq!(up.calls().len(), before, "{dialect:?}");
    }
}

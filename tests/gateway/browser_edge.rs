//! What browsers ask before a call, what foreign pages are told, and the challenge of a 401
//! (C45-C47).

use crate::support::{Answer, ECHO, Gateway, LITE_OK, OK, Request, Speaks, Upstream};

const ORIGINS: &str = "origins: [\"https://app.example\"]";

fn upstream() -> Upstream {
    Upstream::answering(Speaks::Handshake("2025-11-25"), Answer::json(OK))
}

/// C45.
#[test]
fn a_preflight_is_answered_without_a_key_and_grants_nothing_else() {
    let upstream = upstream();
    let gateway = Gateway::before_with(&upstream, "", ORIGINS);
    let asked =
        "authorization,content-type,mcp-protocol-version,mcp-session-id,mcp-method,mcp-name";
    let preflight = |origin: &str, path: &str| {
        Request::new("OPTIONS", path, "")
            .without("X-Api-Key")
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", asked)
            .ask(&gateway)
    };
    for path in ["/mcp", "/mcp/up", "/mcp/up/tools/call", "/mcp/tools/list"] {
        let reply = preflight("https://app.example", path);
        assert_eq!((reply.status, reply.text().as_str()), (204, ""), "{path}");
        let origin = reply.header("access-control-allow-origin");
        assert_eq!(origin, Some("https://app.example"), "{path}");
        assert_eq!(reply.header("access-control-allow-credentials"), None);
        let allowed = reply.header("access-control-allow-headers").unwrap().to_lowercase();
        let allowed: Vec<_> = allowed.split(',').map(str::trim).collect();
        for name in asked.split(',').chain(["x-api-key", "idempotency-key"]) {
            assert!(allowed.contains(&name), "{path}: {name}");
        }
        let refused = preflight("https://evil.example", path);
        assert_eq!(refused.status, 403, "{path}");
        assert_eq!(refused.header("access-control-allow-origin"), None, "{path}");
    }
    assert_eq!(upstream.calls().len(), 0);
}

/// C46.
#[test]
fn an_origin_is_one_that_is_allowed_or_absent() {
    let upstream = upstream();
    let gateway = Gateway::before_with(&upstream, "", ORIGINS);
    for (origin, status) in [
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
        ("https://app.example.evil.example", 403),
        ("https://app.example:8443", 403),
        ("http://app.example", 403),
        ("https://APP.example", 403),
        ("https://app.example/", 403),
        ("https://app.example", 200),
    ] {
        upstream.answers(Answer::json(OK));
        let requests =
            [Request::handshake(ECHO), Request::lite("tools/call", r#"{"name":"echo"}"#)];
        for request in requests {
            let reply = request.header("Origin", origin).ask(&gateway);
            assert_eq!(reply.status, status, "{origin:?}");
            let told = reply.header("access-control-allow-origin");
            assert_eq!(told, (status == 200).then_some("https://app.example"), "{origin:?}");
        }
        let calls = if status == 200 { 2 } else { 0 };
        assert_eq!(upstream.calls().len(), calls, "{origin:?}");
    }
    let reply = Request::handshake(ECHO).ask(&gateway);
    assert_eq!((reply.status, reply.header("access-control-allow-origin")), (200, None));
    let twice = Request::handshake(ECHO)
        .header("Origin", "https://app.example")
        .header("Origin", "https://app.example");
    assert_eq!(twice.ask(&gateway).status, 403);
}

/// C47, with the key that a token may stand in for: until issuers can be configured, every
/// request without a good key is challenged alike, on every path.
#[test]
fn a_401_carries_a_challenge_on_every_path() {
    for speaks in [Speaks::Handshake("2025-11-25"), Speaks::Lite] {
        let upstream = Upstream::answering(speaks, Answer::json(LITE_OK));
        let gateway = Gateway::before(&upstream);
        let lite = |method| Request::lite(method, r#"{"name":"echo","arguments":{"x":1}}"#);
        let requests = [
            Request::handshake(ECHO),
            Request::handshake(ECHO).at("/mcp"),
            Request::handshake(ECHO).at("/mcp/http"),
            lite("tools/call"),
            lite("tools/list"),
            lite("tools/call").at("/mcp/tools/call"),
            Request::new("GET", "/mcp", ""),
            Request::new("DELETE", "/mcp", ""),
        ];
        for request in requests {
            let request = request.without("X-Api-Key");
            for (name, value) in [
                ("X-Other", ""),
                ("X-Api-Key", ""),
                ("X-Api-Key", "wrong"),
                ("Authorization", "Bearer "),
                ("Authorization", "Bearer expired"),
                ("Authorization", "Bearer key-of-a-test"),
                ("Authorization", "Basic a2V5LW9mLWEtdGVzdDo="),
            ] {
                let reply = request.clone().header(name, value).ask(&gateway);
                assert_eq!(reply.status, 401, "{request:?} {name}: {value}");
                let challenge = reply.header("www-authenticate").unwrap();
                assert!(challenge.starts_with("Bearer "), "{challenge:?}");
                assert!(!reply.text().contains("key-of-a-test"));
            }
        }
        assert_eq!(upstream.calls().len(), 0);
        gateway.audited("the refusal", |record| record["code"] == "unauthenticated");
    }
}

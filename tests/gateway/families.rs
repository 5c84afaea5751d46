//! Prompts, resources, templates and completion, between both eras and on both surfaces: what is
//! hidden is unknown, names are the surface's, and each revision gets what it knows.

use crate::support::{Answer, Gateway, Received, Reply, Request, Speaks, Upstream};

const HANDSHAKE: Speaks = Speaks::Handshake("2025-11-25");

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// The result of `prompts/get`, as the server wrote it.
const PROMPT: &str = r#"{"description":"d","messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"file:///a.txt","text":"\u0031"}}},{"role":"user","content":{"type":"text","text":"file:///a.txt"}}],"later":12345678901234567890}"#;

const LINKS: &str = r#"{"content":[{"type":"resource_link","uri":"file:///a.txt","name":"a"},{"type":"resource_link","uri":"https://example.com/","name":"w"},{"type":"resource","resource":{"uri":"db://t/1","text":""}}],"structuredContent":{"uri":"file:///a.txt","n":1.0}}"#;

const LISTS: [(&str, &str, &str); 3] = [
    (
        "prompts/list",
        "prompts",
        r#"[{"name":"greet","title":"G","arguments":[{"name":"who"}]},{"name":"secret"}]"#,
    ),
    (
        "resources/list",
        "resources",
        r#"[{"uri":"file:///a.txt","name":"a"},{"uri":"file:///secret.txt","name":"s"}]"#,
    ),
    (
        "resources/templates/list",
        "resourceTemplates",
        r#"[{"uriTemplate":"db://{table}/{row}","name":"r"},{"uriTemplate":"secret://{x}","name":"s"}]"#,
    ),
];

const POLICY: &str = r#"version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: read, effect: allow, roles: [member], risk: [read_low] }
  - { id: no-secrets, effect: deny, prompts: ["*/secret*"], resources: ["*/file:///secret*", "*/secret://*"] }
"#;

const TOOLS: &str = "version: hangu/v1\nkind: Tools\nupstreams:\n  up: { default: { risk: read_low } }\n  plain: { default: { risk: read_low } }\n";

fn answer(request: &Received, speaks: Speaks) -> Answer {
    let result = match request.method().as_str() {
        "prompts/get" => PROMPT.to_owned(),
        "completion/complete" => r#"{"completion":{"values":["x"],"hasMore":false}}"#.to_owned(),
        "tools/call" => LINKS.to_owned(),
        _ => {
            let uri = request.member(&["params", "uri"]).unwrap();
            if uri.contains("gone") {
                let code = if matches!(speaks, Speaks::Stateless) { -32602 } else { -32002 };
                return Answer::json(format!(
                    r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"error":{{"code":{code},"message":"g\u006fne","data":{{"uri":{uri},"n":1.0}}}}}}"#
                ));
            }
            format!(
                r#"{{"contents":[{{"uri":{uri},"text":"t"}}],"ttlMs":9000000,"cacheScope":"public"}}"#
            )
        }
    };
    Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#))
}

/// A server that has everything.
fn server(speaks: Speaks) -> Upstream {
    let upstream = Upstream::scripted(speaks, move |request| answer(request, speaks));
    upstream.declares(r#""prompts":{},"resources":{},"completions":{}"#);
    for (method, member, list) in LISTS {
        upstream.gives(method, &format!(r#"{{"{member}":{list}}}"#));
    }
    upstream
}

/// In front of that server, `up`, and one of nothing but tools, `plain`.
fn gateway(up: &Upstream, plain: &Upstream, of_file: &str) -> Gateway {
    let yaml = format!(
        "{of_file}\ncallers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }} }}\nupstreams:\n  up: {{ url: \"{}\" }}\n  plain: {{ url: \"{}\" }}\n",
        up.url(),
        plain.url()
    );
    Gateway::start(&yaml, &[POLICY, TOOLS])
}

fn plain() -> Upstream {
    Upstream::answering(HANDSHAKE, Answer::json(crate::support::OK))
}

/// A request in either era.
fn request(modern: bool, method: &str, params: &str) -> Request {
    if modern {
        let comma = if params.is_empty() { "" } else { "," };
        Request::stateless(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}{comma}{META}}}}}"#
        ))
    } else {
        Request::handshake(format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params}}}}}"#
        ))
    }
}

/// The result without what the era puts around it.
fn bare(reply: &Reply) -> String {
    let result = reply.member(&["result"]).unwrap_or_else(|| panic!("{}", reply.text()));
    let info = concat!(
        r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"hangu","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}},"#
    );
    result.replacen(r#""resultType":"complete","#, "", 1).replacen(info, "", 1)
}

#[test]
fn every_family_goes_through_between_the_eras_and_on_both_surfaces() {
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let (up, plain) = (server(speaks), plain());
        let gateway = gateway(&up, &plain, "");
        for (path, modern) in
            [("/mcp/up", false), ("/mcp/up", true), ("/mcp", false), ("/mcp", true)]
        {
            let what = format!("{speaks:?} {path} {modern}");
            let all = path == "/mcp";
            let (name, uri) = if all { ("up__", "up+") } else { ("", "") };
            let ask = |method: &str, params: &str| {
                let reply = request(modern, method, params).at(path).ask(&gateway);
                assert_eq!(reply.status, 200, "{what}: {}", reply.text());
                reply
            };
            for (method, member, key, own) in [
                ("prompts/list", "prompts", "name", "greet"),
                ("resources/list", "resources", "uri", "file:///a.txt"),
                (
                    "resources/templates/list",
                    "resourceTemplates",
                    "uriTemplate",
                    "db://{table}/{row}",
                ),
            ] {
                let prefix = if key == "name" { name } else { uri };
                let list = ask(method, "").member(&["result", member]).unwrap();
                let listed = format!(r#""{key}":"{prefix}{own}""#);
                assert!(list.contains(&listed), "{what}: {list}");
                assert!(!list.contains("secret"), "{what}: {list}");
            }

            let prompt = ask(
                "prompts/get",
                &format!(r#""name":"{name}greet","arguments":{{"who": "\u0041"}},"x":1.0"#),
            );
            let expected = PROMPT
                .replace(r#""uri":"file:///a.txt""#, &format!(r#""uri":"{uri}file:///a.txt""#));
            assert_eq!(bare(&prompt), expected, "{what}");
            let sent = up.of("prompts/get").pop().unwrap();
            assert_eq!(sent.member(&["params", "name"]).as_deref(), Some(r#""greet""#));
            let arguments = sent.member(&["params", "arguments"]);
            assert_eq!(arguments.as_deref(), Some(r#"{"who": "\u0041"}"#));
            assert_eq!(sent.member(&["params", "x"]).as_deref(), Some("1.0"));

            // Listed, and an expansion of a template, which is not.
            for own in ["file:///a.txt", "db://t/1"] {
                let read = ask("resources/read", &format!(r#""uri":"{uri}{own}""#));
                let contents = read.member(&["result", "contents"]).unwrap();
                assert_eq!(contents, format!(r#"[{{"uri":"{uri}{own}","text":"t"}}]"#), "{what}");
                let (ttl, scope) =
                    (read.member(&["result", "ttlMs"]), read.member(&["result", "cacheScope"]));
                let hints = modern.then_some(("60000", r#""private""#));
                assert_eq!(ttl.as_deref().zip(scope.as_deref()), hints, "{what}");
                let sent = up.of("resources/read").pop().unwrap();
                assert_eq!(sent.member(&["params", "uri"]), Some(format!("\"{own}\"")));
                if matches!(speaks, Speaks::Stateless) {
                    assert_eq!(sent.header("mcp-name"), Some(own), "{what}");
                    assert_eq!(sent.header("mcp-method"), Some("resources/read"), "{what}");
                }
            }

            for (kind, key, prefix, own) in [
                ("ref/prompt", "name", name, "greet"),
                ("ref/resource", "uri", uri, "db://{table}/{row}"),
            ] {
                let params = format!(
                    r#""ref":{{"type":"{kind}","{key}":"{prefix}{own}","x":1.0}},"argument":{{"name":"a","value":"b"}}"#
                );
                let reply = ask("completion/complete", &params);
                assert_eq!(bare(&reply), r#"{"completion":{"values":["x"],"hasMore":false}}"#);
                let sent = up.of("completion/complete").pop().unwrap();
                let reference = format!(r#"{{"type":"{kind}","{key}":"{own}","x":1.0}}"#);
                assert_eq!(sent.member(&["params", "ref"]), Some(reference), "{what}");
            }

            let call = ask("tools/call", &format!(r#""name":"{name}echo","arguments":{{}}"#));
            let content = call.member(&["result", "content"]).unwrap();
            for own in ["file:///a.txt", "db://t/1"] {
                assert!(content.contains(&format!(r#""uri":"{uri}{own}""#)), "{what}: {content}");
            }
            // A link into the web is for whoever has it to follow.
            assert!(content.contains(r#""uri":"https://example.com/""#), "{what}: {content}");
            let structured = call.member(&["result", "structuredContent"]);
            assert_eq!(structured.as_deref(), Some(r#"{"uri":"file:///a.txt","n":1.0}"#));
        }
    }
}

/// The whole answer, but for what was asked for and the trace.
fn shape(reply: &Reply, asked: &str) -> (u16, Vec<(String, String)>, String) {
    let mut headers: Vec<_> = reply
        .headers
        .iter()
        .filter(|(name, _)| !name.eq_ignore_ascii_case("x-trace-id"))
        .filter(|(name, _)| !name.eq_ignore_ascii_case("date"))
        .filter(|(name, _)| !name.eq_ignore_ascii_case("content-length"))
        .cloned()
        .collect();
    headers.sort();
    let trace = reply.header("x-trace-id").unwrap_or_default();
    (reply.status, headers, reply.text().replace(trace, "TRACE").replace(asked, "ASKED"))
}

#[test]
fn what_policy_hides_answers_like_what_does_not_exist() {
    let (up, plain) = (server(HANDSHAKE), plain());
    let gateway = gateway(&up, &plain, "");
    let complete = |kind: &str, key: &str, name: &str| {
        format!(
            r#""ref":{{"type":"{kind}","{key}":"{name}"}},"argument":{{"name":"a","value":""}}"#
        )
    };
    for modern in [false, true] {
        for (path, name, uri) in [("/mcp/up", "", ""), ("/mcp", "up__", "up+")] {
            let cases = [
                ("prompts/get", [format!("{name}secret"), format!("{name}nobody")]),
                ("resources/read", [format!("{uri}file:///secret.txt"), "nobody:///a".into()]),
                // Not listed either, and hidden by its text alone.
                ("resources/read", [format!("{uri}secret://1"), "nobody:///a".into()]),
                ("ref/prompt", [format!("{name}secret"), format!("{name}nobody")]),
                ("ref/resource", [format!("{uri}secret://{{x}}"), format!("{uri}nobody://{{x}}")]),
            ];
            for (what, names) in cases {
                // On one upstream's path every URI is its own, and the rules allow what is no secret.
                if what == "resources/read" && path == "/mcp/up" {
                    continue;
                }
                let [hidden, unknown] = names.each_ref().map(|name| {
                    let (method, params) = match what {
                        "prompts/get" => (what, format!(r#""name":"{name}""#)),
                        "resources/read" => (what, format!(r#""uri":"{name}""#)),
                        "ref/prompt" => ("completion/complete", complete(what, "name", name)),
                        _ => ("completion/complete", complete(what, "uri", name)),
                    };
                    let reply = request(modern, method, &params).at(path).ask(&gateway);
                    let code = match what {
                        "resources/read" if !modern => -32002,
                        _ => -32602,
                    };
                    assert_eq!(reply.rpc_code(), Some(code), "{what} {name}: {}", reply.text());
                    if what == "resources/read" {
                        let data = reply.member(&["error", "data"]);
                        assert_eq!(data, Some(format!(r#"{{"uri":"{name}"}}"#)));
                    }
                    shape(&reply, name)
                });
                assert_eq!(hidden, unknown, "{what} {path} {modern}");
            }
        }
        // There a hidden one is told from an unknown one by nothing but policy's own word.
        let hidden = request(modern, "resources/read", r#""uri":"file:///secret.txt""#);
        let reply = hidden.ask(&gateway);
        assert_eq!(reply.rpc_code(), Some(if modern { -32602 } else { -32002 }));
    }
    for method in ["prompts/get", "resources/read", "completion/complete"] {
        assert_eq!(up.of(method).len(), 0, "{method} reached the server");
    }
    gateway.audited("the hidden resource", |record| {
        record["tool"] == "up/file:///secret.txt"
            && record["reason"] == "rule_deny"
            && record["outcome"] == "denied"
            && record["method"] == "resources/read"
    });
    gateway.audited("the unknown prompt", |record| {
        record["tool"] == "nobody" && record["reason"] == "unknown_item"
    });
}

#[test]
fn what_nobody_declared_is_no_method() {
    let (up, plain) = (server(HANDSHAKE), plain());
    let gateway = gateway(&up, &plain, "");
    for (method, params) in [
        ("prompts/list", ""),
        ("prompts/get", r#""name":"greet""#),
        ("resources/list", ""),
        ("resources/templates/list", ""),
        ("resources/read", r#""uri":"file:///a.txt""#),
        (
            "completion/complete",
            r#""ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}"#,
        ),
    ] {
        for (modern, status) in [(false, 200), (true, 404)] {
            let reply = request(modern, method, params).at("/mcp/plain").ask(&gateway);
            let got = (reply.status, reply.rpc_code());
            assert_eq!(got, (status, Some(-32601)), "{method}: {}", reply.text());
        }
    }
    // Gone from the latest revision, whoever declares it.
    for method in ["ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let reply = request(true, method, r#""uri":"file:///a.txt","level":"info""#).ask(&gateway);
        assert_eq!((reply.status, reply.rpc_code()), (404, Some(-32601)), "{method}");
    }
}

#[test]
fn completion_is_asked_only_of_who_declares_it() {
    let (up, other) = (server(HANDSHAKE), Upstream::scripted(HANDSHAKE, |r| answer(r, HANDSHAKE)));
    other.declares(r#""prompts":{}"#);
    other.gives("prompts/list", r#"{"prompts":[{"name":"p"}]}"#);
    let gateway = gateway(&up, &other, "");
    let params =
        r#""ref":{"type":"ref/prompt","name":"plain__p"},"argument":{"name":"a","value":""}"#;
    for (modern, status) in [(false, 200), (true, 404)] {
        let reply = request(modern, "completion/complete", params).at("/mcp").ask(&gateway);
        assert_eq!((reply.status, reply.rpc_code()), (status, Some(-32601)), "{}", reply.text());
    }
    assert_eq!(other.of("completion/complete").len(), 0);
}

#[test]
fn a_resource_that_is_gone_is_told_in_the_callers_era() {
    for speaks in [HANDSHAKE, Speaks::Stateless] {
        let (up, plain) = (server(speaks), plain());
        let gateway = gateway(&up, &plain, "");
        for (modern, code) in [(false, -32002), (true, -32602)] {
            for (path, uri) in [("/mcp/up", "db://gone"), ("/mcp", "up+db://gone")] {
                let params = format!(r#""uri":"{uri}""#);
                let reply = request(modern, "resources/read", &params).at(path).ask(&gateway);
                assert_eq!((reply.status, reply.rpc_code()), (200, Some(code)), "{}", reply.text());
                let data = reply.member(&["error", "data"]);
                // In the words in which one that is hidden is not found either.
                assert_eq!(data, Some(format!(r#"{{"uri":"{uri}"}}"#)));
                let message = reply.member(&["error", "message"]);
                assert_eq!(message, Some(format!(r#""resource not found: {uri}""#)));
            }
        }
    }
}

#[test]
fn a_server_that_refuses_the_gateways_headers_fails_the_gateway() {
    for code in [-32020, -32022] {
        let error = format!(
            r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"error":{{"code":{code},"message":"m"}}}}"#
        );
        let answer = Answer::new("400 Bad Request", "application/json", error);
        let up = Upstream::scripted(Speaks::Stateless, move |_| answer.clone());
        up.declares(r#""prompts":{},"resources":{}"#);
        let plain = plain();
        let gateway = gateway(&up, &plain, "");
        for modern in [false, true] {
            let reply = request(modern, "resources/read", r#""uri":"a:b""#).ask(&gateway);
            let got = (reply.status, reply.rpc_code(), reply.refusal());
            assert_eq!(got, (200, Some(-31500), Some("internal".to_owned())), "{}", reply.text());
            let call = request(modern, "tools/call", r#""name":"echo""#).ask(&gateway);
            assert_eq!(call.refusal().as_deref(), Some("internal"), "{}", call.text());
        }
    }
}

#[test]
fn headers_must_name_what_the_body_names() {
    let (up, plain) = (server(Speaks::Stateless), plain());
    let gateway = gateway(&up, &plain, "");
    for (method, params, good) in [
        ("prompts/get", r#""name":"greet""#, "greet"),
        ("resources/read", r#""uri":"file:///a.txt""#, "=?base64?ZmlsZTovLy9hLnR4dA==?="),
    ] {
        let request = request(true, method, params);
        assert_eq!(request.clone().set("Mcp-Name", good).ask(&gateway).status, 200, "{method}");
        for wrong in [request.clone().without("Mcp-Name"), request.set("Mcp-Name", "other")] {
            let reply = wrong.ask(&gateway);
            assert_eq!((reply.status, reply.rpc_code()), (400, Some(-32020)), "{method}");
        }
        assert_eq!(up.of(method).len(), 1, "{method}");
    }
}

#[test]
fn limits_and_records_know_prompts_and_resources() {
    let (up, plain) = (server(HANDSHAKE), plain());
    let limits = "limits:\n  - { id: up-rate, per: [upstream], upstreams: [up], rate: 2/1h }\n  - { id: echo-rate, per: [tool], tools: [\"up/*\"], rate: 1/1h }\n";
    let yaml = format!(
        "callers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }} }}\nupstreams:\n  up: {{ url: \"{}\" }}\n  plain: {{ url: \"{}\" }}\n",
        up.url(),
        plain.url()
    );
    let policy = format!("{POLICY}{limits}");
    let gateway = Gateway::start(&yaml, &[&policy, TOOLS]);
    let get = request(false, "prompts/get", r#""name":"up__greet""#).at("/mcp");
    let read = request(true, "resources/read", r#""uri":"up+db://t/1?token=x""#).at("/mcp");
    assert_eq!(get.ask(&gateway).rpc_code(), None);
    assert_eq!(read.ask(&gateway).rpc_code(), None);
    let refused = get.ask(&gateway);
    assert_eq!((refused.status, refused.refusal().as_deref()), (200, Some("rate_limited")));
    let refused = read.ask(&gateway);
    assert_eq!((refused.status, refused.refusal().as_deref()), (429, Some("rate_limited")));
    assert!(refused.header("retry-after").is_some());
    gateway.audited("a prompt", |record| {
        record["method"] == "prompts/get"
            && record["tool"] == "up/greet"
            && record["upstream"] == "up"
            && record["risk"] == "read_low"
            && record["decision"] == "allow"
            && record["rules"][0] == "read"
            && record["outcome"] == "ok"
            && record["toolCallId"].is_string()
    });
    gateway.audited("a resource", |record| {
        record["method"] == "resources/read" && record["tool"] == "up/db://t/1?token=x"
    });
}

#[test]
fn a_caller_of_employees_must_name_one() {
    let (up, plain) = (server(HANDSHAKE), plain());
    let yaml = format!(
        "callers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, catalog_roles: [member], identity: header }}\nupstreams:\n  up: {{ url: \"{}\" }}\n  plain: {{ url: \"{}\" }}\n",
        up.url(),
        plain.url()
    );
    let gateway = Gateway::start(&yaml, &[POLICY, TOOLS]);
    for modern in [false, true] {
        let reply = request(modern, "resources/read", r#""uri":"file:///a.txt""#).ask(&gateway);
        assert_eq!(reply.status, 403, "{}", reply.text());
        assert_eq!(reply.refusal().as_deref(), Some("permission_denied"));
        let list = request(modern, "resources/list", "").ask(&gateway);
        assert!(list.text().contains("file:///a.txt"), "{}", list.text());
    }
    assert_eq!(up.of("resources/read").len(), 0);
}

/// C28 and C29 too: to a client that knows everything nothing is lost.
#[test]
fn each_revision_gets_tools_and_results_as_it_knows_them() {
    const TOOL: &str = r#"{"name":"echo","title":"T","description":"d","icons":[{"src":"https://cdn.example/i.png"}],"inputSchema":{"type":"object","x-order":[1.0]},"outputSchema":{"type":"array"},"annotations":{"readOnlyHint":true,"x":1},"_meta":{"vendor.example/k":[1,2]},"future_field":{"a":null}}"#;
    const RESULT: &str = r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n"}],"structuredContent":[1.0],"_meta":{"vendor.example/cost":{"cents":3}},"later":true}"#;
    let up = Upstream::answering(
        Speaks::Stateless,
        Answer::json(format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{RESULT}}}"#)),
    );
    up.lists(&format!("[{TOOL}]"));
    let gateway = Gateway::before(&up);
    let unstructured = TOOL.replace(r#""outputSchema":{"type":"array"},"#, "");
    let oldest = r#"{"name":"echo","description":"d","inputSchema":{"type":"object","x-order":[1.0]},"annotations":{"readOnlyHint":true,"x":1},"future_field":{"a":null}}"#;
    let told = r#"{"type":"text","text":"[1.0]"}],"_meta":{"vendor.example/cost":{"cents":3}},"later":true}"#;
    let link = r#"{"type":"resource_link","uri":"a:b","name":"n"}"#;
    let as_text = r#"{"type":"text","text":"n: a:b"}"#;
    for (version, tool, result) in [
        ("2026-07-28", TOOL, None),
        ("2025-11-25", &*unstructured, Some(format!(r#"{{"content":[{link},{told}"#))),
        ("2025-06-18", &*unstructured, Some(format!(r#"{{"content":[{link},{told}"#))),
        ("2025-03-26", oldest, Some(format!(r#"{{"content":[{as_text},{told}"#))),
    ] {
        let modern = version == "2026-07-28";
        let ask = |method, params| {
            request(modern, method, params).set("MCP-Protocol-Version", version).ask(&gateway)
        };
        let list = ask("tools/list", "");
        assert_eq!(list.member(&["result", "tools"]), Some(format!("[{tool}]")), "{version}");
        let call = ask("tools/call", r#""name":"echo","arguments":{}"#);
        match result {
            Some(result) => assert_eq!(call.member(&["result"]), Some(result), "{version}"),
            None => {
                let structured = call.member(&["result", "structuredContent"]);
                assert_eq!(structured.as_deref(), Some("[1.0]"));
                let content = call.member(&["result", "content"]);
                assert_eq!(content, Some(format!("[{link}]")));
            }
        }
    }
}

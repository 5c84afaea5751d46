//! Who may do what: every route under every role, and the record that each of them leaves.

use std::{io::Write, net::TcpStream};

use serde_json::{Value, json};

use super::{TOKENS, ask, keyed, told};
use crate::process_support::{Dialect, Process, Setup, Upstream, tool, until};

/// Method, path, body, and the status for the tokens of [`TOKENS`], in their order.
///
/// What a token may do is answered with something else than 403: what it names is not there, or
/// is done again with the same outcome.
#[rustfmt::skip]
const ROUTES: &[(&str, &str, &str, [u16; 5])] = &[
    //                                                                    viewer operator approver security admin
    ("GET", "/admin/api/config", "",                                          [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/policy", "",                                          [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/policy/revisions/000000000000", "",                   [404, 404, 404, 404, 404]),
    ("GET", "/admin/api/explain?tenant=acme&roles=member&tool=up/echo", "",   [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/connections", "",                                     [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/servers", "",                                         [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/servers/up", "",                                      [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/tools", "",                                           [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/tools/up__echo", "",                                  [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/pins", "",                                            [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/pins/history?upstream=up&tool=echo", "",              [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/pins/diff?upstream=up&tool=none", "",                 [404, 404, 404, 404, 404]),
    ("GET", "/admin/api/secrets", "",                                         [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/credentials", "",                                     [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/approvals", "",                                       [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/approvals/none", "",                                  [404, 404, 404, 404, 404]),
    ("GET", "/admin/api/keys", "",                                            [200, 200, 200, 200, 200]),
    ("GET", "/admin/api/openapi.json", "",                                    [200, 200, 200, 200, 200]),
    ("PUT", "/admin/api/log-level", r#"{"filter":"info"}"#,                   [403, 200, 403, 403, 200]),
    ("POST", "/admin/api/reload", "",                                         [403, 200, 403, 403, 200]),
    ("POST", "/admin/api/pins/approve", r#"{"upstream":"up","tool":"echo","version":1}"#,
                                                                              [403, 403, 200, 200, 200]),
    ("POST", "/admin/api/pins/rollback", r#"{"upstream":"up","tool":"echo","version":1}"#,
                                                                              [403, 403, 200, 200, 200]),
    ("POST", "/admin/api/approvals/none/refuse", "{}",                        [403, 403, 404, 404, 404]),
    ("PUT", "/admin/api/secrets/provider", r#"{"value":"planted"}"#,          [403, 403, 403, 200, 200]),
    ("DELETE", "/admin/api/secrets/none", "",                                 [403, 403, 403, 404, 404]),
    ("DELETE", "/admin/api/credentials/acme/E1", "",                          [403, 403, 403, 404, 404]),
    ("DELETE", "/admin/api/credentials/acme/E1/mcp_a_12345678", "",           [403, 403, 403, 404, 404]),
    ("POST", "/admin/api/keys/rewrap", "",                                    [403, 403, 403, 200, 200]),
    // Last: it ends the process, when the clients have had their time.
    ("POST", "/admin/api/drain", "",                                          [403, 200, 403, 403, 200]),
];

fn start() -> (Upstream, Process) {
    let up = Upstream::start(&[tool("echo")]);
    let home = keyed(Setup::new()).config("drain_delay: 60s").upstream("up", &up, "", "").write();
    assert!(home.output(&["keys", "new"]).status.success());
    (up, home.serve(&[]))
}

/// Whether a path is one of a template's.
fn is_of(path: &str, template: &str) -> bool {
    let path = path.split('?').next().unwrap();
    let (ours, theirs): (Vec<_>, Vec<_>) =
        (path.split('/').collect(), template.split('/').collect());
    let same = |(our, their): (&&str, &&str)| our == their || their.starts_with('{');
    ours.len() == theirs.len() && ours.iter().zip(&theirs).all(same)
}

/// The operation of a route, as the document has it.
fn operation<'a>(document: &'a Value, method: &str, path: &str) -> &'a Value {
    let paths = document["paths"].as_object().unwrap();
    let literal = paths.keys().find(|template| *template == path.split('?').next().unwrap());
    let template = literal.or_else(|| paths.keys().find(|template| is_of(path, template)));
    &paths[template.unwrap_or_else(|| panic!("no route is {path}"))][method.to_lowercase()]
}

#[test]
fn every_route_asks_for_a_role_and_what_writes_leaves_a_record_under_a_name() {
    let (_up, gateway) = start();
    let list = || gateway.client("/mcp/up", Dialect::Modern).list();
    assert_eq!(list(), ["echo"]);
    let document = told(&gateway, TOKENS[0].1, "GET", "/admin/api/openapi.json");
    let mut wanted = Vec::new();
    for (method, path, body, statuses) in ROUTES {
        let operation = operation(&document, method, path);
        let action = operation["x-action"].as_str();
        assert!(*method == "GET" || action.is_some(), "{method} {path} writes, and has no action");
        assert_eq!(ask(&gateway, "", method, path, body).status, 401, "{method} {path}");
        for ((name, token), status) in TOKENS.iter().zip(statuses) {
            let answer = ask(&gateway, token, method, path, body);
            assert_eq!(answer.status, *status, "{method} {path} as {name}: {answer:?}");
            let may = operation["x-roles"].as_array().unwrap().contains(&json!(role(name)));
            assert_eq!(may || *name == "admin", *status != 403, "{method} {path} as {name}");
            let outcome = match status {
                200 => "ok",
                403 => "denied",
                _ => "caller_error",
            };
            if let Some(action) = action {
                wanted.push((action.to_owned(), *name, outcome, *status));
            }
        }
    }
    let records = gateway.audit_until(|records| {
        let is = |record: &Value| record["event"] == "admin_action";
        records.iter().filter(|record| is(record)).count() >= wanted.len()
    });
    for (action, name, outcome, status) in wanted {
        let left = records.iter().any(|record| {
            record["event"] == "admin_action"
                && record["action"] == *action
                && record["outcome"] == outcome
                && record["status"] == status
                && record["principal"] == json!({ "auth": "admin_token", "caller": name })
        });
        assert!(left, "{action} of {name} ({outcome}): {records:#?}");
    }
    let audit = std::fs::read_to_string(gateway.home().path("audit/hangu.jsonl")).unwrap();
    assert!(!audit.contains("planted") && !gateway.log().contains("planted"));
    assert!(TOKENS.iter().all(|(_, token)| !audit.contains(token)));
}

/// The role that a token of the tests has.
fn role(name: &str) -> &'static str {
    match name {
        "dashboard" => "viewer",
        "ops" => "operator",
        "reviews" => "approver",
        "desk" => "security",
        _ => "admin",
    }
}

#[test]
fn every_route_of_the_document_stands_in_the_table() {
    let (_up, gateway) = start();
    let document = told(&gateway, TOKENS[0].1, "GET", "/admin/api/openapi.json");
    for (template, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            let is = |(of, path, ..): &&(&str, &str, &str, [u16; 5])| {
                of.eq_ignore_ascii_case(method) && is_of(path, template)
            };
            assert!(ROUTES.iter().any(|row| is(&row)), "nobody tries {method} {template}");
        }
    }
}

#[test]
fn what_changes_rights_is_not_done_while_nobody_could_prove_it() {
    let up = Upstream::start(&[tool("echo")]);
    // A file that may not grow is a fault, and not the end of the process.
    let setup = keyed(Setup::new()).upstream("up", &up, "", "").file_blocks(1 << 20);
    let home = setup.write();
    assert!(home.output(&["keys", "new"]).status.success());
    let gateway = home.serve(&[]);
    let security = TOKENS[3].1;
    let put = || {
        let body = json!({ "value": "planted" }).to_string();
        ask(&gateway, security, "PUT", "/admin/api/secrets/provider", &body)
    };
    assert_eq!(put().status, 200);
    // No file may grow any more.
    let limit = |size: &str| {
        let limited = std::process::Command::new("prlimit")
            .args(["--pid", &gateway.pid().to_string(), &format!("--fsize={size}")])
            .status()
            .unwrap();
        assert!(limited.success());
    };
    let audit = std::fs::metadata(gateway.home().path("audit/hangu.jsonl")).unwrap().len();
    limit(&format!("{audit}:unlimited"));
    let _ = ask(&gateway, TOKENS[1].1, "POST", "/admin/api/reload", "");
    until("the log fails", || put().status == 500);
    let refused = put();
    assert!(refused.text().contains("the audit log cannot be written"), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(ask(&gateway, TOKENS[0].1, "GET", "/admin/api/secrets", "").status, 200);
    let level = json!({ "filter": "info" }).to_string();
    let answer = ask(&gateway, TOKENS[1].1, "PUT", "/admin/api/log-level", &level);
    assert_eq!(answer.status, 200, "the gateway can still be run: {answer:?}");
    limit("unlimited:unlimited");
    until("it is written again", || put().status == 200);
}

#[test]
fn whoever_goes_away_before_the_answer_is_recorded_all_the_same() {
    const MANY: usize = 30;
    let (_up, gateway) = start();
    for n in 0..MANY {
        let body = json!({ "value": "planted" }).to_string();
        let request = format!(
            "PUT /admin/api/secrets/gone-{n} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            TOKENS[3].1,
            body.len()
        );
        let mut stream = TcpStream::connect(gateway.admin).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
    }
    let listed = || {
        let told = told(&gateway, TOKENS[0].1, "GET", "/admin/api/secrets");
        told["secrets"].as_array().unwrap().len()
    };
    until("all of them are carried out", || listed() == MANY);
    gateway.audit_until(|records| {
        let is = |record: &&Value| record["action"] == "secret_put" && record["outcome"] == "ok";
        records.iter().filter(is).count() == MANY
    });
}

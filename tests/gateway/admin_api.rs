//! The admin API as operators and their scripts meet it.

mod document;
mod oversight;
mod roles;

use std::process::Command;

use serde_json::{Value, json};

use crate::process_support::{
    Dialect, FIXED_KEY, KEY, Process, Response, Setup, Upstream, exchange, tool, until,
};

const TOKEN: &str = "the-one-token-of-the-tests";
const OPERATOR: &str = "an-operators-token-of-the-tests";
const VIEWER: &str = "a-viewers-token-of-the-tests";
const SECRET: &str = "a-secret-header-of-the-tests";

/// Every token that there may be, by the name under which it is recorded: one of each role, and
/// the one that may do everything.
pub const TOKENS: [(&str, &str); 5] = [
    ("dashboard", VIEWER),
    ("ops", OPERATOR),
    ("reviews", "an-approvers-token-of-the-tests"),
    ("desk", "a-security-token-of-the-tests"),
    ("admin", TOKEN),
];

/// With all of them, and a keyring, which is still to be made.
pub fn keyed(setup: Setup) -> Setup {
    let [viewer, operator, approver, security, admin] = TOKENS.map(|(_, token)| token);
    setup
        .config("keyring: { file: keyring.json }")
        .admin_more(
            "token: { env: ADMIN }, tokens: { ops: { token: { env: OPS }, role: operator }, \
             dashboard: { token: { env: DASH }, role: viewer }, \
             reviews: { token: { env: EYES }, role: approver }, \
             desk: { token: { env: DESK }, role: security } }",
        )
        .env("ADMIN", admin)
        .env("OPS", operator)
        .env("DASH", viewer)
        .env("EYES", approver)
        .env("DESK", security)
}

fn setup(up: &Upstream) -> Setup {
    Setup::new()
        .admin_more(
            "token: { env: ADMIN }, tokens: { ops: { token: { env: OPS }, role: operator }, \
             dashboard: { token: { env: DASH }, role: viewer } }",
        )
        .env("ADMIN", TOKEN)
        .env("OPS", OPERATOR)
        .env("DASH", VIEWER)
        .env("HEADER", SECRET)
        .upstream("up", up, "headers: { X-Provider-Key: { env: HEADER }, X-Who: $ctx.caller }", "")
}

pub fn ask(gateway: &Process, token: &str, method: &str, path: &str, body: &str) -> Response {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("Content-Type", "application/json")];
    if !token.is_empty() {
        headers.push(("Authorization", &*bearer));
    }
    exchange(gateway.admin, method, path, &headers, body.as_bytes()).unwrap()
}

#[track_caller]
pub fn told(gateway: &Process, token: &str, method: &str, path: &str) -> Value {
    let answer = ask(gateway, token, method, path, "");
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

#[test]
fn without_a_token_there_is_no_such_thing() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, "", "").start();
    for path in ["/admin/api", "/admin/api/config", "/admin/api/reload", "/admin/api/nothing"] {
        for method in ["GET", "POST"] {
            let answer = ask(&gateway, TOKEN, method, path, "");
            let unknown = ask(&gateway, TOKEN, method, "/nothing", "");
            assert_eq!((answer.status, answer.text()), (404, unknown.text()), "{method} {path}");
        }
    }
    assert_eq!(ask(&gateway, "", "GET", "/readyz", "").status, 200);
}

#[test]
fn each_asks_under_a_name_and_within_a_role_and_leaves_a_record() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    for (token, method, path, status, code) in [
        ("", "GET", "/admin/api/config", 401, "unauthenticated"),
        ("no-token-of-anybody", "GET", "/admin/api/config", 401, "unauthenticated"),
        ("no-token-of-anybody", "GET", "/admin/api/nothing", 401, "unauthenticated"),
        (VIEWER, "POST", "/admin/api/reload", 403, "permission_denied"),
        (VIEWER, "GET", "/admin/api/nothing", 404, "not_found"),
        (OPERATOR, "GET", "/admin/api/reload", 405, "invalid_args"),
        (OPERATOR, "GET", "/admin/api/policy/revisions/../../etc", 404, "not_found"),
        (OPERATOR, "GET", "/admin/api/policy/revisions/000000000000", 404, "not_found"),
        (OPERATOR, "GET", "/admin/api/explain", 400, "invalid_args"),
        (OPERATOR, "PUT", "/admin/api/log-level", 400, "invalid_args"),
    ] {
        let answer = ask(&gateway, token, method, path, "");
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, &error["code"]), (status, &json!(code)), "{path}: {answer:?}");
        assert!(error["retryable"].is_boolean() && error["next"].is_string(), "{answer:?}");
        assert_eq!(answer.header("www-authenticate").is_some(), status == 401, "{answer:?}");
    }
    // A key of a caller is no token, and a token that opens is not spoken of again.
    assert_eq!(ask(&gateway, KEY, "GET", "/admin/api/config", "").status, 401);
    assert_eq!(
        told(&gateway, OPERATOR, "POST", "/admin/api/reload")["policies"]["state"],
        "unchanged"
    );
    assert_eq!(told(&gateway, TOKEN, "POST", "/admin/api/reload")["certificate"], "none");
    let is = |record: &Value, who: &str, action: &str, outcome: &str| {
        record["event"] == "admin_action"
            && record["action"] == action
            && record["outcome"] == outcome
            && (record["principal"]["caller"] == who || who.is_empty())
            && record["source"]["address"] == "127.0.0.1"
    };
    gateway.audit_until(|records| {
        [
            ("", "sign_in", "denied"),
            ("dashboard", "reload", "denied"),
            ("ops", "reload", "ok"),
            ("admin", "reload", "ok"),
            ("ops", "log_level", "caller_error"),
            ("ops", "policy_fetch", "caller_error"),
        ]
        .iter()
        .all(|(who, action, outcome)| records.iter().any(|one| is(one, who, action, outcome)))
    });
    let audit = std::fs::read_to_string(gateway.home().path("audit/hangu.jsonl")).unwrap();
    for secret in [TOKEN, OPERATOR, VIEWER, "no-token-of-anybody"] {
        assert!(!audit.contains(secret) && !gateway.log().contains(secret));
    }
}

#[test]
fn an_address_that_guesses_is_not_listened_to() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    for _ in 0..10 {
        assert_eq!(ask(&gateway, "a-wrong-token", "GET", "/admin/api/config", "").status, 401);
    }
    for token in ["a-wrong-token", TOKEN] {
        let answer = ask(&gateway, token, "GET", "/admin/api/config", "");
        assert_eq!(answer.status, 429, "{answer:?}");
        let seconds: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=61).contains(&seconds), "{seconds}");
    }
    assert_eq!(ask(&gateway, "", "GET", "/livez", "").status, 200);
}

#[test]
fn the_configuration_is_told_without_a_secret() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    let answer = ask(&gateway, VIEWER, "GET", "/admin/api/config", "");
    for secret in [TOKEN, OPERATOR, VIEWER, SECRET, KEY, FIXED_KEY] {
        assert!(!answer.text().contains(secret), "{secret}");
        let digest = <sha2::Sha256 as sha2::Digest>::digest(secret);
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(!answer.text().contains(&digest), "a digest can be guessed from: {secret}");
    }
    let config = answer.json();
    assert_eq!(config["upstreams"]["up"]["headers"]["x-provider-key"], "[secret]");
    assert_eq!(config["upstreams"]["up"]["headers"]["x-who"], "$ctx.caller");
    assert_eq!(config["upstreams"]["up"]["max_time"], "2m", "defaults are told");
    assert_eq!(config["admin"]["tokens"]["ops"]["role"], "operator");
    assert_eq!(config["callers"]["fixed"]["identity"]["fixed"]["empId"], "E9");
}

#[test]
fn a_reload_says_what_became_of_it_and_old_revisions_can_be_read() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    let file = gateway.home().path("policies/platform.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    let first = told(&gateway, VIEWER, "GET", "/admin/api/policy");
    assert_eq!(first["state"], "current", "{first:#}");
    let files = first["files"].as_array().unwrap();
    assert!(files.iter().any(|file| file["path"] == "platform.yaml"), "{first:#}");

    std::fs::write(&file, before.replace("effect: allow", "effect: alow")).unwrap();
    let report = told(&gateway, OPERATOR, "POST", "/admin/api/reload");
    assert_eq!(report["policies"]["state"], "rejected", "{report:#}");
    assert_eq!(report["policies"]["revision"], first["revision"]);
    let fault = &report["policies"]["faults"][0];
    assert!(fault["message"].as_str().unwrap().contains("alow"), "{report:#}");
    assert!(fault.to_string().contains("platform.yaml"), "{report:#}");
    let stale = told(&gateway, VIEWER, "GET", "/admin/api/policy");
    assert_eq!(
        (&stale["state"], &stale["faults"]),
        (&json!("stale"), &report["policies"]["faults"])
    );
    assert_eq!(stale["files"], first["files"], "what is in force is as it was");

    std::fs::write(&file, before.replace("read_low, write_low", "read_low")).unwrap();
    let report = told(&gateway, OPERATOR, "POST", "/admin/api/reload");
    assert_ne!(report["policies"]["revision"], first["revision"], "{report:#}");
    assert_eq!(report["policies"]["faults"], json!([]));
    let now = told(&gateway, VIEWER, "GET", "/admin/api/policy");
    assert_eq!(
        (&now["state"], &now["revision"]),
        (&json!("current"), &report["policies"]["revision"])
    );

    let old = first["revision"].as_str().unwrap();
    let path = format!("/admin/api/policy/revisions/{old}");
    until("what was in force is kept", || ask(&gateway, VIEWER, "GET", &path, "").status == 200);
    let kept = told(&gateway, VIEWER, "GET", &path);
    let files = kept["files"].as_array().unwrap();
    let own = files.iter().find(|file| file["path"] == "platform.yaml").unwrap();
    assert_eq!(own["text"], before, "to the byte");
}

#[test]
fn an_explanation_is_the_one_of_the_command_line() {
    let up = Upstream::start(&[tool("echo"), tool("wipe")]);
    let deny = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nrules:\n  \
                - { id: no-wipe, effect: deny, tools: [up/wipe], when: { arg: /all, eq: true } }\n";
    let gateway = setup(&up).policy("acme.yaml", deny).start();
    let ready = || gateway.client("/mcp/up", Dialect::Lite).list().len() == 2;
    until("it is listed", ready);
    let query = "tenant=acme&roles=member&tool=up%2Fwipe&args=%7B%22all%22%3Atrue%7D";
    let ours = told(&gateway, VIEWER, "GET", &format!("/admin/api/explain?{query}"));
    let output = Command::new(env!("CARGO_BIN_EXE_hangu"))
        .current_dir(gateway.home().path(""))
        .args(["policy", "explain", "--policies", "policies", "--tenant", "acme"])
        .args(["--roles", "member", "--tool", "up/wipe", "--args", "{\"all\":true}"])
        .args(["--format", "json"])
        .output()
        .unwrap();
    let mut theirs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ours["decision"], "deny", "{ours:#}");
    // Each names the files as it was told to find them.
    let mut ours = ours;
    for answer in [&mut ours, &mut theirs] {
        for rule in answer["rules"].as_array_mut().unwrap() {
            let file = rule["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            rule["file"] = file.into();
        }
    }
    assert_eq!(ours, theirs);
    let unknown = "/admin/api/explain?tenant=acme&tool=nobody/x";
    assert_eq!(ask(&gateway, VIEWER, "GET", unknown, "").status, 404);
    let odd = "/admin/api/explain?tenant=acme&tool=up/echo&rolse=member";
    let answer = ask(&gateway, VIEWER, "GET", odd, "");
    assert!(answer.status == 400 && answer.text().contains("rolse"), "{answer:?}");
}

#[test]
fn the_log_is_turned_up_and_down() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    let call = || gateway.client("/mcp/up", Dialect::Modern).call("nobody", json!({}));
    let told = |gateway: &Process| gateway.log().matches("A call ended").count();
    let answer = call();
    gateway.record_of(&answer);
    assert_eq!(told(&gateway), 0, "{}", gateway.log());
    let body = json!({ "filter": "info,hangu=debug" }).to_string();
    let answer = ask(&gateway, OPERATOR, "PUT", "/admin/api/log-level", &body);
    assert_eq!((answer.status, &answer.json()["filter"]), (200, &json!("info,hangu=debug")));
    call();
    until("the call is told", || told(&gateway) == 1);
    for (body, status) in [
        (r#"{"filter":"a=b=c"}"#, 400),
        (r#"{"filter":""}"#, 400),
        (r#"{"level":"debug"}"#, 400),
        (r#"{"filter":"off"}"#, 200),
    ] {
        let answer = ask(&gateway, OPERATOR, "PUT", "/admin/api/log-level", body);
        assert_eq!(answer.status, status, "{body}: {answer:?}");
    }
    let answer = call();
    gateway.record_of(&answer);
    assert_eq!(told(&gateway), 1, "{}", gateway.log());
}

#[test]
fn connections_are_told() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    let connections = told(&gateway, VIEWER, "GET", "/admin/api/connections");
    assert!(connections["clients"]["open"].is_u64(), "{connections:#}");
    assert_eq!(connections["upstreams"][0]["name"], "up");
}

#[test]
fn a_drain_ends_the_process_in_good_order() {
    let up = Upstream::start(&[tool("echo")]);
    let mut gateway = setup(&up).start();
    assert_eq!(ask(&gateway, VIEWER, "POST", "/admin/api/drain", "").status, 403);
    assert_eq!(told(&gateway, OPERATOR, "POST", "/admin/api/drain")["drain"], "begun");
    assert!(gateway.wait().success(), "{}", gateway.log());
    let records = gateway.home().audit();
    assert!(records.iter().any(|record| record["action"] == "drain"), "{records:#?}");
    assert_eq!(records.last().unwrap()["event"], "stop");
}

#[test]
fn tokens_stand_nowhere_in_the_open_and_are_long() {
    let home = Setup::new().write();
    let check = |admin: &str| {
        let file = home.path("hangu.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let line = text.lines().find(|line| line.starts_with("admin:")).unwrap();
        std::fs::write(&file, text.replace(line, &format!("admin: {admin}"))).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_hangu"))
            .current_dir(home.path(""))
            .envs([("SHORT", "short"), ("A", TOKEN), ("B", TOKEN)])
            .envs([("KEY", "k1"), ("FIXED_KEY", "k2"), ("BOTH_KEY", "k3"), ("GLOBEX_KEY", "k4")])
            .args(["check", "--format", "plain"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    for (admin, says) in [
        ("{ token: plain-token-in-the-file }", "a token does not stand in the file"),
        ("{ token: { env: SHORT } }", "an admin token is 16 to 512"),
        ("{ tokens: { a: { token: { env: A }, role: root } } }", "unknown role"),
        (
            "{ token: { env: A }, tokens: { b: { token: { env: B }, role: viewer } } }",
            "another one's too",
        ),
        ("{ tokens: { admin: { token: { env: A }, role: viewer } } }", "is the name of"),
        ("{ tokens: { a: { role: viewer } } }", "`token` is missing"),
    ] {
        let said = check(admin);
        assert!(said.contains(says), "{admin}: {said}");
        assert!(!said.contains("plain-token-in-the-file"), "{said}");
    }
}

#[test]
fn kept_revisions_are_fetched_and_compared() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = setup(&up).start();
    let home = gateway.home();
    let file = home.path("policies/platform.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    let old = told(&gateway, VIEWER, "GET", "/admin/api/policy")["revision"].clone();
    let old = old.as_str().unwrap();
    std::fs::write(&file, before.replace("read_low, write_low", "read_low")).unwrap();
    told(&gateway, OPERATOR, "POST", "/admin/api/reload");
    let admin = format!("http://{}", gateway.admin);
    let run = |token: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hangu"));
        command.current_dir(home.path("")).env_remove("HANGU_ADMIN_URL");
        let output = command.env("HANGU_ADMIN_TOKEN", token).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    // From the running gateway, and from its disk, the same.
    let asked = run(VIEWER, &["policy", "fetch", old, "asked", "--url", &admin]);
    assert_eq!(asked.0, Some(0), "{asked:?}");
    let kept = run("", &["policy", "fetch", old, "kept", "--config", "hangu.yaml"]);
    assert_eq!(kept.0, Some(0), "{kept:?}");
    for folder in ["asked", "kept"] {
        let text = std::fs::read_to_string(home.path(folder).join("platform.yaml")).unwrap();
        assert_eq!(text, before, "{folder}");
    }
    let printed = run(VIEWER, &["policy", "fetch", old, "--url", &admin]);
    assert!(printed.1.contains(&format!("# === platform.yaml\n{before}")), "{printed:?}");
    // It compares like a folder: going back to it would widen.
    for place in [["--url", &admin], ["--config", "hangu.yaml"]] {
        let diff = run(VIEWER, &["policy", "diff", "policies", old, place[0], place[1]]);
        assert_eq!((diff.0, diff.2.as_str()), (Some(0), ""), "no tool here is a write: {diff:?}");
        let diff = run(VIEWER, &["policy", "diff", old, "asked", place[0], place[1]]);
        assert_eq!(diff.0, Some(0), "{diff:?}");
    }
    for (token, args, code, says) in [
        (VIEWER, vec!["policy", "fetch", "000000000000", "--url", &admin], 2, "does not keep"),
        (VIEWER, vec!["policy", "fetch", "nonsense", "--url", &admin], 2, "is no revision"),
        ("a-wrong-token", vec!["policy", "fetch", old, "--url", &admin], 4, "does not take"),
        ("", vec!["policy", "fetch", old, "--url", &admin], 2, "is not set"),
        (VIEWER, vec!["policy", "fetch", old, "kept", "--url", &admin], 2, "is not empty"),
        (VIEWER, vec!["policy", "fetch", old, "--url", "http://127.0.0.1:1"], 4, "reached"),
        (VIEWER, vec!["policy", "fetch", "000000000000", "--config", "hangu.yaml"], 2, old),
    ] {
        let ran = run(token, &args);
        assert_eq!(ran.0, Some(code), "{args:?}: {ran:?}");
        assert!(ran.2.contains(says), "{args:?}: {ran:?}");
        assert!(!ran.2.contains(VIEWER) && !ran.2.contains("a-wrong-token"), "{ran:?}");
    }
}

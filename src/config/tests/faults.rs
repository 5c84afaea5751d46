//! What is refused in a configuration, where, and with which advice. One case a row.

use super::*;
use crate::fault::{Format, Report};

/// The faults of a text, each with its suggestion.
pub(super) fn faults(text: &str) -> Vec<String> {
    let found = read(text).faults;
    let told = told(&found);
    let advice = found.iter().map(|fault| match &fault.suggestion {
        Some(suggestion) => format!(": {suggestion}"),
        None => String::new(),
    });
    told.into_iter().zip(advice).map(|(told, advice)| told + &advice).collect()
}

/// Each of these keys, added to the least configuration, has exactly this one fault.
fn check_top(cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        let at = expected.replacen(" 1:", " 7:", 1);
        assert_eq!(faults(&format!("{LEAST}{line}\n")), [at], "{line}");
    }
}

/// Each of these, in the place of the caller's settings.
fn check_caller(cases: &[(&str, &str)]) {
    for (body, expected) in cases {
        let text = LEAST.replace("{ keys: [{ env: GATE_KEY }], tenant: acme }", body);
        assert_eq!(faults(&text), [*expected], "{body}");
    }
}

/// Each of these, in the place of the upstream's settings.
pub(super) fn check_upstream(cases: &[(&str, &str)]) {
    for (body, expected) in cases {
        let text = LEAST.replace("{ url: \"http://127.0.0.1:7001/mcp\" }", body);
        assert_eq!(faults(&text), [*expected], "{body}");
    }
}

#[test]
fn a_configuration_has_three_keys_at_least() {
    assert_eq!(
        faults(""),
        ["Y005 hangu.yaml the file is empty"].map(|t| t.replace("hangu.yaml", "0:0"))
    );
    assert_eq!(
        faults("a: 1\n"),
        [
            "Y004 1:1 unknown key `a`",
            "Y005 1:1 `version` is missing",
            "Y005 1:1 `callers` is missing",
            "Y005 1:1 `upstreams` is missing",
        ]
    );
    assert_eq!(
        faults(&format!("{LEAST}---\na: 1\n")),
        ["Y002 8:1 a configuration is one document"]
    );
}

#[test]
fn what_comes_later_is_refused_as_such() {
    check_top(&[
        (
            "shared: redis://h",
            "Y008 1:9 `shared: redis:…` is not part of this version: only `local` is known",
        ),
        (
            "audit: { employee: hash }",
            "Y008 1:20 the form `hash` is not part of this version: only `plain` is known",
        ),
    ]);
    check_caller(&[
        (
            "{ keys: [{ env: GATE_KEY }], tenant: acme, call_sources: [web, mcp] }",
            "Y007 4:72 unknown call source `mcp`: known are `agent`, `web`, `script`, `post_action` and `cli`",
        ),
        (
            "{ keys: [{ secret: k }], tenant: acme }",
            "Y007 4:28 only a header of an upstream can have its value in the store: write `{ env: NAME }` or `{ file: PATH }`",
        ),
    ]);
    check_upstream(&[(
        "{ url: \"http://a/\", headers: { X-Api-Key: { secret: k } } }",
        "C009 6:60 a secret of the store is sealed under the keyring, and there is none: add `keyring: { file: … }`: `hangu keys new` makes one",
    )]);
}

#[test]
fn a_process_has_no_address_and_no_headers() {
    let no_headers = "a process has no headers, so it cannot be told who calls: `command` takes neither `headers` nor `options` (`env` is the same for every caller)";
    check_upstream(&[
        ("{ url: \"http://a/\", command: x }", "C009 6:15 either `url` or `command`, not both"),
        (
            "{ url: \"http://a/\", dialect: stdio }",
            "C009 6:37 `dialect: stdio` is of a server that is a `command`",
        ),
        (
            "{ url: \"http://a/\", dialect: sse, protocol: 2026-07-28 }",
            "C009 6:52 the stateless revision is not spoken over HTTP+SSE",
        ),
        (
            "{ url: \"http://a/\", args: [x] }",
            "Y005 6:8 `args`, `env`, `stop_wait` and `max_processes` are of a `command`",
        ),
        ("{ command: x, dialect: mcp-lite }", "C009 6:31 a `command` speaks `dialect: stdio`"),
        ("{ command: x, headers: { X-A: $ctx.tenant } }", &format!("C009 6:33 {no_headers}")),
        ("{ command: x, options: { mcp.headers.X-A: b } }", &format!("C009 6:33 {no_headers}")),
        (
            "{ command: x, forward_headers: [X-A] }",
            "C009 6:40 a process has no headers: none can be forwarded to a `command`",
        ),
        (
            "{ command: x, connect_timeout: 1s }",
            "C009 6:39 `connect_timeout` is about a `url`: nobody connects to a `command`",
        ),
        ("{ command: [] }", "Y007 6:19 `command` is empty"),
        (
            "{ command: npx server }",
            "Y007 6:19 a command is a program and its arguments, one by one: write `command: [PROGRAM, ARGUMENT, …]`",
        ),
        ("{ command: x, max_processes: 1 }", "Y007 6:37 not between 2 and 10000"),
        ("{ command: x, stop_wait: 2m }", "Y007 6:33 not between 1ms and 1m"),
    ]);
}

#[test]
fn a_variable_of_a_process_is_a_constant_or_a_secret() {
    check_upstream(&[
        (
            "{ command: x, env: { API_TOKEN: hunter2 } }",
            "C003 6:40 the value of `API_TOKEN` is a secret: it does not stand here: write `{ env: NAME }` or `{ file: PATH }`",
        ),
        (
            "{ command: x, env: { WHO: $ctx.user.empId } }",
            "C005 6:34 `$ctx` is of headers: a process is started before anybody calls, and its environment is the same for every caller",
        ),
        (
            "{ command: x, env: { LEVEL: 7 } }",
            "Y006 6:36 expected a text, found a number: put it in quotes",
        ),
        ("{ command: x, env: { A: { env: NOPE } } }", "C004 6:32 the variable `NOPE` is not set"),
        (
            "{ command: x, env: { A: { secret: k } } }",
            "Y007 6:42 only a header of an upstream can have its value in the store: write `{ env: NAME }` or `{ file: PATH }`",
        ),
        ("{ command: x, env: { A-B: c } }", "Y010 6:29 `A-B` is not a variable's name"),
    ]);
}

#[test]
fn a_setting_is_of_its_kind_and_within_bounds() {
    check_top(&[
        ("listne: 127.0.0.1:1", "Y004 1:1 unknown key `listne`: did you mean `listen`?"),
        (
            "listen: localhost",
            "Y007 1:9 `localhost` is not an address such as `127.0.0.1:8080`, `0.0.0.0:8080` or `[::]:8080`",
        ),
        ("listen: 127.0.0.1:${NOPE}", "Y009 1:9 the variable `NOPE` is not set"),
        (
            "admin: { listen: 127.0.0.1:8080 }",
            "C009 1:18 `admin.listen` and `listen` are the same address",
        ),
        ("workers: many", "Y006 1:10 expected a number, found a text"),
        ("workers: 5000", "Y007 1:10 not between 0 and 1024"),
        ("drain_delay: 5", "Y006 1:14 expected a duration, found a number: write `5s` or `5ms`"),
        ("session_ttl: 0s", "Y007 1:14 not between 1s and 720h"),
        ("edge: { max_connections: 0 }", "Y007 1:26 not between 1 and 1000000"),
        ("edge: { max_bdy: 1MiB }", "Y004 1:9 unknown key `max_bdy`: did you mean `max_body`?"),
        (
            "names: sometimes",
            "Y007 1:8 unknown way of naming `sometimes`: known are `always`, `conflict` and `never`",
        ),
        ("lists: { page_size: 0 }", "Y007 1:21 not between 1 and 100000"),
        ("lists: { wait: 2d }", "Y007 1:16 not between 0s and 24h"),
        ("servers: { max_tools: 0 }", "Y007 1:23 not between 1 and 20000"),
        ("questions: { rounds: 0 }", "Y007 1:22 not between 1 and 100"),
        ("questions: { answer: 2d }", "Y007 1:22 not between 1s and 24h"),
        ("idempotency: { wait: 2m }", "Y007 1:22 not between 0s and 1m"),
        ("approvals: { keep: 60d }", "Y007 1:20 not between 1s and 720h"),
        ("approvals: { max_waiting: 0 }", "Y007 1:27 not between 1 and 1000000"),
        (
            "idempotency: { max_body: 1MB }",
            "Y007 1:26 `1MB` is not a size such as `64KiB`, `1MiB` or `1GiB`",
        ),
        (
            "trace: { trust: always }",
            "Y007 1:17 unknown trust `always`: known are `authenticated` and `never`",
        ),
        (
            "errors: { tools_call: rsult }",
            "Y007 1:23 unknown form of errors `rsult`: did you mean `result`?",
        ),
        (
            "sessions: none",
            "Y007 1:11 unknown way with sessions `none`: known are `optional` and `required`",
        ),
        (
            "store: mysql",
            "Y007 1:8 unknown store: known are `memory`, `sqlite:FILE` and \
             `postgres://HOST/DATABASE`",
        ),
        ("store: \"sqlite:\"", "Y007 1:8 `sqlite:` names no file: write `sqlite:hangu.db`"),
        (
            "store: \"sqlite::memory:\"",
            "Y007 1:8 a database in memory is another one for each connection: write `memory`",
        ),
        (
            "store: sqlite:a.db?mode=ro",
            "Y007 1:8 `sqlite:` takes a file and no options: write `sqlite:hangu.db`",
        ),
        (
            "store: postgres://u:p@h/db",
            "C003 1:8 a password stands in the file: put the whole address into a variable or a \
             file: `store: { env: NAME }`",
        ),
        (
            "store: postgres://u@h:99999/db",
            "C002 1:8 not a PostgreSQL address: write `postgres://USER@HOST/DATABASE`",
        ),
        ("store: { env: NOBODY }", "C004 1:8 the variable `NOBODY` is not set"),
        ("store: 7", "Y006 1:8 expected a text, found a number: write \"7\""),
        ("origins: [\"*\"]", "Y007 1:11 `*` is not an origin such as `https://app.example.com`"),
        (
            "trusted_proxies: [10.0.0.0/99]",
            "Y007 1:19 `10.0.0.0/99` is not an address or network such as `10.0.0.0/8`",
        ),
        (
            "audit: { strict: [high] }",
            "P014 1:19 unknown risk level `high`: known are `read_low`, `read_high`, `write_low` and `write_high`",
        ),
        ("tls: { cert: cert.pem }", "Y005 1:6 `key` is missing"),
        ("version: hangu/v1", "Y003 1:1 `version` stands here twice"),
    ]);
    let tls = faults(&format!("{LEAST}tls: {{ cert: no.pem, key: cert.pem }}\n"));
    assert!(
        tls[0].starts_with("Y001 7:14") && tls[0].ends_with("no.pem` is not a file"),
        "{tls:?}"
    );
}

#[test]
fn a_caller_has_a_key_that_is_not_in_the_file() {
    let key =
        "a key does not stand in the file: `{ env: NAME }`, `{ file: PATH }` or `{ sha256: HEX }`";
    check_caller(&[
        ("{ keys: [hunter2], tenant: acme }", &format!("C003 4:18 {key}")),
        ("{ keys: hunter2, tenant: acme }", &format!("C003 4:17 {key}")),
        (
            "{ tenant: acme, tenant: acme, keys: [{ env: GATE_KEY }] }",
            "Y003 4:25 `tenant` stands here twice",
        ),
        ("{ tenant: acme }", "Y005 4:9 `keys` is missing"),
        ("{ keys: [], tenant: acme }", "Y007 4:17 without a key nobody can call"),
        (
            "{ keys: [{}], tenant: acme }",
            "Y005 4:18 a secret is `{ env: NAME }` or `{ file: PATH }`",
        ),
        ("{ keys: [{ env: NOPE }], tenant: acme }", "C004 4:18 the variable `NOPE` is not set"),
        ("{ keys: [{ env: EMPTY }], tenant: acme }", "C004 4:18 the variable `EMPTY` is empty"),
        (
            "{ keys: [{ env: BROKEN }], tenant: acme }",
            "Y007 4:18 a key is 1 to 512 visible ASCII characters without spaces",
        ),
        (
            "{ keys: [{ env: GATE_KEY, file: x }], tenant: acme }",
            "C008 4:18 one of `env`, `file` and `secret`, not more",
        ),
        (
            "{ keys: [{ sha256: hunter2 }], tenant: acme }",
            "Y007 4:28 `sha256` is 64 hex digits: the SHA-256 of the key",
        ),
        (
            "{ keys: [{ env: GATE_KEY, expires: soon }], tenant: acme }",
            "Y007 4:44 `soon` is not a time: such as `2027-01-31T00:00:00Z`",
        ),
        (
            "{ keys: [{ env: GATE_KEY, expires: 2001-01-31T00:00:00Z }], tenant: acme }",
            "C102 4:44 this key has expired: it is no longer accepted",
        ),
        (
            "{ keys: [{ env: GATE_KEY }, { env: GATE_KEY }], tenant: acme }",
            "C007 4:37 caller `gate` has this key twice",
        ),
        ("{ keys: [{ env: GATE_KEY }] }", "Y005 4:9 `tenant` is missing"),
        (
            "{ keys: [{ env: GATE_KEY }], tenant: a/b }",
            "Y010 4:46 `a/b` is not a name: 1 to 64 of `A-Z a-z 0-9 . _ -`",
        ),
        (
            "{ keys: [{ env: GATE_KEY }], tenant: acme, identity: haeder }",
            "Y007 4:62 unknown identity `haeder`: `header`, `{ empId, roles }` or `{ header: true, fallback: { empId, roles } }`",
        ),
        (
            "{ keys: [{ env: GATE_KEY }], tenant: acme, identity: { empId: \"a b\" } }",
            "Y010 4:71 `a b` is not an employee's id: 1 to 64 of `A-Z a-z 0-9 . _ @ -`",
        ),
        (
            "{ keys: [{ env: GATE_KEY }], tenant: acme, identity: { header: false, fallback: { empId: E1 } } }",
            "C009 4:62 `header: false` with a `fallback`: write the employee alone",
        ),
        (
            "{ keys: [{ env: GATE_KEY }], tenant: acme, identity: { roles: [a] } }",
            "Y005 4:62 `empId` is missing",
        ),
    ]);
    let two = LEAST
        .replace("upstreams:", "  other: { keys: [{ env: GATE_KEY }], tenant: acme }\nupstreams:");
    assert_eq!(faults(&two), ["C007 5:19 callers `gate` and `other` have the same key"]);
    let open = LEAST.replace(
        "tenant: acme",
        "tenant: acme, identity: { header: true, fallback: { empId: E1 } }",
    );
    assert_eq!(faults(&open), Vec::<String>::new());
    let told = faults(&format!("{open}listen: 0.0.0.0:8080\n"));
    assert!(told.len() == 1 && told[0].starts_with("C101 4:"), "{told:?}");
}

#[test]
fn an_upstream_has_an_address_without_secrets() {
    let header = "send it in a header: `headers: { NAME: { env: … } }`";
    check_upstream(&[
        (
            "{ timeout: 1s }",
            "Y005 6:8 `url` is missing, or `command` for a server that is a process",
        ),
        ("{ urls: [] }", "Y007 6:16 `urls` is empty"),
        (
            "{ url: \"http://a/\", urls: [\"http://b/\"] }",
            "C008 6:28 either `url` or `urls`, not both",
        ),
        ("{ urls: [\"http://a/\", \"http://A/\"] }", "C008 6:30 this address is here twice"),
        (
            "{ url: a.example/mcp }",
            "C002 6:15 not an address: relative URL without a base: such as `http://127.0.0.1:7001/mcp`",
        ),
        ("{ url: \"ftp://a/\" }", "C002 6:15 a server is reached by `http` or `https`"),
        ("{ url: \"http://a:0/\" }", "C002 6:15 port 0 cannot be dialled"),
        (
            "{ url: \"http://hunter2@a/\" }",
            &format!("C002 6:15 the address holds a user's name or password: {header}"),
        ),
        (
            "{ url: \"${URL}\" }",
            &format!("C002 6:15 the address holds a user's name or password: {header}"),
        ),
        // C64, these and the next.
        (
            "{ url: \"http://a/?exampleApiKey=hunter2\" }",
            &format!(
                "C002 6:15 the address holds a secret in its parameter `exampleApiKey`: {header}"
            ),
        ),
        (
            "{ url: \"http://a/?x=1&%74oken=hunter2\" }",
            &format!("C002 6:15 the address holds a secret in its parameter `token`: {header}"),
        ),
        (
            "{ url: \"http://a/#x\" }",
            "C002 6:15 an address has no `#`: servers never see what follows",
        ),
        (
            "{ url: \"http://a/\", timeout: 3m, max_time: 1m }",
            "C009 6:37 `timeout` is longer than `max_time`, which ends every call",
        ),
        (
            "{ url: \"http://a/\", inject_user: false }",
            "C103 6:41 `inject_user` is about `dialect: mcp-lite` only",
        ),
        (
            "{ url: \"http://a/\", protocol: 2026-07-28, park: false }",
            "C103 6:56 `park` is about servers that have sessions",
        ),
        (
            "{ url: \"http://a/\", dialect: mcp-lite, protocol: 2026-07-28 }",
            "C009 6:57 `mcp-lite` has no protocol revisions",
        ),
        ("{ url: \"http://a/\", max_concurrency: 0 }", "Y007 6:45 not between 1 and 100000"),
        ("{ url: \"http://a/\", poll: 1ms }", "Y007 6:34 not between 1s and 24h"),
    ]);
    for name in ["http", "tools", "lite", "CRM", "a_b", "1a"] {
        let found = faults(&LEAST.replace("crm:", &format!("{name}:")));
        assert!(found.len() == 1 && found[0].starts_with("Y010 6:3 `"), "{name}: {found:?}");
    }
}

#[test]
fn a_header_is_one_that_can_be_set_and_no_secret_stands_in_it() {
    let secret = "write `{ env: NAME }` or `{ file: PATH }`";
    let with = |headers: &str| format!("{{ url: \"http://a/\", {headers} }}");
    for (headers, expected) in [
        ("headers: { Authorization: Bearer hunter2 }", format!("C003 6:54 the value of `authorization` is a secret: it does not stand here: {secret}")),
        ("headers: { Authorization: \"Bearer ${TOKEN}\" }", format!("C003 6:54 the value of `authorization` is a secret: it does not stand here: {secret}")),
        ("headers: { X-Api-Key: \"hunter2 $ctx.tenant\" }", format!("C003 6:50 the value of `x-api-key` is a secret: it does not stand here: {secret}")),
        ("options: [mcp.headers.X-Api-Key=hunter2]", format!("C003 6:38 the value of `x-api-key` is a secret: it does not stand here: {secret}")),
        ("headers: { X-A: $ctx.user.empid }", "C005 6:44 unknown variable `$ctx.user.empid`: did you mean `$ctx.user.empId`?".into()),
        ("headers: { X-A: \"é\" }", "C005 6:44 a template is visible ASCII".into()),
        ("headers: { X-A: \" a\" }", "C006 6:44 the value is empty, or begins or ends blank".into()),
        ("headers: { X-A: \"\" }", "C006 6:44 the value is empty, or begins or ends blank".into()),
        ("headers: { X-A: 1 }", "Y006 6:44 expected a text, found a number: put it in quotes".into()),
        ("headers: { X-A: { env: BROKEN } }", "C006 6:44 the value cannot be sent in a header: it is not visible ASCII".into()),
        ("headers: { X-A: { env: NOPE } }", "C004 6:44 the variable `NOPE` is not set".into()),
        ("headers: { X-A: { evn: NOPE } }", "Y004 6:46 unknown key `evn`: did you mean `env`?".into()),
        ("headers: { \"a b\": c }", "C006 6:39 `a b` is not a header's name".into()),
        ("headers: { Host: c }", "C006 6:39 `Host` is the gateway's own to set".into()),
        ("headers: { Mcp-Session-Id: c }", "C006 6:39 `Mcp-Session-Id` is the gateway's own to set".into()),
        ("headers: { X-A: b, x-a: c }", "C008 6:47 header `x-a` is set twice".into()),
        ("headers: { X-A: b }, options: { mcp.headers.X-A: c }", "C008 6:60 header `X-A` is set twice".into()),
        ("options: { mcp.header.X-A: c }", "Y004 6:39 unknown option `mcp.header.X-A`: known is `mcp.headers.NAME`".into()),
        ("options: [mcp.headers.X-A]", "Y007 6:38 an option is `NAME=VALUE`".into()),
        ("forward_headers: [X-Api-Key]", "C006 6:46 `X-Api-Key` is for the gateway: it is never passed on: set it in `headers`, such as `SSO-Emp-Id: $ctx.user.empId`".into()),
        ("forward_headers: [sso-emp-id]", "C006 6:46 `sso-emp-id` is for the gateway: it is never passed on: set it in `headers`, such as `SSO-Emp-Id: $ctx.user.empId`".into()),
        ("forward_headers: [Connection]", "C006 6:46 `Connection` is the gateway's own to set".into()),
        ("forward_headers: [X-A, x-a]", "C008 6:51 `x-a` is here twice".into()),
        ("headers: { X-A: b }, forward_headers: [X-A]", "C009 6:67 `X-A` is set by `headers` already".into()),
        ("forward_headers: [Authorization]", "C105 6:46 a client's token is passed on: it was issued for somebody else".into()),
    ] {
        let expected = match headers.contains("evn") {
            // The mapping is no secret either.
            true => vec!["Y005 6:44 a secret is `{ env: NAME }` or `{ file: PATH }`".into(), expected],
            false => vec![expected],
        };
        let text = LEAST.replace("{ url: \"http://127.0.0.1:7001/mcp\" }", &with(headers));
        assert_eq!(faults(&text), expected, "{headers}");
    }
}

#[test]
fn no_rendering_of_any_fault_shows_a_secret() {
    for line in [
        "  gate: { keys: [hunter2], tennant: acme }",
        "  gate: { keys: hunter2, tenant: 1 }",
        "  gate: { keys: [{ sha256: hunter2 }], tenant: acme, x: 1 }",
    ] {
        let text = LEAST.replace("  gate: { keys: [{ env: GATE_KEY }], tenant: acme }", line);
        shows_nothing(&text);
    }
    for body in [
        "{ url: \"http://u:hunter2@a/\", x: 1 }",
        "{ url: \"http://a/?token=hunter2\", timeout: 1 }",
        "{ url: \"${URL}\" }",
        "{ url: \"http://a/\", headers: { Authorization: hunter2, Host: x } }",
        "{ url: \"http://a/\", headers: { X-Api-Key: \"$ctx.nobody hunter2\" } }",
        "{ url: \"http://a/\", options: [mcp.headers.X-Api-Key=hunter2] }",
        "{ url: \"http://a/\", options: [hunter2] }",
        "{ url: \"http://a/\", options: [token=hunter2] }",
        "{ url: \"http://a/\", timeout: \"${TOKEN}\" }",
        "{ url: \"http://a/\", headers: { \"${TOKEN}\": x, X-A: \"${BROKEN}\" } }",
    ] {
        shows_nothing(&LEAST.replace("{ url: \"http://127.0.0.1:7001/mcp\" }", body));
    }
    for address in ["u:hunter2@h/db", "h/db?password=hunter2", "h:hunter2/db"] {
        shows_nothing(&format!("{LEAST}store: postgres://{address}\n"));
    }
    shows_nothing(&format!("{LEAST}store: {{ env: TOKEN }}\n"));
}

pub(super) fn shows_nothing(text: &str) {
    let report = Report { faults: read(text).faults, files: 1 };
    assert!(report.errors() > 0, "{text}");
    for format in [Format::Human { colour: false }, Format::Plain, Format::Json] {
        let shown = report.render(format);
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn what_happens_with_a_server_that_fails_is_checked() {
    check_upstream(&[
        ("{ url: \"http://h/mcp\", retries: { max: 3 } }", "Y007 6:47 not between 0 and 2"),
        ("{ url: \"http://h/mcp\", retries: { budget: 101 } }", "Y007 6:50 not between 0 and 100"),
        (
            "{ url: \"http://h/mcp\", retries: { maxx: 1 } }",
            "Y004 6:42 unknown key `maxx`: did you mean `max`?",
        ),
        (
            "{ url: \"http://h/mcp\", breaker: no }",
            "Y006 6:40 expected `off` or a mapping, found a text",
        ),
        (
            "{ url: \"http://h/mcp\", breaker: { failures: 0 } }",
            "Y007 6:52 not between 1 and 100000",
        ),
        (
            "{ url: \"http://h/mcp\", breaker: { pause: 10s, max_pause: 5s } }",
            "C009 6:65 `max_pause` is shorter than `pause`",
        ),
    ]);
}

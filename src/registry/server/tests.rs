//! Personal servers: what is read, what is refused, and what leaves the gateway of them.

mod assets;

use super::*;
use crate::model::template::HeaderTemplate;

pub(super) fn registrant() -> Registrant {
    Registrant {
        tenant: TenantId::new("acme"),
        owner: EmployeeId::parse("E1001").unwrap(),
        now_ms: 1_790_000_000_000,
    }
}

fn read(body: &str) -> Result<NewServer, Vec<InputFault>> {
    read_server(body.to_owned().into(), &registrant(), &OptionLimits::default())
}

/// `pointer message; advice` of each fault.
pub(super) fn told(faults: &[InputFault]) -> Vec<String> {
    let advice = |fault: &InputFault| fault.advice.as_ref().map(|it| format!("; {it}"));
    let line =
        |f: &InputFault| format!("{} {}{}", f.pointer, f.message, advice(f).unwrap_or_default());
    faults.iter().map(line).collect()
}

fn refused(body: &str) -> Vec<String> {
    told(&read(body).expect_err(body))
}

fn headers(options: &Options) -> Vec<String> {
    options.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect()
}

/// What a credential holds, in words.
fn opened(secrets: Option<&Secrets>) -> String {
    use secrecy::ExposeSecret;
    match secrets {
        None => "none".to_owned(),
        Some(Secrets::Bearer(token)) => format!("bearer {}", token.expose_secret()),
        Some(Secrets::Basic { user, password }) => {
            format!("basic {user}:{}", password.expose_secret())
        }
        Some(Secrets::Headers(headers)) => {
            let all =
                headers.iter().map(|(name, value)| format!("{name}={}", value.expose_secret()));
            format!("headers {}", all.collect::<Vec<_>>().join(" "))
        }
        Some(Secrets::Oauth { client_id, client_secret, scopes }) => {
            let secret = client_secret.as_ref().map(|secret| secret.expose_secret());
            format!("oauth {client_id:?} {secret:?} {scopes:?}")
        }
    }
}

#[test]
fn an_address_is_enough() {
    let new = read(r#"{"url": "HTTPS://Order-Query.Example.com:443/%7ea?b=2&a=1#part"}"#).unwrap();
    let NewServer { registration, secrets, .. } = new;
    assert_eq!(registration.url.as_str(), "https://order-query.example.com/~a?a=1&b=2");
    let same = read(r#"{"url": "https://order-query.example.com./~a?a=1&b=2"}"#).unwrap();
    assert_eq!(same.registration, registration);
    assert!(registration.server_key.starts_with("mcp_order-query_"), "{}", registration.server_key);
    assert_eq!((registration.tenant.as_str(), registration.owner.as_str()), ("acme", "E1001"));
    assert_eq!((registration.dialect, registration.auth), (DialectKind::Auto, AuthKind::None));
    assert_eq!((registration.revision, &registration.options), (0, &Options::default()));
    assert!(secrets.is_none() && registration.team.is_none() && registration.name.is_none());
}

/// C64.
#[test]
fn an_address_with_a_secret_is_refused_and_not_repeated() {
    for (url, named) in [
        ("https://up.example/mcp?exampleApiKey=SECRET&x=1", "`exampleApiKey`"),
        ("https://up.example/mcp?token=SECRET", "`token`"),
        ("https://up.example/mcp?ACCESS_TOKEN=SECRET", "`ACCESS_TOKEN`"),
        ("https://up.example/mcp?client_secret=SECRET", "`client_secret`"),
        ("https://user:SECRET@up.example/mcp", "a user's name"),
    ] {
        let faults = refused(&format!(r#"{{"url": "{url}"}}"#));
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.starts_with("/url the address holds") && fault.contains(named), "{fault}");
        assert!(fault.contains("send it in a header"), "{fault}");
        assert!(!fault.contains("SECRET"), "{fault}");
    }
    assert!(read(r#"{"url": "https://up.example/mcp?x=1"}"#).is_ok());
}

#[test]
fn every_fault_is_told_with_its_place() {
    let body = r#"{"url": "ftp://a/", "nmae": 1, "name": "  a", "dialect": "stdio",
        "auth": {"type": "bearer", "tokn": "x"},
        "options": {"timeout": "1h", "max_tim": "1s", "headers": {"Host": "a", "X-A": 1},
            "mcp.headers.X-B": "$ctx.user.empid"}}"#;
    assert_eq!(
        refused(body),
        [
            "/nmae unknown member `nmae`; did you mean `name`?",
            "/url a server is reached by `http` or `https`",
            "/name a name has 1 to 80 characters, none of them a blank end",
            "/dialect a server of an employee's is no process of the gateway; known are `auto`, \
         `mcp-lite`, `streamable-http`, `sse`",
            "/auth/tokn unknown member `tokn`; did you mean `token`?",
            "/auth/token `token` is missing",
            "/options/max_tim unknown option `max_tim`; did you mean `max_time`?",
            "/options/mcp.headers.X-B unknown variable `$ctx.user.empid`; did you mean \
         `$ctx.user.empId`?",
            "/options/headers/Host `Host` is the gateway's own to set",
            "/options/headers/X-A expected a text",
            "/options/timeout a time above 0 and up to 1m is allowed",
        ]
    );
    for (body, expected) in [
        ("", " the body is not JSON: unexpected end at byte 0"),
        ("[]", " expected a JSON object"),
        ("{}", "/url `url` is missing"),
        (r#"{"url": 1}"#, "/url expected a text"),
        (
            r#"{"url": "https://a.example/", "name": "a\u202eb"}"#,
            "/name a name holds no control characters",
        ),
        (
            r#"{"url": "https://a.example/", "auth": {"type": "magic"}}"#,
            "/auth/type unknown type `magic`; one of `none`, `bearer`, `basic`, `headers` and `oauth`",
        ),
        (
            r#"{"url": "https://a.example/", "dialect": "mcp-lite", "options": {"protocol": "2025-06-18"}}"#,
            "/options/protocol `mcp-lite` has no protocol revisions",
        ),
        (
            r#"{"url": "https://a.example/", "options": {"inject_user": true}}"#,
            "/options/inject_user `inject_user` is about `mcp-lite` only",
        ),
        (
            r#"{"url": "https://a.example/", "options": {"timeout": "9s", "max_time": "5s"}}"#,
            "/options/timeout `timeout` is longer than `max_time`, which ends every call",
        ),
    ] {
        let faults = refused(body);
        assert!(
            faults.len() == 1 && faults[0].starts_with(expected.split(": unexp").next().unwrap()),
            "{body}: {faults:?}"
        );
    }
}

#[test]
fn options_are_read_in_each_of_their_forms() {
    let expected = ["x-emp: $ctx.user.empId", "x-region: eu-$ctx.tenant"];
    for options in [
        r#"{"headers": {"X-Emp": "$ctx.user.empId", "X-Region": "eu-$ctx.tenant"}}"#,
        r#"{"mcp.headers.X-Emp": "$ctx.user.empId", "mcp.headers.X-Region": "eu-$ctx.tenant"}"#,
        r#"["mcp.headers.X-Emp=$ctx.user.empId", "mcp.headers.X-Region = eu-$ctx.tenant"]"#,
    ] {
        let new =
            read(&format!(r#"{{"url": "https://a.example/", "options": {options}}}"#)).unwrap();
        assert_eq!(headers(&new.registration.options), expected, "{options}");
    }
    let new = read(
        r#"{"url": "https://a.example/", "name": "A", "dialect": "streamable-http", "options":
            {"protocol": "2025-06-18", "timeout": "1500ms", "max_time": "2m", "stateless": true,
             "park": false}}"#,
    );
    let registration = new.unwrap().registration;
    let ms = |time: Option<Duration>| time.map(|time| time.as_millis());
    let options = &registration.options;
    assert_eq!((ms(options.timeout), ms(options.max_time)), (Some(1_500), Some(120_000)));
    assert_eq!((options.protocol, options.park), (Some(Version::V2025_06_18), Some(false)));
    // What is kept of it says the same again.
    let body = String::from_utf8(registration.body()).unwrap();
    let kept = Body::read(&body).unwrap();
    assert_eq!((&kept.options, kept.name.as_deref()), (options, Some("A")));
    assert_eq!((kept.dialect, kept.auth), (registration.dialect, AuthKind::None));
}

#[test]
fn secrets_stand_apart_wherever_they_were_given() {
    let url = r#""url": "https://a.example/""#;
    for (body, kind, secret, open) in [
        (r#""auth": {"type": "none"}"#, "none", "none", &[][..]),
        (r#""auth": {"type": "bearer", "token": "S3CRET"}"#, "bearer", "bearer S3CRET", &[]),
        (
            r#""auth": {"type": "basic", "user": "u", "password": "S3CRET"}"#,
            "basic",
            "basic u:S3CRET",
            &[],
        ),
        (
            r#""auth": {"type": "headers", "headers": {"X-Key": "S3CRET", "X-Id": "7"}}"#,
            "headers",
            "headers x-key=S3CRET x-id=7",
            &[],
        ),
        (
            r#""auth": {"type": "oauth", "client_id": "c", "client_secret": "S3CRET", "scopes": ["a", "b:c"]}"#,
            "oauth",
            r#"oauth Some("c") Some("S3CRET") ["a", "b:c"]"#,
            &[],
        ),
        (r#""auth": {"type": "oauth"}"#, "oauth", "oauth None None []", &[]),
        // What is written out is sealed, whatever its name, and makes a token one of the headers.
        (
            r#""options": {"mcp.headers.X-Api-Key": "S3CRET", "mcp.headers.X-Team": "t"}"#,
            "headers",
            "headers x-api-key=S3CRET x-team=t",
            &[],
        ),
        (
            r#""auth": {"type": "bearer", "token": "S3CRET"}, "options": {"headers": {"X-Access-Code": "S3CRET2", "X-Of": "$ctx.tenant"}}"#,
            "headers",
            "headers authorization=Bearer S3CRET x-access-code=S3CRET2",
            &["x-of: $ctx.tenant"],
        ),
        (
            r#""auth": {"type": "basic", "user": "u", "password": "p"}, "options": {"headers": {"X-Code": "S3CRET"}}"#,
            "headers",
            "headers authorization=Basic dTpw x-code=S3CRET",
            &[],
        ),
        (
            r#""auth": {"type": "headers", "headers": {"X-A": "1"}}, "options": ["mcp.headers.Authorization=Bearer S3CRET"]"#,
            "headers",
            "headers x-a=1 authorization=Bearer S3CRET",
            &[],
        ),
        // Whose it is depends on the call: no secret.
        (
            r#""options": {"headers": {"X-Auth-User": "$ctx.user.empId"}}"#,
            "none",
            "none",
            &["x-auth-user: $ctx.user.empId"],
        ),
    ] {
        let new = read(&format!("{{{url}, {body}}}")).unwrap_or_else(|e| panic!("{body}: {e:?}"));
        assert_eq!(new.registration.auth.as_str(), kind, "{body}");
        assert_eq!(opened(new.secrets.as_ref()), secret, "{body}");
        assert_eq!(headers(&new.registration.options), open, "{body}");
        let kept = String::from_utf8(new.registration.body()).unwrap();
        let shown = format!("{new:?} {kept}");
        assert!(!shown.contains("S3CRET"), "{shown}");
    }
}

#[test]
fn what_cannot_be_sent_as_a_secret_is_refused_without_repeating_it() {
    let url = r#""url": "https://a.example/""#;
    for (body, expected) in [
        (
            r#""auth": {"type": "bearer", "token": "S3CRET\n"}"#,
            "/auth/token the value cannot be sent",
        ),
        (r#""auth": {"type": "bearer", "token": ["S3CRET"]}"#, "/auth/token expected a text"),
        (r#""auth": {"type": "basic", "user": "S3:CRET", "password": "x"}"#, "/auth/user a user's"),
        (r#""auth": {"type": "headers", "headers": {}}"#, "/auth/headers `headers` is empty"),
        (
            r#""auth": {"type": "headers", "headers": {"Host": "S3CRET"}}"#,
            "/auth/headers/Host `Host` is",
        ),
        (
            r#""auth": {"type": "headers", "headers": {"X-Key": "S3CRET $ctx.tenant"}}"#,
            "/auth/headers/X-Key a secret is sent as it is",
        ),
        (
            r#""auth": {"type": "headers", "headers": {"X-Key": "S3CRET", "x-key": "S3CRET"}}"#,
            "/options header `x-key` is set twice",
        ),
        (
            r#""auth": {"type": "oauth", "client_secret": "S3CRET"}"#,
            "/auth/client_id `client_secret`",
        ),
        (r#""auth": {"type": "oauth", "scopes": ["S3 CRET"]}"#, "/auth/scopes/0 a scope is"),
        (
            r#""auth": {"type": "oauth"}, "options": {"mcp.headers.X-Code": "S3CRET"}"#,
            "/options/mcp.headers.X-Code `x-code` is sealed, and `auth` of type `oauth` has no",
        ),
        (
            r#""auth": {"type": "bearer", "token": "t"}, "options": {"headers": {"Authorization": "$ctx.tenant"}}"#,
            "/options header `authorization` is set twice",
        ),
        (
            r#""options": {"headers": {"X-Token": "S3CRET $ctx.tenant"}}"#,
            "/options/headers/X-Token `x-token` is a secret",
        ),
        (
            r#""options": {"headers": {"X-Token": "S3CRET $ctx.nobody"}}"#,
            "/options/headers/X-Token the value",
        ),
        (r#""options": ["S3CRET"]"#, "/options/0 not an option"),
    ] {
        let faults = refused(&format!("{{{url}, {body}}}"));
        assert!(faults.len() == 1 && faults[0].starts_with(expected), "{body}: {faults:?}");
        assert!(!faults[0].contains("S3CRET"), "{faults:?}");
    }
    let many = (0..40).map(|n| format!(r#""X-{n}": "a""#)).collect::<Vec<_>>().join(",");
    let faults = refused(&format!(r#"{{{url}, "options": {{"headers": {{{many}}}}}}}"#));
    assert_eq!(faults, ["/options more than 32 headers, or 16384 bytes of them"]);
}

#[test]
fn a_body_with_hundreds_of_thousands_of_anything_is_read_as_far_as_is_told() {
    const MANY: usize = 100_000;
    let members = |one: fn(usize) -> String| (0..MANY).map(one).collect::<Vec<_>>().join(",");
    let url = r#""url": "https://a.example/""#;
    let (headers, items, unknown) = (
        members(|n| format!(r#""X-{n}":"a""#)),
        members(|n| format!(r#""mcp.headers.X-{n}=a""#)),
        members(|n| format!(r#""u{n}":1"#)),
    );
    let too_many = "more than 32 headers, or 16384 bytes of them";
    let enough = " not more than 100 faults are told at once".to_owned();
    for (body, first, count) in [
        (format!(r#"{{{url},"options":{{"headers":{{{headers}}}}}}}"#), too_many, 1),
        (format!(r#"{{{url},"options":[{items}]}}"#), too_many, 1),
        (format!(r#"{{{url},"auth":{{"type":"headers","headers":{{{headers}}}}}}}"#), too_many, 1),
        (
            format!(r#"{{{url},"auth":{{"type":"oauth","scopes":[{items}]}}}}"#),
            "more than 128 scopes",
            1,
        ),
        (format!("{{{url},{unknown}}}"), "unknown member `u0`", 101),
        (format!(r#"{{{url},"options":{{{unknown}}}}}"#), "unknown option `u0`", 101),
        (
            format!(r#"{{{url},"options":[{}]}}"#, vec![r#""a""#; MANY].join(",")),
            "not an option",
            101,
        ),
    ] {
        let faults = refused(&body);
        assert_eq!(faults.len(), count, "{:?}", faults.first());
        assert!(faults[0].contains(first), "{}", faults[0]);
        assert!(count == 1 || faults.last() == Some(&enough), "{:?}", faults.last());
    }
    let file = format!(r#"{{"mcpServers":{{"a":{{{url},"headers":{{{headers}}},{unknown}}}}}}}"#);
    let imported = read_mcp_servers(file.into(), &registrant()).unwrap();
    let faults = told(imported[0].outcome.as_ref().unwrap_err());
    assert!(faults.len() == 1 && faults[0].contains(too_many), "{faults:?}");
    assert_eq!(imported[0].left_out.len(), 33);
}

#[test]
fn a_credential_alone_is_read_alike() {
    let read = |body: &str| read_secrets(body.to_owned().into());
    let secrets = read(r#"{"type": "bearer", "token": "t"}"#).unwrap();
    assert_eq!(opened(secrets.as_ref()), "bearer t");
    assert!(read(r#"{"type": "none"}"#).unwrap().is_none());
    for (body, expected) in [
        (r#"{"type": "bearer"}"#, "/token `token` is missing"),
        (
            r#"{"type": "headers", "headers": {"A": "1", "a": "2"}}"#,
            "/headers header `a` is set twice",
        ),
        ("[]", " expected a JSON object"),
    ] {
        assert_eq!(told(&read(body).unwrap_err()), [expected], "{body}");
    }
}

#[test]
fn what_desktop_clients_keep_is_imported() {
    let file = r#"{"theme": "dark", "mcpServers": {
        "orders": {"type": "http", "url": "https://orders.example/mcp", "disabled": false,
            "headers": {"Authorization": "Bearer S3CRET", "X-Region": "eu"}},
        "plain": {"url": "https://plain.example/"},
        "keyed": {"type": "sse", "url": "https://keyed.example/sse", "headers": {"X-Api-Key": "S3CRET"}},
        "local": {"command": "npx", "args": ["-y", "server"]},
        "socket": {"type": "ws", "url": "wss://a.example/"},
        "env": {"url": "https://env.example/", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "nothing": {}
    }}"#;
    let imported = read_mcp_servers(file.into(), &registrant()).unwrap();
    let line = |one: &Imported| match &one.outcome {
        Ok(new) => {
            let it = &new.registration;
            let opened = opened(new.secrets.as_ref());
            let name = it.name.as_deref().unwrap();
            format!(
                "{name} {} {} {opened} {:?} {:?}",
                it.url,
                it.dialect_name(),
                headers(&it.options),
                one.left_out
            )
        }
        Err(faults) => format!("{}: {}", one.name, told(faults).join(" | ")),
    };
    let lines: Vec<String> = imported.iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "orders https://orders.example/mcp streamable-http headers authorization=Bearer S3CRET x-region=eu [] [\"disabled\"]",
            "plain https://plain.example/ auto none [] []",
            "keyed https://keyed.example/sse sse headers x-api-key=S3CRET [] []",
            "local: /mcpServers/local/command it is a program, which the gateway runs for nobody; an \
         operator can put it behind the gateway as an upstream with a `command`",
            "socket: /mcpServers/socket/type a server of type `ws` cannot be registered; `http` and \
         `sse` can | /mcpServers/socket/url a server is reached by `http` or `https`",
            "env: /mcpServers/env/headers/Authorization the value is filled in by a client's \
         environment, which is not here; write the value itself",
            "nothing: /mcpServers/nothing/url `url` is missing",
        ]
    );
    for (file, expected) in [
        ("{}", "/mcpServers `mcpServers` is missing"),
        (r#"{"mcpServers": []}"#, "/mcpServers expected a JSON object"),
    ] {
        assert_eq!(told(&read_mcp_servers(file.into(), &registrant()).unwrap_err()), [expected]);
    }
}

#[test]
fn a_server_may_warn_of_its_tools_and_is_not_believed_otherwise() {
    for (annotations, expected) in [
        ("{}", None),
        (r#"{"readOnlyHint": true}"#, None),
        (r#"{"readOnlyHint": false}"#, Some(Risk::WriteLow)),
        (r#"{"destructiveHint": true}"#, Some(Risk::WriteHigh)),
        (r#"{"readOnlyHint": false, "destructiveHint": true}"#, Some(Risk::WriteHigh)),
        (r#"{"readOnlyHint": false, "destructiveHint": false}"#, Some(Risk::WriteLow)),
        (r#"{"readOnlyHint": true, "destructiveHint": true}"#, None),
        (r#"{"readOnlyHint": "no"}"#, None),
    ] {
        let definition = format!(r#"{{"name": "a", "annotations": {annotations}}}"#);
        assert_eq!(declared_risk(&definition.into()), expected, "{annotations}");
    }
    assert_eq!(declared_risk(&Bytes::from_static(b"{\"name\": \"a\"}")), None);
}

#[test]
fn a_store_in_memory_forgets_what_has_long_been_gone() {
    let local = Local::default();
    let new = read(r#"{"url": "https://a.example/"}"#).unwrap().registration;
    let told = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    for n in 0..10_002 {
        let owner = EmployeeId::parse(&format!("E{n}")).unwrap();
        let one = Registration { owner: owner.clone(), ..new.clone() };
        local.put(one, 1, Box::new(|put| assert!(put.unwrap().is_ok())));
        local.delete(
            new.tenant.clone(),
            owner,
            new.server_key.clone(),
            Box::new(|was| assert_eq!(was, Ok(true))),
        );
    }
    for marker in [Marker::START, Marker(20_000)] {
        let told = told.clone();
        local.changes_since(marker, Box::new(move |it| told.lock().push(it.unwrap())));
    }
    let told = told.lock();
    assert!(told[0].too_old && told[0].changes.len() < 10_000);
    assert!(!told[1].too_old && told[1].changes.len() <= 4, "{}", told[1].changes.len());
}

/// A template stands for itself once it was written down.
#[test]
fn a_header_is_shown_as_it_was_written() {
    for text in ["a $ctx.tenant.", "$ctx.user.roles", "plain", "$$ctx.traceId"] {
        assert_eq!(HeaderTemplate::parse(text).unwrap().to_string(), text);
    }
}

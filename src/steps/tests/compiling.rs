//! Faults of steps, each with its place.

use super::*;

/// The faults of a list, as `kind step pointer`.
fn faults(steps: &str) -> Vec<String> {
    let Err(faults) = compiled(steps) else { return Vec::new() };
    let shown = |fault: Fault| {
        assert!(!fault.message.is_empty() && !fault.message.contains("hunter2"), "{fault}");
        let step = fault.step.map_or("-".to_owned(), |step| step.to_string());
        format!("{} {step} {}", fault.kind.as_str(), fault.pointer)
    };
    faults.into_iter().map(shown).collect()
}

#[test]
fn a_step_of_the_contract_compiles() {
    assert_eq!(faults(&format!("[{EXAMPLE}]")), [""; 0]);
}

#[test]
fn each_fault_of_form_has_its_place() {
    let bind = |binding: &str| call(1, &format!(r#""inputBindings":{{"orderId":{binding}}}"#));
    let at = |rest: &str| format!("/steps/0/mcp/inputBindings/orderId{rest}");
    for (step, kind, pointer) in [
        ("7".to_owned(), "bad_step -", "/steps/0".to_owned()),
        ("{}".into(), "missing_member -", "/steps/0/type".into()),
        (r#"{"type":1}"#.into(), "bad_value -", "/steps/0/type".into()),
        (r#"{"type":"mcpcall","stepIndex":1}"#.into(), "bad_value 1", "/steps/0/type".into()),
        (r#"{"type":"call","stepIndex":1,"mcp":{}}"#.into(), "bad_value 1", "/steps/0/type".into()),
        (r#"{"type":"x","stepIndex":-1}"#.into(), "bad_value -", "/steps/0/stepIndex".into()),
        (r#"{"type":"x","stepIndex":1.0}"#.into(), "bad_value -", "/steps/0/stepIndex".into()),
        (r#"{"type":"mcpCall","stepIndex":1}"#.into(), "missing_member 1", "/steps/0/mcp".into()),
        (call(1, &format!(r#"{GOOD},"x/y":1"#)), "unknown_member 1", "/steps/0/mcp/x~1y".into()),
        (
            call(1, &format!(r#"{GOOD},"saveAs":"a.b""#)),
            "bad_value 1",
            "/steps/0/mcp/saveAs".into(),
        ),
        (
            call(1, &format!(r#"{GOOD},"failurePolicy":"maybe""#)),
            "bad_value 1",
            "/steps/0/mcp/failurePolicy".into(),
        ),
        (named(1, "orders", "x", ""), "bad_value 1", "/steps/0/mcp/serverKey".into()),
        (named(1, "mcp_a_7F3A2C91", "x", ""), "bad_value 1", "/steps/0/mcp/serverKey".into()),
        (named(1, ORDERS, "", ""), "bad_value 1", "/steps/0/mcp/toolName".into()),
        (call(1, r#""inputBindings":[]"#), "bad_value 1", "/steps/0/mcp/inputBindings".into()),
        (bind("1"), "bad_value 1", at("")),
        (bind("{}"), "missing_member 1", at("/source")),
        (bind(r#"{"source":"const"}"#), "missing_member 1", at("/value")),
        (bind(r#"{"source":"const","value":"x","path":"y"}"#), "unknown_member 1", at("/path")),
        (bind(r#"{"source":"page.url","path":"x","value":1}"#), "unknown_member 1", at("/value")),
        (bind(r#"{"source":"page.url","path":""}"#), "bad_path 1", at("/path")),
        (bind(r#"{"source":"page.x","path":7}"#), "bad_path 1", at("/path")),
        (bind(r#"{"source":"page.x","path":"a..b"}"#), "bad_path 1", at("/path")),
        (bind(r#"{"source":"page.x","path":"/a~2"}"#), "bad_path 1", at("/path")),
        (bind(r#"{"source":"page.x.y"}"#), "unknown_source 1", at("/source")),
        (bind(r#"{"source":"cookie.x"}"#), "unknown_source 1", at("/source")),
        (bind(r#"{"source":"steps.a b"}"#), "unknown_source 1", at("/source")),
        (bind(r#"{"source":"const","value":"x","as":"y"}"#), "unknown_member 1", at("/as")),
    ] {
        // A step whose form is wrong may be wrong against its tool, too.
        let found = faults(&format!("[{step}]"));
        let expected = format!("{kind} {pointer}");
        assert!(found.contains(&expected), "{step}: {found:?}");
    }
    assert_eq!(faults("{}"), ["bad_value - /steps"]);
}

#[test]
fn steps_are_held_against_each_other() {
    let uses = |index, name: &str| {
        call(index, &format!(r#""inputBindings":{{"orderId":{{"source":"steps.{name}"}}}}"#))
    };
    let saves = |index, name: &str| call(index, &format!(r#"{GOOD},"saveAs":"{name}""#));
    let other = r#"{"type":"click","stepIndex":2,"saveAs":"clicked","whatever":[1.0]}"#;
    let source = "/mcp/inputBindings/orderId/source";
    for (steps, expected) in [
        (vec![saves(1, "a"), uses(2, "a")], vec![]),
        (vec![call(1, GOOD), other.to_owned(), uses(3, "clicked")], vec![]),
        (
            vec![uses(1, "a"), saves(2, "a")],
            vec![format!("used_before_defined 1 /steps/0{source}")],
        ),
        (
            vec![call(1, r#""saveAs":"a","inputBindings":{"orderId":{"source":"steps.a"}}"#)],
            vec![format!("used_before_defined 1 /steps/0{source}")],
        ),
        (vec![uses(1, "a")], vec![format!("unknown_variable 1 /steps/0{source}")]),
        (
            vec![saves(1, "a"), saves(2, "a")],
            vec!["duplicate_variable 2 /steps/1/mcp/saveAs".to_owned()],
        ),
        (
            vec![call(1, GOOD), call(1, GOOD)],
            vec!["duplicate_step_index 1 /steps/1/stepIndex".to_owned()],
        ),
        (vec![call(2, GOOD), call(1, GOOD)], vec!["step_order 1 /steps/1/stepIndex".to_owned()]),
    ] {
        assert_eq!(faults(&format!("[{}]", steps.join(","))), expected, "{steps:?}");
    }
}

#[test]
fn calls_are_held_against_their_tools() {
    let with = |tool: &str, inputs: &str| {
        named(1, ORDERS, tool, &format!(r#""inputBindings":{{{inputs}}}"#))
    };
    let order = r#""orderId":{"source":"const","value":"O-1"}"#;
    let at = |rest: &str| format!("/steps/0/mcp/inputBindings{rest}");
    for (step, expected) in [
        (with("query_order", order), None),
        (with("query_order", ""), Some(format!("missing_input 1 {}", at("")))),
        (call(1, ""), Some(format!("missing_input 1 {}", at("")))),
        (
            with("query_order", r#""orderId":{"source":"const","value":7}"#),
            Some(format!("wrong_value 1 {}", at("/orderId/value"))),
        ),
        (
            with("query_order", &format!(r#"{order},"limit":{{"source":"const","value":11}}"#)),
            Some(format!("wrong_value 1 {}", at("/limit/value"))),
        ),
        (
            // Also where another input is known only later.
            with(
                "query_order",
                r#""orderId":{"source":"page.x"},"filter":{"source":"const","value":{"state":"c"}}"#,
            ),
            Some(format!("wrong_value 1 {}", at("/filter/value/state"))),
        ),
        (
            with("query_order", &format!(r#"{order},"limit":{{"source":"page.url","path":"n"}}"#)),
            Some(format!("wrong_value 1 {}", at("/limit"))),
        ),
        (
            with("query_order", &format!(r#"{order},"limt":{{"source":"page.x"}}"#)),
            Some(format!("unknown_input 1 {}", at("/limt"))),
        ),
        (
            with("any", r#""tenantId":{"source":"const","value":"globex"}"#),
            Some(format!("unknown_input 1 {}", at("/tenantId"))),
        ),
        (with("any", r#""x":{"source":"page.url"}"#), None),
        // What is said of two inputs together is told where both are known.
        (with("either", r#""a":{"source":"const","value":1.0}"#), None),
        (
            with("either", r#""a":{"source":"const","value":1},"b":{"source":"const","value":2}"#),
            Some(format!("wrong_value 1 {}", at(""))),
        ),
        (with("either", r#""a":{"source":"const","value":1},"b":{"source":"page.b"}"#), None),
        // The key is the gateway's to give.
        (with("start", r#""id":{"source":"const","value":12345678901234567890123}"#), None),
        (with("nothing", ""), Some("unknown_tool 1 /steps/0/mcp/toolName".into())),
        (with("new", ""), Some("not_approved 1 /steps/0/mcp/toolName".into())),
        (named(1, BOOKS, "x", ""), Some("not_listed 1 /steps/0/mcp/serverKey".into())),
        (
            named(1, "mcp_nobody_00000000", "x", ""),
            Some("unknown_server 1 /steps/0/mcp/serverKey".into()),
        ),
    ] {
        let expected: Vec<String> = expected.into_iter().collect();
        assert_eq!(faults(&format!("[{step}]")), expected, "{step}");
    }
}

#[test]
fn a_constant_that_looks_like_a_credential_is_refused_and_not_repeated() {
    let at = "/steps/0/mcp/inputBindings";
    for (input, value, pointer) in [
        ("password", r#""hunter2""#, Some("/password/value")),
        ("x", r#"{"list":[1,{"apiKey":"hunter2"}]}"#, Some("/x/value/list/1/apiKey")),
        ("x", r#"["postgres://app:hunter2@db/x"]"#, Some("/x/value/0")),
        ("issueKey", r#""PROJ-12""#, None),
        ("issueKey", r#""8f14e45fceea167a5a36dedd4bea2543""#, Some("/issueKey/value")),
        ("maxTokens", "100", None),
        ("token", r#""""#, None),
    ] {
        let inputs =
            format!(r#""inputBindings":{{"{input}":{{"source":"const","value":{value}}}}}"#);
        let step = named(1, ORDERS, "any", &inputs);
        let expected: Vec<String> =
            pointer.iter().map(|pointer| format!("credential 1 {at}{pointer}")).collect();
        assert_eq!(faults(&format!("[{step}]")), expected, "{step}");
    }
    // Its type would be told with the value.
    let inputs =
        r#""inputBindings":{"orderId":{"source":"const","value":["https://a:hunter2@b/"]}}"#;
    assert_eq!(
        faults(&format!("[{}]", call(1, inputs))),
        ["credential 1 /steps/0/mcp/inputBindings/orderId/value/0"]
    );
}

#[test]
fn all_faults_are_told_at_once() {
    let steps = [
        call(
            2,
            r#""inputBindings":{"orderId":{"source":"steps.later"},"limit":{"source":"const","value":99}}"#,
        ),
        call(1, r#""saveAs":"later","failurePolicy":"never""#),
        named(4, ORDERS, "nothing", ""),
    ];
    assert_eq!(
        faults(&format!("[{}]", steps.join(","))),
        [
            "used_before_defined 2 /steps/0/mcp/inputBindings/orderId/source",
            "wrong_value 2 /steps/0/mcp/inputBindings/limit/value",
            "bad_value 1 /steps/1/mcp/failurePolicy",
            "step_order 1 /steps/1/stepIndex",
            "missing_input 1 /steps/1/mcp/inputBindings",
            "unknown_tool 4 /steps/2/mcp/toolName",
        ]
    );
}

#[test]
fn there_are_no_more_steps_than_may_be() {
    let steps: Vec<String> = (0..4).map(|index| call(index, GOOD)).collect();
    let steps = doc(format!("[{}]", steps.join(",")));
    assert!(compile(steps.root(), &Shelf, 4).is_ok());
    let faults = compile(steps.root(), &Shelf, 3).unwrap_err();
    assert_eq!(faults.first().map(|fault| fault.kind), Some(FaultKind::TooMany));
}

#[test]
fn steps_with_hundreds_of_thousands_of_anything_are_looked_at_as_far_as_is_told() {
    const MANY: usize = 100_000;
    let many =
        |one: &dyn Fn(usize) -> String, count| (0..count).map(one).collect::<Vec<_>>().join(",");
    let inputs = |count| many(&|n| format!(r#""inptu{n}":{{"source":"page.x"}}"#), count);
    let members = many(&|n| format!(r#""x{n}":1"#), MANY);
    let wide = |n: u64, count: usize| {
        named(n, ORDERS, "wide", &format!(r#""inputBindings":{{{}}}"#, inputs(count)))
    };
    let most = MAX_FAULTS..MAX_FAULTS + 10;
    for (steps, first, count) in [
        (wide(1, MANY), "bad_value 1 /steps/0/mcp/inputBindings", most.clone()),
        (call(1, &members), "unknown_member 1 /steps/0/mcp/x0", most.clone()),
        (
            call(1, &format!(r#""inputBindings":{{"orderId":{{"source":"page.x",{members}}}}}"#)),
            "unknown_member 1 /steps/0/mcp/inputBindings/orderId/x0",
            most.clone(),
        ),
        (vec!["7"; MANY].join(","), "too_many_steps - /steps", 1..2),
        (vec!["7"; 100].join(","), "bad_step - /steps/0", 100..101),
        (
            (1..=100).map(|n| wide(n, 200)).collect::<Vec<_>>().join(","),
            "missing_input 1 /steps/0/mcp/inputBindings",
            most.clone(),
        ),
        (
            {
                let all = many(&|n| format!(r#""i{n}":{{"source":"steps.none"}}"#), 250);
                named(1, ORDERS, "any", &format!(r#""inputBindings":{{{all}}}"#))
            },
            "unknown_variable 1 /steps/0/mcp/inputBindings/i0/source",
            most,
        ),
    ] {
        let found = faults(&format!("[{steps}]"));
        assert!(count.contains(&found.len()), "{} {:?}", found.len(), found.first());
        assert!(found.contains(&first.to_owned()), "{first}: {:?}", found.first());
    }
    // A name that is not known is guessed at, the first few times.
    let steps = (1..=20).map(|n| {
        named(n, ORDERS, "query_order", r#""inputBindings":{"orderIdd":{"source":"page.x"}}"#)
    });
    let steps = steps.collect::<Vec<_>>().join(",");
    let found = compiled(&format!("[{steps}]")).unwrap_err();
    assert_eq!(
        found.iter().filter(|fault| fault.message.contains("is `orderId` meant")).count(),
        8
    );
}

#[test]
fn constants_are_held_against_schemas_as_long_as_that_ends() {
    /// Every byte costs a quarter of all.
    struct Costly;
    impl Validator for Costly {
        fn check(&self, _: &[u8]) -> Result<(), Misfit> {
            Ok(())
        }
        fn work(&self, length: usize) -> u64 {
            length as u64 * (1 << 30)
        }
    }
    impl Tools for Costly {
        type Validator = Costly;
        fn find(&self, server_key: &str, tool: &str) -> Result<Found, Unfound> {
            Shelf.find(server_key, tool)
        }
        fn validator(&self, _: &[u8]) -> Option<Costly> {
            Some(Costly)
        }
    }
    let steps = named(1, ORDERS, "any", r#""inputBindings":{"a":{"source":"const","value":1}}"#);
    let found = compile(doc(format!("[{steps}]")).root(), &Costly, 9).unwrap_err();
    assert_eq!(found[0].kind, FaultKind::WrongValue, "{found:?}");
    assert!(found[0].message.contains("at once"), "{found:?}");
}

//! Runs, over calls that are answered here.

use std::time::Duration;

use super::*;
use crate::error::{Code, Error};

/// Answers calls in turn, and keeps what was asked.
#[derive(Default)]
struct Answers {
    asked: Vec<(u64, String, Option<String>, String)>,
    answers: Vec<Result<&'static str, Code>>,
    takes: Duration,
}

impl Calls for Answers {
    async fn call(&mut self, asked: Asked<'_>) -> Called {
        tokio::time::sleep(self.takes).await;
        let number = self.asked.len();
        self.asked.push((
            asked.call.index,
            String::from_utf8(asked.arguments.to_vec()).unwrap(),
            asked.key.as_deref().map(str::to_owned),
            asked.own_key.to_string(),
        ));
        let end = match self.answers.get(number) {
            Some(Err(code)) => Err(Finding { error: Error::new(*code, "no"), result: None }),
            Some(Ok(result)) => Ok(Bytes::from_static(result.as_bytes())),
            None => Ok(Bytes::from_static(b"{\"content\":[]}")),
        };
        Called { facts: CallFacts::default(), end }
    }
}

const LIMITS: Limits = Limits { max_time: Duration::from_secs(60), max_variables: 1_000 };

fn run<'a>(compiled: &'a Compiled, context: &str, variables: &str) -> Run<'a> {
    Run {
        id: 7,
        compiled,
        only: None,
        page: Page::read(doc(context.to_owned()).root()),
        variables: Variables::read(doc(variables.to_owned()).root()),
        limits: LIMITS,
    }
}

fn list(steps: &[String]) -> Compiled {
    compiled(&format!("[{}]", steps.join(","))).unwrap()
}

fn any(index: u64, members: &str) -> String {
    named(index, ORDERS, "any", members)
}

/// What `x` is called with, where it is bound like this.
async fn bound(binding: &str, context: &str, variables: &str) -> Result<String, String> {
    let other = r#"{"type":"click","saveAs":"v"}"#.to_owned();
    let steps = list(&[other, any(1, &format!(r#""inputBindings":{{"x":{binding}}}"#))]);
    let mut answers = Answers::default();
    let outcome = run(&steps, context, variables).go(&mut answers).await;
    match answers.asked.pop() {
        Some((_, arguments, ..)) => {
            Ok(arguments.strip_prefix("{\"x\":").unwrap().strip_suffix('}').unwrap().to_owned())
        }
        None => {
            let report = outcome.reports.into_iter().next_back().unwrap();
            let error = report.finding.unwrap().error;
            assert_eq!(error.code(), Code::InvalidArgs);
            Err(format!("{} {}", error.pointer().unwrap(), error.message()))
        }
    }
}

#[tokio::test]
async fn bindings_stand_for_what_is_there_byte_for_byte() {
    const PAGE: &str = r#"{"url":"https://x.example/o?orderId=O%201&n=1&n=2&plus=a+b#f?orderId=2",
        "order":{"id":12345678901234567890,"list":[1.0,{"a/b":"é"}],"0":"zero"},"none":null}"#;
    for (binding, expected) in [
        (r#"{"source":"const","value":{"b": 1.0,"a":1e400}}"#, Ok(r#"{"b": 1.0,"a":1e400}"#)),
        (r#"{"source":"const","value":null}"#, Ok("null")),
        (r#"{"source":"page.url","path":"orderId"}"#, Ok("\"O 1\"")),
        (r#"{"source":"page.url","path":"plus"}"#, Ok("\"a b\"")),
        (r#"{"source":"page.url","path":"n"}"#, Err("/path step 1: the input `x` has no value")),
        (r#"{"source":"page.url","path":"f"}"#, Err("/path ")),
        (r#"{"source":"page.order","path":"id"}"#, Ok("12345678901234567890")),
        (r#"{"source":"page.order","path":"list.0"}"#, Ok("1.0")),
        (r#"{"source":"page.order","path":"/list/1/a~1b"}"#, Ok("\"é\"")),
        (r#"{"source":"page.order","path":"0"}"#, Ok("\"zero\"")),
        (r#"{"source":"page.order","path":"list.00"}"#, Err("/path ")),
        (r#"{"source":"page.order","path":"list.2"}"#, Err("/path ")),
        (r#"{"source":"page.order","path":"list.99999999999999999999"}"#, Err("/path ")),
        (r#"{"source":"page.order","path":"id.x"}"#, Err("/path ")),
        (r#"{"source":"page.none"}"#, Ok("null")),
        (r#"{"source":"page.none","path":"x"}"#, Err("/path ")),
        (r#"{"source":"page.missing"}"#, Err("/source ")),
    ] {
        for context in [PAGE.to_owned(), format!(r#"{{"page":{PAGE},"more":1}}"#)] {
            match (bound(binding, &context, "{}").await, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{binding}"),
                (Err(error), Err(expected)) => {
                    let expected = format!("/steps/1/mcp/inputBindings/x{expected}");
                    assert!(error.starts_with(&expected), "{binding}: {error}");
                }
                other => panic!("{binding}: {other:?}"),
            }
        }
    }
    let whole = bound(r#"{"source":"page.url"}"#, r#"{"url":"/o?x=1"}"#, "{}").await;
    assert_eq!(whole.as_deref(), Ok("\"/o?x=1\""));
    assert!(bound(r#"{"source":"page.url"}"#, "{}", "{}").await.is_err());
    assert!(bound(r#"{"source":"page.url"}"#, r#"{"url":1}"#, "{}").await.is_err());
}

#[tokio::test]
async fn variables_are_looked_into_and_so_are_texts_that_hold_json() {
    const GIVEN: &str = r#"{"v":{"text":"{\"id\":[7.0]}","plain":"O-1","orders":[{"id":1}]}}"#;
    for (path, expected) in [
        ("", Ok(r#"{"text":"{\"id\":[7.0]}","plain":"O-1","orders":[{"id":1}]}"#)),
        ("orders.0.id", Ok("1")),
        ("text", Ok(r#""{\"id\":[7.0]}""#)),
        ("text.id.0", Ok("7.0")),
        ("plain.x", Err(())),
        ("orders.0.name", Err(())),
    ] {
        let binding = format!(r#"{{"source":"steps.v","path":"{path}"}}"#);
        let found = bound(&binding, "{}", GIVEN).await;
        assert_eq!(found.as_deref().map_err(|_| ()), expected, "{path}");
    }
    let binding = r#"{"source":"steps.v","path":"a.b"}"#;
    assert_eq!(bound(binding, "{}", r#"{"v":null}"#).await.as_deref(), Ok("null"));
    let error = bound(binding, "{}", "{}").await.unwrap_err();
    assert!(error.starts_with("/steps/1/mcp/inputBindings/x/source "), "{error}");
}

#[tokio::test]
async fn a_variable_holds_what_a_result_says() {
    for (result, expected) in [
        (
            r#"{"structuredContent":{"n":1.0},"content":[{"type":"text","text":"x"}]}"#,
            r#"{"n":1.0}"#,
        ),
        (r#"{"content":[{"type":"text","text":" {\"n\": 1.0}\n"}]}"#, r#"{"n": 1.0}"#),
        (r#"{"content":[{"type":"text","text":"[1"}]}"#, r#""[1""#),
        // A text that could be a number was a text.
        (r#"{"content":[{"type":"text","text":"1001"}]}"#, r#""1001""#),
        (r#"{"content":[{"type":"text","text":"a\u00e9"}]}"#, r#""a\u00e9""#),
        (
            r#"{"content":[{"type":"text","text":"a"},{"type":"image"}]}"#,
            r#"[{"type":"text","text":"a"},{"type":"image"}]"#,
        ),
        (r#"{"content":[{"type":"image"}]}"#, r#"[{"type":"image"}]"#),
        (r#"{"content":[]}"#, "null"),
        ("{}", "null"),
    ] {
        let steps = list(&[any(1, r#""saveAs":"a""#)]);
        let mut answers = Answers { answers: vec![Ok(result)], ..Answers::default() };
        let outcome = run(&steps, "{}", "{}").go(&mut answers).await;
        assert_eq!(&outcome.variables.get("a").unwrap()[..], expected.as_bytes(), "{result}");
    }
}

fn states(outcome: &Outcome<'_>) -> Vec<&'static str> {
    outcome.reports.iter().map(|report| report.state.as_str()).collect()
}

#[tokio::test]
async fn a_required_step_ends_the_run_and_an_optional_one_leaves_null() {
    let steps = list(&[
        any(1, r#""saveAs":"a","failurePolicy":"optional""#),
        any(2, r#""saveAs":"b","inputBindings":{"x":{"source":"steps.a","path":"id"}}"#),
        r#"{"type":"click"}"#.to_owned(),
        any(4, r#""saveAs":"d""#),
    ]);
    let mut answers = Answers {
        answers: vec![Err(Code::Timeout), Err(Code::ServerNotConfigured)],
        ..Answers::default()
    };
    let outcome = run(&steps, "{}", r#"{"given":1}"#).go(&mut answers).await;
    assert_eq!(outcome.ended, Ended::Failed);
    assert_eq!(states(&outcome), ["failed", "failed", "other_type", "not_reached"]);
    let asked: Vec<&str> = answers.asked.iter().map(|(_, arguments, ..)| &**arguments).collect();
    assert_eq!(asked, ["{}", r#"{"x":null}"#]);
    let variables: Vec<_> = outcome.variables.iter().map(|(name, _)| name).collect();
    assert_eq!(variables, ["a", "given"]);
    let codes: Vec<_> =
        outcome.reports.iter().filter_map(|r| Some(r.finding.as_ref()?.error.code())).collect();
    assert_eq!(codes, [Code::Timeout, Code::ServerNotConfigured]);
}

#[tokio::test]
async fn one_step_runs_alone_and_its_key_is_the_same_whenever_it_does() {
    let steps =
        list(&[any(1, r#""saveAs":"a""#), any(2, r#""inputBindings":{"x":{"source":"steps.a"}}"#)]);
    let mut answers = Answers::default();
    let outcome = run(&steps, "{}", "{}").go(&mut answers).await;
    assert_eq!(states(&outcome), ["ok", "ok"]);
    let alone = Run { only: Some(2), ..run(&steps, "{}", r#"{"a":5}"#) };
    let outcome = alone.go(&mut answers).await;
    assert_eq!(states(&outcome), ["ok"]);
    let asked = answers.asked.clone();
    let [first, second, again] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((again.0, &*again.1), (2, r#"{"x":5}"#));
    assert_eq!(second.3, again.3);
    assert_ne!(first.3, second.3);
    assert!(first.3.len() < 255 && first.3.is_ascii());
    let other = Run { id: 8, only: Some(2), ..run(&steps, "{}", r#"{"a":5}"#) };
    other.go(&mut answers).await;
    assert_ne!(answers.asked[3].3, again.3);
}

#[tokio::test]
async fn a_key_may_be_bound() {
    let key = |binding: &str| list(&[any(1, &format!(r#""idempotencyKey":{binding}"#))]);
    let steps = key(r#"{"source":"page.url","path":"k"}"#);
    let mut answers = Answers::default();
    run(&steps, r#"{"url":"?k=K-1"}"#, "{}").go(&mut answers).await;
    assert_eq!(answers.asked[0].2.as_deref(), Some("K-1"));
    let steps = key(r#"{"source":"const","value":7}"#);
    let outcome = run(&steps, "{}", "{}").go(&mut answers).await;
    let error = &outcome.reports[0].finding.as_ref().unwrap().error;
    assert_eq!(error.pointer(), Some("/steps/0/mcp/idempotencyKey"));
}

#[tokio::test]
async fn an_argument_is_added_where_no_binding_gives_it() {
    for (inputs, expected) in [
        ("", r#"{"k":"K\""}"#),
        (r#""a":{"source":"const","value":1.0}"#, r#"{"a":1.0,"k":"K\""}"#),
        (r#""k":{"source":"const","value":"own"}"#, r#"{"k":"own"}"#),
    ] {
        let steps = list(&[any(1, &format!(r#""inputBindings":{{{inputs}}}"#))]);
        struct Adds(Bytes);
        impl Calls for Adds {
            async fn call(&mut self, asked: Asked<'_>) -> Called {
                self.0 = asked.arguments_with("k", "K\"");
                Called { facts: CallFacts::default(), end: Ok(Bytes::from_static(b"{}")) }
            }
        }
        let mut adds = Adds(Bytes::new());
        run(&steps, "{}", "{}").go(&mut adds).await;
        assert_eq!(&adds.0[..], expected.as_bytes());
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_has_a_time_for_all_of_it() {
    let steps: Vec<String> = (1..=4).map(|index| any(index, "")).collect();
    let steps = list(&steps);
    let mut answers = Answers { takes: Duration::from_secs(25), ..Answers::default() };
    let outcome = run(&steps, "{}", "{}").go(&mut answers).await;
    assert_eq!(outcome.ended, Ended::OutOfTime);
    assert_eq!(states(&outcome), ["ok", "ok", "ok", "not_reached"]);
}

#[tokio::test]
async fn variables_have_bounds_together() {
    let steps =
        list(&[any(1, r#""saveAs":"a","failurePolicy":"optional""#), any(2, r#""saveAs":"b""#)]);
    let given = format!(r#"{{"given":"{}"}}"#, "x".repeat(990));
    let mut answers = Answers {
        answers: vec![Ok(r#"{"structuredContent":{"long":"long"}}"#)],
        ..Answers::default()
    };
    let outcome = run(&steps, "{}", &given).go(&mut answers).await;
    assert_eq!(states(&outcome), ["failed", "ok"]);
    let error = &outcome.reports[0].finding.as_ref().unwrap().error;
    assert_eq!(error.code(), Code::PayloadTooLarge);
    assert_eq!(&outcome.variables.get("a").unwrap()[..], b"null");
}

mod paths {
    use proptest::prelude::*;

    use super::super::*;
    use crate::steps::{Binding, Page, Variables};

    proptest! {
        /// Whatever a path is, it leads to a part of the value, or nowhere.
        #[test]
        fn a_path_leads_somewhere_or_nowhere(
            path in "[a-c0-2./~\"\\\\]{0,12}",
            value in "[\\[\\]{}\",:a-c0-2 \\\\]{0,40}",
        ) {
            let Ok(path) = Path::parse(&path) else { return Ok(()) };
            let limits = JsonLimits { depth: 64, duplicates: Duplicates::Allow, outline: 1 };
            let Ok(found) = Doc::parse(value.into(), &limits) else { return Ok(()) };
            let mut variables = Variables::default();
            variables.set("v", found.root().bytes());
            let binding = Binding::Step { name: "v".into(), path };
            if let Ok(part) = binding.resolve(&Page::default(), &variables) {
                prop_assert!(Doc::parse(part, &limits).is_ok());
            }
        }

        #[test]
        fn any_address_has_a_query_or_none(url in ".{0,40}", name in "[a-z%&=]{1,3}") {
            let mut text = b"{\"url\":".to_vec();
            crate::json::write_str(&mut text, &url);
            text.push(b'}');
            let page = Page::read(doc(text).root());
            let binding = Binding::PageUrl(Some(name.into()));
            let limits = JsonLimits { depth: 64, duplicates: Duplicates::Allow, outline: 1 };
            if let Ok(part) = binding.resolve(&page, &Variables::default()) {
                prop_assert!(Doc::parse(part, &limits).is_ok());
            }
        }
    }
}

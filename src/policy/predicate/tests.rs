//! What each test says of which argument. One case a row.

use std::sync::Arc;

use super::*;
use crate::{
    fault::{Faults, Source},
    json::{Doc, Duplicates, Limits},
    yaml,
};

const LIMITS: Limits = Limits { depth: 32, duplicates: Duplicates::Refuse, outline: 4 };

fn predicates(text: &str) -> Box<[Predicate]> {
    let source = Arc::new(Source { name: "t".to_owned(), text: text.to_owned() });
    let nodes = yaml::parse(&source).unwrap();
    let mut faults = Faults::new();
    let read = Predicate::read_all(&nodes[0], &mut faults);
    read.unwrap_or_else(|| panic!("{text}: {faults:?}"))
}

fn holds(text: &str, arguments: &str) -> bool {
    let doc = Doc::parse(bytes::Bytes::copy_from_slice(arguments.as_bytes()), &LIMITS).unwrap();
    predicates(text).iter().all(|predicate| predicate.holds(Some(doc.root())))
}

#[test]
fn a_test_says_yes_to_what_it_is_about_and_to_nothing_else() {
    for (when, yes, no) in [
        (
            "{ arg: /a, eq: x }",
            &["\"x\"", "\"\\u0078\""][..],
            &["\"y\"", "[\"x\"]", "1", "null"][..],
        ),
        ("{ arg: /a, eq: 1 }", &["1", "1.0", "10e-1"], &["\"1\"", "2", "true"]),
        ("{ arg: /a, eq: 9007199254740993 }", &["9007199254740993"], &["9007199254740992"]),
        ("{ arg: /a, eq: true }", &["true"], &["false", "\"true\"", "1"]),
        ("{ arg: /a, eq: null }", &["null"], &["0", "\"\""]),
        ("{ arg: /a, in: [x, 2] }", &["\"x\"", "2"], &["\"2\"", "\"y\"", "null"]),
        ("{ arg: /a, not_in: [x, 2] }", &["\"y\"", "null", "[\"x\"]", "{}"], &["\"x\"", "2.0"]),
        (
            "{ arg: /a, prefix: eu- }",
            &["\"eu-west\"", "\"eu-\""],
            &["\"us\"", "\"\"", "[\"eu-w\"]"],
        ),
        ("{ arg: /a, glob: \"*.pdf\" }", &["\"x/y.pdf\""], &["\"x.pdf.exe\"", "1"]),
        ("{ arg: /a, glob: \"{a,b}[0-9]\" }", &["\"a1\"", "\"b0\""], &["\"c1\"", "\"a12\""]),
        (
            "{ arg: /a, range: [1, 100] }",
            &["1", "100", "1e2", "55.5"],
            &["0.999", "100.01", "\"5\""],
        ),
        ("{ arg: /a, range: [-1.5, null] }", &["-1.5", "1e400"], &["-1.51", "null"]),
        ("{ arg: /a, range: [null, 0] }", &["0", "-0", "-9"], &["1e-400"]),
        (
            "{ arg: /a, max_len: 3 }",
            &["\"äöü\"", "\"\"", "[1,2,3]"],
            &["\"abcd\"", "[1,2,3,4]", "1", "{}"],
        ),
        ("{ arg: /a, regex: \"^[a-z]+$\" }", &["\"abc\""], &["\"ABC\"", "\"abc1\"", "1"]),
        ("{ arg: /a, regex: b }", &["\"abc\""], &["\"ac\""]),
    ] {
        for (values, expected) in [(yes, true), (no, false)] {
            for value in values {
                assert_eq!(holds(when, &format!("{{\"a\":{value}}}")), expected, "{when} {value}");
            }
        }
        // An absent argument satisfies `not_in` and nothing else.
        let absent = when.contains("not_in");
        assert_eq!(holds(when, "{\"b\":1}"), absent, "{when}");
        assert_eq!(predicates(when)[0].holds(None), absent, "{when}");
    }
}

#[test]
fn a_pointer_goes_through_objects_and_lists() {
    let arguments = r#"{"a":{"b/c":[{"d":1},{"d":2}],"~":3},"":4,"0":5}"#;
    for (pointer, value) in
        [("/a/b~1c/1/d", 2), ("/a/b~1c/0/d", 1), ("/a/~0", 3), ("/", 4), ("/0", 5)]
    {
        assert!(holds(&format!("{{ arg: {pointer}, eq: {value} }}"), arguments), "{pointer}");
    }
    for pointer in ["/a/b~1c/01/d", "/a/b~1c/-/d", "/a/b~1c/2/d", "/a/b/c", "/a/~0/x", "/x"] {
        let text = format!("{{ arg: {pointer}, not_in: [1, 2, 3, 4, 5] }}");
        assert!(holds(&text, arguments), "{pointer} points at nothing");
    }
}

#[test]
fn of_a_list_all_must_hold() {
    let when = "[{ arg: /a, eq: 1 }, { arg: /b, prefix: x }]";
    assert!(holds(when, r#"{"a":1,"b":"xy"}"#));
    assert!(!holds(when, r#"{"a":1,"b":"y"}"#) && !holds(when, r#"{"a":2,"b":"xy"}"#));
}

#[test]
fn a_condition_is_told_as_it_was_written() {
    for (when, told) in [
        ("{ arg: /region, not_in: [eu-west, 7] }", "/region not_in [eu-west, 7]"),
        ("{ arg: /n, range: [1, null] }", "/n range [1, null]"),
        ("{ arg: /n, regex: \"^a\" }", "/n regex ^a"),
        ("{ arg: /n, max_len: 8 }", "/n max_len 8"),
    ] {
        assert_eq!(predicates(when)[0].to_string(), told);
    }
}

#[test]
fn a_condition_is_held_against_the_schema() {
    let schema = r##"{"type":"object","properties":{
        "region":{"type":"string"},"amount":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}},
        "either":{"type":["string","null"]},"odd":{"anyOf":[{"type":"string"}]},"far":{"$ref":"#/$defs/x"},
        "open":{"type":"object","additionalProperties":{"type":"string"}},"free":{}}}"##;
    let doc = Doc::parse(bytes::Bytes::from_static(schema.as_bytes()), &LIMITS).unwrap();
    let wrong = |wanted, found: &str| Some(Misfit::Type { wanted, found: found.to_owned() });
    for (when, expected) in [
        ("{ arg: /region, eq: x }", None),
        ("{ arg: /region, max_len: 5 }", None),
        ("{ arg: /regoin, eq: x }", Some(Misfit::Missing)),
        ("{ arg: /region, eq: 1 }", wrong("number", "string")),
        ("{ arg: /region, in: [1, x] }", None),
        ("{ arg: /region, range: [1, 2] }", wrong("number", "string")),
        ("{ arg: /amount, range: [1, 2] }", None),
        ("{ arg: /amount, prefix: \"1\" }", wrong("string", "integer")),
        ("{ arg: /tags/0, prefix: x }", None),
        ("{ arg: /tags/0, eq: 1 }", wrong("number", "string")),
        ("{ arg: /tags/x, eq: 1 }", Some(Misfit::Missing)),
        ("{ arg: /either, eq: null }", None),
        ("{ arg: /either, eq: 5 }", wrong("number", "string or null")),
        ("{ arg: /odd, eq: 5 }", None),
        ("{ arg: /far/deep, eq: 5 }", None),
        ("{ arg: /open/x, eq: 5 }", None),
        ("{ arg: /free, eq: 5 }", None),
    ] {
        assert_eq!(check(&predicates(when)[0], doc.root()), expected, "{when}");
    }
}

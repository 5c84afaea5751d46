//! What a strict reading of YAML means, case by case.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::fault::{Fault, FaultCode, Faults, Source};

fn source(text: &str) -> Arc<Source> {
    Arc::new(Source { name: "t.yaml".into(), text: text.into() })
}

fn node(text: &str) -> Node {
    parse(&source(text)).expect("YAML").remove(0)
}

/// `code line:column message` of each fault.
fn told(faults: Faults) -> Vec<String> {
    let line = |f: &Fault| format!("{} {}:{} {}", f.code, f.at.line, f.at.column, f.message);
    faults.into_sorted().iter().map(line).collect()
}

/// Reads one value and tells what was wrong.
fn read<T: FromNode>(text: &str) -> (Option<T>, Vec<String>) {
    let mut faults = Faults::new();
    let Value::Seq(items) = node(&format!("[ {text} ]")).value else { panic!("{text}") };
    let value = T::from_node(&items[0], &mut faults);
    (value, told(faults))
}

#[test]
fn keys_and_values_know_their_places() {
    let tree = node("a: 1\nb:\n  - x\n  - {c: \"d e\"}\n");
    let Value::Map(entries) = &tree.value else { panic!("{tree:?}") };
    assert_eq!((entries[1].key_at.line, entries[1].key_at.column), (2, 1));
    let Value::Seq(items) = &entries[1].value.value else { panic!() };
    assert_eq!((items[0].at.line, items[0].at.column, items[0].at.length), (3, 5, 1));
    let Value::Map(inner) = &items[1].value else { panic!() };
    assert_eq!((inner[0].value.at.column, inner[0].value.at.length), (9, 5));
    assert_eq!(inner[0].value.raw, "\"d e\"");
}

#[test]
fn documents_are_read_one_by_one() {
    assert_eq!(parse(&source("a: 1\n---\nb: 2\n")).unwrap().len(), 2);
    assert_eq!(parse(&source("# nothing\n")).unwrap().len(), 0);
}

#[test]
fn only_true_and_false_are_booleans() {
    assert_eq!(node("true").value, Value::Bool(true));
    for word in ["yes", "on", "no", "off", "y"] {
        assert_eq!(node(word).value, Value::Text(word.into()));
    }
}

#[test]
fn keys_are_texts_whatever_they_look_like() {
    let Value::Map(entries) = node("1001: a\ntrue: b\n~: c\n\"q\": d\n").value else { panic!() };
    let keys: Vec<_> = entries.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(keys, ["1001", "true", "~", "q"]);
}

#[test]
fn what_is_not_yaml_is_reported_with_its_place() {
    for (text, line, column) in [
        ("a: 1\n b: 2\n", 2, 3),
        ("a: {b: 1\n", 1, 4),
        ("a: [1\nb: 2\n", 2, 2),
        ("<<: {a: 1}\n", 1, 1),
        ("? [1, 2]\n: 3\n", 1, 3),
        ("a: *nowhere\n", 1, 4),
    ] {
        let fault = parse(&source(text)).expect_err(text);
        assert_eq!(fault.code, FaultCode::Syntax, "{text}");
        assert_eq!((fault.at.line, fault.at.column), (line, column), "{text}: {fault:?}");
        assert!(!fault.message.contains(" line "), "{}", fault.message);
    }
}

#[test]
fn aliases_cannot_grow_without_bounds() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..9 {
        let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
        text.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
    }
    assert_eq!(parse(&source(&text)).expect_err("a bomb").code, FaultCode::Syntax);
    let deep = "[".repeat(200) + &"]".repeat(200);
    assert_eq!(parse(&source(&deep)).expect_err("too deep").code, FaultCode::Syntax);
}

#[test]
fn every_fault_of_a_mapping_is_told_at_once() {
    let tree = node("nmae: x\ncount: many\nname: 7\nname: b\nlater: 1\n");
    let mut faults = Faults::new();
    let mut map = tree.map(&mut faults).unwrap();
    assert_eq!(map.optional::<String>("name", &mut faults), None);
    assert_eq!(map.optional::<u64>("count", &mut faults), None);
    assert_eq!(map.required::<String>("size", &mut faults), None);
    map.later(&["later"], &mut faults);
    map.finish(&mut faults);
    let nmae = faults.iter().find(|fault| fault.message.contains("nmae")).unwrap();
    assert_eq!(nmae.suggestion.as_deref(), Some("did you mean `name`?"));
    assert_eq!(
        told(faults),
        [
            "Y004 1:1 unknown key `nmae`",
            "Y005 1:1 `size` is missing",
            "Y006 2:8 expected a number, found a text",
            "Y006 3:7 expected a text, found a number",
            "Y003 4:1 `name` stands here twice",
            "Y008 5:1 `later` is not part of this version",
        ]
    );
}

#[test]
fn scalars_are_what_they_say() {
    assert_eq!(read::<Duration>("15s"), (Some(Duration::from_secs(15)), vec![]));
    assert_eq!(read::<ByteSize>("1MiB"), (Some(ByteSize(1 << 20)), vec![]));
    assert_eq!(read::<ByteSize>("1024"), (Some(ByteSize(1024)), vec![]));
    assert_eq!(read::<u32>("7"), (Some(7), vec![]));
    assert_eq!(read::<Vec<String>>("[a, b]"), (Some(vec!["a".into(), "b".into()]), vec![]));
    for (faults, code) in [
        (read::<Duration>("15").1, "Y006"),
        (read::<Duration>("15x").1, "Y007"),
        (read::<u32>("-1").1, "Y007"),
        (read::<u32>("4294967296").1, "Y007"),
        (read::<u64>("18446744073709551616").1, "Y007"),
        (read::<u64>("1.5").1, "Y007"),
        (read::<u64>("\"7\"").1, "Y006"),
        (read::<bool>("yes").1, "Y006"),
        (read::<String>("~").1, "Y006"),
        (read::<Vec<String>>("a").1, "Y006"),
        (read::<std::net::SocketAddr>(":8080").1, "Y007"),
    ] {
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with(code), "{faults:?}");
    }
}

fn env(name: &str) -> Option<String> {
    match name {
        "SET" => Some("hunter2".into()),
        "PORT" => Some("8080".into()),
        "ON" => Some("true".into()),
        "EMPTY" => Some(String::new()),
        "NASTY" => Some("a: b\n- ${SET}".into()),
        _ => None,
    }
}

fn expanded(text: &str) -> (Node, Vec<String>) {
    let mut tree = node(text);
    let mut faults = Faults::new();
    expand(&mut tree, &env, &mut faults);
    (tree, told(faults))
}

#[test]
fn variables_are_put_into_values_and_nothing_else() {
    for (text, value) in [
        ("x${SET}y", "xhunter2y"),
        ("${SET}${SET}", "hunter2hunter2"),
        ("${UNSET:-d}", "d"),
        ("${UNSET:-}", ""),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("\"${NASTY}\"", "a: b\n- ${SET}"),
        ("$${SET}", "${SET}"),
        ("$ctx.tenant", "$ctx.tenant"),
    ] {
        let (tree, faults) = expanded(text);
        assert_eq!((tree.value, faults), (Value::Text(value.into()), vec![]), "{text}");
    }
    let (tree, _) = expanded("${SET}: ${SET}");
    let Value::Map(entries) = tree.value else { panic!() };
    assert_eq!(entries[0].key, "${SET}");
}

#[test]
fn an_unset_variable_is_an_error() {
    assert_eq!(expanded("a: ${UNSET}").1, ["Y009 1:4 the variable `UNSET` is not set"]);
    for text in ["${UNSET", "${}", "${a b}", "${1A}"] {
        assert_eq!(expanded(text).1.len(), 1, "{text}");
    }
}

#[test]
fn an_expanded_plain_value_may_be_a_number_and_a_quoted_one_is_a_text() {
    let mut faults = Faults::new();
    assert_eq!(u64::from_node(&expanded("${PORT}").0, &mut faults), Some(8080));
    assert_eq!(bool::from_node(&expanded("${ON}").0, &mut faults), Some(true));
    assert_eq!(String::from_node(&expanded("${PORT}").0, &mut faults), Some("8080".into()));
    assert!(faults.is_empty());
    assert_eq!(u64::from_node(&expanded("\"${PORT}\"").0, &mut faults), None);
}

#[test]
fn what_a_variable_holds_is_not_told() {
    let mut faults = Faults::new();
    assert_eq!(Duration::from_node(&expanded("${SET}").0, &mut faults), None);
    let told = told(faults);
    assert!(told[0].starts_with("Y007") && !told[0].contains("hunter2"), "{told:?}");
}

//! Golden vectors: what later versions must go on reading and telling alike.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::{model::trace::to_hex, registry::read_kept};

#[derive(Deserialize)]
struct Digests {
    about: String,
    sha256: String,
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct Changes {
    about: String,
    old: Value,
    new: Value,
    changes: Vec<String>,
}

fn vectors<T: serde::de::DeserializeOwned>(text: &str) -> Vec<T> {
    let all: Vec<T> = serde_json::from_str(text).unwrap();
    assert!(!all.is_empty());
    all
}

/// C73, C74: spelling is none of a digest's business, and everything that somebody acts on is.
#[test]
fn digests_are_those_of_the_vectors() {
    let vectors = vectors::<Digests>(include_str!("../../../tests/fixtures/pins/digests.json"));
    for Digests { about, sha256, texts } in vectors {
        for text in texts {
            let read = read_kept(Bytes::from(text.clone())).unwrap();
            assert_eq!(to_hex(read.digest.as_slice()), sha256, "{about}: {text}");
        }
    }
}

/// C74, C75 among them.
#[test]
fn changes_are_classed_as_in_the_vectors() {
    let vectors = vectors::<Changes>(include_str!("../../../tests/fixtures/pins/changes.json"));
    let mut seen = ChangeClasses::NONE;
    for Changes { about, old, new, changes } in vectors {
        let (old, new) = (old.to_string(), new.to_string());
        let found = differences(old.as_bytes(), new.as_bytes());
        let told: Vec<_> =
            found.iter().map(|it| format!("{} {}", it.class.as_str(), it.pointer)).collect();
        assert_eq!(told, changes, "{about}");
        seen = found.iter().fold(seen, |seen, it| seen.with(it.class));
        // Whatever differs is told to differ, in both directions.
        let back = differences(new.as_bytes(), old.as_bytes());
        assert_eq!(back.is_empty(), changes.is_empty(), "{about}");
        let digest = |text: &str| read_kept(Bytes::from(text.to_owned())).map(|it| it.digest);
        if let (Some(old), Some(new)) = (digest(&old), digest(&new)) {
            assert_eq!(old == new, changes.is_empty(), "{about}");
        }
    }
    assert_eq!(seen.iter().count(), ChangeClass::ALL.len(), "{seen}");
}

#[test]
fn what_is_told_of_a_difference_is_what_was_there() {
    let found = differences(
        br#"{"name":"t","inputSchema":{"properties":{"a":{"maximum":100}}}}"#,
        br#"{"name":"t","inputSchema":{"properties":{"a":{"maximum":12345678901234567890}}}}"#,
    );
    let [change] = &*found else { panic!("{found:?}") };
    let text = |value: &Option<Value>| value.as_ref().unwrap().to_string();
    assert_eq!((&*text(&change.old), &*text(&change.new)), ("100", "12345678901234567890"));
}

#[test]
fn what_cannot_be_read_is_the_worst() {
    let found = differences(b"{\"name\":\"t\"}", b"[]");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].class, ChangeClass::SchemaChanged);
}

#[test]
fn what_a_hundred_thousand_words_became_is_found_word_by_word() {
    const MANY: usize = 60_000;
    let names = |from: usize| (from..from + MANY).map(|n| format!("w{n}")).collect::<Vec<_>>();
    let tool = |from: usize| {
        let words: Vec<Value> = names(from).into_iter().map(Value::from).collect();
        let properties: serde_json::Map<_, _> =
            names(from).into_iter().map(|name| (name, Value::Bool(true))).collect();
        serde_json::json!({ "name": "t", "inputSchema": {
            "enum": words, "required": words, "properties": properties } })
        .to_string()
    };
    let found = differences(tool(0).as_bytes(), tool(1).as_bytes());
    let mut classes: Vec<&str> = found.iter().map(|it| it.class.as_str()).collect();
    classes.sort_unstable();
    let expected =
        ["enum_narrowed", "enum_widened", "parameter_added_required", "parameter_removed"];
    assert_eq!(classes, expected);
}

#[test]
fn numbers_that_are_spelled_otherwise_are_the_same_however_deep() {
    let tool = |number: &str| {
        let (open, close) = (r#"{"items":"#.repeat(60), "}".repeat(60));
        format!(r#"{{"name":"t","inputSchema":{open}{{"maximum":{number}}}{close}}}"#)
    };
    assert!(differences(tool("10").as_bytes(), tool("1e1").as_bytes()).is_empty());
    assert_eq!(differences(tool("10").as_bytes(), tool("11").as_bytes()).len(), 1);
}

#[test]
fn of_very_many_differences_the_first_are_told_and_no_kind_is_lost() {
    let tool = |kind: &str, last: &str| {
        let property = |n: usize| (format!("p{n}"), serde_json::json!({ "type": kind }));
        let mut all: serde_json::Map<_, _> = (0..5_000).map(property).collect();
        all.insert("z".to_owned(), serde_json::json!({ "enum": [last, "b"] }));
        serde_json::json!({ "name": "t", "inputSchema": { "properties": all } }).to_string()
    };
    let found = differences(tool("string", "a").as_bytes(), tool("number", "b").as_bytes());
    let has = |class| found.iter().any(|it| it.class == class);
    assert!(has(ChangeClass::TypeChanged) && has(ChangeClass::EnumNarrowed), "{}", found.len());
    assert!(found.len() <= MAX_TOLD + 1, "{}", found.len());
}

//! Schemas that are made to take as long, or to become as large, as can be.

use serde_json::{Map, Value, json};

use super::schemas::{RUNTIMES, declared};

#[test]
fn a_top_that_unfolds_without_end_is_told_as_far_as_can_be() {
    let many = |part: Value| json!(vec![part; 200]);
    let next = |n: usize| json!({ "$ref": format!("#/$defs/d{n}") });
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let mut defs = Map::new();
        for n in 0..6 {
            defs.insert(format!("d{n}"), json!({ keyword: many(next(n + 1)) }));
        }
        let last = json!({ "properties": { "a": { "type": "string" } }, "required": ["a"] });
        defs.insert("d6".to_owned(), last);
        let schema = json!({ "type": "object", keyword: many(next(0)), "$defs": defs });
        for format in RUNTIMES {
            let (_, notes) = declared(format, &schema);
            let is_told = notes.iter().any(|note| note.contains("too large"));
            assert!(is_told, "{} {keyword}: {notes:?}", format.as_str());
            assert!(notes.len() < 100, "{notes:?}");
        }
    }
}

#[test]
fn what_is_written_out_for_each_reference_stays_small() {
    let words: Vec<String> = (0..5_000).map(|n| format!("a word of the list {n}")).collect();
    let all: Map<String, Value> =
        (0..2_000).map(|n| (format!("p{n}"), json!({ "$ref": "#/$defs/words" }))).collect();
    let schema = json!({ "type": "object", "properties": all,
        "$defs": { "words": { "type": "string", "enum": words } } });
    for format in RUNTIMES {
        let (told, notes) = declared(format, &schema);
        let size = told.unwrap().to_string().len();
        assert!(size < 4 << 20 && notes.len() <= 101, "{} {size}", format.as_str());
    }
    // Each with a long place.
    let odd: Map<String, Value> = (0..5_000).map(|n| (format!("x-{n}"), json!(1))).collect();
    let schema = json!({ "properties": { "x".repeat(50): odd } });
    for format in RUNTIMES {
        let notes = declared(format, &schema).1;
        assert!((100..=102).contains(&notes.len()), "{} {}", format.as_str(), notes.len());
    }
}

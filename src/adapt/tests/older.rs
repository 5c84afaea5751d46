//! Schemas of older drafts: what such a draft does not know, or does not count, is not told. Both
//! were found by the property of `schemas.rs`.

use serde_json::json;

use super::{
    super::Format,
    schemas::{declared, is_valid, standard},
};

/// In draft-07 what stands beside a reference says nothing.
#[test]
fn a_lone_reference_to_itself_allows_anything() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": { "a": { "type": "string", "$ref": "#/properties/a" } },
    });
    let (told, _) = declared(Format::Gemini, &schema);
    assert!(is_valid(&standard(&told.unwrap()), &json!({ "a": {} })));
}

/// A word that came later says nothing in draft-07.
#[test]
fn what_came_later_is_left_out_of_an_older_schema() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": { "a": { "prefixItems": [{ "type": "string" }] } },
    });
    for format in [Format::OpenAi, Format::Anthropic] {
        let (told, notes) = declared(format, &schema);
        assert!(is_valid(&told.unwrap(), &json!({ "a": [null] })));
        assert_eq!(notes, ["/properties/a/prefixItems: `prefixItems` is left out"]);
    }
}

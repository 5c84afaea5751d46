//! Schemas: what becomes of which keyword, and that a rewritten schema never allows less.

use proptest::{prelude::*, test_runner::TestRunner};
use serde_json::{Map, Value, json};

use super::super::{Format, anthropic};

pub(super) const RUNTIMES: [Format; 3] = [Format::OpenAi, Format::Anthropic, Format::Gemini];

/// Every keyword that a schema can have that is rewritten for OpenAI or Anthropic.
const PLAIN: [&str; 30] = [
    "type",
    "title",
    "description",
    "default",
    "examples",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
];

/// And for Gemini: the fields of its `Schema`.
const OPENAPI: [&str; 19] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "pattern",
    "anyOf",
];

pub(super) fn declared(format: Format, schema: &Value) -> (Option<Value>, Vec<String>) {
    let tool = json!({ "name": "t", "description": "d", "inputSchema": schema });
    let declaration = format.declare(&tool, "t").unwrap();
    let json = declaration.json;
    let schema = match format {
        Format::OpenAi => json["function"].get("parameters"),
        Format::Anthropic => json.get("input_schema"),
        _ => json.get("parameters"),
    };
    let notes = declaration.notes.iter().map(|note| format!("{}: {}", note.pointer, note.text));
    (schema.cloned(), notes.collect())
}

#[test]
fn an_ordinary_schema_stays_as_it_is() {
    let schema = json!({
        "type": "object",
        "properties": {
            "id": { "type": "string", "minLength": 1, "description": "Which." },
            "tags": { "type": "array", "items": { "type": "string" } },
        },
        "required": ["id"],
    });
    for format in RUNTIMES {
        assert_eq!(declared(format, &schema), (Some(schema.clone()), vec![]), "{format:?}");
    }
}

#[test]
fn a_tool_without_arguments_is_told_as_each_runtime_wants_it() {
    for schema in [json!({ "type": "object" }), json!({}), Value::Null] {
        for format in [Format::OpenAi, Format::Anthropic] {
            let told = declared(format, &schema).0.unwrap();
            assert_eq!(told, json!({ "type": "object", "properties": {} }));
        }
        assert_eq!(declared(Format::Gemini, &schema).0, None);
    }
}

/// What becomes of one argument.
fn argument(format: Format, schema: &Value) -> (Value, Vec<String>) {
    let whole = json!({ "type": "object", "properties": { "a": schema } });
    let (told, notes) = declared(format, &whole);
    (told.unwrap()["properties"]["a"].clone(), notes)
}

#[test]
fn what_gemini_lacks_is_rewritten() {
    let any = json!({ "anyOf": [
        { "type": "string", "nullable": true }, { "type": "number" }, { "type": "boolean" },
        { "type": "object" },
        { "type": "array", "items": { "type": "string" } },
    ] });
    for (schema, expected) in [
        (json!({ "type": ["string", "null"] }), json!({ "type": "string", "nullable": true })),
        (json!({ "const": "x" }), json!({ "type": "string", "enum": ["x"] })),
        (
            json!({ "oneOf": [{ "const": "x" }, { "const": "y" }], "description": "Which." }),
            json!({ "anyOf": [
                { "type": "string", "enum": ["x"], "description": "Which." },
                { "type": "string", "enum": ["y"], "description": "Which." },
            ] }),
        ),
        (
            json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }),
            json!({ "type": "integer", "nullable": true }),
        ),
        (
            json!({ "type": ["string", "integer"], "minLength": 2, "minimum": 3 }),
            json!({ "anyOf": [
                { "type": "string", "minLength": 2 }, { "type": "integer", "minimum": 3 },
            ] }),
        ),
        (
            json!({ "enum": [1, 2], "description": "How many." }),
            json!({ "type": "integer", "description": "How many. One of: 1, 2." }),
        ),
        (
            json!({ "enum": ["", "x"] }),
            json!({ "type": "string", "description": "One of: \"\", \"x\"." }),
        ),
        (
            json!({ "type": "number", "exclusiveMinimum": 0, "multipleOf": 2 }),
            json!({ "type": "number", "minimum": 0 }),
        ),
        (
            json!({ "allOf": [{ "type": "string" }, { "maxLength": 3 }] }),
            json!({ "type": "string", "maxLength": 3 }),
        ),
        (
            json!({ "type": "string", "format": "uuid", "pattern": "^(?=a)" }),
            json!({ "type": "string" }),
        ),
        (
            json!({ "type": "string", "format": "date-time" }),
            json!({ "type": "string", "format": "date-time" }),
        ),
        (
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            json!({ "type": "object" }),
        ),
        (json!({ "type": "null" }), json!({ "type": "string", "nullable": true })),
    ] {
        assert_eq!(argument(Format::Gemini, &schema).0, expected, "{schema}");
    }
    let (told, _) = argument(Format::Gemini, &json!({}));
    assert_eq!(told["anyOf"].as_array().unwrap().len(), any["anyOf"].as_array().unwrap().len());
}

#[test]
fn references_are_written_out_or_shared() {
    let schema = json!({
        "type": "object",
        "properties": {
            "one": { "$ref": "#/$defs/node" },
            "two": { "$ref": "#/properties/one" },
            "far": { "$ref": "https://example.com/other.json" },
        },
        "$defs": { "node": {
            "type": "object",
            "properties": { "name": { "type": "string" }, "next": { "$ref": "#/$defs/node" } },
        } },
    });
    let (gemini, notes) = declared(Format::Gemini, &schema);
    let node = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "next": { "type": "object" } },
    });
    let gemini = gemini.unwrap();
    assert_eq!(gemini["properties"]["one"], node);
    assert_eq!(gemini["properties"]["two"], node);
    assert!(notes.iter().any(|note| note.contains("holds itself")), "{notes:?}");
    assert!(notes.iter().any(|note| note.starts_with("/properties/far: what `$ref`")), "{notes:?}");
    let (openai, notes) = declared(Format::OpenAi, &schema);
    let openai = openai.unwrap();
    assert_eq!(openai["properties"]["one"], json!({ "$ref": "#/$defs/node" }));
    assert_eq!(openai["properties"]["two"], json!({ "$ref": "#/$defs/one" }));
    assert_eq!(openai["$defs"]["one"], json!({ "$ref": "#/$defs/node" }));
    assert_eq!(openai["$defs"]["node"], schema["$defs"]["node"]);
    assert_eq!(
        notes,
        ["/properties/far/$ref: what `$ref` points to is not in the schema: it is not told"]
    );
}

#[test]
fn the_top_is_one_object() {
    let schema = json!({
        "type": "object",
        "properties": { "base": { "type": "string" } },
        "required": ["base"],
        "oneOf": [
            { "properties": { "id": { "type": "string" }, "x": { "type": "integer" } },
              "required": ["id"], "additionalProperties": false },
            { "properties": { "id": { "type": "string" }, "name": { "type": "string", "description": "N." } },
              "required": ["id", "name"] },
        ],
    });
    for format in RUNTIMES {
        let (told, notes) = declared(format, &schema);
        let told = told.unwrap();
        assert_eq!(told["required"], json!(["base", "id"]), "{format:?}");
        assert_eq!(told["properties"]["id"], json!({ "type": "string" }));
        // The second choice says nothing of `x`, so it may be anything.
        assert_ne!(told["properties"]["x"], json!({ "type": "integer" }));
        // The first one forbids `name`, so what the second says is all there is to it.
        assert_eq!(told["properties"]["name"]["type"], "string", "{told}");
        assert!(told.get("oneOf").is_none() && told.get("anyOf").is_none());
        assert!(notes.iter().any(|note| note.starts_with("/oneOf: ")), "{notes:?}");
    }
}

#[test]
fn an_argument_that_anthropic_takes_no_name_for_is_left_out() {
    let schema = json!({
        "type": "object",
        "properties": { "ok": { "type": "string" }, "no good": { "type": "string" } },
        "required": ["ok", "no good"],
        "additionalProperties": false,
    });
    let (told, notes) = declared(Format::Anthropic, &schema);
    let expected = json!({
        "type": "object", "properties": { "ok": { "type": "string" } }, "required": ["ok"],
    });
    assert_eq!(told.unwrap(), expected);
    assert_eq!(notes.len(), 2, "{notes:?}");
}

#[test]
fn a_schema_that_would_grow_without_end_is_cut() {
    // Each one holds the next twice: written out, that is 2^40 parts.
    let mut defs = Map::new();
    for n in 0..40 {
        let next = json!({ "$ref": format!("#/$defs/d{}", n + 1) });
        let both = json!({ "type": "object", "properties": { "l": next, "r": next } });
        defs.insert(format!("d{n}"), both);
    }
    defs.insert("d40".to_owned(), json!({ "type": "string" }));
    let schema = json!({
        "type": "object", "properties": { "a": { "$ref": "#/$defs/d0" } }, "$defs": defs,
    });
    for format in RUNTIMES {
        let (told, _) = declared(format, &schema);
        let length = told.unwrap().to_string().len();
        assert!(length < 2_000_000, "{format:?}: {length}");
    }
}

#[test]
fn a_long_description_is_cut_where_the_runtime_wants_it() {
    let tool = json!({ "name": "t", "description": "ü".repeat(2_000) });
    let told = Format::OpenAi.declare(&tool, "t").unwrap();
    assert_eq!(told.json["function"]["description"].as_str().unwrap().chars().count(), 1_024);
    assert_eq!(told.notes.len(), 1);
    let told = Format::Anthropic.declare(&tool, "t").unwrap();
    assert_eq!(told.json["description"].as_str().unwrap().chars().count(), 2_000);
}

/// Calls `f` with each schema in a schema.
fn each(schema: &Value, f: &mut impl FnMut(&Map<String, Value>)) {
    let Some(own) = schema.as_object() else { return };
    f(own);
    for name in ["properties", "$defs"] {
        own.get(name)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .for_each(|(_, s)| each(s, f));
    }
    for name in ["items", "additionalProperties"] {
        own.get(name).into_iter().for_each(|s| each(s, f));
    }
    for name in ["anyOf", "allOf", "prefixItems"] {
        own.get(name).and_then(Value::as_array).into_iter().flatten().for_each(|s| each(s, f));
    }
}

/// Gemini's schema as JSON Schema says the same.
pub(super) fn standard(schema: &Value) -> Value {
    let Some(own) = schema.as_object() else { return schema.clone() };
    let mut out = Map::new();
    for (name, value) in own.iter().filter(|(name, _)| *name != "nullable") {
        let value = match (name.as_str(), value) {
            ("properties", Value::Object(all)) => {
                all.iter().map(|(name, schema)| (name.clone(), standard(schema))).collect()
            }
            ("items", schema) => standard(schema),
            ("anyOf", Value::Array(all)) => all.iter().map(standard).collect(),
            _ => value.clone(),
        };
        out.insert(name.clone(), value);
    }
    match own.get("nullable") {
        Some(_) => json!({ "anyOf": [out, { "type": "null" }] }),
        None => Value::Object(out),
    }
}

pub(super) fn is_valid(schema: &Value, instance: &Value) -> bool {
    jsonschema::validator_for(schema).unwrap_or_else(|e| panic!("{schema}: {e}")).is_valid(instance)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[abc]", Just("no good".to_owned())]
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..4i64).prop_map(Value::from),
        Just(json!(1.5)),
        "[xy]{0,2}".prop_map(Value::from),
    ]
}

fn object_of(inner: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::btree_map(name(), inner, 0..3)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

fn instance() -> impl Strategy<Value = Value> {
    let value = scalar().prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            object_of(inner.clone()),
            prop::collection::vec(scalar(), 0..3).prop_map(Value::from),
        ]
    });
    object_of(value)
}

fn keyword(
    inner: impl Strategy<Value = Value> + Clone + 'static,
) -> BoxedStrategy<(&'static str, Value)> {
    let some = prop::collection::vec(inner.clone(), 1..3).prop_map(Value::from);
    let kind = prop::sample::select(
        &["string", "integer", "number", "boolean", "object", "array", "null"][..],
    );
    let number = (-2..3i64).prop_map(Value::from);
    let size = (0..3u64).prop_map(Value::from);
    let reference = prop::sample::select(&["#/$defs/p", "#/$defs/q", "#", "#/properties/a"][..]);
    let names = prop::collection::btree_set(name(), 0..2).prop_map(|names| json!(names));
    prop_oneof![
        8 => kind.clone().prop_map(|kind| ("type", kind.into())),
        2 => prop::collection::btree_set(kind, 1..3).prop_map(|kinds| ("type", json!(kinds))),
        4 => object_of(inner.clone()).prop_map(|all| ("properties", all)),
        2 => names.prop_map(|names| ("required", names)),
        2 => inner.clone().prop_map(|schema| ("additionalProperties", schema)),
        2 => Just(("additionalProperties", Value::Bool(false))),
        1 => object_of(inner.clone()).prop_map(|all| ("patternProperties", all)),
        2 => inner.clone().prop_map(|schema| ("items", schema)),
        1 => some.clone().prop_map(|all| ("prefixItems", all)),
        2 => some.clone().prop_map(|all| ("anyOf", all)),
        2 => some.clone().prop_map(|all| ("oneOf", all)),
        2 => some.prop_map(|all| ("allOf", all)),
        1 => inner.clone().prop_map(|schema| ("not", schema)),
        1 => inner.clone().prop_map(|schema| ("if", schema)),
        1 => inner.clone().prop_map(|schema| ("then", schema)),
        1 => inner.clone().prop_map(|schema| ("contains", schema)),
        1 => inner.clone().prop_map(|schema| ("propertyNames", schema)),
        1 => inner.prop_map(|schema| ("unevaluatedProperties", schema)),
        2 => prop::collection::btree_set("[xy]{0,2}", 1..3).prop_map(|texts| ("enum", json!(texts))),
        1 => prop::collection::vec(scalar(), 1..3).prop_map(|all| ("enum", all.into())),
        1 => scalar().prop_map(|value| ("const", value)),
        1 => number.clone().prop_map(|n| ("minimum", n)),
        1 => number.prop_map(|n| ("exclusiveMaximum", n)),
        1 => size.clone().prop_map(|n| ("minLength", n)),
        1 => size.clone().prop_map(|n| ("maxItems", n)),
        1 => size.prop_map(|n| ("maxProperties", n)),
        1 => Just(("pattern", json!("^x"))),
        1 => Just(("format", json!("date-time"))),
        1 => Just(("x-own", json!(true))),
        2 => reference.prop_map(|to| ("$ref", to.into())),
    ]
    .boxed()
}

fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => Just(json!({ "type": "string" })),
        1 => Just(json!({})),
        1 => Just(Value::Bool(true)),
        1 => Just(Value::Bool(false)),
        1 => Just(json!({ "$id": "https://example.com/x", "$ref": "#/$defs/p" })),
    ];
    let part = leaf.prop_recursive(3, 24, 3, |inner| {
        prop::collection::vec(keyword(inner), 0..4)
            .prop_map(|all| all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    });
    let top = prop::collection::vec(keyword(part.clone().boxed()), 0..5);
    (top, part.clone(), part, any::<bool>()).prop_map(|(top, p, q, old)| {
        let mut own: Map<String, Value> =
            top.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        own.entry("properties").or_insert_with(|| json!({ "a": { "type": "string" } }));
        own.insert("type".to_owned(), "object".into());
        own.insert("$defs".to_owned(), json!({ "p": p, "q": q }));
        if old {
            own.insert("$schema".to_owned(), "http://json-schema.org/draft-07/schema#".into());
        }
        Value::Object(own)
    })
}

#[test]
fn what_is_good_stays_good_and_only_known_words_are_used() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 1_000, ..ProptestConfig::default() });
    let asked = std::cell::Cell::new(0);
    let cases = (schema(), prop::collection::vec(instance(), 1..8));
    let outcome = runner.run(&cases, |(schema, instances)| {
        // What does not compile is in no catalog.
        let Ok(original) = jsonschema::validator_for(&schema) else { return Ok(()) };
        for format in RUNTIMES {
            let (Some(told), _) = declared(format, &schema) else { continue };
            let known: &[&str] = match format {
                Format::Gemini => &OPENAPI,
                _ => &PLAIN,
            };
            let mut unknown = None;
            each(&told, &mut |own| {
                let stranger = own.keys().find(|name| !known.contains(&name.as_str()));
                if let Some(stranger) = stranger {
                    unknown = Some(stranger.clone());
                }
                if format == Format::Gemini && own.contains_key("anyOf") && own.len() > 1 {
                    unknown = Some("something beside anyOf".to_owned());
                }
                if format == Format::Anthropic
                    && let Some(Value::Object(all)) = own.get("properties")
                    && let Some(name) = all.keys().find(|name| !anthropic::is_argument(name))
                {
                    unknown = Some(name.clone());
                }
            });
            prop_assert_eq!(unknown, None, "{:?}: {}", format, told);
            for no in ["anyOf", "oneOf", "allOf", "$ref", "not", "enum"] {
                prop_assert!(told.get(no).is_none(), "{:?}: {}", format, told);
            }
            prop_assert_eq!(&told["type"], "object");
            let rewritten = match format {
                Format::Gemini => standard(&told),
                _ => told.clone(),
            };
            for instance in instances.iter().filter(|instance| original.is_valid(instance)) {
                asked.set(asked.get() + 1);
                prop_assert!(
                    is_valid(&rewritten, instance),
                    "{:?}: {} refuses {}",
                    format,
                    told,
                    instance
                );
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
    assert!(asked.get() > 1_000, "{} instances were good to begin with", asked.get());
}

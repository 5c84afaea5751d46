//! Names, calls and results.

mod bounds;
mod older;
mod schemas;

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::json::{Doc, Duplicates, Limits};

// === Names ===

#[test]
fn names_stay_where_every_runtime_takes_them() {
    for (alias, expected) in [
        ("platform__list_test_tasks", "platform__list_test_tasks"),
        ("a-b_c", "a-b_c"),
        ("crm__contacts.purge", "crm__contacts_purge_ec3b9db63b4a"),
        ("9lives", "_9lives_bc867356de02"),
        ("x_0123456789ab", "x_0123456789ab_fd06c865a82a"),
    ] {
        let name = runtime_name(alias);
        assert!(names::is_legal(&name), "{name}");
        assert_eq!(name, expected);
        assert_eq!(is_rewritten(&name), alias != expected);
    }
}

proptest! {
    #[test]
    fn names_are_legal_and_nobody_elses(aliases in prop::collection::hash_set("[A-Za-z0-9_.-]{1,64}", 1..40)) {
        let mut all: HashSet<String> = aliases;
        // What is a rewritten name already may be another tool's own.
        let rewritten: Vec<String> = all.iter().map(|alias| runtime_name(alias).into_owned()).collect();
        all.extend(rewritten);
        let names: HashSet<String> = all.iter().map(|alias| runtime_name(alias).into_owned()).collect();
        prop_assert_eq!(names.len(), all.len());
        prop_assert!(names.iter().all(|name| names::is_legal(name)));
    }
}

// === Calls and results ===

fn read(format: Format, call: &str) -> Result<RuntimeCall, (&'static str, String)> {
    let limits = Limits { depth: 128, duplicates: Duplicates::Refuse, outline: 1 };
    let doc = Doc::parse(Bytes::copy_from_slice(call.as_bytes()), &limits).unwrap();
    format.read_call(doc.root()).map_err(|fault| (fault.pointer, fault.message.into_owned()))
}

#[test]
fn a_call_is_read_in_each_runtimes_form_and_its_arguments_stay_as_they_are() {
    const ARGUMENTS: &str = r#"{"n": 1.0, "big":123456789012345678901}"#;
    let text = serde_json::to_string(ARGUMENTS).unwrap();
    for (format, call) in [
        (
            Format::OpenAi,
            format!(
                r#"{{"id":"c1","type":"function","index":0,"function":{{"name":"t","arguments":{text}}}}}"#
            ),
        ),
        (
            Format::OpenAi,
            format!(
                r#"{{"type":"function_call","id":"fc_1","call_id":"c1","name":"t","arguments":{text}}}"#
            ),
        ),
        (
            Format::Anthropic,
            format!(r#"{{"type":"tool_use","id":"c1","name":"t","input":{ARGUMENTS}}}"#),
        ),
        (
            Format::Gemini,
            format!(
                r#"{{"functionCall":{{"id":"c1","name":"t","args":{ARGUMENTS}}},"thoughtSignature":"x"}}"#
            ),
        ),
    ] {
        let call = read(format, &call).unwrap();
        assert_eq!((&*call.name, call.id.as_deref()), ("t", Some("c1")), "{format:?}");
        assert_eq!(call.arguments.as_deref(), Some(ARGUMENTS.as_bytes()), "{format:?}");
    }
    for (format, call) in [
        (Format::OpenAi, r#"{"function":{"name":"t","arguments":""}}"#),
        (Format::Anthropic, r#"{"name":"t"}"#),
        (Format::Gemini, r#"{"functionCall":{"name":"t"}}"#),
    ] {
        let call = read(format, call).unwrap();
        assert_eq!((call.arguments, call.id), (None, None), "{format:?}");
    }
}

#[test]
fn what_is_no_call_says_where_it_is_wrong() {
    for (format, call, pointer) in [
        (Format::OpenAi, "{}", "/function"),
        (Format::OpenAi, r#"{"function":{"arguments":"{}"}}"#, "/function/name"),
        (Format::OpenAi, r#"{"function":{"name":"t","arguments":{}}}"#, "/function/arguments"),
        (Format::OpenAi, r#"{"function":{"name":"t","arguments":"{"}}"#, "/function/arguments"),
        (Format::OpenAi, r#"{"function":{"name":"t","arguments":"[]"}}"#, "/function/arguments"),
        (
            Format::OpenAi,
            r#"{"function":{"name":"t","arguments":"{\"a\":1,\"a\":2}"}}"#,
            "/function/arguments",
        ),
        (Format::OpenAi, r#"{"id":1,"function":{"name":"t"}}"#, "/id"),
        (Format::Anthropic, r#"{"type":"text","name":"t"}"#, "/type"),
        (Format::Anthropic, r#"{"type":"tool_use","name":""}"#, "/name"),
        (Format::Anthropic, r#"{"type":"tool_use","name":"t","input":"{}"}"#, "/input"),
        (Format::Gemini, r#"{"name":"t"}"#, "/functionCall"),
        (Format::Gemini, r#"{"functionCall":{"name":"t","args":[]}}"#, "/functionCall/args"),
        (Format::Mcp, "{}", ""),
    ] {
        let (found, message) = read(format, call).unwrap_err();
        assert_eq!(found, pointer, "{call}: {message}");
    }
}

#[test]
fn a_result_is_told_in_each_runtimes_form() {
    let good = br#"{"content":[{"type":"text","text":"two"},{"type":"image","mimeType":"image/png","data":"AAAA"}],"structuredContent":{"n":1.0},"isError":false}"#;
    let bare = br#"{"content":[],"structuredContent":{"n": 1.0}}"#;
    let bad = br#"{"content":[{"type":"text","text":"no"}],"isError":true}"#;
    let call = |format, text| read(format, text).unwrap();
    let openai = call(Format::OpenAi, r#"{"id":"c","type":"function","function":{"name":"t"}}"#);
    let item = call(Format::OpenAi, r#"{"type":"function_call","call_id":"c","name":"t"}"#);
    let anthropic = call(Format::Anthropic, r#"{"type":"tool_use","id":"c","name":"t"}"#);
    let gemini = call(Format::Gemini, r#"{"functionCall":{"name":"t"}}"#);
    let image = "two\n[image, image/png: this form of results has no place for it]";
    for (format, call, told, expected) in [
        (
            Format::OpenAi,
            &openai,
            Told::Result(good),
            json!({ "role": "tool", "content": image, "tool_call_id": "c" }),
        ),
        (
            Format::OpenAi,
            &openai,
            Told::Result(bare),
            json!({ "role": "tool", "content": "{\"n\": 1.0}", "tool_call_id": "c" }),
        ),
        (
            Format::OpenAi,
            &openai,
            Told::Result(bad),
            json!({ "role": "tool", "content": "Error: no", "tool_call_id": "c" }),
        ),
        (
            Format::OpenAi,
            &item,
            Told::Refused("no"),
            json!({ "type": "function_call_output", "output": "Error: no", "call_id": "c" }),
        ),
        (
            Format::Anthropic,
            &anthropic,
            Told::Result(good),
            json!({ "type": "tool_result", "tool_use_id": "c", "is_error": false, "content": [
            { "type": "text", "text": "two" },
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } },
        ] }),
        ),
        (
            Format::Anthropic,
            &anthropic,
            Told::Refused("no"),
            json!({ "type": "tool_result", "tool_use_id": "c", "is_error": true, "content": [{ "type": "text", "text": "no" }] }),
        ),
        (
            Format::Gemini,
            &gemini,
            Told::Result(good),
            serde_json::from_str(
                r#"{"functionResponse":{"name":"t","response":{"output":{"n":1.0}}}}"#,
            )
            .unwrap(),
        ),
        (
            Format::Gemini,
            &gemini,
            Told::Result(bad),
            json!({ "functionResponse": { "name": "t", "response": { "error": "no" } } }),
        ),
    ] {
        assert_eq!(format.result(call, told), expected, "{format:?}");
    }
}

#[test]
fn a_runtime_gets_its_tools_as_its_request_takes_them() {
    let one = vec![json!({ "name": "t" })];
    assert_eq!(Format::Anthropic.tools(one.clone()), json!([{ "name": "t" }]));
    assert_eq!(Format::Gemini.tools(one), json!([{ "functionDeclarations": [{ "name": "t" }] }]));
    assert_eq!(Format::Gemini.tools(Vec::new()), json!([]));
}

//! Each revision gets what it knows, and the rest byte for byte.

use super::*;

const MODERN: NorthDialect = NorthDialect::Modern;
const V11: NorthDialect = NorthDialect::Legacy(Version::V2025_11_25);
const V06: NorthDialect = NorthDialect::Legacy(Version::V2025_06_18);
const V03: NorthDialect = NorthDialect::Legacy(Version::V2025_03_26);

fn shown(family: Family, raw: &str, dialect: NorthDialect) -> String {
    let raw = Bytes::copy_from_slice(raw.as_bytes());
    String::from_utf8(definition(family, &raw, dialect).to_vec()).unwrap()
}

#[test]
fn definitions_lose_what_a_revision_has_no_member_for() {
    let full = r#"{"name":"t","title":"T","description":"d","icons":[],"inputSchema":{"type":"object","title":"S"},"outputSchema":{"type":"object"},"annotations":{"title":"A"},"execution":{"taskSupport":"optional"},"_meta":{"k":1.0},"later":{"a":null}}"#;
    for (dialect, expected) in [
        (NorthDialect::McpLite, full.to_owned()),
        (MODERN, full.replace(r#""execution":{"taskSupport":"optional"},"#, "")),
        (V11, full.to_owned()),
        (V06, full.replace(r#""execution":{"taskSupport":"optional"},"#, "")),
        (
            V03,
            r#"{"name":"t","description":"d","inputSchema":{"type":"object","title":"S"},"annotations":{"title":"A"},"later":{"a":null}}"#.to_owned(),
        ),
    ] {
        assert_eq!(shown(Family::Tools, full, dialect), expected, "{dialect:?}");
    }
    for schema in [
        r#"{"type":"array"}"#,
        r#"{"type":["object","null"]}"#,
        "true",
        r##"{"$ref":"#/$defs/a"}"##,
    ] {
        let tool = format!(r#"{{"outputSchema":{schema},"name":"t","inputSchema":{{}}}}"#);
        assert_eq!(shown(Family::Tools, &tool, MODERN), tool);
        for dialect in [V11, V06, V03] {
            let expected = r#"{"name":"t","inputSchema":{}}"#;
            assert_eq!(shown(Family::Tools, &tool, dialect), expected, "{schema} {dialect:?}");
        }
    }
}

#[test]
fn prompts_and_resources_are_downgraded_too() {
    let prompt = r#"{"name":"p","title":"P","arguments":[{"title":"A","name":"a"},{"name":"b"}],"_meta":{}}"#;
    let resource = r#"{"uri":"a:b","title":"R","name":"r","size":12345678901234567890,"icons":[]}"#;
    for dialect in [MODERN, V11, V06] {
        assert_eq!(shown(Family::Prompts, prompt, dialect), prompt);
        assert_eq!(shown(Family::Resources, resource, dialect), resource);
    }
    let old = r#"{"name":"p","arguments":[{"name":"a"},{"name":"b"}]}"#;
    assert_eq!(shown(Family::Prompts, prompt, V03), old);
    let old = r#"{"uri":"a:b","name":"r","size":12345678901234567890}"#;
    assert_eq!(shown(Family::Resources, resource, V03), old);
    assert_eq!(shown(Family::Templates, resource, V03), old);
}

fn told(raw: &str, version: Version) -> String {
    let bytes = Bytes::copy_from_slice(raw.as_bytes());
    let doc = splice::document(&bytes).unwrap();
    let shape = super::super::north::shape(doc.root());
    let changed = concerns(&shape, version).then(|| result(&bytes, &shape, version)).flatten();
    String::from_utf8(changed.unwrap_or(bytes).to_vec()).unwrap()
}

#[test]
fn structured_content_that_is_no_object_is_told_as_text() {
    for (raw, expected) in [
        (
            r#"{"content":[],"structuredContent":[1.0, "é"]}"#,
            r#"{"content":[{"type":"text","text":"[1.0, \"é\"]"}]}"#,
        ),
        (
            r#"{"structuredContent":null,"content":[{"type":"text","text":"none"}],"x":1}"#,
            r#"{"content":[{"type":"text","text":"none"}],"x":1}"#,
        ),
        (
            r#"{"content":[{"type":"text","text":" [1, 2]"}],"structuredContent":[1,2]}"#,
            r#"{"content":[{"type":"text","text":" [1, 2]"}]}"#,
        ),
        (
            r#"{"content":[{"type":"text","text":""}],"structuredContent":3}"#,
            r#"{"content":[{"type":"text","text":""},{"type":"text","text":"3"}]}"#,
        ),
        (
            r#"{"x":1,"structuredContent":"s"}"#,
            r#"{"x":1,"content":[{"type":"text","text":"\"s\""}]}"#,
        ),
    ] {
        for version in [Version::V2025_11_25, Version::V2025_06_18, Version::V2025_03_26] {
            assert_eq!(told(raw, version), expected, "{version}");
        }
    }
    let object = r#"{"content":[],"structuredContent":{"a":[1]}}"#;
    for version in [Version::V2025_11_25, Version::V2025_06_18] {
        assert_eq!(told(object, version), object);
    }
    let old = r#"{"content":[{"type":"text","text":"{\"a\":[1]}"}]}"#;
    assert_eq!(told(object, Version::V2025_03_26), old);
}

#[test]
fn content_that_a_revision_does_not_know_becomes_text() {
    let raw = r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n","title":"T","annotations":{"priority":1.0}},{"type":"hologram","data":"x"},{"type":"audio","data":"","mimeType":"a/b"},{"type":"resource","resource":{"uri":"a:b","text":""}}],"_meta":{"k":1}}"#;
    for version in [Version::V2025_11_25, Version::V2025_06_18] {
        assert_eq!(told(raw, version), raw);
    }
    let old = r#"{"content":[{"type":"text","text":"T: a:b","annotations":{"priority":1.0}},{"type":"text","text":"[left out: content of the type \"hologram\", which this revision does not know]"},{"type":"audio","data":"","mimeType":"a/b"},{"type":"resource","resource":{"uri":"a:b","text":""}}],"_meta":{"k":1}}"#;
    assert_eq!(told(raw, Version::V2025_03_26), old);
    let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource_link","uri":"a:b"}}]}"#;
    let old = r#"{"messages":[{"role":"user","content":{"type":"text","text":"a:b"}}]}"#;
    assert_eq!(told(prompt, Version::V2025_06_18), prompt);
    assert_eq!(told(prompt, Version::V2025_03_26), old);
}

#[test]
fn a_tool_that_needs_a_task_is_known_by_its_definition() {
    for (raw, needs) in [
        (r#"{"execution":{"taskSupport":"required"}}"#, true),
        (r#"{"execution":{"taskSupport":"optional"}}"#, false),
        (r#"{"execution":"required"}"#, false),
        ("{}", false),
    ] {
        let doc = splice::document(&Bytes::from(raw)).unwrap();
        assert_eq!(only_as_task(doc.root()), needs, "{raw}");
    }
}

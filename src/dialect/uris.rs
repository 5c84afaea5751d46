//! The URIs inside results, given other names: on the aggregate a URI carries its upstream.
//!
//! It finds the places; what a URI is called there is said by whoever asks. Everything else of
//! the result stays as it was written, and a result without URIs is not even read.

use bytes::Bytes;
use memchr::memmem;

use crate::{
    json::{
        Kind, Value,
        splice::{self, Edits},
    },
    mcp::Method,
};

/// What a URI is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The text or blob of a resource stands beside it.
    Content,
    /// It is only pointed to.
    Link,
}

/// The result of a method with its URIs renamed; `None` where nothing changes.
pub fn rename(
    method: Method,
    raw: &Bytes,
    mut name: impl FnMut(&str, Place) -> Option<String>,
) -> Option<Bytes> {
    memmem::find(raw, b"\"uri\"")?;
    let doc = splice::document(raw)?;
    let mut edits = Edits::default();
    let mut found = |value: Value<'_>, place| {
        let new = value.as_str().and_then(|uri| name(&uri, place));
        if let Some(new) = new {
            edits.put_str(value, &new);
        }
    };
    match method {
        Method::ReadResource => {
            for content in doc.root().get("contents").iter().flat_map(|list| list.elements()) {
                if let Some(uri) = content.get("uri") {
                    found(uri, Place::Content);
                }
            }
        }
        Method::CallTool => blocks(doc.root().get("content"), &mut found),
        // What a tool left behind when its task was done.
        Method::GetTask => {
            blocks(doc.root().get("result").and_then(|result| result.get("content")), &mut found);
        }
        Method::GetPrompt => {
            for message in doc.root().get("messages").iter().flat_map(|list| list.elements()) {
                blocks(message.get("content"), &mut found);
            }
        }
        _ => {}
    }
    (!edits.is_empty()).then(|| edits.apply(raw))
}

/// The blocks of a content, which is one block or a list of them.
fn blocks(content: Option<Value<'_>>, found: &mut impl FnMut(Value<'_>, Place)) {
    let Some(content) = content else { return };
    if content.kind() == Kind::Object {
        return block(content, found);
    }
    for element in content.elements() {
        block(element, found);
    }
}

fn block(block: Value<'_>, found: &mut impl FnMut(Value<'_>, Place)) {
    let Some(kind) = block.get("type") else { return };
    if kind.is_str("resource_link") {
        if let Some(uri) = block.get("uri") {
            found(uri, Place::Link);
        }
    } else if kind.is_str("resource")
        && let Some(uri) = block.get("resource").and_then(|resource| resource.get("uri"))
    {
        found(uri, Place::Content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names every URI after its place.
    fn renamed(method: Method, raw: &str) -> Option<String> {
        let name = |uri: &str, place| {
            let mark = if place == Place::Link { "link" } else { "up" };
            Some(format!("{mark}+{uri}"))
        };
        let bytes = rename(method, &Bytes::copy_from_slice(raw.as_bytes()), name)?;
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[test]
    fn uris_are_renamed_where_they_are_the_protocols() {
        for (method, raw, expected) in [
            (
                Method::ReadResource,
                r#"{"contents":[{"uri":"a:1","text":"\u00e9 \"uri\":"},{ "blob":"","uri" : "a:\u0032" }],"uri":"x:1","n":12345678901234567890}"#,
                r#"{"contents":[{"uri":"up+a:1","text":"\u00e9 \"uri\":"},{ "blob":"","uri" : "up+a:2" }],"uri":"x:1","n":12345678901234567890}"#,
            ),
            (
                Method::CallTool,
                r#"{"content":[{"type":"resource_link","uri":"a:1","name":"n","x":1.0},{"type":"resource","resource":{"uri":"a:2","text":"t"}},{"type":"text","text":"a:3","uri":"a:4"}],"structuredContent":{"uri":"a:5"}}"#,
                r#"{"content":[{"type":"resource_link","uri":"link+a:1","name":"n","x":1.0},{"type":"resource","resource":{"uri":"up+a:2","text":"t"}},{"type":"text","text":"a:3","uri":"a:4"}],"structuredContent":{"uri":"a:5"}}"#,
            ),
            (
                Method::GetTask,
                r#"{"taskId":"t","result":{"content":[{"type":"resource_link","uri":"a:1","name":"n"}]},"content":[{"type":"resource_link","uri":"a:2"}]}"#,
                r#"{"taskId":"t","result":{"content":[{"type":"resource_link","uri":"link+a:1","name":"n"}]},"content":[{"type":"resource_link","uri":"a:2"}]}"#,
            ),
            (
                Method::GetPrompt,
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a:1","text":""}}},{"role":"user","content":[{"type":"resource_link","uri":"a:2"}]}]}"#,
                r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"up+a:1","text":""}}},{"role":"user","content":[{"type":"resource_link","uri":"link+a:2"}]}]}"#,
            ),
        ] {
            assert_eq!(renamed(method, raw).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_result_without_uris_stays_as_it_is() {
        for (method, raw) in [
            (Method::CallTool, r#"{"content":[{"type":"text","text":"uri"}]}"#),
            (Method::CallTool, r#"{"content":"uri","structuredContent":{"uri":"a:1"}}"#),
            (Method::CallTool, r#"{"content":[{"type":"resource","resource":{"uri":1}}]}"#),
            (Method::CallTool, r#"{"contents":[{"uri":"a:1"}]}"#),
            (Method::GetPrompt, r#"{"messages":[{"content":{"type":"text","uri":"a:1"}}]}"#),
            (Method::Complete, r#"{"completion":{"values":["a:1"]},"uri":"a:1"}"#),
        ] {
            assert_eq!(renamed(method, raw), None, "{raw}");
        }
    }

    #[test]
    fn what_keeps_its_name_is_not_touched() {
        let raw = Bytes::from_static(br#"{"contents":[{"uri":"a:1"}]}"#);
        assert_eq!(rename(Method::ReadResource, &raw, |_, _| None), None);
    }
}

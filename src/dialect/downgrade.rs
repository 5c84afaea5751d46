//! Definitions and results in the form that clients of older revisions know.
//!
//! What a revision has no member for is taken out, what it has another form for is told in that;
//! everything else stays as it was written. Envelopes are `north`'s.

use bytes::Bytes;
use memchr::memmem;

use crate::{
    json::{
        self, Doc, Kind, Value,
        splice::{self, Edits},
    },
    mcp::{Family, Version},
    model::{exchange::NorthDialect, reply::Shape},
};

/// Members of definitions that came with 2025-06-18 or later.
const YOUNG: [&str; 5] = ["title", "icons", "_meta", "outputSchema", "execution"];

/// A listed definition as a client may be shown it.
pub fn definition(family: Family, raw: &Bytes, dialect: NorthDialect) -> Bytes {
    let has = |name: &str| memmem::find(raw, name.as_bytes()).is_some();
    let concerns = match dialect {
        NorthDialect::McpLite => false,
        // A word that later revisions took back.
        NorthDialect::Modern => family == Family::Tools && has("\"execution\""),
        NorthDialect::Legacy(version) if version >= Version::V2025_06_18 => {
            family == Family::Tools && (has("\"outputSchema\"") || has("\"execution\""))
        }
        NorthDialect::Legacy(_) => true,
    };
    let doc = if concerns { splice::document(raw) } else { None };
    let Some(doc) = doc else { return raw.clone() };
    let root = doc.root();
    let mut edits = Edits::default();
    match dialect {
        NorthDialect::Legacy(version) if version >= Version::V2025_06_18 => {
            let knows_tasks = version >= Version::V2025_11_25;
            let is_object = root.get("outputSchema").is_none_or(roots_in_object);
            edits.remove(&doc, root, |key| {
                (key.is("outputSchema") && !is_object) || (key.is("execution") && !knows_tasks)
            });
        }
        NorthDialect::Legacy(_) => {
            edits.remove(&doc, root, |key| YOUNG.contains(&&*key.unescaped()));
            if family == Family::Prompts {
                for argument in root.get("arguments").iter().flat_map(|list| list.elements()) {
                    edits.remove(&doc, argument, |key| key.is("title"));
                }
            }
        }
        NorthDialect::Modern | NorthDialect::McpLite => {
            edits.remove(&doc, root, |key| key.is("execution"));
        }
    }
    if edits.is_empty() { raw.clone() } else { edits.apply(raw) }
}

/// Whether a schema is of an object, the only root that the handshake revisions have.
fn roots_in_object(schema: Value<'_>) -> bool {
    schema.get("type").is_some_and(|kind| kind.is_str("object"))
}

/// Whether a definition is of a tool that runs only as a task of 2025-11-25, which the gateway
/// carries for nobody.
pub fn only_as_task(tool: Value<'_>) -> bool {
    let support = tool.get("execution").and_then(|execution| execution.get("taskSupport"));
    support.is_some_and(|support| support.is_str("required"))
}

/// Whether a result of this shape may have to change for a client of the revision.
pub fn concerns(shape: &Shape, version: Version) -> bool {
    shape.structured == Some(false) || version < Version::V2025_06_18
}

/// A result as a client of the revision knows results; `None` where nothing changes.
pub fn result(raw: &Bytes, shape: &Shape, version: Version) -> Option<Bytes> {
    let doc = splice::document(raw)?;
    let root = doc.root();
    let old = version < Version::V2025_06_18;
    let mut edits = Edits::default();
    if old {
        blocks(root.get("content"), &mut edits);
        for message in root.get("messages").iter().flat_map(|list| list.elements()) {
            blocks(message.get("content"), &mut edits);
        }
    }
    if shape.structured.is_some_and(|is_object| old || !is_object) {
        unstructured(&doc, &mut edits);
    }
    (!edits.is_empty()).then(|| edits.apply(raw))
}

/// Takes the structured content out, and sees to it that a text block tells it. Where the server
/// wrote a text, that is how it tells clients of these revisions: nothing is added to it, since
/// they take all texts together for the answer.
fn unstructured(doc: &Doc, edits: &mut Edits) {
    let root = doc.root();
    let Some(structured) = root.get("structuredContent") else { return };
    let content = root.get("content").filter(|content| content.kind() == Kind::Array);
    let is_told = content.iter().flat_map(|list| list.elements()).any(tells);
    let mut block = b"{\"type\":\"text\",\"text\":".to_vec();
    // A document is UTF-8.
    json::write_str(&mut block, std::str::from_utf8(structured.raw()).unwrap_or_default());
    block.push(b'}');
    let Some(content) = content else {
        // The new member takes the place of the old one.
        let mut text = b"\"content\":[".to_vec();
        text.extend_from_slice(&block);
        text.push(b']');
        for (key, value) in root.members().filter(|(key, _)| key.is("structuredContent")) {
            edits.put(splice::member_span(doc, key, value), std::mem::take(&mut text));
        }
        return;
    };
    edits.remove(doc, root, |key| key.is("structuredContent"));
    if !is_told {
        if content.elements().next().is_some() {
            block.insert(0, b',');
        }
        let end = content.offset() + content.raw().len() - 1;
        edits.put(end..end, block);
    }
}

/// Whether a block is a text that says anything.
fn tells(block: Value<'_>) -> bool {
    let text = block.get("type").filter(|kind| kind.is_str("text")).and(block.get("text"));
    text.and_then(Value::as_str).is_some_and(|text| !text.is_empty())
}

/// The blocks of a content, which is one block or a list of them, for a client of 2025-03-26.
fn blocks(content: Option<Value<'_>>, edits: &mut Edits) {
    let Some(content) = content else { return };
    if content.kind() == Kind::Object {
        return block(content, edits);
    }
    for element in content.elements() {
        block(element, edits);
    }
}

fn block(block: Value<'_>, edits: &mut Edits) {
    let Some(kind) = block.get("type").and_then(Value::as_str) else { return };
    let text = |member: &str| block.get(member).and_then(Value::as_str);
    let told = match &*kind {
        "text" | "image" | "audio" | "resource" => return,
        "resource_link" => {
            let uri = text("uri").unwrap_or_default();
            match text("title").or_else(|| text("name")) {
                Some(name) => format!("{name}: {uri}"),
                None => uri.into_owned(),
            }
        }
        other => {
            let shown: String = other.chars().take(64).collect();
            format!(
                "[left out: content of the type \"{shown}\", which this revision does not know]"
            )
        }
    };
    let mut new = b"{\"type\":\"text\",\"text\":".to_vec();
    json::write_str(&mut new, &told);
    if let Some(annotations) = block.get("annotations") {
        new.extend_from_slice(b",\"annotations\":");
        new.extend_from_slice(annotations.raw());
    }
    new.push(b'}');
    edits.put(block.offset()..block.offset() + block.raw().len(), new);
}

#[cfg(test)]
mod tests;

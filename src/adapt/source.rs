//! The schema that is rewritten, as far as references in it go.

use serde_json::Value;

use crate::json::fragment;

/// Keywords that say nothing of arguments, so that nobody misses them.
pub(super) const SILENT: [&str; 12] = [
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$vocabulary",
    "$comment",
    "$defs",
    "definitions",
    "then",
    "else",
];

/// A whole schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'s> {
    root: &'s Value,
    /// Up to draft-07 what stands beside a `$ref` means nothing.
    pub lone_refs: bool,
    /// `prefixItems` says something: before 2020-12 it does not.
    pub prefixes: bool,
}

impl<'s> Source<'s> {
    pub fn of(root: &'s Value) -> Self {
        let draft = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
        let lone_refs = ["draft-04", "draft-06", "draft-07"].iter().any(|old| draft.contains(old));
        let prefixes = !lone_refs && !draft.contains("2019-09");
        Self { root, lone_refs, prefixes }
    }

    /// What a reference points to within the schema, with its plain pointer. References by anchor
    /// and to other documents have none, nor has what lies in a schema with an address of its own.
    pub fn target(&self, reference: &str) -> Option<(String, &'s Value)> {
        let pointer = fragment(reference.strip_prefix('#')?)?;
        let mut at = self.root;
        for token in pointer.split('/').skip(1) {
            at = match at {
                Value::Object(members) => {
                    members.get(&token.replace("~1", "/").replace("~0", "~"))?
                }
                Value::Array(items) => items.get(token.parse::<usize>().ok()?)?,
                _ => return None,
            };
            if has_address(at) {
                return None;
            }
        }
        (pointer.is_empty() || pointer.starts_with('/')).then_some((pointer, at))
    }
}

/// Whether a schema that is not the whole one has an address, to which references in it are
/// relative.
pub(super) fn has_address(schema: &Value) -> bool {
    let id = schema.get("$id").and_then(Value::as_str);
    id.is_some_and(|id| !id.starts_with('#'))
}

/// One step of a pointer.
pub(super) fn step(pointer: &str, token: &str) -> String {
    format!("{pointer}/{}", token.replace('~', "~0").replace('/', "~1"))
}

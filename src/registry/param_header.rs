//! `x-mcp-header`: arguments that a request repeats in a header (2026-07-28).
//!
//! Which arguments those are is in the tool's schema; a mark where it may not stand makes the
//! tool unusable over HTTP. Comparing and writing the headers is the layers'.

use std::collections::HashSet;

use bytes::Bytes;
use http::HeaderName;

use crate::json::{self, Doc, Kind, NumberForm, Value};

pub(super) const MARK: &str = "x-mcp-header";
const PREFIX: &str = "mcp-param-";

/// Members of a schema that hold data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// What is rewritten here was read before.
const LIMITS: json::Limits =
    json::Limits { depth: usize::MAX, duplicates: json::Duplicates::Allow, outline: 3 };

/// A definition whose schema bears no marks: for servers to which no header goes.
pub fn without_marks(definition: Value<'_>) -> Bytes {
    let mut out = Vec::with_capacity(definition.raw().len());
    let Some(schema) = definition.get("inputSchema") else { return definition.bytes() };
    let (start, end) = (schema.offset() - definition.offset(), schema.raw().len());
    let raw = definition.raw();
    out.extend_from_slice(raw.get(..start).unwrap_or_default());
    write_unmarked(&mut out, schema, true);
    out.extend_from_slice(raw.get(start + end..).unwrap_or_default());
    out.into()
}

/// `schema`: the value is a schema, or a list of them, and not a mapping of names to schemas.
fn write_unmarked(out: &mut Vec<u8>, value: Value<'_>, schema: bool) {
    let separate = |out: &mut Vec<u8>, number: usize| {
        if number > 0 {
            out.push(b',');
        }
    };
    match value.kind() {
        Kind::Object => {
            out.push(b'{');
            let members = value.members().filter(|(key, _)| !schema || !key.is(MARK));
            for (number, (key, member)) in members.enumerate() {
                separate(out, number);
                out.push(b'"');
                out.extend_from_slice(key.raw());
                out.extend_from_slice(b"\":");
                match &*key.unescaped() {
                    name if schema && DATA.contains(&name) => out.extend_from_slice(member.raw()),
                    name => write_unmarked(out, member, !schema || name != "properties"),
                }
            }
            out.push(b'}');
        }
        Kind::Array => {
            out.push(b'[');
            for (number, element) in value.elements().enumerate() {
                separate(out, number);
                write_unmarked(out, element, schema);
            }
            out.push(b']');
        }
        _ => out.extend_from_slice(value.raw()),
    }
}

/// An argument that has a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// `mcp-param-…`.
    pub header: HeaderName,
    /// From the arguments' root, through `properties` only.
    path: Box<[Box<str>]>,
}

/// Why a mark makes its tool unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkFault {
    #[error("an x-mcp-header is no header name")]
    Name,
    #[error("two of its x-mcp-header are the same name")]
    Repeated,
    #[error("an x-mcp-header stands on something that is no string, integer or boolean")]
    Type,
    #[error("an x-mcp-header stands where no argument of its own is")]
    Place,
}

/// The marked arguments of a schema.
pub(super) fn read(schema: Value<'_>) -> Result<Vec<ParamHeader>, MarkFault> {
    // Nearly no schema has any.
    if memchr::memmem::find(schema.raw(), MARK.as_bytes()).is_none() {
        return Ok(Vec::new());
    }
    let mut marks = Marks { found: Vec::new(), names: HashSet::new(), path: Vec::new() };
    marks.walk(schema, true)?;
    Ok(marks.found)
}

struct Marks {
    found: Vec<ParamHeader>,
    names: HashSet<String>,
    path: Vec<Box<str>>,
}

impl Marks {
    /// `reachable`: only `properties` led here. The depth is bounded by what the listing's
    /// reader lets through.
    fn walk(&mut self, schema: Value<'_>, reachable: bool) -> Result<(), MarkFault> {
        for element in schema.elements() {
            self.walk(element, false)?;
        }
        for (key, value) in schema.members() {
            match &*key.unescaped() {
                MARK if reachable && !self.path.is_empty() => self.mark(schema, value)?,
                MARK => return Err(MarkFault::Place),
                "properties" => {
                    for (name, property) in value.members() {
                        self.path.push(name.unescaped().into());
                        self.walk(property, reachable)?;
                        self.path.pop();
                    }
                }
                name if DATA.contains(&name) => {}
                _ => self.walk(value, false)?,
            }
        }
        Ok(())
    }

    fn mark(&mut self, schema: Value<'_>, name: Value<'_>) -> Result<(), MarkFault> {
        let name = name.as_str().filter(|name| !name.is_empty()).ok_or(MarkFault::Name)?;
        let kind = schema.get("type").and_then(Value::as_str);
        if !matches!(kind.as_deref(), Some("string" | "integer" | "boolean")) {
            return Err(MarkFault::Type);
        }
        let lower = name.to_ascii_lowercase();
        let header = HeaderName::from_bytes(format!("{PREFIX}{lower}").as_bytes())
            .map_err(|_| MarkFault::Name)?;
        if !self.names.insert(lower) {
            return Err(MarkFault::Repeated);
        }
        self.found.push(ParamHeader { header, path: self.path.clone().into() });
        Ok(())
    }
}

/// Arguments, read as far as marks reach into them.
pub struct MarkedArguments(Option<Doc>);

impl MarkedArguments {
    /// Arguments that are known to be a JSON object, or are absent.
    pub fn read(arguments: Option<&Bytes>) -> Self {
        Self(arguments.and_then(|arguments| Doc::parse(arguments.clone(), &LIMITS).ok()))
    }

    /// What the header says of the argument: unencoded text. `None` for one that is absent or
    /// null, or of a type that no header can hold.
    pub fn text(&self, param: &ParamHeader) -> Option<String> {
        let mut value = self.0.as_ref()?.root();
        for name in &param.path {
            value = value.get(name)?;
        }
        match value.kind() {
            Kind::String => value.as_str().map(Into::into),
            Kind::True => Some("true".into()),
            Kind::False => Some("false".into()),
            Kind::Number => match value.number_form()? {
                NumberForm::Integer | NumberForm::Whole => Some(decimal(value.raw())),
                NumberForm::Fractional => None,
            },
            Kind::Null | Kind::Object | Kind::Array => None,
        }
    }

    /// Whether a header's decoded value says the same; integers are compared as numbers.
    pub fn agrees(&self, param: &ParamHeader, sent: &str) -> bool {
        let Some(text) = self.text(param) else { return false };
        text == sent || self.is_number(param) && text == decimal(sent.as_bytes())
    }

    fn is_number(&self, param: &ParamHeader) -> bool {
        let root = self.0.as_ref().map(Doc::root);
        param
            .path
            .iter()
            .try_fold(root, |value, name| value.map(|value| value.get(name)))
            .flatten()
            .is_some_and(|value| value.kind() == Kind::Number)
    }
}

/// A number as plain digits, whatever its spelling; what is no number stays as it is.
fn decimal(raw: &[u8]) -> String {
    let limits = json::Limits { depth: 1, duplicates: json::Duplicates::Allow, outline: 0 };
    let mut out = Vec::new();
    match Doc::parse(Bytes::copy_from_slice(raw), &limits) {
        Ok(doc) if doc.root().kind() == Kind::Number => json::canonical(doc.root().raw(), &mut out),
        _ => out.extend_from_slice(raw),
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(schema: &str) -> Result<Vec<String>, MarkFault> {
        let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 1 };
        let doc = Doc::parse(Bytes::copy_from_slice(schema.as_bytes()), &limits).unwrap();
        let found = read(doc.root())?;
        Ok(found.iter().map(|p| format!("{} {}", p.header, p.path.join("/"))).collect())
    }

    #[test]
    fn marks_stand_on_plain_arguments_of_their_own() {
        let on = |kind: &str, mark: &str| {
            format!(r#"{{"properties":{{"a":{{"type":"{kind}","x-mcp-header":"{mark}"}}}}}}"#)
        };
        assert_eq!(marks(&on("string", "Region")), Ok(vec!["mcp-param-region a".into()]));
        assert_eq!(
            marks(
                r#"{"properties":{"o":{"properties":{"b":{"type":"boolean","x-mcp-header":"B"}}}}}"#
            ),
            Ok(vec!["mcp-param-b o/b".into()])
        );
        for (schema, fault) in [
            (on("number", "N"), MarkFault::Type),
            (on("string", ""), MarkFault::Name),
            (on("string", "a b"), MarkFault::Name),
            (r#"{"x-mcp-header":"A"}"#.into(), MarkFault::Place),
            (
                r#"{"properties":{"a":{"items":{"type":"string","x-mcp-header":"A"}}}}"#.into(),
                MarkFault::Place,
            ),
            (
                r#"{"oneOf":[{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}]}"#.into(),
                MarkFault::Place,
            ),
            (
                r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},
                    "b":{"type":"string","x-mcp-header":"a"}}}"#
                    .into(),
                MarkFault::Repeated,
            ),
        ] {
            assert_eq!(marks(&schema), Err(fault), "{schema}");
        }
        // A property of that name, and data that looks like a mark, are none.
        assert_eq!(marks(r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#), Ok(vec![]));
        assert_eq!(marks(r#"{"default":{"x-mcp-header":"A"}}"#), Ok(vec![]));
    }

    #[test]
    fn marks_are_taken_out_and_nothing_else_is() {
        let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 1 };
        for (marked, plain) in [
            (
                r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"A"},"x-mcp-header":{"type":"string"}},"x-mcp-header":1},"y":1.0}"#,
                r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":"number"},"x-mcp-header":{"type":"string"}}},"y":1.0}"#,
            ),
            (
                r#"{"inputSchema":{"default":{"x-mcp-header":"A"},"anyOf":[{"x-mcp-header":"A","b":[1]}]}}"#,
                r#"{"inputSchema":{"default":{"x-mcp-header":"A"},"anyOf":[{"b":[1]}]}}"#,
            ),
            (r#"{"x-mcp-header":"A"}"#, r#"{"x-mcp-header":"A"}"#),
        ] {
            let doc = Doc::parse(Bytes::from(marked), &limits).unwrap();
            assert_eq!(without_marks(doc.root()), plain);
        }
    }

    #[test]
    fn headers_agree_by_value() {
        let param = ParamHeader {
            header: HeaderName::from_static("mcp-param-a"),
            path: Box::new(["a".into()]),
        };
        for (arguments, header, agrees) in [
            (r#"{"a":"Hello"}"#, "Hello", true),
            (r#"{"a":"Hello"}"#, "hello", false),
            (r#"{"a":10}"#, "10", true),
            (r#"{"a":10}"#, "1e1", true),
            (r#"{"a":"10"}"#, "1e1", false),
            (r#"{"a":true}"#, "true", true),
            (r#"{"a":null}"#, "null", false),
            ("{}", "", false),
        ] {
            let read = MarkedArguments::read(Some(&Bytes::from(arguments)));
            assert_eq!(read.agrees(&param, header), agrees, "{arguments} {header}");
        }
    }
}

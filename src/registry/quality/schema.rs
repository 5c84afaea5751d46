//! What a schema says of each parameter, and whether it says it.

use super::{Findings, says, shown};
use crate::{
    json::{Kind, Value},
    model::quality::Flaw,
};

/// A parameter of a tool, or a member of one.
#[derive(Clone)]
pub struct Parameter<'a> {
    pub name: String,
    pub pointer: String,
    /// With what a reference leads to.
    pub schemas: Vec<Value<'a>>,
}

/// Objects in objects are looked at so deep.
const DEPTH: usize = 6;

/// References that lead to references are followed so far.
const HOPS: usize = 8;

/// Parameters that are looked at.
const PARAMETERS: usize = 2_000;

/// Keywords that say which values there are.
const NARROWING: [&str; 12] = [
    "type",
    "enum",
    "const",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "properties",
    "items",
    "not",
    "if",
    "format",
];

pub fn look(tool: Value<'_>, schema: Option<Value<'_>>, findings: &mut Findings) {
    let Some(schema) = schema.filter(|schema| schema.kind() == Kind::Object) else {
        let message = "it publishes no schema for its arguments, so any are let through";
        findings.add(Flaw::Broad, "/inputSchema", message);
        return;
    };
    let root = deref(tool, schema);
    let has_own = root.iter().any(|own| {
        own.get("properties").is_some_and(|properties| properties.members().next().is_some())
            || ["anyOf", "oneOf", "allOf", "patternProperties"].iter().any(|k| own.get(k).is_some())
    });
    if !has_own && root.iter().any(|own| own.get("additionalProperties").is_some_and(is_anything)) {
        let message = "it names no argument and takes any: list those that it knows";
        findings.add(Flaw::Broad, "/inputSchema/additionalProperties", message);
    }
    for parameter in parameters(tool, schema) {
        parameter.look(findings);
    }
}

/// Every parameter, with those inside others.
pub fn parameters<'a>(tool: Value<'a>, schema: Value<'a>) -> Vec<Parameter<'a>> {
    let mut all = Vec::new();
    gather(tool, schema, "/inputSchema", DEPTH, &mut all);
    all
}

fn gather<'a>(
    tool: Value<'a>,
    schema: Value<'a>,
    pointer: &str,
    depth: usize,
    all: &mut Vec<Parameter<'a>>,
) {
    if depth == 0 || all.len() >= PARAMETERS {
        return;
    }
    for own in deref(tool, schema) {
        let properties = own.get("properties").into_iter();
        for (key, value) in properties.flat_map(Value::members) {
            let name = key.unescaped().into_owned();
            let step = name.replace('~', "~0").replace('/', "~1");
            let pointer = format!("{pointer}/properties/{step}");
            all.push(Parameter { name, pointer: pointer.clone(), schemas: deref(tool, value) });
            gather(tool, value, &pointer, depth - 1, all);
        }
        for member in ["items", "additionalProperties"] {
            if let Some(inner) = own.get(member).filter(|inner| inner.kind() == Kind::Object) {
                gather(tool, inner, &format!("{pointer}/{member}"), depth - 1, all);
            }
        }
        for member in ["anyOf", "oneOf", "allOf"] {
            let branches = own.get(member).filter(|list| list.kind() == Kind::Array);
            for (index, inner) in branches.into_iter().flat_map(Value::elements).enumerate() {
                gather(tool, inner, &format!("{pointer}/{member}/{index}"), depth - 1, all);
            }
        }
    }
}

/// A schema, and what its references lead to within the tool's schema.
fn deref<'a>(tool: Value<'a>, schema: Value<'a>) -> Vec<Value<'a>> {
    let mut found = vec![schema];
    while let Some(target) = found.last().and_then(|last| reference(tool, *last)) {
        if found.len() > HOPS {
            break;
        }
        found.push(target);
    }
    found
}

fn reference<'a>(tool: Value<'a>, schema: Value<'a>) -> Option<Value<'a>> {
    let path = schema.get("$ref").and_then(Value::as_str)?;
    let mut at = tool.get("inputSchema")?;
    for step in path.strip_prefix("#/")?.split('/') {
        at = at.get(&step.replace("~1", "/").replace("~0", "~"))?;
    }
    Some(at)
}

/// `true`, or a schema that lets everything be.
fn is_anything(schema: Value<'_>) -> bool {
    match schema.kind() {
        Kind::True => true,
        Kind::Object => !NARROWING.iter().any(|keyword| schema.get(keyword).is_some()),
        _ => false,
    }
}

// === impl Parameter ===

impl<'a> Parameter<'a> {
    fn look(&self, findings: &mut Findings) {
        findings.parameters += 1;
        let name = shown(&self.name);
        if !self.is_described() {
            let message =
                format!("`{name}` has no description: a model has to guess what it means");
            findings.add(Flaw::Undocumented, &*self.pointer, message);
        }
        if self.schemas.iter().all(|schema| is_anything(*schema)) {
            let message = format!("`{name}` takes a value of any type");
            findings.add(Flaw::Untyped, &*self.pointer, message);
        } else if self.is_free_object() {
            let message =
                format!("`{name}` is an object with any members: list those that it knows");
            findings.add(Flaw::Broad, &*self.pointer, message);
        }
    }

    fn is_described(&self) -> bool {
        self.each().iter().any(|schema| says(*schema, "description"))
    }

    /// Its own schema, what it refers to, and the branches of both.
    fn each(&self) -> Vec<Value<'a>> {
        let mut all = self.schemas.clone();
        for schema in &self.schemas {
            for list in ["anyOf", "oneOf", "allOf"] {
                let branches = schema.get(list).filter(|list| list.kind() == Kind::Array);
                all.extend(branches.into_iter().flat_map(Value::elements));
            }
        }
        all
    }

    fn is_free_object(&self) -> bool {
        let each = self.each();
        let is_free = |schema: &Value<'_>| {
            is_of(*schema, "object")
                && !["properties", "patternProperties", "propertyNames", "anyOf", "oneOf", "allOf"]
                    .iter()
                    .any(|keyword| schema.get(keyword).is_some())
                && schema.get("additionalProperties").is_none_or(is_anything)
        };
        each.iter().any(is_free)
    }

    /// Whether it takes any text, or a list of any texts.
    pub fn is_free_text(&self) -> bool {
        self.each().into_iter().any(|schema| {
            let items = schema.get("items").filter(|items| items.kind() == Kind::Object);
            is_free_text(schema) || (is_of(schema, "array") && items.is_some_and(is_free_text))
        })
    }

    /// Every description that there is of it, in one.
    pub fn description(&self) -> String {
        let texts = self.each().into_iter().filter_map(|schema| schema.get("description"));
        let texts: Vec<_> = texts.filter_map(Value::as_str).collect();
        texts.join(" ")
    }
}

fn is_free_text(schema: Value<'_>) -> bool {
    is_of(schema, "string")
        && !["enum", "const", "pattern"].iter().any(|keyword| schema.get(keyword).is_some())
}

fn is_of(schema: Value<'_>, kind: &str) -> bool {
    match schema.get("type") {
        Some(own) if own.kind() == Kind::Array => own.elements().any(|own| own.is_str(kind)),
        Some(own) => own.is_str(kind),
        None => false,
    }
}

//! What a schema says of each parameter, and whether it says it.
//!
//! A schema is a server's text: a few references can unfold to more parts than could ever be
//! looked at. So each part is looked into once for a depth, and of all of them only so many.

use std::{borrow::Cow, collections::HashMap};

use super::{Findings, says, shown};
use crate::{
    json::{Kind, Value},
    model::quality::Flaw,
};

/// A parameter of a tool, or a member of one.
pub struct Parameter<'a> {
    pub name: String,
    pub pointer: String,
    /// With what a reference leads to.
    schemas: Vec<Value<'a>>,
    /// These, and the branches of them.
    each: Vec<Value<'a>>,
}

/// The parameters of a tool.
pub struct Parameters<'a> {
    pub all: Vec<Parameter<'a>>,
    /// There is more than was looked at.
    is_cut: bool,
}

/// Objects in objects are looked at so deep.
const DEPTH: usize = 6;

/// References that lead to references are followed so far.
const HOPS: usize = 8;

/// Bytes of a part that count as one part more: they are read to find what is in it.
const LONG: usize = 256;

/// The longest place that is told, in bytes: as many are kept as there are parameters.
const MAX_POINTER: usize = 1_024;

/// Parameters that are looked at.
const PARAMETERS: usize = 2_000;

/// Parts of a schema that are looked at, however often each is come to; a long one counts as many.
/// The largest honest ones have some thousands.
pub(super) const PARTS: usize = 50_000;

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

pub fn look(
    tool: Value<'_>,
    schema: Option<Value<'_>>,
    parameters: &Parameters<'_>,
    findings: &mut Findings,
) {
    let Some(schema) = schema.filter(|schema| schema.kind() == Kind::Object) else {
        let message = "it publishes no schema for its arguments, so any are let through";
        findings.add(Flaw::Broad, "/inputSchema", message);
        return;
    };
    let root = Gatherer::new(tool).deref(schema);
    let has_own = root.iter().any(|own| {
        own.get("properties").is_some_and(|properties| properties.members().next().is_some())
            || ["anyOf", "oneOf", "allOf", "patternProperties"].iter().any(|k| own.get(k).is_some())
    });
    if !has_own && root.iter().any(|own| own.get("additionalProperties").is_some_and(is_anything)) {
        let message = "it names no argument and takes any: list those that it knows";
        findings.add(Flaw::Broad, "/inputSchema/additionalProperties", message);
    }
    for parameter in &parameters.all {
        parameter.look(findings);
    }
    if parameters.is_cut {
        let message = "its schema has more parts, or refers to them more often, than can be looked \
                       at: what the rest lets through is not known";
        findings.add(Flaw::Broad, "/inputSchema", message);
    }
}

/// Every parameter, with those inside others.
pub fn parameters<'a>(tool: Value<'a>, schema: Option<Value<'a>>) -> Parameters<'a> {
    let mut gatherer = Gatherer::new(tool);
    if let Some(schema) = schema {
        gatherer.gather(schema, "/inputSchema", DEPTH);
    }
    Parameters { all: gatherer.all, is_cut: gatherer.is_cut }
}

struct Gatherer<'a> {
    tool: Value<'a>,
    all: Vec<Parameter<'a>>,
    /// Parts that may still be looked at.
    left: usize,
    is_cut: bool,
    /// Places that were looked into, and how much further from there.
    seen: HashMap<usize, usize>,
    /// Where references lead.
    targets: HashMap<Cow<'a, str>, Option<Value<'a>>>,
}

impl<'a> Gatherer<'a> {
    fn new(tool: Value<'a>) -> Self {
        let (seen, targets) = (HashMap::new(), HashMap::new());
        Self { tool, all: Vec::new(), left: PARTS, is_cut: false, seen, targets }
    }

    /// Whether there is room for a part more.
    fn spend(&mut self, part: Value<'a>) -> bool {
        let has_room = self.left > 0 && self.all.len() < PARAMETERS;
        self.left = self.left.saturating_sub(1 + part.raw().len() / LONG);
        self.is_cut |= !has_room;
        has_room
    }

    /// Whether a part was never looked into from here or further up.
    fn is_new(&mut self, schema: Value<'a>, depth: usize) -> bool {
        let known = self.seen.entry(schema.offset()).or_default();
        let is_new = *known < depth;
        *known = depth.max(*known);
        is_new
    }

    fn gather(&mut self, schema: Value<'a>, pointer: &str, depth: usize) {
        if depth == 0 || !self.spend(schema) {
            return;
        }
        for own in self.deref(schema) {
            if !self.is_new(own, depth) {
                continue;
            }
            let properties = own.get("properties").into_iter();
            for (key, value) in properties.flat_map(Value::members) {
                if !self.spend(value) {
                    return;
                }
                let name = key.unescaped().into_owned();
                let step = name.replace('~', "~0").replace('/', "~1");
                // What has a longer place is told at the place that it is in.
                let pointer = match pointer.len() + step.len() {
                    ..=MAX_POINTER => format!("{pointer}/properties/{step}"),
                    _ => pointer.to_owned(),
                };
                let parameter = self.parameter(name, pointer.clone(), value);
                self.all.push(parameter);
                self.gather(value, &pointer, depth - 1);
            }
            for member in ["items", "additionalProperties"] {
                if let Some(inner) = own.get(member).filter(|inner| inner.kind() == Kind::Object) {
                    self.gather(inner, &format!("{pointer}/{member}"), depth - 1);
                }
            }
            for member in ["anyOf", "oneOf", "allOf"] {
                let branches = own.get(member).filter(|list| list.kind() == Kind::Array);
                for (index, inner) in branches.into_iter().flat_map(Value::elements).enumerate() {
                    if !self.spend(inner) {
                        return;
                    }
                    self.gather(inner, &format!("{pointer}/{member}/{index}"), depth - 1);
                }
            }
        }
    }

    fn parameter(&mut self, name: String, pointer: String, schema: Value<'a>) -> Parameter<'a> {
        let mut schemas = self.deref(schema);
        let known = schemas.iter().take_while(|schema| self.spend(**schema)).count();
        schemas.truncate(known);
        let mut each = schemas.clone();
        for schema in &schemas {
            for list in ["anyOf", "oneOf", "allOf"] {
                let branches = schema.get(list).filter(|list| list.kind() == Kind::Array);
                for branch in branches.into_iter().flat_map(Value::elements) {
                    if !self.spend(branch) {
                        break;
                    }
                    each.push(branch);
                }
            }
        }
        Parameter { name, pointer, schemas, each }
    }

    /// A schema, and what its references lead to within the tool's schema.
    fn deref(&mut self, schema: Value<'a>) -> Vec<Value<'a>> {
        let mut found = vec![schema];
        while let Some(target) = found.last().and_then(|last| self.reference(*last)) {
            if found.len() > HOPS {
                break;
            }
            found.push(target);
        }
        found
    }

    fn reference(&mut self, schema: Value<'a>) -> Option<Value<'a>> {
        let path = schema.get("$ref").and_then(Value::as_str)?;
        if let Some(known) = self.targets.get(&path) {
            return *known;
        }
        let target = target(self.tool, &path);
        self.targets.insert(path, target);
        target
    }
}

fn target<'a>(tool: Value<'a>, path: &str) -> Option<Value<'a>> {
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
        self.each.iter().any(|schema| says(*schema, "description"))
    }

    fn is_free_object(&self) -> bool {
        let is_free = |schema: &Value<'_>| {
            is_of(*schema, "object")
                && !["properties", "patternProperties", "propertyNames", "anyOf", "oneOf", "allOf"]
                    .iter()
                    .any(|keyword| schema.get(keyword).is_some())
                && schema.get("additionalProperties").is_none_or(is_anything)
        };
        self.each.iter().any(is_free)
    }

    /// Whether it takes any text, or a list of any texts.
    pub fn is_free_text(&self) -> bool {
        self.each.iter().any(|schema| {
            let schema = *schema;
            let items = schema.get("items").filter(|items| items.kind() == Kind::Object);
            is_free_text(schema) || (is_of(schema, "array") && items.is_some_and(is_free_text))
        })
    }

    /// Every description that there is of it, in one.
    pub fn description(&self) -> String {
        let texts = self.each.iter().filter_map(|schema| schema.get("description"));
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

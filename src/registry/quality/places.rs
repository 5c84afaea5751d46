//! Every text of a definition, with its place.

use super::Findings;
use crate::json::{Kind, Value};

/// Where a text stands.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// JSON pointer into the definition.
    pub pointer: &'a str,
    pub role: Role,
    /// The text is under a name, in whatever depth, that secrets stand behind.
    pub is_sensitive: bool,
}

/// What a text is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A name: of the tool, or of a member.
    Name,
    /// Written to be read.
    Prose,
    /// A default, an example, a word of an enum.
    Value,
    /// What only a validator reads: a pattern, a reference.
    Syntax,
}

type See<'s> = dyn FnMut(&Place<'_>, &str, &mut Findings) + 's;

/// Shows every text of a member of the definition.
pub fn walk(value: Value<'_>, member: &str, findings: &mut Findings, see: &mut See<'_>) {
    let role = role_of(member).unwrap_or(Role::Prose);
    let mut walker = Walker { pointer: format!("/{member}"), see, findings };
    walker.value(value, role, false, false);
}

struct Walker<'s, 'v> {
    pointer: String,
    see: &'s mut See<'v>,
    findings: &'s mut Findings,
}

impl Walker<'_, '_> {
    /// `named`: the members of this object are named by whoever wrote the definition.
    fn value(&mut self, value: Value<'_>, role: Role, named: bool, is_sensitive: bool) {
        match value.kind() {
            Kind::String => {
                if let Some(text) = value.as_str() {
                    let place = Place { pointer: &self.pointer, role, is_sensitive };
                    (self.see)(&place, &text, self.findings);
                }
            }
            Kind::Array => {
                for (index, element) in value.elements().enumerate() {
                    let length = self.pointer.len();
                    self.pointer.push_str(&format!("/{index}"));
                    self.value(element, role, false, is_sensitive);
                    self.pointer.truncate(length);
                }
            }
            Kind::Object => {
                for (key, member) in value.members() {
                    self.member(&key.unescaped(), member, role, named, is_sensitive);
                }
            }
            _ => {}
        }
    }

    fn member(
        &mut self,
        name: &str,
        value: Value<'_>,
        role: Role,
        named: bool,
        is_sensitive: bool,
    ) {
        let length = self.pointer.len();
        self.pointer.push('/');
        self.pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        // Within a default or an example every member is a value, whatever its name.
        let is_data = role == Role::Value;
        let own = (!named && !is_data).then(|| role_of(name)).flatten();
        if own.is_none() {
            let place = Place { pointer: &self.pointer, role: Role::Name, is_sensitive: false };
            (self.see)(&place, name, self.findings);
        }
        let role = match own {
            Some(role) => role,
            None if is_data => Role::Value,
            None => Role::Prose,
        };
        let holds_named = !named && !is_data && NAMED.contains(&name);
        let is_sensitive =
            is_sensitive || ((named || is_data) && crate::model::sensitive::is_sensitive(name));
        self.value(value, role, holds_named, is_sensitive);
        self.pointer.truncate(length);
    }
}

/// Keywords whose object has names of its own.
const NAMED: [&str; 6] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
    "dependentRequired",
];

/// The role of what stands under a keyword; `None` for what is no keyword.
fn role_of(keyword: &str) -> Option<Role> {
    Some(match keyword {
        "name" => Role::Name,
        "description" | "title" | "$comment" => Role::Prose,
        "default" | "examples" | "example" | "enum" | "const" | "required" => Role::Value,
        "pattern" | "$ref" | "$schema" | "$id" | "$anchor" | "format" | "type"
        | "contentEncoding" | "contentMediaType" => Role::Syntax,
        "properties"
        | "patternProperties"
        | "$defs"
        | "definitions"
        | "dependentSchemas"
        | "dependentRequired"
        | "items"
        | "prefixItems"
        | "anyOf"
        | "oneOf"
        | "allOf"
        | "not"
        | "if"
        | "then"
        | "else"
        | "additionalProperties"
        | "propertyNames"
        | "inputSchema"
        | "outputSchema"
        | "annotations"
        | "minimum"
        | "maximum"
        | "exclusiveMinimum"
        | "exclusiveMaximum"
        | "minLength"
        | "maxLength"
        | "minItems"
        | "maxItems"
        | "uniqueItems"
        | "multipleOf"
        | "contains"
        | "unevaluatedProperties"
        | "readOnlyHint"
        | "destructiveHint"
        | "idempotentHint"
        | "openWorldHint"
        | "nullable"
        | "deprecated" => Role::Prose,
        _ => return None,
    })
}

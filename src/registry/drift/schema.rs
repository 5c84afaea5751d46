//! Differences between two schemas, keyword by keyword.
//!
//! A keyword says more or less of one place than before, and is classed by that. Where several
//! schemas bear on one place (`anyOf`, `$defs` and their like) a difference may mean anything, and
//! only what is nothing but text is told apart from `schema_changed`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Found, below, canonical, members, same};
use crate::{model::change::ChangeClass, registry::param_header::MARK};

/// Compares two schemas. One that is missing accepts everything.
pub(super) fn compare(old: Option<&Value>, new: Option<&Value>, pointer: &str, found: &mut Found) {
    if same(old, new) {
        return;
    }
    let nothing = Map::new();
    match (object(old, &nothing), object(new, &nothing)) {
        (Some(before), Some(after)) => {
            for keyword in members(before, after) {
                if !same(before.get(keyword), after.get(keyword)) {
                    Place { before, after, pointer }.keyword(keyword, found);
                }
            }
        }
        _ => found.add(ChangeClass::SchemaChanged, pointer, old, new),
    }
}

/// A schema as an object; `false` is none.
fn object<'a>(
    schema: Option<&'a Value>,
    nothing: &'a Map<String, Value>,
) -> Option<&'a Map<String, Value>> {
    match schema {
        None | Some(Value::Bool(true)) => Some(nothing),
        Some(Value::Object(members)) => Some(members),
        Some(_) => None,
    }
}

/// One place of a definition, before and after.
struct Place<'a> {
    before: &'a Map<String, Value>,
    after: &'a Map<String, Value>,
    pointer: &'a str,
}

/// Which way a bound binds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    Lower,
    Upper,
}

impl Place<'_> {
    /// A keyword whose value is another than it was.
    fn keyword(&self, keyword: &str, found: &mut Found) {
        let (old, new) = (self.before.get(keyword), self.after.get(keyword));
        let pointer = below(self.pointer, keyword);
        let mut is = |class| found.add(class, &pointer, old, new);
        match keyword {
            "title" | "description" | "$comment" | "examples" | "deprecated" | "readOnly"
            | "writeOnly" => is(ChangeClass::DescriptionChanged),
            "type" => is(ChangeClass::TypeChanged),
            "properties" => self.properties(found),
            "required" => self.required(found),
            "enum" => values(old, new, &pointer, found),
            "const" => {
                if new.is_some() {
                    is(ChangeClass::EnumNarrowed);
                }
                if old.is_some() {
                    is(ChangeClass::EnumWidened);
                }
            }
            "minimum" | "exclusiveMinimum" | "minLength" | "minItems" | "minProperties"
            | "minContains" => is(bound(Bound::Lower, old, new)),
            "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems" | "maxProperties"
            | "maxContains" => is(bound(Bound::Upper, old, new)),
            // What is asked otherwise than before may be asked of anybody.
            "pattern" | "format" | "multipleOf" | "contentEncoding" | "contentMediaType" => {
                is(if new.is_some() { TIGHTER } else { LOOSER });
            }
            "uniqueItems" => is(if new == Some(&Value::Bool(true)) { TIGHTER } else { LOOSER }),
            "items"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "unevaluatedItems"
            | "propertyNames"
            | "contains" => rest(old, new, &pointer, found),
            "anyOf" | "oneOf" | "allOf" | "prefixItems" | "$defs" | "definitions"
            | "patternProperties" | "dependentSchemas" | "not" | "if" | "then" | "else" => {
                tangled(old, new, &pointer, found);
            }
            MARK => is(ChangeClass::HeaderMarkChanged),
            _ => is(ChangeClass::SchemaChanged),
        }
    }

    fn properties(&self, found: &mut Found) {
        let pointer = below(self.pointer, "properties");
        let nothing = Map::new();
        let maps =
            |schema: &'_ Map<String, Value>| schema.get("properties").is_none_or(Value::is_object);
        if !maps(self.before) || !maps(self.after) {
            let (old, new) = (self.before.get("properties"), self.after.get("properties"));
            found.add(ChangeClass::SchemaChanged, &pointer, old, new);
            return;
        }
        let before = self.before.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let after = self.after.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let required: HashSet<&str> = names(self.after.get("required")).collect();
        for name in members(before, after) {
            let (old, new) = (before.get(name), after.get(name));
            let pointer = below(&pointer, name);
            match (old, new) {
                (Some(_), Some(_)) => compare(old, new, &pointer, found),
                (_, None) => found.add(ChangeClass::ParameterRemoved, &pointer, old, new),
                (None, _) if required.contains(name) => {
                    found.add(ChangeClass::ParameterAddedRequired, &pointer, old, new);
                }
                (None, _) => {
                    found.add(ChangeClass::ParameterAddedOptional, &pointer, old, new);
                }
            }
        }
    }

    /// What has to be given; of a parameter that came or went that was said already.
    fn required(&self, found: &mut Found) {
        let pointer = below(self.pointer, "required");
        let (old, new) = (self.before.get("required"), self.after.get("required"));
        let texts = |value: Option<&Value>| {
            value.is_none_or(|value| {
                value.as_array().is_some_and(|all| all.iter().all(Value::is_string))
            })
        };
        if !texts(old) || !texts(new) {
            found.add(ChangeClass::SchemaChanged, &pointer, old, new);
            return;
        }
        let (before, after): (HashSet<_>, HashSet<_>) =
            (names(old).collect(), names(new).collect());
        let has = |schema: &Map<String, Value>, name: &str| {
            schema.get("properties").is_some_and(|all| all.get(name).is_some())
        };
        for name in names(new).filter(|name| !before.contains(name)) {
            if has(self.before, name) || !has(self.after, name) {
                let name = Value::from(name);
                found.add(ChangeClass::RequiredAdded, &pointer, None, Some(&name));
            }
        }
        for name in names(old).filter(|name| !after.contains(name)) {
            if has(self.after, name) || !has(self.before, name) {
                let name = Value::from(name);
                found.add(ChangeClass::RequiredRemoved, &pointer, Some(&name), None);
            }
        }
    }
}

const TIGHTER: ChangeClass = ChangeClass::ConstraintTightened;
const LOOSER: ChangeClass = ChangeClass::ConstraintLoosened;

/// The names in a list of them.
fn names(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The values that are let through.
fn values(old: Option<&Value>, new: Option<&Value>, pointer: &str, found: &mut Found) {
    let list = |value: Option<&Value>| -> Option<HashSet<Vec<u8>>> {
        let all = value?.as_array()?;
        Some(all.iter().map(canonical).collect())
    };
    let (widened, narrowed) = match (list(old), list(new)) {
        (Some(before), Some(after)) => (!after.is_subset(&before), !before.is_subset(&after)),
        (None, Some(_)) if old.is_none() => (false, true),
        (Some(_), None) if new.is_none() => (true, false),
        _ => return found.add(ChangeClass::SchemaChanged, pointer, old, new),
    };
    if widened {
        found.add(ChangeClass::EnumWidened, pointer, old, new);
    }
    if narrowed {
        found.add(ChangeClass::EnumNarrowed, pointer, old, new);
    }
    if !widened && !narrowed {
        // The same ones, in another order.
        found.add(ChangeClass::DescriptionChanged, pointer, old, new);
    }
}

fn bound(bound: Bound, old: Option<&Value>, new: Option<&Value>) -> ChangeClass {
    let number = |value: &Value| value.as_f64().filter(|number| number.is_finite());
    match (old, new) {
        (Some(_), None) => LOOSER,
        (None, Some(new)) if number(new).is_some() => TIGHTER,
        (Some(old), Some(new)) => match (number(old), number(new)) {
            (Some(old), Some(new)) if old == new => ChangeClass::SchemaChanged,
            (Some(old), Some(new)) => {
                if (new > old) == (bound == Bound::Lower) {
                    TIGHTER
                } else {
                    LOOSER
                }
            }
            _ => ChangeClass::SchemaChanged,
        },
        // The older drafts' truth values bear on another keyword.
        _ => ChangeClass::SchemaChanged,
    }
}

/// What may be there beside what is named: everything, nothing, or what a schema lets through.
fn rest(old: Option<&Value>, new: Option<&Value>, pointer: &str, found: &mut Found) {
    let all = |schema: Option<&Value>| match schema {
        None => true,
        Some(Value::Bool(open)) => *open,
        Some(Value::Object(members)) => members.is_empty(),
        Some(_) => false,
    };
    let schema = |value: Option<&Value>| value.is_none_or(|it| it.is_boolean() || it.is_object());
    let closed = |schema: Option<&Value>| schema == Some(&Value::Bool(false));
    let class = match () {
        () if !schema(old) || !schema(new) => ChangeClass::SchemaChanged,
        // Two ways to say that anything goes.
        () if all(old) && all(new) => ChangeClass::DescriptionChanged,
        () if all(old) || closed(new) => TIGHTER,
        () if all(new) || closed(old) => LOOSER,
        () => return compare(old, new, pointer, found),
    };
    found.add(class, pointer, old, new);
}

/// Schemas that bear on a place together with others.
fn tangled(old: Option<&Value>, new: Option<&Value>, pointer: &str, found: &mut Found) {
    let mut inside = Found::default();
    match (old, new) {
        (Some(Value::Array(before)), Some(Value::Array(after))) if before.len() == after.len() => {
            for (index, (old, new)) in before.iter().zip(after).enumerate() {
                compare(Some(old), Some(new), &below(pointer, &index.to_string()), &mut inside);
            }
        }
        (Some(Value::Object(before)), Some(Value::Object(after))) if is_map(pointer) => {
            for name in members(before, after) {
                match (before.get(name), after.get(name)) {
                    (Some(old), Some(new)) => {
                        compare(Some(old), Some(new), &below(pointer, name), &mut inside);
                    }
                    (old, new) => {
                        inside.add(ChangeClass::SchemaChanged, &below(pointer, name), old, new);
                    }
                }
            }
        }
        (Some(_), Some(_)) if !is_list(pointer) => compare(old, new, pointer, &mut inside),
        _ => inside.add(ChangeClass::SchemaChanged, pointer, old, new),
    }
    for mut difference in inside.all {
        if difference.class != ChangeClass::DescriptionChanged {
            difference.class = ChangeClass::SchemaChanged;
        }
        found.keep(difference);
    }
}

/// Whether a keyword has schemas by names.
fn is_map(pointer: &str) -> bool {
    ["/$defs", "/definitions", "/patternProperties", "/dependentSchemas"]
        .iter()
        .any(|keyword| pointer.ends_with(keyword))
}

fn is_list(pointer: &str) -> bool {
    ["/anyOf", "/oneOf", "/allOf", "/prefixItems"].iter().any(|keyword| pointer.ends_with(keyword))
}

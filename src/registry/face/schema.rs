//! A tool's `inputSchema` without what callers do not see, and with what is said instead of it.
//!
//! The text is changed in places and otherwise stays. Arguments are found where a schema plainly
//! has them: at its top, in the parts of an `allOf`, and behind a `$ref` that only this place
//! uses. What stands under a choice or a condition is left alone; where such a part speaks of an
//! argument that is to go, the schema is refused, since what would be left says something else.

use std::collections::{HashMap, HashSet};

use super::{FaceFault, FaceParameter, Fill, Form, Vain, Withheld, describe, insert, member};
use crate::json::{self, Doc, Kind, Value, splice::Edits};

/// What came of a face besides the text.
#[derive(Debug, Default)]
pub(super) struct Edited {
    pub withheld: Vec<Withheld>,
    pub vain: Vec<Vain>,
}

/// Keywords whose subschemas hold of the same arguments, but not for certain.
const CHOICES: [&str; 6] = ["anyOf", "oneOf", "not", "if", "then", "else"];

/// Keywords beside which `type` does not tell everything.
const CLEVER: [&str; 5] = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf"];

/// How deep `allOf` and `$ref` are followed.
const DEPTH: usize = 16;

/// An argument that goes, and whether the server is always sent it.
struct Gone<'p> {
    name: &'p str,
    filled: bool,
}

/// Notes in `edits` how the schema of a tool changes.
pub(super) fn edit(
    doc: &Doc,
    schema: Option<Value<'_>>,
    parameters: &[FaceParameter],
    edits: &mut Edits,
) -> Result<Edited, FaceFault> {
    let mut edited = Edited::default();
    let levels = schema.map(Levels::of).unwrap_or_default();
    let mut gone = Vec::new();
    for parameter in parameters {
        let found = levels.property(&parameter.name);
        if parameter.hidden {
            let withheld = withhold(parameter, found, &levels)?;
            let filled = !matches!(withheld.fill, Fill::Nothing);
            gone.push(Gone { name: &parameter.name, filled });
            edited.withheld.push(withheld);
        } else if let Some(property) = found {
            retell(parameter, property, edits, &mut edited.vain)?;
        }
        if found.is_none() && !parameter.if_known {
            edited.vain.push(Vain::Parameter(parameter.name.clone()));
        }
    }
    if !gone.is_empty() {
        for target in &levels.shared {
            entangled(*target, &gone, "$ref")?;
        }
        for level in &levels.all {
            remove(doc, *level, &gone, edits)?;
        }
        if let Some(schema) = schema {
            let samples = schema.get("examples").into_iter().flat_map(Value::elements);
            for sample in schema.get("default").into_iter().chain(samples) {
                edits.remove(doc, sample, |key| gone.iter().any(|gone| key.is(gone.name)));
            }
        }
    }
    Ok(edited)
}

/// What the server is sent of an argument that callers do not see.
fn withhold(
    parameter: &FaceParameter,
    found: Option<Value<'_>>,
    levels: &Levels<'_>,
) -> Result<Withheld, FaceFault> {
    let name = parameter.name.clone();
    let known = found.is_some() || levels.require(&name);
    let fill = match &parameter.value {
        Some(_) if !known && parameter.if_known => Fill::Nothing,
        Some(template) => {
            let types = found.map(types).unwrap_or_default();
            let form = Form::of(&types).ok_or_else(|| FaceFault::Type(name.clone()))?;
            match template.constant() {
                Some(text) => {
                    let value = form.written(&text);
                    Fill::Constant(value.ok_or_else(|| FaceFault::Value(name.clone()))?)
                }
                None => Fill::Template(template.clone(), form),
            }
        }
        None if !levels.require(&name) => Fill::Nothing,
        None => match found.and_then(|property| property.get("default")) {
            Some(default) => Fill::Constant(default.raw().into()),
            None => return Err(FaceFault::NoValue(name)),
        },
    };
    Ok(Withheld { name, fill })
}

/// The types that an argument may have; none where its schema does not plainly say.
fn types(property: Value<'_>) -> Vec<String> {
    if CLEVER.iter().any(|key| property.get(key).is_some()) {
        return Vec::new();
    }
    let Some(given) = property.get("type") else { return Vec::new() };
    match given.as_str() {
        Some(one) => vec![one.into_owned()],
        None => given.elements().filter_map(|one| one.as_str().map(Into::into)).collect(),
    }
}

// === What is said instead ===

fn retell(
    parameter: &FaceParameter,
    property: Value<'_>,
    edits: &mut Edits,
    vain: &mut Vec<Vain>,
) -> Result<(), FaceFault> {
    let words = match &parameter.allowed {
        Some(allowed) => Some(narrowed(&parameter.name, allowed, property, vain)?),
        None => None,
    };
    if property.kind() != Kind::Object || (words.is_some() && property.get("$ref").is_some()) {
        // Older drafts look at nothing beside a `$ref`.
        let whole = property.offset()..property.offset() + property.raw().len();
        edits.put(whole, wrapped(parameter, property, words.as_deref()));
        return Ok(());
    }
    let mut new = Vec::new();
    if let Some(words) = words {
        match property.get("enum") {
            Some(own) => {
                let span = own.offset()..own.offset() + own.raw().len();
                edits.put(span, list(&words));
            }
            None => new.push(member("enum", |out| out.extend(list(&words)))),
        }
    }
    match (&parameter.description, property.get("description")) {
        (Some(text), None) => new.push(member("description", |out| json::write_str(out, text))),
        (Some(text), Some(_)) => describe(property, text, edits),
        (None, _) => {}
    }
    if !new.is_empty() {
        insert(property, new, edits);
    }
    Ok(())
}

/// A schema with words around one that cannot hold them itself.
fn wrapped(parameter: &FaceParameter, property: Value<'_>, words: Option<&[&str]>) -> Vec<u8> {
    let mut members = Vec::new();
    if property.kind() != Kind::True {
        members.push(member("allOf", |out| {
            out.push(b'[');
            out.extend_from_slice(property.raw());
            out.push(b']');
        }));
    }
    if let Some(text) = &parameter.description {
        members.push(member("description", |out| json::write_str(out, text)));
    }
    if let Some(words) = words {
        members.push(member("enum", |out| out.extend(list(words))));
    }
    [&b"{"[..], &members.join(&b','), b"}"].concat()
}

/// The words of these that the argument takes.
fn narrowed<'p>(
    name: &str,
    allowed: &'p [Box<str>],
    property: Value<'_>,
    vain: &mut Vec<Vain>,
) -> Result<Vec<&'p str>, FaceFault> {
    let types = types(property);
    let is_text = types.is_empty() || types.iter().any(|kind| kind == "string");
    let takes = |word: &str| {
        let own = property.get("enum");
        is_text && own.is_none_or(|own| own.elements().any(|own| own.is_str(word)))
    };
    let (left, out): (Vec<&str>, Vec<&str>) =
        allowed.iter().map(|word| &**word).partition(|word| takes(word));
    if left.is_empty() {
        return Err(FaceFault::NoWord(name.into()));
    }
    vain.extend(out.into_iter().map(|word| Vain::Word(name.into(), word.into())));
    Ok(left)
}

fn list(words: &[&str]) -> Vec<u8> {
    let mut out = vec![b'['];
    for (number, word) in words.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        json::write_str(&mut out, word);
    }
    out.push(b']');
    out
}

// === What goes ===

/// Takes arguments out of one level of a schema.
fn remove(
    doc: &Doc,
    level: Value<'_>,
    gone: &[Gone<'_>],
    edits: &mut Edits,
) -> Result<(), FaceFault> {
    for key in CHOICES {
        if let Some(choice) = level.get(key) {
            entangled(choice, gone, key)?;
        }
    }
    if let Some(properties) = level.get("properties") {
        edits.remove(doc, properties, |key| gone.iter().any(|gone| key.is(gone.name)));
    }
    let mut also: Vec<Vec<u8>> = Vec::new();
    for key in ["dependentRequired", "dependentSchemas", "dependencies"] {
        let Some(dependencies) = level.get(key) else { continue };
        for (name, needed) in dependencies.members() {
            let own = gone.iter().find(|gone| name.is(gone.name));
            match (own, needed.kind()) {
                // It is never there, and so asks for nothing.
                (Some(Gone { filled: false, .. }), _) => {}
                // It always is.
                (Some(own), Kind::Array) => {
                    for needed in needed.elements() {
                        let too = gone.iter().find(|gone| needed.is_str(gone.name));
                        match too {
                            Some(too) if !too.filled => return Err(tangle(own, key)),
                            Some(_) => {}
                            None => also.push(needed.raw().to_vec()),
                        }
                    }
                }
                (Some(own), _) => return Err(tangle(own, key)),
                (None, Kind::Array) => without(needed, gone, key, &[], edits)?,
                (None, _) => entangled(needed, gone, key)?,
            }
        }
        edits.remove(doc, dependencies, |key| gone.iter().any(|gone| key.is(gone.name)));
    }
    match level.get("required") {
        // What is required and never sent has no value, which was refused before.
        Some(required) => without(required, gone, "required", &also, edits)?,
        None if !also.is_empty() => {
            let list = [&b"["[..], &also.join(&b','), b"]"].concat();
            insert(level, vec![member("required", |out| out.extend(list))], edits);
        }
        None => {}
    }
    recount(level, gone, edits);
    Ok(())
}

/// Takes the names of arguments out of a list of names, and puts others in.
fn without(
    names: Value<'_>,
    gone: &[Gone<'_>],
    key: &'static str,
    also: &[Vec<u8>],
    edits: &mut Edits,
) -> Result<(), FaceFault> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut changed = false;
    for name in names.elements() {
        match gone.iter().find(|gone| name.is_str(gone.name)) {
            Some(gone) if !gone.filled => return Err(tangle(gone, key)),
            Some(_) => changed = true,
            None => kept.push(name.raw()),
        }
    }
    let mut known: HashSet<&[u8]> = kept.iter().copied().collect();
    for name in also {
        if known.insert(name) {
            kept.push(name);
            changed = true;
        }
    }
    if changed {
        let list = [&b"["[..], &kept.join(&b','), b"]"].concat();
        edits.put(names.offset()..names.offset() + names.raw().len(), list);
    }
    Ok(())
}

/// Callers send as many arguments fewer as the gateway sends.
fn recount(level: Value<'_>, gone: &[Gone<'_>], edits: &mut Edits) {
    let own = gone.iter().filter(|gone| gone.filled).count();
    for key in ["minProperties", "maxProperties"] {
        let Some(bound) = level.get(key).filter(|_| own > 0) else { continue };
        let own = i64::try_from(own).unwrap_or(i64::MAX);
        if let Some(number) = bound.as_i64() {
            let left = number.saturating_sub(own).max(0);
            let span = bound.offset()..bound.offset() + bound.raw().len();
            edits.put(span, left.to_string());
        }
    }
}

fn tangle(gone: &Gone<'_>, key: &'static str) -> FaceFault {
    FaceFault::Entangled(gone.name.into(), key)
}

/// Refuses a part of a schema that speaks of what goes.
fn entangled(part: Value<'_>, gone: &[Gone<'_>], key: &'static str) -> Result<(), FaceFault> {
    match gone.iter().find(|gone| mentions(part, gone.name)) {
        Some(gone) => Err(tangle(gone, key)),
        None => Ok(()),
    }
}

/// Whether a name stands anywhere in a part of a schema. Nesting was bounded when it was listed.
fn mentions(part: Value<'_>, name: &str) -> bool {
    part.is_str(name)
        || part.elements().any(|element| mentions(element, name))
        || part.members().any(|(key, value)| key.is(name) || mentions(value, name))
}

// === Levels ===

/// The parts of a schema that all hold of the arguments themselves.
#[derive(Default)]
struct Levels<'a> {
    all: Vec<Value<'a>>,
    /// What other parts refer to as well, and so must stay as it is.
    shared: Vec<Value<'a>>,
}

impl<'a> Levels<'a> {
    fn of(schema: Value<'a>) -> Self {
        let mut uses = HashMap::new();
        count_references(schema, &mut uses);
        let mut levels = Self::default();
        levels.add(schema, schema, &uses, &mut HashSet::new(), DEPTH);
        levels
    }

    fn add(
        &mut self,
        schema: Value<'a>,
        at: Value<'a>,
        uses: &HashMap<String, usize>,
        seen: &mut HashSet<usize>,
        depth: usize,
    ) {
        if at.kind() != Kind::Object || depth == 0 || !seen.insert(at.offset()) {
            return;
        }
        self.all.push(at);
        for part in at.get("allOf").into_iter().flat_map(Value::elements) {
            self.add(schema, part, uses, seen, depth - 1);
        }
        let Some(reference) = at.get("$ref").and_then(Value::as_str) else { return };
        let Some(target) = defined(schema, &reference) else { return };
        if uses.get(&*reference) == Some(&1) {
            self.add(schema, target, uses, seen, depth - 1);
        } else if seen.insert(target.offset()) {
            self.shared.push(target);
        }
    }

    /// The schema of an argument, where it is said first.
    fn property(&self, name: &str) -> Option<Value<'a>> {
        self.all.iter().find_map(|level| level.get("properties")?.get(name))
    }

    fn require(&self, name: &str) -> bool {
        let required = self.all.iter().filter_map(|level| level.get("required"));
        required.into_iter().any(|names| names.elements().any(|own| own.is_str(name)))
    }
}

/// The definition that a reference names: one of the schema's own, and nothing within it.
fn defined<'a>(schema: Value<'a>, reference: &str) -> Option<Value<'a>> {
    let (key, name) = reference.strip_prefix("#/")?.split_once('/')?;
    let is_name = !name.contains(['/', '~', '%']);
    schema.get(key).filter(|_| is_name && matches!(key, "$defs" | "definitions"))?.get(name)
}

fn count_references(part: Value<'_>, uses: &mut HashMap<String, usize>) {
    for element in part.elements() {
        count_references(element, uses);
    }
    for (key, value) in part.members() {
        match value.as_str().filter(|_| key.is("$ref")) {
            Some(reference) => *uses.entry(reference.into_owned()).or_default() += 1,
            None => count_references(value, uses),
        }
    }
}

//! A tool, ready to have the calls of many steps held against it.
//!
//! The tool's schema is its server's text and the steps are their author's, and there may be much
//! of both: names are looked up in tables, and how much is compared and guessed is bounded.

use std::collections::{BTreeMap, HashSet};

use super::{
    Binding, Call, Fault, FaultKind, MAX_FAULTS,
    compile::{Found, Misfit, Tools, Validator, credential, fault},
    path::{VALUES, escaped},
};
use crate::json::{Doc, Kind, Value, write_str};

/// What all constants of a list may cost to be held against schemas: some seconds of a core where
/// all is made to take as long as it can.
const MAX_WORK: u64 = 1 << 32;

/// Unknown names for which one is looked for that may be meant.
const MAX_GUESSES: usize = 8;
/// The longest name that is guessed at, in bytes.
const MAX_GUESSED: usize = 64;
/// Names of a tool that are looked at for it.
const MAX_CANDIDATES: usize = 1_000;

/// A tool with its schema, made ready.
pub(super) struct Known<V> {
    pub found: Found,
    /// The inputs that its schema names, and whether each takes a text.
    inputs: BTreeMap<Box<str>, bool>,
    required: Vec<Box<str>>,
    /// There are no others.
    closed: bool,
    whole: Option<V>,
    /// Without what is said of several inputs together.
    each: Option<V>,
}

/// What a list of steps may still cost.
pub(super) struct Room {
    work: u64,
    guesses: usize,
}

impl<V: Validator> Known<V> {
    pub fn new<T: Tools<Validator = V>>(found: Found, tools: &T) -> Self {
        let doc = found.schema.clone().and_then(|schema| Doc::parse(schema, &VALUES).ok());
        let whole = found.schema.as_ref().and_then(|schema| tools.validator(schema));
        let each = doc.as_ref().and_then(|doc| tools.validator(&of_each(doc.root())));
        let schema = doc.as_ref().map(Doc::root);
        let closed = schema.is_some_and(|schema| {
            schema.get("additionalProperties").and_then(Value::as_bool) == Some(false)
                && schema.get("patternProperties").is_none()
        });
        let all = |name: &str| schema.and_then(|schema| schema.get(name));
        let inputs = all("properties").into_iter().flat_map(Value::members);
        let inputs = inputs.map(|(key, input)| (key.unescaped().into(), takes_text(input)));
        let required = all("required").into_iter().flat_map(Value::elements);
        let required = required.filter_map(Value::as_str).map(Into::into);
        Self { inputs: inputs.collect(), required: required.collect(), closed, found, whole, each }
    }

    pub fn call(&self, call: &Call, broken: &[Box<str>], room: &mut Room, faults: &mut Vec<Fault>) {
        let before = faults.len();
        let names = call.inputs.iter().map(|input| &*input.name);
        let names: HashSet<&str> = names.chain(broken.iter().map(|name| &**name)).collect();
        let bound = |name: &str| names.contains(name);
        for name in &self.required {
            if faults.len() >= MAX_FAULTS {
                return;
            }
            if !bound(name) && self.found.key_input.as_deref() != Some(&**name) {
                let message =
                    format!("`{}` needs the input `{name}`, which has no binding", call.tool);
                let pointer = format!("{}/mcp/inputBindings", call.pointer());
                faults.push(fault(Some(call.index), pointer, FaultKind::MissingInput, message));
            }
        }
        let (mut constants, mut all) = (vec![b'{'], broken.is_empty());
        for input in &call.inputs {
            if faults.len() >= MAX_FAULTS {
                return;
            }
            let pointer = call.input_pointer(&input.name);
            if let Some(message) = self.unknown(&input.name, room) {
                faults.push(fault(Some(call.index), pointer, FaultKind::UnknownInput, message));
                continue;
            }
            match &input.binding {
                Binding::Const(_) if credential(&input.name, &input.binding).is_some() => {
                    all = false
                }
                Binding::Const(value) => {
                    let mut alone = vec![b'{'];
                    for out in [&mut alone, &mut constants] {
                        if out.len() > 1 {
                            out.push(b',');
                        }
                        write_str(out, &input.name);
                        out.push(b':');
                        out.extend_from_slice(value);
                    }
                    alone.push(b'}');
                    faults.extend(room.check(self.each.as_ref(), &alone, call));
                }
                Binding::PageUrl(_) => {
                    all = false;
                    if self.inputs.get(&input.name) == Some(&false) {
                        let message = "`page.url` gives a text, and this input takes none: give \
                                       the value in a field of the page's context"
                            .to_owned();
                        let kind = FaultKind::WrongValue;
                        faults.push(fault(Some(call.index), pointer, kind, message));
                    }
                }
                Binding::Page { .. } | Binding::Step { .. } => all = false,
            }
        }
        constants.push(b'}');
        // What the schema says of several inputs together can be told where all are known.
        let keyed = self.found.key_input.as_ref().is_some_and(|name| !bound(name));
        if all && !keyed && faults.len() == before {
            faults.extend(room.check(self.whole.as_ref(), &constants, call));
        }
    }

    /// Whether an input is none of the tool's: where the schema is closed, or it is withheld.
    fn unknown(&self, name: &str, room: &mut Room) -> Option<String> {
        let withheld = self.found.withheld.iter().any(|withheld| **withheld == *name);
        if !withheld && (self.inputs.contains_key(name) || !self.closed) {
            return None;
        }
        Some(match room.nearest(name, self.inputs.keys()) {
            Some(near) => format!("the tool has no input of this name: is `{near}` meant?"),
            None => "the tool has no input of this name".to_owned(),
        })
    }
}

// === impl Room ===

impl Default for Room {
    fn default() -> Self {
        Self { work: MAX_WORK, guesses: MAX_GUESSES }
    }
}

impl Room {
    /// Holds arguments against a schema, as long as there is room for it.
    fn check<V: Validator>(
        &mut self,
        validator: Option<&V>,
        arguments: &[u8],
        call: &Call,
    ) -> Option<Fault> {
        let validator = validator?;
        match self.work.checked_sub(validator.work(arguments.len())) {
            Some(left) => {
                self.work = left;
                validator.check(arguments).err().map(|misfit| wrong(call, misfit))
            }
            None => {
                let pointer = format!("{}/mcp/inputBindings", call.pointer());
                let message = "the constants of these steps are too many, or too long, to be held \
                               against the schemas of their tools at once";
                Some(fault(Some(call.index), pointer, FaultKind::WrongValue, message.to_owned()))
            }
        }
    }

    /// What may be meant by a name.
    fn nearest<'n>(
        &mut self,
        name: &str,
        known: impl Iterator<Item = &'n Box<str>>,
    ) -> Option<&'n str> {
        if self.guesses == 0 || name.len() > MAX_GUESSED {
            return None;
        }
        self.guesses -= 1;
        let known = known.filter(|known| known.len() <= MAX_GUESSED).take(MAX_CANDIDATES);
        let scored = known.map(|known| (strsim::jaro_winkler(known, name), &**known));
        let near = scored.max_by(|(a, _), (b, _)| a.total_cmp(b));
        near.filter(|(score, _)| *score > 0.8).map(|(_, near)| near)
    }
}

/// Whether an input takes a text, as far as its schema plainly says.
fn takes_text(input: Value<'_>) -> bool {
    let Some(kinds) = input.get("type") else { return true };
    match kinds.kind() {
        Kind::String => kinds.is_str("string"),
        Kind::Array => kinds.elements().any(|kind| kind.is_str("string")),
        _ => true,
    }
}

fn wrong(call: &Call, misfit: Misfit) -> Fault {
    let Misfit { pointer, message } = misfit;
    let (input, within) = match pointer.strip_prefix('/') {
        Some(rest) => match rest.find('/') {
            Some(at) => (rest.get(..at), rest.get(at..).unwrap_or_default()),
            None => (Some(rest), ""),
        },
        None => (None, ""),
    };
    let bound = |escaped_name: &str| call.inputs.iter().any(|i| escaped(&i.name) == escaped_name);
    let at = match input.filter(|input| bound(input)) {
        Some(input) => format!("/{input}/value{within}"),
        None => String::new(),
    };
    let pointer = format!("{}/mcp/inputBindings{at}", call.pointer());
    fault(Some(call.index), pointer, FaultKind::WrongValue, message)
}

/// A schema without what it says of several inputs together, so that one can be looked at alone.
fn of_each(schema: Value<'_>) -> Vec<u8> {
    const TOGETHER: [&str; 16] = [
        "$ref",
        "$dynamicRef",
        "required",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "minProperties",
        "maxProperties",
        "unevaluatedProperties",
    ];
    let mut out = vec![b'{'];
    for (key, value) in schema.members() {
        if TOGETHER.iter().any(|name| key.is(name)) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(key.raw());
        out.extend_from_slice(b"\":");
        out.extend_from_slice(value.raw());
    }
    out.push(b'}');
    out
}

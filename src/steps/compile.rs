//! Checks steps against each other and against the tools that there are.
//!
//! A compilation makes no call and knows nothing of who will run the steps. It gathers every
//! fault. A binding whose value is known only when the steps run is checked then, with the whole
//! call, by whoever makes it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use super::{
    Binding, Call, Compiled, Fault, FaultKind, Step,
    constant::suspect,
    path::{VALUES, escaped},
    read::{Draft, drafts},
};
use crate::json::{Doc, Kind, Value, write_str};

/// The tools that steps can name.
pub trait Tools {
    type Validator: Validator;

    /// A tool by the key of its server and its name there.
    ///
    /// # Errors
    /// There is none to be compiled against.
    fn find(&self, server_key: &str, tool: &str) -> Result<Found, Unfound>;

    /// Makes a schema ready; nothing, where it is none that can be used.
    fn validator(&self, schema: &[u8]) -> Option<Self::Validator>;
}

/// Holds arguments against a schema.
pub trait Validator {
    /// # Errors
    /// The first thing that is wrong.
    fn check(&self, arguments: &[u8]) -> Result<(), Misfit>;
}

/// Where arguments do not fit, as a JSON pointer into them, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    pub pointer: String,
    pub message: String,
}

/// A tool, as far as steps are about it.
#[derive(Debug, Clone)]
pub struct Found {
    /// Of its definition.
    pub digest: [u8; 32],
    /// As callers see it; without one every object is accepted.
    pub schema: Option<Bytes>,
    /// The input that an idempotency key goes into where no binding gives it.
    pub key_input: Option<Box<str>>,
    /// Inputs that are in no schema that callers see, and not theirs to give.
    pub withheld: Vec<Box<str>>,
}

/// Why there is no tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfound {
    Server,
    Tool,
    /// Its server was never listed.
    NotListed,
    /// None of its definitions was ever approved.
    NotApproved,
}

/// Checks steps, of which there may be so many.
///
/// # Errors
/// All faults, in the order of the steps.
pub fn compile(steps: Value<'_>, tools: &impl Tools, max: usize) -> Result<Compiled, Vec<Fault>> {
    if steps.kind() == Kind::Array && steps.elements().nth(max).is_some() {
        let message = format!("there are more than {max} steps, which is as many as may be");
        let pointer = "/steps".to_owned();
        return Err(vec![Fault { step: None, pointer, kind: FaultKind::TooMany, message }]);
    }
    let (drafts, mut faults) = drafts(steps);
    in_order(&drafts, &mut faults);
    variables(&drafts, &mut faults);
    let mut definitions = BTreeMap::new();
    let mut against = Against { tools, known: HashMap::new(), faults: &mut faults };
    for draft in &drafts {
        let Step::Call(call) = &draft.step else { continue };
        credentials(call, against.faults);
        if draft.names_tool
            && let Some(digest) = against.call(call, &draft.broken)
        {
            definitions.insert(call.index, digest);
        }
    }
    if faults.is_empty() {
        Ok(Compiled { steps: drafts.into_iter().map(|draft| draft.step).collect(), definitions })
    } else {
        // Each step's together, in the order in which they were found.
        faults.sort_by_key(|fault| place_of(&fault.pointer));
        Err(faults)
    }
}

/// The place of the step that a pointer leads into.
fn place_of(pointer: &str) -> usize {
    let place = pointer.strip_prefix("/steps/").map(|rest| rest.split('/').next().unwrap_or(rest));
    place.and_then(|place| place.parse().ok()).unwrap_or(0)
}

fn fault(step: Option<u64>, pointer: String, kind: FaultKind, message: String) -> Fault {
    Fault { step, pointer, kind, message }
}

/// Steps run in the order in which they stand, so their indices rise.
fn in_order(drafts: &[Draft], faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    let mut highest = None;
    let unread = |draft: &Draft, faults: &[Fault]| {
        let at = format!("/steps/{}/stepIndex", place(&draft.step));
        faults.iter().any(|fault| fault.pointer == at)
    };
    for draft in drafts {
        let Some(index) = draft.step.index().filter(|_| !unread(draft, faults)) else { continue };
        let pointer = format!("/steps/{}/stepIndex", place(&draft.step));
        if !seen.insert(index) {
            let message = format!("another step has the stepIndex {index} already");
            faults.push(fault(Some(index), pointer, FaultKind::DuplicateIndex, message));
        } else if let Some(before) = highest.filter(|before| *before > index) {
            let message = format!(
                "stepIndex {index} stands behind {before}: steps run in the order in which they stand"
            );
            faults.push(fault(Some(index), pointer, FaultKind::StepOrder, message));
        }
        highest = highest.max(Some(index));
    }
}

fn place(step: &Step) -> usize {
    match step {
        Step::Call(call) => call.place,
        Step::Other(other) => other.place,
    }
}

/// Every variable that is used is saved by an earlier step, and saved once.
fn variables(drafts: &[Draft], faults: &mut Vec<Fault>) {
    let mut saved: HashMap<&str, usize> = HashMap::new();
    for (number, draft) in drafts.iter().enumerate() {
        let Some(name) = draft.step.save_as() else { continue };
        if saved.contains_key(name) {
            let member = if matches!(draft.step, Step::Call(_)) { "mcp/saveAs" } else { "saveAs" };
            let pointer = format!("/steps/{}/{member}", place(&draft.step));
            let message = format!("an earlier step saves `{name}` already");
            let step = draft.step.index();
            faults.push(fault(step, pointer, FaultKind::DuplicateVariable, message));
        } else {
            saved.insert(name, number);
        }
    }
    for (number, draft) in drafts.iter().enumerate() {
        let Step::Call(call) = &draft.step else { continue };
        let inputs = call.inputs.iter();
        let inputs = inputs.map(|input| (call.input_pointer(&input.name), &input.binding));
        for (pointer, binding) in inputs.chain(call.key.iter().map(|key| (call.key_pointer(), key)))
        {
            let Binding::Step { name, .. } = binding else { continue };
            let (kind, why) = match saved.get(&**name) {
                Some(by) if *by < number => continue,
                Some(_) => (FaultKind::UsedBeforeDefined, "is saved by no earlier step"),
                None => (FaultKind::UnknownVariable, "is saved by no step"),
            };
            let message = format!("`{name}` {why}");
            faults.push(fault(Some(call.index), format!("{pointer}/source"), kind, message));
        }
    }
}

/// A step is stored and shown: no credential may stand in it.
fn credentials(call: &Call, faults: &mut Vec<Fault>) {
    let inputs = call.inputs.iter();
    let inputs = inputs.map(|i| (&*i.name, call.input_pointer(&i.name), &i.binding));
    // Its own name says nothing: a key of this kind is no secret.
    let key = call.key.iter().map(|key| ("", call.key_pointer(), key));
    for (name, pointer, binding) in inputs.chain(key) {
        if let Some(why) = credential(name, binding) {
            let message = format!(
                "this constant {}: credentials stay in the gateway, and are no part of a step",
                why.why
            );
            let pointer = format!("{pointer}/value{}", why.pointer);
            faults.push(fault(Some(call.index), pointer, FaultKind::Credential, message));
        }
    }
}

fn credential(name: &str, binding: &Binding) -> Option<super::constant::Suspect> {
    let Binding::Const(value) = binding else { return None };
    let doc = Doc::parse(value.clone(), &VALUES).ok()?;
    suspect(name, doc.root())
}

/// A tool as steps name it: server and name.
type Named = (Box<str>, Box<str>);

/// What became of looking for it.
type Looked<V> = Result<Known<V>, Unfound>;

/// What calls are held against.
struct Against<'a, T: Tools> {
    tools: &'a T,
    /// Steps often name the same one again.
    known: HashMap<Named, Looked<T::Validator>>,
    faults: &'a mut Vec<Fault>,
}

/// A tool with its schema, made ready.
struct Known<V> {
    found: Found,
    schema: Option<Doc>,
    whole: Option<V>,
    /// Without what is said of several inputs together.
    each: Option<V>,
}

impl<T: Tools> Against<'_, T> {
    /// The digest of the definition that the call was held against.
    fn call(&mut self, call: &Call, broken: &[Box<str>]) -> Option<[u8; 32]> {
        let Self { tools, known, faults } = self;
        let key = (call.server_key.clone(), call.tool.clone());
        let known = known.entry(key).or_insert_with(|| {
            tools.find(&call.server_key, &call.tool).map(|found| Known::new(found, *tools))
        });
        match known {
            Ok(known) => {
                known.call(call, broken, faults);
                Some(known.found.digest)
            }
            Err(unfound) => {
                faults.push(unfound.of(call));
                None
            }
        }
    }
}

impl Unfound {
    fn of(self, call: &Call) -> Fault {
        let (member, kind, message) = match self {
            Unfound::Server => {
                let message = format!("no server is known by the key {}", call.server_key);
                ("serverKey", FaultKind::UnknownServer, message)
            }
            Unfound::Tool => {
                let message = format!("this server has no tool `{}`", call.tool);
                ("toolName", FaultKind::UnknownTool, message)
            }
            Unfound::NotListed => {
                let message = "the tools of this server are not known at present: try again later";
                ("serverKey", FaultKind::NotListed, message.to_owned())
            }
            Unfound::NotApproved => {
                let message = format!(
                    "no definition of `{}` has been approved yet: an operator has to look at it",
                    call.tool
                );
                ("toolName", FaultKind::NotApproved, message)
            }
        };
        let pointer = format!("{}/mcp/{member}", call.pointer());
        fault(Some(call.index), pointer, kind, message)
    }
}

impl<V: Validator> Known<V> {
    fn new<T: Tools<Validator = V>>(found: Found, tools: &T) -> Self {
        let doc = found.schema.clone().and_then(|schema| Doc::parse(schema, &VALUES).ok());
        let whole = found.schema.as_ref().and_then(|schema| tools.validator(schema));
        let each = doc.as_ref().and_then(|doc| tools.validator(&of_each(doc.root())));
        Self { found, schema: doc, whole, each }
    }

    fn call(&self, call: &Call, broken: &[Box<str>], faults: &mut Vec<Fault>) {
        let before = faults.len();
        let schema = self.schema.as_ref().map(Doc::root);
        let bound = |name: &str| {
            call.inputs.iter().any(|input| *input.name == *name)
                || broken.iter().any(|broken| **broken == *name)
        };
        let required = schema.and_then(|schema| schema.get("required"));
        for name in required.into_iter().flat_map(Value::elements).filter_map(Value::as_str) {
            if !bound(&name) && self.found.key_input.as_deref() != Some(&*name) {
                let message =
                    format!("`{}` needs the input `{name}`, which has no binding", call.tool);
                let pointer = format!("{}/mcp/inputBindings", call.pointer());
                faults.push(fault(Some(call.index), pointer, FaultKind::MissingInput, message));
            }
        }
        let (mut constants, mut all) = (vec![b'{'], broken.is_empty());
        for input in &call.inputs {
            let pointer = call.input_pointer(&input.name);
            if let Some(message) = self.unknown(schema, &input.name) {
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
                    let checked = self.each.as_ref().map_or(Ok(()), |each| each.check(&alone));
                    faults.extend(checked.err().map(|misfit| wrong(call, misfit)));
                }
                Binding::PageUrl(_) => {
                    all = false;
                    if let Some(message) = no_text(schema, &input.name) {
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
            let checked = self.whole.as_ref().map_or(Ok(()), |whole| whole.check(&constants));
            faults.extend(checked.err().map(|misfit| wrong(call, misfit)));
        }
    }

    /// Whether an input is none of the tool's: where the schema is closed, or it is withheld.
    fn unknown(&self, schema: Option<Value<'_>>, name: &str) -> Option<String> {
        let withheld = self.found.withheld.iter().any(|withheld| **withheld == *name);
        let closed = schema.is_some_and(|schema| {
            schema.get("additionalProperties").and_then(Value::as_bool) == Some(false)
                && schema.get("patternProperties").is_none()
        });
        let properties = schema.and_then(|schema| schema.get("properties"));
        let known = properties.is_some_and(|properties| properties.get(name).is_some());
        if !withheld && (known || !closed) {
            return None;
        }
        let names = properties.into_iter().flat_map(|properties| properties.members());
        let names: Vec<String> = names.map(|(key, _)| key.unescaped().into_owned()).collect();
        let near = names
            .iter()
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        let near = near.filter(|near| strsim::jaro_winkler(near, name) > 0.8);
        Some(match near {
            Some(near) => format!("the tool has no input of this name: is `{near}` meant?"),
            None => "the tool has no input of this name".to_owned(),
        })
    }
}

/// Why a text from an address is none of an input's values, where its schema says so plainly.
fn no_text(schema: Option<Value<'_>>, name: &str) -> Option<String> {
    let kinds = schema?.get("properties")?.get(name)?.get("type")?;
    let takes_text = match kinds.kind() {
        Kind::String => kinds.is_str("string"),
        Kind::Array => kinds.elements().any(|kind| kind.is_str("string")),
        _ => true,
    };
    (!takes_text).then(|| {
        "`page.url` gives a text, and this input takes none: give the value in a field of the \
         page's context"
            .to_owned()
    })
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

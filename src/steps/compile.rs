//! Checks steps against each other and against the tools that there are.
//!
//! A compilation makes no call and knows nothing of who will run the steps. It gathers every
//! fault. A binding whose value is known only when the steps run is checked then, with the whole
//! call, by whoever makes it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use super::{
    Binding, Call, Compiled, Fault, FaultKind, MAX_FAULTS, Step,
    constant::{Suspect, suspect},
    known::{Known, Room},
    path::VALUES,
    read::{Draft, drafts},
};
use crate::json::{Doc, Kind, Value};

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

    /// What that costs for arguments of a length: about a nanosecond each.
    fn work(&self, length: usize) -> u64;
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
    let (known, room) = (HashMap::new(), Room::default());
    let mut against = Against { tools, known, faults: &mut faults, room };
    for draft in &drafts {
        if against.faults.len() >= MAX_FAULTS {
            break;
        }
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

pub(super) fn fault(step: Option<u64>, pointer: String, kind: FaultKind, message: String) -> Fault {
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
            if faults.len() >= MAX_FAULTS {
                return;
            }
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

pub(super) fn credential(name: &str, binding: &Binding) -> Option<Suspect> {
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
    room: Room,
}

impl<T: Tools> Against<'_, T> {
    /// The digest of the definition that the call was held against.
    fn call(&mut self, call: &Call, broken: &[Box<str>]) -> Option<[u8; 32]> {
        let Self { tools, known, faults, room } = self;
        let key = (call.server_key.clone(), call.tool.clone());
        let known = known.entry(key).or_insert_with(|| {
            tools.find(&call.server_key, &call.tool).map(|found| Known::new(found, *tools))
        });
        match known {
            Ok(known) => {
                known.call(call, broken, room, faults);
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

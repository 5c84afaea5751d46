//! Reads steps as they are written, and gathers every fault of their form.
//!
//! Members that are not known are refused by name, but for steps of other types, which are not
//! looked into. What steps mean together, and with tools, is `compile.rs`.

use super::{
    Binding, Call, FailurePolicy, Fault, FaultKind, Input, MAX_FAULTS, MCP_CALL, Other, Path, Step,
    path::escaped,
};
use crate::{
    json::{Kind, Value},
    model::{sensitive::shown, server_key::is_server_key},
};

/// The longest name of a tool, of an input or of a page's field, in characters.
const MAX_NAME: usize = 256;
/// Bindings of one step: more inputs no tool has.
const MAX_INPUTS: usize = 256;
/// The longest name of a variable, in characters.
const MAX_VARIABLE: usize = 64;

/// A step as far as it could be read.
#[derive(Debug)]
pub(super) struct Draft {
    pub step: Step,
    /// Inputs whose bindings could not be read.
    pub broken: Vec<Box<str>>,
    /// Server and tool could be.
    pub names_tool: bool,
}

/// Reads steps without a fault in their form.
///
/// # Errors
/// All faults.
pub fn read(steps: Value<'_>) -> Result<Vec<Step>, Vec<Fault>> {
    let (drafts, faults) = drafts(steps);
    if faults.is_empty() {
        Ok(drafts.into_iter().map(|draft| draft.step).collect())
    } else {
        Err(faults)
    }
}

/// Reads as much as can be.
pub(super) fn drafts(steps: Value<'_>) -> (Vec<Draft>, Vec<Fault>) {
    let mut faults = Vec::new();
    if steps.kind() != Kind::Array {
        faults.push(Fault {
            step: None,
            pointer: "/steps".to_owned(),
            kind: FaultKind::BadValue,
            message: "`steps` is a list of steps".to_owned(),
        });
        return (Vec::new(), faults);
    }
    let mut drafts = Vec::new();
    for (place, step) in steps.elements().enumerate() {
        if faults.len() >= MAX_FAULTS {
            break;
        }
        drafts.extend(Reader { step: None, place, faults: &mut faults }.step(step));
    }
    (drafts, faults)
}

/// Whether a text can name a variable.
pub(super) fn is_variable(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    (1..=MAX_VARIABLE).contains(&name.len())
        && name.bytes().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

/// Reads one step.
struct Reader<'f> {
    /// Its index, once it is known.
    step: Option<u64>,
    place: usize,
    faults: &'f mut Vec<Fault>,
}

impl Reader<'_> {
    fn fault(&mut self, within: &str, kind: FaultKind, message: impl Into<String>) {
        let pointer = format!("/steps/{}{within}", self.place);
        self.faults.push(Fault { step: self.step, pointer, kind, message: message.into() });
    }

    fn step(mut self, step: Value<'_>) -> Option<Draft> {
        if step.kind() != Kind::Object {
            self.fault("", FaultKind::BadStep, "a step is a JSON object");
            return None;
        }
        let index = step.get("stepIndex");
        self.step = index.and_then(Value::as_i64).and_then(|index| u64::try_from(index).ok());
        if index.is_some() && self.step.is_none() {
            self.fault(
                "/stepIndex",
                FaultKind::BadValue,
                "`stepIndex` is a whole number from 0 up",
            );
        }
        let Some(kind) = step.get("type") else {
            self.fault("/type", FaultKind::MissingMember, "a step has a `type`");
            return None;
        };
        match kind.as_str() {
            Some(kind) if kind == MCP_CALL => Some(self.call(step)),
            // It would pass through, and never be made.
            Some(kind) if kind.eq_ignore_ascii_case(MCP_CALL) || step.get("mcp").is_some() => {
                let message = format!("a step with a call is of the type `{MCP_CALL}`");
                self.fault("/type", FaultKind::BadValue, message);
                None
            }
            Some(kind) => Some(self.other(step, &kind)),
            None => {
                self.fault("/type", FaultKind::BadValue, "`type` is a text");
                None
            }
        }
    }

    /// A step of somebody else's is not looked into, but for the variable that it says it saves.
    fn other(&mut self, step: Value<'_>, kind: &str) -> Draft {
        let saved = step.get("saveAs").and_then(Value::as_str);
        let save_as = saved.filter(|name| is_variable(name)).map(|name| name.as_ref().into());
        let other = Other {
            place: self.place,
            index: self.step,
            kind: kind.into(),
            raw: step.bytes(),
            save_as,
        };
        Draft { step: Step::Other(other), broken: Vec::new(), names_tool: false }
    }

    fn call(&mut self, step: Value<'_>) -> Draft {
        self.known(step, "", &["stepIndex", "type", "mcp"]);
        if step.get("stepIndex").is_none() {
            self.fault("/stepIndex", FaultKind::MissingMember, "an mcpCall step has a `stepIndex`");
        }
        let mut call = Call {
            index: self.step.unwrap_or_default(),
            place: self.place,
            server_key: Box::default(),
            tool: Box::default(),
            inputs: Vec::new(),
            save_as: None,
            policy: FailurePolicy::default(),
            key: None,
        };
        let mut broken = Vec::new();
        match step.get("mcp") {
            Some(mcp) if mcp.kind() == Kind::Object => self.mcp(mcp, &mut call, &mut broken),
            Some(_) => self.fault("/mcp", FaultKind::BadValue, "`mcp` is a JSON object"),
            None => self.fault("/mcp", FaultKind::MissingMember, "an mcpCall step has an `mcp`"),
        }
        let names_tool = !call.server_key.is_empty() && !call.tool.is_empty();
        Draft { step: Step::Call(call.into()), broken, names_tool }
    }

    fn mcp(&mut self, mcp: Value<'_>, call: &mut Call, broken: &mut Vec<Box<str>>) {
        const KNOWN: [&str; 6] =
            ["serverKey", "toolName", "inputBindings", "saveAs", "failurePolicy", "idempotencyKey"];
        self.known(mcp, "/mcp", &KNOWN);
        call.server_key = self.name(mcp, "serverKey").unwrap_or_default();
        if !call.server_key.is_empty() && !is_server_key(&call.server_key) {
            let message = "a serverKey is `mcp_`, a name, `_` and 8 hexadecimal digits";
            self.fault("/mcp/serverKey", FaultKind::BadValue, message);
            call.server_key = Box::default();
        }
        call.tool = self.name(mcp, "toolName").unwrap_or_default();
        if let Some(given) = given(mcp, "saveAs") {
            call.save_as =
                given.as_str().filter(|name| is_variable(name)).map(|name| (*name).into());
            if call.save_as.is_none() {
                let message = "a variable's name has 1 to 64 letters, digits, `_` and `-`, and \
                               begins with a letter or `_`";
                self.fault("/mcp/saveAs", FaultKind::BadValue, message);
            }
        }
        if let Some(given) = given(mcp, "failurePolicy") {
            let policy = FailurePolicy::ALL.into_iter().find(|one| given.is_str(one.as_str()));
            if policy.is_none() {
                let message = "`failurePolicy` is `required` or `optional`";
                self.fault("/mcp/failurePolicy", FaultKind::BadValue, message);
            }
            call.policy = policy.unwrap_or_default();
        }
        if let Some(given) = given(mcp, "idempotencyKey") {
            call.key = self.binding(given, "/mcp/idempotencyKey");
        }
        let Some(inputs) = given(mcp, "inputBindings") else { return };
        if inputs.kind() != Kind::Object {
            let message = "`inputBindings` is an object: a binding for each input, by its name";
            self.fault("/mcp/inputBindings", FaultKind::BadValue, message);
            return;
        }
        if inputs.members().nth(MAX_INPUTS).is_some() {
            let message = format!("more than {MAX_INPUTS} inputs have a binding");
            self.fault("/mcp/inputBindings", FaultKind::BadValue, message);
            return;
        }
        for (name, binding) in inputs.members() {
            if self.faults.len() >= MAX_FAULTS {
                return;
            }
            let name: Box<str> = name.unescaped().into();
            let within = format!("/mcp/inputBindings/{}", escaped(&shown(&name)));
            if name.chars().count() > MAX_NAME {
                self.fault(&within, FaultKind::BadValue, "this name is longer than any input's");
                continue;
            }
            match self.binding(binding, &within) {
                Some(binding) => call.inputs.push(Input { name, binding }),
                None => broken.push(name),
            }
        }
        call.inputs.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// A name that must be there.
    fn name(&mut self, mcp: Value<'_>, member: &str) -> Option<Box<str>> {
        let within = format!("/mcp/{member}");
        let Some(value) = mcp.get(member) else {
            self.fault(&within, FaultKind::MissingMember, format!("`{member}` is missing"));
            return None;
        };
        let text = value.as_str().filter(|text| {
            (1..=MAX_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control)
        });
        if text.is_none() {
            let message = format!("`{member}` is a text of 1 to {MAX_NAME} characters");
            self.fault(&within, FaultKind::BadValue, message);
        }
        text.map(|text| text.as_ref().into())
    }

    fn binding(&mut self, binding: Value<'_>, within: &str) -> Option<Binding> {
        let before = self.faults.len();
        if binding.kind() != Kind::Object {
            let message =
                "a binding is an object such as `{\"source\": \"page.url\", \"path\": …}`";
            self.fault(within, FaultKind::BadValue, message);
            return None;
        }
        self.known(binding, within, &["source", "path", "value"]);
        let at = format!("{within}/source");
        let Some(source) = binding.get("source") else {
            self.fault(&at, FaultKind::MissingMember, format!("`source` is missing: {SOURCES}"));
            return None;
        };
        let Some(source) = source.as_str() else {
            self.fault(&at, FaultKind::BadValue, format!("`source` is a text: {SOURCES}"));
            return None;
        };
        let read = self.source(&source, binding, within);
        (self.faults.len() == before).then_some(read).flatten()
    }

    fn source(&mut self, source: &str, binding: Value<'_>, within: &str) -> Option<Binding> {
        let (path, value) = (binding.get("path"), binding.get("value"));
        if source == "const" {
            if path.is_some() {
                let message = "a constant has a `value` and no `path`";
                self.fault(&format!("{within}/path"), FaultKind::UnknownMember, message);
            }
            if value.is_none() {
                let message = "a constant has a `value`";
                self.fault(&format!("{within}/value"), FaultKind::MissingMember, message);
            }
            return value.map(|value| Binding::Const(value.bytes()));
        }
        if value.is_some() {
            let message = "only `const` has a `value`";
            self.fault(&format!("{within}/value"), FaultKind::UnknownMember, message);
        }
        let path = self.path(path, within)?;
        if source == "page.url" {
            return self.parameter(path, within);
        }
        let parsed = path.as_deref().map_or(Ok(Path::default()), Path::parse);
        let path = match parsed {
            Ok(path) => path,
            Err(why) => {
                self.fault(&format!("{within}/path"), FaultKind::BadPath, format!("`path` {why}"));
                return None;
            }
        };
        let at = format!("{within}/source");
        match source.split_once('.') {
            Some(("page", field)) if is_field(field) => {
                Some(Binding::Page { field: field.into(), path })
            }
            Some(("page", _)) => {
                let message = "after `page.` stands one field of the page's context; what is \
                               further in goes into `path`";
                self.fault(&at, FaultKind::UnknownSource, message);
                None
            }
            Some(("steps", name)) if is_variable(name) => {
                Some(Binding::Step { name: name.into(), path })
            }
            Some(("steps", _)) => {
                let message = "after `steps.` stands the `saveAs` of an earlier step; what is \
                               further in goes into `path`";
                self.fault(&at, FaultKind::UnknownSource, message);
                None
            }
            _ => {
                let message = format!("unknown source `{}`: {SOURCES}", shown(source));
                self.fault(&at, FaultKind::UnknownSource, message);
                None
            }
        }
    }

    /// The outer one is whether it could be read, the inner one whether it is there.
    fn path(&mut self, path: Option<Value<'_>>, within: &str) -> Option<Option<Box<str>>> {
        let Some(path) = path.filter(|path| !path.is_null()) else { return Some(None) };
        let text = path.as_str();
        if text.is_none() {
            let at = format!("{within}/path");
            self.fault(
                &at,
                FaultKind::BadPath,
                "`path` is a text such as `order.id` or `/order/id`",
            );
        }
        text.map(|text| Some(text.as_ref().into()))
    }

    fn parameter(&mut self, path: Option<Box<str>>, within: &str) -> Option<Binding> {
        let at = format!("{within}/path");
        if path.as_ref().is_some_and(|name| name.is_empty() || name.len() > MAX_NAME) {
            let message = "`path` of `page.url` is the name of a query parameter; without one the \
                           whole address is meant";
            self.fault(&at, FaultKind::BadPath, message);
            return None;
        }
        Some(Binding::PageUrl(path))
    }

    /// Refuses members that mean nothing.
    fn known(&mut self, object: Value<'_>, within: &str, known: &[&str]) {
        for (key, _) in object.members() {
            if self.faults.len() >= MAX_FAULTS {
                return;
            }
            if !known.iter().any(|name| key.is(name)) {
                let name = key.unescaped();
                let known = known.join("`, `");
                let message = format!("unknown member `{}`: there are `{known}`", shown(&name));
                self.fault(
                    &format!("{within}/{}", escaped(&shown(&name))),
                    FaultKind::UnknownMember,
                    message,
                );
            }
        }
    }
}

/// What sources there are, for messages.
const SOURCES: &str = "it is `const`, `page.url`, `page.` and a field, or `steps.` and a variable";

/// A member that is there and not null.
fn given<'a>(object: Value<'a>, member: &str) -> Option<Value<'a>> {
    object.get(member).filter(|value| !value.is_null())
}

fn is_field(field: &str) -> bool {
    (1..=MAX_NAME).contains(&field.len())
        && !field.contains('.')
        && !field.chars().any(char::is_control)
}

//! The face of a tool: what is published of it instead of what its server says, and what becomes
//! of the arguments of a call that was made by it.
//!
//! Which face a tool gets is said elsewhere. The definition that a pin covers stays the server's
//! own. A tool whose face cannot be had as it was meant has none, and is not published: half of a
//! face would show what was to be hidden.

mod schema;

use std::{
    fmt,
    ops::Range,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;

use super::{
    definition::{Definition, replaced, span_in},
    quality::Quality,
    schema::{ArgumentSchema, Mismatch, SchemaFault},
};
use crate::{
    json::{
        self, Doc, Kind, NumberForm, Value,
        splice::{self, Edits},
    },
    model::template::HeaderTemplate,
};

/// What is to be published of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Face {
    pub name: Option<Arc<str>>,
    pub description: Option<Box<str>>,
    pub parameters: Vec<FaceParameter>,
}

/// What is to be published of one of its arguments, at the top of its schema.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaceParameter {
    pub name: Box<str>,
    pub description: Option<Box<str>>,
    /// The only values that it takes, all of them texts.
    pub allowed: Option<Vec<Box<str>>>,
    /// Callers neither see nor send it.
    pub hidden: bool,
    /// What the gateway sends, and nobody else: it is hidden too.
    pub value: Option<HeaderTemplate>,
    /// It was said of all tools of an upstream, and is about those that have the argument.
    pub if_known: bool,
}

/// A tool with its face on.
#[derive(Debug)]
pub struct Faced {
    /// The name on its upstream's own path.
    pub name: Arc<str>,
    /// The whole JSON object, under that name.
    pub raw: Bytes,
    name_span: Range<usize>,
    /// What callers' arguments must look like, where that is not what the server says.
    arguments: Option<ArgumentSchema>,
    withheld: Box<[Withheld]>,
    /// What was said in vain.
    pub vain: Vec<Vain>,
    /// What is wrong with it, once somebody has looked.
    quality: OnceLock<Quality>,
}

/// An argument that callers neither see nor send.
#[derive(Debug)]
struct Withheld {
    name: Box<str>,
    fill: Fill,
}

/// What the server is sent of it.
#[derive(Debug)]
enum Fill {
    Nothing,
    /// JSON.
    Constant(Box<[u8]>),
    Template(HeaderTemplate, Form),
}

/// How a text is written as JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Form {
    /// As it is, where the argument is of no type but these; else as a string.
    number: bool,
    integer: bool,
    boolean: bool,
}

/// Something that a face says and that changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vain {
    /// The tool has no such argument.
    Parameter(Box<str>),
    /// The argument never takes the word.
    Word(Box<str>, Box<str>),
}

/// Why a tool cannot have its face.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FaceFault {
    #[error("`{0}` is hidden and required, and there is no value for it: it has no `default`")]
    NoValue(Box<str>),
    #[error("a value is injected into `{0}`, which is no text, number or truth value")]
    Type(Box<str>),
    #[error("the value that is injected into `{0}` is not of the argument's type")]
    Value(Box<str>),
    #[error("none of the words allowed for `{0}` is one that it takes")]
    NoWord(Box<str>),
    #[error("`{0}` cannot be hidden: `{1}` in its schema depends on it")]
    Entangled(Box<str>, &'static str),
    #[error("its schema cannot be published without what is hidden: {0}")]
    Schema(#[from] SchemaFault),
    #[error("the name `{0}` is given to another tool")]
    NameTaken(Arc<str>),
}

/// There is no value for an argument that the gateway is to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfilled {
    pub argument: Box<str>,
    /// What is known is not of the argument's type.
    pub unfit: bool,
}

/// What is rewritten here was read before.
const LIMITS: json::Limits =
    json::Limits { depth: usize::MAX, duplicates: json::Duplicates::Allow, outline: 1 };

// === impl FaceFault ===

impl FaceFault {
    /// The argument that it is about, if it is about one.
    pub fn parameter(&self) -> Option<&str> {
        match self {
            FaceFault::NoValue(name)
            | FaceFault::Type(name)
            | FaceFault::Value(name)
            | FaceFault::NoWord(name)
            | FaceFault::Entangled(name, _) => Some(name),
            FaceFault::Schema(_) | FaceFault::NameTaken(_) => None,
        }
    }
}

// === impl Faced ===

impl Faced {
    /// # Errors
    /// The tool cannot be published as it is meant to be.
    pub fn new(definition: &Definition, face: &Face) -> Result<Self, FaceFault> {
        let unread = || SchemaFault::Unusable("it cannot be read".to_owned());
        let doc = splice::document(&definition.raw).ok_or_else(unread)?;
        let root = doc.root();
        let mut edits = Edits::default();
        let edited = schema::edit(&doc, root.get("inputSchema"), &face.parameters, &mut edits)?;
        let name = face.name.clone().unwrap_or_else(|| definition.name.clone());
        if let (Some(name), Some(own)) = (&face.name, root.get("name")) {
            edits.put_str(own, name);
        }
        if let Some(description) = &face.description {
            describe(root, description, &mut edits);
        }
        let raw = edits.apply(&definition.raw);
        let doc = splice::document(&raw).ok_or_else(unread)?;
        let own = doc.root().get("name").ok_or_else(unread)?;
        let changes = face.parameters.iter().any(|p| p.hidden || p.allowed.is_some());
        let schema = doc.root().get("inputSchema").filter(|_| changes);
        Ok(Self {
            name_span: span_in(doc.root(), own),
            arguments: schema.map(|s| ArgumentSchema::compile(Some(s.raw()))).transpose()?,
            withheld: edited.withheld.into(),
            vain: edited.vain,
            name,
            raw,
            quality: OnceLock::new(),
        })
    }

    /// The object under another name.
    pub(super) fn renamed(&self, name: &str) -> Bytes {
        replaced(&self.raw, &self.name_span, name)
    }

    /// What is wrong with what is published; looked at once.
    pub fn quality(&self) -> &Quality {
        self.quality.get_or_init(|| Quality::of(&self.raw))
    }

    /// Whether a call's arguments are another matter than the server's schema.
    pub fn concerns_arguments(&self) -> bool {
        self.arguments.is_some() || !self.withheld.is_empty()
    }

    /// Whether callers neither see nor send the argument that a pointer leads into.
    pub fn withholds(&self, pointer: &str) -> bool {
        let own = |withheld: &Withheld| {
            let own = self::pointer(&withheld.name);
            pointer.strip_prefix(&*own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.withheld.iter().any(own)
    }

    /// Holds the arguments of a caller, a JSON object, against what was published.
    ///
    /// # Errors
    /// They are not as published, or one of them is not the caller's to give.
    pub fn check(&self, arguments: &Bytes) -> Result<(), Mismatch> {
        if !self.withheld.is_empty() {
            let doc = Doc::parse(arguments.clone(), &LIMITS).map_err(|fault| {
                let message = format!("the arguments cannot be read: {fault}");
                Mismatch { pointer: String::new(), masked: message.clone(), message }
            })?;
            let root = doc.root();
            let sent = self.withheld.iter().find(|withheld| root.get(&withheld.name).is_some());
            if let Some(sent) = sent {
                let message = "this argument is not the caller's to give".to_owned();
                let pointer = pointer(&sent.name);
                return Err(Mismatch { pointer, masked: message.clone(), message });
            }
        }
        match &self.arguments {
            Some(schema) => schema.check(arguments),
            None => Ok(()),
        }
    }

    /// Arguments that passed [`Faced::check`], with all that the gateway sends of itself behind
    /// the caller's own, which stay as they were written. `text` says what a template stands for.
    ///
    /// # Errors
    /// There is no value for an argument.
    pub fn fill(
        &self,
        arguments: Option<&Bytes>,
        mut text: impl FnMut(&HeaderTemplate) -> Option<String>,
    ) -> Result<Option<Bytes>, Unfilled> {
        let mut out = Vec::new();
        for Withheld { name, fill } in &self.withheld {
            let value = match fill {
                Fill::Nothing => continue,
                Fill::Constant(value) => value.clone(),
                Fill::Template(template, form) => {
                    let unfilled = |unfit| Unfilled { argument: name.clone(), unfit };
                    let text = text(template).ok_or_else(|| unfilled(false))?;
                    form.written(&text).ok_or_else(|| unfilled(true))?
                }
            };
            if out.is_empty() {
                out = opened(arguments);
            } else {
                out.push(b',');
            }
            json::write_str(&mut out, name);
            out.push(b':');
            out.extend_from_slice(&value);
        }
        if out.is_empty() {
            return Ok(None);
        }
        out.push(b'}');
        Ok(Some(out.into()))
    }
}

/// An object up to where another member can be written.
fn opened(object: Option<&Bytes>) -> Vec<u8> {
    let object = object.map_or(&b"{}"[..], |object| object.trim_ascii_end());
    let open = object.strip_suffix(b"}").unwrap_or(object);
    let mut out = Vec::with_capacity(open.len() + 128);
    out.extend_from_slice(open);
    if !open.trim_ascii_end().ends_with(b"{") {
        out.push(b',');
    }
    out
}

/// The JSON pointer to a member at the top.
fn pointer(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Gives an object another description.
fn describe(object: Value<'_>, text: &str, edits: &mut Edits) {
    match object.get("description") {
        Some(own) => edits.put_str(own, text),
        None => {
            insert(object, vec![member("description", |out| json::write_str(out, text))], edits)
        }
    }
}

/// A member as text.
fn member(name: &str, value: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    json::write_str(&mut out, name);
    out.push(b':');
    value(&mut out);
    out
}

/// Puts members at the beginning of an object.
fn insert(object: Value<'_>, members: Vec<Vec<u8>>, edits: &mut Edits) {
    let mut text = members.join(&b',');
    if object.members().next().is_some() {
        text.push(b',');
    }
    let inside = object.offset() + 1;
    edits.put(inside..inside, text);
}

// === impl Form ===

impl Form {
    /// By the types that an argument plainly has; `None` for one that no text can be written as.
    fn of(types: &[String]) -> Option<Self> {
        let has = |name: &str| types.iter().any(|kind| kind == name);
        if types.is_empty() || has("string") {
            return Some(Self::default());
        }
        let form = Self { number: has("number"), integer: has("integer"), boolean: has("boolean") };
        (form != Self::default()).then_some(form)
    }

    fn written(self, text: &str) -> Option<Box<[u8]>> {
        if self == Self::default() {
            let mut out = Vec::with_capacity(text.len() + 2);
            json::write_str(&mut out, text);
            return Some(out.into());
        }
        let doc = Doc::parse(Bytes::copy_from_slice(text.as_bytes()), &LIMITS).ok()?;
        let root = doc.root();
        let fits = match root.kind() {
            Kind::Number => {
                self.number || (self.integer && root.number_form() != Some(NumberForm::Fractional))
            }
            Kind::True | Kind::False => self.boolean,
            _ => false,
        };
        fits.then(|| root.raw().into())
    }
}

// === impl Vain ===

/// Goes on after the name of a tool.
impl fmt::Display for Vain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Vain::Parameter(name) => write!(f, "has no argument `{name}`"),
            Vain::Word(name, word) => write!(f, "never takes `{word}` for its argument `{name}`"),
        }
    }
}

#[cfg(test)]
mod tests;

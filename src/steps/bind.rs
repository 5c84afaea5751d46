//! What bindings stand for when a step is reached: constants, the page, what was saved before.
//!
//! Values are slices of what came in; nothing is converted. A text that holds JSON is looked into
//! where it is the result of a step, or where a path leads on into it.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{
    Binding,
    path::{Lost, Path, VALUES},
};
use crate::json::{self, Doc, Kind, Value};

const NULL: Bytes = Bytes::from_static(b"null");

/// What is known of the page that the steps run for.
#[derive(Debug, Default)]
pub struct Page(Option<Doc>);

/// Values by name: given to a run, and saved by its steps.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    values: BTreeMap<Box<str>, Bytes>,
    /// Bytes of all values.
    size: usize,
}

/// A binding that stands for nothing; the text goes on after the input's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unbound {
    /// The member of the binding that leads nowhere.
    pub member: &'static str,
    pub message: String,
}

// === impl Page ===

impl Page {
    /// Reads the context of a run: it is the page's, or has it as its member `page`.
    pub fn read(context: Value<'_>) -> Self {
        let page = context.get("page").filter(|page| page.kind() == Kind::Object);
        Self(Doc::parse(page.unwrap_or(context).bytes(), &VALUES).ok())
    }

    fn field(&self, name: &str) -> Option<Value<'_>> {
        self.0.as_ref()?.root().get(name)
    }
}

// === impl Variables ===

impl Variables {
    /// Reads the variables that a run is given, a JSON object.
    pub fn read(given: Value<'_>) -> Self {
        let mut variables = Self::default();
        for (name, value) in given.members() {
            variables.set(&name.unescaped(), value.bytes());
        }
        variables
    }

    pub fn size(&self) -> usize {
        self.size
    }

    pub fn set(&mut self, name: &str, value: Bytes) {
        self.size += value.len();
        let before = self.values.insert(name.into(), value);
        self.size -= before.map_or(0, |before| before.len());
    }

    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.values.get(name)
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.values.iter().map(|(name, value)| (&**name, value))
    }
}

// === Bindings ===

impl Binding {
    /// The JSON that the binding stands for.
    ///
    /// # Errors
    /// It stands for nothing.
    pub(super) fn resolve(&self, page: &Page, variables: &Variables) -> Result<Bytes, Unbound> {
        match self {
            Binding::Const(value) => Ok(value.clone()),
            Binding::PageUrl(parameter) => address(page, parameter.as_deref()),
            Binding::Page { field, path } => {
                let at = format!("page.{field}");
                let missing = || unbound("source", format!("the page's context has no `{field}`"));
                within(&at, page.field(field).ok_or_else(missing)?, path, false)
            }
            Binding::Step { name, path } => {
                let missing = || {
                    let message = format!(
                        "there is no variable `{name}`: the step that saves it has not run, and \
                         `variables` has none"
                    );
                    unbound("source", message)
                };
                let value = variables.get(name).ok_or_else(missing)?;
                // What an optional step did not bring is nothing, however far one looks into it.
                if path.is_empty() || **value == *b"null" {
                    return Ok(value.clone());
                }
                let doc = Doc::parse(value.clone(), &VALUES);
                let doc = doc.map_err(|_| unbound("source", format!("`{name}` is no JSON")))?;
                within(&format!("steps.{name}"), doc.root(), path, true)
            }
        }
    }
}

fn unbound(member: &'static str, message: String) -> Unbound {
    Unbound { member, message }
}

fn within(at: &str, value: Value<'_>, path: &Path, into_texts: bool) -> Result<Bytes, Unbound> {
    path.follow(value, into_texts).map_err(|Lost { found, why }| {
        let reached = path.beginning(found);
        let place = if reached.is_empty() { at.to_owned() } else { format!("{at} at {reached}") };
        unbound("path", format!("{place} {why}, and the path is `{path}`"))
    })
}

/// The page's address, or a parameter of its query.
fn address(page: &Page, parameter: Option<&str>) -> Result<Bytes, Unbound> {
    let url = page.field("url").ok_or("the page's context has no `url`");
    let url = url.and_then(|url| url.as_str().ok_or("the page's `url` is no text"));
    let url = url.map_err(|message| unbound("source", message.to_owned()))?;
    let Some(parameter) = parameter else { return Ok(text(&url)) };
    let address = url.split('#').next().unwrap_or_default();
    let query = address.split_once('?').map_or("", |(_, query)| query);
    let pairs = url::form_urlencoded::parse(query.as_bytes());
    let mut found = pairs.filter(|(name, _)| name == parameter).map(|(_, value)| value);
    match (found.next(), found.next()) {
        (Some(value), None) => Ok(text(&value)),
        (Some(_), Some(_)) => {
            let message = format!("the page's address has the parameter `{parameter}` twice");
            Err(unbound("path", message))
        }
        (None, _) => {
            let message = format!("the page's address has no parameter `{parameter}`");
            Err(unbound("path", message))
        }
    }
}

fn text(text: &str) -> Bytes {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::write_str(&mut out, text);
    out.into()
}

// === Results ===

/// What a variable holds of a tool's result: its structured content; else its text, as JSON if it
/// is an object or a list; else all its content.
pub(super) fn saved(result: &Bytes) -> Bytes {
    let Ok(doc) = Doc::parse(result.clone(), &VALUES) else { return NULL };
    let root = doc.root();
    if let Some(structured) = root.get("structuredContent").filter(|value| !value.is_null()) {
        return structured.bytes();
    }
    let Some(content) = root.get("content") else { return NULL };
    let mut blocks = content.elements();
    match (blocks.next(), blocks.next()) {
        (None, _) => NULL,
        (Some(block), None) if block.get("type").is_some_and(|kind| kind.is_str("text")) => {
            block.get("text").map_or(NULL, of_text)
        }
        _ => content.bytes(),
    }
}

fn of_text(text: Value<'_>) -> Bytes {
    let inside = text.as_str().unwrap_or_default();
    let inside = inside.trim();
    if !inside.starts_with(['{', '[']) {
        return text.bytes();
    }
    let inside = Bytes::copy_from_slice(inside.as_bytes());
    match Doc::parse(inside.clone(), &VALUES) {
        Ok(_) => inside,
        Err(_) => text.bytes(),
    }
}

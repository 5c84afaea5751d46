//! What a tool's entry says of its face: arguments that the gateway sets, and what is published
//! instead of what the upstream says.

use std::sync::Arc;

use super::classes::{MAX_NAME, check_length};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::template::HeaderTemplate,
    yaml::{Entry, MapReader, Node, Spanned},
};

/// An argument that the gateway sets, whatever the caller says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injected {
    pub argument: Box<str>,
    pub at: Span,
    pub value: HeaderTemplate,
    /// Said of all tools of an upstream: only of those that have the argument.
    pub if_known: bool,
}

/// What is published instead of what the upstream says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Override {
    pub name: Option<Spanned<Arc<str>>>,
    pub description: Option<Box<str>>,
    pub parameters: Vec<Parameter>,
}

/// What is published of one parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: Box<str>,
    pub at: Span,
    pub description: Option<Box<str>>,
    pub hidden: bool,
    /// Of the schema's own values, these alone.
    pub allowed: Option<Vec<Box<str>>>,
    /// Said of all tools of an upstream: only of those that have the parameter.
    pub if_known: bool,
}

/// The longest description, in bytes.
const MAX_DESCRIPTION: usize = 16 * 1024;

/// The longest name that every client takes.
const MAX_PUBLISHED: usize = 64;

// === impl Injected ===

impl Injected {
    pub(super) fn read_all(node: &Node, faults: &mut Faults) -> Vec<Self> {
        let entries = node.named(faults).into_iter();
        entries.filter_map(|entry| Self::read(entry, faults)).collect()
    }

    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        check_length(&entry.key, MAX_NAME, &entry.key_at, faults);
        match HeaderTemplate::parse(entry.value.text(faults)?) {
            Ok(value) => Some(Self {
                argument: entry.key.as_str().into(),
                at: entry.key_at.clone(),
                value,
                if_known: false,
            }),
            Err(found) => {
                let fault = faults.add(FaultCode::BadValue, &entry.value.at, found.message);
                if let Some(suggestion) = found.suggestion {
                    fault.suggest(suggestion);
                }
                None
            }
        }
    }

    /// One's own, and the default's of other arguments.
    pub(super) fn over(
        own: Option<Arc<[Self]>>,
        default: Option<Arc<[Self]>>,
    ) -> Option<Arc<[Self]>> {
        let (own, default) = match (own, default) {
            (Some(own), Some(default)) => (own, default),
            (own, default) => return own.or(default),
        };
        let said = |other: &&Self| !own.iter().any(|own| own.argument == other.argument);
        let others: Vec<_> = default.iter().filter(said).cloned().collect();
        Some(own.iter().cloned().chain(others).collect())
    }
}

// === impl Override ===

impl Override {
    /// Reads `override`, or the short forms `name`, `description` and `hide`.
    pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let short = ["name", "description", "hide"];
        let first = short.into_iter().find_map(|key| map.entry(key));
        let whole = map.entry("override");
        if let (Some(first), Some(whole)) = (first, whole) {
            let message = format!("`{}` beside `override`, which says the same", first.key);
            let fault = faults.add(FaultCode::Contradiction, &first.key_at, message);
            fault.relate(&whole.key_at, "`override` is here");
        }
        if let Some(whole) = whole {
            let mut map = whole.value.map(faults)?;
            let mut published = Self::read_texts(&mut map, faults);
            let parameters = map.node("parameters").map(|node| node.named(faults));
            let parameters = parameters.unwrap_or_default().into_iter();
            published.parameters =
                parameters.filter_map(|entry| Parameter::read(entry, faults)).collect();
            map.finish(faults);
            return Some(published);
        }
        first?;
        let mut published = Self::read_texts(map, faults);
        let hidden: Vec<Spanned<String>> = map.optional("hide", faults).unwrap_or_default();
        published.parameters = hidden.into_iter().map(Parameter::hide).collect();
        Some(published)
    }

    fn read_texts(map: &mut MapReader<'_>, faults: &mut Faults) -> Self {
        let name: Option<Spanned<String>> = map.optional("name", faults);
        if let Some(name) = &name {
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
            if !(1..=MAX_PUBLISHED).contains(&name.value.len()) || !name.value.bytes().all(legal) {
                let message = format!(
                    "a published name is 1 to {MAX_PUBLISHED} of `A-Z`, `a-z`, `0-9`, `_`, `.` and `-`"
                );
                faults.add(FaultCode::BadName, &name.at, message);
            }
        }
        let name = name.map(|name| Spanned { value: name.value.into(), at: name.at });
        Self { name, description: read_description(map, faults), parameters: Vec::new() }
    }

    /// One's own, and what the default says of other parameters.
    pub(super) fn over(own: Option<Arc<Self>>, default: Option<Arc<Self>>) -> Option<Arc<Self>> {
        let (own, default) = match (own, default) {
            (Some(own), Some(default)) => (own, default),
            (own, default) => return own.or(default),
        };
        let mut whole = Self::clone(&own);
        for other in &default.parameters {
            if !own.parameters.iter().any(|own| own.name == other.name) {
                whole.parameters.push(other.clone());
            }
        }
        Some(whole.into())
    }

    /// What an upstream's `default` may say: nothing that only one tool can have.
    pub(super) fn for_all(&mut self, faults: &mut Faults) {
        if let Some(name) = &self.name {
            let message = "`name` in a `default` would call every tool the same";
            faults.add(FaultCode::Contradiction, &name.at, message);
        }
        for parameter in &mut self.parameters {
            parameter.if_known = true;
        }
    }

    /// The parameters that callers do not see, and where that is said.
    pub fn hidden(&self) -> impl Iterator<Item = (&str, &Span)> {
        let hidden = self.parameters.iter().filter(|parameter| parameter.hidden);
        hidden.map(|parameter| (&*parameter.name, &parameter.at))
    }
}

impl Parameter {
    fn hide(name: Spanned<String>) -> Self {
        Self {
            name: name.value.into(),
            at: name.at,
            description: None,
            hidden: true,
            allowed: None,
            if_known: false,
        }
    }

    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        check_length(&entry.key, MAX_NAME, &entry.key_at, faults);
        let mut map = entry.value.map(faults)?;
        let words = map.node("enum");
        let allowed: Option<Vec<String>> = map.optional("enum", faults);
        if let (Some(node), Some([])) = (words, allowed.as_deref()) {
            let message = "`enum` is empty: nothing could be sent";
            faults.add(FaultCode::BadValue, &node.at, message).suggest("`hidden: true`");
        }
        let parameter = Self {
            name: entry.key.as_str().into(),
            at: entry.key_at.clone(),
            description: read_description(&mut map, faults),
            hidden: map.optional("hidden", faults).unwrap_or(false),
            allowed: allowed.map(|words| words.into_iter().map(Into::into).collect()),
            if_known: false,
        };
        map.finish(faults);
        if parameter.hidden {
            parameter.says_nothing("hidden", faults);
        }
        Some(parameter)
    }

    /// Nobody reads what is said of a parameter that is not published.
    pub(super) fn says_nothing(&self, what: &str, faults: &mut Faults) {
        if self.description.is_some() || self.allowed.is_some() {
            let name = &self.name;
            let message = format!("`{name}` is {what}, and yet something is published of it");
            faults.add(FaultCode::Contradiction, &self.at, message);
        }
    }
}

fn read_description(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Box<str>> {
    let text: Spanned<String> = map.optional("description", faults)?;
    if text.value.len() > MAX_DESCRIPTION {
        let message = format!("longer than {MAX_DESCRIPTION} bytes");
        faults.add(FaultCode::BadValue, &text.at, message);
    }
    Some(text.value.into())
}

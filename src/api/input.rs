//! What comes in under `/v1`: JSON bodies with known members, and query parameters. What is not
//! known is refused by its name, never ignored.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, header};

pub(super) use crate::model::sensitive::shown;
use crate::{
    error::{Code, Error},
    json::{Doc, Duplicates, Kind, Limits, Value},
};

/// A body may nest as deep as any other request's.
const LIMITS: Limits = Limits { depth: 128, duplicates: Duplicates::Refuse, outline: 1 };

/// A body that is one JSON object.
pub(super) struct Input(Option<Doc>);

// === impl Input ===

impl Input {
    /// Reads a body whose members are among these; no body at all has none.
    pub fn read(headers: &HeaderMap, body: Bytes, known: &[&str]) -> Result<Self, Error> {
        if body.is_empty() {
            return Ok(Self(None));
        }
        let doc = document(headers, body)?;
        for (key, _) in doc.root().members() {
            if !known.iter().any(|name| key.is(name)) {
                let name = key.unescaped();
                let message = match known {
                    [] => format!("unknown member `{}`: there is none here", shown(&name)),
                    known => format!("unknown member `{}`: {}", shown(&name), choices(known)),
                };
                return Err(wrong(message).with_pointer(pointer(&name)));
            }
        }
        Ok(Self(Some(doc)))
    }

    /// A text of at most so many characters, if it is there. What steers a terminal is none.
    pub fn text(&self, name: &str, most: usize) -> Result<Option<Cow<'_, str>>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let bad = |what: String| Err(wrong(format!("`{name}` {what}")).with_pointer(pointer(name)));
        let Some(text) = value.as_str() else { return bad("must be a text".to_owned()) };
        let length = text.chars().count();
        if length > most {
            return bad(format!("has {length} characters, more than {most}"));
        }
        if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
            return bad("holds control characters".to_owned());
        }
        Ok(Some(text))
    }

    /// A text that is looked up somewhere, whatever it is, if it is there.
    pub fn word(&self, name: &str) -> Result<Option<Box<str>>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.as_str().filter(|text| !text.is_empty()) {
            Some(text) => Ok(Some(text.into())),
            None => {
                let message = format!("`{name}` must be a text that is not empty");
                Err(wrong(message).with_pointer(pointer(name)))
            }
        }
    }

    /// A yes or a no; no where it is not there.
    pub fn flag(&self, name: &str) -> Result<bool, Error> {
        let Some(value) = self.get(name) else { return Ok(false) };
        value.as_bool().ok_or_else(|| {
            wrong(format!("`{name}` must be true or false")).with_pointer(pointer(name))
        })
    }

    /// An object as it was written, if it is there.
    pub fn object(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        match value.kind() {
            Kind::Object => Ok(Some(value.bytes())),
            _ => {
                let message = format!("`{name}` must be an object");
                Err(wrong(message).with_pointer(pointer(name)))
            }
        }
    }

    /// Whatever is there, but null.
    pub fn value(&self, name: &str) -> Option<Value<'_>> {
        self.get(name)
    }

    fn get(&self, name: &str) -> Option<Value<'_>> {
        self.0.as_ref()?.root().get(name).filter(|value| !value.is_null())
    }
}

/// A body must say that it is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Error> {
    let named = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = named.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let message = "the body's Content-Type must be application/json";
    Err(Error::http(Code::InvalidArgs, 415, message))
}

/// A body that is one JSON object, whatever its members.
pub(super) fn document(headers: &HeaderMap, body: Bytes) -> Result<Doc, Error> {
    is_json(headers)?;
    let doc = Doc::parse(body, &LIMITS)
        .map_err(|fault| wrong(format!("the body is not JSON: {fault}")))?;
    if doc.root().kind() != Kind::Object {
        return Err(wrong("the body must be a JSON object".to_owned()));
    }
    Ok(doc)
}

/// The parameters of a query, each at most once and among these.
pub(super) fn query<const N: usize>(
    query: Option<&str>,
    known: [&str; N],
) -> Result<[Option<String>; N], Error> {
    let mut found = [const { None }; N];
    for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let Some(slot) =
            known.iter().zip(&mut found).find_map(|(k, slot)| (*k == name).then_some(slot))
        else {
            let message = match known.len() {
                0 => format!("unknown parameter `{}`: there is none here", shown(&name)),
                _ => format!("unknown parameter `{}`: {}", shown(&name), choices(&known)),
            };
            return Err(wrong(message));
        };
        if slot.replace(value.into_owned()).is_some() {
            return Err(wrong(format!("the parameter `{}` is there twice", shown(&name))));
        }
    }
    Ok(found)
}

/// A request that has to be repaired.
pub(super) fn wrong(message: String) -> Error {
    Error::new(Code::InvalidArgs, message)
}

/// The words that there are.
pub(super) fn choices(known: &[&str]) -> String {
    match known {
        [only] => format!("only `{only}` is known"),
        [first @ .., last] => format!("known are `{}` and `{last}`", first.join("`, `")),
        [] => String::new(),
    }
}

fn pointer(name: &str) -> String {
    format!("/{}", shown(name).replace('~', "~0").replace('/', "~1"))
}

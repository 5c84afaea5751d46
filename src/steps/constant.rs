//! Constants that look like credentials: a step is stored and shown, so none may stand in one.
//!
//! What a credential looks like is `model/sensitive.rs`. Here it is looked for, at any depth.

use super::path::escaped;
use crate::{
    json::{Kind, Value},
    model::sensitive::{NameKind, looks_random, looks_secret, name_kind},
};

/// Where in a constant a credential seems to stand: a pointer into it, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub pointer: String,
    pub why: &'static str,
}

/// The first text of a constant that looks like a credential, by its name or by itself.
pub(super) fn suspect(name: &str, value: Value<'_>) -> Option<Suspect> {
    let mut pointer = String::new();
    look(name, value, &mut pointer).map(|why| Suspect { pointer, why })
}

/// Nesting was bounded when the text was read.
fn look(name: &str, value: Value<'_>, pointer: &mut String) -> Option<&'static str> {
    let kept = pointer.len();
    match value.kind() {
        Kind::String => {
            let text = value.as_str()?;
            if looks_secret(&text) {
                return Some("looks like a credential");
            }
            match name_kind(name) {
                NameKind::Secret if !text.is_empty() => {
                    Some("has a name behind which credentials stand")
                }
                NameKind::Doubtful if looks_random(&text) => {
                    Some("has a name and a form that credentials have")
                }
                _ => None,
            }
        }
        Kind::Object => value.members().find_map(|(key, inner)| {
            let name = key.unescaped();
            pointer.truncate(kept);
            pointer.push('/');
            pointer.push_str(&escaped(&name));
            look(&name, inner, pointer)
        }),
        Kind::Array => value.elements().enumerate().find_map(|(index, inner)| {
            pointer.truncate(kept);
            pointer.push('/');
            pointer.push_str(&index.to_string());
            look(name, inner, pointer)
        }),
        Kind::Number | Kind::True | Kind::False | Kind::Null => None,
    }
}

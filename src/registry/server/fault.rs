//! What is wrong with a posted server, each fault with its place in the JSON.

pub(super) use crate::model::sensitive::shown;

/// A fault of something that was posted or imported. It never repeats a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct InputFault {
    /// RFC 6901; empty: the whole.
    pub pointer: String,
    pub message: String,
    pub advice: Option<String>,
}

/// Faults as they are found, at places below one.
#[derive(Debug, Default)]
pub(super) struct InputFaults(Vec<InputFault>);

impl InputFaults {
    pub fn add(&mut self, pointer: &str, message: impl Into<String>) -> &mut InputFault {
        let index = self.0.len();
        let (pointer, message) = (pointer.to_owned(), message.into());
        self.0.push(InputFault { pointer, message, advice: None });
        &mut self.0[index] // just pushed
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `good`, unless something was found.
    pub fn or<T>(self, good: Option<T>) -> Result<T, Vec<InputFault>> {
        match good {
            Some(good) if self.0.is_empty() => Ok(good),
            _ => Err(self.0),
        }
    }
}

impl InputFault {
    pub fn advise(&mut self, advice: impl Into<String>) {
        self.advice = Some(advice.into());
    }
}

/// The pointer of a member.
pub(super) fn below(pointer: &str, member: &str) -> String {
    format!("{pointer}/{}", shown(member).replace('~', "~0").replace('/', "~1"))
}

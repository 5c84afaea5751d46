//! What is wrong with a posted server, each fault with its place in the JSON.

pub(super) use crate::model::sensitive::shown;

/// A fault of something that was posted or imported. It never repeats a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {message}")]
pub struct InputFault {
    /// RFC 6901; empty: the whole.
    pub pointer: String,
    pub message: String,
    pub advice: Option<String>,
}

/// Faults that are told at once: nobody mends more of them before he asks again, and a body may
/// have hundreds of thousands.
pub(super) const MAX_FAULTS: usize = 100;

/// Faults as they are found, at places below one.
#[derive(Debug, Default)]
pub(super) struct InputFaults {
    all: Vec<InputFault>,
    /// One that is found when there are enough.
    spare: InputFault,
}

impl InputFaults {
    pub fn add(&mut self, pointer: &str, message: impl Into<String>) -> &mut InputFault {
        if self.is_full() {
            return &mut self.spare;
        }
        let index = self.all.len();
        let (pointer, message) = (pointer.to_owned(), message.into());
        self.all.push(InputFault { pointer, message, advice: None });
        &mut self.all[index] // just pushed
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// There are as many as are told: whoever reads a list stops.
    pub fn is_full(&self) -> bool {
        self.all.len() >= MAX_FAULTS
    }

    /// `good`, unless something was found.
    pub fn or<T>(mut self, good: Option<T>) -> Result<T, Vec<InputFault>> {
        match good {
            Some(good) if self.all.is_empty() => Ok(good),
            _ => {
                if self.is_full() {
                    let pointer = String::new();
                    let message = format!("not more than {MAX_FAULTS} faults are told at once");
                    self.all.push(InputFault { pointer, message, advice: None });
                }
                Err(self.all)
            }
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

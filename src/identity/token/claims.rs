//! The claims of a token, read as they stand: nothing is guessed from what is of another type.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What a token says.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct Claims(Map<String, Value>);

/// Where in the claims something stands: a claim's name, or a JSON pointer where it begins with
/// a slash. A name may hold dots and slashes, as namespaced claims do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimPath(String);

impl ClaimPath {
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into())
    }
}

impl Claims {
    /// The claims as one JSON object.
    pub(super) fn to_json(&self) -> Bytes {
        // What was read from JSON can be written as such.
        serde_json::to_vec(&self.0).unwrap_or_else(|_| b"{}".to_vec()).into()
    }

    pub fn at(&self, path: &ClaimPath) -> Option<&Value> {
        match path.0.strip_prefix('/') {
            None => self.0.get(&path.0),
            Some(rest) => {
                let mut steps =
                    rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
                let first = self.0.get(&steps.next()?)?;
                steps.try_fold(first, |value, step| match value {
                    Value::Object(members) => members.get(&step),
                    Value::Array(items) => items.get(step.parse::<usize>().ok()?),
                    _ => None,
                })
            }
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// `aud`: one text, or several.
    pub(super) fn audience(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self.0.get("aud") {
            Some(Value::String(one)) => (Some(one.as_str()), &[][..]),
            Some(Value::Array(several)) => (None, several.as_slice()),
            _ => (None, &[][..]),
        };
        one.into_iter().chain(several.iter().filter_map(Value::as_str))
    }

    /// A time in milliseconds since 1970: `Some(None)` where there is none, `None` where there
    /// is something else than a number.
    pub(super) fn time_ms(&self, name: &str) -> Option<Option<u64>> {
        let Some(value) = self.0.get(name) else { return Some(None) };
        let seconds = value.as_f64().filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not negative, and what is too large becomes the largest there is"
        )]
        Some(Some((seconds * 1000.0) as u64))
    }

    /// Words: a list of texts, or one text of words with spaces between.
    pub fn words_at(&self, path: &ClaimPath) -> Vec<Box<str>> {
        match self.at(path) {
            Some(Value::String(text)) => text.split_ascii_whitespace().map(Into::into).collect(),
            Some(Value::Array(items)) => {
                items.iter().filter_map(Value::as_str).map(Into::into).collect()
            }
            _ => Vec::new(),
        }
    }

    /// `scope`, or `scp` as some issuers call it.
    pub(super) fn scopes(&self) -> Vec<Box<str>> {
        let name = if self.0.contains_key("scope") { "scope" } else { "scp" };
        self.words_at(&ClaimPath::new(name))
    }
}

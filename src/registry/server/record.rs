//! A registration as JSON: what is kept of it beside its place, and what is told of it.
//!
//! Options stand as they are posted, so that what is told can be posted again.

use std::sync::Arc;

use super::{
    AuthKind, Options, Registration,
    fault::InputFaults,
    options::read_options,
    read::{DIALECTS, OptionLimits, given},
};
use crate::{
    json::{self, Doc, Duplicates, Limits, Value},
    model::server::DialectKind,
    yaml::duration_text,
};

const LIMITS: Limits = Limits { depth: 16, duplicates: Duplicates::Allow, outline: 2 };

/// What of a registration is neither its place nor a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub name: Option<Arc<str>>,
    pub dialect: DialectKind,
    pub auth: AuthKind,
    pub options: Options,
}

// === impl Registration ===

impl Registration {
    /// Its dialect, as it is posted.
    pub fn dialect_name(&self) -> &'static str {
        dialect_name(self.dialect)
    }

    /// Name, dialect, kind of credential and options, as one JSON object.
    pub fn body(&self) -> Vec<u8> {
        let mut out = b"{".to_vec();
        if let Some(name) = &self.name {
            push_text(&mut out, "name", name);
        }
        push_text(&mut out, "dialect", self.dialect_name());
        push_text(&mut out, "auth", self.auth.as_str());
        push_key(&mut out, "options");
        self.options.write(&mut out);
        out.push(b'}');
        out
    }
}

// === impl Options ===

impl Options {
    /// As they are posted: an object with what is not left to the operator.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        if !self.headers.is_empty() {
            push_key(out, "headers");
            out.push(b'{');
            for (name, value) in &self.headers {
                push_text(out, name.as_str(), &value.to_string());
            }
            out.push(b'}');
        }
        if let Some(protocol) = self.protocol {
            push_text(out, "protocol", protocol.as_str());
        }
        for (key, time) in [("timeout", self.timeout), ("max_time", self.max_time)] {
            if let Some(time) = time {
                push_text(out, key, &duration_text(time));
            }
        }
        let flags = [
            ("stateless", self.stateless.then_some(true)),
            ("park", self.park),
            ("inject_user", self.inject_user),
        ];
        for (key, flag) in flags {
            let Some(flag) = flag else { continue };
            push_key(out, key);
            out.extend_from_slice(if flag { b"true" } else { b"false" });
        }
        out.push(b'}');
    }
}

// === impl Body ===

impl Body {
    /// What [`Registration::body`] wrote; nothing, where that is not what it is.
    pub fn read(text: &str) -> Option<Self> {
        let doc = Doc::parse(text.to_owned().into(), &LIMITS).ok()?;
        let root = doc.root();
        let word = |key: &str| root.get(key).and_then(Value::as_str);
        let dialect = word("dialect")?;
        let dialect = DIALECTS.iter().find(|(name, _)| *name == dialect)?.1;
        // What was within the limits once is kept as it is.
        let limits = OptionLimits::NONE;
        let mut faults = InputFaults::default();
        let options = given(root, "options")?;
        let given = read_options(options, "", dialect, &limits, &mut faults);
        faults.is_empty().then_some(())?;
        Some(Self {
            name: word("name").map(|name| (&*name).into()),
            dialect,
            auth: AuthKind::parse(&word("auth")?)?,
            options: given.reopen()?,
        })
    }
}

pub(super) fn dialect_name(dialect: DialectKind) -> &'static str {
    let known = DIALECTS.iter().find(|(_, known)| *known == dialect);
    known.map_or("stdio", |(name, _)| name)
}

/// A key of an object that has been opened, and the comma before it.
pub(super) fn push_key(out: &mut Vec<u8>, key: &str) {
    if out.last() != Some(&b'{') {
        out.push(b',');
    }
    json::write_str(out, key);
    out.push(b':');
}

pub(super) fn push_text(out: &mut Vec<u8>, key: &str, text: &str) {
    push_key(out, key);
    json::write_str(out, text);
}

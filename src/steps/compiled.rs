//! Steps as they are compiled: `{"definitions", "digest", "steps", "v"}`.
//!
//! The digest is over the canonical form of all the rest, so that whoever keeps compiled steps may
//! keep them as JSON: other white space, another order of members or another spelling of a text
//! or number is the same document, and everything else is refused.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Fault, Keys, Step, keys::DigestFault, read, written};
use crate::{
    json::{self, Kind, Value},
    model::{
        caller::TenantId,
        exchange::KeyedDigest,
        ids::{from_hex, hex},
    },
};

/// The version of the form.
const VERSION: i64 = 1;

/// Steps that were compiled here.
#[derive(Debug)]
pub struct Compiled {
    pub steps: Vec<Step>,
    /// The digest of the definition that each call was compiled against, by `stepIndex`.
    pub definitions: BTreeMap<u64, [u8; 32]>,
}

/// Why a document is not what was compiled here for this tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotCompiled {
    #[error("`compiled` is not what a compilation answers: {0}")]
    Form(&'static str),
    #[error(
        "these steps were compiled under a key that this gateway no longer has: compile them again"
    )]
    UnknownKey,
    #[error(
        "the digest is not that of these steps: they were changed since they were compiled, or \
         compiled for another tenant"
    )]
    Differs,
    /// Made here once, by a version that knew more.
    #[error("these steps cannot be read by this version: {0}")]
    Unread(String),
}

// === impl Compiled ===

impl Compiled {
    /// Writes the document, with the digest for a tenant.
    pub fn write(&self, tenant: &TenantId, keys: &Keys) -> (Vec<u8>, KeyedDigest) {
        let (mut definitions, mut steps) = (Vec::new(), Vec::new());
        self.write_definitions(&mut definitions);
        written::steps(&self.steps, &mut steps);
        let digest = keys.digest(tenant, &signed(&definitions, &steps));
        let mut out = Vec::with_capacity(definitions.len() + steps.len() + 160);
        out.extend_from_slice(b"{\"definitions\":");
        out.extend_from_slice(&definitions);
        out.extend_from_slice(b",\"digest\":");
        json::write_str(&mut out, &digest.to_string());
        out.extend_from_slice(b",\"steps\":");
        out.extend_from_slice(&steps);
        out.extend_from_slice(b",\"v\":1}");
        (out, digest)
    }

    /// Reads a document that was compiled here, for this tenant.
    ///
    /// # Errors
    /// It was not, or was changed since.
    pub fn open(document: Value<'_>, tenant: &TenantId, keys: &Keys) -> Result<Self, NotCompiled> {
        const MEMBERS: [&str; 4] = ["definitions", "digest", "steps", "v"];
        if document.kind() != Kind::Object {
            return Err(NotCompiled::Form("it is a JSON object"));
        }
        if document.members().any(|(key, _)| !MEMBERS.iter().any(|name| key.is(name))) {
            return Err(NotCompiled::Form("it has `definitions`, `digest`, `steps` and `v` only"));
        }
        let missing = NotCompiled::Form("it has `definitions`, `digest`, `steps` and `v`");
        let [Some(definitions), Some(digest), Some(steps), Some(version)] =
            MEMBERS.map(|name| document.get(name))
        else {
            return Err(missing);
        };
        if version.as_i64() != Some(VERSION) {
            return Err(NotCompiled::Form("`v` is 1 in this version"));
        }
        let digest = digest.as_str().ok_or(NotCompiled::Form("`digest` is a text"))?;
        let signed = signed(definitions.raw(), steps.raw());
        keys.verify(tenant, &signed, &digest).map_err(|fault| match fault {
            DigestFault::Form => NotCompiled::Form("`digest` is not the digest of any steps"),
            DigestFault::UnknownKey => NotCompiled::UnknownKey,
            DigestFault::Differs => NotCompiled::Differs,
        })?;
        let unread = |faults: Vec<Fault>| {
            NotCompiled::Unread(faults.first().map(ToString::to_string).unwrap_or_default())
        };
        let steps = read(steps).map_err(unread)?;
        Ok(Self { steps, definitions: read_definitions(definitions) })
    }

    fn write_definitions(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (place, (index, digest)) in self.definitions.iter().enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"digest\":\"sha256:");
            out.extend_from_slice(&hex::<32, 64>(*digest));
            out.extend_from_slice(b"\",\"stepIndex\":");
            out.extend_from_slice(itoa::Buffer::new().format(*index).as_bytes());
            out.push(b'}');
        }
        out.push(b']');
    }
}

/// What the digest is of.
fn signed(definitions: &[u8], steps: &[u8]) -> Bytes {
    let text = [b"{\"definitions\":", definitions, b",\"steps\":", steps, b",\"v\":1}".as_slice()]
        .concat();
    let mut canonical = Vec::with_capacity(text.len());
    json::canonical(&text, &mut canonical);
    canonical.into()
}

/// The digest has been verified: what cannot be read was never written.
fn read_definitions(definitions: Value<'_>) -> BTreeMap<u64, [u8; 32]> {
    let read = |entry: Value<'_>| {
        let index = u64::try_from(entry.get("stepIndex")?.as_i64()?).ok()?;
        let digest = entry.get("digest")?.as_str()?;
        Some((index, from_hex(digest.strip_prefix("sha256:")?)?))
    };
    definitions.elements().filter_map(read).collect()
}

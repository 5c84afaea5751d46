//! What a server last listed, kept so that its catalog is there without asking it.
//!
//! Elements are kept byte for byte, since their digests are what was approved. What of them is
//! published is the catalog's to say.

use std::sync::Arc;

use bytes::Bytes;

use super::record::{push_key, push_text};
use crate::{
    json::{Doc, Duplicates, Kind, Limits, Value},
    mcp::{Family, Served, Version},
};

/// The last good listing of a server, and the last failure to get another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Archive {
    /// By family, in the order of [`Family::ALL`]: each element as it was listed. `None`: never.
    pub families: [Option<Vec<Bytes>>; 4],
    /// What the server declared. `None`: it has not said.
    pub served: Option<Served>,
    /// What it tells those who use it.
    pub instructions: Option<Arc<str>>,
    pub server: Option<ServerInfo>,
    pub spoken: Option<Spoken>,
    /// When it was listed. 0: never.
    pub listed_ms: u64,
    /// What went wrong since; nothing, where the last attempt succeeded.
    pub failure: Option<Failure>,
}

/// What a server calls itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    pub name: Arc<str>,
    pub version: Arc<str>,
}

/// How a server turned out to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// Stateless, by this revision.
    Modern(Version),
    /// By handshake, where this revision was agreed on; another session may agree on another.
    Handshake(Option<Version>),
    /// MCP-Lite.
    Lite,
}

/// Why a server could not be asked or listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// For the owner: no secret, no body of the server's.
    pub message: Arc<str>,
    pub at_ms: u64,
}

/// Bytes that are no archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("what is kept of a server's listing cannot be read: {0}")]
pub struct ArchiveFault(String);

const LIMITS: Limits = Limits { depth: 520, duplicates: Duplicates::Allow, outline: 2 };

// === impl Archive ===

impl Archive {
    /// Of a server that could not be listed.
    pub fn failed(message: Arc<str>, at_ms: u64) -> Self {
        Self { failure: Some(Failure { message, at_ms }), ..Self::default() }
    }

    /// The elements of a family; none where it was never listed.
    pub fn of(&self, family: Family) -> &[Bytes] {
        self.families[family as usize].as_deref().unwrap_or_default() // one for each family
    }

    /// Takes over a complete listing of a family.
    pub fn set(&mut self, family: Family, elements: Vec<Bytes>) {
        self.families[family as usize] = Some(elements); // one for each family
    }

    /// All that was listed, as one JSON object: without when, and without what went wrong.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.size() + 256);
        out.push(b'{');
        for family in Family::ALL {
            let Some(elements) = &self.families[family as usize] else { continue };
            push_key(&mut out, family.member());
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(element);
            }
            out.push(b']');
        }
        if let Some(served) = self.served {
            push_key(&mut out, "served");
            out.extend_from_slice(served.bits().to_string().as_bytes());
        }
        let texts = [
            ("instructions", self.instructions.as_deref()),
            ("serverName", self.server.as_ref().map(|server| &*server.name)),
            ("serverVersion", self.server.as_ref().map(|server| &*server.version)),
            ("spoken", self.spoken.map(Spoken::as_str)),
            ("revision", self.spoken.and_then(Spoken::version).map(Version::as_str)),
        ];
        for (key, text) in texts {
            let Some(text) = text else { continue };
            push_text(&mut out, key, text);
        }
        out.push(b'}');
        out.into()
    }

    /// What was encoded; when it was listed and what went wrong is kept beside it. Elements share
    /// the memory of `encoded`.
    pub fn decode(encoded: Bytes) -> Result<Self, ArchiveFault> {
        let doc = Doc::parse(encoded, &LIMITS).map_err(|fault| ArchiveFault(fault.to_string()))?;
        let root = doc.root();
        if root.kind() != Kind::Object {
            return Err(ArchiveFault("it is no object".to_owned()));
        }
        let text = |key: &str| root.get(key).and_then(Value::as_str).map(Arc::<str>::from);
        let families = Family::ALL.map(|family| {
            let elements = root.get(family.member()).filter(|list| list.kind() == Kind::Array)?;
            Some(elements.elements().map(Value::bytes).collect())
        });
        let revision = text("revision").and_then(|text| Version::of_server(&text));
        Ok(Self {
            families,
            served: root
                .get("served")
                .and_then(Value::as_i64)
                .and_then(|bits| u16::try_from(bits).ok())
                .map(Served::from_bits),
            instructions: text("instructions"),
            server: text("serverName").map(|name| ServerInfo {
                name,
                version: text("serverVersion").unwrap_or_else(|| "".into()),
            }),
            spoken: text("spoken").and_then(|spoken| Spoken::parse(&spoken, revision)),
            listed_ms: 0,
            failure: None,
        })
    }

    /// Whether it differs from another in its times alone.
    pub fn says_same(&self, other: &Archive) -> bool {
        fn said(it: &Archive) -> impl PartialEq + use<'_> {
            let failure = it.failure.as_ref().map(|failure| &failure.message);
            (&it.families, it.served, &it.instructions, &it.server, it.spoken, failure)
        }
        said(self) == said(other)
    }

    /// Why a server counts as not listed: without its tools it is nothing.
    pub fn unlisted(&self) -> Option<&str> {
        let failure = self.failure.as_ref()?;
        let has_tools = self.families[Family::Tools as usize].is_some(); // one for each family
        (!has_tools).then_some(&*failure.message)
    }

    /// What is known of a server after it was asked again: family by family what it listed now,
    /// else what it listed before.
    #[must_use]
    pub fn renewed(self, news: Archive) -> Archive {
        let listed = news.unlisted().is_none();
        let mut families = self.families;
        for (known, new) in families.iter_mut().zip(news.families) {
            if new.is_some() {
                *known = new;
            }
        }
        Archive {
            families,
            served: news.served.or(self.served),
            instructions: match news.served {
                Some(_) => news.instructions,
                None => self.instructions,
            },
            server: news.server.or(self.server),
            spoken: news.spoken.or(self.spoken),
            listed_ms: if listed { news.listed_ms } else { self.listed_ms },
            failure: news.failure,
        }
    }

    /// How many bytes its elements and instructions are.
    pub fn size(&self) -> usize {
        let elements = self.families.iter().flatten().flatten();
        let elements: usize = elements.map(|element| element.len() + 1).sum();
        elements + self.instructions.as_ref().map_or(0, |text| text.len())
    }
}

// === impl Spoken ===

impl Spoken {
    pub const fn as_str(self) -> &'static str {
        match self {
            Spoken::Modern(_) => "modern",
            Spoken::Handshake(_) => "handshake",
            Spoken::Lite => "mcp-lite",
        }
    }

    pub const fn version(self) -> Option<Version> {
        match self {
            Spoken::Modern(version) => Some(version),
            Spoken::Handshake(version) => version,
            Spoken::Lite => None,
        }
    }

    pub fn parse(text: &str, version: Option<Version>) -> Option<Self> {
        match text {
            "modern" => version.map(Spoken::Modern),
            "handshake" => Some(Spoken::Handshake(version)),
            "mcp-lite" => Some(Spoken::Lite),
            _ => None,
        }
    }
}

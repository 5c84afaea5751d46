//! What the registry asks of a store: every definition of a tool that was seen, and which of them
//! was approved by whom and when.
//!
//! Requests are queued at once and answered through a callback once they are durable.

use std::{fmt, sync::Arc};

use bytes::Bytes;

pub use crate::model::stored::{StoreFault, Then};
use crate::model::{
    caller::{EmployeeId, TenantId},
    server::UpstreamName,
};

/// Whose tools: those of an upstream of the configuration, or of a server of somebody's own. No
/// upstream's name has a slash in it, so that neither is ever taken for the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Scope(Arc<str>);

/// How many definitions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of one tool; one that was ever approved is kept beside them.
    pub versions: usize,
    /// Tools of one scope, listed or not. What comes beyond them is not kept, and so is never
    /// approved by first use: nobody makes room by naming ever new tools.
    pub tools: usize,
}

/// A definition that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub tool: Arc<str>,
    pub digest: [u8; 32],
    /// The JSON object, as its server sent it.
    pub definition: Bytes,
    /// Where nothing was ever approved of the tool, this is.
    pub first_use: bool,
}

/// What became of a definition that was handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub tool: Arc<str>,
    pub digest: [u8; 32],
    /// Its number among the tool's, from 1 on; `None`: there was no room for it.
    pub version: Option<u64>,
    /// Nobody had seen it before.
    pub is_new: bool,
    /// When it was seen first.
    pub first_ms: u64,
    /// What is approved of the tool.
    pub approved: Option<Approved>,
    /// It was approved just now, because it is the first.
    pub by_first_use: bool,
    /// Whoever handed the tool's history on had approved another one, so this is not approved by
    /// being seen first.
    pub is_other: bool,
}

/// How a definition came to be approved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Nothing had been approved of the tool, and policy says that this will do.
    FirstUse,
    /// Somebody has looked at it.
    Approve,
    /// Somebody went back to it.
    Rollback,
}

/// That a definition was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approved {
    pub scope: Scope,
    pub tool: Arc<str>,
    /// Among all approvals of the store: the highest of a tool is the one in force.
    pub number: u64,
    /// Of the definition.
    pub version: u64,
    pub digest: [u8; 32],
    pub definition: Bytes,
    pub how: How,
    /// The name of whoever did; empty for a first use.
    pub by: Box<str>,
    pub at_ms: u64,
}

/// Which definition of a tool is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Version(u64),
    Digest([u8; 32]),
    /// The one that was approved before the one that is.
    Before,
}

/// An approval that somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub scope: Scope,
    pub tool: Arc<str>,
    pub which: Which,
    pub how: How,
    pub by: Box<str>,
    pub at_ms: u64,
}

/// A definition that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub version: u64,
    pub digest: [u8; 32],
    pub definition: Bytes,
    pub first_ms: u64,
    /// To the hour, while it goes on being listed.
    pub last_ms: u64,
    /// It was handed on by another gateway, where it was approved. Here that approves nothing.
    pub vouched: bool,
}

/// What another gateway has kept of a tool: the numbers are its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOn {
    pub tool: Arc<str>,
    /// The oldest first.
    pub versions: Vec<Version>,
}

/// All that is kept of a tool, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    pub versions: Vec<Version>,
    pub approvals: Vec<Approved>,
}

/// Digests of definitions, by the names of their tools.
pub type Digests = Vec<(Arc<str>, [u8; 32])>;

/// Where definitions and their approvals are kept.
///
/// Of two processes that see different first definitions of a tool at the same time, the one
/// whose definition was kept first is right, and the other is told so.
pub trait PinStore: Send + Sync + 'static {
    /// Keeps what is listed. The answers are in the order of what was handed in.
    fn keep(
        &self,
        scope: Scope,
        seen: Vec<Seen>,
        bounds: Bounds,
        at_ms: u64,
        then: Then<Vec<Kept>>,
    );

    /// What is kept already of these, for whoever cannot have them kept now: what nobody has seen
    /// is left out. Nothing is written.
    fn look(&self, scope: Scope, seen: Vec<Seen>, then: Then<Vec<Kept>>);

    /// Notes that these definitions are still listed.
    fn still(&self, scope: Scope, tools: Digests, at_ms: u64, then: Then<()>);

    /// Approves a definition that is kept; `None` where there is no such one.
    fn approve(&self, wish: Wish, then: Then<Option<Approved>>);

    /// Approvals with numbers above this one, the lowest first, and no more than [`SOME`].
    fn since(&self, number: u64, then: Then<Vec<Approved>>);

    fn history(&self, scope: Scope, tool: Arc<str>, then: Then<History>);

    /// Everything that is kept of a scope, by tool.
    fn all_of(&self, scope: Scope, then: Then<Vec<(Arc<str>, History)>>);

    /// Keeps what another gateway has handed on, of those tools of which nothing is kept. It
    /// approves nothing, and where something was approved there, nothing else is approved here by
    /// being seen first.
    fn take_over(
        &self,
        scope: Scope,
        tools: Vec<HandedOn>,
        bounds: Bounds,
        at_ms: u64,
        then: Then<()>,
    );

    /// Forgets the tools that were not listed since, but for those of which somebody ever approved
    /// a definition.
    fn sweep(&self, before_ms: u64, then: Then<()>);
}

/// How many approvals are told at a time.
pub const SOME: usize = 200;

// === impl Scope ===

impl Scope {
    pub fn upstream(name: &UpstreamName) -> Self {
        Self(name.shared())
    }

    /// Of a server that an employee registered.
    pub fn own(tenant: &TenantId, owner: &EmployeeId, server: &UpstreamName) -> Self {
        Self(format!("{tenant}/{owner}/{server}").into())
    }

    /// As people write it: an upstream's name, or `TENANT/EMPLOYEE/SERVERKEY`.
    pub fn parse(text: &str) -> Option<Self> {
        match UpstreamName::parse(text) {
            Ok(name) => Some(Self::upstream(&name)),
            Err(_) => Some(Self(text.into())).filter(|scope| scope.of_own().is_some()),
        }
    }

    /// Whose server it is, and its name; nothing of an upstream of the configuration.
    pub fn of_own(&self) -> Option<(TenantId, EmployeeId, UpstreamName)> {
        // Neither an employee's id nor a serverKey has a slash.
        let (rest, key) = self.0.rsplit_once('/')?;
        let (tenant, owner) = rest.rsplit_once('/')?;
        let (owner, server) = (EmployeeId::parse(owner)?, UpstreamName::of_key(key)?);
        (!tenant.is_empty()).then(|| (TenantId::new(tenant), owner, server))
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(_, name)| name)
    }

    /// As a store has it.
    pub fn from_store(text: String) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is this upstream's.
    pub fn is(&self, name: &UpstreamName) -> bool {
        *self.0 == *name.as_str()
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl How ===

impl How {
    pub fn as_str(self) -> &'static str {
        match self {
            How::FirstUse => "first_use",
            How::Approve => "approve",
            How::Rollback => "rollback",
        }
    }

    /// As a store writes it. Never changed, for what was written stays.
    pub fn number(self) -> i64 {
        match self {
            How::FirstUse => 0,
            How::Approve => 1,
            How::Rollback => 2,
        }
    }

    pub fn from_number(number: i64) -> Option<Self> {
        [How::FirstUse, How::Approve, How::Rollback].into_iter().find(|how| how.number() == number)
    }

    /// Whether somebody has looked.
    pub fn is_somebodys(self) -> bool {
        self != How::FirstUse
    }
}

// === impl HandedOn ===

impl HandedOn {
    /// What there is room for: what was approved, and the newest of the rest.
    pub fn within(self, most: usize, at_ms: u64) -> impl Iterator<Item = Version> {
        let others = self.versions.iter().filter(|version| !version.vouched).count();
        let mut spare = others.saturating_sub(most.max(1));
        self.versions.into_iter().filter_map(move |version| {
            if !version.vouched && spare > 0 {
                spare -= 1;
                return None;
            }
            Some(Version { last_ms: at_ms, ..version })
        })
    }
}

// === impl History ===

impl History {
    /// Whether whoever handed the history on had approved another definition than this.
    pub fn is_other(&self, digest: [u8; 32]) -> bool {
        let mut vouched = self.versions.iter().filter(|version| version.vouched).peekable();
        vouched.peek().is_some() && vouched.all(|version| version.digest != digest)
    }

    /// The approval in force.
    pub fn approved(&self) -> Option<&Approved> {
        self.approvals.last()
    }

    /// The definition that is meant.
    pub fn find(&self, which: Which) -> Option<&Version> {
        let is = |version: &&Version| match which {
            Which::Version(number) => version.version == number,
            Which::Digest(digest) => version.digest == digest,
            Which::Before => self.before() == Some(version.version),
        };
        self.versions.iter().find(is)
    }

    /// What was approved before what is approved.
    pub fn before(&self) -> Option<u64> {
        let now = self.approved()?.version;
        self.approvals.iter().rev().map(|approved| approved.version).find(|other| *other != now)
    }
}

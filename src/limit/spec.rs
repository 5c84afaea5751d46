//! What a limit is, and what it is asked about.
//!
//! No file format: whoever reads policies builds these.

use std::{fmt, net::IpAddr, num::NonZeroU32, sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::quota::Allowance;
use crate::model::{
    caller::{Caller, TenantId},
    server::{Risk, UpstreamName},
};

/// One limit, as somebody wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSpec {
    /// Visible ASCII; one tenant sees each id once.
    pub id: Arc<str>,
    /// Whose calls it is about; `None` is everybody's.
    pub tenant: Option<TenantId>,
    /// What is counted apart. A call that lacks one of these is not counted at all.
    pub per: SmallVec<[Dimension; 3]>,
    /// Empty: any.
    pub upstreams: Vec<UpstreamName>,
    /// Globs over `upstream/name`, where `*` also stands for `/`. Empty: any.
    pub tools: Vec<Box<str>>,
    /// Empty: any.
    pub risks: Vec<Risk>,
    pub kind: Kind,
}

/// Of what there is only so much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Rate(Rate),
    Concurrency(Concurrency),
    /// Of cost, in a calendar window. Those are kept apart from the others, in [`Quotas`].
    ///
    /// [`Quotas`]: super::Quotas
    Quota(Arc<Allowance>),
}

/// `count` calls in each `period`, evenly spread, of which `burst` may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: NonZeroU32,
    pub period: Duration,
    pub burst: NonZeroU32,
}

/// `slots` calls at a time; `queue` more wait, each for at most `wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    pub slots: NonZeroU32,
    pub queue: u32,
    pub wait: Duration,
}

/// The closed list of what calls can be told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dimension {
    Tenant,
    Caller,
    /// The employee, else the caller.
    Principal,
    Tool,
    Upstream,
    Risk,
    /// The client's address; of an IPv6 one the first 64 bits, since whoever has one address
    /// there has all that share them.
    Address,
}

impl Dimension {
    pub const ALL: [Dimension; 7] = [
        Dimension::Tenant,
        Dimension::Caller,
        Dimension::Principal,
        Dimension::Tool,
        Dimension::Upstream,
        Dimension::Risk,
        Dimension::Address,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Dimension::Tenant => "tenant",
            Dimension::Caller => "caller",
            Dimension::Principal => "principal",
            Dimension::Tool => "tool",
            Dimension::Upstream => "upstream",
            Dimension::Risk => "risk",
            Dimension::Address => "address",
        }
    }

    pub fn parse(name: &str) -> Option<Dimension> {
        Self::ALL.into_iter().find(|dimension| dimension.as_str() == name)
    }
}

impl Dimension {
    /// Whether it tells calls of one caller apart.
    pub(super) fn is_of_item(self) -> bool {
        matches!(self, Dimension::Tool | Dimension::Upstream | Dimension::Risk)
    }
}

impl fmt::Display for Dimension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is known of a call when it is counted.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub tenant: &'a str,
    pub caller: &'a str,
    pub employee: Option<&'a str>,
    /// `None` for a method that is not about one tool.
    pub tool: Option<Tool<'a>>,
    /// What a method is about that is no tool, if it is about one thing.
    pub other: Option<Other<'a>>,
    pub address: IpAddr,
}

/// A tool of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tool<'a> {
    /// `upstream/name`.
    pub name: &'a str,
    pub upstream: &'a str,
    pub risk: Risk,
}

/// A prompt or a resource: limits count it by its upstream and its risk, and none by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Other<'a> {
    pub upstream: &'a str,
    pub risk: Risk,
}

impl<'a> Subject<'a> {
    pub fn new(caller: &'a Caller, tool: Option<Tool<'a>>) -> Self {
        Self {
            tenant: caller.tenant.as_str(),
            caller: caller.id.as_str(),
            employee: caller.principal.employee.as_ref().map(|employee| employee.as_str()),
            tool,
            other: None,
            address: caller.address,
        }
    }

    /// The same of a call that is about a prompt or a resource.
    pub fn about(self, other: Option<Other<'a>>) -> Self {
        Self { other, ..self }
    }

    pub(super) fn upstream(&self) -> Option<&'a str> {
        self.tool.map(|tool| tool.upstream).or(self.other.map(|other| other.upstream))
    }

    pub(super) fn risk(&self) -> Option<Risk> {
        self.tool.map(|tool| tool.risk).or(self.other.map(|other| other.risk))
    }
}

/// Why a set of limits cannot be put in force.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitFault {
    #[error("a limit's id is 1 to 64 visible ASCII characters: {0:?}")]
    Id(Arc<str>),
    #[error("two limits that one call can meet are named `{0}`")]
    RepeatedId(Arc<str>),
    #[error("limit `{0}` says nothing to count by in `per`")]
    NothingCounted(Arc<str>),
    #[error("limit `{id}`: `{glob}` is no glob")]
    Glob { id: Arc<str>, glob: Box<str> },
    #[error("the globs of all limits together are too much")]
    TooManyGlobs,
    #[error(
        "limit `{0}`: the period is to be more than nothing, and a full burst is to be back within ten years"
    )]
    Rate(Arc<str>),
    #[error("limit `{0}` has more slots than can be counted")]
    Slots(Arc<str>),
}

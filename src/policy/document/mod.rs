//! The policy files as they are written: typed, each part with its place.
//!
//! `kind` says what a document is, not the file's name. What a document means together with the
//! others is worked out in `compile.rs`.

mod directory;
mod limits;
mod rules;
mod tools;

use crate::{
    fault::{FaultCode, Faults, Span, nearest},
    model::caller::TenantId,
    yaml::{FromNode, MapReader, Node, VERSION, Value, Words, parsed},
};

pub use directory::{Directory, Employee};
pub use limits::{LimitKey, LimitKind, LimitRule};
pub use rules::{Effect, Globs, Reach, RiskSet, Rule};
pub use tools::{ItemClass, UpstreamClasses};

/// One document of a policy file.
#[derive(Debug)]
pub enum Document {
    Policy(PolicyDocument),
    Tools(Vec<UpstreamClasses>),
    Directory(Vec<Employee>),
}

/// `kind: Policy`: rules and limits of one scope.
#[derive(Debug)]
pub struct PolicyDocument {
    pub rules: Vec<Rule>,
    pub limits: Vec<LimitRule>,
}

/// Whom a document is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Every tenant.
    Platform,
    Tenant(TenantId),
}

impl Scope {
    pub fn tenant(&self) -> Option<&TenantId> {
        match self {
            Scope::Platform => None,
            Scope::Tenant(tenant) => Some(tenant),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Policy,
    Tools,
    Directory,
}

const KINDS: Words<Kind> = Words {
    what: "kind",
    code: FaultCode::UnknownKind,
    known: &[("Policy", Kind::Policy), ("Tools", Kind::Tools), ("Directory", Kind::Directory)],
    later: &["PolicyTest"],
};

const MODES: Words<()> = Words {
    what: "mode",
    code: FaultCode::BadValue,
    known: &[("enforce", ())],
    later: &["shadow"],
};

const PLATFORM: Words<()> =
    Words { what: "scope", code: FaultCode::BadValue, known: &[("platform", ())], later: &[] };

impl Document {
    /// Reads a document; `None` where not even its kind is known.
    pub fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        if let Some(version) = map.required_node("version", faults) {
            VERSION.read(version, faults);
        }
        let kind = map.required_node("kind", faults)?;
        let document = match KINDS.read(kind, faults)? {
            Kind::Policy => Document::Policy(PolicyDocument::read(&mut map, faults)),
            Kind::Tools => Document::Tools(tools::read(&mut map, faults)),
            Kind::Directory => Document::Directory(directory::read(&mut map, faults)),
        };
        map.finish(faults);
        Some(document)
    }
}

impl PolicyDocument {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Self {
        map.later(&["roles", "quotas"], faults);
        map.words("mode", &MODES, faults);
        let scope = map.required_node("scope", faults).and_then(|node| Scope::read(node, faults));
        // Rules of an unreadable scope are read all the same, for their own faults.
        let scope = scope.unwrap_or(Scope::Platform);
        let rules = map.node("rules").map(|node| node.list(faults)).unwrap_or_default();
        let limits = map.node("limits").map(|node| node.list(faults)).unwrap_or_default();
        Self {
            rules: rules.iter().filter_map(|node| Rule::read(node, &scope, faults)).collect(),
            limits: limits
                .iter()
                .filter_map(|node| LimitRule::read(node, &scope, faults))
                .collect(),
        }
    }
}

impl Scope {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        if let Value::Map(_) = &node.value {
            let mut map = node.map(faults)?;
            let tenant = map.required("tenant", faults);
            map.finish(faults);
            return tenant.map(Scope::Tenant);
        }
        if let Value::Text(text) = &node.value
            && nearest(text, ["platform"]).is_none()
        {
            let fault = faults.add(
                FaultCode::BadValue,
                &node.at,
                format!("unknown scope {}", node.quoted()),
            );
            fault.suggest("`platform`, or `{ tenant: NAME }`");
            return None;
        }
        PLATFORM.read(node, faults).map(|()| Scope::Platform)
    }
}

/// An id of a rule or a limit. It is told in records and headers, so it is a plain word.
fn read_id(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<(std::sync::Arc<str>, Span)> {
    let node = map.required_node("id", faults)?;
    let id = parsed(node, FaultCode::BadName, faults, |text| {
        crate::yaml::check_name(text).map(|()| text.into())
    })?;
    Some((id, node.at.clone()))
}

/// A list that narrows: an empty one would match nothing, which nobody means.
fn narrowing<T: FromNode>(
    map: &mut MapReader<'_>,
    key: &'static str,
    faults: &mut Faults,
) -> Option<Vec<T>> {
    let node = map.node(key)?;
    if matches!(&node.value, Value::Seq(items) if items.is_empty()) {
        let fault =
            faults.add(FaultCode::BadValue, &node.at, format!("`{key}` is empty: nothing matches"));
        fault.suggest("leave the key out to match everything");
        return None;
    }
    Vec::from_node(node, faults)
}

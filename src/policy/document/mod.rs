//! The policy files as they are written: typed, each part with its place.
//!
//! `kind` says what a document is, not the file's name. What a document means together with the
//! others is worked out in `compile.rs`.

mod approval;
mod cases;
mod classes;
mod directory;
mod faces;
mod language;
mod limits;
mod on_change;
mod quality;
mod quotas;
mod roles;
mod rules;
mod self_service;

use std::sync::Arc;

use crate::{
    fault::{FaultCode, Faults, Span, nearest},
    model::caller::TenantId,
    yaml::{FromNode, MapReader, Node, VERSION, Value, Words, parsed},
};

pub use approval::{Approval, Approvers, Rollout};
pub use cases::{Asked, Case, Expected, ExpectedDecision, parse_item};
pub use classes::{ItemClass, Pin, Screen, UpstreamClasses};
pub use directory::{Directory, Employee};
pub use faces::{Injected, Override, Parameter};
pub use language::Language;
pub use limits::{LimitKey, LimitKind, LimitRule, StoreDown};
pub use quotas::QuotaRule;
pub use roles::RoleRule;
pub use rules::{Effect, Globs, Reach, RiskSet, Rule};
pub use self_service::{SelfServiceRule, ShareRule};

/// One document of a policy file.
#[derive(Debug)]
pub enum Document {
    Policy(PolicyDocument),
    Tools(Vec<Arc<UpstreamClasses>>),
    Directory(Vec<Arc<Employee>>),
    Cases(Vec<Arc<Case>>),
}

/// `kind: Policy`: what holds in one scope.
#[derive(Debug)]
pub struct PolicyDocument {
    pub scope: Scope,
    /// Where it says that it is only to be looked at: what was enforced before stays in force.
    pub shadow: Option<Span>,
    pub roles: Vec<Arc<RoleRule>>,
    pub rules: Vec<Arc<Rule>>,
    pub limits: Vec<Arc<LimitRule>>,
    pub quotas: Vec<Arc<QuotaRule>>,
    pub self_service: Option<Arc<SelfServiceRule>>,
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

/// The closed lists of words that the files know.
pub(in crate::policy) mod words {
    pub(in crate::policy) use super::{
        MODES, PLATFORM,
        approval::CONFIRM,
        cases::{DECISIONS, REASONS},
        classes::{IDEMPOTENCY, PINS, SCREENS},
        limits::{KEYS, STORE_DOWN},
        on_change::ON_CHANGE,
        quality::FLAWS,
        quotas::{DOES, WINDOWS},
        rules::EFFECTS,
    };
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Policy,
    Tools,
    Directory,
    Cases,
}

const KINDS: Words<Kind> = Words {
    what: "kind",
    code: FaultCode::UnknownKind,
    known: &[
        ("Policy", Kind::Policy),
        ("Tools", Kind::Tools),
        ("Directory", Kind::Directory),
        ("PolicyTest", Kind::Cases),
    ],
    later: &[],
};

/// Whether the mode is shadow.
pub(in crate::policy) const MODES: Words<bool> = Words {
    what: "mode",
    code: FaultCode::BadValue,
    known: &[("enforce", false), ("shadow", true)],
    later: &[],
};

pub(in crate::policy) const PLATFORM: Words<()> =
    Words { what: "scope", code: FaultCode::BadValue, known: &[("platform", ())], later: &[] };

impl Document {
    /// Reads a document; `None` where not even its kind is known.
    pub fn read(node: &Node, language: Language, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        if let Some(version) = map.required_node("version", faults) {
            VERSION.read(version, faults);
        }
        let kind = map.required_node("kind", faults)?;
        let document = match KINDS.read(kind, faults)? {
            Kind::Policy => Document::Policy(PolicyDocument::read(&mut map, language, faults)),
            Kind::Tools => Document::Tools(shared(classes::read(&mut map, language, faults))),
            Kind::Directory => Document::Directory(shared(directory::read(&mut map, faults))),
            Kind::Cases => Document::Cases(shared(cases::read(&mut map, faults))),
        };
        map.finish(faults);
        Some(document)
    }
}

impl PolicyDocument {
    fn read<'n>(map: &mut MapReader<'n>, language: Language, faults: &mut Faults) -> Self {
        let mode = map.node("mode");
        let shadow = mode.filter(|node| MODES.read(node, faults) == Some(true));
        let shadow = shadow.map(|node| node.at.clone());
        let scope = map.required_node("scope", faults).and_then(|node| Scope::read(node, faults));
        // Rules of an unreadable scope are read all the same, for their own faults.
        let scope = scope.unwrap_or(Scope::Platform);
        let roles = roles::read(map, faults);
        let self_service = SelfServiceRule::read(map, &scope, language, faults);
        let mut list = |key, map: &mut MapReader<'n>| map.node(key).map(|node| node.list(faults));
        let rules = list("rules", map).unwrap_or_default().iter();
        let limits = list("limits", map).unwrap_or_default().iter();
        let quotas = list("quotas", map).unwrap_or_default().iter();
        let rules = rules.filter_map(|node| Rule::read(node, &scope, faults)).collect();
        let limits = limits.filter_map(|node| LimitRule::read(node, &scope, faults));
        let limits = limits.collect();
        let quotas = quotas.filter_map(|node| QuotaRule::read(node, &scope, faults)).collect();
        Self {
            shadow,
            roles: shared(roles),
            rules: shared(rules),
            limits: shared(limits),
            quotas: shared(quotas),
            self_service: self_service.map(Arc::new),
            scope,
        }
    }
}

fn shared<T>(things: Vec<T>) -> Vec<Arc<T>> {
    things.into_iter().map(Arc::new).collect()
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
fn read_id(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<(Arc<str>, Span)> {
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

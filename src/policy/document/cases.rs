//! `kind: PolicyTest`: what somebody expects of the other documents. Nothing here runs them.

use bytes::Bytes;

use super::{RiskSet, narrowing};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        caller::{CallerId, EmployeeId, Role, Roles, TenantId},
        exchange::DecisionKind,
        server::{Risk, UpstreamName},
    },
    policy::{Family, Named, glob::ItemGlob},
    yaml::{MapReader, Node, Spanned, Value, Words, parsed},
};

/// One expectation.
#[derive(Debug)]
pub struct Case {
    pub name: Box<str>,
    pub at: Span,
    pub tenant: TenantId,
    /// `None`: those of the employee, or a key without an employee.
    pub roles: Option<Roles>,
    pub employee: Option<EmployeeId>,
    pub caller: Option<CallerId>,
    /// The tenant whose tools are asked for, where it is another one.
    pub foreign: Option<TenantId>,
    /// Quotas that are taken for spent so far, in percent.
    pub spent: Vec<(Box<str>, u32)>,
    pub asks: Asked,
}

/// What is asked, and what should be answered.
#[derive(Debug)]
pub enum Asked {
    Call { item: Named, arguments: Option<Bytes>, expect: Expected },
    List { only_risk: Option<RiskSet>, visible: Vec<ItemGlob>, hidden: Vec<ItemGlob> },
}

/// What a call should be answered. What is absent may be anything.
#[derive(Debug)]
pub struct Expected {
    pub at: Span,
    pub decision: ExpectedDecision,
    pub reason: Option<&'static str>,
    pub rule: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedDecision {
    Allow,
    /// Not let through, hidden or not.
    Deny,
    Hide,
    RequireApproval,
}

pub(in crate::policy) const DECISIONS: Words<ExpectedDecision> = Words {
    what: "decision",
    code: FaultCode::BadValue,
    known: &[
        ("allow", ExpectedDecision::Allow),
        ("deny", ExpectedDecision::Deny),
        ("hide", ExpectedDecision::Hide),
        ("require_approval", ExpectedDecision::RequireApproval),
    ],
    later: &[],
};

pub(in crate::policy) const REASONS: Words<&str> = Words {
    what: "reason",
    code: FaultCode::BadValue,
    known: &[
        ("rule_allow", "rule_allow"),
        ("default_deny", "default_deny"),
        ("rule_deny", "rule_deny"),
        ("rule_approval", "rule_approval"),
        ("unclassified", "unclassified"),
        ("tenant_boundary", "tenant_boundary"),
        ("quota_exhausted", "quota_exhausted"),
    ],
    later: &[],
};

/// The keys that name what a call is of.
const CALLS: [(&str, Family); 3] =
    [("call", Family::Tools), ("get", Family::Prompts), ("read", Family::Resources)];

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<Case> {
    let node = map.required_node("cases", faults);
    let nodes = node.map(|node| node.list(faults)).unwrap_or_default();
    nodes.iter().filter_map(|node| Case::read(node, faults)).collect()
}

// === impl Case ===

impl Case {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let name: Option<Spanned<String>> = map.required("name", faults);
        let who = map.required_node("as", faults).and_then(|node| Viewer::read(node, faults));
        let foreign: Option<TenantId> = map.optional("at", faults);
        let spent = map.node("given").map(|node| read_given(node, faults)).unwrap_or_default();
        let asks = Asked::read(&mut map, faults);
        map.finish(faults);
        let (name, who) = (name?, who?);
        Some(Self {
            name: name.value.into(),
            at: name.at,
            foreign: foreign.filter(|foreign| *foreign != who.tenant),
            tenant: who.tenant,
            roles: who.roles,
            employee: who.employee,
            caller: who.caller,
            spent,
            asks: asks?,
        })
    }
}

/// Who asks.
struct Viewer {
    tenant: TenantId,
    roles: Option<Roles>,
    employee: Option<EmployeeId>,
    caller: Option<CallerId>,
}

impl Viewer {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let tenant = map.required("tenant", faults);
        // An empty list is somebody without a role, and not nobody.
        let roles: Option<Vec<Role>> = map.optional("roles", faults);
        let employee = map.optional("employee", faults);
        let caller = map.optional("caller", faults);
        map.finish(faults);
        Some(Self { tenant: tenant?, roles: roles.map(Roles::new), employee, caller })
    }
}

fn read_given(node: &Node, faults: &mut Faults) -> Vec<(Box<str>, u32)> {
    let Some(mut map) = node.map(faults) else { return Vec::new() };
    let quotas = map.required_node("quota", faults).map(|node| node.named(faults));
    map.finish(faults);
    let quotas = quotas.unwrap_or_default().into_iter();
    let spent = quotas.filter_map(|entry| {
        let percent =
            parsed(&entry.value, FaultCode::BadValue, faults, super::quotas::parse_percent)?;
        Some((entry.key.as_str().into(), percent))
    });
    spent.collect()
}

// === impl Asked ===

impl Asked {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let calls: Vec<_> = CALLS
            .into_iter()
            .filter_map(|(key, family)| map.entry(key).map(|entry| (entry, family)))
            .collect();
        let list = map.entry("list");
        let arguments = map.node("args");
        let expect = map.node("expect");
        match (calls.as_slice(), list) {
            ([(entry, family)], None) => {
                let item = parsed(&entry.value, FaultCode::BadName, faults, |text| {
                    parse_item(*family, text)
                });
                let arguments = match arguments {
                    Some(node) => Some(read_arguments(node, faults)?),
                    None => None,
                };
                if expect.is_none() {
                    faults.add(FaultCode::MissingKey, map.at, "`expect` is missing");
                }
                let expect = expect.and_then(|node| Expected::read(node, faults));
                Some(Self::Call { item: item?, arguments, expect: expect? })
            }
            ([], Some(list)) => {
                for (key, node) in [("args", arguments), ("expect", expect)] {
                    if let Some(node) = node {
                        let message = format!("`{key}` says nothing about a `list`");
                        faults.add(FaultCode::Contradiction, &node.at, message);
                    }
                }
                Self::read_list(&list.value, faults)
            }
            ([], None) => {
                let message = "none of `call`, `get`, `read` and `list`: nothing is asked";
                faults.add(FaultCode::MissingKey, map.at, message);
                None
            }
            _ => {
                let message = "a case asks one thing: write two cases";
                faults.add(FaultCode::Contradiction, map.at, message);
                None
            }
        }
    }

    fn read_list(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let only_risk: Option<Vec<Risk>> = narrowing(&mut map, "only_risk", faults);
        let visible = narrowing(&mut map, "visible", faults);
        let hidden = narrowing(&mut map, "hidden", faults);
        let nothing = ["only_risk", "visible", "hidden"].iter().all(|key| map.entry(key).is_none());
        map.finish(faults);
        if nothing {
            let message = "none of `only_risk`, `visible` and `hidden`: nothing is expected";
            faults.add(FaultCode::MissingKey, &node.at, message);
        }
        Some(Self::List {
            only_risk: only_risk.map(|risks| risks.into_iter().collect()),
            visible: visible.unwrap_or_default(),
            hidden: hidden.unwrap_or_default(),
        })
    }
}

/// `upstream/name`; the error goes on after "`text` ".
pub fn parse_item(family: Family, text: &str) -> Result<Named, String> {
    let (upstream, name) = text.split_once('/').unwrap_or_default();
    let is_one = UpstreamName::of_key(upstream).is_some() || UpstreamName::parse(upstream).is_ok();
    if !is_one || name.is_empty() {
        let example = match family {
            Family::Tools => "crm/contacts.find",
            Family::Prompts => "crm/summary",
            Family::Resources => "crm/file:///notes.txt",
        };
        return Err(format!("is not one {}, as in `{example}`", family.one()));
    }
    Ok(Named { family, upstream: upstream.into(), name: name.into() })
}

fn read_arguments(node: &Node, faults: &mut Faults) -> Option<Bytes> {
    node.entries(faults)?;
    let mut text = String::new();
    write_json(node, &mut text, faults)?;
    Some(text.into())
}

/// A value as JSON, its numbers as they were written.
fn write_json(node: &Node, out: &mut String, faults: &mut Faults) -> Option<()> {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Text(text) => out.push_str(&serde_json::Value::from(text.as_str()).to_string()),
        Value::Int(_) | Value::Float(_) => {
            let is_json = serde_json::from_str::<serde_json::Number>(&node.raw).is_ok();
            if !is_json {
                let message = format!("{} is not a number of JSON", node.raw);
                faults.add(FaultCode::BadValue, &node.at, message);
                return None;
            }
            out.push_str(&node.raw);
        }
        Value::Seq(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                write_json(item, out, faults)?;
            }
            out.push(']');
        }
        Value::Map(_) => {
            out.push('{');
            for (index, entry) in node.named(faults).into_iter().enumerate() {
                out.push_str(if index > 0 { "," } else { "" });
                out.push_str(&serde_json::Value::from(entry.key.as_str()).to_string());
                out.push(':');
                write_json(&entry.value, out, faults)?;
            }
            out.push('}');
        }
        Value::Unknown => return None,
    }
    Some(())
}

// === impl Expected ===

impl Expected {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        let decision =
            map.required_node("decision", faults).and_then(|node| DECISIONS.read(node, faults));
        let reason = map.words("reason", &REASONS, faults);
        let rule: Option<String> = map.optional("rule", faults);
        map.finish(faults);
        let rule = rule.map(Into::into);
        Some(Self { at: node.at.clone(), decision: decision?, reason, rule })
    }
}

// === impl ExpectedDecision ===

impl ExpectedDecision {
    pub fn is_met_by(self, kind: DecisionKind) -> bool {
        match self {
            ExpectedDecision::Allow => kind == DecisionKind::Allow,
            ExpectedDecision::Deny => matches!(kind, DecisionKind::Deny | DecisionKind::Hide),
            ExpectedDecision::Hide => kind == DecisionKind::Hide,
            ExpectedDecision::RequireApproval => kind == DecisionKind::RequireApproval,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            ExpectedDecision::Allow => "allow",
            ExpectedDecision::Deny => "deny",
            ExpectedDecision::Hide => "hide",
            ExpectedDecision::RequireApproval => "require_approval",
        }
    }
}

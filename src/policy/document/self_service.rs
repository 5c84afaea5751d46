//! `self_service`: which servers employees may register themselves, as it is written in one
//! scope. What two scopes say together is `policy/self_service.rs`.

use super::{Scope, classes::ItemClass, language::Language, narrowing};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::caller::Role,
    policy::self_service::HostGlob,
    yaml::{FromNode, MapReader, Node, Spanned, Value, parsed},
};

/// What one scope says. What is absent does not narrow what the other scope says.
#[derive(Debug)]
pub struct SelfServiceRule {
    pub at: Span,
    pub scope: Scope,
    /// Nobody registers anything.
    pub off: bool,
    /// Who may register: employees with one of these.
    pub roles: Option<Box<[Spanned<Role>]>>,
    pub hosts: Option<Box<[HostGlob]>>,
    pub max_each: Option<u32>,
    pub share: Option<ShareRule>,
    /// How the tools of such servers are treated, where no `kind: Tools` file says.
    pub default: Option<ItemClass>,
}

/// Who may share what he registered with a team of his.
#[derive(Debug)]
pub struct ShareRule {
    pub at: Span,
    /// Empty: nobody.
    pub roles: Box<[Spanned<Role>]>,
}

/// The most servers that an employee may be given.
const MOST: u32 = 1_000;

impl SelfServiceRule {
    pub(super) fn read(
        map: &mut MapReader<'_>,
        scope: &Scope,
        language: Language,
        faults: &mut Faults,
    ) -> Option<Self> {
        let entry = map.entry("self_service")?;
        let nothing = Self {
            at: entry.key_at.clone(),
            scope: scope.clone(),
            off: true,
            roles: None,
            hosts: None,
            max_each: None,
            share: None,
            default: None,
        };
        match &entry.value.value {
            Value::Text(text) if text == "off" => return Some(nothing),
            Value::Map(_) => {}
            Value::Unknown => return None,
            _ => {
                let message =
                    format!("expected a mapping or `off`, found {}", entry.value.describe());
                faults.add(FaultCode::WrongType, &entry.value.at, message);
                return None;
            }
        }
        let mut map = entry.value.map(faults)?;
        let roles: Option<Vec<Spanned<Role>>> = narrowing(&mut map, "roles", faults);
        let hosts: Option<Vec<HostGlob>> = narrowing(&mut map, "hosts", faults);
        let rule = Self {
            off: false,
            roles: roles.map(Into::into),
            hosts: hosts.map(Into::into),
            max_each: read_most(&mut map, faults),
            share: map
                .entry("share")
                .and_then(|entry| ShareRule::read(&entry.value, &entry.key_at, faults)),
            default: map.entry("default").and_then(|entry| {
                ItemClass::read_for_all(&entry.value, &entry.key_at, language, faults)
            }),
            ..nothing
        };
        map.finish(faults);
        Some(rule)
    }
}

impl SelfServiceRule {
    /// Every role that something is open to.
    pub fn asked_roles(&self) -> impl Iterator<Item = &Spanned<Role>> {
        let share = self.share.iter().flat_map(|share| share.roles.iter());
        self.roles.iter().flatten().chain(share)
    }
}

fn read_most(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<u32> {
    let most: Spanned<u32> = map.optional("max_each", faults)?;
    if !(1..=MOST).contains(&most.value) {
        let message = format!("`max_each` is 1 to {MOST}");
        let fault = faults.add(FaultCode::BadValue, &most.at, message);
        fault.suggest("`self_service: off`, if nobody is to register anything");
    }
    Some(most.value)
}

impl ShareRule {
    fn read(node: &Node, at: &Span, faults: &mut Faults) -> Option<Self> {
        let at = at.clone();
        if node.value == Value::Bool(false) {
            return Some(Self { at, roles: Box::default() });
        }
        if !matches!(node.value, Value::Map(_)) {
            node.wrong_type("`false` or a mapping with `roles`", faults);
            return None;
        }
        let mut map = node.map(faults)?;
        let given = map.entry("roles").is_some();
        let roles: Option<Vec<Spanned<Role>>> = narrowing(&mut map, "roles", faults);
        if !given {
            let fault = faults.add(FaultCode::MissingKey, &node.at, "`roles` is missing");
            fault.suggest("say who may share: `share: { roles: [member] }`");
        }
        map.finish(faults);
        Some(Self { at, roles: roles?.into() })
    }
}

impl FromNode for HostGlob {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadGlob, faults, |text| HostGlob::parse(text, &node.at))
    }
}

//! Policies as they are compiled: everything that can be worked out before a catalog is known.
//!
//! The order of files and of rules within them changes nothing: whatever could depend on it is
//! sorted or refused.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use super::{
    Family, Library, OnHold,
    classes::Classes,
    document::{
        Case, Directory, Employee, Injected, ItemClass, LimitRule, Override, Pin, QuotaRule, Rule,
        Screen,
    },
    scope::{RoleBook, ScopeRules},
    set::Set,
    uri::expands,
};
use crate::{
    fault::{Fault, Source, Span},
    json,
    model::{
        caller::{EmployeeId, Roles, TenantId},
        change::ChangeClasses,
        quality::Demand,
        server::{IdempotencyMode, Risk},
    },
};

/// The policies in force, whatever the catalog holds.
#[derive(Debug, Clone)]
pub struct Policies {
    pub(super) enforced: Arc<Compiled>,
    /// What all files together would say, where some are only to be looked at.
    pub(super) shadow: Option<Arc<Compiled>>,
    /// What somebody expects of them.
    pub(super) cases: Arc<[Arc<Case>]>,
}

/// A file of the policy folder.
#[derive(Debug, Clone)]
pub struct PolicyFile {
    /// Its path within the folder, with `/`: what the revision knows it by.
    pub path: String,
    pub source: Arc<Source>,
}

/// Something of the catalog, by its upstream and the upstream's own name of it: for a resource
/// its URI, for a resource template its text.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    pub family: Family,
    pub upstream: &'a str,
    pub name: &'a str,
}

/// How a tool, prompt or resource is treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemPolicy {
    /// The worst there is where nobody has said.
    pub risk: Risk,
    /// Somebody has said what it may do; otherwise it is hidden whatever the rules.
    pub classified: bool,
    /// What a call costs, in the units of quotas.
    pub cost: u32,
    pub pin: Pin,
    /// Changes of its definition after which a tool that only looks is held.
    pub hold: ChangeClasses,
    /// Instead of the upstream's.
    pub timeout: Option<Duration>,
    /// Instead of the upstream's.
    pub max_time: Option<Duration>,
    /// A call that may have run can be sent again.
    pub retry_safe: bool,
    pub idempotency: IdempotencyMode,
    /// The argument that carries the key, if the tool has one of its own.
    pub idempotency_argument: Option<Arc<str>>,
    /// The upstream honours our key.
    pub upstream_idempotent: bool,
    /// Arguments that the gateway sets.
    pub inject: Option<Arc<[Injected]>>,
    pub screen: Option<Screen>,
    /// What its definition has to be like, where nobody has approved it.
    pub quality: Demand,
    /// What is published instead of what the upstream says.
    pub published: Option<Arc<Override>>,
}

#[derive(Debug, Clone)]
pub(super) struct Compiled {
    pub revision: Arc<str>,
    pub platform: Arc<ScopeRules>,
    /// Of tenants that have a file of their own.
    pub tenants: BTreeMap<TenantId, Arc<ScopeRules>>,
    pub upstreams: Arc<HashMap<Arc<str>, Classes>>,
    pub directory: Arc<Directory>,
    /// How what nobody classifies of employees' own servers is treated, where policies are about
    /// these.
    pub personal: Option<Arc<ItemClass>>,
    /// The names of the operator's upstreams, by serverKey, where policies are about employees'
    /// own servers.
    pub operators: Arc<Operators>,
}

/// Names of upstreams of the configuration, by serverKey.
pub type Operators = HashMap<Arc<str>, Vec<Arc<str>>>;

// === impl Policies ===

impl Policies {
    /// Policies that allow nothing.
    pub fn none() -> Self {
        let (policies, _) = Self::compile(Vec::new());
        // Nothing is wrong with no file.
        policies.unwrap_or_else(|| Self {
            enforced: Arc::default(),
            shadow: None,
            cases: Arc::default(),
        })
    }

    /// Compiles files. There are policies unless there is an error; warnings come beside them.
    pub fn compile(files: Vec<PolicyFile>) -> (Option<Self>, Vec<Fault>) {
        Library::default().compile(files)
    }

    /// The first 12 hex digits of the digest over the files.
    pub fn revision(&self) -> &Arc<str> {
        &self.enforced.revision
    }

    /// Whether some files are only to be looked at.
    pub fn has_shadow(&self) -> bool {
        self.shadow.is_some()
    }

    /// What all files together say, those in shadow mode too.
    pub fn as_written(&self) -> Self {
        let written = self.shadow.as_ref().unwrap_or(&self.enforced);
        Self { enforced: written.clone(), shadow: None, cases: self.cases.clone() }
    }

    /// What is expected of them, in the order of files and lines.
    pub fn cases(&self) -> &[Arc<Case>] {
        &self.cases
    }

    /// Every rule in force, by scope and id.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.enforced.rules()
    }

    /// Whether a rule looks at arguments.
    pub fn has_conditions(&self) -> bool {
        self.rules().any(|rule| !rule.when.is_empty())
    }

    /// Whether a tool is published otherwise than its upstream lists it, or sent more than its
    /// callers send.
    pub fn has_faces(&self) -> bool {
        self.enforced.upstreams.values().any(|classes| classes.faces().next().is_some())
    }

    /// The tools whose own entry says so, by upstream and name, and where.
    pub fn faces(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Span)> {
        self.enforced.upstreams.iter().flat_map(|(upstream, classes)| {
            let named = classes.faces().filter_map(|(name, class)| Some((name?, class)));
            named.map(move |(name, class)| (upstream, name, &class.at))
        })
    }

    /// Every limit in force, by scope and id.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<LimitRule>> {
        self.enforced.limits()
    }

    /// Every quota in force, by scope and id.
    pub fn quotas(&self) -> impl Iterator<Item = &Arc<QuotaRule>> {
        self.enforced.scopes().flat_map(|scope| &scope.quotas)
    }

    /// The tenants that have rules of their own.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantId> {
        self.enforced.tenants.keys()
    }

    pub fn directory(&self) -> &Arc<Directory> {
        &self.enforced.directory
    }

    /// The roles that the claims of a token, a JSON object, give an employee of a tenant.
    pub fn roles_from_claims(&self, tenant: &TenantId, claims: json::Value<'_>) -> Roles {
        self.enforced.roles_of(tenant).given_by(claims)
    }

    /// Roles, and all that come with them in a tenant. What a view sees is worked out from these;
    /// whoever asks it need not call this.
    pub fn with_included(&self, tenant: &TenantId, roles: &Roles) -> Roles {
        self.enforced.roles_of(tenant).with_included(roles)
    }

    /// What the files say of something in the catalog.
    pub fn item(&self, subject: Subject<'_>) -> ItemPolicy {
        self.enforced.item(subject)
    }

    /// Applies the policies to a catalog. An item's index is its place in `subjects`.
    pub fn bind(&self, subjects: &[Subject<'_>]) -> Set {
        self.bind_but(subjects, &[])
    }

    /// The same, but what is held cannot be called whatever the rules say.
    pub fn bind_but(&self, subjects: &[Subject<'_>], held: &[OnHold]) -> Set {
        Set::new(self.enforced.clone(), self.shadow.clone(), subjects, held, &[])
    }

    /// What [`Policies::personal`] policies say of something, whose server says that it is of no
    /// less risk than this.
    pub fn item_raised(&self, subject: Subject<'_>, at_least: Option<Risk>) -> ItemPolicy {
        self.enforced.item_raised(subject, at_least)
    }

    /// Applies [`Policies::personal`] policies to a catalog. `at_least` has, in the order of the
    /// subjects, what their servers say of their risk; where it is shorter, nothing is said. It
    /// raises what `self_service.default` says, and nothing that the operator says of a tool.
    pub fn bind_raised(
        &self,
        subjects: &[Subject<'_>],
        held: &[OnHold],
        at_least: &[Option<Risk>],
    ) -> Set {
        Set::new(self.enforced.clone(), self.shadow.clone(), subjects, held, at_least)
    }
}

// === impl Compiled ===

impl Default for Compiled {
    fn default() -> Self {
        Self {
            revision: "".into(),
            platform: Arc::default(),
            tenants: BTreeMap::new(),
            upstreams: Arc::default(),
            directory: Arc::default(),
            personal: None,
            operators: Arc::default(),
        }
    }
}

impl Compiled {
    /// The platform's, then each tenant's.
    pub fn scopes(&self) -> impl Iterator<Item = &Arc<ScopeRules>> {
        [&self.platform].into_iter().chain(self.tenants.values())
    }

    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.scopes().flat_map(|scope| &scope.rules)
    }

    pub fn limits(&self) -> impl Iterator<Item = &Arc<LimitRule>> {
        self.scopes().flat_map(|scope| &scope.limits)
    }

    pub fn roles_of(&self, tenant: &TenantId) -> RoleBook<'_> {
        let own = self.tenants.get(tenant).map(|own| &**own);
        RoleBook { platform: &self.platform, own }
    }

    /// What is said of an item: by its name, or else by the upstream's default. A resource may
    /// also come from a template that is classified; of several the worst counts.
    pub fn item(&self, subject: Subject<'_>) -> ItemPolicy {
        self.item_raised(subject, None)
    }

    /// The same, where the server says of it that it is of no less risk than this.
    pub fn item_raised(&self, subject: Subject<'_>, at_least: Option<Risk>) -> ItemPolicy {
        let said = self.class(subject);
        if let Some(operators) = self.operators.get(subject.upstream) {
            return self.as_operators(subject, operators, said);
        }
        // No name of an operator's upstream has an underscore, and every serverKey has.
        let personal = self.personal.as_ref().filter(|_| subject.upstream.contains('_'));
        let class = match (said, personal) {
            (None, None) => return ItemPolicy::unclassified(),
            (Some(said), None) => said,
            (Some(said), Some(default)) if said.risk.is_some() => said.over(Some(default)),
            (said, Some(default)) => {
                let default = ItemClass::clone(default);
                let mut class = match said {
                    Some(said) => said.over(Some(&default)),
                    None => default,
                };
                class.risk = class.risk.map(|risk| at_least.map_or(risk, |said| risk.max(said)));
                class
            }
        };
        ItemPolicy::new(&class)
    }

    /// How something of an employee's own server is treated whose address is an operator's
    /// upstream's: as it is there, for it does the same. Of several such upstreams the worst
    /// counts, and what nobody says anything of is hidden, as there. What files say of the
    /// serverKey makes it no better.
    fn as_operators(
        &self,
        subject: Subject<'_>,
        operators: &[Arc<str>],
        said: Option<ItemClass>,
    ) -> ItemPolicy {
        let said = said.and_then(|said| said.risk);
        let there = operators.iter().map(|name| self.class(Subject { upstream: name, ..subject }));
        let worst = there.max_by_key(|class| {
            let risk = class.as_ref().and_then(|class| class.risk);
            (risk.is_none(), risk)
        });
        let Some(mut class) = worst.flatten() else { return ItemPolicy::unclassified() };
        class.risk = class.risk.map(|risk| said.map_or(risk, |said| risk.max(said)));
        ItemPolicy::new(&class)
    }

    /// What the files say of an item itself.
    fn class(&self, subject: Subject<'_>) -> Option<ItemClass> {
        let classes = self.upstreams.get(subject.upstream)?;
        let own = classes.of(subject.family);
        let class = match own.get(subject.name) {
            None if subject.family == Family::Resources => {
                let templates = own.iter().filter(|(name, _)| name.contains('{'));
                let fitting = templates.filter(|(name, _)| expands(name, subject.name));
                // What has no risk of its own is hidden, which is worse than any.
                let key = |(name, class): &(&Arc<str>, &ItemClass)| {
                    let risk = class.over(classes.default.as_ref()).risk;
                    (risk.is_none(), risk, Arc::clone(name))
                };
                fitting.max_by_key(key).map(|(_, class)| class)
            }
            class => class,
        };
        match (class, &classes.default) {
            (Some(class), default) => Some(class.over(default.as_ref())),
            (None, default) => default.clone(),
        }
    }
}

// === impl Subject ===

impl<'a> Subject<'a> {
    pub fn tool(upstream: &'a str, name: &'a str) -> Self {
        Self { family: Family::Tools, upstream, name }
    }

    pub fn prompt(upstream: &'a str, name: &'a str) -> Self {
        Self { family: Family::Prompts, upstream, name }
    }

    /// A resource by its URI, or a template by its text.
    pub fn resource(upstream: &'a str, uri: &'a str) -> Self {
        Self { family: Family::Resources, upstream, name: uri }
    }

    /// `upstream/name`.
    pub fn full(&self) -> String {
        format!("{}/{}", self.upstream, self.name)
    }
}

// === impl ItemPolicy ===

impl ItemPolicy {
    fn unclassified() -> Self {
        Self {
            risk: Risk::WriteHigh,
            classified: false,
            cost: 1,
            pin: Pin::FirstUse,
            hold: ChangeClasses::USUAL,
            timeout: None,
            max_time: None,
            retry_safe: false,
            idempotency: IdempotencyMode::Required,
            idempotency_argument: None,
            upstream_idempotent: false,
            inject: None,
            screen: None,
            quality: Demand::default(),
            published: None,
        }
    }

    pub(super) fn new(class: &ItemClass) -> Self {
        let risk = class.risk.unwrap_or(Risk::WriteHigh);
        let usual =
            if risk.is_write() { IdempotencyMode::Required } else { IdempotencyMode::Optional };
        Self {
            risk,
            classified: class.risk.is_some(),
            cost: class.cost.unwrap_or(1),
            pin: class.pin.unwrap_or(Pin::FirstUse),
            hold: class.on_change.as_ref().map_or(ChangeClasses::USUAL, |it| it.hold),
            timeout: class.timeout.as_ref().map(|time| time.value),
            max_time: class.max_time.as_ref().map(|time| time.value),
            // What the default says of reads does not make a write one.
            retry_safe: !risk.is_write() && class.retry_safe.as_ref().is_some_and(|it| it.value),
            idempotency: class.idempotency.as_ref().map_or(usual, |mode| mode.value),
            idempotency_argument: class.idempotency_argument.clone(),
            upstream_idempotent: class.upstream_idempotent.as_ref().is_some_and(|it| it.value),
            inject: class.inject.clone(),
            screen: class.screen,
            quality: class.quality.as_ref().map_or(Demand::default(), |it| it.value),
            published: class.published.clone(),
        }
    }
}

impl ItemPolicy {
    /// Whether callers neither see nor send an argument of the tool.
    pub fn withholds(&self, argument: &str) -> bool {
        let injected = self.inject.iter().flat_map(|all| all.iter());
        let mut hidden = self.published.iter().flat_map(|published| published.hidden());
        injected.into_iter().any(|injected| *injected.argument == *argument)
            || hidden.any(|(name, _)| name == argument)
    }
}

// === impl Directory ===

impl Directory {
    pub fn find(&self, id: &EmployeeId) -> Option<&Employee> {
        self.employees.get(id).map(|employee| &**employee)
    }
}

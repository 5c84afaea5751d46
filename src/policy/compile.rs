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
    document::{
        Case, Directory, Employee, Injected, ItemClass, LimitRule, Override, Pin, QuotaRule, Rule,
        Screen, UpstreamClasses,
    },
    scope::{RoleBook, ScopeRules},
    set::Set,
    uri::expands,
};
use crate::{
    fault::{Fault, FaultCode, Faults, Source, Span},
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

#[derive(Debug)]
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
}

/// What is said of an upstream's tools, prompts and resources.
#[derive(Debug)]
pub(super) struct Classes {
    pub at: Span,
    pub default: Option<ItemClass>,
    /// By family, in the order of [`Family::ALL`].
    items: [HashMap<Arc<str>, ItemClass>; 3],
}

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

// === impl Classes ===

impl Classes {
    /// Of all tools of some upstream.
    pub fn of_all(default: &ItemClass) -> Self {
        let default = Some(default.clone());
        Self { at: Span::file(""), default, items: Default::default() }
    }

    /// Adds what a document says of an upstream.
    pub fn add(
        upstreams: &mut HashMap<Arc<str>, Classes>,
        said: &UpstreamClasses,
        faults: &mut Faults,
    ) {
        let upstream = &said.upstream;
        let classes = upstreams.entry(upstream.shared()).or_insert_with(|| Classes {
            at: said.at.clone(),
            default: None,
            items: Default::default(),
        });
        let mut twice = |what: String, at: &Span, first: &Span| {
            let fault = faults.add(FaultCode::ClassifiedTwice, at, what);
            fault.relate(first, "here the first time");
        };
        match (&said.default, &classes.default) {
            (Some(default), Some(first)) => {
                let what = format!("the `default` of `{upstream}` is given twice");
                twice(what, &default.at, &first.at);
            }
            (Some(default), None) => classes.default = Some(default.clone()),
            (None, _) => {}
        }
        for (family, name, class) in &said.items {
            let known = &mut classes.items[*family as usize]; // one for each family
            match known.get(name) {
                Some(first) => {
                    let what = format!("`{upstream}/{name}` is classified twice");
                    twice(what, &class.at, &first.at);
                }
                None => {
                    known.insert(name.clone(), class.clone());
                }
            }
        }
    }

    /// What says that something is published otherwise than it is listed: of a tool, or of all.
    fn faces(&self) -> impl Iterator<Item = (Option<&Arc<str>>, &ItemClass)> {
        let tools = self.of(Family::Tools).iter().map(|(name, class)| (Some(name), class));
        let all = self.default.iter().map(|class| (None, class)).chain(tools);
        all.filter(|(_, class)| class.inject.is_some() || class.published.is_some())
    }

    pub fn of(&self, family: Family) -> &HashMap<Arc<str>, ItemClass> {
        &self.items[family as usize] // one for each family
    }

    /// A write that may have run is never sent again because somebody calls it safe.
    fn check_repeats(&self, faults: &mut Faults) {
        let items = self.items.iter().flat_map(HashMap::values);
        for class in items.chain(&self.default) {
            let Some(safe) = class.retry_safe.as_ref().filter(|safe| safe.value) else { continue };
            if class.over(self.default.as_ref()).risk.is_some_and(Risk::is_write) {
                let message = "`retry_safe` is about reads, and this is a write";
                let fault = faults.add(FaultCode::Contradiction, &safe.at, message);
                fault
                    .suggest("`upstream_idempotent: true`, if the server carries out one key once");
            }
        }
    }

    /// What an item says may contradict what it takes from the default, or what another says.
    pub fn check_whole(&self, faults: &mut Faults) {
        for class in self.items.iter().flat_map(HashMap::values) {
            let whole = class.over(self.default.as_ref());
            let (Some(timeout), Some(max_time)) = (&whole.timeout, &whole.max_time) else {
                continue;
            };
            // Both its own, or both the default's: reported when they were read.
            if class.timeout.is_some() != class.max_time.is_some() && timeout.value > max_time.value
            {
                let message = "`timeout` is longer than `max_time`, which ends every call";
                let fault = faults.add(FaultCode::Contradiction, &timeout.at, message);
                fault.relate(&max_time.at, "`max_time` is here");
            }
        }
        self.check_keys(faults);
        self.check_names(faults);
        self.check_repeats(faults);
    }

    fn check_keys(&self, faults: &mut Faults) {
        let items = self.of(Family::Tools).values().map(|class| class.over(self.default.as_ref()));
        let mut told: Vec<Span> = Vec::new();
        for class in self.default.iter().cloned().chain(items) {
            let required = ItemPolicy::new(&class).idempotency == IdempotencyMode::Required;
            // What the default says is told once.
            if let Some((name, at, how)) = class.keyless(required)
                && !told.contains(at)
            {
                let message = format!("`{name}` carries the idempotency key, and is {how}");
                faults.add(FaultCode::Contradiction, at, message);
                told.push(at.clone());
            }
        }
    }

    fn check_names(&self, faults: &mut Faults) {
        let mut given: HashMap<&str, &Span> = HashMap::new();
        let mut tools: Vec<_> = self.of(Family::Tools).iter().collect();
        tools.sort_by_key(|(own, _)| *own);
        for (_, class) in tools {
            let name = class.published.as_ref().and_then(|published| published.name.as_ref());
            let Some(name) = name else { continue };
            if let Some(first) = given.insert(&name.value, &name.at) {
                let message = format!("two tools are to be published as `{}`", name.value);
                let fault = faults.add(FaultCode::Contradiction, &name.at, message);
                fault.relate(first, "here the first time");
            }
        }
    }
}

// === impl Directory ===

impl Directory {
    pub fn find(&self, id: &EmployeeId) -> Option<&Employee> {
        self.employees.get(id).map(|employee| &**employee)
    }
}

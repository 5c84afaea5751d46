//! Documents to policies: everything that can be worked out before a catalog is known.
//!
//! The order of files and of rules within them changes nothing: whatever could depend on it is
//! sorted or refused here.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use sha2::{Digest, Sha256};

use super::{
    Family,
    decide::Set,
    document::{
        Directory, Document, Globs, ItemClass, LimitRule, RiskSet, Rule, Scope, UpstreamClasses,
    },
};
use crate::{
    fault::{Fault, FaultCode, Faults, Source, Span},
    model::{
        caller::{CallerId, EmployeeId, TenantId},
        server::{IdempotencyMode, Risk},
    },
    yaml,
};

/// The policies in force, whatever the catalog holds.
#[derive(Debug, Clone)]
pub struct Policies(pub(super) Arc<Compiled>);

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
    /// Instead of the upstream's.
    pub timeout: Option<Duration>,
    /// Instead of the upstream's.
    pub max_time: Option<Duration>,
    pub idempotency: IdempotencyMode,
    /// The argument that carries the key, if the tool has one of its own.
    pub idempotency_argument: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Compiled {
    pub revision: Arc<str>,
    pub rules: Vec<Arc<Rule>>,
    /// The selector of each rule.
    pub selector_of: Vec<usize>,
    pub selectors: Vec<Selector>,
    pub platform: ScopeRules,
    /// Of tenants that have rules of their own.
    pub tenants: HashMap<TenantId, ScopeRules>,
    pub upstreams: HashMap<Arc<str>, Classes>,
    pub limits: Vec<Arc<LimitRule>>,
    pub directory: Arc<Directory>,
}

/// The rules of one scope.
#[derive(Debug, Default)]
pub(super) struct ScopeRules {
    pub rules: Vec<usize>,
    /// Callers that some rule names; to all others these rules are alike.
    pub callers: HashSet<CallerId>,
}

/// What a rule is about. Rules that say the same share one.
#[derive(Debug)]
pub(super) struct Selector {
    pub globs: Globs,
    pub risk: Option<RiskSet>,
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
        Self(Arc::new(Compiler::default().finish(revision(&[]))))
    }

    /// Compiles files. There are policies unless there is an error; warnings come beside them.
    pub fn compile(mut files: Vec<PolicyFile>) -> (Option<Self>, Vec<Fault>) {
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut faults = Faults::new();
        let mut compiler = Compiler::default();
        for file in &files {
            match yaml::parse(&file.source) {
                Ok(documents) => {
                    for node in &documents {
                        if let Some(document) = Document::read(node, &mut faults) {
                            compiler.add(document, &mut faults);
                        }
                    }
                }
                Err(fault) => faults.extend([fault]),
            }
        }
        compiler.check(&mut faults);
        let compiled =
            (!faults.has_errors()).then(|| Self(Arc::new(compiler.finish(revision(&files)))));
        (compiled, faults.into_sorted())
    }

    /// The first 12 hex digits of the digest over the files.
    pub fn revision(&self) -> &Arc<str> {
        &self.0.revision
    }

    /// Every rule, by scope and id.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.0.rules
    }

    /// Every limit, by scope and id.
    pub fn limits(&self) -> &[Arc<LimitRule>] {
        &self.0.limits
    }

    pub fn directory(&self) -> &Arc<Directory> {
        &self.0.directory
    }

    /// What the files say of something in the catalog.
    pub fn item(&self, subject: Subject<'_>) -> ItemPolicy {
        self.0.item(subject)
    }

    /// Applies the policies to a catalog. An item's index is its place in `subjects`.
    pub fn bind(&self, subjects: &[Subject<'_>]) -> Set {
        Set::new(self.0.clone(), subjects)
    }
}

impl Compiled {
    pub fn item(&self, subject: Subject<'_>) -> ItemPolicy {
        self.upstreams.get(subject.upstream).map_or_else(
            ItemPolicy::unclassified,
            |classes| match (classes.of(subject.family).get(subject.name), &classes.default) {
                (Some(class), default) => ItemPolicy::new(&class.over(default.as_ref())),
                (None, Some(default)) => ItemPolicy::new(default),
                (None, None) => ItemPolicy::unclassified(),
            },
        )
    }
}

impl<'a> Subject<'a> {
    /// `upstream/name`.
    pub fn full(&self) -> String {
        format!("{}/{}", self.upstream, self.name)
    }

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
}

impl ItemPolicy {
    fn unclassified() -> Self {
        Self {
            risk: Risk::WriteHigh,
            classified: false,
            timeout: None,
            max_time: None,
            idempotency: IdempotencyMode::Required,
            idempotency_argument: None,
        }
    }

    pub(super) fn new(class: &ItemClass) -> Self {
        let risk = class.risk.unwrap_or(Risk::WriteHigh);
        let usual =
            if risk.is_write() { IdempotencyMode::Required } else { IdempotencyMode::Optional };
        Self {
            risk,
            classified: class.risk.is_some(),
            timeout: class.timeout.as_ref().map(|time| time.value),
            max_time: class.max_time.as_ref().map(|time| time.value),
            idempotency: class.idempotency.as_ref().map_or(usual, |mode| mode.value),
            idempotency_argument: class.idempotency_argument.clone(),
        }
    }
}

/// The digest of the files, each with its path: the same files, the same revision.
fn revision(files: &[PolicyFile]) -> Arc<str> {
    let mut digest = Sha256::new_with_prefix(b"hangu.policy.v1");
    for file in files {
        for part in [&file.path, &file.source.text] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    digest.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// Gathers documents.
#[derive(Default)]
struct Compiler {
    rules: Vec<Arc<Rule>>,
    limits: Vec<Arc<LimitRule>>,
    upstreams: HashMap<Arc<str>, Classes>,
    directory: Directory,
}

impl Compiler {
    fn add(&mut self, document: Document, faults: &mut Faults) {
        match document {
            Document::Policy(policy) => {
                self.rules.extend(policy.rules.into_iter().map(Arc::new));
                self.limits.extend(policy.limits.into_iter().map(Arc::new));
            }
            Document::Tools(upstreams) => {
                upstreams.into_iter().for_each(|tools| self.add_classes(tools, faults));
            }
            Document::Directory(employees) => {
                for employee in employees {
                    match self.directory.employees.get(&employee.id) {
                        Some(first) => {
                            let message = format!("employee `{}` is here twice", employee.id);
                            let fault = faults.add(FaultCode::EmployeeTwice, &employee.at, message);
                            fault.relate(&first.at, "here the first time");
                        }
                        None => {
                            self.directory.employees.insert(employee.id.clone(), employee);
                        }
                    }
                }
            }
        }
    }

    fn add_classes(&mut self, tools: UpstreamClasses, faults: &mut Faults) {
        let upstream = tools.upstream;
        let classes = self.upstreams.entry(upstream.shared()).or_insert_with(|| Classes {
            at: tools.at,
            default: None,
            items: Default::default(),
        });
        let mut twice = |what: String, at: &Span, first: &Span| {
            let fault = faults.add(FaultCode::ClassifiedTwice, at, what);
            fault.relate(first, "here the first time");
        };
        if let Some(default) = tools.default {
            match &classes.default {
                Some(first) => {
                    let what = format!("the `default` of `{upstream}` is given twice");
                    twice(what, &default.at, &first.at);
                }
                None => classes.default = Some(default),
            }
        }
        for (family, name, class) in tools.items {
            let known = &mut classes.items[family as usize]; // one for each family
            match known.get(&name) {
                Some(first) => {
                    let what = format!("`{upstream}/{name}` is classified twice");
                    twice(what, &class.at, &first.at);
                }
                None => {
                    known.insert(name, class);
                }
            }
        }
    }

    /// Looks for what no single document can know.
    fn check(&mut self, faults: &mut Faults) {
        // By scope and id, and not by where they were read.
        self.rules.sort_by(|a, b| (&a.scope, &a.id).cmp(&(&b.scope, &b.id)));
        self.limits.sort_by(|a, b| (&a.scope, &a.id).cmp(&(&b.scope, &b.id)));
        let rules = self.rules.iter().map(|rule| (&rule.scope, &rule.id, &rule.at));
        repeated_ids("rule", rules, faults);
        let limits = self.limits.iter().map(|limit| (&limit.scope, &limit.id, &limit.at));
        repeated_ids("limit", limits, faults);
        self.upstreams.values().for_each(|classes| classes.check_times(faults));
    }

    fn finish(self, revision: Arc<str>) -> Compiled {
        let mut selectors = Vec::new();
        let mut known = HashMap::new();
        let mut selector_of = Vec::with_capacity(self.rules.len());
        let mut platform = ScopeRules::default();
        let mut tenants: HashMap<TenantId, ScopeRules> = HashMap::new();
        for (index, rule) in self.rules.iter().enumerate() {
            let selector = Selector { globs: rule.globs.clone(), risk: rule.risk };
            let next = selectors.len();
            let number = *known.entry(selector.key()).or_insert(next);
            if number == next {
                selectors.push(selector);
            }
            selector_of.push(number);
            let scope = match &rule.scope {
                Scope::Platform => &mut platform,
                Scope::Tenant(tenant) => tenants.entry(tenant.clone()).or_default(),
            };
            scope.rules.push(index);
            let callers = rule.callers.iter().flatten().map(|caller| caller.value.clone());
            scope.callers.extend(callers);
        }
        Compiled {
            revision,
            rules: self.rules,
            selector_of,
            selectors,
            platform,
            tenants,
            upstreams: self.upstreams,
            limits: self.limits,
            directory: Arc::new(self.directory),
        }
    }
}

/// An id is told in records and headers, so no tenant may see one twice: not within a scope, and
/// not in its own scope and the platform's.
fn repeated_ids<'a>(
    what: &str,
    things: impl Iterator<Item = (&'a Scope, &'a Arc<str>, &'a Span)>,
    faults: &mut Faults,
) {
    // The platform's come first.
    let mut seen: HashMap<(&Scope, &str), &Span> = HashMap::new();
    for (scope, id, at) in things {
        let first = seen.get(&(scope, &**id)).or_else(|| seen.get(&(&Scope::Platform, &**id)));
        match first {
            Some(first) => {
                let message = format!("{what} `{id}` is here twice");
                let fault = faults.add(FaultCode::DuplicateId, at, message);
                fault.relate(first, "here the first time");
            }
            None => {
                seen.insert((scope, id), at);
            }
        }
    }
}

impl Selector {
    fn key(&self) -> (Vec<(Family, String)>, Option<RiskSet>) {
        let globs = self.globs.iter().map(|(family, glob)| (family, glob.as_str().to_owned()));
        let mut globs: Vec<_> = globs.collect();
        globs.sort();
        globs.dedup();
        (globs, self.risk)
    }

    pub fn matches(&self, family: Family, full: &str, risk: Risk) -> bool {
        self.risk.is_none_or(|risks| risks.contains(risk)) && self.globs.matches(family, full)
    }
}

impl Classes {
    pub fn of(&self, family: Family) -> &HashMap<Arc<str>, ItemClass> {
        &self.items[family as usize] // one for each family
    }

    /// An item's time may contradict the one it takes from the default.
    fn check_times(&self, faults: &mut Faults) {
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
    }
}

impl Directory {
    pub fn find(&self, id: &EmployeeId) -> Option<&super::document::Employee> {
        self.employees.get(id)
    }
}

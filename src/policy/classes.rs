//! What all files together say of an upstream's tools, prompts and resources, and what in it
//! contradicts itself.

use std::{collections::HashMap, sync::Arc};

use super::{
    Family, ItemPolicy,
    document::{ItemClass, UpstreamClasses},
};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::server::{IdempotencyMode, Risk},
};

/// What is said of an upstream's tools, prompts and resources.
#[derive(Debug)]
pub(super) struct Classes {
    pub at: Span,
    pub default: Option<ItemClass>,
    /// By family, in the order of [`Family::ALL`].
    items: [HashMap<Arc<str>, ItemClass>; 3],
}

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
    pub fn faces(&self) -> impl Iterator<Item = (Option<&Arc<str>>, &ItemClass)> {
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

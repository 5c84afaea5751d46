//! What each tool, prompt and resource is: its risk, and how it is treated.

use std::{sync::Arc, time::Duration};

use super::{
    faces::{Injected, Override},
    language::Language,
    on_change::OnChange,
    quality,
};
use crate::{
    fault::{FaultCode, Faults, Span},
    model::{
        ids,
        quality::Demand,
        server::{IdempotencyMode, Risk, UpstreamName},
    },
    policy::Family,
    yaml::{Entry, MapReader, Node, Spanned, Value, Words},
};

/// One upstream's entry in a `kind: Tools` document.
#[derive(Debug)]
pub struct UpstreamClasses {
    pub upstream: UpstreamName,
    pub at: Span,
    /// Of all three families.
    pub default: Option<ItemClass>,
    /// By family and the upstream's own name; a resource's name is its URI.
    pub items: Vec<(Family, Arc<str>, ItemClass)>,
}

/// What is written of a tool, prompt or resource; what is absent comes from the upstream's
/// `default`.
#[derive(Debug, Clone)]
pub struct ItemClass {
    pub at: Span,
    pub risk: Option<Risk>,
    pub cost: Option<u32>,
    pub pin: Option<Pin>,
    pub on_change: Option<OnChange>,
    pub timeout: Option<Spanned<Duration>>,
    pub max_time: Option<Spanned<Duration>>,
    /// Of reads alone.
    pub retry_safe: Option<Spanned<bool>>,
    pub idempotency: Option<Spanned<IdempotencyMode>>,
    pub idempotency_argument: Option<Arc<str>>,
    pub upstream_idempotent: Option<Spanned<bool>>,
    pub inject: Option<Arc<[Injected]>>,
    pub screen: Option<Screen>,
    /// What its definition has to be like.
    pub quality: Option<Spanned<Demand>>,
    pub published: Option<Arc<Override>>,
}

/// Which definition of a tool may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// The one first seen.
    FirstUse,
    /// One that a person has approved.
    Approve,
    /// The one with this digest.
    Exactly([u8; 32]),
}

/// What happens to a result that looks like an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Screen {
    Mark,
    Clean,
    Block,
}

pub(in crate::policy) const IDEMPOTENCY: Words<IdempotencyMode> = Words {
    what: "idempotency",
    code: FaultCode::BadValue,
    known: &[
        ("none", IdempotencyMode::None),
        ("optional", IdempotencyMode::Optional),
        ("required", IdempotencyMode::Required),
    ],
    later: &[],
};

pub(in crate::policy) const SCREENS: Words<Screen> = Words {
    what: "screening",
    code: FaultCode::BadValue,
    known: &[("mark", Screen::Mark), ("clean", Screen::Clean), ("block", Screen::Block)],
    later: &[],
};

pub(in crate::policy) const PINS: Words<Pin> = Words {
    what: "pin",
    code: FaultCode::BadValue,
    known: &[("first_use", Pin::FirstUse), ("approve", Pin::Approve)],
    later: &[],
};

/// The longest name of a tool, a prompt or an argument, in bytes.
pub(super) const MAX_NAME: usize = 256;

/// The longest URI of a resource, in bytes.
const MAX_URI: usize = 2_048;

pub(super) fn read(
    map: &mut MapReader<'_>,
    language: Language,
    faults: &mut Faults,
) -> Vec<UpstreamClasses> {
    let entries = map.required_node("upstreams", faults).map(|node| node.named(faults));
    let entries = entries.unwrap_or_default().into_iter();
    entries.filter_map(|entry| UpstreamClasses::read(entry, language, faults)).collect()
}

// === impl UpstreamClasses ===

impl UpstreamClasses {
    fn read(entry: &Entry, language: Language, faults: &mut Faults) -> Option<Self> {
        let of_key = UpstreamName::of_key(&entry.key).ok_or(());
        let upstream = match of_key.or_else(|()| UpstreamName::parse(&entry.key)) {
            Ok(upstream) => Some(upstream),
            Err(reason) => {
                let message = format!("`{}` is no name here: {reason}", entry.key);
                faults.add(FaultCode::BadName, &entry.key_at, message);
                None
            }
        };
        let mut map = entry.value.map(faults)?;
        let class = |entry: &Entry, faults: &mut Faults| {
            ItemClass::read(&entry.value, &entry.key_at, language, faults)
        };
        let default = map.entry("default").and_then(|entry| {
            ItemClass::read_for_all(&entry.value, &entry.key_at, language, faults)
        });
        let mut items = Vec::new();
        for family in Family::ALL {
            let entries = map.node(family.key()).map(|node| node.named(faults)).unwrap_or_default();
            for item in entries {
                let max = if family == Family::Resources { MAX_URI } else { MAX_NAME };
                check_length(&item.key, max, &item.key_at, faults);
                if let Some(class) = class(item, faults) {
                    if family != Family::Tools {
                        class.check_no_face(family, faults);
                        if let Some(demand) = &class.quality {
                            quality::not_of(family, &demand.at, faults);
                        }
                    }
                    items.push((family, item.key.as_str().into(), class));
                }
            }
        }
        map.finish(faults);
        Some(Self { upstream: upstream?, at: entry.key_at.clone(), default, items })
    }
}

// === impl ItemClass ===

impl ItemClass {
    fn read(node: &Node, at: &Span, language: Language, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        language.refuse(&mut map, faults);
        let class = Self {
            at: at.clone(),
            risk: map.optional("risk", faults),
            cost: map.optional("cost", faults),
            pin: map.node("pin").and_then(|node| Pin::read(node, faults)),
            on_change: map.node("on_change").and_then(|node| OnChange::read(node, faults)),
            timeout: some_time(&mut map, "timeout", faults),
            max_time: some_time(&mut map, "max_time", faults),
            retry_safe: map.optional("retry_safe", faults),
            idempotency: map.node("idempotency").and_then(|node| {
                IDEMPOTENCY.read(node, faults).map(|mode| Spanned::new(mode, &node.at))
            }),
            idempotency_argument: read_argument(&mut map, faults),
            upstream_idempotent: map.optional("upstream_idempotent", faults),
            inject: map.node("inject").map(|node| Injected::read_all(node, faults).into()),
            screen: map.words("screen", &SCREENS, faults),
            quality: quality::read(&mut map, faults),
            published: Override::read(&mut map, faults).map(Arc::new),
        };
        map.finish(faults);
        class.check(faults);
        Some(class)
    }

    /// A class of all tools of an upstream.
    pub(super) fn read_for_all(
        node: &Node,
        at: &Span,
        language: Language,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut class = Self::read(node, at, language, faults)?;
        class.for_all(faults);
        Some(class)
    }

    fn check(&self, faults: &mut Faults) {
        if let (Some(mode), Some(_)) = (&self.idempotency, &self.idempotency_argument)
            && mode.value == IdempotencyMode::None
        {
            let message = "`idempotency: none` with an `idempotency_argument`";
            faults.add(FaultCode::Contradiction, &mode.at, message);
        }
        if let (Some(mode), Some(honours)) = (&self.idempotency, &self.upstream_idempotent)
            && mode.value == IdempotencyMode::None
            && honours.value
        {
            let message =
                "`upstream_idempotent` with `idempotency: none`: there is no key to honour";
            faults.add(FaultCode::Contradiction, &honours.at, message);
        }
        if let (Some(risk), Some(on_change)) = (self.risk, &self.on_change)
            && risk != Risk::ReadLow
            && on_change.keeps
        {
            let message = format!(
                "`on_change` lets a `{}` tool go on after a change: only a `read_low` one may, any \
                 other is held until somebody approves",
                risk.as_str()
            );
            faults.add(FaultCode::Contradiction, &on_change.at, message);
        }
        for parameter in self.published.iter().flat_map(|published| &published.parameters) {
            if self.inject.iter().flat_map(|all| all.iter()).any(|i| i.argument == parameter.name) {
                parameter.says_nothing("injected", faults);
            }
        }
        if let (Some(timeout), Some(max_time)) = (&self.timeout, &self.max_time)
            && timeout.value > max_time.value
        {
            let fault = faults.add(
                FaultCode::Contradiction,
                &timeout.at,
                "`timeout` is longer than `max_time`, which ends every call",
            );
            fault.relate(&max_time.at, "`max_time` is here");
        }
    }

    /// An argument that carries the idempotency key, which is the caller's to choose, and that he
    /// cannot send: its name, where that is said, and how. `required`: calls need a key, and one
    /// argument is taken for it where no other is named.
    pub fn keyless(&self, required: bool) -> Option<(&str, &Span, &'static str)> {
        let named = self.idempotency_argument.as_deref();
        let key = named.or(required.then_some("idempotencyKey"));
        let injected = self.inject.iter().flat_map(|all| all.iter());
        let injected = injected.map(|i| (&*i.argument, &i.at, "injected"));
        let hidden = self.published.iter().flat_map(|published| published.hidden());
        let hidden = hidden.map(|(name, at)| (name, at, "hidden"));
        injected.chain(hidden).find(|(name, ..)| Some(*name) == key)
    }

    /// It is of all tools of an upstream.
    fn for_all(&mut self, faults: &mut Faults) {
        for injected in self.inject.iter_mut().flat_map(Arc::make_mut) {
            injected.if_known = true;
        }
        if let Some(published) = &mut self.published {
            Arc::make_mut(published).for_all(faults);
        }
    }

    /// Only tools have arguments, and a face.
    fn check_no_face(&self, family: Family, faults: &mut Faults) {
        let key = match (&self.inject, &self.published) {
            (Some(_), _) => "inject",
            (None, Some(_)) => "override",
            (None, None) if self.on_change.is_some() => "on_change",
            (None, None) => return,
        };
        let message = format!("`{key}` is about tools, and this is a {}", family.one());
        faults.add(FaultCode::Contradiction, &self.at, message);
    }

    /// This one's settings, and the default's where it has none.
    pub fn over(&self, default: Option<&ItemClass>) -> ItemClass {
        let mut class = self.clone();
        let Some(default) = default.cloned() else { return class };
        class.risk = class.risk.or(default.risk);
        class.cost = class.cost.or(default.cost);
        class.pin = class.pin.or(default.pin);
        class.on_change = class.on_change.or(default.on_change);
        class.timeout = class.timeout.or(default.timeout);
        class.max_time = class.max_time.or(default.max_time);
        class.retry_safe = class.retry_safe.or(default.retry_safe);
        class.idempotency = class.idempotency.or(default.idempotency);
        class.idempotency_argument = class.idempotency_argument.or(default.idempotency_argument);
        class.upstream_idempotent = class.upstream_idempotent.or(default.upstream_idempotent);
        class.inject = Injected::over(class.inject, default.inject);
        class.screen = class.screen.or(default.screen);
        class.quality = class.quality.or(default.quality);
        class.published = Override::over(class.published, default.published);
        class
    }
}

// === impl Pin ===

impl Pin {
    fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        if let Value::Text(text) = &node.value
            && let Some(digits) = text.strip_prefix("sha256:")
        {
            let digest = ids::from_hex(digits);
            if digest.is_none() {
                let message = "not a digest: `sha256:` is followed by 64 digits of 0-9 and a-f";
                faults.add(FaultCode::BadValue, &node.at, message);
            }
            return digest.map(Pin::Exactly);
        }
        PINS.read(node, faults)
    }
}

fn some_time(
    map: &mut MapReader<'_>,
    key: &'static str,
    faults: &mut Faults,
) -> Option<Spanned<Duration>> {
    let time: Spanned<Duration> = map.optional(key, faults)?;
    if time.value.is_zero() {
        faults.add(FaultCode::BadValue, &time.at, format!("`{key}` is no time at all"));
    }
    Some(time)
}

fn read_argument(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Arc<str>> {
    let name: Spanned<String> = map.optional("idempotency_argument", faults)?;
    check_length(&name.value, MAX_NAME, &name.at, faults);
    Some(name.value.into())
}

pub(super) fn check_length(name: &str, max: usize, at: &Span, faults: &mut Faults) {
    if name.is_empty() || name.len() > max {
        faults.add(FaultCode::BadName, at, format!("a name has 1 to {max} bytes"));
    }
}

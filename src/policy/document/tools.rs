//! What each tool, prompt and resource is: its risk, and how it is treated.

use std::{sync::Arc, time::Duration};

use crate::{
    fault::{FaultCode, Faults, Span},
    model::server::{IdempotencyMode, Risk, UpstreamName},
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

/// What is written of a tool, prompt or resource; what is absent comes from the upstream's `default`.
#[derive(Debug, Clone)]
pub struct ItemClass {
    pub at: Span,
    pub risk: Option<Risk>,
    pub timeout: Option<Spanned<Duration>>,
    pub max_time: Option<Spanned<Duration>>,
    pub idempotency: Option<Spanned<IdempotencyMode>>,
    pub idempotency_argument: Option<Arc<str>>,
}

const IDEMPOTENCY: Words<IdempotencyMode> = Words {
    what: "idempotency",
    code: FaultCode::BadValue,
    known: &[
        ("none", IdempotencyMode::None),
        ("optional", IdempotencyMode::Optional),
        ("required", IdempotencyMode::Required),
    ],
    later: &[],
};

const PINS: Words<()> = Words {
    what: "pin",
    code: FaultCode::BadValue,
    known: &[("first_use", ())],
    later: &["approve"],
};

/// The longest name of a tool, a prompt or an argument, in bytes.
const MAX_NAME: usize = 256;

/// The longest URI of a resource, in bytes.
const MAX_URI: usize = 2_048;

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<UpstreamClasses> {
    let entries = map.required_node("upstreams", faults).map(|node| node.named(faults));
    let entries = entries.unwrap_or_default().into_iter();
    entries.filter_map(|entry| UpstreamClasses::read(entry, faults)).collect()
}

impl UpstreamClasses {
    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        let upstream = match UpstreamName::parse(&entry.key) {
            Ok(upstream) => Some(upstream),
            Err(reason) => {
                let message = format!("`{}` is no name here: {reason}", entry.key);
                faults.add(FaultCode::BadName, &entry.key_at, message);
                None
            }
        };
        let mut map = entry.value.map(faults)?;
        let default = map
            .entry("default")
            .and_then(|entry| ItemClass::read(&entry.value, &entry.key_at, faults));
        let mut items = Vec::new();
        for family in Family::ALL {
            let entries = map.node(family.key()).map(|node| node.named(faults)).unwrap_or_default();
            for item in entries {
                let max = if family == Family::Resources { MAX_URI } else { MAX_NAME };
                check_length(&item.key, max, &item.key_at, faults);
                if let Some(class) = ItemClass::read(&item.value, &item.key_at, faults) {
                    items.push((family, item.key.as_str().into(), class));
                }
            }
        }
        map.finish(faults);
        Some(Self { upstream: upstream?, at: entry.key_at.clone(), default, items })
    }
}

impl ItemClass {
    fn read(node: &Node, at: &Span, faults: &mut Faults) -> Option<Self> {
        let mut map = node.map(faults)?;
        map.later(
            &[
                "cost",
                "retry_safe",
                "upstream_idempotent",
                "inject",
                "screen",
                "name",
                "description",
                "hide",
                "override",
            ],
            faults,
        );
        read_pin(&mut map, faults);
        let class = Self {
            at: at.clone(),
            risk: map.optional("risk", faults),
            timeout: some_time(&mut map, "timeout", faults),
            max_time: some_time(&mut map, "max_time", faults),
            idempotency: map.node("idempotency").and_then(|node| {
                IDEMPOTENCY.read(node, faults).map(|mode| Spanned::new(mode, &node.at))
            }),
            idempotency_argument: read_argument(&mut map, faults),
        };
        map.finish(faults);
        if let (Some(mode), Some(_)) = (&class.idempotency, &class.idempotency_argument)
            && mode.value == IdempotencyMode::None
        {
            let message = "`idempotency: none` with an `idempotency_argument`";
            faults.add(FaultCode::Contradiction, &mode.at, message);
        }
        if let (Some(timeout), Some(max_time)) = (&class.timeout, &class.max_time)
            && timeout.value > max_time.value
        {
            let fault = faults.add(
                FaultCode::Contradiction,
                &timeout.at,
                "`timeout` is longer than `max_time`, which ends every call",
            );
            fault.relate(&max_time.at, "`max_time` is here");
        }
        Some(class)
    }

    /// This one's settings, and the default's where it has none.
    pub fn over(&self, default: Option<&ItemClass>) -> ItemClass {
        let mut class = self.clone();
        if let Some(default) = default {
            class.risk = class.risk.or(default.risk);
            class.timeout = class.timeout.or_else(|| default.timeout.clone());
            class.max_time = class.max_time.or_else(|| default.max_time.clone());
            class.idempotency = class.idempotency.or_else(|| default.idempotency.clone());
            class.idempotency_argument =
                class.idempotency_argument.or_else(|| default.idempotency_argument.clone());
        }
        class
    }
}

fn read_pin(map: &mut MapReader<'_>, faults: &mut Faults) {
    let Some(node) = map.node("pin") else { return };
    if matches!(&node.value, Value::Text(text) if text.starts_with("sha256:")) {
        let message = "a `pin` of one definition is not part of this version";
        let fault = faults.add(FaultCode::NotInThisVersion, &node.at, message);
        fault.suggest("only `first_use` is known");
        return;
    }
    PINS.read(node, faults);
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

fn check_length(name: &str, max: usize, at: &Span, faults: &mut Faults) {
    if name.is_empty() || name.len() > max {
        faults.add(FaultCode::BadName, at, format!("a name has 1 to {max} bytes"));
    }
}

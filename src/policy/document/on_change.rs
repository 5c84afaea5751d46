//! `on_change`: after which changes of its definition a tool that only looks is not called any
//! more. What may do worse is held after any.

use crate::{
    fault::{FaultCode, Faults, Span},
    model::change::{ChangeClass, ChangeClasses},
    yaml::{Node, Value, Words},
};

/// What is done after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnChange {
    pub at: Span,
    /// Changes after which the tool is held.
    pub hold: ChangeClasses,
    /// Somebody has said that it goes on after others.
    pub keeps: bool,
}

/// Whether the tool is held.
pub(in crate::policy) const ON_CHANGE: Words<bool> = Words {
    what: "answer to a change",
    code: FaultCode::BadValue,
    known: &[("keep", false), ("quarantine", true)],
    later: &[],
};

impl OnChange {
    pub(super) fn read(node: &Node, faults: &mut Faults) -> Option<Self> {
        let of = |hold, keeps| Self { at: node.at.clone(), hold, keeps };
        let Value::Map(_) = &node.value else {
            return ON_CHANGE.read(node, faults).map(|held| match held {
                true => of(ChangeClasses::ALL, false),
                false => of(ChangeClasses::NONE.with(ChangeClass::Dangerous), true),
            });
        };
        let mut map = node.map(faults)?;
        let rest = map.words("default", &ON_CHANGE, faults);
        let mut on_change = match rest {
            Some(true) => of(ChangeClasses::ALL, false),
            Some(false) => of(ChangeClasses::NONE.with(ChangeClass::Dangerous), true),
            None => of(ChangeClasses::USUAL, false),
        };
        for class in ChangeClass::ALL {
            let at = map.entry(class.as_str()).map(|entry| entry.key_at.clone());
            match (map.words(class.as_str(), &ON_CHANGE, faults), at) {
                (Some(false), Some(at)) if class == ChangeClass::Dangerous => {
                    let message = "a tool that only looked and may now write is always held";
                    faults.add(FaultCode::Contradiction, &at, message);
                }
                (Some(true), _) => on_change.hold = on_change.hold.with(class),
                (Some(false), _) => {
                    on_change.hold = on_change.hold.without(class);
                    on_change.keeps = true;
                }
                (None, _) => {}
            }
        }
        map.finish(faults);
        Some(on_change)
    }
}

//! The arguments of a recorded call, put together again from the facts of its record, as far as
//! rules look at them. What the facts do not tell is not made up.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::policy::{ItemIndex, Pointer, Test, View};

/// The longest text and list that is put together again.
const MAX_LENGTH: u64 = 1 << 20;

/// The arguments of a call of the item; `None` if they are not known.
pub(super) fn rebuilt(
    view: &View,
    item: ItemIndex,
    facts: Option<&Map<String, Value>>,
) -> Option<Option<Bytes>> {
    if !view.looks_at_arguments(item) {
        return Some(None);
    }
    let mut pointers: Vec<&Pointer> = view.arguments_looked_at(item).collect();
    // What holds others comes before them.
    pointers.sort_by_key(|pointer| pointer.steps().count());
    let mut root = json!({});
    for pointer in pointers {
        // A fact that is not there was not looked at then, or found no room.
        let fact = facts?.get(pointer.as_str())?;
        let only_lengths = || {
            let rules = view.applying(item).flat_map(|rule| &rule.when);
            let mut own = rules.filter(|predicate| predicate.pointer == *pointer);
            own.all(|predicate| matches!(predicate.test, Test::MaxLen(_)))
        };
        if let Some(value) = told(fact, only_lengths)? {
            place(&mut root, pointer, value)?;
        }
    }
    Some(Some(root.to_string().into()))
}

/// The argument that a fact tells of, or one that no rule can tell from it: none if there was
/// none. `None` if that is not known.
fn told(fact: &Value, only_lengths: impl Fn() -> bool) -> Option<Option<Value>> {
    let Value::Object(told) = fact else { return (!fact.is_array()).then(|| Some(fact.clone())) };
    let (kind, value) = told.iter().next().filter(|_| told.len() == 1)?;
    let length = || value.as_u64().filter(|length| *length <= MAX_LENGTH);
    let value = match kind.as_str() {
        "absent" => return Some(None),
        "number" => {
            let number = serde_json::from_str(value.as_str()?).ok()?;
            Value::Number(number)
        }
        "characters" if only_lengths() => "x".repeat(usize::try_from(length()?).ok()?).into(),
        // Rules count elements, and do not look at them.
        "elements" => (0..length()?).map(|_| Value::Null).collect(),
        "object" => json!({}),
        _ => return None,
    };
    Some(Some(value))
}

/// Puts a value where the pointer points.
fn place(root: &mut Value, pointer: &Pointer, value: Value) -> Option<()> {
    let mut place = root;
    for step in pointer.steps() {
        if let Value::Array(_) = place {
            let index: usize = step.parse().ok()?;
            place = place.get_mut(index)?;
            continue;
        }
        if place.is_null() {
            // An element of a list, of which only its own members are told.
            *place = json!({});
        }
        place = place.as_object_mut()?.entry(step).or_insert(Value::Null);
    }
    *place = value;
    Some(())
}

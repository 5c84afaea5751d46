//! What callers may send to a tool that they may call: arguments that are the gateway's to send, or
//! are sent by nobody, and words to choose from.

use std::collections::BTreeMap;

use super::DifferenceKind;
use crate::{model::template::HeaderTemplate, policy::ItemPolicy};

/// Whose an argument is.
#[derive(PartialEq)]
enum Given<'p> {
    /// Of these values, where there are fewer than the tool takes.
    Caller(Option<&'p [Box<str>]>),
    Nobody,
    Gateway(&'p HeaderTemplate),
}

/// In which ways the second differs, and in which argument.
pub(super) fn compare(old: &ItemPolicy, new: &ItemPolicy) -> Vec<(DifferenceKind, Option<String>)> {
    let (old, new) = (given(old), given(new));
    let mut names: Vec<&str> = old.keys().chain(new.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let found = names.into_iter().filter_map(|name| {
        let any = Given::Caller(None);
        let (before, after) = (old.get(name).unwrap_or(&any), new.get(name).unwrap_or(&any));
        let kind = kind(before, after)?;
        let what = match after {
            Given::Caller(None) => format!("`{name}` is the caller's to choose"),
            Given::Caller(Some(words)) => format!("`{name}` is one of {}", words.join(", ")),
            Given::Nobody => format!("`{name}` is not sent"),
            Given::Gateway(_) => format!("`{name}` is sent by the gateway"),
        };
        Some((kind, Some(what)))
    });
    found.collect()
}

fn kind(before: &Given<'_>, after: &Given<'_>) -> Option<DifferenceKind> {
    use DifferenceKind::{Narrowed, Widened};
    if before == after {
        return None;
    }
    Some(match (before, after) {
        (Given::Caller(None), _) => Narrowed,
        (Given::Caller(Some(before)), Given::Caller(Some(after))) => {
            let is_within = after.iter().all(|word| before.contains(word));
            let same = is_within && before.iter().all(|word| after.contains(word));
            if same {
                return None;
            }
            if is_within { Narrowed } else { Widened }
        }
        (Given::Caller(_), Given::Nobody | Given::Gateway(_)) => Narrowed,
        // Another value, or none, may open what the one before did not.
        _ => Widened,
    })
}

fn given(policy: &ItemPolicy) -> BTreeMap<&str, Given<'_>> {
    let mut given = BTreeMap::new();
    for parameter in policy.published.iter().flat_map(|published| &published.parameters) {
        let whose = match (&parameter.allowed, parameter.hidden) {
            (_, true) => Given::Nobody,
            (Some(words), false) => Given::Caller(Some(words)),
            (None, false) => continue,
        };
        given.insert(&*parameter.name, whose);
    }
    for injected in policy.inject.iter().flat_map(|all| all.iter()) {
        given.insert(&*injected.argument, Given::Gateway(&injected.value));
    }
    given
}

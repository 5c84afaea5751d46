//! Roles: which claims of a token give one, and which others come with it.

use crate::{
    fault::{FaultCode, Faults, Span},
    json::{Kind, Value},
    model::caller::Role,
    policy::predicate::Pointer,
    yaml::{Entry, MapReader, Spanned, check_name},
};

/// What is said of a role in one scope.
#[derive(Debug)]
pub struct RoleRule {
    pub role: Role,
    pub at: Span,
    pub claim: Option<Claim>,
    /// Roles that come with it, however it was given.
    pub includes: Box<[Spanned<Role>]>,
}

/// A claim that gives a role if it has any of the values.
#[derive(Debug)]
pub struct Claim {
    path: Path,
    any: Box<[Box<str>]>,
}

#[derive(Debug)]
enum Path {
    /// A claim by its name, which may have any characters.
    Name(Box<str>),
    /// Within a claim.
    Pointer(Pointer),
}

/// Claims that OAuth writes as words with spaces between them.
const WORDS: [&str; 2] = ["scope", "scp"];

pub(super) fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Vec<RoleRule> {
    let entries = map.node("roles").map(|node| node.named(faults)).unwrap_or_default();
    entries.into_iter().filter_map(|entry| RoleRule::read(entry, faults)).collect()
}

impl RoleRule {
    fn read(entry: &Entry, faults: &mut Faults) -> Option<Self> {
        let name = check_name(&entry.key);
        if let Err(reason) = &name {
            faults.add(FaultCode::BadName, &entry.key_at, format!("`{}` {reason}", entry.key));
        }
        let mut map = entry.value.map(faults)?;
        let claim = Claim::read(&mut map, faults);
        let includes: Option<Vec<Spanned<Role>>> = super::narrowing(&mut map, "includes", faults);
        let empty = ["claim", "any", "includes"].into_iter().all(|key| map.entry(key).is_none());
        map.finish(faults);
        if empty {
            let message = format!("nothing is said of `{}`", entry.key);
            let fault = faults.add(FaultCode::MissingKey, &entry.value.at, message);
            fault.suggest("such as `{ claim: groups, any: [acme-admins] }`");
        }
        name.ok()?;
        Some(Self {
            role: Role::new(entry.key.as_str()),
            at: entry.key_at.clone(),
            claim,
            includes: includes.unwrap_or_default().into(),
        })
    }
}

impl Claim {
    fn read(map: &mut MapReader<'_>, faults: &mut Faults) -> Option<Self> {
        let name: Option<Spanned<String>> = map.optional("claim", faults);
        let any: Option<Vec<String>> = super::narrowing(map, "any", faults);
        let given = ["claim", "any"].map(|key| map.entry(key).map(|entry| entry.key_at.clone()));
        match given {
            [Some(at), None] => {
                let fault = faults.add(FaultCode::MissingKey, &at, "`claim` without `any`");
                fault.suggest("say which values give the role: `any: [VALUE, …]`");
            }
            [None, Some(at)] => {
                let fault = faults.add(FaultCode::MissingKey, &at, "`any` without a `claim`");
                fault.suggest("say which claim has the values: `claim: groups`");
            }
            _ => {}
        }
        let name = name?;
        let path = match Pointer::parse(&name.value) {
            Ok(pointer) => Path::Pointer(pointer),
            Err(_) if name.value.is_empty() => {
                faults.add(FaultCode::BadValue, &name.at, "a claim has a name");
                return None;
            }
            Err(_) => Path::Name(name.value.into()),
        };
        Some(Self { path, any: any?.into_iter().map(Into::into).collect() })
    }

    /// Whether these claims, a JSON object, give the role.
    pub fn is_met(&self, claims: Value<'_>) -> bool {
        let (found, name) = match &self.path {
            Path::Name(name) => (claims.get(name), &**name),
            Path::Pointer(pointer) => (pointer.find(claims), ""),
        };
        let Some(found) = found else { return false };
        let is = |value: &str| self.any.iter().any(|any| **any == *value);
        match found.kind() {
            Kind::String if WORDS.contains(&name) => {
                found.as_str().is_some_and(|words| words.split(' ').any(is))
            }
            Kind::String => found.as_str().is_some_and(|value| is(&value)),
            Kind::Array => {
                found.elements().any(|value| value.as_str().is_some_and(|value| is(&value)))
            }
            _ => false,
        }
    }
}

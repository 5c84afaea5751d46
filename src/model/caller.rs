//! Who is calling: the facts that the identity layers establish and everything below trusts.
//!
//! Nothing here comes from a request body.

use std::{fmt, net::IpAddr, sync::Arc};

use bytes::Bytes;

use super::{call_source::CallSources, server::Risk};

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a name that its owner has already checked.
            pub fn new(name: impl Into<Arc<str>>) -> Self {
                Self(name.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

identifier!(
    /// A company or department whose callers, policies and records are kept apart from others'.
    TenantId
);
identifier!(
    /// A program with an API key, by its name in `callers:`.
    CallerId
);
identifier!(
    /// A role that rules speak of; it needs no declaration.
    Role
);

/// An employee's id: 1 to 64 of `[A-Za-z0-9._@-]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EmployeeId(Arc<str>);

impl EmployeeId {
    /// The longest id, in characters.
    pub const MAX: usize = 64;

    pub fn parse(text: &str) -> Option<Self> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'@' | b'-');
        ((1..=Self::MAX).contains(&text.len()) && text.bytes().all(legal))
            .then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EmployeeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A set of roles: sorted and without repetition, so that equal sets are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Roles(Arc<[Role]>);

impl Roles {
    pub fn new(roles: impl IntoIterator<Item = Role>) -> Self {
        let mut roles: Vec<Role> = roles.into_iter().collect();
        roles.sort();
        roles.dedup();
        Self(roles.into())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Role> {
        self.0.iter()
    }

    pub fn contains(&self, role: &str) -> bool {
        self.0.iter().any(|own| own.as_str() == role)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How the employee was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Auth {
    /// By the `SSO-Emp-Id` header of a trusted caller.
    Header,
    /// By the caller's configuration.
    Fixed,
    /// By a token of a configured issuer.
    Token,
    /// Not at all: the key alone.
    Key,
}

impl Auth {
    pub fn as_str(self) -> &'static str {
        match self {
            Auth::Header => "header",
            Auth::Fixed => "fixed",
            Auth::Token => "token",
            Auth::Key => "key",
        }
    }
}

/// The employee a call is made for, if it is made for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub employee: Option<EmployeeId>,
    pub roles: Roles,
    pub auth: Auth,
}

/// What a token says of its employee's roles, whatever the policies.
#[derive(Debug, PartialEq, Eq)]
pub struct Granted {
    /// That the token itself names.
    pub roles: Roles,
    /// All of it as JSON, for rules that map claims to roles.
    pub claims: Bytes,
}

/// Everything that is known of who calls.
#[derive(Debug, Clone)]
pub struct Caller {
    pub tenant: TenantId,
    pub id: CallerId,
    pub principal: Principal,
    /// The caller is one that names its employees: a call without one is refused.
    pub names_employees: bool,
    /// What a list without an employee shows (`catalog_roles`).
    pub catalog_roles: Roles,
    /// What it may say of where its calls under `/v1` come from.
    pub call_sources: CallSources,
    /// The peer, or behind trusted proxies the first untrusted hop from the right.
    pub address: IpAddr,
    /// The policies by which the roles were worked out, by their number in this process.
    pub policies: u64,
    /// What a token says, where the employee was named by one.
    pub granted: Option<Arc<Granted>>,
    /// Of a token with too few scopes: what calls of each risk, from `read_low` up, ask for, as
    /// a challenge names it. `None`: nothing is missing.
    pub missing_scopes: Option<Arc<[Option<Box<str>>; 4]>>,
}

impl Caller {
    /// The scope that the caller's token still lacks for calls of this risk.
    pub fn missing_scope(&self, risk: Risk) -> Option<&str> {
        let place = Risk::ALL.iter().position(|&one| one == risk)?;
        self.missing_scopes.as_ref()?.get(place)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_employee_id_is_a_short_plain_word() {
        for good in ["E1001", "a.b_c@d-e", &"x".repeat(64)] {
            assert!(EmployeeId::parse(good).is_some(), "{good}");
        }
        for bad in ["", "a b", "a,b", "é", "a\nb", &"x".repeat(65)] {
            assert!(EmployeeId::parse(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn roles_are_a_set() {
        let roles = Roles::new(["b", "a", "b"].map(Role::new));
        assert_eq!(roles, Roles::new(["a", "b"].map(Role::new)));
        assert!(roles.contains("a") && !roles.contains("c"));
    }
}

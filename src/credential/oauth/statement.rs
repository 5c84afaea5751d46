//! What the gateway says of a call in a JWT of its own: on whose word, about whom, and to whom.
//!
//! Whose rights a token stands for is its `sub`; who uses them is its `act` (RFC 8693, 4.1). Both
//! ways round make sense: a server that gives rights to the gateway is told that an employee uses
//! them, one that gives rights to employees that the gateway does.

use secrecy::SecretString;
use serde_json::{Value, json};

use super::{Signer, SignerFault};
use crate::{
    credential::{Owner, Whose},
    model::caller::{EmployeeId, TenantId},
};

/// In which claim an employee stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedAs {
    /// `act`: he uses what the gateway may do.
    Actor,
    /// `sub`: the gateway uses what he may do.
    Subject,
}

/// Somebody a token speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party<'a> {
    /// The gateway itself, by this name.
    Gateway(&'a str),
    Employee(&'a TenantId, &'a EmployeeId),
}

/// What a token says.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    pub issuer: &'a str,
    pub audience: &'a str,
    pub subject: Party<'a>,
    pub actor: Option<Party<'a>>,
    pub scope: Option<&'a str>,
    /// For how long it is good, in seconds.
    pub life: u64,
}

impl NamedAs {
    pub fn as_str(self) -> &'static str {
        match self {
            NamedAs::Actor => "act",
            NamedAs::Subject => "sub",
        }
    }

    /// Whose rights, and who uses them. Without an employee the gateway uses its own.
    pub fn parties<'a>(
        self,
        gateway: &'a str,
        whose: Option<&'a Whose>,
    ) -> (Party<'a>, Option<Party<'a>>) {
        let gateway = Party::Gateway(gateway);
        match (whose.and_then(Party::of), self) {
            (None, _) => (gateway, None),
            (Some(employee), NamedAs::Actor) => (gateway, Some(employee)),
            (Some(employee), NamedAs::Subject) => (employee, Some(gateway)),
        }
    }
}

impl<'a> Party<'a> {
    /// The employee whose credential it is.
    pub fn of(whose: &'a Whose) -> Option<Self> {
        match &whose.owner {
            Owner::Employee(employee) => Some(Party::Employee(&whose.tenant, employee)),
            Owner::Gateway => None,
        }
    }

    fn write(self, claims: &mut Value) {
        match self {
            Party::Gateway(name) => claims["sub"] = name.into(),
            Party::Employee(tenant, employee) => {
                claims["sub"] = employee.as_str().into();
                claims["tenant"] = tenant.as_str().into();
            }
        }
    }
}

impl Statement<'_> {
    pub fn sign(&self, signer: &Signer, now_ms: u64) -> Result<SecretString, SignerFault> {
        let now = now_ms / 1_000;
        let mut claims = json!({ "iss": self.issuer });
        self.subject.write(&mut claims);
        if let Some(actor) = self.actor {
            let mut act = json!({});
            actor.write(&mut act);
            claims["act"] = act;
        }
        claims["aud"] = self.audience.into();
        if let Some(scope) = self.scope {
            claims["scope"] = scope.into();
        }
        claims["iat"] = now.into();
        claims["exp"] = now.saturating_add(self.life).into();
        claims["jti"] = format!("{:032x}", rand::random::<u128>()).into();
        signer.sign("JWT", &claims).map(SecretString::from)
    }
}

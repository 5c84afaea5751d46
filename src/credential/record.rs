//! Credentials of servers: what one is, whose it is, and its sealed form.

use std::{fmt, sync::Arc};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize, Zeroizing};

use super::{Context, Kms, SealFault, oauth::Grant, open, rewrap, seal};
use crate::model::caller::{EmployeeId, TenantId};

/// Before the name of an operator's secret, in the place of a server's key; no server has such a
/// one.
const SECRET: &str = "secret:";

/// Of the JSON that is sealed.
const SCHEMA: u16 = 1;

/// What opens a server.
#[derive(Clone)]
pub enum Credential {
    Bearer(SecretString),
    Basic {
        user: String,
        password: SecretString,
    },
    /// Names and values.
    Headers(Vec<(String, SecretString)>),
    /// One value, for whoever names it.
    Value(SecretString),
    /// What its owner has granted by OAuth.
    OAuth(Grant),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CredentialKind {
    Bearer,
    Basic,
    Headers,
    Value,
    OAuth,
}

/// Names a stored credential, and says nothing of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialRef(u128);

/// Who has a credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The gateway itself, whoever calls.
    Gateway,
    Employee(EmployeeId),
}

/// A credential, and where it may go.
#[derive(Debug, Clone)]
pub struct Given {
    pub credential: Credential,
    /// In the normal form of URLs; `None`: nobody has said.
    pub address: Option<String>,
}

/// Whose credential, and for which server. There is one at most.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Whose {
    pub tenant: TenantId,
    pub owner: Owner,
    pub server_key: Arc<str>,
}

/// The form that is sealed.
#[derive(Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum Plain {
    Bearer {
        token: String,
        /// Where it may go, in the normal form of URLs. What was sealed before there was this, and
        /// what is for no server, has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    Basic {
        user: String,
        password: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    Headers {
        headers: Vec<(String, String)>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    Value {
        value: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    OAuth {
        access: String,
        refresh: Option<String>,
        expires_ms: Option<u64>,
        scope: String,
        issuer: String,
        token_endpoint: String,
        resource: String,
        client_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
}

// === impl Credential ===

impl Credential {
    pub fn kind(&self) -> CredentialKind {
        match self {
            Credential::Bearer(_) => CredentialKind::Bearer,
            Credential::Basic { .. } => CredentialKind::Basic,
            Credential::Headers(_) => CredentialKind::Headers,
            Credential::Value(_) => CredentialKind::Value,
            Credential::OAuth(_) => CredentialKind::OAuth,
        }
    }

    /// Sealed for its owner. May block.
    pub fn seal(&self, kms: &dyn Kms, whose: &Whose) -> Result<Vec<u8>, SealFault> {
        self.seal_for(kms, whose, None)
    }

    /// Sealed for its owner, and for the server at this address alone: a serverKey has too few
    /// digits to tell one address from every other. May block.
    pub fn seal_for(
        &self,
        kms: &dyn Kms,
        whose: &Whose,
        address: Option<&str>,
    ) -> Result<Vec<u8>, SealFault> {
        let address = address.map(str::to_owned);
        let own = |secret: &SecretString| secret.expose_secret().to_owned();
        let plain = match self {
            Credential::Bearer(token) => Plain::Bearer { token: own(token), address },
            Credential::Basic { user, password } => {
                Plain::Basic { user: user.clone(), password: own(password), address }
            }
            Credential::Headers(headers) => {
                let own = |(name, value): &(String, SecretString)| (name.clone(), own(value));
                Plain::Headers { headers: headers.iter().map(own).collect(), address }
            }
            Credential::Value(value) => Plain::Value { value: own(value), address },
            Credential::OAuth(grant) => Plain::OAuth {
                access: own(&grant.access),
                refresh: grant.refresh.as_ref().map(own),
                expires_ms: grant.expires_ms,
                scope: grant.scope.clone(),
                issuer: grant.issuer.clone(),
                token_endpoint: grant.token_endpoint.clone(),
                resource: grant.resource.clone(),
                client_id: grant.client_id.clone(),
                address,
            },
        };
        // Room enough that it does not move and leave a copy.
        let mut text = Zeroizing::new(Vec::with_capacity(64 * 1024));
        serde_json::to_writer(&mut *text, &plain).map_err(|_| SealFault::Form)?;
        whose.with_context(|context| seal(kms, context, &text))
    }

    /// Opens what was sealed for this owner. May block.
    pub fn open(kms: &dyn Kms, whose: &Whose, sealed: &[u8]) -> Result<Self, SealFault> {
        Self::open_whole(kms, whose, sealed).map(|opened| opened.credential)
    }

    /// The same, with the address that it was sealed for.
    pub fn open_whole(kms: &dyn Kms, whose: &Whose, sealed: &[u8]) -> Result<Given, SealFault> {
        let text = whose.with_context(|context| open(kms, context, sealed))?;
        let mut plain: Plain = serde_json::from_slice(&text).map_err(|_| SealFault::Newer)?;
        let (Plain::Bearer { address, .. }
        | Plain::Basic { address, .. }
        | Plain::Headers { address, .. }
        | Plain::Value { address, .. }
        | Plain::OAuth { address, .. }) = &mut plain;
        let address = address.take();
        let credential = match &mut plain {
            Plain::Bearer { token, .. } => Credential::Bearer(take(token)),
            Plain::Basic { user, password, .. } => {
                Credential::Basic { user: std::mem::take(user), password: take(password) }
            }
            Plain::Headers { headers, .. } => {
                let taken = std::mem::take(headers).into_iter();
                Credential::Headers(taken.map(|(name, value)| (name, value.into())).collect())
            }
            Plain::Value { value, .. } => Credential::Value(take(value)),
            Plain::OAuth {
                access,
                refresh,
                expires_ms,
                scope,
                issuer,
                token_endpoint,
                resource,
                client_id,
                address: _,
            } => Credential::OAuth(Grant {
                access: take(access),
                refresh: refresh.as_mut().map(take),
                expires_ms: *expires_ms,
                scope: std::mem::take(scope),
                issuer: std::mem::take(issuer),
                token_endpoint: std::mem::take(token_endpoint),
                resource: std::mem::take(resource),
                client_id: std::mem::take(client_id),
            }),
        };
        Ok(Given { credential, address })
    }

    /// The sealed form under the key that wraps at present; `None` if it is so already.
    pub fn rewrap(
        kms: &dyn Kms,
        whose: &Whose,
        sealed: &[u8],
    ) -> Result<Option<Vec<u8>>, SealFault> {
        whose.with_context(|context| rewrap(kms, context, sealed))
    }
}

/// Without what it holds.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.kind().as_str())
    }
}

fn take(text: &mut String) -> SecretString {
    std::mem::take(text).into()
}

impl Drop for Plain {
    fn drop(&mut self) {
        match self {
            Plain::Bearer { token, .. } => token.zeroize(),
            Plain::Basic { password, .. } => password.zeroize(),
            Plain::Headers { headers, .. } => {
                headers.iter_mut().for_each(|(_, value)| value.zeroize())
            }
            Plain::Value { value, .. } => value.zeroize(),
            Plain::OAuth { access, refresh, .. } => {
                access.zeroize();
                refresh.zeroize();
            }
        }
    }
}

// === impl Given ===

impl Given {
    /// The credential, for the server at this address.
    pub fn at(self, address: Option<&str>) -> Option<Credential> {
        let fits = self.address.as_deref().is_none_or(|own| Some(own) == address);
        fits.then_some(self.credential)
    }
}

// === impl CredentialKind ===

impl CredentialKind {
    pub const ALL: [CredentialKind; 5] = [
        CredentialKind::Bearer,
        CredentialKind::Basic,
        CredentialKind::Headers,
        CredentialKind::Value,
        CredentialKind::OAuth,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            CredentialKind::Bearer => "bearer",
            CredentialKind::Basic => "basic",
            CredentialKind::Headers => "headers",
            CredentialKind::Value => "value",
            CredentialKind::OAuth => "oauth",
        }
    }
}

// === impl CredentialRef ===

impl CredentialRef {
    pub fn random() -> Self {
        Self(rand::random())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("cred_").filter(|digits| digits.len() == 32)?;
        let lower = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        digits.bytes().all(lower).then_some(())?;
        u128::from_str_radix(digits, 16).ok().map(Self)
    }
}

impl fmt::Display for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cred_{:032x}", self.0)
    }
}

impl fmt::Debug for CredentialRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Owner ===

impl Owner {
    /// As it is stored: an employee cannot be taken for the gateway.
    pub fn text(&self) -> String {
        match self {
            Owner::Gateway => "gateway".to_owned(),
            Owner::Employee(id) => format!("employee:{}", id.as_str()),
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("employee:") {
            Some(id) => EmployeeId::parse(id).map(Owner::Employee),
            None => (text == "gateway").then_some(Owner::Gateway),
        }
    }
}

// === impl Whose ===

impl Whose {
    /// What an operator has given a name to, for `{ secret: NAME }`.
    pub fn secret(name: &str) -> Self {
        Self {
            // No tenant is called so.
            tenant: TenantId::new(""),
            owner: Owner::Gateway,
            server_key: format!("{SECRET}{name}").into(),
        }
    }

    /// The name of such a one.
    pub fn secret_name(server_key: &str) -> Option<&str> {
        server_key.strip_prefix(SECRET)
    }

    fn with_context<T>(&self, run: impl FnOnce(&Context<'_>) -> T) -> T {
        let owner = self.owner.text();
        run(&Context {
            tenant: self.tenant.as_str(),
            kind: "credential",
            record: &[&owner, &self.server_key],
            schema: SCHEMA,
        })
    }
}

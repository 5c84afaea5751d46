//! Personal servers: what an employee has registered, and what the server last listed.
//!
//! Here are the types. `server/read.rs` makes a registration of what somebody posted,
//! `server/import.rs` of what desktop clients write; `server/store.rs` says what is asked of
//! whoever keeps them, and `server/local.rs` keeps them in memory. Secrets are never in a
//! [`Registration`]: they stand beside it until they are sealed, in another engine. Who may
//! register what is policy's to say.

mod archive;
mod asset;
mod auth;
mod fault;
mod import;
mod local;
mod options;
mod read;
mod record;
mod store;

#[cfg(test)]
mod tests;

use std::{collections::HashSet, sync::Arc, time::Duration};

use bytes::Bytes;
use http::HeaderName;
use secrecy::SecretString;
use url::Url;

pub use self::{
    archive::{Archive, ArchiveFault, Failure, ServerInfo, Spoken},
    asset::{ASSET_VERSION, Asset, AssetPin, AssetVersion, MAX_ASSET, read_asset, write_asset},
    auth::read_secrets,
    fault::InputFault,
    import::{Imported, read_mcp_servers},
    local::Local,
    read::{MAX_NAME, NewServer, OptionLimits, Registrant, read_server},
    record::Body,
    store::{Change, Changes, Marker, NotPut, ServerStore},
};
use crate::{
    json::{Doc, Duplicates, Limits, Value},
    mcp::Version,
    model::{
        caller::{EmployeeId, TenantId},
        server::{DialectKind, Risk},
        template::HeaderTemplate,
    },
};

/// A server that an employee has registered, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    pub tenant: TenantId,
    pub owner: EmployeeId,
    /// Of the address, whoever registers it.
    pub server_key: Arc<str>,
    /// In its normal form.
    pub url: Url,
    /// For people.
    pub name: Option<Arc<str>>,
    /// Never a child process.
    pub dialect: DialectKind,
    pub options: Options,
    /// What opens it. The secret itself is with the owner's credentials, and each member of the
    /// team has his own.
    pub auth: AuthKind,
    /// Whose members see the server and its catalog.
    pub team: Option<Arc<str>>,
    pub created_ms: u64,
    pub updated_ms: u64,
    /// 1 when it is first kept, and one more with each write. A write names the revision that it
    /// replaces, 0 where there is to be none.
    pub revision: u64,
}

/// How it is spoken to, as far as its owner may say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// Sent with each request, in this order. None of them is a secret.
    pub headers: Vec<(HeaderName, HeaderTemplate)>,
    /// The one revision to speak.
    pub protocol: Option<Version>,
    /// Without an answer. `None`: the operator's.
    pub timeout: Option<Duration>,
    /// Of a call, whatever arrives. `None`: the operator's.
    pub max_time: Option<Duration>,
    /// Those who use it may share a session.
    pub stateless: bool,
    /// `None`: a question of the server's may be held open.
    pub park: Option<bool>,
    /// Of `mcp-lite` alone. `None`: it is told who calls.
    pub inject_user: Option<bool>,
}

/// What kind of credential opens a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthKind {
    None,
    Bearer,
    Basic,
    Headers,
    Oauth,
}

/// A credential as somebody gave it, until it is sealed.
#[derive(Clone)]
pub enum Secrets {
    Bearer(SecretString),
    Basic {
        user: String,
        password: SecretString,
    },
    /// Names and legal values.
    Headers(Vec<(HeaderName, SecretString)>),
    Oauth {
        client_id: Option<String>,
        client_secret: Option<SecretString>,
        scopes: Vec<String>,
    },
}

/// A registration, and what the server listed when it last did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub registration: Registration,
    /// `None`: nobody has asked it yet.
    pub archive: Option<Archive>,
}

/// The least risk of a tool by what its server says itself, in `annotations`. A server is believed
/// when it warns; what it does not say, and that a tool is harmless, says nothing.
pub fn declared_risk(definition: &Bytes) -> Option<Risk> {
    let limits = Limits { depth: 520, duplicates: Duplicates::Allow, outline: 1 };
    let doc = Doc::parse(definition.clone(), &limits).ok()?;
    let annotations = doc.root().get("annotations")?;
    let says = |hint: &str| annotations.get(hint).and_then(Value::as_bool);
    match (says("destructiveHint"), says("readOnlyHint")) {
        (Some(true), read_only) if read_only != Some(true) => Some(Risk::WriteHigh),
        (_, Some(false)) => Some(Risk::WriteLow),
        _ => None,
    }
}

// === impl Kept ===

impl Kept {
    /// What one employee sees of these: of several with one key his own, else the one that was
    /// registered first. Sorted by key.
    pub fn seen_by(employee: &EmployeeId, mut all: Vec<Kept>) -> Vec<Kept> {
        all.sort_by(|a, b| {
            let order = |kept: &Kept| {
                let Registration { owner, created_ms, .. } = &kept.registration;
                (owner != employee, *created_ms, owner.clone())
            };
            let keys = a.registration.server_key.cmp(&b.registration.server_key);
            keys.then_with(|| order(a).cmp(&order(b)))
        });
        let mut seen = HashSet::new();
        all.retain(|kept| seen.insert(kept.registration.server_key.clone()));
        all
    }
}

// === impl AuthKind ===

impl AuthKind {
    pub const ALL: [AuthKind; 5] =
        [AuthKind::None, AuthKind::Bearer, AuthKind::Basic, AuthKind::Headers, AuthKind::Oauth];

    pub const fn as_str(self) -> &'static str {
        match self {
            AuthKind::None => "none",
            AuthKind::Bearer => "bearer",
            AuthKind::Basic => "basic",
            AuthKind::Headers => "headers",
            AuthKind::Oauth => "oauth",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

// === impl Secrets ===

impl Secrets {
    pub fn kind(&self) -> AuthKind {
        match self {
            Secrets::Bearer(_) => AuthKind::Bearer,
            Secrets::Basic { .. } => AuthKind::Basic,
            Secrets::Headers(_) => AuthKind::Headers,
            Secrets::Oauth { .. } => AuthKind::Oauth,
        }
    }
}

/// Without what it holds.
impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.kind().as_str())
    }
}

//! What the gateway keeps of itself as a client: the registration that an authorization server gave
//! it, and which authorization server a server named first. Both are sealed beside credentials, and
//! go with whoever's word the server is on: an operator's, or the employee's who brought it. There is
//! one of each for a server, whatever it names next, so nobody makes a store grow by naming more.

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Client, ClientProof};
use crate::credential::{Credential, Whose};

/// A registration (RFC 7591).
#[derive(Debug, Clone)]
pub struct Registered {
    /// Who gave it. It is shown to no other.
    pub issuer: String,
    /// Where browsers come back to as this client.
    pub redirect: String,
    pub client: Client,
    /// When its secret ends, if it does.
    pub until_ms: Option<u64>,
}

/// The authorization server that a server named first, to a client that was named for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstIssuer {
    pub client_id: String,
    pub issuer: String,
}

/// The form that is sealed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    issuer: String,
    redirect: String,
    client_id: String,
    client_secret: Option<String>,
    until_ms: Option<u64>,
}

// === impl Registered ===

impl Registered {
    /// `server`: the server, under whoever brought it.
    pub fn place(server: &Whose) -> Whose {
        beside(server, "oauth-client")
    }

    /// As the vault takes it; nothing, where it cannot be written.
    pub fn to_credential(&self) -> Option<Credential> {
        let secret = match &self.client.proof {
            ClientProof::Secret(secret) | ClientProof::SecretInBody(secret) => Some(secret),
            ClientProof::None | ClientProof::Key(_) => None,
        };
        sealed_form(&Plain {
            issuer: self.issuer.clone(),
            redirect: self.redirect.clone(),
            client_id: self.client.id.clone(),
            client_secret: secret.map(|secret| secret.expose_secret().to_owned()),
            until_ms: self.until_ms,
        })
    }

    pub fn of(credential: &Credential) -> Option<Self> {
        let Plain { issuer, redirect, client_id, client_secret, until_ms } = read(credential)?;
        let proof = client_secret.map(SecretString::from);
        let proof = proof.map_or(ClientProof::None, ClientProof::Secret);
        Some(Self { issuer, redirect, client: Client { id: client_id, proof }, until_ms })
    }
}

// === impl FirstIssuer ===

impl FirstIssuer {
    /// `server`: the server, under whoever brought it.
    pub fn place(server: &Whose) -> Whose {
        beside(server, "oauth-issuer")
    }

    /// As the vault takes it; nothing, where it cannot be written.
    pub fn to_credential(&self) -> Option<Credential> {
        sealed_form(self)
    }

    pub fn of(credential: &Credential) -> Option<Self> {
        read(credential)
    }
}

/// No serverKey is like that.
fn beside(server: &Whose, what: &str) -> Whose {
    Whose { server_key: format!("{what}:{}", server.server_key).into(), ..server.clone() }
}

fn sealed_form(plain: &impl Serialize) -> Option<Credential> {
    let text = serde_json::to_string(plain).ok()?;
    Some(Credential::Value(text.into()))
}

fn read<T: DeserializeOwned>(credential: &Credential) -> Option<T> {
    let Credential::Value(text) = credential else { return None };
    serde_json::from_str(text.expose_secret()).ok()
}

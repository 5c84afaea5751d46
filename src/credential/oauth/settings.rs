//! What an employee says about OAuth when he brings a server: the client that he has registered
//! there, and the scopes to ask for. It is sealed beside credentials, for there may be a secret in
//! it, and it is of whoever brought the server, also for those who connect to it because he
//! shares it.

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{Client, ClientProof};
use crate::{
    credential::{Credential, Owner, Whose},
    model::caller::{EmployeeId, TenantId},
};

/// Before a serverKey, where they are kept.
const PLACE: &str = "oauth-settings:";

/// For one server.
#[derive(Debug, Clone, Default)]
pub struct OwnSettings {
    /// `None`: the gateway's own, as for any other server.
    pub client: Option<Client>,
    /// Asked for where the server names none.
    pub scope: Option<String>,
}

/// The form that is sealed.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain {
    client_id: Option<String>,
    client_secret: Option<String>,
    scope: Option<String>,
}

impl OwnSettings {
    pub fn new(
        client_id: Option<String>,
        client_secret: Option<SecretString>,
        scopes: &[String],
    ) -> Self {
        let proof = client_secret.map_or(ClientProof::None, ClientProof::Secret);
        Self {
            client: client_id.map(|id| Client { id, proof }),
            scope: (!scopes.is_empty()).then(|| scopes.join(" ")),
        }
    }

    /// Where they are kept: no serverKey is like that.
    pub fn place(tenant: TenantId, owner: EmployeeId, server_key: &str) -> Whose {
        let server_key = Self::key(server_key);
        Whose { tenant, owner: Owner::Employee(owner), server_key }
    }

    /// What stands there in the place of the server's key.
    pub fn key(server_key: &str) -> std::sync::Arc<str> {
        format!("{PLACE}{server_key}").into()
    }

    /// The server that such a one is for.
    pub fn server_of(key: &str) -> Option<&str> {
        key.strip_prefix(PLACE)
    }

    /// As the vault takes them; nothing, where they cannot be written.
    pub fn to_credential(&self) -> Option<Credential> {
        let client_secret = self.client.as_ref().and_then(|client| match &client.proof {
            ClientProof::Secret(secret) | ClientProof::SecretInBody(secret) => {
                Some(secret.expose_secret().to_owned())
            }
            ClientProof::None | ClientProof::Key(_) => None,
        });
        let client_id = self.client.as_ref().map(|client| client.id.clone());
        let plain = Plain { client_id, client_secret, scope: self.scope.clone() };
        let text = serde_json::to_string(&plain).ok()?;
        Some(Credential::Value(text.into()))
    }

    pub fn of(credential: &Credential) -> Option<Self> {
        let Credential::Value(text) = credential else { return None };
        let plain: Plain = serde_json::from_str(text.expose_secret()).ok()?;
        let proof = match plain.client_secret {
            Some(secret) => ClientProof::Secret(secret.into()),
            None => ClientProof::None,
        };
        let client = plain.client_id.map(|id| Client { id, proof });
        Some(Self { client, scope: plain.scope })
    }
}

//! With whom a client is known that was named for a server, where nobody said with whom: with the
//! authorization server that the server named first. What the client proves itself with is sent to
//! no other, whatever the server says later.

use std::sync::Arc;

use dashmap::DashMap;

use crate::credential::{
    Vault, Whose,
    oauth::{FirstIssuer, TokenFault},
};

/// Keeps who was named first.
pub(super) struct FirstIssuers {
    vault: Arc<Vault>,
    /// Where nothing can be sealed: for the life of the process.
    here: DashMap<Whose, FirstIssuer>,
}

impl FirstIssuers {
    pub fn new(vault: Arc<Vault>) -> Self {
        Self { vault, here: DashMap::new() }
    }

    /// Whether this client may be shown to this authorization server of a server's. The first one
    /// may, and is remembered. `server`: under whoever brought it.
    pub async fn admit(
        &self,
        server: &Whose,
        client_id: &str,
        issuer: &str,
    ) -> Result<(), TokenFault> {
        let place = FirstIssuer::place(server);
        let known = match self.vault.has_keys() {
            true => self.vault.open(&place).await?.as_ref().and_then(FirstIssuer::of),
            false => self.here.get(&place).map(|known| known.clone()),
        };
        match known.filter(|known| known.client_id == client_id) {
            Some(known) if known.issuer == issuer => Ok(()),
            Some(known) => {
                tracing::warn!(
                    server.key = &*server.server_key,
                    issuer,
                    issuer.first = known.issuer,
                    "A server names another authorization server than before, so nothing was sent \
                     there; if that is right, write it down: `issuer` of `auth` in hangu.yaml, \
                     or register the employee's server anew"
                );
                let message = "the server names another authorization server than the one that \
                               its client was first used at";
                Err(TokenFault::Distrusted(message.to_owned()))
            }
            None => self.remember(place, client_id, issuer).await,
        }
    }

    async fn remember(
        &self,
        place: Whose,
        client_id: &str,
        issuer: &str,
    ) -> Result<(), TokenFault> {
        let first = FirstIssuer { client_id: client_id.to_owned(), issuer: issuer.to_owned() };
        if !self.vault.has_keys() {
            self.here.insert(place, first);
            return Ok(());
        }
        let unwritable = || TokenFault::Distrusted("the issuer cannot be written down".to_owned());
        let sealed = first.to_credential().ok_or_else(unwritable)?;
        self.vault.put(place, sealed).await?;
        Ok(())
    }
}

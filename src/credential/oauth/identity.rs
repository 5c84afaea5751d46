//! Who the gateway is to others: keys that come from its keyring, one of which signs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Value, json};

use super::{Signer, SignerFault};
use crate::model::keys::KeySecrets;

/// The gateway's own keys.
#[derive(Debug)]
pub struct Identity(ArcSwap<Vec<Arc<Signer>>>);

impl Identity {
    pub fn new(secrets: &KeySecrets) -> Result<Self, SignerFault> {
        Ok(Self(ArcSwap::from_pointee(signers(secrets)?)))
    }

    /// Goes on with these secrets.
    pub fn rekey(&self, secrets: &KeySecrets) -> Result<(), SignerFault> {
        self.0.store(Arc::new(signers(secrets)?));
        Ok(())
    }

    /// The one that signs.
    pub fn signer(&self) -> Result<Arc<Signer>, SignerFault> {
        self.0.load().first().cloned().ok_or(SignerFault::Failed)
    }

    /// The public halves of all of them: also of the one that will sign next, so that nobody
    /// meets a signature that he cannot check.
    pub fn jwks(&self) -> Value {
        let keys: Vec<Value> = self.0.load().iter().filter_map(|signer| signer.jwk()).collect();
        json!({ "keys": keys })
    }
}

fn signers(secrets: &KeySecrets) -> Result<Vec<Arc<Signer>>, SignerFault> {
    let all = std::iter::once(&secrets.primary).chain(&secrets.others);
    all.map(|key| Signer::derived(&key.secret).map(Arc::new)).collect()
}

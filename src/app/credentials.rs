//! The vault of a gateway, and what operators do to the secrets in it.

use std::sync::Arc;

use secrecy::SecretString;
use serde_json::{Value, json};

use super::{StartError, keys::Source};
use crate::{
    clock::Clock,
    config::{self, Config},
    credential::{
        Credential, Kms, LocalKms, Owner, Vault, VaultFault, Whose, store::CredentialStore,
    },
};

/// Without a keyring, what is sealed could not be opened after a restart: only what ends with the
/// process anyway is kept then, under a key that does, too.
pub(super) fn vault(
    store: Arc<dyn CredentialStore>,
    config: &Config,
    source: &Source,
    clock: &Clock,
) -> Result<Arc<Vault>, StartError> {
    let kms = match source.kms() {
        None if matches!(config.store, config::Store::Memory) => {
            let kms = LocalKms::in_process(clock.now_ms());
            let kms = kms.map_err(|fault| StartError::Keyring(fault.to_string()))?;
            Some(Arc::new(kms) as Arc<dyn Kms>)
        }
        kms => kms,
    };
    Ok(Arc::new(Vault::new(store, kms, config.credentials, clock.clone())))
}

pub(super) async fn secrets(vault: Arc<Vault>) -> Result<Value, VaultFault> {
    let listed = vault.list(Whose::secret("").tenant, Owner::Gateway).await?;
    let told = |one: &crate::credential::Listed| {
        let name = Whose::secret_name(&one.server_key)?;
        Some(json!({ "name": name, "createdMs": one.created_ms, "updatedMs": one.updated_ms }))
    };
    Ok(listed.iter().filter_map(told).collect::<Vec<_>>().into())
}

pub(super) async fn put_secret(
    vault: Arc<Vault>,
    whose: Whose,
    value: SecretString,
) -> Result<(), VaultFault> {
    vault.put(whose, Credential::Value(value)).await.map(|_| ())
}

//! Credentials for those who use them: kept in a store, sealed by whoever keeps keys.
//!
//! What is kept in memory is the sealed form alone, for a short while: what another replica has
//! changed is seen within that time, and what this process changes at once. A credential is open
//! only in the hands of whoever asked for it.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use moka::sync::Cache;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::{sync::oneshot, task::spawn_blocking};

use super::{
    Credential, CredentialKind, CredentialRef, Kms, Owner, SealFault, Whose, key_of,
    oauth::OwnSettings,
    rotation::{self, RewrapFault, Rewrapped},
    store::{Anew, CredentialStore, Held, KeyUse, NewCredential, Pick, StoreFault, Then},
};
use crate::{clock::Clock, model::caller::TenantId};

/// How much of what is sealed is kept in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultLimits {
    /// How old it may be: after so long a change made elsewhere is seen.
    pub age: Duration,
    pub entries: u64,
}

/// Why a credential cannot be had, or is not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultFault {
    #[error("credentials are sealed under the keyring, and the configuration names none")]
    NoKeyring,
    #[error("{0}")]
    Store(#[from] StoreFault),
    #[error("{0}")]
    Seal(#[from] SealFault),
    /// The one who sealed it ended in a panic.
    #[error("it was not sealed")]
    Lost,
}

/// What is known of a credential without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub reference: CredentialRef,
    pub server_key: Arc<str>,
    pub kind: CredentialKind,
    pub created_ms: u64,
    pub updated_ms: u64,
}

/// What is known of a credential, whoever has it, and nothing that opens a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surveyed {
    pub reference: CredentialRef,
    pub whose: Whose,
    pub kind: CredentialKind,
    /// Of the key that it is sealed under.
    pub key: String,
    pub created_ms: u64,
    pub updated_ms: u64,
    pub renewed_ms: Option<u64>,
    /// Of one that was granted; the fault says why it cannot be looked into.
    pub grant: Option<Result<Granted, VaultFault>>,
}

/// What a grant says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    pub issuer: String,
    pub client_id: String,
    pub scope: String,
    pub expires_ms: Option<u64>,
    /// Whether it can be renewed without its owner.
    pub renewable: bool,
}

/// Keeps credentials, and opens them.
pub struct Vault {
    store: Arc<dyn CredentialStore>,
    kms: ArcSwapOption<Arc<dyn Kms>>,
    /// Also that there is none.
    sealed: Cache<Whose, Option<Arc<Held>>>,
    /// Counts what this process has changed.
    changes: AtomicU64,
    age: Duration,
    clock: Clock,
}

// === impl VaultLimits ===

impl Default for VaultLimits {
    fn default() -> Self {
        Self { age: Duration::from_secs(5), entries: 10_000 }
    }
}

// === impl Vault ===

impl Vault {
    /// `kms`: `None` where there is no keyring. Then nothing can be kept.
    pub fn new(
        store: Arc<dyn CredentialStore>,
        kms: Option<Arc<dyn Kms>>,
        limits: VaultLimits,
        clock: Clock,
    ) -> Self {
        Self {
            store,
            kms: ArcSwapOption::from_pointee(kms),
            sealed: Cache::builder().max_capacity(limits.entries).time_to_live(limits.age).build(),
            changes: AtomicU64::new(0),
            age: limits.age,
            clock,
        }
    }

    /// Goes on with this one who keeps keys.
    pub fn rekey(&self, kms: Arc<dyn Kms>) {
        self.kms.store(Some(Arc::new(kms)));
    }

    /// Whether anything can be kept.
    pub fn has_keys(&self) -> bool {
        self.kms.load().is_some()
    }

    /// The sealed form.
    pub async fn held(&self, whose: &Whose) -> Result<Option<Arc<Held>>, VaultFault> {
        match self.sealed.get(whose) {
            Some(known) => Ok(known),
            None => self.look(whose).await,
        }
    }

    /// The same as the store has it now, whatever is kept in memory: for what another replica may
    /// have written a moment ago.
    pub async fn held_now(&self, whose: &Whose) -> Result<Option<Arc<Held>>, VaultFault> {
        self.forget(whose);
        self.look(whose).await
    }

    async fn look(&self, whose: &Whose) -> Result<Option<Arc<Held>>, VaultFault> {
        loop {
            let changes = self.changes.load(Ordering::SeqCst);
            let asked = whose.clone();
            let held = self.ask(|store, then| store.get(asked, then)).await?.map(Arc::new);
            self.sealed.insert(whose.clone(), held.clone());
            // A change that was made meanwhile has forgotten only what was there before.
            if self.changes.load(Ordering::SeqCst) == changes {
                return Ok(held);
            }
            self.sealed.invalidate(whose);
        }
    }

    /// Opens what is sealed.
    pub async fn reveal(&self, held: &Arc<Held>) -> Result<Credential, VaultFault> {
        let kms = self.kms()?;
        if kms.is_local() {
            return Ok(Credential::open(&*kms, &held.whose, &held.sealed)?);
        }
        // It may ask somebody, and takes as long as he does.
        let held = held.clone();
        let opened = spawn_blocking(move || Credential::open(&*kms, &held.whose, &held.sealed));
        Ok(opened.await.map_err(|_| VaultFault::Lost)??)
    }

    /// Both.
    pub async fn open(&self, whose: &Whose) -> Result<Option<Credential>, VaultFault> {
        match self.held(whose).await? {
            Some(held) => self.reveal(&held).await.map(Some),
            None => Ok(None),
        }
    }

    /// Keeps a credential, in the place of one that its owner has for the server. It is durable
    /// when this returns.
    pub async fn put(
        &self,
        whose: Whose,
        credential: Credential,
    ) -> Result<CredentialRef, VaultFault> {
        let kind = credential.kind();
        let (key, sealed) = self.seal(whose.clone(), credential).await?;
        let now_ms = self.clock.now_ms();
        let new = NewCredential { whose: whose.clone(), kind, key, sealed, now_ms };
        let put = self.ask(|store, then| store.put(new, then)).await;
        self.forget(&whose);
        put
    }

    /// Keeps what has become of a credential by itself, such as a token that was renewed; it is
    /// the same grant. Whether it was still what it had been.
    pub async fn renew(&self, old: &Held, credential: Credential) -> Result<bool, VaultFault> {
        let (key, sealed) = self.seal(old.whose.clone(), credential).await?;
        let before = old.clone();
        let anew = Anew { key, sealed, renewed_ms: Some(self.clock.now_ms()) };
        let was = self.ask(|store, then| store.replace_sealed(before, anew, then)).await;
        self.forget(&old.whose);
        was
    }

    /// Whether there was one.
    pub async fn delete(&self, whose: Whose) -> Result<bool, VaultFault> {
        let gone = whose.clone();
        let was = self.ask(|store, then| store.delete(gone, then)).await;
        self.forget(&whose);
        was
    }

    /// All of an owner's, by server.
    pub async fn list(&self, tenant: TenantId, owner: Owner) -> Result<Vec<Listed>, VaultFault> {
        let listed = self.ask(|store, then| store.list(tenant, owner, then)).await?;
        let told = |held: Held| Listed {
            reference: held.reference,
            server_key: held.whose.server_key,
            kind: held.kind,
            created_ms: held.created_ms,
            updated_ms: held.updated_ms,
        };
        Ok(listed.into_iter().map(told).collect())
    }

    // === For those who look after all of them ===

    /// For how long another process may still use what this one has changed.
    pub fn age(&self) -> Duration {
        self.age
    }

    /// Some of all that is kept. Grants are looked into for what they say of themselves.
    pub async fn survey(&self, pick: Pick) -> Result<Vec<Surveyed>, VaultFault> {
        let some = self.ask(|store, then| store.pick(pick, then)).await?;
        let mut told = Vec::with_capacity(some.len());
        for held in some {
            let held = Arc::new(held);
            let grant = match held.kind {
                CredentialKind::OAuth => Some(self.granted(&held).await),
                _ => None,
            };
            told.push(Surveyed {
                reference: held.reference,
                whose: held.whose.clone(),
                kind: held.kind,
                key: held.key.clone(),
                created_ms: held.created_ms,
                updated_ms: held.updated_ms,
                renewed_ms: held.renewed_ms,
                grant,
            });
        }
        Ok(told)
    }

    async fn granted(&self, held: &Arc<Held>) -> Result<Granted, VaultFault> {
        match self.reveal(held).await? {
            Credential::OAuth(grant) => Ok(Granted {
                renewable: grant.refresh.is_some(),
                issuer: grant.issuer,
                client_id: grant.client_id,
                scope: grant.scope,
                expires_ms: grant.expires_ms,
            }),
            _ => Err(VaultFault::Seal(SealFault::Mismatch)),
        }
    }

    /// Deletes all that an employee has, with what he has said of OAuth clients. The servers that
    /// it was for.
    pub async fn delete_all(
        &self,
        tenant: TenantId,
        owner: Owner,
    ) -> Result<Vec<Arc<str>>, VaultFault> {
        let gone = self.ask(|store, then| store.delete_all(tenant, owner, then)).await;
        // Whose they were is in no index of what is kept in memory, and this is done seldom.
        self.forget_all();
        let mut servers: Vec<Arc<str>> = gone?
            .into_iter()
            .map(|key| OwnSettings::server_of(&key).map(Into::into).unwrap_or(key))
            .collect();
        servers.sort();
        servers.dedup();
        Ok(servers)
    }

    /// Whether whoever keeps keys could do his work at present. May block.
    pub fn health(&self) -> Result<(), VaultFault> {
        Ok(self.kms()?.health().map_err(SealFault::Kms)?)
    }

    /// What is kept under which key.
    pub async fn key_uses(&self) -> Result<Vec<KeyUse>, VaultFault> {
        self.ask(|store, then| store.key_uses(then)).await
    }

    /// Wraps the data keys of all that is kept with the key that is used at present. Blocks, and
    /// goes on while `step` says so, which is told how far it has come.
    pub fn rewrap_all(
        &self,
        step: &mut dyn FnMut(&Rewrapped) -> bool,
    ) -> Result<Rewrapped, RewrapFault> {
        let kms = self.kms().map_err(|_| RewrapFault::NoKeyring)?;
        let rewrapped = rotation::rewrap_all(&*self.store, &*kms, step);
        // The old form opens for as long as the old key is there, and no longer.
        self.forget_all();
        rewrapped
    }

    fn kms(&self) -> Result<Arc<dyn Kms>, VaultFault> {
        self.kms.load().as_deref().cloned().ok_or(VaultFault::NoKeyring)
    }

    async fn seal(
        &self,
        whose: Whose,
        credential: Credential,
    ) -> Result<(String, Vec<u8>), VaultFault> {
        let kms = self.kms()?;
        // That a key is used may have to be written down first.
        let sealing = spawn_blocking(move || {
            let sealed = credential.seal(&*kms, &whose)?;
            Ok::<_, SealFault>((key_of(&sealed)?, sealed))
        });
        Ok(sealing.await.map_err(|_| VaultFault::Lost)??)
    }

    /// Whatever became of a change: what was known before is not believed any more.
    fn forget(&self, whose: &Whose) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.sealed.invalidate(whose);
    }

    fn forget_all(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.sealed.invalidate_all();
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn CredentialStore, Then<T>),
    ) -> Result<T, VaultFault> {
        let (tell, told) = oneshot::channel();
        // Whoever asked may be gone; what was written stays.
        question(&*self.store, Box::new(move |answer| _ = tell.send(answer)));
        Ok(told.await.unwrap_or(Err(StoreFault::Unclear))?)
    }
}

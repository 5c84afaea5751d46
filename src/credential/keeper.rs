//! A keyring's file together with whoever else keeps keys: what is needed to use the keys, and to
//! change them.

use std::sync::Arc;

use super::{
    CacheLimits, Cached, Exec, FileFault, KeyId, Keyring, KeyringFile, Kms, LocalKms, RingFault,
};
use crate::clock::Clock;

/// Reads and changes a keyring.
#[derive(Clone)]
pub struct Keeper {
    file: KeyringFile,
    exec: Option<Exec>,
    cache: CacheLimits,
    clock: Clock,
}

impl Keeper {
    pub fn new(file: KeyringFile, exec: Option<Exec>, cache: CacheLimits, clock: Clock) -> Self {
        Self { file, exec, cache, clock }
    }

    pub fn file(&self) -> &KeyringFile {
        &self.file
    }

    /// The keyring as it is, with every key that is not destroyed open. May block.
    pub fn open(&self) -> Result<Keyring, FileFault> {
        let mut ring = self.file.read()?;
        ring.unlock(self.kms_of_material()).map_err(|fault| self.told(fault))?;
        Ok(ring)
    }

    /// Who wraps the data keys of records.
    pub fn kms(&self, ring: Arc<Keyring>) -> Arc<dyn Kms> {
        match &self.exec {
            Some(exec) => Arc::new(Cached::new(exec.clone(), self.cache, self.clock.clone())),
            None => Arc::new(LocalKms::new(ring, self.file.clone())),
        }
    }

    /// Makes a keyring of one key.
    pub fn create(&self) -> Result<KeyId, FileFault> {
        let mut ring = Keyring::default();
        let added = ring.add(self.kms_of_material(), self.clock.now_ms());
        let id = added.map_err(|fault| self.told(fault))?;
        self.file.create(&ring)?;
        Ok(id)
    }

    /// The first step of a rotation: adds a key that is not used yet.
    pub fn rotate(&self) -> Result<KeyId, FileFault> {
        let now_ms = self.clock.now_ms();
        self.file.update(|ring| {
            ring.primary()?;
            ring.add(self.kms_of_material(), now_ms)
        })
    }

    /// The second step: uses it.
    pub fn promote(&self, id: Option<KeyId>) -> Result<KeyId, FileFault> {
        let now_ms = self.clock.now_ms();
        self.file.update(|ring| ring.promote(id, now_ms))
    }

    pub fn destroy(&self, id: KeyId) -> Result<(), FileFault> {
        let now_ms = self.clock.now_ms();
        self.file.update(|ring| ring.destroy(id, now_ms))
    }

    fn kms_of_material(&self) -> Option<&dyn Kms> {
        self.exec.as_ref().map(|exec| exec as &dyn Kms)
    }

    fn told(&self, fault: RingFault) -> FileFault {
        FileFault::Ring { path: self.file.path().to_owned(), fault }
    }
}

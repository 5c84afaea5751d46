//! Secrets that are kept: the keyring, what is sealed under it, and credentials of servers.
//!
//! The keyring holds key-encryption keys, each in a state (`ring.rs`), in a file (`file.rs`). From
//! a key come secrets for each purpose (`purpose.rs`). What is sealed has a data key of its own,
//! which is wrapped by whoever keeps keys (`kms.rs`): the keyring, or a program that asks another
//! system (`exec.rs`, behind `cache.rs`). `record.rs` says what a credential is, `store.rs` what
//! is asked of whoever keeps the sealed ones (`memory.rs` is one without a store). `keeper.rs` puts
//! the first ones together; `vault.rs` keeps and opens credentials for those who use them,
//! `rotation.rs` tells how the keyring stands with them and takes them along to another key;
//! `oauth/` is about tokens that others issue.
//!
//! Nothing here attaches a credential to a request.

mod budget;
mod cache;
mod exec;
mod file;
mod keeper;
mod kms;
mod local;
mod memory;
pub mod oauth;
mod purpose;
mod record;
mod ring;
pub mod rotation;
mod seal;
pub mod store;
mod vault;

#[cfg(test)]
mod tests;

pub use self::{
    budget::{MAX_WRAPS, WARN_WRAPS},
    cache::{CacheLimits, Cached},
    exec::Exec,
    file::{FileFault, KeyringFile},
    keeper::Keeper,
    kms::{Context, DataKey, Kms, KmsFault, Wrapped},
    local::LocalKms,
    memory::InProcess,
    purpose::Purpose,
    record::{Credential, CredentialKind, CredentialRef, Owner, Whose},
    ring::{Key, KeyId, KeyState, Keyring, RingFault},
    seal::{SealFault, key_of, open, rewrap, seal},
    vault::{Granted, Listed, Surveyed, Vault, VaultFault, VaultLimits},
};

//! One key, a secret for each purpose: derived by HKDF-SHA-256 with the purpose as its label, so
//! that what one part does with its secret tells another part's nothing.

use hkdf::Hkdf;
use secrecy::{ExposeSecret, SecretBox};
use sha2::Sha256;

/// Marks secrets as derived from a keyring's key and nothing else.
const SALT: &[u8] = b"hangu keyring v1";

/// What a secret is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Wraps the data keys of what is stored.
    Storage,
    /// `argsHash`, `resultRef` and the pseudonyms of employees.
    Digests,
    /// Session ids, cursors, states and task ids; each parts its own from it.
    Tokens,
    /// Answers that are kept for idempotency keys.
    Replays,
    /// Arguments of calls that wait for an approval.
    Approvals,
    /// Signatures of the audit log's checkpoints.
    Checkpoints,
    /// Digests of compiled steps.
    Steps,
    /// Signs what the gateway says of itself to others.
    Identity,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Purpose; 8] = [
        Purpose::Storage,
        Purpose::Digests,
        Purpose::Tokens,
        Purpose::Replays,
        Purpose::Approvals,
        Purpose::Checkpoints,
        Purpose::Steps,
        Purpose::Identity,
    ];

    /// Never to be changed: what was made under the old one would be lost.
    pub const fn label(self) -> &'static str {
        match self {
            Purpose::Storage => "storage",
            Purpose::Digests => "digests",
            Purpose::Tokens => "tokens",
            Purpose::Replays => "replays",
            Purpose::Approvals => "approvals",
            Purpose::Checkpoints => "checkpoints",
            Purpose::Steps => "steps",
            Purpose::Identity => "identity",
        }
    }

    pub(super) fn derive(self, material: &SecretBox<[u8; 32]>) -> SecretBox<[u8; 32]> {
        SecretBox::init_with_mut(|secret: &mut [u8; 32]| {
            // Fails for keys of more than 255 hashes only, and this one is as long as one.
            let expanded = Hkdf::<Sha256>::new(Some(SALT), material.expose_secret())
                .expand(self.label().as_bytes(), secret);
            debug_assert!(expanded.is_ok());
        })
    }
}

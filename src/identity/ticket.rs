//! Texts of the gateway's own that go through somebody's browser, sealed: who has one can bring it
//! back, and neither read nor change it. What it says, and how long it is good, is its owner's.

use sha2::{Digest, Sha256};

use super::seal::{SealFault, Sealer};
use crate::model::{ids, keys::KeySecrets};

/// The purpose of tickets, for `Sealer`.
pub const PURPOSE: &str = "ticket";

/// The longest sealed ticket, in characters: it stands in a URL.
const MAX_TICKET: usize = 4 * 1024;

/// A name for a text, such as a link that has a ticket in it: whoever knows the text can work it
/// out, and nobody the text from it.
pub fn name_of(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let digits = ids::hex::<32, 64>(digest);
    digits.iter().take(32).map(|digit| char::from(*digit)).collect()
}

/// Seals and opens tickets.
#[derive(Debug)]
pub struct Tickets(Sealer);

impl Tickets {
    pub fn new(sealer: Sealer) -> Self {
        Self(sealer.with_max_token(MAX_TICKET))
    }

    /// Goes on with these secrets.
    pub fn rekey(&self, secrets: &KeySecrets) {
        self.0.rekey(secrets);
    }

    pub fn seal(&self, text: &[u8]) -> Result<String, SealFault> {
        self.0.seal(text)
    }

    /// What was sealed; `None` if it is not one of ours, whatever the reason.
    pub fn open(&self, ticket: &str) -> Option<Vec<u8>> {
        self.0.open(ticket).map(|plain| plain.to_vec())
    }
}

//! Whoever brings tokens for requests to a server, and what he says when there is none.

use std::{fmt, pin::Pin};

use secrecy::SecretString;

use super::{super::VaultFault, Challenge};
use crate::credential::Whose;

/// How long an invitation to connect is good, and what follows from it, in milliseconds.
pub const INVITED_MS: u64 = 600_000;

/// A token, when it comes.
pub type Asking = Pin<Box<dyn Future<Output = Result<Token, TokenFault>> + Send>>;

/// Brings tokens for one server.
pub trait TokenSource: Send + Sync {
    /// A token that is good, as far as is known.
    fn token(&self, asked: Asked) -> Asking;

    /// Whose they are.
    fn of(&self) -> TokensOf;
}

/// Whose tokens somebody brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokensOf {
    /// The gateway's, the same for all.
    Gateway,
    /// Each employee's, who has granted his. They are kept, sealed.
    Granted,
    /// Each employee's, got for him when he calls. They are not kept.
    Named,
}

/// What a request needs.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Whose request it is; `None`: the gateway's own.
    pub whose: Option<Whose>,
    /// What the server did not take.
    pub refused: Option<Refused>,
    /// The client's session, by the name that records use: whoever has to grant something first is
    /// told there when he has.
    pub session: Option<[u8; 8]>,
}

/// A token that a server did not take.
#[derive(Debug, Clone)]
pub struct Refused {
    /// Which one it was; `None`: there was none.
    pub serial: Option<u64>,
    pub challenge: Challenge,
    /// Nor had it taken the one before.
    pub again: bool,
}

/// A token for one request.
#[derive(Clone)]
pub struct Token {
    pub value: SecretString,
    /// Tells it from another.
    pub serial: u64,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenFault {
    /// The employee has to grant it: where, if there is such a place.
    #[error("the employee has to connect to the server first")]
    Consent { url: Option<String> },
    /// Nobody is named who could have granted it.
    #[error("no employee is named")]
    Nobody,
    /// The authorization server did not take the gateway.
    #[error("the authorization server refuses: {0}")]
    Refused(String),
    /// What it says cannot be believed.
    #[error("{0}")]
    Distrusted(String),
    #[error("the authorization server cannot be asked: {0}")]
    Unreachable(String),
    /// It gives tokens, and the server does not take them.
    #[error("the server does not take the token that it asked for")]
    NotTaken,
    #[error("{0}")]
    Vault(#[from] VaultFault),
}

/// Without the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.serial)
    }
}

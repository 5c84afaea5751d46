//! What an employee has granted the gateway at a server: tokens, and where they are renewed.

use std::fmt;

use secrecy::SecretString;

/// Tokens of an employee, with all that is needed to renew them.
#[derive(Clone)]
pub struct Grant {
    pub access: SecretString,
    pub refresh: Option<SecretString>,
    /// When the access token ends, as far as is known.
    pub expires_ms: Option<u64>,
    /// The scopes that were asked for or given.
    pub scope: String,
    /// Who issued them. Tokens of one issuer are never shown to another.
    pub issuer: String,
    pub token_endpoint: String,
    /// What they are for.
    pub resource: String,
    /// As which client they were given to the gateway.
    pub client_id: String,
}

/// Without the tokens.
impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grant({} at {})", self.client_id, self.issuer)
    }
}

//! How requests to upstreams are authenticated, as far as the layers know: whose credential goes
//! with them, and who brings it.

use std::sync::Arc;

use crate::credential::oauth::{TokenSource, TokensOf};

/// How requests to an upstream are authenticated, beside its configured headers.
#[derive(Clone)]
pub enum UpstreamAuth {
    /// By those alone.
    None,
    /// By the credential that the calling employee has for the server, in his tenant.
    Employee,
    /// By a token, of the gateway's own or of the calling employee's.
    Tokens(Arc<dyn TokenSource>),
}

impl UpstreamAuth {
    /// Whether each employee has a token that he has granted.
    pub fn is_granted(&self) -> bool {
        matches!(self, UpstreamAuth::Tokens(source) if source.of() == TokensOf::Granted)
    }

    /// Whether each employee has a credential of his own.
    pub fn is_employees(&self) -> bool {
        match self {
            UpstreamAuth::None => false,
            UpstreamAuth::Employee => true,
            UpstreamAuth::Tokens(source) => source.of() != TokensOf::Gateway,
        }
    }

    /// Whether what an employee's requests carry is kept: a session is then bound to that very
    /// credential.
    pub fn is_kept(&self) -> bool {
        match self {
            UpstreamAuth::None => false,
            UpstreamAuth::Employee => true,
            UpstreamAuth::Tokens(source) => source.of() == TokensOf::Granted,
        }
    }
}

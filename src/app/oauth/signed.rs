//! Tokens that nobody gives: the gateway says itself who calls, and signs it.

use std::sync::Arc;

use super::tokens::{Gets, Got, Wanted};
use crate::{
    config::SignedJwt,
    credential::oauth::{Challenge, Identity, Statement, TokenFault, TokensOf},
};

/// Signs for one upstream.
pub(super) struct Signed {
    pub identity: Arc<Identity>,
    pub settings: SignedJwt,
    pub audience: String,
}

impl Gets for Signed {
    const OF: TokensOf = TokensOf::Named;
    // The next one is another one: a server may take each only once.
    const YOUNG_MS: u64 = 0;

    async fn get(&self, wanted: Wanted<'_>) -> Result<Got, TokenFault> {
        // The operator says what the gateway grants, not the server.
        if wanted.challenge.is_some_and(Challenge::wants_more_scopes) {
            return Err(TokenFault::NotTaken);
        }
        let SignedJwt { issuer, subject, employee_as, scope, lifetime, .. } = &self.settings;
        let (subject, actor) = employee_as.parties(subject, wanted.whose);
        let life = lifetime.as_secs();
        let statement = Statement {
            issuer,
            audience: &self.audience,
            subject,
            actor,
            scope: scope.as_deref(),
            life,
        };
        let signed = self.identity.signer().and_then(|key| statement.sign(&key, wanted.now_ms));
        let value = signed.map_err(|fault| TokenFault::Refused(fault.to_string()))?;
        Ok(Got { value, life_ms: Some(life.saturating_mul(1_000)) })
    }
}

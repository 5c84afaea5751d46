//! Tokens of the gateway itself: client credentials (RFC 6749, 4.4).

use super::{
    asks::{Asks, scopes},
    tokens::{Gets, Got, Wanted},
};
use crate::credential::oauth::{TokenFault, TokensOf};

/// Gets the gateway's own tokens for one upstream.
pub(super) struct Own {
    pub asks: Asks,
    pub scope: Option<String>,
}

impl Gets for Own {
    const OF: TokensOf = TokensOf::Gateway;
    const YOUNG_MS: u64 = 10_000;

    async fn get(&self, wanted: Wanted<'_>) -> Result<Got, TokenFault> {
        let Wanted { challenge, scope, now_ms, .. } = wanted;
        let endpoint = self.asks.endpoint(challenge).await?;
        let asked = scopes(self.scope.as_deref(), scope, challenge, &endpoint.scope);
        let parameters = [
            ("grant_type", "client_credentials"),
            ("scope", &*asked),
            ("resource", &*endpoint.resource),
        ];
        let given = self.asks.ask(&endpoint, &parameters, now_ms).await?;
        // What nobody gives is not asked for again.
        *scope = asked;
        let life_ms = given.expires_in.map(|seconds| seconds.saturating_mul(1_000));
        Ok(Got { value: given.access, life_ms })
    }
}

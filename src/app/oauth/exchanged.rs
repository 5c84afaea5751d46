//! Tokens that an authorization server gives for what the gateway says of an employee (RFC 8693).

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use super::{
    asks::{Asks, scopes},
    exchange::Endpoint,
    tokens::{Gets, Got, Wanted},
};
use crate::{
    config::TokenExchange,
    credential::{
        Owner, Whose,
        oauth::{Identity, Party, Statement, TokenFault, TokenType, TokensOf},
    },
};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
/// How long what the gateway says is good, in seconds: it is exchanged at once.
const LIFE: u64 = 60;

/// Gets employees' tokens for one upstream.
pub(super) struct Exchanged {
    pub asks: Asks,
    pub identity: Arc<Identity>,
    pub settings: TokenExchange,
    pub server_key: Arc<str>,
}

impl Exchanged {
    /// What the gateway says of somebody to whoever exchanges it.
    fn says(
        &self,
        of: Party<'_>,
        endpoint: &Endpoint,
        now_ms: u64,
    ) -> Result<SecretString, TokenFault> {
        let statement = Statement {
            issuer: &self.settings.issuer,
            audience: &endpoint.audience,
            subject: of,
            actor: None,
            scope: None,
            life: LIFE,
        };
        let signed = self.identity.signer().and_then(|key| statement.sign(&key, now_ms));
        signed.map_err(|fault| TokenFault::Refused(fault.to_string()))
    }
}

impl Gets for Exchanged {
    const OF: TokensOf = TokensOf::Named;
    const YOUNG_MS: u64 = 10_000;

    async fn get(&self, wanted: Wanted<'_>) -> Result<Got, TokenFault> {
        let Wanted { whose, challenge, scope, now_ms } = wanted;
        let employee = whose.and_then(Party::of).ok_or(TokenFault::Nobody)?;
        let endpoint = self.asks.endpoint(challenge).await?;
        let asked = scopes(self.settings.scope.as_deref(), scope, challenge, &endpoint.scope);
        let TokenExchange { audience, resource, requested, actor_token, .. } = &self.settings;
        let audience = audience.as_deref().unwrap_or_default();
        // Who names an audience alone does not mean the address.
        let resource = match resource {
            None if !audience.is_empty() => "",
            _ => &*endpoint.resource,
        };
        let subject = self.says(employee, &endpoint, now_ms)?;
        let mut parameters = vec![
            ("grant_type", GRANT),
            ("subject_token", subject.expose_secret()),
            ("subject_token_type", TokenType::Jwt.urn()),
            ("audience", audience),
            ("resource", resource),
            ("scope", &*asked),
            ("requested_token_type", requested.map_or("", TokenType::urn)),
        ];
        let actor = match actor_token {
            true => Some(self.says(Party::Gateway(self.asks.client_id()), &endpoint, now_ms)?),
            false => None,
        };
        if let Some(actor) = &actor {
            parameters.push(("actor_token", actor.expose_secret()));
            parameters.push(("actor_token_type", TokenType::Jwt.urn()));
        }
        let given = self.asks.ask(&endpoint, &parameters, now_ms).await?;
        let given = given.exchanged(*requested);
        let given = given.map_err(|fault| TokenFault::Distrusted(fault.to_string()))?;
        // What nobody gives is not asked for again.
        *scope = asked;
        let life_ms = given.expires_in.map(|seconds| seconds.saturating_mul(1_000));
        Ok(Got { value: given.access, life_ms })
    }

    fn listing(&self) -> Option<Whose> {
        let (tenant, employee) = self.settings.listing.as_ref()?;
        Some(Whose {
            tenant: tenant.clone(),
            owner: Owner::Employee(employee.clone()),
            server_key: self.server_key.clone(),
        })
    }
}

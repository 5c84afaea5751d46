//! One request to a token endpoint.

use bytes::Bytes;
use url::Url;

use super::{
    discover::distrusted,
    fetch::{Fetch, Named},
};
use crate::credential::oauth::{
    AnswerFault, AuthorizationServer, Client, TokenAnswer, TokenFault, TokenRequest,
};

/// Where tokens are given.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    pub url: Url,
    /// Whom a client's assertion is for.
    pub audience: String,
    pub named: Named,
    pub metadata: Option<AuthorizationServer>,
    /// What tokens are for.
    pub resource: String,
    /// What is asked for where nobody says anything else.
    pub scope: String,
}

impl Endpoint {
    pub fn of(
        metadata: AuthorizationServer,
        named: Named,
        resource: String,
        scope: String,
    ) -> Result<Self, TokenFault> {
        let url = metadata.token_endpoint().map_err(distrusted)?;
        let url = Url::parse(url)
            .map_err(|_| TokenFault::Distrusted("the token endpoint is no address".to_owned()))?;
        let audience = metadata.issuer.clone();
        Ok(Self { url, audience, named, metadata: Some(metadata), resource, scope })
    }
}

/// Asks for tokens.
pub(super) async fn exchange(
    fetch: &Fetch,
    endpoint: &Endpoint,
    client: &Client,
    parameters: &[(&str, &str)],
    now_ms: u64,
) -> Result<TokenAnswer, TokenFault> {
    let (metadata, audience) = (endpoint.metadata.as_ref(), &endpoint.audience);
    let request = TokenRequest::new(client, metadata, audience, parameters, now_ms);
    let TokenRequest { headers, body } =
        request.map_err(|fault| TokenFault::Refused(fault.to_string()))?;
    let body = Bytes::copy_from_slice(body.as_bytes());
    let answer = fetch.post(&endpoint.url, headers, body, endpoint.named).await?;
    if answer.status.is_server_error() || answer.status.is_redirection() {
        let host = endpoint.url.host_str().unwrap_or_default();
        return Err(TokenFault::Unreachable(format!("`{host}` answers {}", answer.status)));
    }
    TokenAnswer::read(answer.status.is_success(), &answer.text).map_err(|fault| match fault {
        AnswerFault::Refused(word) => TokenFault::Refused(word),
        fault => TokenFault::Distrusted(fault.to_string()),
    })
}

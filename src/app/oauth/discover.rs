//! Finds out who issues tokens for a server: its own document first, then its authorization
//! server's, in the order of the MCP specification.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use url::Url;

use super::fetch::{Fetch, Named};
use crate::credential::oauth::{
    AuthorizationServer, Challenge, MetadataFault, ProtectedResource, TokenFault, secure,
};

/// What is asked of a server without a token, to be told where there are any.
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#;

/// A server and its authorization server.
#[derive(Debug, Clone)]
pub(super) struct Discovered {
    pub server: AuthorizationServer,
    /// What tokens are for.
    pub resource: String,
    /// The scopes that the server's document lists.
    pub scope: Option<String>,
    /// What the server asked for when it was met without a token.
    pub challenge: Challenge,
}

/// Asks a server, or goes by what it has said already.
pub(super) async fn discover(
    fetch: &Fetch,
    server: &Url,
    named: Named,
    challenge: Option<&Challenge>,
) -> Result<Discovered, TokenFault> {
    let challenge = match challenge.filter(|known| known.resource_metadata.is_some()) {
        Some(known) => known.clone(),
        None => ask(fetch, server, named, challenge.cloned().unwrap_or_default()).await?,
    };
    let places = ProtectedResource::places(server, challenge.resource_metadata.as_deref());
    let mut found = None;
    for place in &places {
        // A document beside the server is where the server is; any other is somewhere.
        let named = if place.origin() == server.origin() { named } else { Named::Elsewhere };
        if let Some(text) = document(fetch, place, named).await? {
            found = Some(ProtectedResource::read(&text, server).map_err(distrusted)?);
            break;
        }
    }
    let Some(resource) = found else {
        // Servers of the first revision with authorization are their own authorization servers.
        let mut issuer = server.clone();
        issuer.set_path("");
        issuer.set_query(None);
        let origin = issuer.as_str().trim_end_matches('/').to_owned();
        let server_metadata = metadata(fetch, &origin, named).await?;
        let resource = canonical(server);
        return Ok(Discovered { server: server_metadata, resource, scope: None, challenge });
    };
    let issuer = resource.authorization_servers.first().map(String::as_str).unwrap_or_default();
    let document = metadata(fetch, issuer, Named::Elsewhere).await?;
    Ok(Discovered {
        server: document,
        scope: resource.scope(),
        resource: resource.resource,
        challenge,
    })
}

/// What an issuer says of itself.
pub(super) async fn metadata(
    fetch: &Fetch,
    issuer: &str,
    named: Named,
) -> Result<AuthorizationServer, TokenFault> {
    let Ok(url) = Url::parse(issuer) else {
        return Err(TokenFault::Distrusted("the issuer's name is no address".to_owned()));
    };
    for place in AuthorizationServer::places(&url) {
        if let Some(text) = document(fetch, &place, named).await? {
            return AuthorizationServer::read(&text, issuer).map_err(distrusted);
        }
    }
    let message = "the authorization server has no document about itself where one has to be";
    Err(TokenFault::Distrusted(message.to_owned()))
}

/// The address of a server as tokens name it.
pub(super) fn canonical(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    match url.path() {
        "/" if url.query().is_none() => url.as_str().trim_end_matches('/').to_owned(),
        _ => url.to_string(),
    }
}

pub(super) fn distrusted(fault: MetadataFault) -> TokenFault {
    TokenFault::Distrusted(format!("what is said of the server's authorization: {fault}"))
}

async fn ask(
    fetch: &Fetch,
    server: &Url,
    named: Named,
    known: Challenge,
) -> Result<Challenge, TokenFault> {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(header::CONTENT_TYPE, json);
    headers.insert(header::ACCEPT, both);
    let answer = fetch.post(server, headers, Bytes::from_static(PING), named).await?;
    if answer.status != StatusCode::UNAUTHORIZED {
        return Ok(known);
    }
    let mut challenge = Challenge::of(&answer.headers).unwrap_or_default();
    challenge.scope = known.scope.or(challenge.scope);
    Ok(challenge)
}

/// A document, where there is one. It says where secrets go, so nobody may have changed it on its
/// way: only at an address that the operator wrote down it may come without TLS.
async fn document(fetch: &Fetch, place: &Url, named: Named) -> Result<Option<Bytes>, TokenFault> {
    if named == Named::Elsewhere && secure(place.as_str()).is_none() {
        let origin = place.origin().ascii_serialization();
        return Err(distrusted(MetadataFault::Plain(origin)));
    }
    let answer = fetch.get(place, named).await?;
    match answer.status {
        status if status.is_success() => Ok(Some(answer.text)),
        status if status.is_client_error() => Ok(None),
        status => {
            let host = place.host_str().unwrap_or_default();
            Err(TokenFault::Unreachable(format!("`{host}` answers {status}")))
        }
    }
}

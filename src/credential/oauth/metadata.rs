//! Documents in which servers say who issues their tokens, and issuers where they do it.
//!
//! A document is believed only if it speaks of what it was asked about: a resource of itself, an
//! issuer of the very text it was looked up by.

use serde::Deserialize;
use url::Url;

use super::bounded;

/// The longest address in a document, in bytes: some are kept, some are sent on.
const MAX_ADDRESS: usize = 2 * 1024;

/// Why a document is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetadataFault {
    #[error("it is no JSON object with what such a document needs")]
    Form,
    #[error("it is about another resource than the server")]
    OtherResource,
    #[error("it names no authorization server")]
    NoServer,
    #[error("its issuer is not the one that was asked for")]
    OtherIssuer,
    #[error("`{0}` is no address that secrets may be sent to: `https`, or `http` on this machine")]
    Insecure(&'static str),
    #[error("it offers no {0}")]
    Missing(&'static str),
    #[error("`{0}` is longer than {MAX_ADDRESS} bytes")]
    TooLong(&'static str),
    #[error("it stands at `{0}`, and is believed over `https` only, or on this machine")]
    Plain(String),
}

/// A server about itself (RFC 9728).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ProtectedResource {
    pub resource: String,
    #[serde(default)]
    pub authorization_servers: Vec<String>,
    pub scopes_supported: Option<Vec<String>>,
}

/// An authorization server about itself (RFC 8414, OpenID Connect Discovery).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuthorizationServer {
    pub issuer: String,
    pub authorization_endpoint: Option<String>,
    pub token_endpoint: Option<String>,
    pub registration_endpoint: Option<String>,
    pub scopes_supported: Option<Vec<String>>,
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
}

// === impl ProtectedResource ===

impl ProtectedResource {
    /// The document of a server at this address.
    pub fn read(text: &[u8], server: &Url) -> Result<Self, MetadataFault> {
        let document: Self = serde_json::from_slice(text).map_err(|_| MetadataFault::Form)?;
        if !is_short(&document.resource) {
            return Err(MetadataFault::TooLong("resource"));
        }
        if !document.covers(server) {
            return Err(MetadataFault::OtherResource);
        }
        match document.authorization_servers.first() {
            Some(issuer) if is_short(issuer) => Ok(document),
            Some(_) => Err(MetadataFault::TooLong("authorization_servers")),
            None => Err(MetadataFault::NoServer),
        }
    }

    /// The scopes that it lists, as they are asked for; one that lists more than anybody asks for
    /// lists none.
    pub fn scope(&self) -> Option<String> {
        bounded(self.scopes_supported.as_ref()?.join(" "))
    }

    /// Whether it speaks of a server: of its very address, or of a path that the server's lies
    /// under.
    fn covers(&self, server: &Url) -> bool {
        let Ok(resource) = Url::parse(&self.resource) else { return false };
        let (own, asked) = (resource.path().trim_end_matches('/'), server.path());
        let below =
            asked.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        resource.origin() == server.origin() && below && resource.fragment().is_none()
    }

    /// Where a server at this address may have its document: what it named itself, or the places
    /// of the RFC.
    pub fn places(server: &Url, named: Option<&str>) -> Vec<Url> {
        if let Some(named) = named {
            return Url::parse(named).into_iter().collect();
        }
        let path = server.path().trim_end_matches('/');
        let mut places = vec![well_known(server, "oauth-protected-resource", path)];
        if !path.is_empty() {
            places.push(well_known(server, "oauth-protected-resource", ""));
        }
        places
    }
}

/// `/.well-known/NAME`, before a path.
pub fn well_known(base: &Url, name: &str, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("/.well-known/{name}{path}"));
    url.set_query(None);
    url.set_fragment(None);
    url
}

// === impl AuthorizationServer ===

impl AuthorizationServer {
    /// Where an issuer may have its document, in the order of the MCP specification.
    pub fn places(issuer: &Url) -> Vec<Url> {
        let path = issuer.path().trim_end_matches('/').to_owned();
        let mut places = vec![
            well_known(issuer, "oauth-authorization-server", &path),
            well_known(issuer, "openid-configuration", &path),
        ];
        if !path.is_empty() {
            let mut below = issuer.clone();
            below.set_path(&format!("{path}/.well-known/openid-configuration"));
            places.push(below);
        }
        places
    }

    /// The document that was found by this issuer. The issuer in it is the same, byte for byte.
    pub fn read(text: &[u8], issuer: &str) -> Result<Self, MetadataFault> {
        let document: Self = serde_json::from_slice(text).map_err(|_| MetadataFault::Form)?;
        if document.issuer != issuer {
            return Err(MetadataFault::OtherIssuer);
        }
        for (name, endpoint) in [
            ("authorization_endpoint", &document.authorization_endpoint),
            ("token_endpoint", &document.token_endpoint),
            ("registration_endpoint", &document.registration_endpoint),
        ] {
            let Some(endpoint) = endpoint else { continue };
            if !is_short(endpoint) {
                return Err(MetadataFault::TooLong(name));
            }
            if secure(endpoint).is_none() {
                return Err(MetadataFault::Insecure(name));
            }
        }
        Ok(document)
    }

    pub fn token_endpoint(&self) -> Result<&str, MetadataFault> {
        self.token_endpoint.as_deref().ok_or(MetadataFault::Missing("token endpoint"))
    }

    /// Where an employee is sent; only where his code is good for nobody else (PKCE).
    pub fn authorization_endpoint(&self) -> Result<&str, MetadataFault> {
        let challenges = self.code_challenge_methods_supported.iter().flatten();
        if !challenges.into_iter().any(|method| method == "S256") {
            return Err(MetadataFault::Missing("PKCE with S256"));
        }
        let endpoint = self.authorization_endpoint.as_deref();
        endpoint.ok_or(MetadataFault::Missing("authorization endpoint"))
    }

    /// Whether a client may prove itself so; the RFC's default is `client_secret_basic`.
    pub fn takes(&self, method: &str) -> bool {
        match &self.token_endpoint_auth_methods_supported {
            Some(methods) => methods.iter().any(|known| known == method),
            None => method == "client_secret_basic",
        }
    }
}

/// Whether an address is not longer than anybody needs.
pub(super) fn is_short(address: &str) -> bool {
    address.len() <= MAX_ADDRESS
}

/// An address that a secret may be sent to.
pub fn secure(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let is_local = match url.host()? {
        url::Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        url::Host::Ipv4(address) => address.is_loopback(),
        url::Host::Ipv6(address) => address.is_loopback(),
    };
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (plain && (url.scheme() == "https" || (url.scheme() == "http" && is_local))).then_some(url)
}

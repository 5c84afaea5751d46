//! What a request without good credentials is told to bring (RFC 6750, RFC 9728).
//!
//! Shared by the layers that refuse for want of a key, a token or a scope.

use http::{HeaderMap, HeaderValue, header as http_header};

use crate::error::{Code, Error};

/// Where the documents about protected resources are, by path.
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What challenges say.
#[derive(Debug, Clone, Default)]
pub struct Challenges {
    /// Tokens are taken: challenges name the document that says whose.
    pub tokens: bool,
    /// What clients reach the gateway by, without a slash at its end; taken from the request's
    /// Host where it is not configured.
    pub public_url: Option<Box<str>>,
    /// Clients speak TLS to the gateway itself.
    pub tls: bool,
    /// The scopes that every request needs.
    pub base: Vec<Box<str>>,
}

impl Challenges {
    /// What clients reach the gateway by.
    pub fn base_url(&self, headers: &HeaderMap) -> Option<String> {
        if let Some(url) = &self.public_url {
            return Some(url.to_string());
        }
        let host = headers.get(http_header::HOST)?.to_str().ok()?;
        // It goes into a quoted string, and into JSON.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        let scheme = if self.tls { "https" } else { "http" };
        host.chars().all(plain).then(|| format!("{scheme}://{host}"))
    }

    /// `WWW-Authenticate` for a request to this path; `None` where tokens are not taken.
    fn header(
        &self,
        headers: &HeaderMap,
        path: &str,
        error: Option<&str>,
        scope: &str,
    ) -> Option<HeaderValue> {
        if !self.tokens {
            return None;
        }
        let mut text = String::from("Bearer ");
        if let Some(error) = error {
            text.push_str("error=\"");
            text.push_str(error);
            text.push_str("\", ");
        }
        if !scope.is_empty() {
            text.push_str("scope=\"");
            text.push_str(scope);
            text.push_str("\", ");
        }
        match self.base_url(headers) {
            Some(base) => {
                text.push_str(&format!("resource_metadata=\"{base}{WELL_KNOWN}{path}\""));
            }
            None => text.push_str("realm=\"hangu\""),
        }
        HeaderValue::try_from(text).ok()
    }

    /// 401 for a request with no credentials, or with bad ones.
    pub fn unauthenticated(&self, error: Error, headers: &HeaderMap, path: &str) -> Error {
        let token = headers.contains_key(http_header::AUTHORIZATION);
        let scope = self.base.join(" ");
        match self.header(headers, path, token.then_some("invalid_token"), &scope) {
            Some(challenge) => error.with_header(http_header::WWW_AUTHENTICATE, challenge),
            None => error,
        }
    }

    /// 403 for a token with too few scopes: all that the operation needs are named at once.
    pub fn insufficient(&self, headers: &HeaderMap, path: &str, scope: &str) -> Error {
        let message = format!("the token needs the scopes: {scope}");
        let error =
            Error::http(Code::PermissionDenied, 403, message).with_reason("insufficient_scope");
        match self.header(headers, path, Some("insufficient_scope"), scope) {
            Some(challenge) => error.with_header(http_header::WWW_AUTHENTICATE, challenge),
            None => error,
        }
    }
}

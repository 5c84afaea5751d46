//! Requests for tokens, and their answers (RFC 6749, with the resource of RFC 8707).

use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use super::{AuthorizationServer, Client, SignerFault, bounded};

/// The longest token that is taken, in bytes: it has to fit into a header.
const MAX_TOKEN: usize = 32 * 1024;
/// What authorization servers say (RFC 6749, 6750, 7591, 8707, 9449). No other word of theirs is
/// repeated: it may be what they were sent.
const WORDS: [&str; 17] = [
    "access_denied",
    "insufficient_scope",
    "invalid_client",
    "invalid_client_metadata",
    "invalid_grant",
    "invalid_redirect_uri",
    "invalid_request",
    "invalid_scope",
    "invalid_target",
    "invalid_token",
    "server_error",
    "slow_down",
    "temporarily_unavailable",
    "unauthorized_client",
    "unsupported_grant_type",
    "unsupported_response_type",
    "use_dpop_nonce",
];
/// In the place of all others.
const OTHER: &str = "another_error";

/// A request to a token endpoint.
pub struct TokenRequest {
    pub headers: HeaderMap,
    /// A form.
    pub body: Zeroizing<String>,
}

/// What a token endpoint gives.
pub struct TokenAnswer {
    pub access: SecretString,
    pub refresh: Option<SecretString>,
    /// For how long the token is good, in seconds, if that was said.
    pub expires_in: Option<u64>,
    pub scope: Option<String>,
    /// What it says the token is, where it was exchanged for another.
    pub issued_type: Option<String>,
}

/// What a token is (RFC 8693, 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenType {
    AccessToken,
    Jwt,
}

/// Why it gives none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// Its own word for it, such as `invalid_grant`.
    #[error("it answers `{0}`")]
    Refused(String),
    #[error("it did not answer as a token endpoint does")]
    Form,
    #[error("it gave a token of another kind than `Bearer`")]
    Kind,
    #[error("it does not say that it gave a token of the type that was asked for")]
    Type,
}

#[derive(Deserialize)]
struct Given {
    access_token: String,
    token_type: String,
    expires_in: Option<serde_json::Number>,
    refresh_token: Option<String>,
    scope: Option<String>,
    issued_token_type: Option<String>,
}

#[derive(Deserialize)]
struct Error {
    error: String,
}

// === impl TokenRequest ===

impl TokenRequest {
    /// `parameters`: the grant, and what goes with it. `audience` is whom an assertion of the
    /// client is for.
    pub fn new(
        client: &Client,
        server: Option<&AuthorizationServer>,
        audience: &str,
        parameters: &[(&str, &str)],
        now_ms: u64,
    ) -> Result<Self, SignerFault> {
        let proved = client.prove(server, audience, now_ms)?;
        // Room enough that it does not move and leave a copy.
        let mut form = Serializer::new(String::with_capacity(16 * 1024));
        form.extend_pairs(parameters.iter().filter(|(_, value)| !value.is_empty()));
        for (name, value) in &proved.parameters {
            form.append_pair(name, value);
        }
        let mut headers = HeaderMap::new();
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, kind);
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(text) = &proved.header {
            let mut value =
                HeaderValue::try_from(text.as_str()).map_err(|_| SignerFault::Failed)?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(Self { headers, body: Zeroizing::new(form.finish()) })
    }
}

// === impl TokenAnswer ===

impl TokenAnswer {
    pub fn read(is_success: bool, text: &[u8]) -> Result<Self, AnswerFault> {
        if !is_success {
            let Error { error } = serde_json::from_slice(text).map_err(|_| AnswerFault::Form)?;
            let word = WORDS.into_iter().find(|word| *word == error).unwrap_or(OTHER);
            return Err(AnswerFault::Refused(word.to_owned()));
        }
        let given: Given = serde_json::from_slice(text).map_err(|_| AnswerFault::Form)?;
        let access: SecretString = given.access_token.into();
        let refresh = given.refresh_token.map(SecretString::from);
        if !given.token_type.eq_ignore_ascii_case("bearer") {
            return Err(AnswerFault::Kind);
        }
        // It is kept, and asked for again with every renewal.
        let scope = match given.scope {
            Some(scope) => Some(bounded(scope).ok_or(AnswerFault::Form)?),
            None => None,
        };
        let fits = |token: &SecretString| {
            let text = token.expose_secret();
            let visible = text.bytes().all(|b| matches!(b, b'!'..=b'~'));
            !text.is_empty() && text.len() <= MAX_TOKEN && visible
        };
        let refresh = refresh.filter(|token| !token.expose_secret().is_empty());
        let is_long = |token: &SecretString| token.expose_secret().len() > MAX_TOKEN;
        if !fits(&access) || refresh.as_ref().is_some_and(is_long) {
            return Err(AnswerFault::Form);
        }
        let expires_in = given.expires_in.and_then(|seconds| seconds.as_u64());
        Ok(Self { access, refresh, expires_in, scope, issued_type: given.issued_token_type })
    }

    /// One that was exchanged has to be what was asked for, or at least usable (RFC 8693, 2.2.1).
    pub fn exchanged(self, requested: Option<TokenType>) -> Result<Self, AnswerFault> {
        let fits = |kind: TokenType| self.issued_type.as_deref() == Some(kind.urn());
        let fits = match requested {
            Some(kind) => fits(kind),
            None => fits(TokenType::AccessToken) || fits(TokenType::Jwt),
        };
        if fits { Ok(self) } else { Err(AnswerFault::Type) }
    }
}

// === impl TokenType ===

impl TokenType {
    /// The word for it in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            TokenType::AccessToken => "access_token",
            TokenType::Jwt => "jwt",
        }
    }

    pub fn urn(self) -> &'static str {
        match self {
            TokenType::AccessToken => "urn:ietf:params:oauth:token-type:access_token",
            TokenType::Jwt => "urn:ietf:params:oauth:token-type:jwt",
        }
    }
}

/// Without the tokens.
impl std::fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TokenAnswer(expires_in: {:?}, scope: {:?})", self.expires_in, self.scope)
    }
}

//! How the gateway proves to an authorization server that it is the client it names.

use std::{fmt, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use zeroize::Zeroizing;

use super::{AuthorizationServer, Signer, SignerFault};

/// How long an assertion is good, in seconds.
const ASSERTION_LIFE: u64 = 60;

/// A client as an authorization server knows it.
#[derive(Debug, Clone)]
pub struct Client {
    pub id: String,
    pub proof: ClientProof,
}

/// What it proves itself with.
#[derive(Clone)]
pub enum ClientProof {
    /// A public client.
    None,
    /// In the header, or in the body where the server takes nothing else.
    Secret(SecretString),
    /// Always in the body.
    SecretInBody(SecretString),
    /// A signed assertion (RFC 7523).
    Key(Arc<Signer>),
}

/// What is added to a request.
#[derive(Default)]
pub(super) struct Proved {
    /// `Authorization`.
    pub header: Option<Zeroizing<String>>,
    /// Parameters of the body.
    pub parameters: Vec<(&'static str, Zeroizing<String>)>,
}

impl Client {
    /// `issuer` is whom an assertion is for.
    pub(super) fn prove(
        &self,
        server: Option<&AuthorizationServer>,
        audience: &str,
        now_ms: u64,
    ) -> Result<Proved, SignerFault> {
        let plain = |text: &str| Zeroizing::new(text.to_owned());
        let takes = |method| server.is_none_or(|server| server.takes(method));
        let mut proved = Proved::default();
        match &self.proof {
            ClientProof::Secret(secret)
                if takes("client_secret_basic") || !takes("client_secret_post") =>
            {
                let pair = Zeroizing::new(format!(
                    "{}:{}",
                    encoded(&self.id),
                    *Zeroizing::new(encoded(secret.expose_secret()))
                ));
                let text = format!("Basic {}", STANDARD.encode(&*pair));
                proved.header = Some(Zeroizing::new(text));
            }
            ClientProof::Secret(secret) | ClientProof::SecretInBody(secret) => {
                proved.parameters.push(("client_id", plain(&self.id)));
                proved.parameters.push(("client_secret", plain(secret.expose_secret())));
            }
            ClientProof::None => proved.parameters.push(("client_id", plain(&self.id))),
            ClientProof::Key(signer) => {
                let now = now_ms / 1_000;
                let claims = json!({
                    "iss": self.id, "sub": self.id, "aud": audience,
                    "jti": format!("{:032x}", rand::random::<u128>()),
                    "iat": now, "exp": now + ASSERTION_LIFE,
                });
                let assertion = signer.sign("JWT", &claims)?;
                proved.parameters.push(("client_id", plain(&self.id)));
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                proved.parameters.push(("client_assertion_type", plain(kind)));
                proved.parameters.push(("client_assertion", Zeroizing::new(assertion)));
            }
        }
        Ok(proved)
    }
}

/// As in a form, which is how identifiers go into the header (RFC 6749, 2.3.1).
fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Without the secret.
impl fmt::Debug for ClientProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientProof::None => "none",
            ClientProof::Secret(_) => "client_secret_basic",
            ClientProof::SecretInBody(_) => "client_secret_post",
            ClientProof::Key(_) => "private_key_jwt",
        })
    }
}

//! Credentials that are looked up for a request: the calling employee's own, and what operators
//! have given names to.
//!
//! They are open from here until the request is written.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderName, HeaderValue, header as http_header};
use secrecy::{ExposeSecret, SecretString};
use smallvec::SmallVec;
use zeroize::Zeroizing;

use super::super::{
    answer::{no_credential, no_token, vault_failed},
    stage::{Hop, Upstream, UpstreamAuth},
};
use crate::{
    credential::{
        Credential, Vault, Whose,
        oauth::{Asked, Refused, TokenFault},
        store::Held,
    },
    error::{Code, Error, Next},
    model::{caller::Caller, template::HeaderSource},
};

/// What was looked up, as headers.
#[derive(Default)]
pub(super) struct Attached {
    /// Of configured headers whose values are kept by name.
    pub stored: SmallVec<[(HeaderName, HeaderValue); 1]>,
    /// The credential's own; they stand in the place of configured ones.
    pub credential: SmallVec<[(HeaderName, HeaderValue); 1]>,
    /// Which token it was.
    pub token: Option<u64>,
}

/// Whether anything is to be looked up for requests to an upstream.
pub(super) fn concerns(upstream: &Upstream) -> bool {
    !matches!(upstream.auth, UpstreamAuth::None)
        || upstream.headers.iter().any(|(_, source)| matches!(source, HeaderSource::Stored(_)))
}

/// Looks up all that a request needs. `refused`: the token of the attempt before was not taken.
pub(super) async fn gather(
    vault: &Vault,
    hop: &Hop,
    refused: Option<Refused>,
) -> Result<Attached, Error> {
    let upstream = &hop.upstream;
    let mut attached = Attached::default();
    for (name, source) in &upstream.headers {
        let HeaderSource::Stored(secret) = source else { continue };
        let opened = vault.open(&Whose::secret(secret)).await;
        match opened.map_err(|fault| vault_failed(upstream, fault))? {
            Some(Credential::Value(value)) => {
                attached.stored.push((name.clone(), sensitive(name, &value)?));
            }
            _ => return Err(unset(upstream, secret)),
        }
    }
    if let UpstreamAuth::Tokens(source) = &upstream.auth {
        let caller = hop.caller.as_ref().filter(|_| upstream.auth.is_employees());
        let whose = match caller {
            Some(caller) => {
                let whose = upstream.credential_of(caller);
                Some(whose.ok_or_else(|| no_credential(upstream, caller))?)
            }
            None => None,
        };
        let session = whose.as_ref().and(hop.exchange.facts().session_hash);
        match source.token(Asked { whose, refused, session }).await {
            Ok(token) => {
                attached.token = Some(token.serial);
                write(&Credential::Bearer(token.value), &mut attached)?;
            }
            // A listing for which nobody's is to be used.
            Err(TokenFault::Nobody) if hop.caller.is_none() => {}
            Err(fault) => return Err(no_token(upstream, fault)),
        }
    }
    if let Some((caller, held)) = employees(vault, hop).await? {
        let opened = vault.reveal_for(&held, upstream.address.as_deref()).await;
        let credential = opened.map_err(|fault| vault_failed(upstream, fault))?;
        // One that he gave for another address is not for this server.
        write(&credential.ok_or_else(|| no_credential(upstream, caller))?, &mut attached)?;
    }
    Ok(attached)
}

/// Whoever a request is made for, and his sealed credential, where the upstream takes such.
async fn employees<'h>(
    vault: &Vault,
    hop: &'h Hop,
) -> Result<Option<(&'h Caller, Arc<Held>)>, Error> {
    // Discovery asks for nobody in particular.
    let (UpstreamAuth::Employee, Some(caller)) = (&hop.upstream.auth, &hop.caller) else {
        return Ok(None);
    };
    // The one that the request's session was opened with.
    if let Some(held) = &hop.credential {
        return Ok(Some((caller, held.clone())));
    }
    let whose =
        hop.upstream.credential_of(caller).ok_or_else(|| no_credential(&hop.upstream, caller))?;
    let held = vault.held(&whose).await.map_err(|fault| vault_failed(&hop.upstream, fault))?;
    let held = held.ok_or_else(|| no_credential(&hop.upstream, caller))?;
    Ok(Some((caller, held)))
}

fn write(credential: &Credential, attached: &mut Attached) -> Result<(), Error> {
    let mut put = |name: HeaderName, value: &SecretString| {
        let value = sensitive(&name, value)?;
        attached.credential.push((name, value));
        Ok::<(), Error>(())
    };
    let authorization = http_header::AUTHORIZATION;
    match credential {
        Credential::Bearer(token) => {
            put(authorization, &format!("Bearer {}", token.expose_secret()).into())
        }
        Credential::Basic { user, password } => {
            let pair = Zeroizing::new(format!("{user}:{}", password.expose_secret()));
            put(authorization, &format!("Basic {}", STANDARD.encode(&*pair)).into())
        }
        Credential::Headers(headers) => headers.iter().try_for_each(|(name, value)| {
            let name = HeaderName::try_from(name.as_str())
                .map_err(|_| super::broken(&http_header::AUTHORIZATION))?;
            put(name, value)
        }),
        Credential::OAuth(grant) => {
            put(authorization, &format!("Bearer {}", grant.access.expose_secret()).into())
        }
        // Whoever names it knows what it is for.
        Credential::Value(value) => put(authorization, value),
    }
}

fn sensitive(name: &HeaderName, value: &SecretString) -> Result<HeaderValue, Error> {
    let value = HeaderValue::try_from(value.expose_secret()).map_err(|_| super::broken(name))?;
    Ok(marked(value))
}

fn marked(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

fn unset(upstream: &Upstream, secret: &str) -> Error {
    let message = format!("`{}` needs the secret `{secret}`, which nobody has set", upstream.name);
    Error::new(Code::ServerNotConfigured, message).with_known_outcome()
}

/// The server did not take the credential of the employee.
pub(super) fn refused(upstream: &Upstream) -> Error {
    let message = format!(
        "`{}` refused your credential: it may have expired or been withdrawn; set another",
        upstream.name
    );
    Error::new(Code::PermissionDenied, message)
        .with_kind("401")
        .from_upstream()
        .with_advice(false, Next::AskHuman)
}

//! What operators have given names to, for `{ secret: NAME }`: set, deleted and listed, and never
//! told again.

use futures_util::FutureExt;
use http::{HeaderValue, Method};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;

use super::{Failure, Route, tokens::Need};
use crate::{credential::VaultFault, error::Code, yaml::check_name};

pub(super) const LIST: Route = Route {
    id: "listSecrets",
    method: Method::GET,
    path: "/admin/api/secrets",
    summary: "The names of all secrets, and when each was set. No value is ever told.",
    need: Need::Look,
    action: None,
    query: &[],
    body: None,
    run: |api, _| {
        async move {
            let listed = api.gateway.secrets().await.map_err(failed)?;
            Ok(json!({ "secrets": listed }))
        }
        .boxed()
    },
};

pub(super) const PUT: Route = Route {
    id: "putSecret",
    method: Method::PUT,
    path: "/admin/api/secrets/{name}",
    summary: "Sets a secret, or replaces it. It is sealed before it is kept, and used from the \
              next request on.",
    need: Need::Secure,
    action: Some("secret_put"),
    query: &[],
    body: Some(
        r#"{"type":"object","required":["value"],"additionalProperties":false,"properties":{"value":{"type":"string","description":"what stands in the header: visible ASCII","writeOnly":true}}}"#,
    ),
    run: |api, asked| {
        async move {
            let name = named(asked.given())?;
            let wrong = |why: &'static str| Failure::new(Code::InvalidArgs, why);
            // Its own words would repeat what was sent.
            let Body { value } = serde_json::from_slice(&asked.body)
                .map_err(|_| wrong("the body is a JSON object with one text, `value`"))?;
            let value = SecretString::from(value);
            if !fits(&value) {
                return Err(wrong(
                    "the value cannot be sent in a header: it is empty, blank at an end, or not \
                     visible ASCII",
                ));
            }
            api.gateway.put_secret(&name, value).await.map_err(failed)?;
            Ok(json!({ "secret": name }))
        }
        .boxed()
    },
};

pub(super) const DELETE: Route = Route {
    id: "deleteSecret",
    method: Method::DELETE,
    path: "/admin/api/secrets/{name}",
    summary: "Forgets a secret. Requests that need it fail from then on.",
    need: Need::Secure,
    action: Some("secret_delete"),
    query: &[],
    body: None,
    run: |api, asked| {
        async move {
            let name = named(asked.given())?;
            match api.gateway.delete_secret(&name).await.map_err(failed)? {
                true => Ok(json!({ "deleted": name })),
                false => Err(Failure::new(Code::NotFound, "there is no such secret")),
            }
        }
        .boxed()
    },
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    value: String,
}

fn named(given: &str) -> Result<String, Failure> {
    check_name(given).map(|()| given.to_owned()).map_err(|reason| {
        Failure::new(Code::InvalidArgs, format!("what stands in the path {reason}"))
    })
}

/// Whether it arrives as it was sent.
fn fits(value: &SecretString) -> bool {
    let text = value.expose_secret();
    !text.is_empty()
        && text.trim() == text
        && text.bytes().all(|b| matches!(b, b' '..=b'~'))
        && HeaderValue::from_str(text).is_ok()
}

fn failed(fault: VaultFault) -> Failure {
    match fault {
        VaultFault::NoKeyring => Failure::new(
            Code::Conflict,
            "secrets are sealed under the keyring, and the configuration names none: add \
             `keyring: { file: … }`",
        ),
        fault => {
            tracing::error!(error = %fault, "A secret could not be kept");
            Failure::new(
                Code::Internal,
                "the secret could not be sealed and kept: ask again what is there",
            )
        }
    }
}

//! What a webhook says of a request, and its signature: the form of Standard Webhooks, so that
//! receivers check it with a library they have. Nothing is sent here.
//!
//! A notice never holds arguments or comments: whoever may see them looks the request up.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use serde_json::json;
use sha2::Sha256;

use super::{Approval, Notice};
use crate::clock::rfc3339;

/// What a key begins with in its written form.
const PREFIX: &str = "whsec_";
/// How long a key may be, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs what is sent to one receiver.
#[derive(Clone)]
pub struct SigningKey(SecretSlice<u8>);

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no signing key: `whsec_` and the base64 of 24 to 64 bytes")]
pub struct NoKey;

// === impl SigningKey ===

impl SigningKey {
    /// Reads the written form.
    pub fn parse(text: &str) -> Result<Self, NoKey> {
        let bytes = text.strip_prefix(PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
        let bytes = bytes.filter(|bytes| LENGTHS.contains(&bytes.len())).ok_or(NoKey)?;
        Ok(Self(bytes.into()))
    }

    /// The value of `webhook-signature` for a body that is sent under this id at this time, in
    /// seconds since 1970.
    pub fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.expose_secret()) else {
            // A key of any length is one to HMAC.
            return String::new();
        };
        mac.update(format!("{id}.{seconds}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

/// Names a notice, the same however often it is sent. A dot would end it in what is signed.
pub fn id(notice: Notice, approval: &Approval) -> String {
    format!("{}-{}", approval.id, notice.as_str())
}

/// The body of a notice. `base` is what clients reach the gateway by, if that is known.
pub fn body(notice: Notice, approval: &Approval, base: Option<&str>, now_ms: u64) -> Vec<u8> {
    let request = &approval.request;
    let subject = &request.subject;
    let path = format!("/v1/approvals/{}", approval.id);
    let rules: Vec<_> = request
        .demands
        .iter()
        .map(|demand| {
            let roles: Vec<_> = demand.roles.iter().map(|role| role.as_str()).collect();
            json!({ "rule": &*demand.rule, "roles": roles, "count": demand.count })
        })
        .collect();
    let mut data = json!({
        "id": approval.id.to_string(),
        "state": approval.state(now_ms).as_str(),
        "tenant": subject.tenant.as_str(),
        "caller": subject.caller.as_str(),
        "requester": subject.requester.as_ref().map(|requester| requester.as_str()),
        "tool": &*subject.tool,
        "risk": request.risk.as_str(),
        "rules": rules,
        "askedAt": rfc3339(request.asked_ms),
        "expiresAt": rfc3339(request.expires_ms),
        "path": path,
    });
    if let Some(base) = base {
        data["url"] = format!("{base}{path}").into();
    }
    if notice != Notice::Requested {
        let by: Vec<_> = approval.votes.iter().map(|vote| vote.by.to_string()).collect();
        data["decidedBy"] = by.into();
    }
    let told = json!({
        "type": format!("approval.{}", notice.as_str()),
        "timestamp": rfc3339(now_ms),
        "data": data,
    });
    told.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_standard() {
        // The example of the Standard Webhooks specification's own libraries.
        let key = SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b"{\"test\": 2432232314}");
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{key:?}"), "SigningKey(..)");
    }

    #[test]
    fn a_key_has_one_form() {
        let of = |bytes: usize| format!("{PREFIX}{}", STANDARD.encode(vec![7; bytes]));
        for good in [of(24), of(64)] {
            assert!(SigningKey::parse(&good).is_ok(), "{good}");
        }
        for bad in ["", "hunter2", "whsec_", "whsec_%%%", &of(23), &of(65), &of(32)[6..]] {
            assert_eq!(SigningKey::parse(bad).err(), Some(NoKey), "{bad}");
        }
    }
}

//! Signs JWTs: with a key of the operator's, or with one that comes from the keyring.
//!
//! Keys of the keyring are P-256: what is signed with them is ES256, which every authorization
//! server knows. Their public halves are published as a JWK set.

use std::fmt;

use aws_lc_rs::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    },
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use hkdf::Hkdf;
use secrecy::{ExposeSecret, SecretBox};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Before a P-256 scalar, and after it, in RFC 5915's form.
const EC_BEFORE: [u8; 7] = [0x30, 0x31, 0x02, 0x01, 0x01, 0x04, 0x20];
const EC_AFTER: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// How often a scalar is drawn; that the first is none happens once in 2^32.
const DRAWS: u8 = 8;

/// Why nothing is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignerFault {
    #[error("it is no private key in PEM: P-256, P-384, RSA or Ed25519")]
    Form,
    #[error("the signature could not be made")]
    Failed,
}

/// A private key, and what is signed with it.
pub struct Signer {
    key: Kind,
    /// Its name in headers and sets: the thumbprint of the public half where that is published.
    id: Option<String>,
}

enum Kind {
    Es256(EcdsaKeyPair),
    Es384(EcdsaKeyPair),
    Rs256(RsaKeyPair),
    EdDsa(Ed25519KeyPair),
}

impl Signer {
    /// From a key in PEM: PKCS#8, or the older forms of EC and RSA.
    pub fn from_pem(pem: &str) -> Result<Self, SignerFault> {
        let body: Zeroizing<String> = Zeroizing::new(
            pem.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect(),
        );
        let der = Zeroizing::new(STANDARD.decode(&*body).map_err(|_| SignerFault::Form)?);
        let (p256, p384) = (&ECDSA_P256_SHA256_FIXED_SIGNING, &ECDSA_P384_SHA384_FIXED_SIGNING);
        let key = EcdsaKeyPair::from_private_key_der(p256, &der)
            .map(Kind::Es256)
            .or_else(|_| EcdsaKeyPair::from_private_key_der(p384, &der).map(Kind::Es384))
            .or_else(|_| Ed25519KeyPair::from_pkcs8(&der).map(Kind::EdDsa))
            .or_else(|_| RsaKeyPair::from_pkcs8(&der).map(Kind::Rs256))
            .or_else(|_| RsaKeyPair::from_der(&der).map(Kind::Rs256));
        Ok(Self { key: key.map_err(|_| SignerFault::Form)?, id: None })
    }

    /// The key that comes from a secret: always the same from the same one.
    pub fn derived(secret: &SecretBox<[u8; 32]>) -> Result<Self, SignerFault> {
        let expand = Hkdf::<Sha256>::new(None, secret.expose_secret());
        for draw in 0..DRAWS {
            let mut scalar = Zeroizing::new([0; 32]);
            let label = [b"hangu identity P-256".as_slice(), &[draw]].concat();
            expand.expand(&label, &mut *scalar).map_err(|_| SignerFault::Failed)?;
            let der = Zeroizing::new([&EC_BEFORE[..], &*scalar, &EC_AFTER].concat());
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            if let Ok(key) = EcdsaKeyPair::from_private_key_der(algorithm, &der) {
                let mut signer = Self { key: Kind::Es256(key), id: None };
                signer.id = signer.thumbprint();
                return Ok(signer);
            }
        }
        Err(SignerFault::Failed)
    }

    /// The public half, for a key that comes from the keyring.
    pub fn jwk(&self) -> Option<Value> {
        let (x, y) = self.point()?;
        let id = self.id.as_deref()?;
        Some(json!({
            "kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": id, "use": "sig", "alg": "ES256",
        }))
    }

    /// A JWT of these claims.
    pub fn sign(&self, kind: &str, claims: &Value) -> Result<String, SignerFault> {
        let mut header = json!({ "typ": kind, "alg": self.algorithm() });
        if let Some(id) = &self.id {
            header["kid"] = id.as_str().into();
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut token = format!("{}.{}", part(&header), part(claims));
        let random = SystemRandom::new();
        let failed = |_| SignerFault::Failed;
        let text = token.as_bytes();
        let signature = match &self.key {
            Kind::Es256(key) | Kind::Es384(key) => {
                key.sign(&random, text).map_err(failed)?.as_ref().to_vec()
            }
            Kind::EdDsa(key) => key.sign(text).as_ref().to_vec(),
            Kind::Rs256(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text, &mut signature).map_err(failed)?;
                signature
            }
        };
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    fn algorithm(&self) -> &'static str {
        match &self.key {
            Kind::Es256(_) => "ES256",
            Kind::Es384(_) => "ES384",
            Kind::Rs256(_) => "RS256",
            Kind::EdDsa(_) => "EdDSA",
        }
    }

    /// The coordinates of a P-256 key's public half.
    fn point(&self) -> Option<(String, String)> {
        let Kind::Es256(key) = &self.key else { return None };
        let point = key.public_key().as_ref();
        let (x, y) = (point.get(1..33)?, point.get(33..65)?);
        Some((URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y)))
    }

    /// RFC 7638.
    fn thumbprint(&self) -> Option<String> {
        let (x, y) = self.point()?;
        let text = format!("{{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"{x}\",\"y\":\"{y}\"}}");
        Some(URL_SAFE_NO_PAD.encode(Sha256::digest(text)))
    }
}

/// Without the key.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({}, {:?})", self.algorithm(), self.id)
    }
}

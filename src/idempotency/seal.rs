//! Answers as they are kept outside the process: sealed with AES-256-GCM.
//!
//! Each answer has a key of its own, derived from the secret and a random salt, so a key seals
//! once and nonces cannot meet. A sealed answer names the secret it was sealed under by its id and
//! is opened by no other; it is bound to its scope, so moved to another record it does not open.

use std::{ops::Range, sync::Arc};

use aes_gcm::{Aes256Gcm, Key, KeyInit, Nonce, Tag, aead::AeadInOut};
use arc_swap::ArcSwap;
use bytes::Bytes;
use hkdf::Hkdf;
use secrecy::{ExposeSecret, SecretBox};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use smallvec::SmallVec;
use zeroize::Zeroizing;

use super::Stored;
use crate::{
    mcp::meta,
    model::{
        keys::{KeySecret, KeySecrets},
        reply::{ModernKind, ModernMember, ResultBody, RpcError, Shape},
    },
};

/// The layout of what is sealed.
const FORMAT: u8 = 1;
/// AES-256-GCM under a key derived for the one record.
const ALGORITHM: u8 = 1;

const ID: usize = 4;
const SALT: usize = 16;
const NONCE: usize = 12;
const TAG: usize = 16;
const HEAD: usize = 2 + ID + SALT + NONCE;

/// Seals and opens kept answers.
pub struct Bodies {
    /// The primary key, which seals, and after it the others, which only open.
    keys: ArcSwap<Vec<BodyKey>>,
}

struct BodyKey {
    key: SecretBox<[u8; 32]>,
    id: [u8; ID],
}

/// What has to be known of an answer beside its bytes, which follow.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Head {
    Result {
        members: usize,
        is_error: Option<bool>,
        meta: Option<Range<usize>>,
        meta_empty: bool,
        server_info: bool,
        has_type: bool,
        complete: bool,
        asks: bool,
        structured: Option<bool>,
        ttl_ms: u32,
        /// Kind, start, end, leading.
        modern: Vec<(u8, u32, u32, bool)>,
        /// Which tool ran instead, as JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        degraded: Option<String>,
    },
    Error {
        code: i64,
        /// Where the message ends, and the data begins if there is any.
        message: usize,
        data: bool,
    },
    NotKept {
        sha256: [u8; 32],
        bytes: usize,
        is_error: bool,
    },
}

// === impl Bodies ===

impl Bodies {
    /// For everybody who has the same secrets.
    pub fn new(secrets: &KeySecrets) -> Self {
        Self { keys: ArcSwap::from_pointee(BodyKey::all(secrets)) }
    }

    /// For this process alone: what it seals nobody opens after it.
    pub fn random() -> Self {
        Self::new(&KeySecrets::random())
    }

    pub(super) fn rekey(&self, secrets: &KeySecrets) {
        self.keys.store(Arc::new(BodyKey::all(secrets)));
    }

    pub(super) fn seal(&self, scope: &[u8; 32], stored: &Stored) -> Vec<u8> {
        let keys = self.keys.load();
        // There always is one; what is not sealed is not kept.
        let Some(key) = keys.first() else { return Vec::new() };
        let (head, parts) = encode(stored);
        // Numbers, flags and ranges: there is nothing in it that JSON cannot say.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let body: usize = parts.iter().map(|part| part.len()).sum();
        let mut sealed = Vec::with_capacity(HEAD + 4 + head.len() + body + TAG);
        sealed.extend_from_slice(&[FORMAT, ALGORITHM]);
        sealed.extend_from_slice(&key.id);
        let mut random = [0; SALT + NONCE];
        rand::fill(&mut random);
        sealed.extend_from_slice(&random);
        sealed.extend_from_slice(&u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes());
        sealed.extend_from_slice(&head);
        parts.iter().for_each(|part| sealed.extend_from_slice(part));
        let (start, plain) = sealed.split_at_mut(HEAD);
        let (cipher, nonce) = key.cipher(start);
        let tag = cipher.encrypt_inout_detached(&nonce, &context(start, scope), plain.into());
        match tag {
            Ok(tag) => sealed.extend_from_slice(&tag),
            // Only beyond 64 GiB; what is not sealed is not kept.
            Err(_) => sealed.clear(),
        }
        sealed
    }

    /// The answer; `None` if it was sealed under another secret, for another record, or is no
    /// longer what was sealed.
    pub(super) fn open(&self, scope: &[u8; 32], sealed: &[u8]) -> Option<Stored> {
        let (start, rest) = sealed.split_at_checked(HEAD)?;
        let id = start.strip_prefix(&[FORMAT, ALGORITHM])?.get(..ID)?;
        let keys = self.keys.load();
        let key = keys.iter().find(|key| key.id == id)?;
        let (body, tag) = rest.split_at_checked(rest.len().checked_sub(TAG)?)?;
        let tag: [u8; TAG] = tag.try_into().ok()?;
        let mut plain = body.to_vec();
        let (cipher, nonce) = key.cipher(start);
        cipher
            .decrypt_inout_detached(
                &nonce,
                &context(start, scope),
                plain.as_mut_slice().into(),
                &Tag::from(tag),
            )
            .ok()?;
        decode(Bytes::from(plain))
    }
}

impl std::fmt::Debug for Bodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bodies").finish_non_exhaustive()
    }
}

// === impl BodyKey ===

impl BodyKey {
    fn all(secrets: &KeySecrets) -> Vec<Self> {
        let derived = secrets.all().map(|KeySecret { id, secret }| {
            let mut key = Zeroizing::new([0; 32]);
            derive(secret.expose_secret(), b"hangu replay answers", b"aes-256-gcm", key.as_mut());
            Self { key: SecretBox::new(Box::new(*key)), id: id.to_be_bytes() }
        });
        derived.collect()
    }

    /// The cipher of one record, by the salt and nonce in its head.
    fn cipher(&self, start: &[u8]) -> (Aes256Gcm, Nonce<aes_gcm::aead::consts::U12>) {
        let random = start.get(2 + ID..).unwrap_or_default();
        let (salt, nonce) = random.split_at(SALT.min(random.len()));
        let mut key = Zeroizing::new([0; 32]);
        derive(self.key.expose_secret(), salt, b"hangu replay record", key.as_mut());
        let nonce: [u8; NONCE] = nonce.try_into().unwrap_or_default();
        (Aes256Gcm::new(&Key::<Aes256Gcm>::from(*key)), nonce.into())
    }
}

fn derive(secret: &[u8; 32], salt: &[u8], info: &[u8], to: &mut [u8]) {
    // Fails for keys of more than 255 hashes only.
    let expanded = Hkdf::<Sha256>::new(Some(salt), secret).expand(info, to);
    debug_assert!(expanded.is_ok());
}

/// What is authenticated beside the answer: how it is sealed, what it is, and whose.
fn context(start: &[u8], scope: &[u8; 32]) -> Vec<u8> {
    [start, b"replay", scope].concat()
}

// === The layout ===

fn encode(stored: &Stored) -> (Head, [&[u8]; 2]) {
    match stored {
        Stored::Result(ResultBody { raw, shape, added_meta, .. }) => {
            let degraded = added_meta.iter().find(|(key, _)| *key == meta::DEGRADED);
            let head = Head::Result {
                members: shape.members,
                is_error: shape.is_error,
                meta: shape.meta.clone(),
                meta_empty: shape.meta_empty,
                server_info: shape.server_info,
                has_type: shape.has_type,
                complete: shape.complete,
                asks: shape.asks,
                structured: shape.structured,
                ttl_ms: shape.ttl_ms,
                modern: shape
                    .modern
                    .iter()
                    .map(|m| (kind(m.kind), m.start, m.end, m.leading))
                    .collect(),
                degraded: degraded.and_then(|(_, json)| String::from_utf8(json.to_vec()).ok()),
            };
            (head, [raw, &[]])
        }
        Stored::Error(RpcError { code, message, data }) => {
            let head = Head::Error { code: *code, message: message.len(), data: data.is_some() };
            (head, [message, data.as_deref().unwrap_or_default()])
        }
        Stored::NotKept { sha256, bytes, is_error } => {
            (Head::NotKept { sha256: *sha256, bytes: *bytes, is_error: *is_error }, [&[], &[]])
        }
        // Never sealed again: it is what opening failed to give.
        Stored::Unreadable => {
            (Head::NotKept { sha256: [0; 32], bytes: 0, is_error: false }, [&[], &[]])
        }
    }
}

/// Written out, since later versions have to read it.
fn kind(kind: ModernKind) -> u8 {
    match kind {
        ModernKind::Type => 0,
        ModernKind::Ttl => 1,
        ModernKind::Scope => 2,
    }
}

fn kind_of(byte: u8) -> Option<ModernKind> {
    [ModernKind::Type, ModernKind::Ttl, ModernKind::Scope].into_iter().find(|it| kind(*it) == byte)
}

fn decode(plain: Bytes) -> Option<Stored> {
    let (len, _) = plain.split_first_chunk::<4>()?;
    let end = usize::try_from(u32::from_be_bytes(*len)).ok()?.checked_add(4)?;
    let head: Head = serde_json::from_slice(plain.get(4..end)?).ok()?;
    let raw = plain.slice(end..);
    let within = |span: &Range<usize>| span.start <= span.end && span.end <= raw.len();
    Some(match head {
        Head::Result {
            members,
            is_error,
            meta,
            meta_empty,
            server_info,
            has_type,
            complete,
            asks,
            structured,
            ttl_ms,
            modern,
            degraded,
        } => {
            let modern = modern.into_iter().map(|(of, start, end, leading)| {
                Some(ModernMember { kind: kind_of(of)?, leading, start, end })
            });
            let modern: SmallVec<[ModernMember; 3]> = modern.collect::<Option<_>>()?;
            let mut spans = modern.iter().map(ModernMember::span).chain(meta.clone());
            if !spans.all(|span| within(&span)) {
                return None;
            }
            let shape = Shape {
                members,
                is_error,
                meta,
                meta_empty,
                server_info,
                has_type,
                complete,
                asks,
                structured,
                ttl_ms,
                modern,
            };
            let mut body = ResultBody::upstream(raw, shape);
            body.added_meta.extend(degraded.map(|json| (meta::DEGRADED, json.into())));
            Stored::Result(body)
        }
        Head::Error { code, message, data } if message <= raw.len() => Stored::Error(RpcError {
            code,
            message: raw.slice(..message),
            data: data.then(|| raw.slice(message..)),
        }),
        Head::Error { .. } => return None,
        Head::NotKept { sha256, bytes, is_error } => Stored::NotKept { sha256, bytes, is_error },
    })
}

#[cfg(test)]
mod tests {
    use base64::{Engine, engine::general_purpose::STANDARD};

    use super::*;
    use crate::model::ids::from_hex;

    fn bodies(byte: u8) -> Bodies {
        Bodies::new(&KeySecrets::one(SecretBox::new(Box::new([byte; 32]))))
    }

    fn answers() -> Vec<Stored> {
        let shape = Shape {
            members: 3,
            is_error: Some(true),
            meta: Some(2..5),
            has_type: true,
            complete: true,
            modern: [ModernMember { kind: ModernKind::Ttl, leading: true, start: 0, end: 4 }]
                .into_iter()
                .collect(),
            ..Shape::default()
        };
        let raw = Bytes::from_static(br#"{"n":1.0,"content":[]}"#);
        let error = |data: Option<&'static [u8]>| RpcError {
            code: -32_602,
            message: Bytes::from_static(b"\"no\""),
            data: data.map(Bytes::from_static),
        };
        vec![
            Stored::Result(ResultBody::upstream(raw, shape)),
            Stored::Result(ResultBody::upstream(Bytes::new(), Shape::default())),
            Stored::Error(error(None)),
            Stored::Error(error(Some(b"[1]"))),
            Stored::NotKept { sha256: [7; 32], bytes: 300_000, is_error: true },
        ]
    }

    #[test]
    fn what_was_sealed_opens_with_the_same_secret_alone() {
        for stored in answers() {
            let sealed = bodies(1).seal(&[9; 32], &stored);
            let opened = bodies(1).open(&[9; 32], &sealed).unwrap();
            assert_eq!(format!("{opened:?}"), format!("{stored:?}"));
            assert!(bodies(2).open(&[9; 32], &sealed).is_none(), "another secret");
            assert!(bodies(1).open(&[8; 32], &sealed).is_none(), "another record");
            assert!(Bodies::random().open(&[9; 32], &sealed).is_none());
        }
    }

    #[test]
    fn what_a_former_key_sealed_opens_until_it_goes() {
        let key = |id, byte| KeySecret { id, secret: SecretBox::new(Box::new([byte; 32])) };
        let bodies = Bodies::new(&KeySecrets { primary: key(1, 1), others: Vec::new() });
        let stored = &answers()[0];
        let old = bodies.seal(&[9; 32], stored);
        bodies.rekey(&KeySecrets { primary: key(2, 2), others: vec![key(1, 1)] });
        let new = bodies.seal(&[9; 32], stored);
        assert_eq!((&old[2..6], &new[2..6]), (&[0, 0, 0, 1][..], &[0, 0, 0, 2][..]));
        assert!(bodies.open(&[9; 32], &old).is_some());
        bodies.rekey(&KeySecrets { primary: key(2, 2), others: Vec::new() });
        assert!(bodies.open(&[9; 32], &old).is_none());
        assert!(bodies.open(&[9; 32], &new).is_some());
    }

    #[derive(Deserialize)]
    struct Vectors {
        vectors: Vec<Vector>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Vector {
        name: String,
        key_id: u32,
        secret: String,
        scope: String,
        head: String,
        body: String,
        sealed: String,
    }

    /// The file is never made anew, and nothing in it is changed. Where the form changes, the next
    /// version adds `answers-2.json` and reads both.
    #[test]
    fn answers_of_format_1_open_as_ever() {
        let text = include_str!("../../tests/fixtures/sealing/answers-1.json");
        let Vectors { vectors } = serde_json::from_str(text).unwrap();
        assert!(vectors.len() >= 6);
        for vector in vectors {
            let secret = SecretBox::new(Box::new(from_hex(&vector.secret).unwrap()));
            let primary = KeySecret { id: vector.key_id, secret };
            let bodies = Bodies::new(&KeySecrets { primary, others: Vec::new() });
            let sealed = STANDARD.decode(&vector.sealed).unwrap();
            let opened = bodies.open(&from_hex(&vector.scope).unwrap(), &sealed).unwrap();
            // What is written of it now is what was written then.
            let (head, parts) = encode(&opened);
            assert_eq!(serde_json::to_string(&head).unwrap(), vector.head, "{}", vector.name);
            assert_eq!(parts.concat(), vector.body.as_bytes(), "{}", vector.name);
        }
    }

    #[test]
    fn it_cannot_be_read_or_changed() {
        for stored in answers() {
            let sealed = bodies(1).seal(&[9; 32], &stored);
            assert!(!sealed.windows(7).any(|part| part == b"content"));
            assert_ne!(sealed, bodies(1).seal(&[9; 32], &stored), "the salt is new each time");
            for at in 0..sealed.len() {
                let mut changed = sealed.clone();
                changed[at] ^= 1;
                assert!(bodies(1).open(&[9; 32], &changed).is_none(), "{at}");
                assert!(bodies(1).open(&[9; 32], &sealed[..at]).is_none(), "{at}");
            }
        }
    }
}

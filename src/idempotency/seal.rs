//! Answers as they are kept outside the process: sealed, and bound to their scope, so moved to
//! another record they do not open. What is sealed is what has to be known of an answer, as JSON
//! behind its length, and then the answer's bytes.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::Stored;
use crate::{
    mcp::meta,
    model::{
        keys::KeySecrets,
        reply::{ModernKind, ModernMember, ResultBody, RpcError, Shape},
        sealed::{TextSeal, Use},
    },
};

const USE: Use =
    Use { purpose: b"hangu replay answers", text: b"hangu replay record", kind: b"replay" };

/// Seals and opens kept answers.
#[derive(Debug)]
pub struct Bodies(TextSeal);

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
        Self(TextSeal::new(USE, secrets))
    }

    /// For this process alone: what it seals nobody opens after it.
    pub fn random() -> Self {
        Self::new(&KeySecrets::random())
    }

    pub(super) fn rekey(&self, secrets: &KeySecrets) {
        self.0.rekey(secrets);
    }

    pub(super) fn seal(&self, scope: &[u8; 32], stored: &Stored) -> Vec<u8> {
        let (head, [first, second]) = encode(stored);
        // Numbers, flags and ranges: there is nothing in it that JSON cannot say.
        let head = serde_json::to_vec(&head).unwrap_or_default();
        let length = u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes();
        self.0.seal(&[scope], &[&length, &head, first, second])
    }

    /// The answer; `None` if it was sealed under another secret, for another record, or is no
    /// longer what was sealed.
    pub(super) fn open(&self, scope: &[u8; 32], sealed: &[u8]) -> Option<Stored> {
        decode(Bytes::from(self.0.open(&[scope], sealed)?))
    }
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
    use secrecy::SecretBox;

    use super::*;
    use crate::model::{ids::from_hex, keys::KeySecret};

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

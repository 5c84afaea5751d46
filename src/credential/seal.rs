//! The sealed form of a record: AES-256-GCM under a data key that is made for it and used once.
//!
//! ```text
//! magic 4 | format 1 | algorithm 1 | n 1 | key id n | m 2 | wrapped data key m | nonce 12 | text | tag 16
//! ```
//!
//! Authenticated with the text are magic, format, algorithm and what the record is (tenant, kind,
//! id, schema); with the wrapped data key the id of its key and what the record is. So a text that
//! was moved to another row does not open, and a data key can be wrapped anew without the text
//! being touched. Only the key that is named is asked: GCM does not commit to its key.

use aes_gcm::{Aes256Gcm, KeyInit, Nonce, Tag, aead::AeadInOut};
use secrecy::{ExposeSecret, SecretBox};
use zeroize::Zeroizing;

use super::{Context, DataKey, Kms, KmsFault, Wrapped};

/// Magic, format 1, and the algorithm: AES-256-GCM with a 96-bit nonce and a 128-bit tag.
const START: &[u8; 6] = b"HGSD\x01\x01";
const MAGIC: usize = 4;
const NONCE: usize = 12;
const TAG: usize = 16;

/// Why something was not sealed, or does not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealFault {
    #[error("it is not a sealed record")]
    Form,
    #[error("it was sealed by a newer version of Hangu")]
    Newer,
    /// It was changed, or belongs to another record.
    #[error("it is not what was sealed for this record")]
    Mismatch,
    #[error("{0}")]
    Kms(#[from] KmsFault),
}

/// Seals a text for a record.
pub fn seal(kms: &dyn Kms, context: &Context<'_>, text: &[u8]) -> Result<Vec<u8>, SealFault> {
    // `rand::fill` draws from a cryptographic generator.
    let key: DataKey = SecretBox::init_with_mut(|key: &mut [u8; 32]| rand::fill(key));
    let wrapped = kms.wrap(&key, context)?;
    let mut nonce = [0; NONCE];
    rand::fill(&mut nonce);
    let mut sealed = head(&wrapped)?;
    sealed.extend_from_slice(&nonce);
    let body = sealed.len();
    sealed.reserve_exact(text.len() + TAG);
    sealed.extend_from_slice(text);
    let tag = Aes256Gcm::new(&(*key.expose_secret()).into())
        .encrypt_inout_detached(
            &Nonce::from(nonce),
            &context.bytes(&[START]),
            sealed.get_mut(body..).unwrap_or_default().into(),
        )
        .map_err(|_| SealFault::Form)?;
    sealed.extend_from_slice(&tag);
    Ok(sealed)
}

/// The text that was sealed for this record.
pub fn open(
    kms: &dyn Kms,
    context: &Context<'_>,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, SealFault> {
    let Parts { wrapped, nonce, body, tag } = Parts::of(sealed)?;
    let key = kms.unwrap(&wrapped, context).map_err(|fault| match fault {
        KmsFault::Mismatch => SealFault::Mismatch,
        fault => SealFault::Kms(fault),
    })?;
    let mut text = Zeroizing::new(body.to_vec());
    Aes256Gcm::new(&(*key.expose_secret()).into())
        .decrypt_inout_detached(
            &Nonce::from(nonce),
            &context.bytes(&[START]),
            text.as_mut_slice().into(),
            &Tag::from(tag),
        )
        .map_err(|_| SealFault::Mismatch)?;
    Ok(text)
}

/// The same record with its data key wrapped by the key that wraps at present; `None` if it is so
/// already. The text is not opened.
pub fn rewrap(
    kms: &dyn Kms,
    context: &Context<'_>,
    sealed: &[u8],
) -> Result<Option<Vec<u8>>, SealFault> {
    let Parts { wrapped, nonce, body, tag } = Parts::of(sealed)?;
    if kms.key_id()? == wrapped.key {
        return Ok(None);
    }
    let key = kms.unwrap(&wrapped, context).map_err(|fault| match fault {
        KmsFault::Mismatch => SealFault::Mismatch,
        fault => SealFault::Kms(fault),
    })?;
    let mut anew = head(&kms.wrap(&key, context)?)?;
    for part in [&nonce[..], body, &tag] {
        anew.extend_from_slice(part);
    }
    Ok(Some(anew))
}

/// The id of the key that a record is sealed under.
pub fn key_of(sealed: &[u8]) -> Result<String, SealFault> {
    Parts::of(sealed).map(|parts| parts.wrapped.key)
}

fn head(wrapped: &Wrapped) -> Result<Vec<u8>, SealFault> {
    let id = u8::try_from(wrapped.key.len()).map_err(|_| SealFault::Form)?;
    let len = u16::try_from(wrapped.bytes.len()).map_err(|_| SealFault::Form)?;
    let mut head = START.to_vec();
    head.push(id);
    head.extend_from_slice(wrapped.key.as_bytes());
    head.extend_from_slice(&len.to_be_bytes());
    head.extend_from_slice(&wrapped.bytes);
    Ok(head)
}

struct Parts<'a> {
    wrapped: Wrapped,
    nonce: [u8; NONCE],
    body: &'a [u8],
    tag: [u8; TAG],
}

impl<'a> Parts<'a> {
    fn of(sealed: &'a [u8]) -> Result<Self, SealFault> {
        let Some(rest) = sealed.strip_prefix(START) else {
            let ours = sealed.get(..MAGIC) == START.get(..MAGIC) && sealed.len() > START.len();
            return Err(if ours { SealFault::Newer } else { SealFault::Form });
        };
        Self::split(rest).ok_or(SealFault::Form)
    }

    fn split(rest: &'a [u8]) -> Option<Self> {
        let ([id], rest) = rest.split_first_chunk()?;
        let (id, rest) = rest.split_at_checked(usize::from(*id))?;
        let (len, rest) = rest.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (body, tag) = rest.split_last_chunk()?;
        let key = String::from_utf8(id.to_vec()).ok()?;
        let wrapped = Wrapped { key, bytes: bytes.to_vec() };
        Some(Self { wrapped, nonce: *nonce, body, tag: *tag })
    }
}

//! The hash chain: numbers a line, names the one before it, and seals it.
//!
//! `hash = SHA-256("hangu.audit.v1" ‖ prev ‖ canonical record without hash)`, `prev` as 32 bytes.

use sha2::{Digest, Sha256};

use super::record::Layout;
use crate::model::ids::hex;

pub(super) type Hash = [u8; 32];

/// A chain, as far as it has come.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    /// Everything of the `chain` member that stays the same, between the hash and the former one.
    middle: String,
    /// Of the last record; of the first one's predecessor, zero where there is none.
    pub head: Hash,
    /// Of the last record.
    pub seq: u64,
}

impl Chain {
    /// A chain whose first record names `previous`. The instance must be free of characters that
    /// JSON escapes.
    pub fn new(instance: &str, number: u64, previous: Hash) -> Self {
        let middle = format!("\"id\":\"{instance}/{number}\",\"prev\":\"");
        Self { middle, head: previous, seq: 0 }
    }

    /// Completes a line, appends it with its end of line, and moves the chain on.
    pub fn seal(&mut self, line: &[u8], layout: Layout, out: &mut Vec<u8>) {
        let begin = out.len();
        let (front, rest) = line.split_at(layout.chain_at);
        let (middle, back) = rest.split_at(layout.seq_at - layout.chain_at);
        let first = front == b"{";
        out.extend_from_slice(front);
        out.extend_from_slice(if first { b"\"chain\":{" } else { b",\"chain\":{" });
        let hash_at = out.len();
        out.extend_from_slice(b"\"hash\":\"");
        let digits_at = out.len();
        out.extend_from_slice(&[0; 64]);
        out.extend_from_slice(b"\",");
        let hash_end = out.len();
        out.extend_from_slice(self.middle.as_bytes());
        out.extend_from_slice(&hex::<32, 64>(self.head));
        out.extend_from_slice(if first { b"\"}," } else { b"\"}" });
        out.extend_from_slice(middle);
        out.extend_from_slice(b",\"seq\":");
        self.seq += 1;
        out.extend_from_slice(itoa::Buffer::new().format(self.seq).as_bytes());
        out.extend_from_slice(back);

        let mut hasher = Sha256::new();
        hasher.update(b"hangu.audit.v1");
        hasher.update(self.head);
        hasher.update(&out[begin..hash_at]);
        hasher.update(&out[hash_end..]);
        self.head = hasher.finalize().into();
        out[digits_at..digits_at + 64].copy_from_slice(&hex::<32, 64>(self.head));
        out.push(b'\n');
    }
}

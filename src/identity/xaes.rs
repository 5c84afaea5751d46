//! XAES-256-GCM (<https://c2sp.org/XAES-256-GCM>): AES-256-GCM with a nonce of 192 bits.
//!
//! Half of the nonce makes a key (the counter form of NIST SP 800-108r1, with CMAC), which the
//! other half is used with. Random nonces are good for 2^80 texts under one key, so nobody has to
//! count them, over restarts and replicas that share a key.

use aes_gcm::{
    Aes256Gcm, KeyInit, Nonce, Tag,
    aead::AeadInOut,
    aes::{Aes256, Block, cipher::BlockCipherEncrypt},
};
use zeroize::{Zeroize, Zeroizing};

pub(super) const NONCE: usize = 24;
pub(super) const TAG: usize = 16;

/// A key, ready to make further ones.
pub(super) struct XAes {
    cipher: Aes256,
    /// The first subkey of CMAC.
    subkey: Zeroizing<[u8; 16]>,
}

/// It does not open, or is beyond 64 GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failed;

impl XAes {
    pub fn new(key: &[u8; 32]) -> Self {
        let cipher = Aes256::new(&(*key).into());
        let mut block = Block::default();
        cipher.encrypt_block(&mut block);
        let number = u128::from_be_bytes(block.into());
        // A shift in GF(2^128); both ways take the same time.
        let doubled = (number << 1) ^ ((number >> 127) * 0x87);
        block.zeroize();
        Self { cipher, subkey: Zeroizing::new(doubled.to_be_bytes()) }
    }

    /// Seals in place; the tag.
    pub fn seal(
        &self,
        nonce: &[u8; NONCE],
        context: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG], Failed> {
        let (cipher, nonce) = self.derived(nonce);
        let tag = cipher.encrypt_inout_detached(&nonce, context, text.into());
        Ok(tag.map_err(|_| Failed)?.into())
    }

    /// Opens in place.
    pub fn open(
        &self,
        nonce: &[u8; NONCE],
        context: &[u8],
        text: &mut [u8],
        tag: [u8; TAG],
    ) -> Result<(), Failed> {
        let (cipher, nonce) = self.derived(nonce);
        let opened = cipher.decrypt_inout_detached(&nonce, context, text.into(), &Tag::from(tag));
        opened.map_err(|_| Failed)
    }

    fn derived(&self, nonce: &[u8; NONCE]) -> (Aes256Gcm, Nonce<aes_gcm::aead::consts::U12>) {
        let (mut first, mut second) = ([0; 12], [0; 12]);
        first.copy_from_slice(&nonce[..12]);
        second.copy_from_slice(&nonce[12..]);
        let mut key = Zeroizing::new([0; 32]);
        for (counter, half) in (1_u8..).zip(key.chunks_exact_mut(16)) {
            let mut block = [0, counter, b'X', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            block[4..].copy_from_slice(&first);
            block.iter_mut().zip(self.subkey.iter()).for_each(|(byte, sub)| *byte ^= sub);
            let mut block = Block::from(block);
            self.cipher.encrypt_block(&mut block);
            half.copy_from_slice(&block);
            block.zeroize();
        }
        (Aes256Gcm::new(&(*key).into()), second.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The vectors of the specification: with either value of the bit that the shift loses.
    #[test]
    fn it_is_the_published_algorithm() {
        for (key, context, sealed) in [
            (1, &b""[..], "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
            (
                3,
                b"c2sp.org/XAES-256-GCM",
                "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d",
            ),
        ] {
            let xaes = XAes::new(&[key; 32]);
            let nonce = *b"ABCDEFGHIJKLMNOPQRSTUVWX";
            let mut text = *b"XAES-256-GCM";
            let tag = xaes.seal(&nonce, context, &mut text).unwrap();
            assert_eq!(hex(&text) + &hex(&tag), sealed);
            assert_eq!(xaes.open(&nonce, b"other", &mut text.clone(), tag), Err(Failed));
            xaes.open(&nonce, context, &mut text, tag).unwrap();
            assert_eq!(&text, b"XAES-256-GCM");
        }
    }
}

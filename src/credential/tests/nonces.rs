//! Every sealing draws a nonce of its own, of the text and of the wrapped key (C79).

use std::collections::HashSet;

use super::*;

/// Of `sealed`: nonce of the wrapped key, nonce of the text, and the text as it is stored.
fn parts(sealed: &[u8]) -> (&[u8], &[u8], &[u8]) {
    // magic 4 | format 1 | algorithm 1 | n 1 | key id n | m 2 | wrapped m | nonce 12 | text | tag 16
    let id = usize::from(sealed[6]);
    let wrapped = 7 + id + 2;
    let length = u16::from_be_bytes([sealed[7 + id], sealed[8 + id]]);
    let nonce = wrapped + usize::from(length);
    (&sealed[wrapped..wrapped + 12], &sealed[nonce..nonce + 12], &sealed[nonce + 12..])
}

#[test]
fn no_nonce_and_no_sealed_text_comes_twice() {
    let place = Place::new();
    let credential = Credential::Bearer("planted-token".into());
    let own = whose("acme", "E1001", "mcp_orders_7f3a2c91");
    let mut all = Vec::new();
    let mut seal = |kms: &dyn Kms, times: usize| {
        for _ in 0..times {
            all.push(credential.seal(kms, &own).unwrap());
        }
    };
    // The same value many times, and the same record over and over.
    seal(&*place.kms(), 1_000);
    seal(&*place.kms(), 2);
    // Another process with the same keyring.
    let again = keeper(place.folder.path());
    seal(&*again.kms(Arc::new(again.open().unwrap())), 10);
    let (mut nonces, mut texts) = (HashSet::new(), HashSet::new());
    for sealed in &all {
        let (wrapping, nonce, text) = parts(sealed);
        assert!(nonces.insert(wrapping) && nonces.insert(nonce));
        assert!(texts.insert(text));
        assert!(!sealed.windows(7).any(|part| part == b"planted"));
        assert_eq!(
            shown(&Credential::open(&*place.kms(), &own, sealed).unwrap()),
            "bearer planted-token"
        );
    }
    assert_eq!((nonces.len(), texts.len()), (2 * all.len(), all.len()));
}

//! The admin listener as it is meant: tokens opened and hashed, no two alike.

use std::{collections::HashMap, net::SocketAddr};

use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use super::{
    Admin, AdminToken,
    raw::{AdminRole, RawAdmin, RawToken},
    secret::Vault,
};
use crate::fault::{FaultCode, Faults, Span};

/// The shortest token, in bytes: who guesses has all the time there is.
const MIN_TOKEN: usize = 16;

/// The longest: it has to fit into a header.
const MAX_TOKEN: usize = 512;

/// What records call `admin.token`.
const ALONE: &str = "admin";

pub(super) fn build(
    raw: RawAdmin,
    listen: SocketAddr,
    vault: Vault<'_>,
    faults: &mut Faults,
) -> Admin {
    let alone = raw.token.map(|token| (ALONE.to_owned(), token, AdminRole::All));
    let named = raw.tokens.into_iter().map(|one| (one.name.value, one.token, one.role));
    let mut seen: HashMap<[u8; 32], Span> = HashMap::new();
    let mut tokens = Vec::new();
    for (name, token, role) in alone.into_iter().chain(named) {
        let Some(digest) = digest(&token, vault, faults) else { continue };
        if let Some(first) = seen.insert(digest, token.at.clone()) {
            let message = format!("the token of `{name}` is another one's too");
            let fault = faults.add(FaultCode::SharedKey, &token.at, message);
            fault.relate(&first, "here the first time");
        }
        tokens.push(AdminToken { name: name.into(), digest, role });
    }
    Admin { listen, tokens }
}

fn digest(token: &RawToken, vault: Vault<'_>, faults: &mut Faults) -> Option<[u8; 32]> {
    let secret = vault.open(&token.secret, &token.at, faults)?;
    let text = secret.expose_secret();
    let fits = (MIN_TOKEN..=MAX_TOKEN).contains(&text.len());
    if !fits || !text.bytes().all(|b| b.is_ascii_graphic()) {
        let message = format!(
            "an admin token is {MIN_TOKEN} to {MAX_TOKEN} visible ASCII characters without spaces"
        );
        faults.add(FaultCode::BadValue, &token.at, message);
        return None;
    }
    Some(Sha256::digest(text).into())
}

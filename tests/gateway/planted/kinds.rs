//! The secrets that are planted: one of each kind that there is, each of which is found again by
//! its letters.

use sha2::{Digest, Sha256};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Forty letters and digits that are nobody else's.
pub fn plain(name: &str) -> String {
    let mut letters = String::new();
    for round in 0_u8.. {
        for byte in Sha256::digest([name.as_bytes(), &[round]].concat()) {
            // As many of each: a byte that is too large is none.
            if byte < 248 && letters.len() < 40 {
                letters.push(char::from(LETTERS[usize::from(byte % 62)]));
            }
        }
        if letters.len() == 40 {
            break;
        }
    }
    letters
}

/// The same with what each way of writing it down escapes in another manner, all of it good in
/// a header.
pub fn odd(name: &str) -> String {
    let letters = plain(name);
    let parts = [&letters[..10], &letters[10..20], &letters[20..30], &letters[30..]];
    format!("{}\"\\{}&<% +/{}'=;,{}", parts[0], parts[1], parts[2], parts[3])
}

/// Secrets of which only letters are good where they stand.
const PLAIN: [&str; 18] = [
    "the caller's key",
    "the caller's key from a file",
    "a key that has expired",
    "a key that nobody has",
    "a client's cookie",
    "a token that is none",
    "a word in a broken body",
    "the admin token",
    "the security token",
    "an admin token that nobody has",
    "an employee's token",
    "a token that the server refuses",
    "the gateway's client secret",
    "an owner's client secret",
    "a server's session",
    "the collector's token",
    "a password in an address",
    "a token in an address",
];

/// All others.
const ODD: [&str; 16] = [
    "the header of an upstream",
    "the header of an upstream from a file",
    "a named secret",
    "a named secret of before",
    "a named secret that was refused",
    "an employee's password",
    "an employee's header",
    "a sealed header of options",
    "the variable of a process",
    "an argument",
    "an argument that waits for a yes",
    "an argument under a key",
    "an argument of a dry run",
    "an argument of a prompt",
    "the context of a run",
    "result",
];

/// What stands in answers of the authorization servers of tests.
const GRANTED: [&str; 4] =
    ["planted-token-", "planted-refresh-", "planted-code-", "planted-client"];

/// A secret by its kind.
pub fn secret(kind: &str) -> String {
    match PLAIN.contains(&kind) {
        true => plain(kind),
        false => {
            assert!(ODD.contains(&kind), "{kind} is no kind");
            odd(kind)
        }
    }
}

/// Looks for all of them.
pub fn search() -> super::Search {
    let mut search = super::Search::default();
    for kind in PLAIN.iter().chain(&ODD) {
        search.add(kind, secret(kind).as_bytes());
    }
    for kind in GRANTED {
        search.add(kind, kind.as_bytes());
    }
    search
}

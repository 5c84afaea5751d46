//! Who may ask: tokens by their digests, the roles behind them, and how often an address may be
//! wrong. Whoever is right is always let in: somebody who is wrong on purpose keeps nobody out.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use http::HeaderValue;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::Failure;
use crate::error::Code;

/// Wrong tokens of one address within `WINDOW`; after that only a right one is listened to until it
/// is over.
const MAX_WRONG: u32 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Addresses that are remembered. Beyond that, whoever is new shares one count.
const MAX_ADDRESSES: usize = 1024;

/// A token of the configuration.
#[derive(Clone)]
pub struct Token {
    pub name: Arc<str>,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    pub role: Role,
}

/// What somebody with a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Looks.
    Viewer,
    /// Looks, reloads, drains, turns the log up.
    Operator,
    /// Looks, approves definitions of tools, and says no to calls that wait; they are approved by
    /// employees under their own identity.
    Approver,
    /// The same, sets secrets, takes credentials away and takes what is stored along to another
    /// key.
    Security,
    /// Everything: the one token of `admin.token`.
    All,
}

/// What a route asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Look,
    Operate,
    /// Of definitions of tools; and saying no to calls.
    Approve,
    /// Secrets, credentials and keys.
    Secure,
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Missing,
    Wrong,
    TooOften(Duration),
}

pub(super) struct Tokens {
    tokens: Vec<Token>,
    wrong: Mutex<HashMap<IpAddr, Wrong>>,
}

#[derive(Clone, Copy)]
struct Wrong {
    count: u32,
    since: Instant,
}

// === impl Role ===

impl Role {
    /// Those that a token is given by its name.
    pub(super) const NAMED: [Role; 4] =
        [Role::Viewer, Role::Operator, Role::Approver, Role::Security];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Approver => "approver",
            Role::Security => "security",
            Role::All => "admin",
        }
    }

    pub(super) fn may(self, need: Need) -> bool {
        match need {
            Need::Look => true,
            Need::Operate => matches!(self, Role::Operator | Role::All),
            Need::Secure => matches!(self, Role::Security | Role::All),
            Need::Approve => matches!(self, Role::Approver | Role::Security | Role::All),
        }
    }
}

// === impl Need ===

impl Need {
    /// Whether it gives or takes rights.
    pub fn is_guarded(self) -> bool {
        matches!(self, Need::Approve | Need::Secure)
    }
}

// === impl Tokens ===

impl Tokens {
    pub fn new(tokens: Vec<Token>) -> Self {
        Self { tokens, wrong: Mutex::default() }
    }

    /// The token that is presented.
    ///
    /// Digests are compared, all of them and each in constant time: how long it takes tells
    /// nothing of any token.
    pub fn check(&self, presented: Option<&HeaderValue>, from: IpAddr) -> Result<&Token, Refused> {
        let Some(presented) = presented else { return Err(Refused::Missing) };
        let token = presented.as_bytes();
        let bearer = token.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
        let digest: [u8; 32] = Sha256::digest(token.get(7..).unwrap_or_default()).into();
        let mut found = None;
        for token in &self.tokens {
            if bool::from(token.digest.ct_eq(&digest)) {
                found = Some(token);
            }
        }
        found.filter(|_| bearer.is_some()).ok_or_else(|| match self.shut(from) {
            Some(wait) => Refused::TooOften(wait),
            None => {
                self.count(from);
                Refused::Wrong
            }
        })
    }

    /// For how long no wrong token of an address is answered yet.
    fn shut(&self, from: IpAddr) -> Option<Duration> {
        let wrong = self.wrong.lock();
        let known = wrong.get(&from).or_else(|| wrong.get(&OTHERS))?;
        let left = WINDOW.saturating_sub(known.since.elapsed());
        (known.count >= MAX_WRONG && !left.is_zero()).then_some(left)
    }

    fn count(&self, from: IpAddr) {
        let mut wrong = self.wrong.lock();
        if wrong.len() >= MAX_ADDRESSES {
            wrong.retain(|_, known| known.since.elapsed() < WINDOW);
        }
        let full = wrong.len() >= MAX_ADDRESSES && !wrong.contains_key(&from);
        let key = if full { OTHERS } else { from };
        let now = Instant::now();
        let known = wrong.entry(key).or_insert(Wrong { count: 0, since: now });
        if known.since.elapsed() >= WINDOW {
            *known = Wrong { count: 0, since: now };
        }
        known.count += 1;
    }
}

/// Stands for all addresses that there is no room for; nobody connects from it.
const OTHERS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);

// === impl Refused ===

impl Refused {
    pub fn failure(self) -> Failure {
        match self {
            Refused::Missing => Failure::new(
                Code::Unauthenticated,
                "the header Authorization with a Bearer token is missing",
            ),
            Refused::Wrong => Failure::new(Code::Unauthenticated, "the token is not valid"),
            Refused::TooOften(wait) => Failure {
                retry_after: Some(wait),
                ..Failure::new(Code::RateLimited, "too many wrong tokens from this address")
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(tokens: &Tokens, token: &'static str, from: [u8; 4]) -> Result<Arc<str>, Refused> {
        let presented = HeaderValue::from_static(token);
        tokens.check(Some(&presented), from.into()).map(|token| token.name.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_was_wrong_too_often_is_told_so_until_its_time_is_over() {
        let digest = Sha256::digest("good").into();
        let tokens = Tokens::new(vec![Token { name: "ops".into(), digest, role: Role::All }]);
        assert_eq!(check(&tokens, "bearer good", [10, 0, 0, 1]).as_deref(), Ok("ops"));
        assert_eq!(check(&tokens, "Basic good", [10, 0, 0, 2]), Err(Refused::Wrong));
        for _ in 0..MAX_WRONG {
            assert_eq!(check(&tokens, "Bearer bad", [10, 0, 0, 1]), Err(Refused::Wrong));
        }
        let shut = check(&tokens, "Bearer bad", [10, 0, 0, 1]);
        assert!(matches!(shut, Err(Refused::TooOften(_))), "{shut:?}");
        assert!(check(&tokens, "Bearer good", [10, 0, 0, 1]).is_ok(), "who is right is let in");
        assert_eq!(check(&tokens, "Bearer bad", [10, 0, 0, 2]), Err(Refused::Wrong), "another");
        tokio::time::advance(WINDOW).await;
        assert_eq!(check(&tokens, "Bearer bad", [10, 0, 0, 1]), Err(Refused::Wrong));
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_without_room_share_a_count_and_the_table_stays_small() {
        let digest = Sha256::digest("good").into();
        let tokens = Tokens::new(vec![Token { name: "ops".into(), digest, role: Role::All }]);
        for n in 0..3 * u32::try_from(MAX_ADDRESSES).unwrap() {
            let _ = check(&tokens, "Bearer bad", n.to_be_bytes());
        }
        assert!(tokens.wrong.lock().len() <= MAX_ADDRESSES + 1);
        let shut = check(&tokens, "Bearer bad", [200, 0, 0, 1]);
        assert!(matches!(shut, Err(Refused::TooOften(_))), "{shut:?}");
        for from in [[200, 0, 0, 1], [0, 0, 0, 1]] {
            assert!(check(&tokens, "Bearer good", from).is_ok(), "nobody is kept out by it");
        }
    }
}

//! Tokens that are at hand: one of the gateway itself, or one for each employee, at one server.
//!
//! A token is good for all calls it is meant for until shortly before its end. Whoever needs
//! another one waits for the one who gets it, and for nobody else. Whose a token is, is the place
//! it lies in and nothing else; there are as many places as sealed credentials may be kept in
//! memory, and the one that was not used for the longest gives way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use moka::{policy::EvictionPolicy, sync::Cache};
use secrecy::SecretString;
use tokio::sync::Mutex;

use crate::{
    clock::Clock,
    credential::{
        Whose,
        oauth::{Asked, Asking, Challenge, Refused, Token, TokenFault, TokenSource, TokensOf},
    },
};

/// A token is not used when it has less than this left, or a tenth of its life.
const MARGIN_MS: u64 = 30_000;
/// How long a token is believed whose end nobody said.
const UNSAID_MS: u64 = 300_000;
/// An employee who has not called for so long has no place any more.
const IDLE: Duration = Duration::from_secs(3_600);

/// How a token is had.
pub(super) trait Gets: Send + Sync + 'static {
    const OF: TokensOf;
    /// A server that refuses a token as young as this will refuse the next one, too.
    const YOUNG_MS: u64;

    fn get(&self, wanted: Wanted<'_>) -> impl Future<Output = Result<Got, TokenFault>> + Send;

    /// As whom the gateway's own listings are made.
    fn listing(&self) -> Option<Whose> {
        None
    }
}

/// What token is needed.
pub(super) struct Wanted<'a> {
    /// `None`: the gateway's own.
    pub whose: Option<&'a Whose>,
    /// What the server said when it did not take the one before.
    pub challenge: Option<&'a Challenge>,
    /// What was asked for and given so far for whoever it is; kept for the next time.
    pub scope: &'a mut String,
    pub now_ms: u64,
}

pub(super) struct Got {
    pub value: SecretString,
    /// How long it is good, if that is known.
    pub life_ms: Option<u64>,
}

/// The places of employees' tokens at all servers: so many, and no more.
#[derive(Clone)]
pub(super) struct Places(Cache<(u64, Whose), Arc<Place>>);

/// Where one's token at one server lies.
#[derive(Default)]
struct Place {
    current: ArcSwapOption<Kept>,
    /// Held by whoever gets another one.
    getting: Mutex<Getting>,
}

struct Kept {
    token: Token,
    since_ms: u64,
    until_ms: u64,
}

#[derive(Default)]
struct Getting {
    scope: String,
    /// When it failed last, and why. Whoever waited for that does not try once more.
    failed: Option<(u64, TokenFault)>,
}

/// Brings tokens for one server.
pub(super) struct Tokens<G> {
    gets: G,
    clock: Clock,
    own: Arc<Place>,
    employees: Places,
    /// Tells one server's places from another's.
    id: u64,
    serial: AtomicU64,
}

// === impl Places ===

impl Places {
    pub fn new(entries: u64) -> Self {
        let lru = EvictionPolicy::lru();
        let cache = Cache::builder().max_capacity(entries).eviction_policy(lru).time_to_idle(IDLE);
        Self(cache.build())
    }

    fn of(&self, id: u64, whose: &Whose) -> Arc<Place> {
        let entry = self.0.entry((id, whose.clone())).or_default();
        if entry.is_fresh() {
            // At once, so that there are never more than so many.
            self.0.run_pending_tasks();
        }
        entry.into_value()
    }
}

// === impl Tokens ===

impl<G: Gets> Tokens<G> {
    pub fn source(gets: G, clock: Clock, employees: Places) -> Arc<dyn TokenSource> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let (own, serial) = (Arc::default(), AtomicU64::new(0));
        Arc::new(Shared(Arc::new(Self { gets, clock, own, employees, id, serial })))
    }

    fn known(&self, place: &Place, refused: Option<&Refused>) -> Option<Result<Token, TokenFault>> {
        let kept = place.current.load_full()?;
        let now_ms = self.clock.now_ms();
        match refused.filter(|refused| refused.serial == Some(kept.token.serial)) {
            None => (now_ms < kept.until_ms).then(|| Ok(kept.token.clone())),
            Some(refused) if refused.challenge.wants_more_scopes() => None,
            Some(refused) => {
                let is_young = now_ms < kept.since_ms.saturating_add(G::YOUNG_MS);
                (refused.again || is_young).then_some(Err(TokenFault::NotTaken))
            }
        }
    }

    async fn token(&self, asked: Asked) -> Result<Token, TokenFault> {
        let Asked { whose, refused, .. } = asked;
        let whose = whose.or_else(|| self.gets.listing());
        let place = match &whose {
            Some(whose) => self.employees.of(self.id, whose),
            None => self.own.clone(),
        };
        if let Some(known) = self.known(&place, refused.as_ref()) {
            return known;
        }
        let came_ms = self.clock.now_ms();
        let mut getting = place.getting.lock().await;
        // Whoever was here before has brought one, or knows that there is none.
        if let Some(known) = self.known(&place, refused.as_ref()) {
            return known;
        }
        if let Some((at_ms, fault)) = &getting.failed
            && *at_ms > came_ms
        {
            return Err(fault.clone());
        }
        let now_ms = self.clock.now_ms();
        let challenge = refused.as_ref().map(|refused| &refused.challenge);
        let wanted = Wanted { whose: whose.as_ref(), challenge, scope: &mut getting.scope, now_ms };
        let Got { value, life_ms } = match self.gets.get(wanted).await {
            Ok(got) => got,
            Err(fault) => {
                getting.failed = Some((self.clock.now_ms(), fault.clone()));
                return Err(fault);
            }
        };
        let life = life_ms.unwrap_or(UNSAID_MS);
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let token = Token { value, serial };
        let until_ms = now_ms.saturating_add(life - MARGIN_MS.min(life / 10));
        let kept = Kept { token: token.clone(), since_ms: now_ms, until_ms };
        place.current.store(Some(Arc::new(kept)));
        Ok(token)
    }
}

struct Shared<G>(Arc<Tokens<G>>);

impl<G: Gets> TokenSource for Shared<G> {
    fn token(&self, asked: Asked) -> Asking {
        let tokens = self.0.clone();
        Box::pin(async move { tokens.token(asked).await })
    }

    fn of(&self) -> TokensOf {
        G::OF
    }
}

#[cfg(test)]
mod tests;

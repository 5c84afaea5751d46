//! Tokens over time, which a test moves.

use std::sync::atomic::AtomicUsize;

use secrecy::ExposeSecret;

use super::*;
use crate::{
    credential::Owner,
    model::caller::{EmployeeId, TenantId},
};

const MINUTE_MS: u64 = 60_000;

/// Gives tokens that tell whose they are, and their number.
#[derive(Default, Clone)]
struct Counting {
    given: Arc<AtomicUsize>,
    life_ms: Option<u64>,
    fails: Arc<parking_lot::Mutex<Option<TokenFault>>>,
}

impl Gets for Counting {
    const OF: TokensOf = TokensOf::Named;
    const YOUNG_MS: u64 = 10_000;

    async fn get(&self, wanted: Wanted<'_>) -> Result<Got, TokenFault> {
        // Everybody else comes meanwhile.
        tokio::task::yield_now().await;
        let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(fault) = self.fails.lock().clone() {
            return Err(fault);
        }
        let whose = match wanted.whose.map(|whose| &whose.owner) {
            Some(Owner::Employee(employee)) => employee.as_str(),
            _ => "nobody",
        };
        Ok(Got { value: format!("{whose} {number}").into(), life_ms: self.life_ms })
    }
}

fn asked(employee: &str, refused: Option<Refused>) -> Asked {
    let whose = Whose {
        tenant: TenantId::new("acme"),
        owner: Owner::Employee(EmployeeId::parse(employee).unwrap()),
        server_key: "mcp_a_00000000".into(),
    };
    Asked { whose: Some(whose), refused, session: None }
}

fn source(life_ms: Option<u64>) -> (Arc<dyn TokenSource>, Counting, Clock) {
    let clock = Clock::manual(1_000_000);
    let gets = Counting { life_ms, ..Counting::default() };
    (Tokens::source(gets.clone(), clock.clone(), Places::new(100)), gets, clock)
}

async fn token(source: &Arc<dyn TokenSource>, employee: &str) -> String {
    source.token(asked(employee, None)).await.unwrap().value.expose_secret().to_owned()
}

#[tokio::test]
async fn a_token_is_used_until_shortly_before_its_end() {
    for (life, used, over) in [
        // Half a minute before it.
        (Some(10 * MINUTE_MS), 569, 571),
        // A tenth of its life, where that is less.
        (Some(MINUTE_MS), 53, 55),
        // As long as is believed where nobody says it.
        (None, 269, 271),
    ] {
        let (source, _, clock) = source(life);
        assert_eq!(token(&source, "E1").await, "E1 1");
        clock.advance(Duration::from_secs(used));
        assert_eq!(token(&source, "E1").await, "E1 1", "{life:?}");
        clock.advance(Duration::from_secs(over - used));
        assert_eq!(token(&source, "E1").await, "E1 2", "{life:?}");
    }
}

#[tokio::test]
async fn whoever_waits_takes_what_the_first_one_brings_or_its_failure() {
    let (source, gets, clock) = source(Some(MINUTE_MS));
    let all = |employee: &'static str| {
        let source = source.clone();
        futures_util::future::join_all((0..20).map(move |_| {
            let source = source.clone();
            async move { source.token(asked(employee, None)).await }
        }))
    };
    assert!(
        all("E1").await.into_iter().all(|token| token.unwrap().value.expose_secret() == "E1 1")
    );
    assert_eq!(gets.given.load(Ordering::Relaxed), 1);
    let fault = TokenFault::Unreachable("away".to_owned());
    *gets.fails.lock() = Some(fault.clone());
    let waiting = all("E2");
    // It ends later than they came.
    let later = async {
        tokio::task::yield_now().await;
        clock.advance(Duration::from_secs(1));
    };
    let (failed, ()) = tokio::join!(waiting, later);
    assert!(failed.into_iter().all(|token| token.unwrap_err() == fault));
    assert_eq!(gets.given.load(Ordering::Relaxed), 2, "one has tried for all");
    // Whoever comes then tries again.
    *gets.fails.lock() = None;
    assert_eq!(token(&source, "E2").await, "E2 3");
}

#[tokio::test]
async fn one_that_is_refused_is_replaced_unless_it_is_young_or_the_second() {
    let (source, gets, clock) = source(Some(10 * MINUTE_MS));
    let first = source.token(asked("E1", None)).await.unwrap();
    let refused = |serial, scope: Option<&str>, again| {
        let error = scope.map(|_| "insufficient_scope".to_owned());
        let challenge =
            Challenge { scope: scope.map(str::to_owned), error, ..Challenge::default() };
        asked("E1", Some(Refused { serial: Some(serial), challenge, again }))
    };
    let not_taken = TokenFault::NotTaken;
    // So young that the next one would fare the same, unless it is about scopes.
    assert_eq!(source.token(refused(first.serial, None, false)).await.unwrap_err(), not_taken);
    let second = source.token(refused(first.serial, Some("more"), false)).await.unwrap();
    assert_ne!(first.serial, second.serial);
    // The first one is refused once more, for somebody who had it: there is another by now.
    let third = source.token(refused(first.serial, None, false)).await.unwrap();
    assert_eq!(third.serial, second.serial);
    clock.advance(Duration::from_secs(20));
    assert_eq!(source.token(refused(second.serial, None, true)).await.unwrap_err(), not_taken);
    assert!(source.token(refused(second.serial, None, false)).await.is_ok());
    assert_eq!(gets.given.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn places_are_of_one_server_and_one_employee_and_bounded() {
    let (clock, gets) = (Clock::manual(1_000_000), Counting::default());
    let places = Places::new(2);
    let one = Tokens::source(gets.clone(), clock.clone(), places.clone());
    let other = Tokens::source(gets.clone(), clock, places.clone());
    assert_eq!(token(&one, "E1").await, "E1 1");
    assert_eq!(token(&other, "E1").await, "E1 2", "another server, though its address is the same");
    assert_eq!(token(&one, "E1").await, "E1 1");
    assert_eq!(token(&one, "E2").await, "E2 3");
    assert_eq!(places.0.entry_count(), 2);
    assert_eq!(token(&one, "E1").await, "E1 1");
    assert_eq!(token(&other, "E1").await, "E1 4", "it had to give way");
    // The gateway's own has its place always.
    let own = one.token(Asked { whose: None, refused: None, session: None }).await.unwrap();
    assert_eq!(own.value.expose_secret(), "nobody 5");
}

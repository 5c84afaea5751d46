//! Sealed tokens, sessions and states: what was not given out opens nothing.

use std::time::Duration;

use hangu::{
    identity::{
        seal::Sealer,
        session::{self, Owner, Sessions},
        state::{self, States},
    },
    mcp::{Capabilities, Version},
    model::caller::{CallerId, EmployeeId, TenantId},
};

use super::{holds, target};

const WORDS: &[&str] = &[
    "AQA",
    "A",
    "-",
    "_",
    "=",
    "+",
    "/",
    " ",
    "\0",
    "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "é",
    "AQEB",
    "\r\n",
    "....",
];

#[test]
fn what_was_not_sealed_here_opens_nothing() {
    let (tenant, caller) = (TenantId::new("acme"), CallerId::new("desk"));
    let employee = EmployeeId::parse("E1").unwrap();
    let owner = Owner { tenant: &tenant, caller: &caller, employee: Some(&employee) };
    let sessions =
        Sessions::new(Sealer::random(session::PURPOSE).unwrap(), Duration::from_secs(60));
    let states = States::new(Sealer::random(state::PURPOSE).unwrap());
    let session = sessions.start(owner, Version::V2025_11_25, Capabilities::NONE, 1_000).unwrap();
    let state = states.seal(owner, "up/tool", "what the server said", 1_000).unwrap();
    let opens = |token: &str| {
        sessions.open(token, owner, 2_000).is_ok()
            || states.open(owner, "up/tool", token, 2_000).is_ok()
    };
    assert!(opens(&session) && opens(&state));
    target("token", WORDS, |input, cuts| {
        let text = String::from_utf8_lossy(input);
        holds(!opens(&text), || "it opens".into())?;
        for good in [&session, &state] {
            // What follows, what is missing, and what is another letter.
            let longer = format!("{good}{text}");
            holds(text.is_empty() || !opens(&longer), || "with more behind it".into())?;
            for cut in cuts {
                let at = cut.index(good.len());
                holds(!opens(&good[..at]), || format!("cut at {at}"))?;
                let other = text.chars().next().unwrap_or('A');
                let changed = format!("{}{other}{}", &good[..at], &good[at + 1..]);
                holds(changed == *good || !opens(&changed), || format!("{other:?} at {at}"))?;
            }
        }
        Ok(())
    });
}

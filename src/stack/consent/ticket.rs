//! What a client of 2026-07-28 keeps for a call while its person follows a link: sealed, and good
//! for the same call of the same employee, for as long as the link is.
//!
//! It lets nothing happen that the call alone would not, so it may be brought more than once.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::{ConsentLayer, KEY};
use crate::{
    dialect::questions,
    error::Error,
    identity::session::Owner,
    json::{self, Doc, Value},
    model::{call::Call, exchange::NorthDialect, ids},
    stack::stage::{Brought, not_good, said},
};

/// Before the sealed part. No state of a server or of an approval begins like this, so that
/// nobody opens one for another.
pub const MARK: &str = "connect:";

/// What it says.
#[derive(Clone)]
pub struct Ticket {
    /// How often the client has been asked.
    pub rounds: usize,
    /// The grant that there was.
    pub grant: Option<Box<str>>,
    /// What the call had brought for others.
    pub brought: Option<Brought>,
}

/// The call in one text. No upstream is called so.
pub fn about(call: &Call) -> String {
    let named = call.exchange.facts().tool.clone().unwrap_or_default();
    let digest: [u8; 32] = Sha256::digest(said(&call.request)).into();
    let digest = ids::hex::<32, 64>(digest);
    let method = call.request.method().as_str();
    format!("consent for\n{method}\n{named}\n{}", String::from_utf8_lossy(&digest))
}

impl ConsentLayer {
    /// Takes out of a call what it brings from a link, if anything: what its person said, and what
    /// was kept.
    pub fn open(
        &self,
        call: &mut Call,
        about: &str,
    ) -> Result<Option<(Option<String>, Ticket)>, Error> {
        if call.dialect != NorthDialect::Modern {
            return Ok(None);
        }
        let Some(state) = Brought::of(&call.request).and_then(|brought| brought.state()) else {
            return Ok(None);
        };
        let Some(sealed) = state.strip_prefix(MARK) else { return Ok(None) };
        let (owner, now_ms) = (Owner::of(&call.caller), self.clock.now_ms());
        let opened = self.states.open(owner, about, sealed, now_ms);
        let ticket = opened.ok().and_then(|text| Ticket::read(&text)).ok_or_else(not_good)?;
        let answers = Brought::take(&mut call.request).and_then(|brought| brought.answers);
        let answers = answers.as_ref().and_then(questions::answers).unwrap_or_default();
        let answer = answers.iter().find(|(key, _)| **key == *KEY);
        Ok(Some((answer.and_then(|(_, answer)| questions::action(answer)), ticket)))
    }
}

impl Ticket {
    /// As it is sealed; nothing, where what was brought is no text.
    pub fn text(&self) -> Option<String> {
        let mut out = format!("{{\"rounds\":{}", self.rounds).into_bytes();
        if let Some(grant) = &self.grant {
            out.extend_from_slice(b",\"grant\":");
            json::write_str(&mut out, grant);
        }
        if let Some(Brought { answers, state }) = &self.brought {
            for (name, value) in [("answers", answers), ("state", state)] {
                if let Some(value) = value {
                    out.push(b',');
                    json::write_str(&mut out, name);
                    out.push(b':');
                    out.extend_from_slice(value);
                }
            }
        }
        out.push(b'}');
        String::from_utf8(out).ok()
    }

    fn read(text: &str) -> Option<Self> {
        let limits = json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 1 };
        let doc = Doc::parse(Bytes::copy_from_slice(text.as_bytes()), &limits).ok()?;
        let raw = |name: &str| doc.root().get(name).map(Value::bytes);
        let (answers, state) = (raw("answers"), raw("state"));
        Some(Self {
            rounds: std::str::from_utf8(doc.root().get("rounds")?.raw()).ok()?.parse().ok()?,
            grant: doc.root().get("grant").and_then(Value::as_str).map(Into::into),
            brought: (answers.is_some() || state.is_some()).then_some(Brought { answers, state }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_call_is_read_as_it_was() {
        let bytes = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        let brought = |answers, state| Some(Brought { answers, state });
        for brought in [
            None,
            brought(bytes(r#"{"a":{"action":"accept"},"b":[1.0, 12345678901234567890]}"#), None),
            brought(None, bytes(r#""of \"a\" server""#)),
            brought(bytes("{}"), bytes(r#""s""#)),
        ] {
            for grant in [None, Some("cred_1@2".into())] {
                let ticket = Ticket { rounds: 3, grant, brought: brought.clone() };
                let read = Ticket::read(&ticket.text().unwrap()).unwrap();
                assert_eq!(format!("{:?}", read.brought), format!("{brought:?}"));
                assert_eq!((read.rounds, &read.grant), (3, &ticket.grant));
            }
        }
        assert!(Ticket::read("{}").is_none() && Ticket::read("").is_none());
    }
}

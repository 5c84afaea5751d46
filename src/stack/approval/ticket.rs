//! What a client of 2026-07-28 keeps for a call between two requests: sealed, good for the same
//! call of the same employee, under the same policies, for a while, and once.

use sha2::{Digest, Sha256};

use super::{ApprovalLayer, confirm, held::Held};
use crate::{
    approval::Token,
    dialect::questions,
    error::{Code, Error},
    identity::session::Owner,
    mcp::rpc,
    model::{
        call::Call,
        caller::Caller,
        exchange::NorthDialect,
        ids,
        reply::{Final, Reply},
    },
    stack::stage::{Brought, not_good},
};

/// What it says.
pub enum Ticket {
    /// The client was asked whether the call is meant.
    Confirm { token: Token, asked_ms: u64 },
    /// The call has had its yes, and its server asked something; `state` is the server's.
    Granted { token: Token, state: Option<String> },
}

/// Between the gateway's own part and the server's state.
const JOINT: char = '.';

impl ApprovalLayer {
    /// Asks the client, in its answer.
    pub fn question(&self, call: &Call, held: &Held) -> Result<Reply, Error> {
        let token: Token = rand::random();
        let now_ms = self.approvals.now_ms();
        let text = format!("confirm\n{}\n{now_ms}", hex(&token));
        let state = self.sealed(&call.caller, held, &text)?;
        let asked = confirm::question(held);
        Ok(Reply::result(questions::asking([&asked], Some(&state))))
    }

    /// What a call brings that somebody has to approve.
    pub fn open(&self, call: &Call, held: &Held, brought: &Brought) -> Result<Ticket, Error> {
        if call.dialect != NorthDialect::Modern {
            let message = "nothing was asked that this call could answer";
            return Err(Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message));
        }
        let state = brought.state().ok_or_else(not_good)?;
        let (own, servers) = match state.split_once(JOINT) {
            Some((own, servers)) => (own, Some(servers)),
            None => (&*state, None),
        };
        let now_ms = self.approvals.now_ms();
        let opened = self
            .states
            .open(Owner::of(&call.caller), &held.about(), own, now_ms)
            .map_err(|_| not_good())?;
        let mut lines = opened.split('\n');
        let mut line = || lines.next().unwrap_or_default();
        let (kind, token, last) = (line(), unhex(line()).ok_or_else(not_good)?, line());
        match kind {
            "confirm" if servers.is_none() => {
                Ok(Ticket::Confirm { token, asked_ms: last.parse().unwrap_or(now_ms) })
            }
            "granted" if last == digest(servers) => {
                Ok(Ticket::Granted { token, state: servers.map(Into::into) })
            }
            _ => Err(not_good()),
        }
    }

    /// The answer to a call that has its yes: if the server asks something, what brings the
    /// answer needs no other.
    pub fn granted(&self, end: Final, caller: &Caller, held: &Held) -> Result<Final, Error> {
        let Final::Result(body) = end else { return Ok(end) };
        if !body.shape.asks {
            return Ok(Final::Result(body));
        }
        let unreadable = |what: &'static str| {
            Error::new(Code::ExternalServiceError, format!("the server asks something, but {what}"))
                .with_kind("malformed")
                .from_upstream()
        };
        let round = questions::read(&body.raw).map_err(unreadable)?;
        let token: Token = rand::random();
        let servers = round.state.as_deref();
        let text = format!("granted\n{}\n{}", hex(&token), digest(servers));
        let mut state = self.sealed(caller, held, &text)?;
        if let Some(servers) = servers {
            state.push(JOINT);
            state.push_str(servers);
        }
        let asking = questions::with_state(&body.raw, &state);
        asking.map(Final::Result).ok_or_else(|| unreadable("it cannot be read"))
    }

    fn sealed(&self, caller: &Caller, held: &Held, text: &str) -> Result<String, Error> {
        let (owner, now_ms) = (Owner::of(caller), self.approvals.now_ms());
        self.states.seal(owner, &held.about(), text, now_ms).map_err(|fault| {
            Error::new(Code::Internal, "the question could not be sealed").with_cause(fault)
        })
    }
}

/// The server's state is bound to the gateway's own part by this.
fn digest(servers: Option<&str>) -> String {
    servers.map_or_else(|| "-".to_owned(), |state| hex(&Sha256::digest(state).into()))
}

fn hex(bytes: &[u8; 32]) -> String {
    String::from_utf8_lossy(&ids::hex::<32, 64>(*bytes)).into_owned()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

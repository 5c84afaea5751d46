//! What a call brings from an earlier one, whose answer asked something: the answers, and the state
//! that its client was given then. Whoever asked takes both out before the call goes on.

use bytes::Bytes;

use crate::{
    dialect::questions::{ANSWERS, STATE},
    error::{Code, Error},
    json::{self, Doc},
    mcp::rpc,
    model::call::{RawMember, RawMembers, Request},
};

/// The answers to questions, and the state given with these.
#[derive(Debug, Clone)]
pub struct Brought {
    pub answers: Option<Bytes>,
    /// The JSON value as it was written.
    pub state: Option<Bytes>,
}

/// Whether a member of a call is one of these.
pub fn is_brought(member: &RawMember) -> bool {
    member.key == ANSWERS.as_bytes() || member.key == STATE.as_bytes()
}

/// All that a call says beside that, in canonical form: its arguments and what else a server gets
/// to read of it.
pub fn said(request: &Request) -> Vec<u8> {
    let mut canonical = Vec::new();
    let (arguments, members): (&[u8], &[RawMember]) = match request {
        Request::CallTool(call) => (call.arguments.as_deref().unwrap_or(b"{}"), &call.others),
        Request::Ask(ask) => (b"{}", &ask.params),
        _ => (b"{}", &[]),
    };
    json::canonical(arguments, &mut canonical);
    for member in members.iter().filter(|member| !is_brought(member)) {
        canonical.push(b'\n');
        canonical.extend_from_slice(&member.key);
        canonical.push(b'\n');
        json::canonical(&member.value, &mut canonical);
    }
    canonical
}

/// A state that opens to nobody, whatever is wrong with it: nobody need know.
pub fn not_good() -> Error {
    let message = "`requestState` is not good for this call any more: start again";
    Error::protocol(Code::InvalidArgs, rpc::INVALID_PARAMS, 200, message)
}

impl Brought {
    /// What of it is in a call, if anything.
    pub fn of(request: &Request) -> Option<Self> {
        let members = members(request)?;
        if !members.iter().any(is_brought) {
            return None;
        }
        let mut brought = Brought { answers: None, state: None };
        for member in members {
            let place = match &*member.key {
                key if key == ANSWERS.as_bytes() => &mut brought.answers,
                key if key == STATE.as_bytes() => &mut brought.state,
                _ => continue,
            };
            *place = Some(member.value.clone());
        }
        Some(brought)
    }

    /// Takes it out of a call, if it is there.
    pub fn take(request: &mut Request) -> Option<Self> {
        let brought = Self::of(request)?;
        members_mut(request)?.retain(|member| !is_brought(member));
        Some(brought)
    }

    /// Gives a call what it brings for somebody else, with that one's own state.
    pub fn put_back(self, request: &mut Request, state: Option<String>) {
        let Some(members) = members_mut(request) else { return };
        if let Some(value) = self.answers {
            members.push(RawMember { key: Bytes::from_static(ANSWERS.as_bytes()), value });
        }
        if let Some(state) = state {
            let mut value = Vec::with_capacity(state.len() + 2);
            json::write_str(&mut value, &state);
            let key = Bytes::from_static(STATE.as_bytes());
            members.push(RawMember { key, value: value.into() });
        }
    }

    /// The state, where it is a text.
    pub fn state(&self) -> Option<String> {
        let limits = json::Limits { depth: 1, duplicates: json::Duplicates::Allow, outline: 0 };
        let doc = Doc::parse(self.state.clone()?, &limits).ok()?;
        doc.root().as_str().map(Into::into)
    }
}

fn members(request: &Request) -> Option<&RawMembers> {
    match request {
        Request::CallTool(call) => Some(&call.others),
        Request::Ask(ask) => Some(&ask.params),
        _ => None,
    }
}

fn members_mut(request: &mut Request) -> Option<&mut RawMembers> {
    match request {
        Request::CallTool(call) => Some(&mut call.others),
        Request::Ask(ask) => Some(&mut ask.params),
        _ => None,
    }
}

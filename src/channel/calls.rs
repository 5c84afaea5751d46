//! The requests under way on one channel, and which of them a message belongs to.
//!
//! It knows neither pipes nor sockets: a channel gives it what comes in, and asks it for readers.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{
    mailbox::{Mailbox, Urgency},
    message::{self, Message},
    reply::{self, Name},
};
use crate::error::Error;

/// Whose requests a channel carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// Of one session, which belongs to one employee or to the gateway itself.
    One,
    /// Of whoever calls.
    Many,
}

/// What a request on a channel asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Where it fails, the channel is of no use.
    Opening,
    Work,
}

/// Told of a request that nobody waits for any more, and whose answer has not come.
pub(super) type Abandoned = Box<dyn Fn(&Bytes, Purpose) + Send + Sync>;

pub(super) struct Calls {
    upstream: Name,
    users: Users,
    /// The most that a message may hold, and that may wait for a reader.
    cap: usize,
    abandoned: Abandoned,
    under_way: watch::Sender<usize>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The oldest first. Their number is bounded by the upstream's concurrency.
    calls: VecDeque<Call>,
    serial: u64,
    listener: Option<Arc<Mailbox>>,
    closed: bool,
}

struct Call {
    serial: u64,
    id: Bytes,
    purpose: Purpose,
    mailbox: Arc<Mailbox>,
}

/// What became of something that came in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It has found its reader, or there was none and nobody waits for an answer.
    Done,
    /// Questions that nobody here can be asked.
    Unheard(Vec<(Bytes, Box<str>)>),
    /// The opening of the channel was refused.
    Refused,
    /// No message.
    Noise,
}

impl Calls {
    pub fn new(upstream: Name, users: Users, cap: usize, abandoned: Abandoned) -> Arc<Self> {
        Arc::new(Self {
            upstream,
            users,
            cap,
            abandoned,
            under_way: watch::Sender::new(0),
            state: Mutex::default(),
        })
    }

    /// A reader for the answer to a request that will be sent; `None` on a closed channel.
    pub fn enter(self: &Arc<Self>, id: Bytes, purpose: Purpose) -> Option<Reading> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        state.serial += 1;
        let serial = state.serial;
        let mailbox = Arc::new(Mailbox::new(self.cap));
        state.calls.push_back(Call { serial, id, purpose, mailbox: mailbox.clone() });
        self.under_way.send_replace(state.calls.len());
        Some(Reading { calls: self.clone(), call: Some(serial), mailbox })
    }

    /// A reader for what belongs to no request. It takes the place of the last one.
    pub fn listen(self: &Arc<Self>) -> Option<Reading> {
        let mut state = self.state.lock();
        if state.closed {
            return None;
        }
        let mailbox = Arc::new(Mailbox::new(self.cap));
        if let Some(last) = state.listener.replace(mailbox.clone()) {
            last.end(Ok(None));
        }
        Some(Reading { calls: self.clone(), call: None, mailbox })
    }

    /// Takes what has come in.
    pub fn deliver(&self, text: &Bytes) -> Delivery {
        let Some(messages) = message::read(text) else { return Delivery::Noise };
        let mut state = self.state.lock();
        let mut unheard = Vec::new();
        let mut refused = false;
        for (text, message) in messages {
            match message {
                Message::Response { id, failed } => {
                    let opening = state.answer(id.as_ref(), text);
                    refused |= failed && opening;
                }
                Message::Notification { method, of } => {
                    state.tell(self.users, &method, of.as_ref(), text);
                }
                Message::Request { id, method } => {
                    if !state.ask(self.users, text) {
                        unheard.push((id, method));
                    }
                }
            }
        }
        self.under_way.send_replace(state.calls.len());
        match (refused, unheard.is_empty()) {
            (true, _) => Delivery::Refused,
            (false, true) => Delivery::Done,
            (false, false) => Delivery::Unheard(unheard),
        }
    }

    /// A message was too large to be kept; this is how it begins. Where its request is not known
    /// by that, and it is not the only one either, that request is left to its time limit.
    pub fn too_large(&self, beginning: &[u8]) {
        let mut state = self.state.lock();
        let named = message::id_at_the_beginning(beginning);
        let at = match named {
            Some(id) => state.calls.iter().position(|call| call.id == id),
            None if state.calls.len() == 1 => Some(0),
            None => None,
        };
        if let Some(call) = at.and_then(|at| state.calls.remove(at)) {
            call.mailbox.end(Err(reply::too_large(&self.upstream, self.cap)));
            self.under_way.send_replace(state.calls.len());
        }
    }

    /// Nothing more will come: ends every request with an error.
    pub fn close(&self, error: impl Fn() -> Error) {
        let mut state = self.state.lock();
        state.closed = true;
        for call in state.calls.drain(..) {
            call.mailbox.end(Err(error()));
        }
        if let Some(listener) = state.listener.take() {
            listener.end(Ok(None));
        }
        self.under_way.send_replace(0);
    }

    /// Takes no more requests; those under way go on.
    pub fn close_to_new(&self) {
        self.state.lock().closed = true;
    }

    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How many requests are under way.
    pub fn under_way(&self) -> watch::Receiver<usize> {
        self.under_way.subscribe()
    }

    fn leave(&self, serial: u64) {
        let call = {
            let mut state = self.state.lock();
            let at = state.calls.iter().position(|call| call.serial == serial);
            let call = at.and_then(|at| state.calls.remove(at));
            self.under_way.send_replace(state.calls.len());
            call
        };
        if let Some(call) = call {
            (self.abandoned)(&call.id, call.purpose);
        }
    }
}

impl State {
    /// Ends the request that a response is for; whether that was the opening one. A late answer
    /// to a request that was given up has nobody.
    fn answer(&mut self, id: Option<&Bytes>, text: Bytes) -> bool {
        let at = match id {
            Some(id) => self.calls.iter().position(|call| call.id == *id),
            // An error without an id can only be meant for the one request there is.
            None if self.calls.len() == 1 => Some(0),
            None => None,
        };
        let Some(call) = at.and_then(|at| self.calls.remove(at)) else { return false };
        call.mailbox.end(Ok(Some(text)));
        call.purpose == Purpose::Opening
    }

    fn tell(&mut self, users: Users, method: &str, of: Option<&Bytes>, text: Bytes) {
        let reader = match of {
            Some(id) => self.calls.iter().find(|call| call.id == *id).map(|call| &call.mailbox),
            None if is_general(method) => self.listener.as_ref(),
            // A word that is not known to be one caller's must not reach another.
            None if users == Users::Many => None,
            // The oldest: a server says not which request it speaks of, and one that works them
            // off in turn works on that one.
            None => self.calls.front().map(|call| &call.mailbox).or(self.listener.as_ref()),
        };
        if let Some(reader) = reader {
            reader.add(Urgency::Word, text);
        }
    }

    /// Whether the question has found somebody.
    fn ask(&mut self, users: Users, text: Bytes) -> bool {
        let reader = match users {
            // The oldest, as with words.
            Users::One => self.calls.front().map(|call| &call.mailbox).or(self.listener.as_ref()),
            // With several callers under way nobody knows whom it is for.
            Users::Many if self.calls.len() == 1 => self.calls.front().map(|call| &call.mailbox),
            Users::Many => None,
        };
        reader.is_some_and(|reader| reader.add(Urgency::Question, text))
    }
}

/// What servers say to whoever listens, whether or not a request is under way.
fn is_general(method: &str) -> bool {
    method.ends_with("/list_changed") || method == "notifications/resources/updated"
}

/// The messages of one request, or of none. Dropped before the answer, it gives the request up.
pub(super) struct Reading {
    calls: Arc<Calls>,
    call: Option<u64>,
    mailbox: Arc<Mailbox>,
}

impl Reading {
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        self.mailbox.poll(cx)
    }

    /// Whether something has come already.
    pub fn poll_some(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.mailbox.poll_some(cx)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let left_out = self.mailbox.left_out();
        if left_out > 0 {
            let name = &*self.calls.upstream;
            tracing::debug!(upstream.name = name, left_out, "a slow reader missed messages");
        }
        match self.call {
            Some(serial) => self.calls.leave(serial),
            None => {
                let mut state = self.calls.state.lock();
                state.listener.take_if(|listener| Arc::ptr_eq(listener, &self.mailbox));
            }
        }
    }
}

#[cfg(test)]
mod tests;

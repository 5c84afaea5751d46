//! What a call comes back with: one result, or notifications and then one.
//!
//! Results are the server's bytes; what the gateway has to add to them is listed beside, and
//! written once, by the northbound dialect.

use std::{ops::Range, pin::Pin};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{
    StreamExt,
    future::{Either, FutureExt, ready},
};
use http::{HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::{error::Error, mcp::Method};

/// A reply and the headers that layers want on the answer.
pub struct Reply {
    pub headers: ReplyHeaders,
    pub content: Content,
}

/// Of an answer: what layers say of limits, replays and the like.
pub type ReplyHeaders = SmallVec<[(HeaderName, HeaderValue); 2]>;

pub enum Content {
    Final(Final),
    /// Notifications, then exactly one `Event::End`.
    Stream(ReplyStream),
    /// A notification was accepted; there is nothing to say.
    Nothing,
}

pub type ReplyStream = Pin<Box<dyn Stream<Item = Event> + Send>>;

pub enum Event {
    Notification(Notification),
    /// Something that the client is to answer while its call runs; only the handshake revisions
    /// have a form for it.
    Question(Question),
    /// The client has answered all that it was asked, and its call is about to go on. Clients are
    /// not told.
    Answered,
    End(Result<Final, Error>),
}

/// A notification that belongs to the call.
#[derive(Debug, Clone)]
pub struct Notification {
    /// The method's name, unescaped.
    pub method: Box<str>,
    /// The raw `params` object, if any.
    pub params: Option<Bytes>,
}

/// A request of the gateway to a client of the handshake era.
#[derive(Debug, Clone)]
pub struct Question {
    /// Under which the client answers; a JSON string.
    pub id: Box<str>,
    pub method: Method,
    /// The raw `params` object, if any.
    pub params: Option<Bytes>,
}

/// The one answer.
#[derive(Debug, Clone)]
pub enum Final {
    Result(ResultBody),
    /// The server's own JSON-RPC error, which is its answer.
    Error(RpcError),
}

/// A result object.
#[derive(Debug, Clone)]
pub struct ResultBody {
    /// The JSON object as the server wrote it.
    pub raw: Bytes,
    /// What was seen of it when it was read, so that nobody reads it again.
    pub shape: Shape,
    /// Already in the form that the caller's dialect wants; nothing is to be changed or added
    /// but `added_meta`.
    pub rendered: bool,
    /// Members that the gateway adds to `_meta`: key, JSON value.
    pub added_meta: SmallVec<[(&'static str, Bytes); 1]>,
    /// How long a client may keep it, in milliseconds, where it is of a method whose results
    /// say so.
    pub fresh_ms: Option<u32>,
}

impl ResultBody {
    /// A result that came from an upstream.
    pub fn upstream(raw: Bytes, shape: Shape) -> Self {
        Self { raw, shape, rendered: false, added_meta: SmallVec::new(), fresh_ms: None }
    }

    /// A result that the gateway wrote itself, in the caller's own form.
    pub fn own(raw: Bytes) -> Self {
        Self { rendered: true, ..Self::upstream(raw, Shape::default()) }
    }

    /// `isError` of a tool result.
    pub fn is_error(&self) -> bool {
        self.shape.is_error == Some(true)
    }
}

/// The members of a result object that the gateway has to know of. Spans are offsets into the
/// raw object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// How many members the object has.
    pub members: usize,
    pub is_error: Option<bool>,
    /// The value of `_meta`, if that is an object.
    pub meta: Option<Range<usize>>,
    pub meta_empty: bool,
    /// `_meta` names a server.
    pub server_info: bool,
    /// `resultType` is there, and says `complete`.
    pub has_type: bool,
    pub complete: bool,
    /// `resultType` says `input_required`: the server asks something first.
    pub asks: bool,
    /// `structuredContent` is there, and is an object.
    pub structured: Option<bool>,
    /// The value of `ttlMs`, if that is a number of milliseconds; more than fits is as much as does.
    pub ttl_ms: u32,
    /// Members that only 2026-07-28 has.
    pub modern: SmallVec<[ModernMember; 3]>,
}

/// A member that only 2026-07-28 has. Documents are shorter than 4 GiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModernMember {
    pub kind: ModernKind,
    /// Only such members stand before it.
    pub leading: bool,
    pub start: u32,
    pub end: u32,
}

impl ModernMember {
    /// From the key's first quote to the value's end.
    pub fn span(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Which of them it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModernKind {
    Type,
    Ttl,
    Scope,
}

/// A JSON-RPC error object of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpcError {
    pub code: i64,
    /// The JSON string as it was written.
    pub message: Bytes,
    /// The JSON value as it was written.
    pub data: Option<Bytes>,
}

impl Reply {
    pub fn result(body: ResultBody) -> Self {
        Self { headers: SmallVec::new(), content: Content::Final(Final::Result(body)) }
    }

    pub fn nothing() -> Self {
        Self { headers: SmallVec::new(), content: Content::Nothing }
    }

    /// Lets `f` see, and change, the end of the reply: at once, or when its stream gets there.
    ///
    /// # Errors
    /// What `f` made of an end that is there already.
    pub fn map_end<F>(mut self, f: F) -> Result<Self, Error>
    where
        F: FnOnce(Result<Final, Error>) -> Result<Final, Error> + Send + 'static,
    {
        self.content = match self.content {
            Content::Final(answer) => Content::Final(f(Ok(answer))?),
            Content::Stream(stream) => {
                let mut f = Some(f);
                Content::Stream(Box::pin(stream.map(move |event| match (event, f.take()) {
                    (Event::End(end), Some(f)) => Event::End(f(end)),
                    (event, kept) => {
                        f = kept;
                        event
                    }
                })))
            }
            Content::Nothing => Content::Nothing,
        };
        Ok(self)
    }

    /// As `map_end`, but `f` may take its time, and whoever reads the reply waits for it.
    ///
    /// # Errors
    /// What `f` made of an end that is there already.
    pub async fn then_end<F, U>(mut self, f: F) -> Result<Self, Error>
    where
        F: FnOnce(Result<Final, Error>) -> U + Send + 'static,
        U: Future<Output = Result<Final, Error>> + Send + 'static,
    {
        self.content = match self.content {
            Content::Final(answer) => Content::Final(f(Ok(answer)).await?),
            Content::Stream(stream) => {
                let mut f = Some(f);
                Content::Stream(Box::pin(stream.then(move |event| match (event, f.take()) {
                    (Event::End(end), Some(f)) => Either::Left(f(end).map(Event::End)),
                    (event, kept) => {
                        f = kept;
                        Either::Right(ready(event))
                    }
                })))
            }
            Content::Nothing => Content::Nothing,
        };
        Ok(self)
    }
}

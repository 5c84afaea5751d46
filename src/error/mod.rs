//! The one error of the call path: a code, a sentence for the caller, and a private cause.
//!
//! The public half never holds a secret, an upstream's body, an internal address or a stack
//! trace. The private half (`cause`) is logged once, by `stack/trace.rs`, and never rendered.

mod code;

pub use code::{Code, Next};

use std::{borrow::Cow, error::Error as StdError, fmt, time::Duration};

use bytes::Bytes;

/// The kind of a call that ended because its own client did not answer what it was asked.
pub const CLIENT_SILENT: &str = "client_silent";

/// A refusal or a failure on the path of a call.
pub struct Error(Box<Inner>);

struct Inner {
    code: Code,
    message: Cow<'static, str>,
    form: Form,
    reason: Option<&'static str>,
    kind: Option<&'static str>,
    retryable: Option<bool>,
    next: Option<Next>,
    retry_after: Option<Duration>,
    limit: Option<Box<str>>,
    pointer: Option<Box<str>>,
    approval: Option<Box<str>>,
    connect: Option<Box<str>>,
    elicitations: Option<Bytes>,
    required: Option<Bytes>,
    faults: Option<Bytes>,
    unknown_outcome: bool,
    unsent: bool,
    from_upstream: bool,
    /// The message holds words of a server's, or a way in for its reader alone.
    confidential: bool,
    trouble: Option<Trouble>,
    headers: Vec<(http::HeaderName, http::HeaderValue)>,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

/// How a server failed, where that says something of the server, or of whether it is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// No connection came about.
    Unreached,
    /// It cannot be used at all until somebody mends it: TLS fails, its process does not start.
    Unusable,
    /// The connection ended before the answer did.
    Lost,
    /// It, or a gateway before it, says that it cannot serve at present: 502, 503, 504.
    Unavailable,
    /// It failed: another status from 500 on.
    Broken,
    /// It said nothing in time.
    Silent,
}

/// How the error must be told, where the taxonomy alone does not say.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// As `design.md` section 6 says: a tool result for a visible tool's call, else a JSON-RPC
    /// error with our own code, else a REST error object.
    Taxonomy,
    /// The protocol names its own code; `status` is for 2026-07-28, older revisions get 200.
    Protocol { rpc_code: i32, status: u16, data: Option<Bytes> },
    /// Transport, authentication and load: the HTTP status counts in every dialect and era.
    /// `rpc_code` overrides the taxonomy's.
    Http { status: u16, rpc_code: Option<i32> },
}

impl Error {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            code,
            message: message.into(),
            form: Form::Taxonomy,
            reason: None,
            kind: None,
            retryable: None,
            next: None,
            retry_after: None,
            limit: None,
            pointer: None,
            approval: None,
            connect: None,
            elicitations: None,
            required: None,
            faults: None,
            unknown_outcome: false,
            unsent: false,
            from_upstream: false,
            confidential: false,
            trouble: None,
            headers: Vec::new(),
            cause: None,
        }))
    }

    /// An error for which the protocol has its own code.
    pub fn protocol(
        code: Code,
        rpc_code: i32,
        status: u16,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        let mut error = Self::new(code, message);
        error.0.form = Form::Protocol { rpc_code, status, data: None };
        error
    }

    /// A failure of transport, authentication or load, told by its HTTP status.
    pub fn http(code: Code, status: u16, message: impl Into<Cow<'static, str>>) -> Self {
        let mut error = Self::new(code, message);
        error.0.form = Form::Http { status, rpc_code: None };
        error
    }

    /// The JSON-RPC code of a failure that is told by its HTTP status.
    pub fn with_rpc_code(mut self, code: i32) -> Self {
        if let Form::Http { rpc_code, .. } = &mut self.0.form {
            *rpc_code = Some(code);
        }
        self
    }

    /// The `data` member of a protocol error: one JSON value.
    pub fn with_data(mut self, json: impl Into<Bytes>) -> Self {
        if let Form::Protocol { data, .. } = &mut self.0.form {
            *data = Some(json.into());
        }
        self
    }

    /// Why, in the closed list of `hangu.reason` (`default_deny`, `rule_deny`, …).
    pub fn with_reason(mut self, reason: &'static str) -> Self {
        self.0.reason = Some(reason);
        self
    }

    /// `error.type` of telemetry: `timeout`, `connection_refused`, `tls`, …
    pub fn with_kind(mut self, kind: &'static str) -> Self {
        self.0.kind = Some(kind);
        self
    }

    pub fn with_cause(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// When the same call may be sent again.
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.0.retry_after = Some(after);
        self
    }

    /// Overrides the taxonomy's advice.
    pub fn with_advice(mut self, retryable: bool, next: Next) -> Self {
        self.0.retryable = Some(retryable);
        self.0.next = Some(next);
        self
    }

    /// The id of the limit that was hit.
    pub fn with_limit(mut self, id: impl Into<Box<str>>) -> Self {
        self.0.limit = Some(id.into());
        self
    }

    /// JSON pointer of the argument that is wrong.
    pub fn with_pointer(mut self, pointer: impl Into<Box<str>>) -> Self {
        self.0.pointer = Some(pointer.into());
        self
    }

    /// The request for approval that the call waits for, or that was refused.
    pub fn with_approval(mut self, id: impl fmt::Display) -> Self {
        self.0.approval = Some(id.to_string().into());
        self
    }

    /// Where the employee grants what is missing.
    pub fn with_connect(mut self, url: impl Into<Box<str>>) -> Self {
        self.0.connect = Some(url.into());
        self.confidential()
    }

    /// The message is for whoever called and for nobody else: it is written into no log.
    pub fn confidential(mut self) -> Self {
        self.0.confidential = true;
        self
    }

    /// Told as the protocol's own error that wants links followed first: they are one JSON list.
    pub fn with_elicitations(mut self, rpc_code: i32, json: impl Into<Bytes>) -> Self {
        self.0.elicitations = Some(json.into());
        self.0.form = Form::Protocol { rpc_code, status: 200, data: None };
        self
    }

    /// What the client would have to declare, as one JSON object.
    pub fn with_required_capabilities(mut self, json: Bytes) -> Self {
        self.0.required = Some(json);
        self
    }

    /// All that is wrong with what was sent, as one JSON list.
    pub fn with_faults(mut self, json: impl Into<Bytes>) -> Self {
        self.0.faults = Some(json.into());
        self
    }

    /// Bytes left and no answer came: whether the call took effect is not known.
    pub fn with_unknown_outcome(mut self) -> Self {
        self.0.unknown_outcome = true;
        self.0.unsent = false;
        self
    }

    /// Nothing of the call has left yet, whatever failed on the way.
    pub fn with_known_outcome(mut self) -> Self {
        self.0.unknown_outcome = false;
        self.0.unsent = true;
        self
    }

    /// The upstream said it or failed: not the gateway's own refusal.
    pub fn from_upstream(mut self) -> Self {
        self.0.from_upstream = true;
        self
    }

    /// How the server failed; `None`: what happened says nothing of it.
    pub fn with_trouble(mut self, trouble: impl Into<Option<Trouble>>) -> Self {
        self.0.trouble = trouble.into();
        self
    }

    /// A header of the answer, such as `RateLimit` or `WWW-Authenticate`.
    pub fn with_header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The sentence the caller reads.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn form(&self) -> &Form {
        &self.0.form
    }

    pub fn reason(&self) -> Option<&'static str> {
        self.0.reason
    }

    pub fn kind(&self) -> Option<&'static str> {
        self.0.kind
    }

    pub fn retryable(&self) -> bool {
        self.0.retryable.unwrap_or_else(|| self.0.code.retryable())
    }

    pub fn next(&self) -> Next {
        self.0.next.unwrap_or_else(|| self.0.code.next())
    }

    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    pub fn limit(&self) -> Option<&str> {
        self.0.limit.as_deref()
    }

    pub fn pointer(&self) -> Option<&str> {
        self.0.pointer.as_deref()
    }

    pub fn approval(&self) -> Option<&str> {
        self.0.approval.as_deref()
    }

    pub fn connect(&self) -> Option<&str> {
        self.0.connect.as_deref()
    }

    pub fn elicitations(&self) -> Option<&Bytes> {
        self.0.elicitations.as_ref()
    }

    pub fn required_capabilities(&self) -> Option<&Bytes> {
        self.0.required.as_ref()
    }

    pub fn faults(&self) -> Option<&Bytes> {
        self.0.faults.as_ref()
    }

    pub fn unknown_outcome(&self) -> bool {
        self.0.unknown_outcome
    }

    /// Nothing of the call has left, and whoever failed says so.
    pub fn is_unsent(&self) -> bool {
        self.0.unsent
    }

    pub fn is_from_upstream(&self) -> bool {
        self.0.from_upstream
    }

    pub fn trouble(&self) -> Option<Trouble> {
        self.0.trouble
    }

    pub fn headers(&self) -> &[(http::HeaderName, http::HeaderValue)] {
        &self.0.headers
    }

    /// The message, as far as a log may have it.
    fn logged(&self) -> &str {
        match self.0.confidential {
            true => self.0.kind.unwrap_or("what is said is its caller's"),
            false => &self.0.message,
        }
    }

    /// What really happened; for the log only.
    pub fn cause(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code, self.logged())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("code", &self.0.code)
            .field("message", &self.logged())
            .field("form", &self.0.form)
            .field("reason", &self.0.reason)
            .field("cause", &self.0.cause)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.cause.as_deref().map(|cause| cause as &(dyn StdError + 'static))
    }
}

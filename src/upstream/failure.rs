//! What can go wrong between the gateway and an upstream, and what the caller is told of it.
//!
//! The public sentence names the upstream by its configured name. Addresses, and what the
//! libraries say, stay in the cause.

use std::{error::Error as StdError, fmt, io, sync::Arc};

use pingora::ErrorType;
use rustls::AlertDescription;
use tokio::time::error::Elapsed;

use super::{egress::Denied, endpoint::Endpoint};
use crate::error::{Code, Error, Trouble};

/// Why a call was not sent where no address may be dialled.
pub const EGRESS_DENIED: &str = "egress_denied";

/// The private half of an upstream's error: where, how far it got, and why.
#[derive(Debug)]
pub struct Failure {
    endpoint: Option<Arc<Endpoint>>,
    sent: bool,
    source: Box<dyn StdError + Send + Sync>,
}

impl Failure {
    /// The failure behind an error of this module.
    pub fn of(error: &Error) -> Option<&Failure> {
        error.cause()?.downcast_ref()
    }

    /// The endpoint that was tried last, if one was.
    pub fn endpoint(&self) -> Option<&Arc<Endpoint>> {
        self.endpoint.as_ref()
    }

    /// Whether somebody may have seen the call: bytes of it left, and were not refused unread.
    pub fn sent(&self) -> bool {
        self.sent
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.endpoint {
            Some(endpoint) => write!(f, "{endpoint}: {}", self.source),
            None => self.source.fmt(f),
        }
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.source.as_ref())
    }
}

/// Whose failure it is.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub name: &'a str,
    pub endpoint: Option<&'a Arc<Endpoint>>,
    /// It is shown a certificate of the gateway's.
    pub shown: bool,
}

impl Scene<'_> {
    fn error(
        self,
        says: &str,
        kind: &'static str,
        sent: bool,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        let failure = Failure { endpoint: self.endpoint.cloned(), sent, source: source.into() };
        let says = format!("The upstream `{}` {says}.", self.name);
        let error =
            Error::new(Code::ExternalServiceError, says).with_kind(kind).with_cause(failure);
        if sent { error } else { error.with_known_outcome() }
    }

    /// No connection came about: nothing was sent.
    pub fn connect(self, error: pingora::BError) -> Error {
        if names_ours(&error.to_string()) {
            return self.uncertified(error);
        }
        let (kind, says) = match error.etype() {
            ErrorType::ConnectRefused => ("connection_refused", "refused the connection"),
            ErrorType::ConnectNoRoute => ("no_route", "cannot be reached"),
            ErrorType::TLSHandshakeFailure
            | ErrorType::TLSWantX509Lookup
            | ErrorType::InvalidCert
            | ErrorType::HandshakeError => ("tls", "could not be trusted: TLS failed"),
            _ => ("connect", "cannot be reached"),
        };
        let trouble = if kind == "tls" { Trouble::Unusable } else { Trouble::Unreached };
        self.error(says, kind, false, error).with_trouble(trouble)
    }

    /// Nor did it in time.
    pub fn connect_late(self, late: Elapsed) -> Error {
        self.error("did not take the connection in time", "timeout", false, late)
            .with_trouble(Trouble::Unreached)
    }

    /// No address is known: nothing was sent.
    pub fn unresolved(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.error("has no address that its name resolves to", "dns", false, source)
            .with_trouble(Trouble::Unreached)
    }

    /// Every address is one that may not be dialled: nothing was sent, and none will be.
    pub fn denied(self, denied: Denied) -> Error {
        let says = denied.told().unwrap_or_else(|| {
            format!("The upstream `{}` is where this gateway may not call.", self.name)
        });
        let failure = Failure { endpoint: None, sent: false, source: denied.into() };
        Error::new(Code::UnsafeActionBlocked, says)
            .with_reason(EGRESS_DENIED)
            .with_kind(EGRESS_DENIED)
            .with_cause(failure)
            .with_known_outcome()
    }

    /// The connection closed before any of the request was written to it.
    pub fn unsent(self, error: hyper::Error) -> Error {
        if is_about_ours(&error) {
            return self.uncertified(error);
        }
        self.error("closed the connection at once", "connection_closed", false, error)
            .with_trouble(Trouble::Unreached)
    }

    /// The request, or part of it, left, and no whole answer came.
    pub fn lost(self, error: hyper::Error) -> Error {
        let (kind, says) = if error.is_parse() || error.is_parse_too_large() {
            ("bad_response", "did not answer in HTTP")
        } else if is_reset(&error) {
            ("connection_reset", "reset the connection before its answer was complete")
        } else {
            ("connection_closed", "closed the connection before its answer was complete")
        };
        let lost = self.error(says, kind, true, error).with_unknown_outcome();
        // What is no HTTP is not lost: it would be the same the next time.
        if kind == "bad_response" { lost } else { lost.with_trouble(Trouble::Lost) }
    }

    /// The server wants another certificate than it was shown, or any at all. It has not read what
    /// was sent: in TLS 1.3 its answer to the handshake comes after the first request.
    fn uncertified(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        let says = match self.shown {
            true => "did not accept the certificate that it was shown",
            false => "wants to be shown a certificate, and there is none for it",
        };
        self.error(says, "client_certificate", false, source).with_trouble(Trouble::Unusable)
    }

    /// No answer came. Where the server refused the request before it looked at it, as HTTP/2 can
    /// say of one request (RFC 9113, 8.7), nobody has processed it.
    ///
    /// `fresh`: nothing was answered on this connection before.
    pub fn unanswered(self, error: hyper::Error, fresh: bool) -> Error {
        if fresh && is_about_ours(&error) {
            return self.uncertified(error);
        }
        if is_refused(&error) {
            let says = "refused the request before it was processed";
            return self
                .error(says, "stream_refused", false, error)
                .with_trouble(Trouble::Unreached);
        }
        self.lost(error)
    }

    /// The answer's encoding is broken or unknown.
    pub fn encoding(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.error("answered in an encoding that cannot be read", "bad_encoding", true, source)
            .with_unknown_outcome()
    }

    /// The answer sends the call elsewhere, which only the operator may do.
    pub fn redirected(self, why: String) -> Error {
        self.error("answered with a redirect to another place", "redirect", true, why)
    }

    /// The answer is no answer to a call.
    pub fn unexpected(self, why: String) -> Error {
        self.error("answered something that is no answer", "bad_response", true, why)
            .with_unknown_outcome()
    }

    /// The request cannot be put into HTTP.
    pub fn unsendable(self, why: String) -> Error {
        self.error("cannot be sent this request", "bad_request", false, why)
    }
}

/// Whether a server ended the handshake over the certificate that it was shown, or was not. Only
/// what TLS says of the connection counts, and no words of the server's own.
fn is_about_ours(error: &hyper::Error) -> bool {
    let mut source = StdError::source(error);
    while let Some(error) = source {
        // HTTP/2 keeps of such an error only its words.
        let io = error.downcast_ref::<io::Error>();
        let io = io.or_else(|| error.downcast_ref::<h2::Error>().and_then(h2::Error::get_io));
        if let Some(inner) = io.and_then(io::Error::get_ref) {
            return names_ours(&inner.to_string());
        }
        source = error.source();
    }
    false
}

/// Whether rustls tells of an alert about a certificate of ours.
fn names_ours(text: &str) -> bool {
    const ALERTS: [AlertDescription; 8] = [
        AlertDescription::AccessDenied,
        AlertDescription::BadCertificate,
        AlertDescription::CertificateExpired,
        AlertDescription::CertificateRequired,
        AlertDescription::CertificateRevoked,
        AlertDescription::CertificateUnknown,
        AlertDescription::UnknownCA,
        AlertDescription::UnsupportedCertificate,
    ];
    let Some((_, alert)) = text.split_once("received fatal alert: ") else { return false };
    let alert = alert.split(|c: char| !c.is_ascii_alphanumeric()).next();
    ALERTS.iter().any(|known| known.as_str() == alert)
}

fn is_refused(error: &hyper::Error) -> bool {
    let mut source = StdError::source(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            return error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
        source = error.source();
    }
    false
}

fn is_reset(error: &hyper::Error) -> bool {
    let mut source = StdError::source(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return matches!(io.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe);
        }
        source = error.source();
    }
    false
}

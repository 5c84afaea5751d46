//! Why a request is not carried out, and how that is told.

use std::{borrow::Cow, time::Duration};

use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;
use serde_json::json;

use crate::error::{Code, Next};

#[derive(Debug)]
pub(super) struct Failure {
    pub code: Code,
    pub status: StatusCode,
    pub message: Cow<'static, str>,
    pub retry_after: Option<Duration>,
    /// The methods that have a meaning.
    pub allow: Option<Box<str>>,
}

// === impl Failure ===

impl Failure {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let status = StatusCode::from_u16(code.rest_status()).unwrap_or(StatusCode::BAD_REQUEST);
        Self { code, status, message: message.into(), retry_after: None, allow: None }
    }

    /// The error object that every dialect knows.
    pub fn response(&self) -> Response<Full<Bytes>> {
        let next = match self.code {
            Code::InvalidArgs => Next::RepairArgs,
            code => code.next(),
        };
        let mut error = json!({
            "code": self.code.as_str(),
            "message": self.message,
            "retryable": self.code.retryable(),
            "next": next.as_str(),
        });
        if let Some(after) = self.retry_after {
            error["retryAfterMs"] = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into();
        }
        let mut response = super::super::json(self.status, &json!({ "error": error }));
        let headers = response.headers_mut();
        if let Some(after) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs() + 1));
        }
        let allow = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok());
        if let Some(allow) = allow {
            headers.insert(header::ALLOW, allow);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"hangu-admin\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

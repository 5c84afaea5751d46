//! Pages for a person: what to say, and where to go on.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use url::Url;

use super::super::consent::Invitation;
use crate::{body::Body, credential::oauth::TokenFault, error::Code};

/// A page.
pub(super) struct Page {
    status: StatusCode,
    title: String,
    /// What is below the title, as HTML.
    html: String,
    /// Why it is no good news, for the record.
    pub fault: Option<Fault>,
    /// It has a form.
    leads_on: bool,
}

/// Why somebody was not connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault {
    pub code: Code,
    pub reason: &'static str,
}

/// The page that asks whoever opens an invitation whether it is his.
pub(super) struct Form<'a> {
    pub action: String,
    pub invitation: &'a Invitation,
}

impl Page {
    pub fn good(title: &str, text: &str) -> Self {
        Self {
            status: StatusCode::OK,
            title: title.to_owned(),
            html: format!("<p>{}</p>", Escaped(text)),
            fault: None,
            leads_on: false,
        }
    }

    pub fn refused(code: Code, reason: &'static str, text: &str) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            fault: Some(Fault { code, reason }),
            ..Self::good("Not connected", text)
        }
    }

    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// What went wrong is for the log; the page says no more than what to do.
    pub fn failed(fault: TokenFault) -> Self {
        tracing::warn!(error = %fault, "An employee could not be connected to a server");
        let (status, code, reason, text) = match fault {
            TokenFault::Unreachable(_) => (
                StatusCode::BAD_GATEWAY,
                Code::ExternalServiceError,
                "authorization_server",
                "The authorization server cannot be asked. Call the tool again for another link.",
            ),
            TokenFault::Vault(_) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                Code::Internal,
                "store_unavailable",
                "The grant could not be kept. Ask whoever runs this gateway.",
            ),
            _ => (
                StatusCode::BAD_GATEWAY,
                Code::ExternalServiceError,
                "not_trusted",
                "The authorization server and the gateway do not agree. Ask whoever runs this \
                 gateway: its log says why.",
            ),
        };
        Self::refused(code, reason, text).with_status(status)
    }

    pub fn response(self) -> Response<Body> {
        let html = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title>\
             <h1>{title}</h1>{}</html>",
            self.html,
            title = Escaped(&self.title),
        );
        let mut response = Response::new(Body::from(Bytes::from(html)));
        *response.status_mut() = self.status;
        // A browser that tells nobody where it was says of a form, too, that it comes from nowhere.
        let referrer = if self.leads_on { "same-origin" } else { "no-referrer" };
        let headers = response.headers_mut();
        for (name, value) in [
            (header::CONTENT_TYPE, "text/html; charset=utf-8"),
            (header::CACHE_CONTROL, "no-store"),
            (header::REFERRER_POLICY, referrer),
            (header::X_FRAME_OPTIONS, "DENY"),
            // `form-action` would be asked about the authorization server, too, where the form's
            // answer leads: nobody knows it yet.
            (
                header::CONTENT_SECURITY_POLICY,
                "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
            ),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl Form<'_> {
    pub fn page(self) -> Page {
        let Invitation { tenant, employee, name, server, owner, .. } = self.invitation;
        // Where an operator's server is, is nobody else's to know.
        let host = owner.as_ref().and_then(|_| Url::parse(server).ok());
        let host = host.as_ref().and_then(Url::host_str);
        let host = host.map(|host| format!(" at {host}")).unwrap_or_default();
        let html = format!(
            "<p>This connects <strong>{employee} of {tenant}</strong> to the server \
             <strong>{name}</strong>{host}.</p>\
             <p>From then on, {employee} uses the server with the account that you sign in with \
             next. <strong>Go on only if you are {employee}</strong>, and asked for this yourself. \
             If somebody sent you this link, close the page: he would be given your account.</p>\
             <form method=\"post\" action=\"{action}\"><button>I am {employee}: continue</button>\
             </form>",
            employee = Escaped(employee),
            tenant = Escaped(tenant),
            name = Escaped(name),
            host = Escaped(&host),
            action = Escaped(&self.action),
        );
        Page { html, leads_on: true, ..Page::good(&format!("Connect {employee} to {name}"), "") }
    }
}

/// A text in HTML.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c => fmt::Write::write_char(f, c)?,
            }
        }
        Ok(())
    }
}

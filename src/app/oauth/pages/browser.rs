//! What a browser brings, and what it is given to keep.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderValue, Response, header, request};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::{body::Body, credential::oauth::INVITED_MS};

/// Where the cookie is sent, where browsers take no other's for it without that.
const COOKIE_PATH: &str = "/v1/oauth";

/// A request of a browser's.
pub(super) struct Browser {
    /// A parameter that stands there twice is none.
    query: Vec<(String, String)>,
    cookies: Vec<String>,
    /// Where the request says that it comes from.
    site: Option<String>,
    origin: Option<String>,
    /// Where the gateway itself is.
    own: Option<String>,
}

/// From where a browser brings again what it keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    /// From the gateway's own pages.
    OnThisSite,
    /// Also when it is led here from elsewhere.
    ThereAndBack,
}

impl Browser {
    pub fn of(request: &request::Parts, own: Option<String>) -> Self {
        let query = request.uri.query().unwrap_or_default();
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let header = |name| request.headers.get(name).and_then(text);
        Self {
            query: url::form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            cookies: request.headers.get_all(header::COOKIE).iter().filter_map(text).collect(),
            site: header("sec-fetch-site"),
            origin: header("origin"),
            own,
        }
    }

    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut found = self.query.iter().filter(|(known, _)| known == name);
        let value = found.next().map(|(_, value)| &**value);
        value.filter(|_| found.next().is_none())
    }

    /// Whether a page of the gateway's own sent it here. Browsers say so of every form, in one way
    /// at least.
    pub fn is_of_our_page(&self) -> bool {
        let by_site = self.site.as_deref().map(|site| site == "same-origin");
        let by_origin = self.origin.as_ref().map(|origin| self.own.as_ref() == Some(origin));
        let said = [by_site, by_origin];
        said.iter().flatten().all(|ours| *ours) && said.iter().any(Option::is_some)
    }

    /// Whether it keeps, under this name, what has this digest.
    pub fn kept(&self, of: &str, wanted: &str) -> bool {
        let name = self.cookie_name(of);
        let brought = self.cookies.iter().flat_map(|line| line.split(';')).find_map(|pair| {
            let (known, value) = pair.trim().split_once('=')?;
            (known == name).then_some(value)
        });
        let same = |value: &str| digest(value).as_bytes().ct_eq(wanted.as_bytes()).into();
        brought.is_some_and(same)
    }

    /// Gives it something to keep, under this name.
    pub fn keep(&self, response: &mut Response<Body>, of: &str, value: &str, lasting: Lasting) {
        let name = self.cookie_name(of);
        let place = match self.is_secure() {
            true => "/; Secure",
            false => COOKIE_PATH,
        };
        let site = match lasting {
            Lasting::OnThisSite => "Strict",
            Lasting::ThereAndBack => "Lax",
        };
        let age = INVITED_MS / 1_000;
        let cookie =
            format!("{name}={value}; Path={place}; Max-Age={age}; HttpOnly; SameSite={site}");
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            response.headers_mut().insert(header::SET_COOKIE, cookie);
        }
    }

    fn is_secure(&self) -> bool {
        self.own.as_ref().is_some_and(|own| own.starts_with("https:"))
    }

    /// Of its own for each ticket: somebody may connect to two servers at once. With the prefix, no
    /// other host of the domain can set one in its place.
    fn cookie_name(&self, of: &str) -> String {
        let prefix = if self.is_secure() { "__Host-" } else { "" };
        let digest = digest(of);
        let plain = digest.chars().filter(char::is_ascii_alphanumeric).take(12);
        format!("{prefix}hangu-{}", plain.collect::<String>())
    }
}

/// 256 bits, as text.
pub(super) fn random() -> String {
    URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

pub(super) fn digest(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(text))
}

//! Small checks and answers of HTTP that every request of a client meets, whatever it says.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header as http_header};

use crate::{
    body::Body,
    error::{Code, Error},
    mcp::header,
};

pub(super) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

pub(super) fn not_allowed(allow: &'static str) -> Error {
    Error::http(Code::InvalidArgs, 405, "this method has no meaning here")
        .with_header(http_header::ALLOW, HeaderValue::from_static(allow))
}

/// A body must say that it is JSON; the type's name has no case and may have parameters.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), Error> {
    let value = headers.get(http_header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Error::http(Code::InvalidArgs, 415, "the body's Content-Type must be application/json"))
}

/// A header that may stand only once.
pub(super) fn one_header<'a>(
    headers: &'a HeaderMap,
    name: &http::HeaderName,
) -> Result<Option<&'a str>, Error> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(sent_twice(name));
    }
    first
        .to_str()
        .map(|text| Some(text.trim()))
        .map_err(|_| Error::http(Code::InvalidArgs, 400, format!("the header {name} is no text")))
}

/// Whether only what would happen is asked.
pub(super) fn is_dry_run(headers: &HeaderMap) -> Result<bool, Error> {
    match one_header(headers, &header::DRY_RUN)? {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        // Who means one is not to be served as if he did not.
        Some(_) => {
            Err(Error::http(Code::InvalidArgs, 400, "the header X-Dry-Run is true or false"))
        }
    }
}

/// Which of two values is meant nobody can say, and whoever stands between may take the other.
pub(super) fn sent_twice(name: &http::HeaderName) -> Error {
    Error::http(Code::InvalidArgs, 400, format!("the header {name} is sent twice"))
}

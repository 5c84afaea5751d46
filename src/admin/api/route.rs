//! What one thing that can be asked is made of, and which of them a request is about.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use hyper::body::Bytes;
use serde_json::Value;

use super::{Api, Failure, ROUTES, tokens::Need};
use crate::error::Code;

/// One thing that can be asked.
pub(super) struct Route {
    /// Names it for programs, and is the name of no other.
    pub id: &'static str,
    pub method: Method,
    /// With `{name}` for each part that is given.
    pub path: &'static str,
    pub summary: &'static str,
    pub need: Need,
    /// What is recorded of it; nothing for what only looks.
    pub action: Option<&'static str>,
    pub query: &'static [Parameter],
    /// The JSON Schema of the body, where there is one.
    pub body: Option<&'static str>,
    pub run: for<'a> fn(&'a Api, Asked<'a>) -> BoxFuture<'a, Result<Value, Failure>>,
}

/// A parameter of a query.
#[derive(Clone, Copy)]
pub(super) struct Parameter {
    pub name: &'static str,
    pub what: &'static str,
    pub required: bool,
}

/// What a request says beside which route it is about.
pub(super) struct Asked<'a> {
    pub query: &'a str,
    /// What stands for each `{name}` of the path, in its order.
    pub given: Vec<String>,
    pub body: Bytes,
    /// The token's name.
    pub who: Arc<str>,
}

/// The route of a path, and what is given in it.
pub(super) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Failure> {
    let mut allowed = Vec::new();
    for route in &ROUTES {
        let Some(given) = route.matches(path) else { continue };
        if route.method == *method || (route.method == Method::GET && *method == Method::HEAD) {
            return Ok((route, given));
        }
        allowed.push(route.method.as_str());
    }
    if allowed.is_empty() {
        return Err(Failure::new(Code::NotFound, "there is nothing at this path"));
    }
    Err(Failure {
        status: StatusCode::METHOD_NOT_ALLOWED,
        allow: Some(allowed.join(", ").into()),
        ..Failure::new(Code::InvalidArgs, "this method has no meaning here")
    })
}

// === impl Route ===

impl Route {
    /// Whether it changes something.
    pub fn writes(&self) -> bool {
        self.method != Method::GET
    }

    /// The names of the parts that are given.
    pub fn parts(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(name_of)
    }

    /// What stands for the parts that are given; nothing for another path.
    fn matches(&self, path: &str) -> Option<Vec<String>> {
        let (mut ours, mut theirs) = (self.path.split('/'), path.split('/'));
        let mut given = Vec::new();
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return Some(given),
                (Some(our), Some(their)) if name_of(our).is_some() => {
                    given.push(Some(unescaped(their)).filter(|given| !given.is_empty())?);
                }
                (Some(our), Some(their)) if our == their => {}
                _ => return None,
            }
        }
    }
}

/// The name of a part that is given.
fn name_of(part: &'static str) -> Option<&'static str> {
    part.strip_prefix('{')?.strip_suffix('}')
}

/// What a part of a path stands for.
fn unescaped(part: &str) -> String {
    // A plus is a plus in a path.
    let escaped = format!("p={}", part.replace('+', "%2B").replace('&', "%26"));
    let mut pairs = url::form_urlencoded::parse(escaped.as_bytes());
    pairs.next().map_or_else(String::new, |(_, value)| value.into_owned())
}

// === impl Asked ===

impl Asked<'_> {
    /// What stands for the only part that is given, or the first.
    pub fn given(&self) -> &str {
        self.given.first().map_or("", String::as_str)
    }

    /// The first value of that name in the query, unescaped.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
    }

    /// The same as a number within bounds.
    pub fn number(&self, name: &str, most: u32, otherwise: u32) -> Result<u32, Failure> {
        let Some(text) = self.parameter(name) else { return Ok(otherwise) };
        text.parse().ok().filter(|number| (1..=most).contains(number)).ok_or_else(|| {
            let message = format!("`{name}` is a number from 1 to {most}");
            Failure::new(Code::InvalidArgs, message)
        })
    }

    /// Names that the query has and the route does not know.
    pub fn unknown(&self, route: &Route) -> Option<String> {
        let mut pairs = url::form_urlencoded::parse(self.query.as_bytes());
        let known = |name: &str| route.query.iter().any(|parameter| parameter.name == name);
        pairs.find(|(name, _)| !known(name)).map(|(name, _)| name.chars().take(64).collect())
    }
}

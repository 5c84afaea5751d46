//! `WWW-Authenticate` of a server that wants a token, or one with more scopes (RFC 6750, RFC 9728).

use http::{HeaderMap, header};

use super::{bounded, metadata::is_short};

/// What a server asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Challenge {
    /// Where it describes itself.
    pub resource_metadata: Option<String>,
    /// The scopes that it wants, separated by blanks.
    pub scope: Option<String>,
    /// `invalid_token`, `insufficient_scope`, …
    pub error: Option<String>,
}

impl Challenge {
    /// The first `Bearer` challenge among the headers of an answer.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let found = values.filter_map(|value| value.to_str().ok()).find_map(Self::parse)?;
        // What is longer than anybody needs is as good as not said.
        Some(Self {
            resource_metadata: found.resource_metadata.filter(|place| is_short(place)),
            scope: found.scope.and_then(bounded),
            error: found.error,
        })
    }

    pub fn wants_more_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    fn parse(text: &str) -> Option<Self> {
        let mut challenge: Option<Self> = None;
        let mut rest = text;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return challenge;
            }
            let end = rest.find([' ', '\t', ',', '=']);
            let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
            let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
            let Some(value) = value else {
                // Another scheme begins.
                if challenge.is_some() {
                    return challenge;
                }
                challenge = word.eq_ignore_ascii_case("bearer").then(Self::default);
                rest = after;
                continue;
            };
            let (value, after) = read_value(value.trim_start_matches([' ', '\t']))?;
            if let Some(challenge) = &mut challenge {
                let place = match word.to_ascii_lowercase().as_str() {
                    "resource_metadata" => Some(&mut challenge.resource_metadata),
                    "scope" => Some(&mut challenge.scope),
                    "error" => Some(&mut challenge.error),
                    _ => None,
                };
                if let Some(place) = place {
                    place.get_or_insert(value);
                }
            }
            rest = after;
        }
    }
}

/// A token or a quoted text, and what follows it.
fn read_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return Some((value.to_owned(), rest));
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, quoted.get(at + 1..).unwrap_or_default())),
            '\\' => value.push(chars.next()?.1),
            c => value.push(c),
        }
    }
    None
}

//! The addresses of servers: one key for one address, and no secret in any.

use std::path::Path;

use hangu::{
    config::Config,
    model::server_key::{normalised, server_key},
};
use url::Url;

use super::{Verdict, holds, target};

const WORDS: &[&str] = &[
    "http://",
    "https://",
    "HTTP://",
    "example.com",
    "EXAMPLE.com.",
    "127.0.0.1",
    "[::1]",
    ":80",
    ":443",
    ":8080",
    "/",
    "//",
    "/mcp",
    "%7e",
    "%7E",
    "%2f",
    "%2e",
    "%",
    "%%32e",
    "%+1",
    "%zz",
    "é",
    "?",
    "&",
    "=",
    "a=1",
    "b=2",
    "token=s",
    "#part",
    "user:pw@",
    " ",
    "..",
    "/./",
    "\\",
    "bücher.example",
    "%00",
    "+",
    "api_key=s",
    "&&",
];

/// Parameters that hold what nobody but the server may know.
const SECRET: [&str; 10] = [
    "token",
    "api_key",
    "ACCESS_TOKEN",
    "client_secret",
    "exampleApiKey",
    "password",
    "sig",
    "t%6Fken",
    "sessionId",
    "x-auth",
];

#[test]
fn an_address_has_one_key_however_it_is_written() {
    target("url", WORDS, |input, _| check(&String::from_utf8_lossy(input)));
}

fn check(text: &str) -> Verdict {
    let Ok(url) = Url::parse(text) else { return Ok(()) };
    if !matches!(url.scheme(), "http" | "https") {
        return Ok(());
    }
    let normal = normalised(&url);
    let Ok(again) = Url::parse(&normal) else {
        return holds(false, || format!("{normal:?} is no address"));
    };
    let twice = normalised(&again);
    holds(twice == normal, || format!("{normal:?} becomes {twice:?}"))?;
    holds(server_key(&again) == server_key(&url), || "another key".into())?;
    // What the path says is what it said.
    let (before, after) = (decoded(url.path()), decoded(again.path()));
    holds(before == after, || format!("the path of {url} becomes {}", again.path()))?;
    if let Some(query) = url.query() {
        let mut pairs: Vec<&str> = query.split('&').collect();
        pairs.reverse();
        let mut other = url.clone();
        other.set_query(Some(&pairs.join("&")));
        holds(server_key(&other) == server_key(&url), || "the order counts".into())?;
    }
    // The part after `#` never reaches a server.
    let mut other = url.clone();
    other.set_fragment(Some("x"));
    holds(server_key(&other) == server_key(&url), || "the fragment counts".into())?;
    secrets(url)
}

/// The bytes of a path; an escaped slash is not one.
fn decoded(path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        let byte = match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        match byte {
            Some(b'/') => out.extend_from_slice(b"%2F"),
            Some(byte) => out.push(byte),
            None => out.push(*first),
        }
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    out
}

/// C64: wherever it stands in the query, a secret is refused, and not repeated.
fn secrets(mut url: Url) -> Verdict {
    for name in SECRET {
        let query = url.query().unwrap_or_default().to_owned();
        url.set_query(Some(&format!("{query}&{name}=hush-hush-hush")));
        let yaml = format!(
            "version: hangu/v1\nlisten: 127.0.0.1:0\ncallers: {{}}\nupstreams:\n  up: {{ url: {} }}\n",
            serde_json::Value::from(url.as_str())
        );
        let loaded = Config::read("url.yaml", yaml, Path::new("."), &|_| None);
        let faults = format!("{:?}", loaded.faults);
        holds(loaded.config.is_none(), || format!("{name} is let through in {url}"))?;
        // The file itself is in a fault's source, which nobody prints.
        let told: Vec<&str> = loaded.faults.iter().map(|fault| &*fault.message).collect();
        holds(!told.iter().any(|text| text.contains("hush-hush-hush")), || faults)?;
        url.set_query(Some(&query).filter(|query| !query.is_empty()).map(String::as_str));
    }
    Ok(())
}

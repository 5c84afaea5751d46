//! serverKey: one name for one address, whoever writes it down.
//!
//! Only equivalences of RFC 3986 section 6.2 count: a path is case-sensitive, a slash matters.

use std::{fmt::Write as _, sync::Arc};

use sha2::{Digest, Sha256};
use url::{Host, Url};

use super::trace::to_hex;

/// Labels that say nothing of which server it is.
const DULL: [&str; 3] = ["www", "api", "mcp"];
const SLUG_MAX: usize = 20;

/// `mcp_` + slug + `_` + the first 8 hexadecimal digits of SHA-256 over the normalised URL.
pub fn server_key(url: &Url) -> Arc<str> {
    let digest = Sha256::digest(normalised(url).as_bytes());
    format!("mcp_{}_{}", slug(url), to_hex(&digest[..4])).into()
}

/// Whether a text has the form of a key.
pub fn is_server_key(text: &str) -> bool {
    let Some((slug, digits)) = text.strip_prefix("mcp_").and_then(|rest| rest.rsplit_once('_'))
    else {
        return false;
    };
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=SLUG_MAX).contains(&slug.len())
        && slug.bytes().all(legal)
        && digits.len() == 8
        && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The URL in its normal form: the parser has lowered scheme and host, turned IDN to ASCII and
/// dropped the default port; the trailing dot, the path's encoding, the order of the query and
/// the fragment are left to do.
pub fn normalised(url: &Url) -> String {
    let mut out = format!("{}://", url.scheme());
    let host = url.host_str().unwrap_or_default();
    // The root's dot; a host with an empty label is nobody's name, and no other host either.
    let rooted = host.strip_suffix('.').filter(|rest| !rest.is_empty() && !rest.ends_with('.'));
    out.push_str(rooted.unwrap_or(host));
    if let Some(port) = url.port() {
        // Writing to a string cannot fail.
        let _ = write!(out, ":{port}");
    }
    push_normal_path(&mut out, url.path());
    if let Some(query) = url.query().filter(|query| !query.is_empty()) {
        let mut pairs: Vec<&str> = query.split('&').collect();
        pairs.sort_unstable();
        out.push('?');
        out.push_str(&pairs.join("&"));
    }
    out
}

/// Decodes what need not be encoded, and writes what must be in upper case; a percent sign that
/// begins no escape stands for itself, and must not begin one when what follows is decoded.
fn push_normal_path(out: &mut String, path: &str) {
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        let hex = rest.get(at + 1..at + 3);
        let hex = hex.filter(|hex| hex.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(byte) => {
                let unreserved =
                    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
                if unreserved {
                    out.push(char::from(byte));
                } else {
                    let _ = write!(out, "%{byte:02X}");
                }
                rest = &rest[at + 3..];
            }
            None => {
                out.push_str("%25");
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
}

fn slug(url: &Url) -> String {
    let label = match url.host() {
        Some(Host::Domain(host)) => host.split('.').find(|label| !DULL.contains(label)),
        _ => None,
    };
    // Of the normal form, or one address would have two slugs.
    let mut path = String::new();
    push_normal_path(&mut path, url.path());
    let segment = || path.split('/').nth(1);
    let source = label.or_else(segment).unwrap_or_default().to_ascii_lowercase();
    let legal = |c: &char| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-';
    let slug: String = source.chars().filter(legal).take(SLUG_MAX).collect();
    if slug.is_empty() { "server".into() } else { slug }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(url: &str) -> Arc<str> {
        server_key(&Url::parse(url).unwrap())
    }

    /// C63.
    #[test]
    fn equal_addresses_have_one_key_and_others_do_not() {
        for (a, b, same) in [
            ("HTTPS://Example.COM:443/mcp", "https://example.com/mcp", true),
            ("http://example.com", "http://example.com:80/", true),
            ("http://example.com:/", "http://example.com/", true),
            ("http://example.com./", "http://example.com/", true),
            ("https://example.com/%7euser", "https://example.com/~user", true),
            ("https://example.com/a%2fb", "https://example.com/a%2Fb", true),
            ("https://example.com/x?b=2&a=1", "https://example.com/x?a=1&b=2", true),
            ("https://example.com/x#part", "https://example.com/x", true),
            ("http://127.0.0.1/%7euser", "http://127.0.0.1/~user", true),
            ("http://example.com../", "http://example.com/", false),
            ("https://bücher.example/", "https://xn--bcher-kva.example/", true),
            ("https://example.com/a%2Fb", "https://example.com/a/b", false),
            ("https://example.com/%%32e", "https://example.com/%2e", false),
            ("https://example.com/%+1", "https://example.com/%01", false),
            ("https://example.com/MCP", "https://example.com/mcp", false),
            ("http://example.com/", "https://example.com/", false),
            ("https://example.com/mcp", "https://example.com/mcp/", false),
        ] {
            assert_eq!(key(a) == key(b), same, "{a} {b}");
        }
    }

    /// The published table, worked out by hand and by another program.
    #[test]
    fn the_published_vectors_hold() {
        let table = include_str!("../../tests/fixtures/server_key.json");
        let table: Vec<serde_json::Value> = serde_json::from_str(table).unwrap();
        assert!(table.len() > 20);
        for row in &table {
            let text = |name: &str| row[name].as_str().unwrap();
            let url = Url::parse(text("url")).unwrap();
            assert_eq!(normalised(&url), text("normalised"), "{url}");
            assert_eq!(&*server_key(&url), text("serverKey"), "{url}");
            assert!(is_server_key(&server_key(&url)), "{url}");
        }
        for bad in
            ["", "mcp_a_", "mcp__12345678", "mcp_a_1234567g", "mcp_A_12345678", "a_b_12345678"]
        {
            assert!(!is_server_key(bad), "{bad}");
        }
    }

    #[test]
    fn the_slug_is_what_people_call_the_server() {
        for (url, slug) in [
            ("https://www.api.order-query.example.com/mcp", "order-query"),
            ("http://127.0.0.1:7001/mcp/http", "mcp"),
            ("http://[::1]/", "server"),
            ("https://averyveryverylonglabelindeed.example/", "averyveryverylonglab"),
        ] {
            let key = key(url);
            assert_eq!(key.strip_prefix("mcp_").unwrap().rsplit_once('_').unwrap().0, slug);
        }
    }
}

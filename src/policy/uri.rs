//! How a resource's URI is spelled. Not here: whether anybody may read it.

/// Whether a URI has no plainer spelling of the same resource (RFC 3986, section 6.2.2): scheme
/// and host in lower case, no segments `.` and `..`, nothing encoded that need not be, no encoded
/// separators. Globs compare texts, so any other spelling could pass by a rule.
pub fn is_plain(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    let scheme_is_plain = scheme.bytes().all(|byte| {
        byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.')
    });
    let (host, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
        None => ("", rest),
    };
    let legal = |c: char| !c.is_control() && !matches!(c, ' ' | '\\');
    scheme_is_plain
        && !scheme.is_empty()
        && !host.bytes().any(|byte| byte.is_ascii_uppercase())
        && uri.chars().all(legal)
        && !path.split(['/', '?', '#']).any(|segment| matches!(segment, "." | ".."))
        && escapes_are_plain(uri.as_bytes())
}

/// Each `%` begins an escape in upper case of what must be escaped, and of no separator.
fn escapes_are_plain(text: &[u8]) -> bool {
    text.iter().enumerate().filter(|(_, byte)| **byte == b'%').all(|(at, _)| {
        let (Some(high), Some(low)) = (text.get(at + 1), text.get(at + 2)) else { return false };
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return false };
        let byte = high << 4 | low;
        let unreserved = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~');
        !unreserved && !matches!(byte, b'/' | b'\\' | 0)
    })
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_is_plain_unless_another_spelling_means_the_same() {
        for plain in [
            "file:///a/b.txt",
            "orders://de/2026/7",
            "https://a.example/x?q=A%20b#c",
            "urn:isbn:0451450523",
            "db:row/Ümlaut",
            "git+ssh://host/a..b/...",
        ] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "",
            "no-scheme",
            ":x",
            "FILE:///a",
            "https://A.example/x",
            "file:///a/../b",
            "file:///a/./b",
            "file:///a/..",
            "x:../b",
            "file:///%61",
            "file:///a%2Fb",
            "file:///a%2fb",
            "file:///%c3%a9",
            "file:///a%2E%2E/b",
            "file:///a%5Cb",
            "file:///a%00",
            "file:///a\\..\\b",
            "file:///a%",
            "file:///a%4",
            "file:///a b",
            "file:///a\u{0}b",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }
}

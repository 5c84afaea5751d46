//! How a resource's URI is spelled, and which template it may come from. Not here: whether anybody
//! may read it.

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

/// A piece of a URI template (RFC 6570).
enum Piece<'t> {
    Literal(&'t [u8]),
    /// `{x}`: at least one character, and none that separates.
    Simple,
    /// `{+x}`, `{?x}` and their like, and what cannot be told.
    Anything,
}

/// Whether a URI may be an expansion of a template.
pub fn expands(template: &str, uri: &str) -> bool {
    let uri = uri.as_bytes();
    // By position in the URI: whether the pieces so far can end there. One pass for each piece,
    // whatever the URI is made of.
    let mut ends = vec![false; uri.len() + 1];
    if let Some(start) = ends.first_mut() {
        *start = true;
    }
    for piece in pieces(template) {
        let mut next = vec![false; ends.len()];
        let mut open = false;
        for (at, end) in ends.iter().copied().enumerate() {
            let reached = match piece {
                Piece::Literal(literal) => {
                    if end && uri.get(at..).is_some_and(|rest| rest.starts_with(literal)) {
                        set(&mut next, at + literal.len());
                    }
                    continue;
                }
                Piece::Simple => {
                    let reached = open;
                    open = (open || end)
                        && uri.get(at).is_some_and(|byte| !matches!(byte, b'/' | b'?' | b'#'));
                    reached
                }
                Piece::Anything => {
                    open |= end;
                    open
                }
            };
            if reached {
                set(&mut next, at);
            }
        }
        ends = next;
    }
    ends.last().is_some_and(|whole| *whole)
}

fn set(ends: &mut [bool], at: usize) {
    if let Some(end) = ends.get_mut(at) {
        *end = true;
    }
}

fn pieces(template: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((literal, behind)) = rest.split_once('{') {
        pieces.push(Piece::Literal(literal.as_bytes()));
        let Some((variable, after)) = behind.split_once('}') else {
            pieces.push(Piece::Anything);
            return pieces;
        };
        let simple = variable.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        pieces.push(if simple { Piece::Simple } else { Piece::Anything });
        rest = after;
    }
    pieces.push(Piece::Literal(rest.as_bytes()));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_comes_from_a_template_whose_pieces_it_is_made_of() {
        for (template, hits, misses) in [
            (
                "crm://c/{id}",
                &["crm://c/1", "crm://c/a.b-c"][..],
                &["crm://c/", "crm://c/1/2", "crm://d/1", "crm://c/1?x"][..],
            ),
            ("x:{a}-{b}", &["x:1-2", "x:1-2-3", "x:---"], &["x:-2", "x:1-", "x:12"]),
            ("file:///{+path}", &["file:///a/b/c", "file:///"], &["file:/a"]),
            ("q://s{?q,lang}", &["q://s?q=a&lang=b", "q://s"], &["q://"]),
            ("q://{a}/end", &["q://x/end"], &["q://x/endless", "q://x/y/end"]),
            ("plain:a", &["plain:a"], &["plain:ab", "plain:"]),
            ("odd:{a", &["odd:", "odd:anything"], &["od"]),
        ] {
            for hit in hits {
                assert!(expands(template, hit), "{template} {hit}");
            }
            for miss in misses {
                assert!(!expands(template, miss), "{template} {miss}");
            }
        }
        // However many ways there are, they are not tried one by one.
        let many = "{a}".repeat(40);
        assert!(!expands(&format!("{many}!"), &"a".repeat(4_000)));
    }

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

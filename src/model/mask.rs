//! Text of others without the secrets that they were given: servers repeat what they were sent
//! where they refuse it, and processes write their variables to their error output.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::BytesMut;
use memchr::memmem;
use zeroize::Zeroizing;

use super::sensitive::REMOVED;

/// What is shorter is no secret that could be told from other text.
const SHORTEST: usize = 6;

/// Secrets, in the forms in which they may be repeated; the longest first, for one may hold
/// another.
#[derive(Default)]
pub struct Mask(Vec<Zeroizing<String>>);

impl Mask {
    /// A value of a header, with its scheme or without.
    pub fn header(&mut self, value: &str) {
        self.form(value);
        let Some((scheme, rest)) = value.split_once(' ') else { return };
        self.form(rest);
        if scheme.eq_ignore_ascii_case("basic")
            && let Ok(pair) = STANDARD.decode(rest).map(Zeroizing::new)
            && let Ok(pair) = std::str::from_utf8(&pair)
            && let Some((_, password)) = pair.split_once(':')
        {
            self.form(password);
        }
    }

    /// Any text; one of several lines may be repeated line by line.
    pub fn text(&mut self, text: &str) {
        text.lines().map(str::trim).for_each(|line| self.form(line));
    }

    fn form(&mut self, text: &str) {
        if text.len() < SHORTEST {
            return;
        }
        self.put(text);
        // As JSON writes it, where that is another text.
        if let Ok(quoted) = serde_json::to_string(text).map(Zeroizing::new)
            && let Some(inner) = quoted.get(1..quoted.len() - 1).filter(|inner| *inner != text)
        {
            self.put(inner);
        }
    }

    fn put(&mut self, form: &str) {
        let place = self.0.partition_point(|known| known.len() >= form.len());
        self.0.insert(place, Zeroizing::new(form.to_owned()));
    }

    /// The length of the longest form.
    pub fn longest(&self) -> usize {
        self.0.first().map_or(0, |form| form.len())
    }

    /// Puts a word in the place of each that stands in a text.
    pub fn apply(&self, text: &mut BytesMut) {
        for form in &self.0 {
            let finder = memmem::Finder::new(form.as_bytes());
            if finder.find(text).is_none() {
                continue;
            }
            let mut masked = BytesMut::with_capacity(text.len());
            let mut rest: &[u8] = text;
            while let Some(at) = finder.find(rest) {
                let (before, found) = rest.split_at(at);
                masked.extend_from_slice(before);
                masked.extend_from_slice(REMOVED.as_bytes());
                rest = found.get(form.len()..).unwrap_or_default();
            }
            masked.extend_from_slice(rest);
            *text = masked;
        }
    }
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_secret_stays() {
        for (text, header, expected) in [
            ("no key sk-123456 here", "sk-123456", "no key [removed] here"),
            ("Bearer sk-123456!", "Bearer sk-123456", "[removed]!"),
            ("token sk-123456!", "Bearer sk-123456", "token [removed]!"),
            ("ann, pass:word is wrong", "Basic YW5uOnBhc3M6d29yZA==", "ann, [removed] is wrong"),
            ("YW5uOnBhc3M6d29yZA== is", "Basic YW5uOnBhc3M6d29yZA==", "[removed] is"),
            (r#"{"m":"a\"bc\\de"}"#, "a\"bc\\de", r#"{"m":"[removed]"}"#),
            ("sk-123456sk-123456", "sk-123456", "[removed][removed]"),
            ("what is short stays: on", "on", "what is short stays: on"),
            ("nothing of the kind", "sk-123456", "nothing of the kind"),
        ] {
            let mut mask = Mask::default();
            mask.header(header);
            let mut masked = BytesMut::from(text.as_bytes());
            mask.apply(&mut masked);
            assert_eq!(String::from_utf8_lossy(&masked), expected);
        }
        let mut mask = Mask::default();
        ["sk-123456", "sk-123456-more", "-----BEGIN\nabcdef\n"].iter().for_each(|it| mask.text(it));
        let mut masked = BytesMut::from(&b"sk-123456-more, abcdef, sk-123456"[..]);
        mask.apply(&mut masked);
        assert_eq!(String::from_utf8_lossy(&masked), "[removed], [removed], [removed]");
        assert_eq!(mask.longest(), 14);
    }
}

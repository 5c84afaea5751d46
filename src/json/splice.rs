//! Changing some places of a JSON text and leaving all others as they were written.
//!
//! It knows where members lie and where their commas are; what is to be changed is said elsewhere.

use std::ops::Range;

use bytes::Bytes;

use super::{Doc, Duplicates, Key, Limits, Value, write_str};

/// Changes to one text, at places that do not overlap.
#[derive(Debug, Default)]
pub struct Edits(Vec<(Range<usize>, Vec<u8>)>);

/// Reads a text that was checked before, to change it; nothing where it was not.
pub fn document(text: &Bytes) -> Option<Doc> {
    let limits = Limits { depth: 512, duplicates: Duplicates::Allow, outline: 3 };
    Doc::parse(text.clone(), &limits).ok()
}

/// Where a member lies in its document, from the key's first quote to the value's end.
pub fn member_span(doc: &Doc, key: Key<'_>, value: Value<'_>) -> Range<usize> {
    // Both are slices of one buffer; the key's first quote stands one byte before it.
    let key = key.raw().as_ptr() as usize - doc.text().as_ptr() as usize;
    key - 1..value.offset() + value.raw().len()
}

/// A member's span with the comma that goes with it: the one before it where something that
/// stays stands before it, else (`leading`) the one behind it, if there is one.
pub fn with_comma(raw: &[u8], span: &Range<usize>, leading: bool) -> Range<usize> {
    let Range { start, end } = *span;
    let blank = |b: &&u8| b.is_ascii_whitespace();
    if leading {
        let gap = raw[end..].iter().take_while(blank).count();
        let comma = raw.get(end + gap) == Some(&b',');
        return start..if comma { end + gap + 1 } else { end };
    }
    let gap = raw[..start].iter().rev().take_while(blank).count();
    start - gap - 1..end
}

impl Edits {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a text where something else stood.
    pub fn put(&mut self, span: Range<usize>, text: impl Into<Vec<u8>>) {
        self.0.push((span, text.into()));
    }

    /// Puts a string where a value stood.
    pub fn put_str(&mut self, value: Value<'_>, text: &str) {
        let mut written = Vec::with_capacity(text.len() + 2);
        write_str(&mut written, text);
        self.put(value.offset()..value.offset() + value.raw().len(), written);
    }

    /// Takes members out of an object.
    pub fn remove(&mut self, doc: &Doc, object: Value<'_>, is_out: impl Fn(Key<'_>) -> bool) {
        let mut leading = true;
        for (key, value) in object.members() {
            if is_out(key) {
                let span = member_span(doc, key, value);
                self.put(with_comma(doc.text(), &span, leading), Vec::new());
            } else {
                leading = false;
            }
        }
    }

    /// The text with every change made.
    pub fn apply(mut self, text: &Bytes) -> Bytes {
        self.0.sort_by_key(|(span, _)| (span.start, span.end));
        let added: usize = self.0.iter().map(|(_, text)| text.len()).sum();
        let mut out = Vec::with_capacity(text.len() + added);
        let mut at = 0;
        for (span, new) in self.0 {
            out.extend_from_slice(&text[at..span.start]);
            out.extend_from_slice(&new);
            at = span.end;
        }
        out.extend_from_slice(&text[at..]);
        out.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_leaves_with_one_comma() {
        for (text, left) in [
            (r#"{"a":1}"#, "{}"),
            (r#"{"a":1,"b":2}"#, r#"{"b":2}"#),
            (r#"{"b":2 , "a":1 }"#, r#"{"b":2  }"#),
            (r#"{ "a" : 1 , "c":[1,2] ,"b":2}"#, r#"{  "b":2}"#),
            (r#"{"a":1,"b":1.0,"c":{"a":1},"d":{"a":1}}"#, r#"{"b":1.0,"d":{"a":1}}"#),
            (r#"{"\u0061":1,"b":2,"a":3}"#, r#"{"b":2}"#),
        ] {
            let text = Bytes::from(text);
            let doc = document(&text).unwrap();
            let mut edits = Edits::default();
            edits.remove(&doc, doc.root(), |key| key.is("a") || key.is("c"));
            assert_eq!(edits.apply(&text), left, "{text:?}");
        }
    }

    #[test]
    fn changes_are_made_in_the_order_of_the_text() {
        let text = Bytes::from(r#"{"a":"x","b":"y"}"#);
        let doc = document(&text).unwrap();
        let mut edits = Edits::default();
        edits.put_str(doc.root().get("b").unwrap(), "é\"");
        edits.put_str(doc.root().get("a").unwrap(), "");
        edits.put(1..1, "\"c\":1,");
        assert_eq!(edits.apply(&text), r#"{"c":1,"a":"","b":"é\""}"#);
    }
}

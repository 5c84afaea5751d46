//! What there is to say about each fault code: a page each, with an example and its remedy.
//!
//! The pages are texts beside this file. That their examples really have the fault, and the
//! remedies none, is tried by a test of the command that shows them.

use super::FaultCode;

const TEXTS: [&str; 4] = [
    include_str!("yaml.txt"),
    include_str!("config.txt"),
    include_str!("policy.txt"),
    include_str!("warnings.txt"),
];

/// One code, explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub code: FaultCode,
    pub title: &'static str,
    pub text: &'static str,
    pub wrong: Vec<Example>,
    pub right: Vec<Example>,
}

/// A file, or a part of `hangu.yaml` that stands for its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub file: &'static str,
    pub text: &'static str,
}

impl Page {
    /// The page of a code. Each has one.
    pub fn of(code: FaultCode) -> Option<Page> {
        pages().find(|page| page.code == code)
    }
}

/// Every page, in the order of the texts.
pub fn pages() -> impl Iterator<Item = Page> {
    TEXTS.into_iter().flat_map(|text| sections(text, "=== ")).filter_map(|(head, body)| {
        let (code, title) = head.split_once(' ')?;
        let code = FaultCode::ALL.iter().copied().find(|known| known.as_str() == code)?;
        let text = body.split("\n--- ").next().unwrap_or_default().trim();
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for (head, text) in sections(body, "--- ") {
            let (kind, file) = head.split_once(' ')?;
            let example = Example { file, text: text.trim_end() };
            if kind == "wrong" { wrong.push(example) } else { right.push(example) }
        }
        Some(Page { code, title, text, wrong, right })
    })
}

/// The parts of a text that begin with a line that begins with the mark.
fn sections(
    text: &'static str,
    mark: &'static str,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let starts = text.match_indices(mark);
    let starts = starts.map(|(at, _)| at);
    let starts = starts.filter(move |at| *at == 0 || text.as_bytes().get(at - 1) == Some(&b'\n'));
    let starts: Vec<usize> = starts.collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(move |(start, end)| {
        let part = text.get(start + mark.len()..end).unwrap_or_default();
        part.split_once('\n').unwrap_or((part, ""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_page_with_an_example_and_its_remedy() {
        let mut codes: Vec<_> = pages().map(|page| page.code).collect();
        codes.sort();
        let mut all = FaultCode::ALL.to_vec();
        all.sort();
        assert_eq!(codes, all);
        for page in pages() {
            assert!(!page.title.is_empty() && !page.text.is_empty(), "{}", page.code);
            assert!(!page.wrong.is_empty() && !page.right.is_empty(), "{}", page.code);
        }
    }

    #[test]
    fn no_page_is_wider_than_a_screen() {
        for text in TEXTS {
            for line in text.lines() {
                assert!(line.chars().count() <= 110, "{line}");
            }
        }
    }
}

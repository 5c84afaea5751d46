//! What a demo server remembers of its last calls, so that a test can ask what really arrived.
//!
//! Names and ids only: no arguments, no results, and of headers the names alone.

use std::collections::{HashMap, VecDeque};

use http::{HeaderMap, HeaderName};
use parking_lot::Mutex;

use crate::mcp::header;

/// How many calls are remembered, and how much of each text.
const ENTRIES: usize = 256;
const TEXT: usize = 128;

/// The last calls of one server, and how often each tool was called.
#[derive(Debug, Default)]
pub struct Journal(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    counts: HashMap<String, u64>,
}

/// One call as it arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// `tools/list`, `tools/call`, `initialize`, … on either dialect.
    pub method: String,
    pub tool: Option<String>,
    /// The employee the server believed.
    pub emp_id: Option<String>,
    pub call_source: Option<String>,
    pub trace_id: Option<String>,
    /// From the header, else from the argument of that name.
    pub idempotency_key: Option<String>,
    /// The names of all headers that came.
    pub headers: Vec<HeaderName>,
}

impl Entry {
    /// What the headers of a call tell.
    pub(super) fn of(method: &str, headers: &HeaderMap) -> Self {
        let text = |name: HeaderName| {
            headers.get(name).map(|value| short(&String::from_utf8_lossy(value.as_bytes())))
        };
        Self {
            method: short(method),
            call_source: text(header::CALL_SOURCE),
            trace_id: text(header::TRACE_ID),
            idempotency_key: text(header::IDEMPOTENCY_KEY),
            headers: headers.keys().cloned().collect(),
            ..Self::default()
        }
    }

    pub(super) fn with_tool(mut self, tool: &str) -> Self {
        self.tool = Some(short(tool));
        self
    }
}

impl Journal {
    /// The calls remembered, oldest first.
    pub fn entries(&self) -> Vec<Entry> {
        self.0.lock().entries.iter().cloned().collect()
    }

    /// How often a tool was called since the start, whatever became of the calls.
    pub fn count(&self, tool: &str) -> u64 {
        self.0.lock().counts.get(tool).copied().unwrap_or(0)
    }

    /// Forgets everything: the counts too.
    pub fn clear(&self) {
        *self.0.lock() = Inner::default();
    }

    /// Adds a call. Only a tool that exists is counted, so that names cannot fill the memory.
    pub(super) fn note(&self, entry: Entry, known_tool: bool) {
        let mut inner = self.0.lock();
        if let (true, Some(tool)) = (known_tool, &entry.tool) {
            *inner.counts.entry(tool.clone()).or_default() += 1;
        }
        if inner.entries.len() == ENTRIES {
            inner.entries.pop_front();
        }
        inner.entries.push_back(entry);
    }
}

/// The text, or its beginning.
pub(super) fn short(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_calls_and_counts_all() {
        let journal = Journal::default();
        for _ in 0..ENTRIES + 10 {
            journal.note(Entry::of("tools/call", &HeaderMap::new()).with_tool("a"), true);
        }
        journal.note(Entry::of("tools/call", &HeaderMap::new()).with_tool("unknown"), false);
        assert_eq!(journal.entries().len(), ENTRIES);
        assert_eq!(journal.count("a"), ENTRIES as u64 + 10);
        assert_eq!(journal.count("unknown"), 0);
        journal.clear();
        assert_eq!((journal.entries().len(), journal.count("a")), (0, 0));
    }

    #[test]
    fn keeps_the_names_of_headers_and_no_secret() {
        let mut headers = HeaderMap::new();
        headers.insert(header::API_KEY, "planted-secret".parse().unwrap());
        headers.insert(header::CALL_SOURCE, "mcp".parse().unwrap());
        headers.insert(header::TRACE_ID, "t".repeat(1_000).parse().unwrap());
        let entry = Entry::of("tools/list", &headers);
        assert_eq!(entry.headers.len(), 3);
        assert_eq!(entry.call_source.as_deref(), Some("mcp"));
        assert_eq!(entry.trace_id.as_ref().map(String::len), Some(TEXT));
        assert!(!format!("{entry:?}").contains("planted-secret"));
    }
}

//! Where an exchange stands in a trace: contexts of callers read, judged, and ids given.

use http::{HeaderMap, HeaderName};

use super::env::Sampler;
use crate::{
    mcp::header,
    model::{
        ids,
        trace::{TraceContext, TraceParent},
    },
};

/// Whose trace context is obeyed (`trace.trust`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// Nobody's: it is linked.
    Never,
    /// That of callers who are known; whose key is refused is told apart afterwards.
    #[default]
    Authenticated,
    Always,
}

/// What decides over contexts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contexts {
    pub trust: Trust,
    pub sampler: Sampler,
    /// Spans go somewhere; without that, no trace begins here as sampled.
    pub exporting: bool,
}

/// A context that cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Invalid;

impl Contexts {
    /// The context of a request, from its HTTP headers.
    pub fn begin(&self, headers: &HeaderMap) -> (TraceContext, Result<(), Invalid>) {
        let (parent, result) = match from_headers(headers) {
            Ok(parent) => (parent, Ok(())),
            Err(invalid) => (None, Err(invalid)),
        };
        let obeyed = parent.filter(|_| self.trust != Trust::Never);
        let mut context = self.root();
        if let Some(parent) = obeyed {
            context.trace_id = parent.trace_id;
            context.http_trace = parent.trace_id;
            context.http_parent = Some(parent);
            context.sampled = self.samples(parent.trace_id, Some(parent.sampled));
            context.http_sampled = context.sampled;
            context.tracestate = trace_state(&all(headers, header::TRACESTATE));
        } else {
            context.link = parent;
        }
        (context, result)
    }

    /// Takes in the context of a request's `_meta`.
    pub fn adopt(
        &self,
        context: &mut TraceContext,
        traceparent: &str,
        tracestate: Option<&str>,
    ) -> Result<(), Invalid> {
        let parent = TraceParent::parse(traceparent).ok_or(Invalid)?;
        if self.trust == Trust::Never {
            context.link = Some(parent);
            return Ok(());
        }
        context.trace_id = parent.trace_id;
        context.meta_parent = Some(parent);
        context.sampled = self.samples(parent.trace_id, Some(parent.sampled));
        context.tracestate = tracestate.and_then(trace_state);
        Ok(())
    }

    /// The caller turned out to be nobody: what he sent is linked, and decides nothing.
    pub fn distrust(&self, context: &mut TraceContext) {
        let seen = context.meta_parent.or(context.http_parent);
        if self.trust == Trust::Always || seen.is_none() {
            return;
        }
        *context = TraceContext {
            http_span: context.http_span,
            span_id: context.span_id,
            link: seen,
            ..self.root()
        };
    }

    fn root(&self) -> TraceContext {
        let trace_id = ids::trace_id();
        let sampled = self.samples(trace_id, None);
        TraceContext {
            trace_id,
            http_trace: trace_id,
            http_span: ids::span_id(),
            span_id: ids::span_id(),
            sampled,
            http_sampled: sampled,
            ..TraceContext::default()
        }
    }

    fn samples(&self, trace_id: [u8; 16], parent: Option<bool>) -> bool {
        if !self.exporting {
            // Not ours to decide; who does record further down keeps the caller's decision.
            return parent.unwrap_or(false);
        }
        match parent {
            Some(sampled) if self.sampler.parent_based => sampled,
            _ => within(trace_id, self.sampler.ratio),
        }
    }
}

/// Whether a trace is in the given share of all: by its id, so that all who ask agree.
fn within(trace_id: [u8; 16], ratio: f64) -> bool {
    const RANGE: f64 = (1u64 << 63) as f64;
    let [.., a, b, c, d, e, f, g, h] = trace_id;
    let place = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
    ratio >= 1.0 || (place as f64) < ratio * RANGE
}

/// The context of the headers; one that is there twice is none.
fn from_headers(headers: &HeaderMap) -> Result<Option<TraceParent>, Invalid> {
    let mut values = headers.get_all(header::TRACEPARENT).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Invalid);
    }
    let text = value.to_str().map_err(|_| Invalid)?;
    TraceParent::parse(text.trim()).map(Some).ok_or(Invalid)
}

/// The values of a header that may be split over several.
fn all(headers: &HeaderMap, name: HeaderName) -> String {
    let mut joined = String::new();
    for value in headers.get_all(name) {
        if !joined.is_empty() {
            joined.push(',');
        }
        // What is not ASCII makes the list unreadable, as it should.
        joined.push_str(value.to_str().unwrap_or("\u{fffd}"));
    }
    joined
}

/// A `tracestate` as it may be passed on: at most 512 characters and 32 entries, whole ones;
/// `None` if there is nothing, or if it breaks the grammar.
fn trace_state(text: &str) -> Option<Box<str>> {
    const LENGTH: usize = 512;
    const ENTRIES: usize = 32;
    const LONG: usize = 128;
    let mut entries: Vec<&str> = text
        .split(',')
        .map(|entry| entry.trim_matches([' ', '\t']))
        .filter(|entry| !entry.is_empty())
        .collect();
    if !entries.iter().all(|entry| is_entry(entry)) {
        return None;
    }
    let length = |entries: &[&str]| entries.iter().map(|entry| entry.len() + 1).sum::<usize>();
    if length(&entries) > LENGTH + 1 {
        // The recommendation gives up the longest first, then the oldest.
        entries.retain(|entry| entry.len() <= LONG);
    }
    entries.truncate(ENTRIES);
    while length(&entries) > LENGTH + 1 {
        entries.pop();
    }
    (!entries.is_empty()).then(|| entries.join(",").into())
}

fn is_entry(entry: &str) -> bool {
    let Some((key, value)) = entry.split_once('=') else { return false };
    let key_byte =
        |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let value_byte = |b: u8| matches!(b, 0x20..=0x7e) && b != b'=';
    !key.is_empty()
        && key.len() <= 256
        && key.bytes().all(key_byte)
        && !value.is_empty()
        && value.len() <= 256
        && value.bytes().all(value_byte)
}

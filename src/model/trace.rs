//! W3C trace context: what comes in, what goes out (`telemetry.md` section 4).

/// A context as a peer sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub sampled: bool,
}

impl TraceParent {
    /// Reads a `traceparent`; `None` for whatever the recommendation calls invalid. A higher
    /// version is read by the rules of version 00.
    pub fn parse(text: &str) -> Option<TraceParent> {
        let bytes = text.as_bytes();
        let [v0, v1, b'-', rest @ ..] = bytes else { return None };
        let version = [hex(*v0)?, hex(*v1)?];
        if version == [15, 15] {
            return None;
        }
        let (trace, rest) = rest.split_at_checked(32)?;
        let (b'-', rest) = rest.split_first()? else { return None };
        let (span, rest) = rest.split_at_checked(16)?;
        let (b'-', rest) = rest.split_first()? else { return None };
        let (flags, rest) = rest.split_at_checked(2)?;
        let more_is_legal = version != [0, 0] && rest.first() == Some(&b'-');
        if !rest.is_empty() && !more_is_legal {
            return None;
        }
        let mut trace_id = [0; 16];
        let mut span_id = [0; 8];
        unhex(trace, &mut trace_id)?;
        unhex(span, &mut span_id)?;
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        let mut flag = [0];
        unhex(flags, &mut flag)?;
        Some(TraceParent { trace_id, span_id, sampled: flag[0] & 1 == 1 })
    }

    /// The header's value, version 00.
    pub fn render(&self) -> String {
        let mut out = String::with_capacity(55);
        out.push_str("00-");
        push_hex(&mut out, &self.trace_id);
        out.push('-');
        push_hex(&mut out, &self.span_id);
        out.push_str(if self.sampled { "-01" } else { "-00" });
        out
    }
}

/// Lower-case hexadecimal digits only; the recommendation forbids the others.
fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

fn unhex(text: &[u8], out: &mut [u8]) -> Option<()> {
    for (pair, byte) in text.chunks_exact(2).zip(out) {
        let [high, low] = pair else { return None };
        *byte = hex(*high)? << 4 | hex(*low)?;
    }
    Some(())
}

/// Appends bytes in lower-case hexadecimal.
pub fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    out.reserve(bytes.len() * 2);
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Bytes in lower-case hexadecimal.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    push_hex(&mut out, bytes);
    out
}

/// The exchange's own place in a trace.
#[derive(Debug, Clone, Default)]
pub struct TraceContext {
    /// Of the MCP server span, and of all that happens below it.
    pub trace_id: [u8; 16],
    /// Of the HTTP server span; another one only where `_meta` named another trace.
    pub http_trace: [u8; 16],
    /// Of the HTTP server span.
    pub http_span: [u8; 8],
    /// Of the MCP server span.
    pub span_id: [u8; 8],
    /// The parent of the HTTP server span: the HTTP header's context, if good and trusted.
    pub http_parent: Option<TraceParent>,
    /// The parent of the MCP server span, when that is not the HTTP server span: the context
    /// of `_meta`.
    pub meta_parent: Option<TraceParent>,
    /// What was seen but not obeyed: linked instead.
    pub link: Option<TraceParent>,
    /// Whether the MCP spans are recorded; peers further down are told the same.
    pub sampled: bool,
    /// Whether the HTTP server span is recorded.
    pub http_sampled: bool,
    /// Kept only beside a good `traceparent`.
    pub tracestate: Option<Box<str>>,
}

impl TraceContext {
    /// The context that goes to an upstream: that of a CLIENT span of this exchange.
    pub fn outgoing(&self, client_span: [u8; 8]) -> TraceParent {
        TraceParent { trace_id: self.trace_id, span_id: client_span, sampled: self.sampled }
    }

    /// The digits of `trace_id_hex`.
    pub fn trace_id_digits(&self) -> [u8; 32] {
        super::ids::hex(self.trace_id)
    }

    /// The trace id as it is shown: 32 hexadecimal digits.
    pub fn trace_id_hex(&self) -> String {
        let mut out = String::with_capacity(32);
        push_hex(&mut out, &self.trace_id);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_good_context_survives_a_round_trip() {
        let parent = TraceParent::parse(GOOD).unwrap();
        assert!(parent.sampled);
        assert_eq!(parent.render(), GOOD);
    }

    #[test]
    fn a_higher_version_is_read_as_version_00() {
        let text = format!("cc{}-what-comes-later", &GOOD[2..]);
        assert_eq!(TraceParent::parse(&text).unwrap().render(), GOOD);
    }

    #[test]
    fn what_is_malformed_is_no_context() {
        for bad in [
            "",
            "00-zz-01",
            &GOOD.to_uppercase(),
            &GOOD.replace("00-", "ff-"),
            &format!("{GOOD}-more"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}

//! Results in the form the caller's dialect wants, written around the server's bytes.
//!
//! Only the result's own members are touched: what the era demands is put in, what it does not
//! know is cut out, and the rest stays as it came.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{SERVER_INFO_MEMBER, downgrade, jsonrpc};
use crate::{
    json::{self, Kind, Value, splice},
    mcp::{meta, rpc},
    model::{
        exchange::NorthDialect,
        reply::{Final, ModernKind, ModernMember, ResultBody, RpcError, Shape},
    },
};

/// The members of a result that only 2026-07-28 has.
fn modern_only(name: &[u8]) -> Option<ModernKind> {
    match name {
        b"resultType" => Some(ModernKind::Type),
        b"ttlMs" => Some(ModernKind::Ttl),
        b"cacheScope" => Some(ModernKind::Scope),
        _ => None,
    }
}

/// Looks once at a result object for what rendering has to know of it.
pub fn shape(result: Value<'_>) -> Shape {
    let base = result.raw().as_ptr() as usize;
    let span = |raw: &[u8]| {
        let start = raw.as_ptr() as usize - base;
        start..start + raw.len()
    };
    let mut shape = Shape::default();
    let mut leading = true;
    for (key, value) in result.members() {
        shape.members += 1;
        let name = key.name();
        let modern = modern_only(&name);
        leading &= modern.is_some();
        match &*name {
            b"isError" => shape.is_error = Some(value.kind() == Kind::True),
            b"_meta" if value.kind() == Kind::Object => {
                shape.meta = Some(span(value.raw()));
                shape.meta_empty = value.members().next().is_none();
                shape.server_info = value.get(meta::SERVER_INFO).is_some();
            }
            b"resultType" => {
                shape.complete = value.is_str("complete");
                shape.asks = value.is_str("input_required");
                shape.has_type = true;
            }
            b"structuredContent" => shape.structured = Some(value.kind() == Kind::Object),
            b"ttlMs" => {
                let ms = value.as_i64().unwrap_or(0).clamp(0, u32::MAX.into());
                shape.ttl_ms = u32::try_from(ms).unwrap_or(u32::MAX);
            }
            _ => {}
        }
        if let Some(kind) = modern {
            // The key's first quote stands one byte before it.
            let whole = span(key.raw()).start - 1..span(value.raw()).end;
            // Documents are shorter than what fits.
            let (start, end) = (whole.start as u32, whole.end as u32);
            shape.modern.push(ModernMember { kind, leading, start, end });
        }
    }
    shape
}

/// The same result with other bytes, which are JSON as they were.
pub fn with_raw(body: &ResultBody, raw: Bytes) -> ResultBody {
    let shape = splice::document(&raw).map_or_else(Shape::default, |doc| shape(doc.root()));
    ResultBody { raw, shape, ..body.clone() }
}

/// The pieces of a result for a dialect, written between `head` and `tail`; nothing large is
/// copied.
pub fn result(
    head: Vec<u8>,
    body: &ResultBody,
    dialect: NorthDialect,
    tail: &'static [u8],
) -> SmallVec<[Bytes; 3]> {
    let mut out = Pieces { written: head, parts: SmallVec::new(), tail };
    let older;
    let body = match dialect {
        NorthDialect::Legacy(version)
            if !body.rendered && downgrade::concerns(&body.shape, version) =>
        {
            let changed = downgrade::result(&body.raw, &body.shape, version);
            older = changed.map(|raw| with_raw(body, raw));
            older.as_ref().unwrap_or(body)
        }
        _ => body,
    };
    let raw = &body.raw;
    if body.rendered && body.added_meta.is_empty() {
        out.keep(raw.clone());
        return out.finish();
    }
    let modern = dialect == NorthDialect::Modern && !body.rendered;
    let shape = &body.shape;
    let mut edits: SmallVec<[(Range<usize>, Vec<u8>); 4]> = SmallVec::new();
    let mut front = Vec::with_capacity(FRONT);
    let mut kept = shape.members;
    if modern && !shape.has_type {
        front.extend_from_slice(b"\"resultType\":\"complete\",");
    }
    if dialect == NorthDialect::McpLite && !body.rendered && shape.is_error.is_none() {
        front.extend_from_slice(b"\"isError\":false,");
    }
    if modern && let Some(ms) = body.fresh_ms {
        hints(shape, ms, &mut front, &mut edits);
    }
    let mut added = Vec::new();
    if modern && !shape.server_info {
        added = Vec::with_capacity(FRONT);
        added.extend_from_slice(SERVER_INFO_MEMBER.as_bytes());
    }
    for (key, value) in &body.added_meta {
        if !added.is_empty() {
            added.push(b',');
        }
        json::write_str(&mut added, key);
        added.push(b':');
        added.extend_from_slice(value);
    }
    if !added.is_empty() {
        match &shape.meta {
            Some(span) => {
                if !shape.meta_empty {
                    added.push(b',');
                }
                edits.push((span.start + 1..span.start + 1, added));
            }
            None => {
                front.extend_from_slice(b"\"_meta\":{");
                front.extend_from_slice(&added);
                front.extend_from_slice(b"},");
            }
        }
    }
    if !modern && !body.rendered {
        for member in &shape.modern {
            edits.push((splice::with_comma(raw, &member.span(), member.leading), Vec::new()));
            kept -= 1;
        }
    }
    if !front.is_empty() {
        if kept == 0 {
            front.pop();
        }
        edits.push((1..1, front));
    }
    // What is put in at a place comes before what is cut out from there.
    edits.sort_by_key(|(span, _)| (span.start, span.end));
    let mut at = 0;
    for (span, text) in edits {
        out.keep(raw.slice(at..span.start));
        out.written.extend_from_slice(&text);
        at = span.end;
    }
    out.keep(raw.slice(at..));
    out.finish()
}

/// The caching hints, in the place of the server's own or at the front. What one employee may
/// read is nobody else's.
fn hints(
    shape: &Shape,
    fresh_ms: u32,
    front: &mut Vec<u8>,
    edits: &mut SmallVec<[(Range<usize>, Vec<u8>); 4]>,
) {
    let scope = b"\"cacheScope\":\"private\"".to_vec();
    for (kind, text) in [
        (ModernKind::Ttl, format!("\"ttlMs\":{fresh_ms}").into_bytes()),
        (ModernKind::Scope, scope),
    ] {
        match shape.modern.iter().find(|member| member.kind == kind) {
            Some(member) => edits.push((member.span(), text)),
            None => {
                front.extend_from_slice(&text);
                front.push(b',');
            }
        }
    }
}

/// A whole JSON-RPC response around a reply's end.
pub fn response(id: &[u8], end: &Final, dialect: NorthDialect) -> SmallVec<[Bytes; 3]> {
    match end {
        Final::Result(body) => {
            let room = if body.raw.len() < SMALL { body.raw.len() + FRONT } else { FRONT };
            result(jsonrpc::result_head(id, room), body, dialect, b"}")
        }
        Final::Error(error) => {
            let bytes = jsonrpc::error_response(
                Some(id),
                error.code,
                &error.message,
                error.data.as_deref(),
            );
            smallvec::smallvec![bytes]
        }
    }
}

/// The most that an error repeats of what was asked for, in characters.
const SHOWN: usize = 128;

/// Under which code a revision says that a resource does not exist.
pub fn not_found_code(dialect: NorthDialect) -> i32 {
    match dialect {
        NorthDialect::Legacy(_) => rpc::RESOURCE_NOT_FOUND,
        NorthDialect::Modern | NorthDialect::McpLite => rpc::INVALID_PARAMS,
    }
}

/// What goes with it.
pub fn not_found_data(uri: &str) -> Vec<u8> {
    let mut data = b"{\"uri\":".to_vec();
    json::write_str(&mut data, uri);
    data.push(b'}');
    data
}

/// What is said with it, of the URI as the caller has it.
pub fn not_found_message(uri: &str) -> String {
    let shown: String = uri.chars().take(SHOWN).collect();
    format!("resource not found: {shown}")
}

/// A server's answer to a request for a resource, where it says that there is none, as the
/// caller's revision says that, of the URI that the caller asked for. Any other error stays.
///
/// In the gateway's words: in the server's own, what policy hides could be told from what does
/// not exist, and on the aggregate they name the URI as the server has it.
pub fn not_found(error: RpcError, uri: &str, dialect: NorthDialect) -> RpcError {
    let names_uri = || {
        let doc = error.data.as_ref().and_then(splice::document);
        doc.is_some_and(|doc| doc.root().get("uri").is_some())
    };
    let is_not_found = error.code == i64::from(rpc::RESOURCE_NOT_FOUND)
        || (error.code == i64::from(rpc::INVALID_PARAMS) && names_uri());
    if !is_not_found {
        return error;
    }
    let mut message = Vec::new();
    json::write_str(&mut message, &not_found_message(uri));
    RpcError {
        code: not_found_code(dialect).into(),
        message: message.into(),
        data: Some(not_found_data(uri).into()),
    }
}

/// The HTTP status of a server's own JSON-RPC error: older revisions know only 200.
pub fn rpc_status(code: i64, dialect: NorthDialect) -> u16 {
    let named = |of: i32| code == i64::from(of);
    match dialect {
        NorthDialect::Modern if named(rpc::METHOD_NOT_FOUND) => 404,
        NorthDialect::Modern
            if named(rpc::HEADER_MISMATCH)
                || named(rpc::MISSING_CAPABILITY)
                || named(rpc::UNSUPPORTED_VERSION) =>
        {
            400
        }
        _ => 200,
    }
}

/// Pieces up to this size are copied into one; larger ones are sent as they are.
const SMALL: usize = 16 * 1024;

/// Room for what a result is given in front: as a rule it is no more.
const FRONT: usize = 192;

struct Pieces {
    written: Vec<u8>,
    parts: SmallVec<[Bytes; 3]>,
    tail: &'static [u8],
}

impl Pieces {
    fn keep(&mut self, piece: Bytes) {
        if piece.len() < SMALL {
            self.written.extend_from_slice(&piece);
            return;
        }
        if !self.written.is_empty() {
            self.parts.push(std::mem::take(&mut self.written).into());
        }
        self.parts.push(piece);
    }

    fn finish(mut self) -> SmallVec<[Bytes; 3]> {
        if self.written.is_empty() {
            if !self.tail.is_empty() {
                self.parts.push(Bytes::from_static(self.tail));
            }
        } else {
            self.written.extend_from_slice(self.tail);
            self.parts.push(self.written.into());
        }
        self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        json::{Doc, Duplicates, Limits},
        mcp::Version,
    };

    fn render(raw: &str, dialect: NorthDialect, added: &[(&'static str, &'static str)]) -> String {
        let limits = Limits { depth: 64, duplicates: Duplicates::Allow, outline: 2 };
        let doc = Doc::parse(Bytes::copy_from_slice(raw.as_bytes()), &limits).unwrap();
        let mut body = ResultBody::upstream(doc.root().bytes(), shape(doc.root()));
        for (key, value) in added {
            body.added_meta.push((key, Bytes::from_static(value.as_bytes())));
        }
        let parts = result(Vec::new(), &body, dialect, b"");
        parts.iter().map(|part| std::str::from_utf8(part).unwrap()).collect()
    }

    const LEGACY: NorthDialect = NorthDialect::Legacy(Version::V2025_11_25);

    #[test]
    fn each_dialect_gets_its_own_envelope_and_the_rest_untouched() {
        let info = SERVER_INFO_MEMBER;
        let modern = NorthDialect::Modern;
        for (raw, dialect, expected) in [
            (r#"{"content":[]}"#, LEGACY, r#"{"content":[]}"#.to_owned()),
            (r#"{}"#, LEGACY, "{}".to_owned()),
            (r#"{"resultType":"complete"}"#, LEGACY, "{}".to_owned()),
            (r#"{"resultType":"complete","a":1.0}"#, LEGACY, r#"{"a":1.0}"#.to_owned()),
            (r#"{"a":1 , "resultType":"complete"}"#, LEGACY, r#"{"a":1 }"#.to_owned()),
            (r#"{"resultType":"complete" , "a":1}"#, LEGACY, r#"{ "a":1}"#.to_owned()),
            (
                r#"{"a":[1e2],"ttlMs":0,"cacheScope":"private","b":12345678901234567890}"#,
                LEGACY,
                r#"{"a":[1e2],"b":12345678901234567890}"#.to_owned(),
            ),
            (r#"{"ttlMs":0,"cacheScope":"private"}"#, LEGACY, "{}".to_owned()),
            (r#"{"a":1,"ttlMs":0, "cacheScope":"p"}"#, LEGACY, r#"{"a":1}"#.to_owned()),
            (
                r#"{"resultType":"complete"}"#,
                NorthDialect::McpLite,
                r#"{"isError":false}"#.to_owned(),
            ),
            (
                r#"{"a":1}"#,
                modern,
                format!(r#"{{"resultType":"complete","_meta":{{{info}}},"a":1}}"#),
            ),
            (
                r#"{"resultType":"task","_meta":{"x":[1]}}"#,
                modern,
                format!(r#"{{"resultType":"task","_meta":{{{info},"x":[1]}}}}"#),
            ),
            ("{}", modern, format!(r#"{{"resultType":"complete","_meta":{{{info}}}}}"#)),
            (
                r#"{"_meta":{}}"#,
                modern,
                format!(r#"{{"resultType":"complete","_meta":{{{info}}}}}"#),
            ),
            (
                r#"{"content":[]}"#,
                NorthDialect::McpLite,
                r#"{"isError":false,"content":[]}"#.into(),
            ),
            (r#"{"isError":true}"#, NorthDialect::McpLite, r#"{"isError":true}"#.into()),
        ] {
            assert_eq!(render(raw, dialect, &[]), expected, "{raw} {dialect:?}");
        }
    }

    #[test]
    fn what_the_gateway_adds_goes_into_meta() {
        let added = [(meta::REPLAYED, "true")];
        assert_eq!(
            render(r#"{"a":1}"#, LEGACY, &added),
            r#"{"_meta":{"dev.hangu/replayed":true},"a":1}"#
        );
        assert_eq!(
            render(r#"{"a":1,"_meta":{"v":2}}"#, LEGACY, &added),
            r#"{"a":1,"_meta":{"dev.hangu/replayed":true,"v":2}}"#
        );
    }

    #[test]
    fn a_resource_that_is_not_found_is_told_in_the_callers_era() {
        let modern = NorthDialect::Modern;
        for (code, data, dialect, expected) in [
            (-32_002, None, LEGACY, (-32_002, Some(r#"{"uri":"up+a:b"}"#))),
            (-32_002, None, modern, (-32_602, Some(r#"{"uri":"up+a:b"}"#))),
            (-32_002, Some("{}"), modern, (-32_602, Some(r#"{"uri":"up+a:b"}"#))),
            (-32_002, Some(r#" {"n":1.0}"#), modern, (-32_602, Some(r#"{"uri":"up+a:b"}"#))),
            (
                -32_602,
                Some(r#"{"n":1.0, "uri" : "a:b"}"#),
                LEGACY,
                (-32_002, Some(r#"{"uri":"up+a:b"}"#)),
            ),
            (-32_602, Some(r#"{"uri":"a:b"}"#), modern, (-32_602, Some(r#"{"uri":"up+a:b"}"#))),
            (-32_002, Some("[1]"), modern, (-32_602, Some(r#"{"uri":"up+a:b"}"#))),
            (-32_602, None, LEGACY, (-32_602, None)),
            (-32_603, Some(r#"{"uri":"a:b"}"#), LEGACY, (-32_603, Some(r#"{"uri":"a:b"}"#))),
        ] {
            let data = data.map(Bytes::from);
            let error = RpcError { code, message: Bytes::from("\"m\""), data };
            let told = not_found(error, "up+a:b", dialect);
            // Whatever the server calls it, and whatever it says of it.
            let is_other = told.message == "\"m\"";
            assert!(is_other || told.message == "\"resource not found: up+a:b\"", "{told:?}");
            assert_eq!(is_other, expected.1 != Some(r#"{"uri":"up+a:b"}"#), "{told:?}");
            let text = told.data.as_deref().map(|data| std::str::from_utf8(data).unwrap());
            assert_eq!((told.code, text), expected);
        }
    }

    #[test]
    fn caching_hints_are_the_gateways() {
        let info = SERVER_INFO_MEMBER;
        for (raw, modern) in [
            (
                r#"{"contents":[]}"#,
                format!(
                    r#"{{"resultType":"complete","ttlMs":7,"cacheScope":"private","_meta":{{{info}}},"contents":[]}}"#
                ),
            ),
            (
                r#"{"resultType":"complete","cacheScope" : "public","contents":[],"ttlMs":9e9}"#,
                format!(
                    r#"{{"_meta":{{{info}}},"resultType":"complete","cacheScope":"private","contents":[],"ttlMs":7}}"#
                ),
            ),
        ] {
            let doc = splice::document(&Bytes::from(raw)).unwrap();
            let mut body = ResultBody::upstream(raw.into(), shape(doc.root()));
            body.fresh_ms = Some(7);
            let text = |dialect| result(Vec::new(), &body, dialect, b"").concat();
            assert_eq!(text(NorthDialect::Modern), modern.as_bytes(), "{raw}");
            assert_eq!(text(LEGACY), br#"{"contents":[]}"#, "{raw}");
        }
    }

    #[test]
    fn a_large_result_is_sent_as_it_is() {
        let raw = format!(r#"{{"text":"{}"}}"#, "x".repeat(100_000));
        let limits = Limits { depth: 64, duplicates: Duplicates::Allow, outline: 2 };
        let doc = Doc::parse(Bytes::from(raw.clone()), &limits).unwrap();
        let body = ResultBody::upstream(doc.root().bytes(), shape(doc.root()));
        let parts = response(b"7", &Final::Result(body), LEGACY);
        let whole: Vec<u8> = parts.concat();
        assert_eq!(whole, format!(r#"{{"jsonrpc":"2.0","id":7,"result":{raw}}}"#).as_bytes());
        let start = doc.root().raw().as_ptr() as usize;
        let large = parts.iter().find(|part| part.len() > 50_000).unwrap().as_ptr() as usize;
        assert!((start..start + 16).contains(&large), "copied");
    }
}

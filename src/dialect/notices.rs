//! What clients and servers say about notices: filters, acknowledgements and the tag of a stream.
//!
//! The middle knows notifications without a tag; 2026-07-28 marks each message of a stream with
//! the id of the request that opened it, and the handshake revisions have no such thing.

use bytes::Bytes;

use super::{SERVER_INFO_MEMBER, request};
use crate::{
    json::{self, Doc, Kind},
    mcp::{Method, meta},
    model::{
        call::{Notices, RawMember, RawMembers},
        reply::Notification,
    },
};

// === Towards clients ===

/// The notification that a stream begins with: what of the filter is honoured.
pub fn acknowledged(notices: &Notices) -> Notification {
    let mut params = b"{\"notifications\":".to_vec();
    write_filter(&mut params, notices);
    params.push(b'}');
    notification(Method::Acknowledged, Some(params.into()))
}

/// The notification that a resource has changed.
pub fn resource_updated(uri: &str) -> Notification {
    let mut params = Vec::with_capacity(uri.len() + 16);
    params.extend_from_slice(b"{\"uri\":");
    json::write_str(&mut params, uri);
    params.push(b'}');
    notification(Method::ResourceUpdated, Some(params.into()))
}

/// The notification that a link has been followed to its end. Only 2025-11-25 has it.
pub fn link_followed(id: &str) -> Notification {
    let mut params = Vec::with_capacity(id.len() + 24);
    params.extend_from_slice(b"{\"elicitationId\":");
    json::write_str(&mut params, id);
    params.push(b'}');
    notification(Method::ElicitationComplete, Some(params.into()))
}

pub fn notification(method: Method, params: Option<Bytes>) -> Notification {
    Notification { method: method.as_str().into(), params }
}

/// The params of a notification with the tag of its stream; those of the gateway's own have no
/// `_meta` yet.
pub fn tagged(params: Option<&Bytes>, id: &[u8]) -> Bytes {
    let rest = params.and_then(|params| params.strip_prefix(b"{")).unwrap_or(b"}");
    let mut out = Vec::with_capacity(rest.len() + id.len() + 72);
    out.push(b'{');
    write_tag(&mut out, id);
    out.push(b'}');
    if !rest.trim_ascii_start().starts_with(b"}") {
        out.push(b',');
    }
    out.extend_from_slice(rest);
    out.into()
}

/// The result that ends a stream in good order.
pub fn end_result(id: &[u8]) -> Bytes {
    let mut out = b"{\"resultType\":\"complete\",".to_vec();
    write_tag(&mut out, id);
    out.push(b',');
    out.extend_from_slice(SERVER_INFO_MEMBER.as_bytes());
    out.extend_from_slice(b"}}");
    out.into()
}

/// `"_meta":{"…/subscriptionId":ID`, still open.
fn write_tag(out: &mut Vec<u8>, id: &[u8]) {
    out.extend_from_slice(b"\"_meta\":{\"");
    out.extend_from_slice(meta::SUBSCRIPTION_ID.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(id);
}

// === Towards servers ===

/// The members of `params` that ask a server for a stream.
pub fn listen_params(notices: &Notices) -> RawMembers {
    let mut filter = Vec::new();
    write_filter(&mut filter, notices);
    vec![RawMember { key: Bytes::from_static(b"notifications"), value: filter.into() }]
}

/// The members of `params` that name a resource.
pub fn uri_params(uri: &str) -> RawMembers {
    let mut value = Vec::with_capacity(uri.len() + 2);
    json::write_str(&mut value, uri);
    vec![RawMember { key: Bytes::from_static(b"uri"), value: value.into() }]
}

fn write_filter(out: &mut Vec<u8>, notices: &Notices) {
    out.push(b'{');
    let start = out.len();
    let key = |out: &mut Vec<u8>, name: &str| {
        if out.len() > start {
            out.push(b',');
        }
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
    };
    for (wanted, name) in [
        (notices.tools, "toolsListChanged"),
        (notices.prompts, "promptsListChanged"),
        (notices.resources, "resourcesListChanged"),
    ] {
        if wanted {
            key(out, name);
            out.extend_from_slice(b"true");
        }
    }
    for (texts, name) in [(&notices.updates, "resourceSubscriptions"), (&notices.tasks, "taskIds")]
    {
        if texts.is_empty() {
            continue;
        }
        key(out, name);
        out.push(b'[');
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            json::write_str(out, text);
        }
        out.push(b']');
    }
    out.push(b'}');
}

// === Of servers ===

const LIMITS: json::Limits =
    json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 3 };

/// What a server honours of the filter it was asked for.
pub fn read_acknowledged(params: Option<&Bytes>) -> Option<Notices> {
    let doc = Doc::parse(params?.clone(), &LIMITS).ok()?;
    let filter = doc.root().get("notifications").filter(|filter| filter.kind() == Kind::Object)?;
    request::read_filter(filter).ok()
}

/// The URI of a resource that a server says has changed.
pub fn read_updated(params: Option<&Bytes>) -> Option<Box<str>> {
    let doc = Doc::parse(params?.clone(), &LIMITS).ok()?;
    Some(doc.root().get("uri")?.as_str()?.into())
}

/// Whether a message is of the stream that was opened under this id; one without a tag is taken
/// for it.
pub fn is_of_stream(params: Option<&Bytes>, id: u64) -> bool {
    let Some(doc) = params.and_then(|params| Doc::parse(params.clone(), &LIMITS).ok()) else {
        return true;
    };
    let tag = doc.root().get("_meta").and_then(|meta| meta.get(meta::SUBSCRIPTION_ID));
    tag.is_none_or(|tag| tag.raw() == itoa::Buffer::new().format(id).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_read_and_written_alike() {
        for text in [
            r#"{"notifications":{}}"#,
            r#"{"notifications":{"toolsListChanged":true}}"#,
            r#"{"notifications":{"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a://b","c\"d"],"taskIds":["t"]}}"#,
        ] {
            let notices = read_acknowledged(Some(&Bytes::from(text))).unwrap();
            assert_eq!(acknowledged(&notices).params.unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn each_message_carries_the_id_as_the_client_wrote_it() {
        let key = meta::SUBSCRIPTION_ID;
        for id in ["9", "\"9\"", "\"\\u00e9\"", "-1", "12345678901234567890"] {
            for (params, rest) in
                [(None, ""), (Some("{}"), ""), (Some(r#"{"uri":"a"}"#), r#","uri":"a""#)]
            {
                let params = params.map(Bytes::from);
                let tagged = tagged(params.as_ref(), id.as_bytes());
                let expected = format!(r#"{{"_meta":{{"{key}":{id}}}{rest}}}"#);
                assert_eq!(tagged, expected.as_bytes());
            }
            let end = end_result(id.as_bytes());
            let start = format!(r#"{{"resultType":"complete","_meta":{{"{key}":{id},"#);
            assert!(end.starts_with(start.as_bytes()) && end.ends_with(b"}}"), "{end:?}");
            assert!(Doc::parse(end, &LIMITS).is_ok());
        }
    }

    #[test]
    fn a_message_of_another_stream_is_told_by_its_tag() {
        let tagged = |id: &str| Some(tagged(None, id.as_bytes()));
        assert!(is_of_stream(tagged("7").as_ref(), 7));
        assert!(!is_of_stream(tagged("8").as_ref(), 7));
        assert!(!is_of_stream(tagged("\"7\"").as_ref(), 7));
        assert!(is_of_stream(None, 7));
    }
}

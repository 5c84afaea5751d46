//! What a message is, as far as a channel has to know: whose it is, and whether somebody waits.

use bytes::Bytes;

use crate::{
    dialect::jsonrpc,
    json::{self, Doc, Kind, Value},
};

/// Outline: the message, its params, their `_meta`.
const LIMITS: json::Limits =
    json::Limits { depth: 512, duplicates: json::Duplicates::Allow, outline: 3 };

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// One message, by what is to be done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// The id as it is written.
    Request { id: Bytes, method: Box<str> },
    Notification {
        method: Box<str>,
        /// The id of the request it belongs to, if it says so.
        of: Option<Bytes>,
    },
    /// `None`: an error that names no request.
    Response { id: Option<Bytes>, failed: bool },
}

/// The messages of one text: one, or those of a batch. `None`: it is no message.
pub(super) fn read(text: &Bytes) -> Option<Vec<(Bytes, Message)>> {
    let doc = Doc::parse(text.clone(), &LIMITS).ok()?;
    if doc.root().kind() != Kind::Array {
        return Some(vec![(text.clone(), read_one(&doc)?)]);
    }
    doc.root()
        .elements()
        .map(|element| {
            let text = element.bytes();
            let message = read_one(&Doc::parse(text.clone(), &LIMITS).ok()?)?;
            Some((text, message))
        })
        .collect()
}

fn read_one(doc: &Doc) -> Option<Message> {
    Some(match jsonrpc::read(doc).ok()? {
        jsonrpc::Message::Request { id, method, .. } => Message::Request { id, method },
        jsonrpc::Message::Notification { method, params } => {
            let of = params.and_then(|params| owner(&method, params));
            Message::Notification { method, of }
        }
        jsonrpc::Message::Result { id, .. } => Message::Response { id: Some(id), failed: false },
        jsonrpc::Message::Error { id, .. } => Message::Response { id, failed: true },
    })
}

/// The gateway's progress tokens are the ids of its requests, and a subscription's id is that of
/// the request that opened it.
fn owner(method: &str, params: Value<'_>) -> Option<Bytes> {
    let named = match method {
        "notifications/progress" => params.get("progressToken"),
        _ => params.get("_meta").and_then(|meta| meta.get(SUBSCRIPTION)),
    };
    named.map(Value::bytes)
}

/// The id of a response of which only the beginning is known. It counts only before whatever
/// else may hold an `id`.
pub(super) fn id_at_the_beginning(text: &[u8]) -> Option<&[u8]> {
    const ID: &[u8] = b"\"id\"";
    let at = memchr::memmem::find(text, ID)?;
    let opaque = |name: &[u8]| memchr::memmem::find(text, name).is_some_and(|other| other < at);
    if opaque(b"\"result\"") || opaque(b"\"error\"") || opaque(b"\"params\"") {
        return None;
    }
    let rest = text.get(at + ID.len()..)?.trim_ascii_start();
    let rest = rest.strip_prefix(b":")?.trim_ascii_start();
    let end = rest.iter().position(|b| matches!(b, b',' | b'}'))?;
    Some(rest.get(..end)?.trim_ascii_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &'static str) -> Message {
        read(&Bytes::from_static(text.as_bytes())).unwrap().remove(0).1
    }

    #[test]
    fn a_message_says_whose_it_is() {
        let of = |text| match one(text) {
            Message::Notification { of, .. } => of,
            other => panic!("{other:?}"),
        };
        let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
        assert_eq!(of(progress).unwrap(), "7");
        let listed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#;
        assert_eq!(of(listed).unwrap(), "\"s\"");
        assert_eq!(of(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#), None);
    }

    #[test]
    fn a_batch_is_its_messages_and_a_banner_is_none() {
        let batch =
            r#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
        assert_eq!(read(&Bytes::from_static(batch.as_bytes())).unwrap().len(), 2);
        for none in ["running on port 1", "{}", "[1]", "7", ""] {
            assert_eq!(read(&Bytes::from_static(none.as_bytes())), None, "{none}");
        }
    }

    #[test]
    fn the_id_of_a_huge_answer_stands_before_its_result_or_is_not_known() {
        let id = |text: &'static str| id_at_the_beginning(text.as_bytes());
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":12,"result":{"te"#), Some(&b"12"[..]));
        assert_eq!(id(r#"{"id" : "a", "result":"#), Some(&b"\"a\""[..]));
        assert_eq!(id(r#"{"jsonrpc":"2.0","result":{"id":12,"#), None);
        assert_eq!(id(r#"{"jsonrpc":"2.0","id":12"#), None);
    }
}

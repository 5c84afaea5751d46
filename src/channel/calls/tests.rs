//! Whose a message is, and what becomes of those who wait.

use std::future::poll_fn;

use super::*;
use crate::error::Code;

struct Table {
    calls: Arc<Calls>,
    given_up: Arc<Mutex<Vec<(Bytes, Purpose)>>>,
}

impl Table {
    fn of(users: Users) -> Self {
        let given_up: Arc<Mutex<Vec<_>>> = Arc::default();
        let told = given_up.clone();
        let abandoned: Abandoned = Box::new(move |id, purpose| {
            told.lock().push((id.clone(), purpose));
        });
        Self { calls: Calls::new("crm".into(), users, 1_000, abandoned), given_up }
    }

    fn enter(&self, id: &'static str) -> Reading {
        self.calls.enter(Bytes::from_static(id.as_bytes()), Purpose::Work).unwrap()
    }

    fn deliver(&self, text: &'static str) -> Delivery {
        self.calls.deliver(&Bytes::from_static(text.as_bytes()))
    }
}

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
const LISTED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":2,"progress":1}}"#;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}"#;
const ONE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
const TWO: &str = r#"{"jsonrpc":"2.0","id":2,"result":{}}"#;

/// Everything there is at the moment.
async fn there(reading: &mut Reading) -> Vec<Bytes> {
    let mut found = Vec::new();
    poll_fn(|cx| {
        while let Poll::Ready(Some(message)) = reading.poll(cx) {
            found.push(message.unwrap());
        }
        Poll::Ready(())
    })
    .await;
    found
}

#[tokio::test]
async fn each_request_has_its_own_messages() {
    let table = Table::of(Users::One);
    let (mut one, mut two) = (table.enter("1"), table.enter("2"));
    for text in [LOG, PROGRESS, QUESTION, TWO, ONE] {
        assert_eq!(table.deliver(text), Delivery::Done, "{text}");
    }
    assert_eq!(there(&mut one).await, [LOG, QUESTION, ONE]);
    assert_eq!(there(&mut two).await, [PROGRESS, TWO]);
    // Late, or for nobody.
    assert_eq!(table.deliver(TWO), Delivery::Done);
    assert_eq!(*table.calls.under_way().borrow(), 0);
    drop((one, two));
    assert!(table.given_up.lock().is_empty());
}

#[tokio::test]
async fn what_is_nobodys_is_heard_by_whoever_listens() {
    let table = Table::of(Users::One);
    let question = vec![("\"q\"".into(), "elicitation/create".into())];
    assert_eq!(table.deliver(QUESTION), Delivery::Unheard(question));
    let mut last = table.calls.listen().unwrap();
    let mut listener = table.calls.listen().unwrap();
    let mut one = table.enter("1");
    for text in [LISTED, ONE, QUESTION] {
        assert_eq!(table.deliver(text), Delivery::Done, "{text}");
    }
    assert_eq!(there(&mut listener).await, [LISTED, QUESTION]);
    assert_eq!(there(&mut one).await, [ONE]);
    assert!(poll_fn(|cx| last.poll(cx)).await.is_none(), "another took its place");
    drop(listener);
    assert!(matches!(table.deliver(QUESTION), Delivery::Unheard(_)));
}

#[tokio::test]
async fn a_word_to_one_caller_does_not_reach_another() {
    let table = Table::of(Users::Many);
    let (mut one, mut two) = (table.enter("1"), table.enter("2"));
    assert_eq!(table.deliver(LOG), Delivery::Done);
    assert!(matches!(table.deliver(QUESTION), Delivery::Unheard(_)));
    table.deliver(PROGRESS);
    assert_eq!(there(&mut one).await, [""; 0]);
    assert_eq!(there(&mut two).await, [PROGRESS]);
    drop(two);
    // Now there is no doubt who is asked.
    assert_eq!(table.deliver(QUESTION), Delivery::Done);
    assert_eq!(there(&mut one).await, [QUESTION]);
    assert_eq!(*table.given_up.lock(), [(Bytes::from_static(b"2"), Purpose::Work)]);
}

#[tokio::test]
async fn a_refused_opening_is_told_and_noise_is_no_message() {
    let table = Table::of(Users::One);
    let id = Bytes::from_static(b"1");
    let _opening = table.calls.enter(id, Purpose::Opening).unwrap();
    let refusal = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#;
    assert_eq!(table.deliver(refusal), Delivery::Refused);
    for noise in ["Listening on 7001", "{\"level\":\"info\"}", "[]1"] {
        assert_eq!(table.deliver(noise), Delivery::Noise, "{noise}");
    }
}

#[tokio::test]
async fn a_closed_channel_ends_everybody_and_takes_nobody() {
    let table = Table::of(Users::One);
    let (mut one, mut listener) = (table.enter("1"), table.calls.listen().unwrap());
    table.calls.close(|| reply::failure("crm", "is gone", "process_exited"));
    let error = poll_fn(|cx| one.poll(cx)).await.unwrap().unwrap_err();
    assert_eq!(error.message(), "`crm` is gone");
    assert!(poll_fn(|cx| listener.poll(cx)).await.is_none());
    assert!(table.calls.enter(Bytes::from_static(b"2"), Purpose::Work).is_none());
    drop(one);
    assert!(table.given_up.lock().is_empty(), "it was not given up, it ended");
}

#[tokio::test]
async fn an_answer_that_is_too_large_ends_its_own_request() {
    let table = Table::of(Users::One);
    let (mut one, mut two) = (table.enter("1"), table.enter("2"));
    table.calls.too_large(br#"{"jsonrpc":"2.0","result":{"#);
    table.calls.too_large(br#"{"jsonrpc":"2.0","id":2,"result":{"#);
    let error = poll_fn(|cx| two.poll(cx)).await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::PayloadTooLarge);
    assert_eq!(there(&mut one).await, [""; 0]);
    // There is no other left that it could be for.
    table.calls.too_large(br#"{"jsonrpc":"2.0","result":{"#);
    assert!(poll_fn(|cx| one.poll(cx)).await.unwrap().is_err());
}

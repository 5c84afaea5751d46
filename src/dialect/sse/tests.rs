//! The rules of the event stream format.

use super::*;

#[test]
fn an_event_ends_at_its_blank_line() {
    let mut parser = Parser::new(1024);
    parser.push(Bytes::from_static(b"data: a\n\ndata: b\n"));
    let event = Event { data: Bytes::from_static(b"a"), ..Event::default() };
    assert_eq!(parser.next(), Some(Ok(event)));
    assert_eq!(parser.next(), None);
    assert!(parser.finish());
}

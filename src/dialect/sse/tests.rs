//! The rules of the event stream format.

use proptest::{collection::vec, prelude::*};

use super::*;

/// The events of a stream that comes in these pieces, and whether its end cut one off.
fn read<'c>(chunks: impl IntoIterator<Item = &'c [u8]>) -> (Vec<Event>, bool) {
    let mut parser = Parser::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        parser.push(Bytes::copy_from_slice(chunk));
        events.extend(std::iter::from_fn(|| parser.next()).map(Result::unwrap));
    }
    (events, parser.finish())
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Events as `event|data|id|retry`.
fn tell(events: &[Event]) -> Vec<String> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let tell = |event: &Event| {
        let name = event.event.as_ref().map_or("-".into(), text);
        let id = event.id.as_ref().map_or("-".into(), text);
        let retry = event.retry.map_or("-".into(), |retry| retry.to_string());
        format!("{name}|{}|{id}|{retry}", text(&event.data))
    };
    events.iter().map(tell).collect()
}

#[test]
fn a_stream_is_read_by_the_rules() {
    let check = |text: &str, expected: &[&str]| {
        let (events, _) = read([text.as_bytes()]);
        assert_eq!(tell(&events), expected, "{text:?}");
        let (events, _) = read(text.as_bytes().chunks(1));
        assert_eq!(tell(&events), expected, "in single bytes: {text:?}");
    };
    check("", &[]);
    check("data: a\n\n", &["-|a|-|-"]);
    check("event: message\r\ndata: a\r\n\r\n", &["message|a|-|-"]);
    check("data: a\r\rdata: b\r\r", &["-|a|-|-", "-|b|-|-"]);
    check("data: a\n\r\ndata: b\r\n\rdata: c\r\r\n", &["-|a|-|-", "-|b|-|-", "-|c|-|-"]);
    check("data: a\n\n\n\n\ndata: b\n\n", &["-|a|-|-", "-|b|-|-"]);
    check("data:a\ndata: b\ndata:  c\n\n", &["-|a\nb\n c|-|-"]);
    check("data\n\n", &["-||-|-"]);
    check("data:\n\n", &["-||-|-"]);
    check("data\ndata\n\n", &["-|\n|-|-"]);
    check("data:\ndata:a\ndata\n\n", &["-|\na\n|-|-"]);
    check("id: 0\nretry: 3000\ndata:\n\nid: 1\ndata: a\n\n", &["-||0|3000", "-|a|1|-"]);
    check("id: 7\n\n", &["-||7|-"]);
    check("id\ndata: a\n\n", &["-|a||-"]);
    check("id: a\0b\ndata: a\n\n", &["-|a|-|-"]);
    check("id: a\0b\n\n", &[]);
    check("id: 1\nid: 2\nevent: x\nevent: y\ndata: a\n\n", &["y|a|2|-"]);
    check("retry: 12x\nretry:\nretry: -1\nretry: +1\nretry: 1.5\n\n", &[]);
    check("retry: 99999999999999999999999\n\n", &[]);
    check("retry: 007\n\n", &["-||-|7"]);
    check("retry: 5\nretry: x\n\n", &["-||-|5"]);
    check(": keep-alive\n\n:\n\n", &[]);
    check(":data: a\n data: b\ndata : c\nDATA: d\nfoo: e\nfoo\n\n", &[]);
    check("data: a\n:comment\nfoo: b\ndata: c\n\n", &["-|a\nc|-|-"]);
    check("data: a:b: c\n\n", &["-|a:b: c|-|-"]);
    check("\u{feff}data: a\n\n", &["-|a|-|-"]);
    check("\u{feff}\ndata: a\n\n", &["-|a|-|-"]);
    check("\u{feff}\u{feff}data: a\n\n", &[]);
    check("\n\u{feff}data: a\n\n", &[]);
    check("data: \u{feff}a\n\n", &["-|\u{feff}a|-|-"]);
    check("data: 你好 🌍\n\n", &["-|你好 🌍|-|-"]);
    check("data: a\u{2028}b\u{85}c\u{b}\u{c}\n\n", &["-|a\u{2028}b\u{85}c\u{b}\u{c}|-|-"]);
    check("data: a", &[]);
    check("data: a\n", &[]);
    check("data: a\n\ndata: b\n", &["-|a|-|-"]);
}

#[test]
fn the_end_tells_whether_it_cut_off_an_event() {
    let check = |text: &str, cut| assert_eq!(read([text.as_bytes()]).1, cut, "{text:?}");
    check("", false);
    check("data: a\n\n", false);
    check("data: a\r\n\r\n", false);
    check("data: a\r\r", false);
    check("data: a\n\n:\n", false);
    check("data: a\n", true);
    check("data: a\r\n", true);
    check("data: a", true);
    check("data: a\n\nd", true);
}

#[test]
fn an_event_comes_as_soon_as_its_blank_line_begins() {
    let mut parser = Parser::new(100);
    parser.push(bytes("data: a\r\n\r"));
    assert_eq!(parser.next().unwrap().unwrap().data, "a");
    parser.push(bytes("\n"));
    assert_eq!(parser.next(), None);
    parser.push(bytes("data: b\r\n\r\n"));
    assert_eq!(parser.next().unwrap().unwrap().data, "b");
    assert!(!parser.finish());
}

#[test]
fn chunks_may_be_pushed_ahead_of_reading() {
    let mut parser = Parser::new(100);
    for chunk in ["data: a\n", "", "\ndata:", " b\n\nda", "ta: c\n\n"] {
        parser.push(bytes(chunk));
    }
    let data: Vec<_> =
        std::iter::from_fn(|| parser.next()).map(|event| event.unwrap().data).collect();
    assert_eq!(data, ["a", "b", "c"]);
}

#[test]
fn data_in_one_line_of_one_chunk_is_not_copied() {
    let chunk = bytes("event: message\ndata: {\"a\":1}\n\n");
    let mut parser = Parser::new(100);
    parser.push(chunk.clone());
    let event = parser.next().unwrap().unwrap();
    assert_eq!(event.data, "{\"a\":1}");
    assert_eq!(event.data.as_ptr(), chunk[21..].as_ptr());
}

#[test]
fn a_large_event_comes_whole_and_a_larger_one_ends_the_stream() {
    let text = "x".repeat(1 << 20);
    for chunk in [1000, 1 << 16, 1 << 22] {
        let stream = format!("data: {text}\n\ndata: b\n\n");
        let mut parser = Parser::new((1 << 20) + 6);
        stream
            .as_bytes()
            .chunks(chunk)
            .for_each(|chunk| parser.push(Bytes::copy_from_slice(chunk)));
        assert_eq!(parser.next().unwrap().unwrap().data.len(), text.len());
        assert_eq!(parser.next().unwrap().unwrap().data, "b");

        let mut parser = Parser::new((1 << 20) + 5);
        stream
            .as_bytes()
            .chunks(chunk)
            .for_each(|chunk| parser.push(Bytes::copy_from_slice(chunk)));
        assert_eq!(parser.next(), Some(Err(TooLarge((1 << 20) + 5))));
        parser.push(bytes("data: b\n\n"));
        assert_eq!(parser.next(), None);
        assert!(parser.finish());
    }
}

#[test]
fn the_cap_counts_all_lines_of_an_event_and_of_one_only() {
    let many = |lines: usize| format!("{}\n", "data: 01234567\n".repeat(lines));
    let last = |text: &str| {
        let mut parser = Parser::new(140);
        parser.push(bytes(text));
        std::iter::from_fn(|| parser.next()).last().unwrap().is_ok()
    };
    assert!(last(&many(10)));
    assert!(!last(&many(11)));
    assert!(last(&many(10).repeat(20)));
    assert!(last(&format!("{}data: a\n\n", ": keep-alive\n".repeat(100))));
    assert!(!last(&format!("data: a\n: {}", "x".repeat(140))));
}

#[test]
fn a_message_is_framed_in_one_event() {
    let check = |pieces: &[&str], wire: &str| {
        let parts = encode(pieces.iter().map(|piece| bytes(piece)));
        assert_eq!(parts.concat(), wire.as_bytes(), "{pieces:?}");
    };
    check(&["{\"a\":1}"], "event: message\ndata: {\"a\":1}\n\n");
    check(&["{\"id\":", "1", "}"], "event: message\ndata: {\"id\":1}\n\n");
    check(&["{\n  \"a\":1\r\n}"], "event: message\ndata: {\ndata:   \"a\":1\ndata: }\n\n");
    check(&["{\r", "\"a\":1}\n"], "event: message\ndata: {\ndata: \"a\":1}\ndata: \n\n");
    check(&["[\n\n]"], "event: message\ndata: [\ndata: \ndata: ]\n\n");
}

#[test]
fn framing_copies_no_piece_without_line_breaks() {
    let piece = bytes("{\"a\":1}");
    let parts = encode([piece.clone()]);
    assert_eq!(parts[1].as_ptr(), piece.as_ptr());
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => "data: ?[ -~é🌍]{0,20}",
        1 => prop::sample::select(vec!["data", "id: 1", "id: a\0", "retry: 10", "event: x", ":"])
            .prop_map(String::from),
        2 => Just(String::new()),
        1 => "\u{feff}?[a-z: ]{0,8}",
    ];
    let end = prop::sample::select(vec!["\n", "\r", "\r\n", "\n\n", "\r\n\r\n"]);
    vec((line, end), 0..20).prop_map(|lines| {
        lines.into_iter().flat_map(|(line, end)| format!("{line}{end}").into_bytes()).collect()
    })
}

proptest! {
    #[test]
    fn how_a_stream_is_cut_does_not_matter(
        stream in prop_oneof![stream(), vec(any::<u8>(), 0..100)],
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]);
        prop_assert_eq!(read(pieces), read([&stream[..]]));
    }

    #[test]
    fn what_is_framed_is_read_back(
        pieces in vec("[ -~é🌍]{0,20}(\n|\r|\r\n)?[ -~]{0,5}", 0..4),
    ) {
        let parts = encode(pieces.iter().map(|piece| bytes(piece)));
        let (events, cut) = read(parts.iter().map(|part| &part[..]));
        prop_assert!(!cut);
        prop_assert_eq!(events.len(), 1);
        // A line break in a text is no more than white space between tokens: any one will do.
        let lines = |text: &str| text.replace("\r\n", "\n").replace('\r', "\n");
        let expected: String = pieces.iter().map(|piece| lines(piece)).collect();
        prop_assert_eq!(&events[0].data, expected.as_bytes());
        prop_assert_eq!(events[0].event.as_deref(), Some(&b"message"[..]));
    }
}

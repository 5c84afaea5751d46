//! Event streams, against the letter of the standard applied to the whole stream at once.

use bytes::Bytes;
use hangu::dialect::sse::{Event, Parser, TooLarge, encode};
use proptest::sample::Index;

use super::{Verdict, holds, target};

const WORDS: &[&str] = &[
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\r\n\r\n",
    "\u{feff}",
    ":",
    ": comment\n",
    "data",
    "data:",
    "data: ",
    "data:  two",
    "data: {\"a\":1}\n",
    "event: message\n",
    "event:x\r",
    "id: 1\n",
    "id\n",
    "id: a\0b\n",
    "retry: 10\n",
    "retry: x\n",
    "retry:\n",
    "retry: 99999999999999999999\n",
    "unknown: y\n",
    " ",
    "é",
    "\u{1f30d}",
    "data: \u{4f60}\n",
    "DATA: z\n",
    ":\n",
];

#[test]
fn a_stream_reads_the_same_however_it_is_cut() {
    target("sse", WORDS, check);
}

#[test]
fn what_is_framed_is_read_as_it_was() {
    target("sse_encode", WORDS, |input, cuts| {
        let framed = encode(pieces(input, cuts)).concat();
        let (events, rest) = read([Bytes::from(framed)], usize::MAX);
        let [Ok(event)] = &events[..] else {
            return holds(false, || format!("not one event: {events:?}"));
        };
        let plain = |bytes: &[u8]| {
            bytes.iter().copied().filter(|byte| !b"\r\n".contains(byte)).collect::<Vec<_>>()
        };
        holds(plain(&event.data) == plain(input) && !rest, || "the data is another".into())?;
        holds(event.event.as_deref() == Some(b"message"), || "the type is another".into())
    });
}

fn pieces(input: &[u8], cuts: &[Index]) -> Vec<Bytes> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
    places.sort_unstable();
    places.push(input.len());
    let mut from = 0;
    let mut pieces = Vec::new();
    for to in places {
        pieces.push(Bytes::copy_from_slice(&input[from..to]));
        from = to;
    }
    pieces
}

type Read = (Vec<Result<Event, TooLarge>>, bool);

/// The events, and whether the end cut one off. Each piece is read as soon as it is there.
fn read(pieces: impl IntoIterator<Item = Bytes>, cap: usize) -> Read {
    let mut parser = Parser::new(cap);
    let mut events = Vec::new();
    for piece in pieces {
        parser.push(piece);
        events.extend(std::iter::from_fn(|| parser.next()));
    }
    (events, parser.finish())
}

fn check(input: &[u8], cuts: &[Index]) -> Verdict {
    let whole = read([Bytes::copy_from_slice(input)], usize::MAX);
    let expected = by_the_letter(input);
    holds(whole == expected, || format!("{whole:?} is not {expected:?}"))?;
    let bytes = input.iter().map(|byte| Bytes::copy_from_slice(&[*byte]));
    holds(read(bytes.clone(), usize::MAX) == whole, || "byte by byte it is another".into())?;
    let cut = read(pieces(input, cuts), usize::MAX);
    holds(cut == whole, || format!("cut it is another: {cut:?}"))?;
    // A cap holds wherever the stream is cut, and costs nothing that is below it.
    for cap in [0, 1, 7, 24, 64] {
        let capped = read([Bytes::copy_from_slice(input)], cap);
        for other in [read(pieces(input, cuts), cap), read(bytes.clone(), cap)] {
            holds(other.0 == capped.0, || format!("cap {cap}: {other:?} is not {capped:?}"))?;
        }
        let (events, failed) = capped;
        for (number, event) in events.iter().enumerate() {
            match event {
                Ok(event) => {
                    let size = event.data.len() + event.id.as_ref().map_or(0, Bytes::len);
                    holds(size <= cap, || format!("{size} bytes under a cap of {cap}"))?;
                    let same = whole.0.get(number) == Some(&Ok(event.clone()));
                    holds(same, || format!("cap {cap}: event {number} is another"))?;
                }
                Err(TooLarge(told)) => {
                    holds(*told == cap && number + 1 == events.len() && failed, || {
                        "something follows a failure".into()
                    })?;
                }
            }
        }
    }
    Ok(())
}

/// The standard's algorithm over the whole stream.
fn by_the_letter(input: &[u8]) -> Read {
    let mut rest = input.strip_prefix("\u{feff}".as_bytes()).unwrap_or(input);
    let (mut events, mut block) = (Vec::new(), Vec::new());
    // A line that never ends is no line.
    while let Some(end) = rest.iter().position(|byte| b"\r\n".contains(byte)) {
        let (line, after) = rest.split_at(end);
        rest = after.strip_prefix(b"\r\n").unwrap_or(&after[1..]);
        if !line.is_empty() {
            block.push(line);
        } else if let Some(event) = event(&std::mem::take(&mut block)) {
            events.push(Ok(event));
        }
    }
    // The mark alone is a line that has begun.
    let mark = input == "\u{feff}".as_bytes();
    let cut_off = event(&block).is_some() || !rest.is_empty() || mark;
    (events, cut_off)
}

fn event(block: &[&[u8]]) -> Option<Event> {
    let mut event = Event::default();
    let (mut any, mut data): (bool, Vec<&[u8]>) = (false, Vec::new());
    for line in block {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = match colon {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (*line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let copy = || Some(Bytes::copy_from_slice(value));
        match name {
            b"data" => data.push(value),
            b"event" => event.event = copy(),
            b"id" if !value.contains(&0) => event.id = copy(),
            b"retry" => {
                let digits = value.iter().all(u8::is_ascii_digit);
                let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                let Some(number) = number.filter(|_| digits) else { continue };
                event.retry = Some(number);
            }
            _ => continue,
        }
        any = true;
    }
    event.data = data.join(&b"\n"[..]).into();
    any.then_some(event)
}

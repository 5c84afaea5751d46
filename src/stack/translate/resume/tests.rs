//! What of a stream is kept, for whom and for how long; no calls.

use futures_util::FutureExt;
use http_body_util::BodyExt;

use super::*;

const SESSION: [u8; 8] = [7; 8];

fn streams(bytes: usize, total: usize) -> Arc<Streams> {
    let window = Duration::from_secs(60);
    Arc::new(Streams::new(ResumeLimits { window, bytes, total }))
}

fn event(text: &str) -> SmallVec<[Bytes; 5]> {
    SmallVec::from_iter([Bytes::from(format!("data: {text}\n\n"))])
}

/// What can be read now; whether the stream has ended too.
fn read(body: &mut Body) -> (String, bool) {
    let mut text = String::new();
    loop {
        match body.frame().now_or_never() {
            Some(Some(frame)) => {
                let data = frame.unwrap().into_data().unwrap();
                text.push_str(std::str::from_utf8(&data).unwrap());
            }
            Some(None) => return (text, true),
            None => return (text, false),
        }
    }
}

/// The data of events, and the last id.
fn parts(text: &str) -> (Vec<&str>, &str) {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let id = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back();
    (data.filter(|data| !data.is_empty()).collect(), id.unwrap_or_default())
}

#[tokio::test]
async fn a_stream_is_taken_up_after_any_of_its_events() {
    let streams = streams(1 << 20, 1 << 20);
    let kept = streams.open(SESSION, None);
    let mut first = kept.read(0);
    kept.prime().await;
    let (text, _) = read(&mut first);
    assert!(text.starts_with("id: ") && text.contains("\nretry: 1000\ndata: \n\n"), "{text}");
    let mut ids = vec![parts(&text).1.to_owned()];
    for number in 1..4 {
        kept.add(event(&number.to_string()), false).await;
        ids.push(parts(&read(&mut first).0).1.to_owned());
    }
    drop(first);
    kept.add(event("4"), true).await;
    for (after, expected) in [(0, &["1", "2", "3", "4"][..]), (2, &["3", "4"]), (3, &["4"])] {
        let mut rest = streams.resume(SESSION, None, &ids[after]).unwrap();
        let (text, over) = read(&mut rest);
        assert_eq!((parts(&text).0, over), (expected.to_vec(), false), "after {after}");
    }
    kept.finish();
    let mut rest = streams.resume(SESSION, None, &ids[3]).unwrap();
    let (text, over) = read(&mut rest);
    assert_eq!((parts(&text).0, over), (vec!["4"], true));
    // After the last event there is nothing but the end.
    let (text, over) = read(&mut streams.resume(SESSION, None, parts(&text).1).unwrap());
    assert_eq!((text.as_str(), over), ("", true));
}

#[tokio::test]
async fn nobody_else_takes_a_stream_up() {
    let streams = streams(1 << 20, 1 << 20);
    let employee = EmployeeId::parse("E1");
    let kept = streams.open(SESSION, employee.clone());
    kept.add(event("1"), true).await;
    let id = kept.id(0);
    assert!(streams.resume(SESSION, employee.as_ref(), &id).is_some());
    assert!(streams.resume([8; 8], employee.as_ref(), &id).is_none());
    assert!(streams.resume(SESSION, EmployeeId::parse("E2").as_ref(), &id).is_none());
    assert!(streams.resume(SESSION, None, &id).is_none());
    for wrong in ["", "-", "x-0", "0-0", &kept.id(1), &format!("{id}1"), &id.replace('-', "")] {
        assert!(streams.resume(SESSION, employee.as_ref(), wrong).is_none(), "{wrong}");
    }
    streams.end(SESSION);
    assert!(streams.resume(SESSION, employee.as_ref(), &id).is_none());
    assert_eq!(streams.kept(), (0, 0));
}

#[tokio::test]
async fn the_newest_reader_is_the_one() {
    let streams = streams(1 << 20, 1 << 20);
    let kept = streams.open(SESSION, None);
    let mut older = kept.read(0);
    kept.add(event("1"), false).await;
    let mut newer = streams.resume(SESSION, None, &kept.id(0)).unwrap();
    kept.add(event("2"), false).await;
    assert_eq!(read(&mut older), (String::new(), true));
    drop(older);
    kept.add(event("3"), false).await;
    let (text, over) = read(&mut newer);
    assert_eq!((parts(&text).0, over), (vec!["2", "3"], false));
}

#[tokio::test]
async fn a_slow_reader_holds_its_call_back_and_one_that_left_does_not() {
    let streams = streams(1_000, 1 << 20);
    let kept = streams.open(SESSION, None);
    let mut reader = kept.read(0);
    let text = "x".repeat(400);
    let mut sent = 0;
    while kept.add(event(&text), false).now_or_never().is_some() {
        sent += 1;
        assert!(sent < 10, "nothing held it back");
    }
    assert!(streams.kept().1 <= 2_000);
    // Nothing that it has not read yet is dropped.
    let (read, _) = read(&mut reader);
    assert_eq!(parts(&read).0.len(), sent);
    drop(reader);
    for _ in 0..100 {
        kept.add(event(&text), false).now_or_never().unwrap();
    }
    kept.add(event("the answer"), true).now_or_never().unwrap();
    kept.finish();
    assert!(streams.kept().1 <= 1_000, "{:?}", streams.kept());
    let mut rest = streams.resume(SESSION, None, &kept.id(1)).unwrap();
    let (read, over) = super::tests::read(&mut rest);
    assert!(read.contains("the answer") && over, "{read}");
}

#[tokio::test]
async fn all_streams_together_keep_so_much() {
    let streams = streams(1_000, 2_000);
    let text = "x".repeat(700);
    let mut all = Vec::new();
    for _ in 0..4 {
        let kept = streams.open(SESSION, None);
        kept.add(event(&text), true).await;
        kept.finish();
        all.push(kept);
    }
    assert!(streams.kept().1 <= 2_000, "{:?}", streams.kept());
    // The oldest gave way.
    let found = all.iter().map(|kept| streams.resume(SESSION, None, &kept.id(0)).is_some());
    assert_eq!(found.collect::<Vec<_>>(), [false, false, true, true]);
    // Where there is no room even so, whoever reads gets everything, and who left nothing.
    let (live, gone) = (streams.open(SESSION, None), streams.open(SESSION, None));
    let mut reader = live.read(0);
    for _ in 0..3 {
        live.add(event(&text), true).now_or_never().unwrap();
        assert_eq!(parts(&read(&mut reader).0).0.len(), 1);
        gone.add(event(&text), true).now_or_never().unwrap();
    }
    gone.add(event(&"y".repeat(3_000)), true).now_or_never().unwrap();
    assert!(streams.resume(SESSION, None, &gone.id(0)).is_none());
    assert!(streams.resume(SESSION, None, &live.id(2)).is_some());
}

#[tokio::test(start_paused = true)]
async fn what_nobody_comes_back_for_is_forgotten() {
    let streams = streams(1_000, 2_000);
    let (running, ended) = (streams.open(SESSION, None), streams.open(SESSION, None));
    let read_on = streams.open(SESSION, None);
    let reader = read_on.read(0);
    for kept in [&running, &ended, &read_on] {
        kept.add(event("1"), false).await;
    }
    ended.finish();
    tokio::time::advance(Duration::from_secs(59)).await;
    streams.sweep();
    assert_eq!(streams.kept().0, 3);
    tokio::time::advance(Duration::from_secs(2)).await;
    streams.sweep();
    assert!(streams.resume(SESSION, None, &running.id(0)).is_none());
    assert!(streams.resume(SESSION, None, &ended.id(0)).is_none());
    // The call runs on, and is told nobody.
    running.add(event("2"), true).await;
    running.finish();
    assert_eq!(streams.kept().0, 1);
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_gets_the_end_of_a_call_long_over() {
    let streams = streams(1_000, 2_000);
    let kept = streams.open(SESSION, None);
    let mut reader = kept.read(0);
    kept.add(event(&"x".repeat(700)), false).await;
    kept.add(event("the answer"), true).await;
    kept.finish();
    tokio::time::advance(Duration::from_secs(61)).await;
    // Neither time nor the wishes of others end it.
    streams.sweep();
    let others: Vec<_> = (0..3).map(|_| streams.open(SESSION, None)).collect();
    for other in &others {
        other.add(event(&"y".repeat(700)), true).await;
        other.finish();
    }
    assert!(streams.kept().1 <= 2_000, "{:?}", streams.kept());
    let (text, over) = read(&mut reader);
    assert!(text.contains("the answer") && over, "{text}");
    drop(reader);
    tokio::time::advance(Duration::from_secs(121)).await;
    streams.sweep();
    assert_eq!(streams.kept(), (0, 0));
}

#[tokio::test]
async fn a_stream_is_not_taken_up_before_something_needed_that_is_gone() {
    let streams = streams(1_000, 1 << 20);
    let kept = streams.open(SESSION, None);
    let mut reader = kept.read(0);
    kept.add(event("a word"), false).await;
    kept.add(event("a question"), true).await;
    read(&mut reader);
    for _ in 0..2 {
        kept.add(event(&"x".repeat(600)), false).await;
        read(&mut reader);
    }
    drop(reader);
    // Of a client that has not seen the question, the call would wait for an answer in vain.
    assert!(streams.resume(SESSION, None, &kept.id(0)).is_none());
    assert!(streams.resume(SESSION, None, &kept.id(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_has_comments() {
    let streams = streams(1_000, 2_000);
    let mut body = streams.open(SESSION, None).read(0);
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame, ": keep-alive\n\n");
}

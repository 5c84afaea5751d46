//! Calls under way whose readers are slow, gone or have cancelled, on paused time.

use std::sync::atomic::AtomicUsize;

use super::*;
use crate::model::reply::{Final, Notification, ResultBody};

const SESSION: [u8; 8] = [7; 8];

fn notification(bytes: usize) -> Event {
    let params = Some(Bytes::from(vec![b'x'; bytes]));
    Event::Notification(Notification { method: "notifications/progress".into(), params })
}

fn end() -> Event {
    Event::End(Ok(Final::Result(ResultBody::own(Bytes::from_static(b"{}")))))
}

/// A call that gives so many notifications of a size and then its end, and counts what it gave.
fn call(events: usize, bytes: usize) -> (Arc<AtomicUsize>, Reply) {
    let given = Arc::new(AtomicUsize::new(0));
    let counting = given.clone();
    let events = stream::iter(0..=events).map(move |number| {
        counting.fetch_add(1, Ordering::Relaxed);
        if number < events { notification(bytes) } else { end() }
    });
    let content = Content::Stream(Box::pin(events));
    (given, Reply { headers: smallvec::SmallVec::new(), content })
}

async fn run(flight: InFlight, reply: Reply) -> ReplyStream {
    let ran = flight.run(std::future::ready(Ok(reply)), None, None::<fn() -> Keep>).await;
    let Ok(Some(Ran::Reply(Reply { content: Content::Stream(stream), .. }))) = ran else {
        panic!()
    };
    stream
}

/// Lets the pump go as far as it can without time.
async fn settle() {
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_costs_no_more_than_the_queue() {
    for (bytes, most) in [(10, QUEUE_EVENTS + 1), (100 * 1024, 4), (1024 * 1024, 3)] {
        let (given, reply) = call(1_000, bytes);
        let stream = run(InFlight::alone(), reply).await;
        settle().await;
        let held = given.load(Ordering::Relaxed);
        assert!(held <= most && held > 1, "{held} events of {bytes} bytes");
        drop(stream);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_does_not_hold_up_its_call_for_ever() {
    let (given, reply) = call(1_000, 10);
    let stream = run(InFlight::alone(), reply).await;
    tokio::time::sleep(STALL - Duration::from_secs(1)).await;
    assert_eq!(given.load(Ordering::Relaxed), QUEUE_EVENTS + 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(given.load(Ordering::Relaxed), 1_001, "the call has gone on to its end");
    // What was kept, and the end, whenever the reader comes.
    let events: Vec<Event> = stream.collect().await;
    assert_eq!(events.len(), QUEUE_EVENTS + 1);
    assert!(matches!(events.last(), Some(Event::End(Ok(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_keeps_up_gets_everything() {
    let (_, reply) = call(1_000, 100 * 1024);
    let mut stream = run(InFlight::alone(), reply).await;
    let mut got = 0;
    while let Some(event) = stream.next().await {
        got += 1;
        if got % 100 == 0 {
            tokio::time::sleep(STALL / 2).await;
        }
        assert_eq!(matches!(event, Event::End(_)), got == 1_001);
    }
    assert_eq!(got, 1_001);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_reader_runs_to_its_end_at_once() {
    let (given, reply) = call(1_000, 100 * 1024);
    drop(run(InFlight::alone(), reply).await);
    settle().await;
    assert_eq!(given.load(Ordering::Relaxed), 1_001);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_of_a_call_that_was_cancelled() {
    let cancels = Arc::new(Cancels::default());
    let id = Bytes::from_static(b"7");
    let (given, reply) = call(1_000, 10);
    let mut stream = run(cancels.enter(SESSION, id.clone()), reply).await;
    assert!(matches!(stream.next().await, Some(Event::Notification(_))));
    settle().await;
    let before = given.load(Ordering::Relaxed);
    cancels.cancel([8; 8], id.clone());
    cancels.cancel(SESSION, Bytes::from_static(b"\"7\""));
    assert!(matches!(stream.next().await, Some(Event::Notification(_))), "another call's");
    cancels.cancel(SESSION, id);
    assert!(stream.next().await.is_none(), "also of what was queued");
    settle().await;
    // One for each that was taken, and one that the call had ready when it was cancelled.
    assert!(given.load(Ordering::Relaxed) <= before + 3, "the call goes no further");
    assert!(cancels.flights.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ended_can_no_longer_be_cancelled() {
    let cancels = Arc::new(Cancels::default());
    let id = Bytes::from_static(b"7");
    let (_, reply) = call(3, 10);
    let stream = run(cancels.enter(SESSION, id.clone()), reply).await;
    settle().await;
    assert!(cancels.flights.is_empty());
    cancels.cancel(SESSION, id);
    assert_eq!(stream.count().await, 4);
}

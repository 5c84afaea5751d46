//! What every store of definitions does.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Store, suite::Place};
use crate::registry::{
    Local,
    store::{
        Approved, Bounds, HandedOn, History, How, Kept, PinStore, SOME, Scope, Seen, StoreFault,
        Then, Version, Which, Wish,
    },
};

const BOUNDS: Bounds = Bounds { versions: 3, tools: 3 };

/// A store in use.
struct Open {
    pins: Arc<dyn PinStore>,
    last: u64,
    store: Option<Store>,
}

fn open(place: &Place) -> Open {
    let Some(address) = &place.address else {
        return Open { pins: Arc::new(Local::default()), last: 0, store: None };
    };
    let opened = Store::open(address, &place.clock).unwrap();
    Open { pins: opened.pins, last: opened.last_pin, store: Some(opened.store) }
}

fn scope(name: &str) -> Scope {
    Scope::from_store(name.to_owned())
}

/// A definition of a tool, told from others by a number.
fn seen(tool: &str, number: u8) -> Seen {
    let definition = format!("{{\"name\":\"{tool}\",\"n\":{number}.0}}").into();
    Seen { tool: tool.into(), digest: [number; 32], definition, first_use: false }
}

impl Open {
    async fn ask<T: Send + 'static>(&self, request: impl FnOnce(&dyn PinStore, Then<T>)) -> T {
        let (tell, told) = oneshot::channel::<Result<T, StoreFault>>();
        request(&*self.pins, Box::new(move |answer| _ = tell.send(answer)));
        told.await.unwrap().unwrap()
    }

    async fn keep(&self, seen: Vec<Seen>, at_ms: u64) -> Vec<Kept> {
        self.ask(|pins, then| pins.keep(scope("crm"), seen, BOUNDS, at_ms, then)).await
    }

    async fn keep_one(&self, seen: Seen, at_ms: u64) -> Kept {
        self.keep(vec![seen], at_ms).await.remove(0)
    }

    async fn approve(&self, tool: &str, which: Which, how: How, at_ms: u64) -> Option<Approved> {
        let wish =
            Wish { scope: scope("crm"), tool: tool.into(), which, how, by: "ops".into(), at_ms };
        self.ask(|pins, then| pins.approve(wish, then)).await
    }

    async fn history(&self, tool: &str) -> History {
        self.ask(|pins, then| pins.history(scope("crm"), tool.into(), then)).await
    }

    async fn since(&self, number: u64) -> Vec<Approved> {
        self.ask(|pins, then| pins.since(number, then)).await
    }

    /// `version:first-last` of each.
    async fn versions(&self, tool: &str) -> Vec<String> {
        let history = self.history(tool).await;
        let told = |it: &crate::registry::store::Version| {
            format!("{}:{}-{}", it.version, it.first_ms, it.last_ms)
        };
        history.versions.iter().map(told).collect()
    }
}

pub async fn every_definition_is_kept_with_a_number(place: Place) {
    let open = open(&place);
    let first = open.keep(vec![seen("b", 1), seen("a", 1)], 10).await;
    let told: Vec<_> =
        first.iter().map(|it| (&*it.tool, it.version, it.is_new, it.first_ms)).collect();
    assert_eq!(told, [("b", Some(1), true, 10), ("a", Some(1), true, 10)]);
    assert!(first.iter().all(|kept| kept.approved.is_none() && !kept.by_first_use));
    let second = open.keep_one(seen("a", 2), 20).await;
    assert_eq!((second.version, second.is_new, second.first_ms), (Some(2), true, 20));
    let again = open.keep_one(seen("a", 1), 30).await;
    assert_eq!((again.version, again.is_new, again.first_ms), (Some(1), false, 10));
    assert_eq!(open.versions("a").await, ["1:10-30", "2:20-20"]);
    // Whoever only looks finds what is there, and leaves it so.
    let looked = vec![seen("a", 2), seen("a", 3), seen("z", 1)];
    let looked = open.ask(|pins, then| pins.look(scope("crm"), looked, then)).await;
    assert_eq!(looked, [Kept { is_new: false, ..second }]);
    assert_eq!(open.versions("a").await.len(), 2);
    // As it came, to the byte.
    let history = open.history("a").await;
    assert_eq!(history.versions[1].definition, "{\"name\":\"a\",\"n\":2.0}");
    assert!(history.approvals.is_empty() && open.history("z").await == History::default());
    // Another's tool of that name is another.
    let other = vec![seen("a", 3)];
    let other =
        open.ask(|pins, then| pins.keep(scope("acme/E1/mcp_x_1"), other, BOUNDS, 1, then)).await;
    assert_eq!(other[0].version, Some(1));
    assert_eq!(open.versions("a").await.len(), 2);
}

pub async fn the_first_one_kept_is_the_one_that_is_approved(place: Place) {
    let open = open(&place);
    let first_use = |seen: Seen| Seen { first_use: true, ..seen };
    let kept = open.keep_one(first_use(seen("a", 1)), 10).await;
    assert!(kept.by_first_use);
    let approved = kept.approved.unwrap();
    assert_eq!((approved.version, approved.digest, approved.how), (1, [1; 32], How::FirstUse));
    // Who comes second, here or elsewhere, is told which one it is, and what it looks like.
    let late = open.keep_one(first_use(seen("a", 2)), 11).await;
    assert!(!late.by_first_use && late.version == Some(2));
    assert_eq!(late.approved, Some(approved.clone()));
    assert_eq!(approved.definition, seen("a", 1).definition);
    // What was seen before anybody would take it is taken as it is then.
    open.keep(vec![seen("b", 1)], 12).await;
    let taken = open.keep_one(first_use(seen("b", 2)), 13).await;
    assert_eq!(taken.approved.unwrap().version, 2);
}

pub async fn who_approved_what_when_is_kept(place: Place) {
    let open = open(&place);
    for number in 1..=3 {
        open.keep(vec![seen("a", number)], number.into()).await;
    }
    assert_eq!(open.approve("a", Which::Before, How::Rollback, 9).await, None);
    for (which, how, version) in [
        (Which::Digest([2; 32]), How::Approve, Some(2)),
        (Which::Version(3), How::Approve, Some(3)),
        (Which::Version(4), How::Approve, None),
        (Which::Digest([9; 32]), How::Approve, None),
        (Which::Before, How::Rollback, Some(2)),
        // Back from there.
        (Which::Before, How::Rollback, Some(3)),
    ] {
        let approved = open.approve("a", which, how, 9).await;
        assert_eq!(approved.map(|approved| approved.version), version, "{which:?}");
    }
    assert_eq!(open.approve("z", Which::Version(1), How::Approve, 9).await, None);
    let history = open.history("a").await;
    let told: Vec<_> = history.approvals.iter().map(|it| (it.version, it.how, &*it.by)).collect();
    let [approve, back] = [How::Approve, How::Rollback];
    assert_eq!(
        told,
        [(2, approve, "ops"), (3, approve, "ops"), (2, back, "ops"), (3, back, "ops")]
    );
    assert_eq!(history.approved().unwrap().version, 3);
    let kept = open.keep_one(seen("a", 1), 10).await;
    assert_eq!(kept.approved.as_ref(), history.approved());
}

pub async fn whoever_asks_for_news_misses_none(place: Place) {
    let open = open(&place);
    open.keep(vec![seen("a", 1), seen("b", 1)], 1).await;
    for at_ms in 0..SOME + 3 {
        let tool = if at_ms % 2 == 0 { "a" } else { "b" };
        open.approve(tool, Which::Version(1), How::Approve, at_ms as u64).await.unwrap();
    }
    let (mut after, mut all) = (open.last, Vec::new());
    loop {
        let news = open.since(after).await;
        let Some(last) = news.last() else { break };
        assert!(news.len() <= SOME);
        after = last.number;
        all.extend(news.iter().map(|approved| approved.at_ms));
    }
    assert_eq!(all, (0..SOME as u64 + 3).collect::<Vec<_>>());
}

pub async fn what_is_kept_is_bounded(place: Place) {
    let open = open(&place);
    open.keep(vec![seen("a", 1), seen("a", 2)], 1).await;
    open.approve("a", Which::Version(1), How::Approve, 1).await.unwrap();
    for number in 3..=9 {
        let kept = open.keep_one(seen("a", number), number.into()).await;
        assert_eq!(kept.version, Some(number.into()), "numbers are never given twice");
    }
    // Three that nobody approved, and the one that somebody did.
    assert_eq!(open.versions("a").await, ["1:1-1", "7:7-7", "8:8-8", "9:9-9"]);
    let all = open.keep(vec![seen("b", 1), seen("c", 1), seen("d", 1)], 20).await;
    let versions: Vec<_> = all.iter().map(|kept| kept.version).collect();
    assert_eq!(versions, [Some(1), Some(1), None]);
    let more = Seen { first_use: true, ..seen("d", 2) };
    let refused = open.keep_one(more, 21).await;
    assert!(refused.version.is_none() && refused.approved.is_none());
}

pub async fn what_is_listed_no_more_is_forgotten_unless_somebody_looked(place: Place) {
    let open = open(&place);
    let first = |tool| Seen { first_use: true, ..seen(tool, 1) };
    open.keep(vec![first("a"), first("b"), first("c")], 10).await;
    open.approve("b", Which::Version(1), How::Approve, 10).await.unwrap();
    let still: Vec<(Arc<str>, _)> = vec![("c".into(), [1; 32])];
    open.ask(|pins, then| pins.still(scope("crm"), still, 50, then)).await;
    open.ask(|pins, then| pins.sweep(40, then)).await;
    assert_eq!(open.versions("a").await, [""; 0]);
    assert_eq!(open.versions("b").await, ["1:10-10"]);
    assert_eq!(open.versions("c").await, ["1:10-50"]);
    assert!(open.history("a").await.approvals.is_empty());
    // It comes again, and is new; its approval is news.
    let before = open.since(0).await.last().unwrap().number;
    let again = open.keep_one(Seen { first_use: true, ..seen("a", 2) }, 60).await;
    assert_eq!((again.version, again.is_new), (Some(1), true));
    assert!(again.approved.unwrap().number > before);
}

/// What another gateway has kept of a tool, of which these numbers were approved there.
fn handed(tool: &str, numbers: &[u8], vouched: &[u8]) -> HandedOn {
    let versions = numbers.iter().map(|number| {
        let Seen { digest, definition, .. } = seen(tool, *number);
        let (first_ms, vouched) = (u64::from(*number), vouched.contains(number));
        Version { version: (*number).into(), digest, definition, first_ms, last_ms: 0, vouched }
    });
    HandedOn { tool: tool.into(), versions: versions.collect() }
}

pub async fn what_is_handed_on_keeps_its_numbers_and_approves_nothing(place: Place) {
    let open = open(&place);
    let take = async |tools: Vec<HandedOn>| {
        open.ask(|pins, then| pins.take_over(scope("crm"), tools, BOUNDS, 90, then)).await;
    };
    open.keep_one(seen("b", 7), 5).await;
    // Of what is known here nothing is taken over, and of more tools than are kept none.
    let of = ["a", "b", "c", "d"].map(|tool| handed(tool, &[2, 3, 5, 6, 8], &[3]));
    take(of.to_vec()).await;
    assert_eq!(open.versions("a").await, ["3:3-90", "5:5-90", "6:6-90", "8:8-90"]);
    assert_eq!(open.versions("b").await, ["1:5-5"]);
    assert_eq!(open.versions("d").await, [""; 0]);
    assert_eq!(open.since(0).await, []);
    let all = open.ask(|pins, then| pins.all_of(scope("crm"), then)).await;
    let told: Vec<_> = all.iter().map(|(tool, of)| (&**tool, of.versions.len())).collect();
    assert_eq!(told, [("a", 4), ("b", 1), ("c", 4)]);
    // By being seen first only what was approved there is approved, whatever is seen first here.
    let first = |number| Seen { first_use: true, ..seen("a", number) };
    let other = open.keep_one(first(5), 100).await;
    assert_eq!((other.version, other.is_new, other.is_other), (Some(5), false, true));
    assert!(other.approved.is_none() && !other.by_first_use);
    let new = open.keep_one(first(9), 101).await;
    assert_eq!((new.version, new.is_new, new.is_other), (Some(9), true, true));
    let looked = vec![first(5), first(3)];
    let looked = open.ask(|pins, then| pins.look(scope("crm"), looked, then)).await;
    assert_eq!(looked.iter().map(|kept| kept.is_other).collect::<Vec<_>>(), [true, false]);
    let good = open.keep_one(first(3), 102).await;
    assert_eq!((good.version, good.by_first_use, good.is_other), (Some(3), true, false));
    // Somebody's yes is good for whatever he has looked at.
    let approved = open.approve("c", Which::Version(6), How::Approve, 103).await.unwrap();
    assert_eq!((approved.version, approved.digest), (6, [6; 32]));
    let kept = open.keep_one(Seen { first_use: true, ..seen("c", 6) }, 104).await;
    assert_eq!((kept.approved, kept.is_other), (Some(approved), false));
}

pub async fn a_restart_keeps_definitions(place: Place) {
    let opened = open(&place);
    opened.keep(vec![Seen { first_use: true, ..seen("a", 1) }, seen("a", 2)], 1).await;
    let approved = opened.approve("a", Which::Version(2), How::Approve, 2).await.unwrap();
    let before = opened.history("a").await;
    opened.store.unwrap().close();
    let again = open(&place);
    assert_eq!((again.last, again.history("a").await), (approved.number, before));
    // Another process hears of what this one does from now on.
    let other = open(&place);
    let back = again.approve("a", Which::Before, How::Rollback, 3).await.unwrap();
    assert_eq!(other.since(other.last).await, [back]);
}

//! What every store of approved definitions does.

use tokio::sync::oneshot;

use super::{Opened, Store, suite::Place};
use crate::{model::server::UpstreamName, registry::store::Approved};

fn open(place: &Place) -> Opened {
    Store::open(place.address.as_ref().unwrap(), &place.clock).unwrap()
}

fn approved(tool: &str, definition: &'static str, at_ms: u64) -> Approved {
    Approved {
        upstream: UpstreamName::parse("crm").unwrap(),
        tool: tool.into(),
        definition: definition.into(),
        by: "ops".into(),
        at_ms,
    }
}

async fn keep(opened: &Opened, approved: &Approved) {
    let (tell, told) = oneshot::channel();
    opened.pins.approve(approved.clone(), Box::new(move |kept| _ = tell.send(kept)));
    told.await.unwrap().unwrap();
}

pub async fn the_last_approval_is_there_after_a_restart(place: Place) {
    let first = approved("a", "{\"name\":\"a\",\"n\":1.0}", 1);
    let (again, other) = (approved("a", "{\"name\":\"a\"}", 2), approved("b", "{}", 3));
    let opened = open(&place);
    assert!(opened.approved.is_empty());
    for approved in [&first, &other, &again] {
        keep(&opened, approved).await;
    }
    opened.store.close();
    assert_eq!(open(&place).approved, [again, other]);
}

//! Golden vectors: what later versions must go on reading and telling alike.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::{model::trace::to_hex, registry::read_kept};

#[derive(Deserialize)]
struct Digests {
    about: String,
    sha256: String,
    texts: Vec<String>,
}

#[derive(Deserialize)]
struct Changes {
    about: String,
    old: Value,
    new: Value,
    changes: Vec<String>,
}

fn vectors<T: serde::de::DeserializeOwned>(text: &str) -> Vec<T> {
    let all: Vec<T> = serde_json::from_str(text).unwrap();
    assert!(!all.is_empty());
    all
}

/// C73, C74: spelling is none of a digest's business, and everything that somebody acts on is.
#[test]
fn digests_are_those_of_the_vectors() {
    let vectors = vectors::<Digests>(include_str!("../../../tests/fixtures/pins/digests.json"));
    for Digests { about, sha256, texts } in vectors {
        for text in texts {
            let read = read_kept(Bytes::from(text.clone())).unwrap();
            assert_eq!(to_hex(read.digest.as_slice()), sha256, "{about}: {text}");
        }
    }
}

/// C74, C75 among them.
#[test]
fn changes_are_classed_as_in_the_vectors() {
    let vectors = vectors::<Changes>(include_str!("../../../tests/fixtures/pins/changes.json"));
    let mut seen = ChangeClasses::NONE;
    for Changes { about, old, new, changes } in vectors {
        let (old, new) = (old.to_string(), new.to_string());
        let found = differences(old.as_bytes(), new.as_bytes());
        let told: Vec<_> =
            found.iter().map(|it| format!("{} {}", it.class.as_str(), it.pointer)).collect();
        assert_eq!(told, changes, "{about}");
        seen = found.iter().fold(seen, |seen, it| seen.with(it.class));
        // Whatever differs is told to differ, in both directions.
        let back = differences(new.as_bytes(), old.as_bytes());
        assert_eq!(back.is_empty(), changes.is_empty(), "{about}");
        let digest = |text: &str| read_kept(Bytes::from(text.to_owned())).map(|it| it.digest);
        if let (Some(old), Some(new)) = (digest(&old), digest(&new)) {
            assert_eq!(old == new, changes.is_empty(), "{about}");
        }
    }
    assert_eq!(seen.iter().count(), ChangeClass::ALL.len(), "{seen}");
}

#[test]
fn what_is_told_of_a_difference_is_what_was_there() {
    let found = differences(
        br#"{"name":"t","inputSchema":{"properties":{"a":{"maximum":100}}}}"#,
        br#"{"name":"t","inputSchema":{"properties":{"a":{"maximum":12345678901234567890}}}}"#,
    );
    let [change] = &*found else { panic!("{found:?}") };
    let text = |value: &Option<Value>| value.as_ref().unwrap().to_string();
    assert_eq!((&*text(&change.old), &*text(&change.new)), ("100", "12345678901234567890"));
}

#[test]
fn what_cannot_be_read_is_the_worst() {
    let found = differences(b"{\"name\":\"t\"}", b"[]");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].class, ChangeClass::SchemaChanged);
}

//! Pages over catalogs that change between them, and what a partial list says.

use std::time::Duration;

use super::{super::super::stage::ListConfig, *};
use crate::{
    identity::{cursor, seal::Sealer},
    model::server::UpstreamName,
    registry::{Known, Names, read_entry},
};

fn known(name: &str, prompts: &[&str]) -> Known {
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    let entry = |name: &&str| {
        let raw = format!(r#"{{"name":"{name}"}}"#);
        let doc = json::Doc::parse(raw.into(), &limits).unwrap();
        Arc::new(read_entry(Family::Prompts, doc.root()).unwrap())
    };
    let name = UpstreamName::parse(name).unwrap();
    Known {
        served: Some(Served::PROMPTS),
        listings: [const { Listing::Listed }; 4],
        prompts: prompts.iter().map(entry).collect(),
        ..Known::new(name)
    }
}

/// What a list goes on with after an entry of an earlier catalog.
fn rest(before: &[Known], last: &str, now: &[Known]) -> Vec<String> {
    let (before, now) = (Catalog::build(Names::Always, before), Catalog::build(Names::Always, now));
    let aggregate = Surface::Aggregate;
    let last = entries(&before, &aggregate, Family::Prompts).find(|e| e.qualified == last);
    let from = after(&now, &aggregate, Family::Prompts, &place(&last.unwrap()));
    entries(&now, &aggregate, Family::Prompts)
        .filter(|entry| entry.index >= from)
        .map(|entry| entry.qualified.to_owned())
        .collect()
}

#[test]
fn a_catalog_that_changes_between_pages_loses_nothing() {
    let long = "n".repeat(300);
    let before = [known("a", &["p", "q", "r"]), known("b", &["p", &long]), known("c", &["z"])];
    for (last, now, wanted) in [
        // Nothing has changed.
        ("a/q", vec![known("a", &["p", "q", "r"]), known("b", &["x"])], vec!["a/r", "b/x"]),
        // Something new before it, or gone before it.
        ("a/q", vec![known("a", &["n", "p", "q", "r"])], vec!["a/r"]),
        ("a/q", vec![known("a", &["q", "r"])], vec!["a/r"]),
        // It has left itself: what stood beside it comes again, rather than not at all.
        ("a/q", vec![known("a", &["p", "r"]), known("b", &["x"])], vec!["a/p", "a/r", "b/x"]),
        ("b/p", vec![known("a", &["p"]), known("b", &["x"])], vec!["b/x"]),
        // Its whole upstream lists nothing any more.
        ("b/p", vec![known("a", &["p"]), known("b", &[]), known("c", &["z"])], vec!["c/z"]),
        ("c/z", vec![known("a", &["p"]), known("b", &["p"]), known("c", &[])], vec![]),
        // Its upstream has left the configuration.
        ("b/p", vec![known("a", &["p"]), known("c", &["z"])], vec!["a/p", "c/z"]),
    ] {
        assert_eq!(rest(&before, last, &now), wanted, "after {last}");
    }
    let last = format!("b/{long}");
    assert_eq!(rest(&before, &last, &before), ["c/z"], "a name too long for a cursor");
}

#[test]
fn a_place_of_any_length_fits_a_cursor() {
    let cursors = Cursors::new(Sealer::random(cursor::PURPOSE).unwrap());
    let (tenant, caller) = ("t".repeat(64), "c".repeat(64));
    let owner = crate::identity::session::Owner {
        tenant: &crate::model::caller::TenantId::new(&*tenant),
        caller: &crate::model::caller::CallerId::new(&*caller),
        employee: None,
    };
    let surface = Surface::Upstream(UpstreamName::parse(&"u".repeat(31)).unwrap());
    let list = List { owner, surface: &surface, family: Family::Templates };
    for length in [1, PLACE_MAX, PLACE_MAX + 1, 10_000] {
        let qualified = "q".repeat(length);
        let published = Bytes::new();
        let upstream = &*"u".repeat(31);
        let entry =
            Entry { index: 0, upstream, name: "", qualified: &qualified, published: &published };
        let cursor = cursors.seal(list, &place(&entry), 0).unwrap();
        assert_eq!(cursors.open(list, &cursor, 1).as_deref(), Ok(&*place(&entry)));
    }
}

#[test]
fn what_is_missing_is_named_and_told_why() {
    let mut upstreams = [known("a", &[]), known("b", &[]), known("c", &[])];
    let aggregate = Surface::Aggregate;
    let told = |upstreams: &[Known]| {
        let catalog = Catalog::build(Names::Always, upstreams);
        unavailable([&catalog].into_iter(), &aggregate, Family::Prompts)
            .map(|member| String::from_utf8(member).unwrap())
    };
    assert_eq!(told(&upstreams), None);
    upstreams[1].listings[Family::Prompts as usize] = Listing::Never("it \"said\" no".into());
    upstreams[2].listings[Family::Prompts as usize] = Listing::Pending;
    // Of another family: no matter here.
    upstreams[0].listings[Family::Tools as usize] = Listing::Pending;
    assert_eq!(
        told(&upstreams).as_deref(),
        Some(
            r#""dev.hangu/unavailable":[{"upstream":"b","reason":"it \"said\" no"},{"upstream":"c","reason":"it has not answered yet"}]"#
        )
    );
}

#[test]
fn a_surface_declares_what_it_carries() {
    let mut upstreams = [known("a", &[]), known("b", &[])];
    upstreams[0].served = Some(Served::from_bits(u16::MAX));
    let catalog = Catalog::build(Names::Always, &upstreams);
    let legacy = NorthDialect::Legacy(Version::LATEST_LEGACY);
    let everything = declared(&catalog, &Surface::Aggregate, legacy);
    assert!(everything.contains(Served::LOGGING | Served::RESOURCES | Served::COMPLETIONS));
    assert_eq!(everything.contains(Served::SUBSCRIBE), NOTICES);
    let modern = declared(&catalog, &Surface::Aggregate, NorthDialect::Modern);
    assert!(modern.contains(Served::PROMPTS) && !modern.contains(Served::LOGGING));
    let b = Surface::Upstream(UpstreamName::parse("b").unwrap());
    let b = declared(&catalog, &b, NorthDialect::Modern);
    assert!(b.contains(Served::PROMPTS) && !b.contains(Served::TOOLS | Served::RESOURCES));
    assert_eq!(ListConfig::default().wait, Duration::from_secs(20));
}

//! Listings in, catalogs out.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::{json, model::call::Surface};

mod pins;

fn upstream(name: &str) -> UpstreamName {
    UpstreamName::parse(name).unwrap()
}

fn definition(raw: &str) -> Arc<Definition> {
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    let doc = json::Doc::parse(Bytes::copy_from_slice(raw.as_bytes()), &limits).unwrap();
    Arc::new(read_definition(doc.root()).unwrap())
}

/// A listed upstream with these tools.
fn tools(name: &str, tools: Vec<Arc<Definition>>) -> Known {
    let listings = [const { Listing::Listed }; 4];
    let tools = tools.into_iter().map(KnownTool::new).collect();
    Known { tools, listings, served: Some(Served::TOOLS), ..Known::new(upstream(name)) }
}

fn entry(family: Family, raw: &str) -> Arc<Entry> {
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    let doc = json::Doc::parse(Bytes::copy_from_slice(raw.as_bytes()), &limits).unwrap();
    Arc::new(read_entry(family, doc.root()).unwrap())
}

fn own(name: &str) -> Surface {
    Surface::Upstream(upstream(name))
}

fn named(name: &str) -> Arc<Definition> {
    definition(&format!(
        r#"{{"name":{},"inputSchema":{{}}}}"#,
        serde_json::to_string(name).unwrap()
    ))
}

#[test]
fn names_on_the_aggregate_are_unique_and_legal_whatever_the_tools_are_called() {
    let odd = ["git/commit", "a b", "日報", "..", "x_y", "a__b", "", "A", "a"];
    let long = "n".repeat(128);
    let listed: Vec<_> = odd.iter().filter(|n| !n.is_empty()).map(|n| named(n)).collect();
    let known = [tools("db", listed.clone()), tools("db-x", [listed, vec![named(&long)]].concat())];
    for names in [Names::Always, Names::Conflict, Names::Never] {
        check_names(&Catalog::build(names, &known), names == Names::Never);
    }
}

fn check_names(catalog: &Catalog, collide: bool) {
    let mut seen = std::collections::HashSet::new();
    for tool in catalog.tools() {
        assert!(collide || tool.on_aggregate, "{}", tool.alias);
        if !tool.on_aggregate {
            continue;
        }
        assert!(tool.alias.len() <= NAME_MAX, "{}", tool.alias);
        assert!(
            tool.alias.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)),
            "{}",
            tool.alias
        );
        assert!(seen.insert(tool.alias.clone()), "{} twice", tool.alias);
        let found = catalog.resolve(&Surface::Aggregate, &tool.alias).unwrap();
        assert!(Arc::ptr_eq(found, tool));
        let own = Surface::Upstream(tool.upstream.clone());
        assert!(Arc::ptr_eq(catalog.resolve(&own, tool.name()).unwrap(), tool));
    }
}

#[test]
fn a_plain_name_keeps_its_letters_and_a_forged_hash_does_not_collide() {
    let odd = named("a b");
    let catalog = Catalog::build(Names::Always, &[tools("u", vec![odd, named("get_task")])]);
    let aliases: Vec<_> = catalog.tools().iter().map(|tool| tool.alias.to_string()).collect();
    assert_eq!(aliases[1], "u__get_task");
    let forged = named(aliases[0].strip_prefix("u__").unwrap());
    let both = Catalog::build(Names::Always, &[tools("u", vec![named("a b"), forged])]);
    assert_ne!(both.tools()[0].alias, both.tools()[1].alias);
}

#[test]
fn the_aggregate_renames_and_changes_nothing_else() {
    let raw = r#"{ "title":"T", "name" : "t","inputSchema":{"type":"object","x-order":[1.0]},"future":{"a":null} }"#;
    let catalog = Catalog::build(Names::Always, &[tools("up", vec![definition(raw)])]);
    let tool = &catalog.tools()[0];
    let own = Surface::Upstream(upstream("up"));
    assert_eq!(tool.published(&own), raw);
    assert_eq!(
        tool.published(&Surface::Aggregate),
        &raw.replace(r#""name" : "t""#, r#""name" : "up__t""#)
    );
}

#[test]
fn a_listing_has_an_age_and_what_went_wrong_stays_known() {
    let registry = Registry::new([upstream("u")]);
    let looks = || registry.known(&upstream("u")).unwrap().1;
    assert_eq!((looks(), looks().is_stale()), (Looks::default(), false));
    registry.not_looked(&upstream("u"), 5, "no answer");
    assert!(looks().is_stale() && looks().listed_ms.is_none());
    registry.looked(&upstream("u"), 7);
    let failed = Some((5, "no answer".into()));
    assert_eq!(looks(), Looks { listed_ms: Some(7), failed });
    assert!(!looks().is_stale());
    registry.not_looked(&upstream("u"), 9, "no answer");
    assert!(looks().is_stale() && looks().listed_ms == Some(7));
    assert!(registry.known(&upstream("v")).is_none());
}

#[test]
fn a_failed_listing_keeps_the_last_good_one() {
    let registry = Registry::new([upstream("u"), upstream("v")]);
    registry.listed(&upstream("u"), vec![named("t")]);
    assert!(!registry.failed(&upstream("u"), Family::Tools, "no answer"));
    assert!(registry.failed(&upstream("v"), Family::Tools, "no answer"));
    assert!(!registry.failed(&upstream("v"), Family::Tools, "no answer"), "the same news twice");
    let catalog = registry.catalog();
    assert_eq!(catalog.tools().len(), 1);
    assert_eq!(catalog.listing(&upstream("u")), Some(&Listing::Listed));
    let never = Some(&Listing::Never("no answer".into()));
    assert_eq!(catalog.listing_of(&upstream("v"), Family::Tools), never);
    assert_eq!(catalog.listing_of(&upstream("v"), Family::Prompts), Some(&Listing::Pending));
    let (owner, _) = catalog.prefix_owner("v__anything").unwrap();
    assert_eq!(owner, &upstream("v"));
}

#[test]
fn a_tool_that_is_no_longer_listed_leaves() {
    let registry = Registry::new([upstream("u")]);
    registry.listed(&upstream("u"), vec![named("a"), named("b")]);
    assert!(registry.listed(&upstream("u"), vec![named("b")]).changed);
    let catalog = registry.catalog();
    assert_eq!(catalog.tools().len(), 1);
    assert!(catalog.resolve(&Surface::Aggregate, "u__a").is_none());
}

#[test]
fn plain_names_are_kept_as_far_as_the_mode_can() {
    let known = [
        tools("a", vec![named("both"), named("mine"), named("a b"), named("b__x")]),
        tools("b", vec![named("both"), named("x"), named("a b")]),
    ];
    let aliases = |names| {
        let catalog = Catalog::build(names, &known);
        let on = catalog.on(&Surface::Aggregate).map(|tool| tool.alias.to_string());
        (on.collect::<Vec<_>>(), catalog.left_out().len())
    };
    let hashed = |name: String| name.rsplit_once('_').unwrap().0.to_owned();
    let (conflict, left_out) = aliases(Names::Conflict);
    assert_eq!(left_out, 0);
    assert_eq!(hashed(conflict[2].clone()), "a__a_b");
    // `b__x` in `a` would be read as `x` of `b`.
    assert_eq!([&*conflict[0], &*conflict[1], &*conflict[3]], ["a__both", "mine", "a__b__x"]);
    assert_eq!([&*conflict[4], &*conflict[5]], ["b__both", "x"]);
    let (never, left_out) = aliases(Names::Never);
    // The second `both` and the second `a b`.
    assert_eq!(left_out, 2);
    assert_eq!([&*never[0], &*never[1], &*never[3], &*never[4]], ["both", "mine", "b__x", "x"]);
    let catalog = Catalog::build(Names::Never, &known);
    assert_eq!(catalog.resolve(&Surface::Aggregate, "both").unwrap().upstream, upstream("a"));
    assert_eq!(catalog.resolve(&own("b"), "both").unwrap().upstream, upstream("b"));
}

#[test]
fn families_share_one_space_of_indices() {
    let known = [
        Known {
            prompts: vec![entry(Family::Prompts, r#"{"name":"p"}"#)],
            ..tools("a", vec![named("t"), named("p")])
        },
        Known {
            resources: vec![entry(Family::Resources, r#"{"uri":"file:///a","name":"a"}"#)],
            templates: vec![entry(Family::Templates, r#"{"name":"n","uriTemplate":"db:{t}"}"#)],
            ..tools("b", vec![named("t")])
        },
    ];
    let catalog = Catalog::build(Names::Always, &known);
    for (index, tool) in catalog.tools().iter().enumerate() {
        assert_eq!(tool.index, index);
    }
    for (index, item) in catalog.items().iter().enumerate() {
        assert_eq!(item.index, catalog.tools().len() + index);
        for surface in [Surface::Aggregate, Surface::Upstream(item.upstream.clone())] {
            let name = item.name_on(&surface);
            let found = catalog.item(&surface, item.family, name).unwrap();
            assert!(Arc::ptr_eq(found, item), "{name}");
        }
    }
    // A prompt may have a tool's name.
    let prompt = catalog.item(&Surface::Aggregate, Family::Prompts, "a__p").unwrap();
    assert_eq!((&*prompt.qualified, prompt.index), ("a/p", 3));
    assert_eq!(prompt.alias_raw, r#"{"name":"a__p"}"#);
    let template = catalog.item(&Surface::Aggregate, Family::Templates, "b+db:{t}").unwrap();
    assert_eq!(template.alias_raw, r#"{"name":"n","uriTemplate":"b+db:{t}"}"#);
    assert!(catalog.item(&Surface::Aggregate, Family::Resources, "b+db:{t}").is_none());
}

#[test]
fn a_uri_names_its_upstream_whatever_it_looks_like() {
    let known = ["orders", "a-b", "a"].map(|name| tools(name, Vec::new()));
    let catalog = Catalog::build(Names::Always, &known);
    let aggregate = Surface::Aggregate;
    for (index, name) in ["orders", "a-b", "a"].into_iter().enumerate() {
        for odd in [
            "file:///a",
            "FILE:///A",
            "no-scheme",
            "/a/b",
            ":",
            "+",
            "a+b:c",
            "orders+file:///a",
            "{scheme}://x",
            "\u{65e5}\u{5831}",
            " ",
        ] {
            let public = catalog.public_uri(&aggregate, index, odd);
            assert_eq!(public, format!("{name}+{odd}"));
            let found = catalog.resource(&aggregate, &public).unwrap();
            assert_eq!((found.0, &*found.1), (index, odd));
            assert_eq!(catalog.public_uri(&own(name), index, odd), odd);
            let found = catalog.resource(&own(name), odd).unwrap();
            assert_eq!((found.0, &*found.1), (index, odd));
        }
    }
    for nobody in ["file:///a", "x+file:///a", "Orders+file:///a", "orders", "orders+", "", "+a"] {
        assert!(catalog.resource(&aggregate, nobody).is_none(), "{nobody}");
    }
    assert!(catalog.resource(&own("x"), "file:///a").is_none());
}

#[test]
fn a_family_that_fails_costs_no_other() {
    let registry = Registry::new([upstream("u")]);
    let up = upstream("u");
    let served = Served::TOOLS | Served::PROMPTS;
    assert!(registry.declared(&up, served, None));
    assert!(!registry.declared(&up, served, None), "the same news twice");
    registry.listed(&up, vec![named("t")]);
    let prompt = entry(Family::Prompts, r#"{"name":"p"}"#);
    assert!(registry.listed_items(&up, Family::Prompts, vec![prompt.clone()]));
    let again = Arc::new(read_again(&prompt));
    assert!(!registry.listed_items(&up, Family::Prompts, vec![again]), "nothing has changed");
    assert!(!registry.failed(&up, Family::Prompts, "no answer"));
    let catalog = registry.catalog();
    assert_eq!(catalog.items().len(), 1);
    assert_eq!(catalog.listing_of(&up, Family::Resources), Some(&Listing::Listed), "not served");
    assert_eq!(catalog.served(&Surface::Aggregate), served);
    // A server that no longer serves it no longer has it.
    assert!(registry.declared(&up, Served::TOOLS, None));
    assert_eq!(registry.catalog().items().len(), 0);
}

fn read_again(of: &Entry) -> Entry {
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    read_entry(of.family, json::Doc::parse(of.raw.clone(), &limits).unwrap().root()).unwrap()
}

#[test]
fn a_surface_serves_what_one_of_its_upstreams_declares() {
    let mut known = [tools("a", Vec::new()), tools("b", Vec::new()), Known::new(upstream("c"))];
    known[0].served = Some(Served::PROMPTS);
    known[0].instructions = Some("be kind".into());
    let catalog = Catalog::build(Names::Always, &known);
    assert_eq!(catalog.served(&Surface::Aggregate), Served::TOOLS | Served::PROMPTS);
    assert_eq!(catalog.served(&own("a")), Served::PROMPTS);
    assert_eq!(catalog.served(&own("b")), Served::TOOLS);
    assert_eq!(catalog.served(&own("c")), Served::TOOLS, "nobody has heard it yet");
    assert_eq!(catalog.instructions(&own("a")).unwrap().as_ref(), "be kind");
    assert_eq!(catalog.instructions(&Surface::Aggregate), None);
}

//! Listings in, catalogs out.

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::{json, model::call::Surface};

fn upstream(name: &str) -> UpstreamName {
    UpstreamName::parse(name).unwrap()
}

fn definition(raw: &str) -> Arc<Definition> {
    let limits = json::Limits { depth: 64, duplicates: json::Duplicates::Allow, outline: 2 };
    let doc = json::Doc::parse(Bytes::copy_from_slice(raw.as_bytes()), &limits).unwrap();
    Arc::new(read_definition(doc.root()).unwrap())
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
    let catalog = Catalog::build([
        (upstream("db"), Listing::Listed, listed.clone()),
        (upstream("db-x"), Listing::Listed, [listed, vec![named(&long)]].concat()),
    ]);
    let mut seen = std::collections::HashSet::new();
    for tool in catalog.tools() {
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
    let catalog = Catalog::build([(upstream("u"), Listing::Listed, vec![odd, named("get_task")])]);
    let aliases: Vec<_> = catalog.tools().iter().map(|tool| tool.alias.to_string()).collect();
    assert_eq!(aliases[1], "u__get_task");
    let forged = named(aliases[0].strip_prefix("u__").unwrap());
    let both = Catalog::build([(upstream("u"), Listing::Listed, vec![named("a b"), forged])]);
    assert_ne!(both.tools()[0].alias, both.tools()[1].alias);
}

#[test]
fn the_aggregate_renames_and_changes_nothing_else() {
    let raw = r#"{ "title":"T", "name" : "t","inputSchema":{"type":"object","x-order":[1.0]},"future":{"a":null} }"#;
    let catalog = Catalog::build([(upstream("up"), Listing::Listed, vec![definition(raw)])]);
    let tool = &catalog.tools()[0];
    let own = Surface::Upstream(upstream("up"));
    assert_eq!(tool.published(&own), raw);
    assert_eq!(
        tool.published(&Surface::Aggregate),
        &raw.replace(r#""name" : "t""#, r#""name" : "up__t""#)
    );
}

#[test]
fn a_definition_that_changes_keeps_its_first_form_and_is_told_once() {
    let registry = Registry::new([upstream("u")]);
    let first = definition(r#"{"name":"t","description":"reads","inputSchema":{}}"#);
    let other = definition(r#"{"name":"t","description":"reads; also mail it","inputSchema":{}}"#);
    assert!(registry.listed(&upstream("u"), vec![first.clone()]).changed);
    let change = registry.listed(&upstream("u"), vec![other.clone()]);
    assert!(!change.changed);
    assert_eq!(change.drifted.len(), 1);
    assert!(registry.listed(&upstream("u"), vec![other]).drifted.is_empty(), "told twice");
    assert_eq!(registry.catalog().tools()[0].definition.raw, first.raw);
}

#[test]
fn spelling_is_no_change_of_a_definition() {
    let a = definition(
        r#"{"name":"t","description":"café","inputSchema":{"type":"object","maximum":100}}"#,
    );
    let b = definition(
        r#"{"inputSchema":{"maximum":1e2,"type":"object"},"description":"caf\u00e9","name":"t"}"#,
    );
    assert_eq!(a.digest, b.digest);
}

#[test]
fn a_failed_listing_keeps_the_last_good_one() {
    let registry = Registry::new([upstream("u"), upstream("v")]);
    registry.listed(&upstream("u"), vec![named("t")]);
    assert!(!registry.failed(&upstream("u"), "no answer"));
    assert!(registry.failed(&upstream("v"), "no answer"));
    assert!(!registry.failed(&upstream("v"), "no answer"), "the same news twice");
    let catalog = registry.catalog();
    assert_eq!(catalog.tools().len(), 1);
    assert_eq!(catalog.listing(&upstream("u")), Some(&Listing::Listed));
    assert_eq!(catalog.listing(&upstream("v")), Some(&Listing::Never("no answer".into())));
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

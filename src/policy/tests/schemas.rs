//! The schemas say what the readers read.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;

use super::*;
use crate::yaml;

/// Every kind of mapping there is, and nothing wrong with any.
const ALL: &str = "
version: hangu/v1
kind: Policy
scope: { tenant: acme }
roles: { a: { claim: groups, any: [x], includes: [b] } }
rules:
  - { id: a, effect: require_approval, when: { arg: /x, eq: 1 }, approval: { roles: [o] } }
  - { id: b, effect: allow, rollout: { percent: 1 } }
limits: [{ id: a, per: [tool], rate: 1/1s }, { id: b, per: [tool], concurrency: 1 }]
quotas:
  - id: a
    per: [tenant]
    budget: { cost: 1, every: day, zone: UTC }
    steps: [{ at: 100%, do: deny }]
self_service:
  { roles: [a], hosts: [h.example], max_each: 5, share: { roles: [a] }, default: { risk: read_low } }
---
version: hangu/v1
kind: Tools
upstreams:
  crm:
    tools: { x: { risk: read_low, quality: { min: 1, block: [vague] }, on_change: { default: keep }, override: { parameters: { p: { hidden: true } } } } }
---
version: hangu/v1
kind: Directory
employees: { E1: { tenant: acme } }
---
version: hangu/v1
kind: PolicyTest
cases:
  - name: a
    as: { tenant: acme }
    given: { quota: { a: 10% } }
    call: crm/x
    expect: { decision: deny }
  - { name: b, as: { tenant: acme }, list: { hidden: [crm/x] } }
";

/// The keys of each mapping of a schema.
fn mappings(schema: &Value, found: &mut BTreeSet<BTreeSet<String>>) {
    if let Some(keys) = schema.get("properties").and_then(Value::as_object) {
        found.insert(keys.keys().cloned().collect());
    }
    match schema {
        Value::Object(members) => members.values().for_each(|member| mappings(member, found)),
        Value::Array(items) => items.iter().for_each(|item| mappings(item, found)),
        _ => {}
    }
}

#[test]
fn every_key_that_is_read_is_described_and_no_other() {
    let mut described = BTreeSet::new();
    for (_, text) in schemas() {
        mappings(&serde_json::from_str(&text).unwrap(), &mut described);
    }
    yaml::seen::take();
    let (policies, faults) = Library::new(Language::Whole).compile(vec![file("all.yaml", ALL)]);
    assert!(policies.is_some(), "{:#?}", told(&faults));
    let read = yaml::seen::take();
    let read: BTreeSet<BTreeSet<String>> =
        read.iter().map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()).collect();
    // The two kinds of a limit ask for each other's keys only where they are given, and so do the
    // two ways to publish something else.
    let missing: Vec<_> =
        read.iter().filter(|own| !described.iter().any(|all| own.is_subset(all))).collect();
    assert!(missing.is_empty(), "read and not described: {missing:#?}");
    let union: BTreeSet<&String> = read.iter().flatten().collect();
    let idle: Vec<_> = described.iter().flatten().filter(|key| !union.contains(key)).collect();
    assert!(idle.is_empty(), "described and not read: {idle:?}");
}

#[test]
fn the_schemas_in_the_folder_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/schemas");
    for (name, text) in schemas() {
        let written = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let kind = name.split('.').next().unwrap();
        assert!(written == text, "hangu policy schema {kind} > policies/schemas/{name}");
    }
}

#[test]
fn what_ships_and_the_drafts_fit_their_schemas() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schemas = schemas().map(|(name, text)| {
        let schema: Value = serde_json::from_str(&text).unwrap();
        (name, jsonschema::validator_for(&schema).unwrap())
    });
    let mut documents = 0;
    for folder in ["policies", "tests/fixtures/policies", "src/cli/templates/policies"] {
        for path in yaml_files(&root.join(folder)).unwrap() {
            let text = std::fs::read_to_string(&path).unwrap();
            let values: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
            for value in values {
                let kind = value["kind"].as_str().unwrap().to_lowercase();
                let name = format!("{kind}.v1.json");
                let (_, schema) = schemas.iter().find(|(own, _)| **own == *name).unwrap();
                let errors: Vec<_> = schema.iter_errors(&value).map(|e| e.to_string()).collect();
                assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
                documents += 1;
            }
        }
    }
    assert!(documents >= 15, "{documents}");
    let (_, policy) = &schemas[0];
    let wrong = serde_json::json!({
        "version": "hangu/v1", "kind": "Policy", "scope": "platform",
        "rules": [{ "id": "a", "effect": "allow", "risk": ["read_lo"] }],
    });
    assert!(!policy.is_valid(&wrong));
}

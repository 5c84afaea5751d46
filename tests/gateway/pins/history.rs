//! What operators are told of definitions, and what policy makes of their changes.

use std::fs;

use serde_json::{Value, json};

use super::{EVERYTHING, EYES, OPS, asked, pins, with_tokens};
use crate::process_support::{Dialect, Process, Setup, Shelf, tool, until};

/// A tool that looks, with these arguments.
fn looking(properties: &Value, required: &[&str]) -> Value {
    json!({
        "name": "look", "description": "Looks.",
        "inputSchema": { "type": "object", "properties": properties, "required": required },
    })
}

fn names(gateway: &Process) -> Vec<String> {
    gateway.client("/mcp/up", Dialect::Modern).list()
}

fn pin(gateway: &Process) -> Value {
    asked(gateway, &["ls"])["pins"][0].clone()
}

/// The classes of a difference, with their places.
fn told(diff: &Value) -> Vec<String> {
    let all = diff.as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|it| format!("{} {}", text(&it["class"]), text(&it["pointer"]))).collect()
}

#[test]
fn every_definition_is_kept_compared_approved_and_gone_back_to() {
    let first = looking(&json!({ "q": { "type": "string", "maxLength": 10 } }), &["q"]);
    let (up, shop) = Shelf { tools: vec![first.clone()], ..Shelf::default() }.serve();
    let over = "look: { risk: write_low, idempotency: none, name: seek, description: Seeks., \
                hide: [secret] }";
    let setup = with_tokens(Setup::new()).upstream("up", &up, "", over);
    let gateway = setup.policy("all.yaml", EVERYTHING).start();
    assert_eq!(names(&gateway), ["seek"]);
    let alone = pins(&gateway, EYES, &["diff", "up/look"]);
    assert!(alone.0 == Some(1) && alone.1.contains("no other definition"), "{alone:?}");

    let second = json!({
        "q": { "type": "string", "maxLength": 20 }, "secret": { "type": "string" },
    });
    shop.change(|shelf| shelf.tools = vec![looking(&second, &["q"])]);
    until("it is held", || names(&gateway).is_empty());
    let state = pin(&gateway);
    assert_eq!(state["held"], "changed", "{state:#}");
    assert_eq!(state["schemaVersion"]["ordinal"], 2);
    assert_eq!(
        (&state["approvedVersion"], &state["approvedHow"]),
        (&json!(1), &json!("first_use"))
    );
    assert_eq!(state["changes"], json!(["parameter_added_optional", "constraint_loosened"]));
    assert!(state["serverKey"].as_str().unwrap().starts_with("mcp_"), "{state:#}");
    let diff = asked(&gateway, &["diff", "up/look"]);
    assert_eq!(
        told(&diff["changes"]),
        [
            "constraint_loosened /inputSchema/properties/q/maxLength",
            "parameter_added_optional /inputSchema/properties/secret"
        ]
    );
    // What is hidden is no difference for those who call it.
    let published = &diff["published"];
    assert_eq!(
        told(&published["changes"]),
        ["constraint_loosened /inputSchema/properties/q/maxLength"]
    );
    assert_eq!(published["to"]["definition"]["name"], "seek");
    let (_, text) = pins(&gateway, EYES, &["diff", "up/look"]);
    for part in ["constraint_loosened", "- 10", "+ 20", "as it is published", "version 1, approved"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }

    for (token, args, code, word) in [
        (OPS, &["approve", "up/look", "--version", "2"][..], 1, "may not do this"),
        (OPS, &["rollback", "up/look"], 1, "may not do this"),
        (EYES, &["rollback", "up/look"], 1, "no other definition of this tool was approved before"),
        (EYES, &["approve", "up/look", "--version", "3"], 1, "no such tool has this definition"),
        (EYES, &["approve", "up/none"], 1, "no server lists `up/none`"),
        (EYES, &["diff", "up/look", "--from", "x"], 1, "`from` is a version's number"),
        (EYES, &["diff", "up/look", "--from", "9"], 1, "no such tool has this definition"),
        (EYES, &["ls", "up/none"], 1, "no such tool"),
        (EYES, &["ls", "none"], 2, "UPSTREAM/TOOL"),
        (OPS, &["diff", "up/look"], 0, "constraint_loosened"),
    ] {
        let (ended, said) = pins(&gateway, token, args);
        assert!(ended == Some(code) && said.contains(word), "{args:?}: {ended:?} {said}");
    }
    let (code, said) = pins(&gateway, EYES, &["approve", "up/look", "--version", "2"]);
    assert!(code == Some(0) && said.ends_with("in use\n"), "{said}");
    // The face that it was given stays.
    let list = gateway.client("/mcp/up", Dialect::Modern).send("tools/list", json!({})).result();
    let seen = &list["tools"][0];
    assert_eq!((&seen["name"], &seen["description"]), (&json!("seek"), &json!("Seeks.")));
    assert!(!list.to_string().contains("secret") && list.to_string().contains("20"), "{list}");

    let (code, said) = pins(&gateway, EYES, &["rollback", "up/look"]);
    assert!(code == Some(0) && said.contains("back to up/look version 1"), "{said}");
    assert!(said.contains("held: its server lists version 2"), "{said}");
    assert_eq!(names(&gateway), [""; 0], "its server does not do it so any more");
    shop.change(|shelf| shelf.tools = vec![first]);
    until("it does again", || names(&gateway) == ["seek"]);
    let history = asked(&gateway, &["ls", "up/look"]);
    let by: Vec<_> = history["approvals"].as_array().unwrap().iter().map(|it| &it["by"]).collect();
    assert_eq!(by, [&Value::Null, &json!("eyes"), &json!("eyes")]);
    shop.change(|shelf| shelf.tools.clear());
    until("it has left", || asked(&gateway, &["ls"])["pins"] == json!([]));
    assert_eq!(asked(&gateway, &["ls", "up/look"])["versions"].as_array().unwrap().len(), 2);
    records(&gateway);
}

/// Each change of a definition, and of what is approved, is on record.
fn records(gateway: &Process) {
    let of = |record: &&Value| record["event"] == "pin_change";
    let records = gateway.audit_until(|records| {
        records.iter().filter(of).any(|record| record["action"] == "tool_removed")
    });
    let records: Vec<_> = records.iter().filter(of).collect();
    let actions: Vec<_> = records.iter().map(|it| it["action"].as_str().unwrap()).collect();
    let [changed, back] = ["definition_changed"; 2];
    assert_eq!(actions, ["first_use", changed, "approved", "rolled_back", back, "tool_removed"]);
    let approved = records[2];
    assert_eq!(approved["schemaVersion"], 2, "{approved:#}");
    assert_eq!(approved["principal"]["caller"], "eyes");
    assert_eq!((&approved["upstream"], &approved["tool"]), (&json!("up"), &json!("look")));
    assert!(approved["pin"].is_string());
    assert_eq!(
        records[1]["classes"],
        json!(["parameter_added_optional", "constraint_loosened"]),
        "{:#}",
        records[1]
    );
    let metrics = gateway.metrics();
    assert!(metrics.contains("hangu_pin_mismatches_total{hangu_upstream=\"up\"} 2"), "{metrics}");
}

/// A tool that only looks goes on or is held by what has changed, as policy says.
#[test]
fn policy_says_after_which_changes_a_tool_that_only_looks_is_held() {
    let q = json!({ "type": "string" });
    let first = looking(&json!({ "q": q, "p": q }), &["q"]);
    let (up, shop) = Shelf { tools: vec![first.clone()], ..Shelf::default() }.serve();
    let setup = with_tokens(Setup::new()).upstream("up", &up, "", "look: { risk: read_low }");
    let gateway = setup.policy("all.yaml", EVERYTHING).start();
    let client = |dialect| gateway.client("/mcp/up", dialect);
    let listed = || client(Dialect::Modern).send("tools/list", json!({})).result().to_string();
    assert_eq!(names(&gateway), ["look"]);
    // One more, that nobody has to give: it goes on as it was.
    shop.change(|shelf| {
        shelf.tools = vec![looking(&json!({ "q": q, "p": q, "more": q }), &["q"])];
    });
    until("it is known", || pin(&gateway)["schemaVersion"]["ordinal"] == 2);
    assert!(pin(&gateway)["held"].is_null() && !listed().contains("more"), "{}", listed());
    // One less.
    shop.change(|shelf| shelf.tools = vec![looking(&json!({ "q": q }), &["q"])]);
    until("it is held", || names(&gateway).is_empty());
    for dialect in Dialect::ALL {
        let answer = client(dialect).call("look", json!({ "q": "x" }));
        assert_eq!(answer.word(), "unsafe_action_blocked", "{dialect:?}");
    }
    let file = gateway.home().path("policies/tools-up.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let say = |on_change: &str| {
        let with = format!("look: {{ risk: read_low, on_change: {on_change} }}");
        fs::write(&file, text.replace("look: { risk: read_low }", &with)).unwrap();
    };
    say("{ parameter_removed: keep }");
    until("policy lets it", || names(&gateway) == ["look"]);
    assert!(listed().contains("\"p\""), "as it was approved: {}", listed());
    say("quarantine");
    until("policy holds it", || names(&gateway).is_empty());
    say("keep");
    until("policy lets it go on", || names(&gateway) == ["look"]);
    // What begins to write is no tool that only looks, whatever policy says.
    shop.change(|shelf| {
        shelf.tools = vec![first.clone()];
        shelf.tools[0]["annotations"] = json!({ "readOnlyHint": true });
    });
    until("it is another", || pin(&gateway)["schemaVersion"]["ordinal"] == 4);
    assert_eq!(pins(&gateway, EYES, &["approve", "up/look"]).0, Some(0));
    shop.change(|shelf| shelf.tools[0]["annotations"] = json!({ "readOnlyHint": false }));
    until("it is held", || pin(&gateway)["held"] == "changed");
    assert!(names(&gateway).is_empty());
    assert!(pin(&gateway)["changes"].as_array().unwrap().contains(&json!("dangerous")));
}

/// A tool that is missing from a good listing is missing everywhere, at once.
#[test]
fn a_tool_that_is_no_longer_listed_is_gone_for_everybody() {
    let (up, shop) = Shelf { tools: vec![tool("look"), tool("other")], ..Shelf::default() }.serve();
    let gateway = Setup::new().upstream("up", &up, "", "").start();
    for dialect in Dialect::ALL {
        assert_eq!(gateway.client("/mcp/up", dialect).list(), ["look", "other"]);
    }
    shop.change(|shelf| shelf.tools.truncate(1));
    until("it has left", || names(&gateway) == ["look"]);
    for dialect in Dialect::ALL {
        for (path, name) in [("/mcp/up", "other"), ("/mcp", "up__other")] {
            let client = gateway.client(path, dialect);
            assert_eq!(client.list().len(), 1, "{dialect:?} {path}");
            let (gone, never) = (client.call(name, json!({})), client.call("up__never", json!({})));
            assert_eq!((gone.status, gone.word()), (never.status, never.word()), "{dialect:?}");
        }
    }
    assert!(up.calls().is_empty());
}

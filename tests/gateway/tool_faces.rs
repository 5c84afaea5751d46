//! What is published of a tool instead of what its server says, and the arguments that the
//! gateway sends of itself, in every dialect.

use serde_json::{Value, json};

use crate::process_support::{Dialect, Process, Response, Setup, Upstream, text_result};

/// A tool with an argument for each thing that a face can say.
fn update() -> Value {
    json!({
        "name": "contacts.update",
        "title": "Update",
        "description": "Changes a contact.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tenantId": { "type": "string" },
                "by": { "type": "string", "x-mcp-header": "By" },
                "trace": { "type": "string" },
                "level": { "type": "integer" },
                "mode": { "type": "string", "enum": ["soft", "hard", "purge"], "description": "m" },
                "raw": { "type": "boolean", "default": false },
                "id": { "type": "string" }
            },
            "required": ["tenantId", "id", "raw"],
            "additionalProperties": false
        }
    })
}

const FACE: &str = "contacts.update: {
    risk: read_low,
    inject: { tenantId: $ctx.tenant, by: $ctx.user.empId, trace: \"req-$ctx.requestId\", level: \"3\" },
    override: {
      name: change, description: Changes it.,
      parameters: {
        mode: { description: How., enum: [soft, hard] },
        raw: { hidden: true },
      },
    },
  }";

fn shown(name: &str) -> Value {
    json!({
        "name": name,
        "title": "Update",
        "description": "Changes it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "mode": { "type": "string", "enum": ["soft", "hard"], "description": "How." },
                "id": { "type": "string" }
            },
            "required": ["id"],
            "additionalProperties": false
        }
    })
}

fn listed(answer: &Response) -> Vec<Value> {
    answer.result()["tools"].as_array().unwrap().clone()
}

fn gateway(up: &Upstream, tools: &str) -> Process {
    Setup::new().upstream("crm", up, "", tools).start()
}

#[test]
fn a_tool_is_published_as_the_files_say_and_its_server_gets_what_it_knows() {
    let up = Upstream::start(&[update()]);
    up.on_call(|seen| seen.result(text_result("done")));
    let gateway = gateway(&up, FACE);
    for dialect in Dialect::ALL {
        for (path, name) in [("/mcp", "crm__change"), ("/mcp/crm", "change")] {
            let client = gateway.client(path, dialect);
            let tools = listed(&client.send("tools/list", json!({})));
            assert_eq!(tools, [shown(name)], "{dialect:?} {path}");
            up.forget();
            let answer = client.call(name, json!({ "id": "7", "mode": "soft" }));
            assert_eq!(answer.word(), "ok", "{dialect:?} {answer:?}");
            let seen = up.calls().pop().unwrap();
            assert_eq!(seen.tool(), "contacts.update");
            let trace = seen.params["arguments"]["trace"].as_str().unwrap().to_owned();
            let sent = json!({
                "id": "7", "mode": "soft", "tenantId": "acme", "by": "E1", "trace": trace, "level": 3,
                "raw": false
            });
            assert_eq!(seen.params["arguments"], sent, "{dialect:?} {path}");
            assert_eq!(seen.header("mcp-param-by"), Some("E1"));
            // The record has the server's own name, and the id that the server was told.
            let record = gateway.record_of(&answer);
            assert_eq!(record["tool"], "crm/contacts.update", "{record:#}");
            assert_eq!(trace, format!("req-{}", record["toolCallId"].as_str().unwrap()));
            // Its own name is no longer one.
            let own = if path == "/mcp" { "crm__contacts.update" } else { "contacts.update" };
            let unknown = client.call(own, json!({ "id": "7" }));
            let nobody = client.call("nothing", json!({}));
            assert_eq!(unknown.word(), nobody.word(), "{dialect:?} {unknown:?}");
        }
    }
}

#[test]
fn what_is_not_the_callers_to_give_is_refused_and_so_is_what_is_not_offered() {
    let up = Upstream::start(&[update()]);
    let gateway = gateway(&up, FACE);
    for dialect in Dialect::ALL {
        let client = gateway.client("/mcp/crm", dialect);
        for (arguments, pointer) in [
            (json!({ "id": "7", "tenantId": "globex" }), "/tenantId"),
            (json!({ "id": "7", "tenantId": "acme" }), "/tenantId"),
            (json!({ "id": "7", "tenantId": null }), "/tenantId"),
            (json!({ "id": "7", "raw": true }), "/raw"),
            (json!({ "id": "7", "mode": "purge" }), "/mode"),
            (json!({ "id": 7 }), "/id"),
            (json!({ "mode": "soft" }), "/id"),
        ] {
            let answer = client.call("change", arguments.clone());
            let fault = answer.fault();
            assert_eq!(fault["code"], "invalid_args", "{dialect:?} {arguments}: {answer:?}");
            assert_eq!(fault["pointer"], pointer, "{dialect:?} {arguments}");
            // Nobody reads here what the gateway would have sent.
            assert!(!answer.text().contains("req-"), "{answer:?}");
        }
        // However it is spelled.
        let body = r#"{"name":"change","arguments":{"id":"7","tenant\u0049d":"globex"}}"#;
        if dialect == Dialect::Lite {
            let headers = [("X-Api-Key", crate::process_support::KEY), ("SSO-Emp-Id", "E1")];
            let answer = client.raw("/mcp/crm/tools/call", &headers, body.as_bytes()).unwrap();
            assert_eq!(answer.fault()["pointer"], "/tenantId", "{answer:?}");
        }
    }
    assert_eq!(up.calls().len(), 0, "nothing left");
}

#[test]
fn a_call_for_which_there_is_no_value_is_refused_and_not_the_callers_fault() {
    let up = Upstream::start(&[json!({
        "name": "t",
        "inputSchema": { "properties": { "who": { "type": "integer" }, "by": { "enum": ["E2"] } } }
    })]);
    let tools = "t: { risk: read_low, inject: { by: $ctx.user.empId } }";
    let rule = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: members, effect: allow, roles: [member] }
  - { id: night, effect: allow, callers: [night] }
";
    let setup = Setup::new().policy("platform.yaml", rule).upstream("up", &up, "", tools);
    let setup = setup.caller("night: { keys: [{ env: NIGHT }], tenant: acme }");
    let gateway = setup.env("NIGHT", "the-key-of-the-night-job").start();
    let client = gateway.client("/mcp/up", Dialect::Lite);
    let nobody = client.clone().key("the-key-of-the-night-job").without("SSO-Emp-Id");
    for (client, why) in [
        (nobody, "`t` must be told something of the caller that is not known"),
        // The schema does not take this one's name.
        (client.clone().employee("E1"), "`t` takes nothing like what is known of the caller"),
    ] {
        let answer = client.call("t", json!({}));
        assert_eq!(answer.word(), "permission_denied", "{answer:?}");
        assert!(answer.text().contains(why), "{answer:?}");
        assert!(answer.fault()["pointer"].is_null(), "{answer:?}");
        let record = gateway.record_of(&answer);
        assert_eq!(record["code"], "permission_denied", "{record:#}");
    }
    assert_eq!(up.calls().len(), 0, "nothing left");
    assert_eq!(client.employee("E2").call("t", json!({})).word(), "ok");
}

#[test]
fn a_key_finds_its_call_again_whatever_the_gateway_put_in() {
    let up = Upstream::start(&[json!({
        "name": "w", "inputSchema": { "properties": { "request": { "type": "string" } } }
    })]);
    let tools = "w: { risk: write_low, inject: { request: $ctx.requestId } }";
    let gateway = gateway(&up, tools);
    let client = gateway.client("/mcp/crm", Dialect::Lite);
    let client = client.header("Idempotency-Key", "k-1");
    let (first, second) =
        (client.call("w", json!({ "a": 1 })), client.call("w", json!({ "a": 1.0 })));
    assert_eq!((first.word(), second.word()), ("ok".into(), "ok".into()));
    assert_eq!(second.header("idempotency-replayed"), Some("true"));
    assert_eq!(up.calls().len(), 1);
    let hash = |answer: &Response| gateway.record_of(answer)["argsHash"].clone();
    assert_eq!(hash(&first), hash(&second));
    // The gateway publishes the key's argument beside what it hides.
    let tools = listed(&client.send("tools/list", json!({})));
    let properties = tools[0]["inputSchema"]["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["idempotencyKey"]);
}

/// What a rule about arguments looks at is what the caller sent.
#[test]
fn rules_do_not_see_what_the_gateway_puts_in() {
    let up = Upstream::start(&[update()]);
    let rule = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: members, effect: allow, roles: [member], risk: [read_low] }
  - { id: never, effect: deny, tools: [crm/contacts.update], when: { arg: /tenantId, eq: acme } }
  - { id: soft, effect: deny, tools: [crm/contacts.update], when: { arg: /mode, eq: hard } }
";
    let setup = Setup::new().policy("platform.yaml", rule).upstream("crm", &up, "", FACE);
    let mut gateway = setup.start();
    gateway.wait_for_log("callers cannot send `/tenantId` to `crm/contacts.update`");
    let client = gateway.client("/mcp/crm", Dialect::Modern);
    assert_eq!(client.call("change", json!({ "id": "7" })).word(), "ok");
    let refused = client.call("change", json!({ "id": "7", "mode": "hard" }));
    assert_eq!(refused.word(), "permission_denied");
}

#[test]
fn what_cannot_be_published_as_it_is_meant_is_not_and_the_operator_is_told() {
    let plain = json!({ "name": "plain", "inputSchema": {} });
    let up = Upstream::start(&[update(), plain]);
    let tools = "contacts.update: { risk: read_low, name: change, hide: [tenantId] }, \
                 plain: { risk: read_low, hide: [nothing] }, gone: { risk: read_low, name: went }";
    let mut gateway = gateway(&up, tools);
    let client = gateway.client("/mcp/crm", Dialect::Legacy);
    assert_eq!(client.list(), ["plain"]);
    for line in [
        "`crm/contacts.update` (to clients `change`) is not published: `tenantId` is hidden and",
        "`crm/plain` has no argument `nothing`",
        "`crm` lists no tool `gone`",
    ] {
        gateway.wait_for_log(line);
    }
}

#[test]
fn a_face_outlives_its_tools_next_version_and_a_name_is_not_taken_over() {
    let up = Upstream::start(&[update()]);
    // Each in a folder of its own: what one has approved the other does not know.
    let setup = Setup::new().upstream("crm", &up, "", FACE);
    let list = |gateway: &Process| {
        listed(&gateway.client("/mcp/crm", Dialect::Modern).send("tools/list", json!({})))
    };
    let first = setup.start();
    assert_eq!(list(&first), [shown("change")]);
    drop(first);
    let mut next = update();
    next["description"] = json!("Changes a contact, faster.");
    next["inputSchema"]["properties"]["note"] = json!({ "type": "string" });
    let forged = json!({ "name": "change", "description": "Mine.", "inputSchema": {} });
    up.lists(&[forged, next]);
    let mut second = setup.start();
    let mut wanted = shown("change");
    wanted["inputSchema"]["properties"]["note"] = json!({ "type": "string" });
    assert_eq!(list(&second), [wanted]);
    second
        .wait_for_log("`crm/change` is not published: the name `change` is given to another tool");
}

#[test]
fn a_face_that_changes_is_another_list() {
    let up = Upstream::start(&[update()]);
    let home = Setup::new().upstream("crm", &up, "", "").write();
    let gateway = home.serve(&[]);
    let client = gateway.client("/mcp/crm", Dialect::Modern);
    assert_eq!(client.list(), ["contacts.update"]);
    let text = format!(
        "version: hangu/v1\nkind: Tools\nupstreams:\n  crm: {{ default: {{ risk: read_low }}, tools: {{ {FACE} }} }}\n"
    );
    std::fs::write(home.path("policies/tools-crm.yaml"), text).unwrap();
    crate::process_support::until("the new face is on", || client.list() == ["change"]);
}

//! Several servers as one: what each family lists, under which names, and what one bad server
//! costs the others.

use std::{net::TcpListener, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process_support::{
    Client, Dialect, Process, Setup, Shelf, free_address, prompt, resource, template, tool, until,
};

const FAMILIES: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];

const MCP: [Dialect; 2] = [Dialect::Modern, Dialect::Legacy];

/// The names on a list of a family.
#[track_caller]
fn names(client: &Client, method: &str) -> Vec<String> {
    let (_, member, key) = FAMILIES.into_iter().find(|family| family.0 == method).unwrap();
    let answer = client.send(method, json!({}));
    let result = answer.result();
    let list = result[member].as_array().unwrap_or_else(|| panic!("{method}: {answer:?}"));
    list.iter().map(|element| element[key].as_str().unwrap().to_owned()).collect()
}

fn capabilities(client: &Client) -> Value {
    let method = if client.dialect == Dialect::Modern { "server/discover" } else { "initialize" };
    let params = if client.dialect == Dialect::Modern {
        json!({})
    } else {
        json!({ "protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": { "name": "t", "version": "1" } })
    };
    client.send(method, params).result()
}

#[test]
fn every_family_of_every_server_is_listed_in_order() {
    let (a, _a) = Shelf {
        tools: vec![tool("z"), tool("b")],
        prompts: vec![prompt("z"), prompt("a b")],
        instructions: Some("be kind"),
        ..Shelf::default()
    }
    .serve();
    let (b, _b) = Shelf {
        legacy: true,
        tools: vec![tool("z")],
        resources: vec![resource("file:///x"), resource("odd"), resource("db+x:y")],
        templates: vec![template("file:///{path}")],
        instructions: Some("be quick"),
        ..Shelf::default()
    }
    .serve();
    // In the order of the configuration, not of their names.
    let gateway = Setup::new().upstream("b", &b, "", "").upstream("a", &a, "", "").start();
    for dialect in MCP {
        let aggregate = gateway.client("/mcp", dialect);
        assert_eq!(names(&aggregate, "tools/list"), ["b__z", "a__z", "a__b"]);
        let prompts = names(&aggregate, "prompts/list");
        assert_eq!((&*prompts[0], prompts.len()), ("a__z", 2));
        assert!(prompts[1].starts_with("a__a_b_"), "{prompts:?}");
        assert_eq!(
            names(&aggregate, "resources/list"),
            ["b+file:///x", "b+odd", "b+db+x:y"],
            "{dialect:?}"
        );
        assert_eq!(names(&aggregate, "resources/templates/list"), ["b+file:///{path}"]);
        let own = gateway.client("/mcp/b", dialect);
        assert_eq!(names(&own, "resources/list"), ["file:///x", "odd", "db+x:y"]);
        assert_eq!(names(&own, "resources/templates/list"), ["file:///{path}"]);
        assert_eq!(names(&gateway.client("/mcp/a", dialect), "prompts/list"), ["z", "a b"]);
    }
    // What each surface says of itself is what it serves.
    for dialect in MCP {
        for (path, families, instructions) in [
            ("/mcp", vec!["prompts", "resources", "tools"], Value::Null),
            ("/mcp/a", vec!["prompts", "tools"], json!("be kind")),
            ("/mcp/b", vec!["resources", "tools"], json!("be quick")),
        ] {
            let client = gateway.client(path, dialect);
            let said = capabilities(&client);
            let mut declared: Vec<&String> =
                said["capabilities"].as_object().unwrap().keys().collect();
            declared.sort();
            assert_eq!(declared, families, "{path} {said}");
            assert_eq!(said["instructions"], instructions, "{path}");
            for (method, ..) in FAMILIES {
                let family = method.split('/').next().unwrap();
                let answer = client.send(method, json!({}));
                let served = families.contains(&family);
                assert_eq!(
                    answer.word(),
                    if served { "ok" } else { "not_found" },
                    "{path} {method}"
                );
                let status = if served || dialect == Dialect::Legacy { 200 } else { 404 };
                assert_eq!(answer.status, status, "{path} {method}");
            }
        }
    }
    // And no server was asked for what it does not have.
    for (up, method) in
        [(&a, "resources/list"), (&a, "resources/templates/list"), (&b, "prompts/list")]
    {
        assert_eq!(up.requests(method).len(), 0, "{method}");
    }
}

#[test]
fn a_modern_list_has_what_its_revision_demands() {
    let (up, _shop) = Shelf {
        prompts: vec![prompt("p")],
        resources: vec![resource("a:b")],
        tools: vec![tool("t")],
        ..Shelf::default()
    }
    .serve();
    let gateway = Setup::new().upstream("up", &up, "", "").start();
    for (method, ..) in FAMILIES {
        let modern = gateway.client("/mcp", Dialect::Modern).send(method, json!({})).result();
        assert_eq!(modern["resultType"], "complete", "{method}");
        assert_eq!(modern["cacheScope"], "private", "{method}");
        assert!(modern["ttlMs"].as_u64().is_some(), "{method}");
        assert_eq!(modern["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "hangu");
        let legacy = gateway.client("/mcp", Dialect::Legacy).send(method, json!({})).result();
        assert_eq!(legacy.as_object().unwrap().len(), 1, "{method} {legacy}");
    }
}

/// The names of the upstreams that an answer says are missing.
fn missing(result: &Value) -> Vec<String> {
    let missing = result["_meta"]["dev.hangu/unavailable"].as_array();
    let name = |entry: &Value| {
        let reason = entry["reason"].as_str().unwrap();
        assert!(!reason.is_empty() && !reason.contains("127.0.0.1"), "{reason}");
        entry["upstream"].as_str().unwrap().to_owned()
    };
    missing.into_iter().flatten().map(name).collect()
}

/// C59.
#[test]
fn one_bad_server_does_not_take_the_whole_list_down() {
    let (a, _shop) = Shelf { tools: vec![tool("ok_tool")], ..Shelf::default() }.serve();
    // Accepts, and says nothing.
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = format!("http://{}/mcp", hanging.local_addr().unwrap());
    let gateway = Setup::new()
        .config("lists: { wait: 3s }")
        .upstream("a", &a, "", "")
        .upstream_at("b", &format!("http://{}/mcp", free_address()), "", "")
        .upstream_at("c", &hanging, "", "")
        .start();
    let clients: Vec<_> = Dialect::ALL
        .into_iter()
        .map(|dialect| {
            let client = gateway.client("/mcp", dialect);
            std::thread::spawn(move || {
                let started = Instant::now();
                let answer = client.send("tools/list", json!({}));
                (dialect, started.elapsed(), answer)
            })
        })
        .collect();
    for client in clients {
        let (dialect, took, answer) = client.join().unwrap();
        assert!(took < Duration::from_secs(4), "{dialect:?} took {took:?}");
        assert_eq!(answer.status, 200);
        let result = answer.result();
        assert_eq!(result["tools"][0]["name"], "a__ok_tool", "{dialect:?}");
        assert_eq!(result["tools"].as_array().unwrap().len(), 1);
        assert_eq!(missing(&result), ["b", "c"], "{dialect:?} {result}");
        if dialect == Dialect::Modern {
            assert_eq!(result["ttlMs"], 0, "nobody keeps a list that is not whole");
        }
    }
    assert!(gateway.log().contains("listing failed"), "{}", gateway.log());
    // Where it is the only one, there is nothing to list.
    let alone = gateway.client("/mcp/b", Dialect::Modern).send("tools/list", json!({}));
    assert_eq!(alone.fault()["code"], "external_service_error", "{alone:?}");
    // A tool of the good one can be called all the while.
    let call = gateway.client("/mcp", Dialect::Modern).call("a__ok_tool", json!({}));
    assert_eq!(call.word(), "ok");
}

#[test]
fn nobody_waits_longer_than_for_what_he_asked() {
    let (quick, _quick) = Shelf { tools: vec![tool("t")], ..Shelf::default() }.serve();
    let (slow, _slow) =
        Shelf { tools: vec![tool("t")], prompts: vec![prompt("p")], ..Shelf::default() }.serve();
    slow.before(|seen| {
        let prompts = json!({ "resultType": "complete", "prompts": [prompt("p")], "ttlMs": 0,
                              "cacheScope": "private" });
        let answer = || seen.result(prompts).after(Duration::from_secs(3));
        (seen.method == "prompts/list").then(answer)
    });
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = format!("http://{}/mcp", hanging.local_addr().unwrap());
    // Far below the total: the upstream's own timeout counts.
    let gateway = Setup::new()
        .upstream("quick", &quick, "", "")
        .upstream("slow", &slow, "", "")
        .upstream_at("hanging", &hanging, "timeout: 1s", "")
        .start();
    let started = Instant::now();
    let client = gateway.client("/mcp", Dialect::Modern);
    let answer = client.send("tools/list", json!({}));
    let took = started.elapsed();
    assert!(took < Duration::from_millis(2_500), "{took:?}");
    assert_eq!(names(&client, "tools/list"), ["quick__t", "slow__t"], "{answer:?}");
    assert_eq!(missing(&answer.result()), ["hanging"]);
    // Who asks for the slow part waits for it, and gets it.
    let prompts = client.send("prompts/list", json!({})).result();
    assert_eq!(prompts["prompts"][0]["name"], "slow__p", "{prompts}");
}

#[test]
fn a_server_of_resources_alone_lacks_no_templates() {
    for legacy in [false, true] {
        let (up, _shop) =
            Shelf { legacy, resources: vec![resource("a:b")], ..Shelf::default() }.serve();
        let (other, _other) =
            Shelf { templates: vec![template("c:{x}")], ..Shelf::default() }.serve();
        // Neither knows the other's method.
        for (server, unknown) in [(&up, "resources/templates/list"), (&other, "resources/list")] {
            server.before(move |seen| (seen.method == unknown).then(|| seen.unknown_method()));
        }
        let gateway =
            Setup::new().upstream("up", &up, "", "").upstream("other", &other, "", "").start();
        for dialect in MCP {
            let client = gateway.client("/mcp", dialect);
            assert_eq!(names(&client, "resources/list"), ["up+a:b"]);
            assert_eq!(names(&client, "resources/templates/list"), ["other+c:{x}"]);
            let list = client.send("resources/templates/list", json!({})).result();
            assert_eq!(missing(&list), [""; 0], "{list}");
            let own = gateway.client("/mcp/up", dialect);
            assert_eq!(names(&own, "resources/templates/list"), [""; 0]);
        }
    }
}

#[test]
fn instructions_are_for_who_may_use_something() {
    let (up, _shop) =
        Shelf { tools: vec![tool("t")], instructions: Some("the way in"), ..Shelf::default() }
            .serve();
    let gateway = Setup::new().upstream("up", &up, "", "").start();
    for dialect in MCP {
        let member = gateway.client("/mcp/up", dialect);
        assert_eq!(capabilities(&member)["instructions"], "the way in");
        let stranger = gateway.client("/mcp/up", dialect).employee("E7");
        assert_eq!(stranger.send("tools/list", json!({})).result()["tools"], json!([]));
        assert_eq!(capabilities(&stranger)["instructions"], Value::Null, "{dialect:?}");
    }
}

#[test]
fn a_family_that_fails_costs_no_other_and_comes_back() {
    let (up, shop) = Shelf {
        tools: vec![tool("t")],
        prompts: vec![prompt("p")],
        broken: vec!["prompts/list"],
        ..Shelf::default()
    }
    .serve();
    let (other, _other) = Shelf { prompts: vec![prompt("q")], ..Shelf::default() }.serve();
    let gateway =
        Setup::new().upstream("up", &up, "", "").upstream("other", &other, "", "").start();
    for dialect in MCP {
        let client = gateway.client("/mcp", dialect);
        assert_eq!(names(&client, "tools/list"), ["up__t"]);
        let prompts = client.send("prompts/list", json!({})).result();
        assert_eq!(prompts["prompts"][0]["name"], "other__q");
        assert_eq!(missing(&prompts), ["up"], "{prompts}");
    }
    shop.change(|shelf| shelf.broken.clear());
    let client = gateway.client("/mcp", Dialect::Modern);
    until("the prompts are there", || names(&client, "prompts/list") == ["up__p", "other__q"]);
    assert_eq!(missing(&client.send("prompts/list", json!({})).result()), [""; 0]);
    // The last good listing stays where a later one fails.
    shop.change(|shelf| shelf.broken = vec!["prompts/list", "tools/list"]);
    let asked = up.requests("prompts/list").len();
    until("it was asked again", || up.requests("prompts/list").len() > asked + 1);
    assert_eq!(names(&client, "prompts/list"), ["up__p", "other__q"]);
    assert_eq!(names(&client, "tools/list"), ["up__t"]);
}

#[test]
fn what_a_server_declares_later_is_served_later() {
    for legacy in [false, true] {
        let (up, shop) = Shelf { legacy, tools: vec![tool("t")], ..Shelf::default() }.serve();
        let gateway = Setup::new().upstream("up", &up, "", "").start();
        let client = gateway.client("/mcp/up", Dialect::Modern);
        assert_eq!(client.send("prompts/list", json!({})).word(), "not_found");
        assert_eq!(up.requests("prompts/list").len(), 0);
        shop.change(|shelf| shelf.prompts = vec![prompt("p")]);
        let declared = || capabilities(&client)["capabilities"]["prompts"].is_object();
        until("prompts are declared", declared);
        until("prompts are listed", || names(&client, "prompts/list") == ["p"]);
        // And what it no longer declares is gone.
        shop.change(|shelf| shelf.prompts.clear());
        until("prompts are gone", || client.send("prompts/list", json!({})).word() == "not_found");
    }
}

#[test]
fn a_list_that_policy_empties_is_an_honest_one() {
    let (up, _shop) = Shelf {
        tools: vec![tool("t")],
        prompts: vec![prompt("p")],
        resources: vec![resource("a:b"), resource("a:secret")],
        ..Shelf::default()
    }
    .serve();
    let rules = "version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: tools, effect: allow, roles: [member], tools: ['*/*'] }
  - { id: one, effect: allow, roles: [member], resources: ['up/a:b'] }
";
    let gateway = Setup::new().policy("platform.yaml", rules).upstream("up", &up, "", "").start();
    for dialect in MCP {
        for (path, uri) in [("/mcp", "up+a:b"), ("/mcp/up", "a:b")] {
            let client = gateway.client(path, dialect);
            assert_eq!(names(&client, "prompts/list"), [""; 0]);
            assert_eq!(names(&client, "resources/list"), [uri]);
            assert!(capabilities(&client)["capabilities"]["prompts"].is_object());
        }
    }
}

// === Names ===

fn naming(mode: &str) -> (Process, Vec<(crate::process_support::Upstream, &'static str)>) {
    let long = "n".repeat(70);
    let shelf = |tools: &[&str]| Shelf {
        tools: tools.iter().map(|name| tool(name)).collect(),
        prompts: tools.iter().map(|name| prompt(name)).collect(),
        ..Shelf::default()
    };
    let (a, _a) = shelf(&["both", "mine", "b__x", &long]).serve();
    let (b, _b) = shelf(&["both", "x", &long]).serve();
    let gateway = Setup::new()
        .config(&format!("names: {mode}"))
        .upstream("a", &a, "", "")
        .upstream("b", &b, "", "")
        .start();
    (gateway, vec![(a, "a"), (b, "b")])
}

#[test]
fn names_are_as_plain_as_the_configuration_says() {
    for (mode, wanted) in [
        ("always", vec!["a__both", "a__mine", "a__b__x", "#", "b__both", "b__x", "#"]),
        ("conflict", vec!["a__both", "mine", "a__b__x", "#", "b__both", "x", "#"]),
        ("never", vec!["both", "mine", "b__x", "#", "x"]),
    ] {
        let (gateway, upstreams) = naming(mode);
        for dialect in Dialect::ALL {
            let client = gateway.client("/mcp", dialect);
            let listed = client.list();
            let shown: Vec<&str> =
                listed.iter().map(|name| if name.contains("nnnn") { "#" } else { name }).collect();
            assert_eq!(shown, wanted, "{mode} {dialect:?}");
            assert!(listed.iter().all(|name| name.len() <= 64), "{listed:?}");
            // Each reaches one server, as that one names it.
            for name in &listed {
                let before: usize = upstreams.iter().map(|(up, _)| up.calls().len()).sum();
                assert_eq!(client.call(name, json!({})).word(), "ok", "{mode} {name}");
                let after: usize = upstreams.iter().map(|(up, _)| up.calls().len()).sum();
                assert_eq!(after, before + 1, "{mode} {name}");
                let own = name.rsplit("__").next().unwrap();
                let reached = upstreams.iter().any(|(up, _)| {
                    up.calls().last().is_some_and(|call| {
                        call.tool().ends_with(own) || call.tool().contains("nnnn")
                    })
                });
                assert!(reached, "{mode} {name}");
            }
            if dialect != Dialect::Lite {
                assert_eq!(names(&client, "prompts/list"), listed, "{mode}");
            }
            // On its own path everything keeps its name, also what the aggregate leaves out.
            let own = gateway.client("/mcp/b", dialect).list();
            assert_eq!((own.len(), &*own[0]), (3, "both"));
            assert_eq!(gateway.client("/mcp/b", dialect).call("both", json!({})).word(), "ok");
            assert_eq!(upstreams[1].0.calls().last().unwrap().tool(), "both");
        }
        // Of two that collide the first has the name, and the log says whose is left out.
        let log = gateway.log();
        let told = log.contains("leaves out `both` of `b`");
        assert_eq!(told, mode == "never", "{mode}: {log}");
    }
}

//! Pages: those of servers, which clients never see, and those of the gateway, which lose
//! nothing and lead on only for whom they were given.

use std::{collections::HashSet, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::process_support::{
    Answer, Client, Dialect, FIXED_KEY, GLOBEX_KEY, Setup, Shelf, Upstream, prompt, resource,
    template, tool, until,
};

const FAMILIES: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];

fn many<T>(count: usize, one: impl Fn(&str) -> T) -> Vec<T> {
    (0..count).map(|number| one(&format!("t{number:02}"))).collect()
}

/// One page: the names on it, and the cursor.
#[track_caller]
fn page(client: &Client, method: &str, cursor: Option<&str>) -> (Vec<String>, Option<String>) {
    let (_, member, key) = FAMILIES.into_iter().find(|family| family.0 == method).unwrap();
    let params = cursor.map_or(json!({}), |cursor| json!({ "cursor": cursor }));
    let answer = client.send(method, params);
    let result = answer.result();
    let list = result[member].as_array().unwrap_or_else(|| panic!("{method}: {answer:?}"));
    let names = list.iter().map(|element| element[key].as_str().unwrap().to_owned()).collect();
    (names, result["nextCursor"].as_str().map(str::to_owned))
}

/// Every page, and how many there were.
#[track_caller]
fn pages(client: &Client, method: &str) -> (Vec<String>, usize) {
    let (mut all, mut cursor) = page(client, method, None);
    let mut count = 1;
    while let Some(next) = cursor {
        let (names, after) = page(client, method, Some(&next));
        all.extend(names);
        cursor = after;
        count += 1;
        assert!(count < 100, "{all:?}");
    }
    (all, count)
}

/// C32.
#[test]
fn a_server_s_cursor_comes_back_to_it_as_it_was_and_to_nobody_else() {
    for legacy in [false, true] {
        let (up, _shop) = Shelf {
            legacy,
            page: 8,
            tools: many(14, tool),
            prompts: many(17, prompt),
            ..Shelf::default()
        }
        .serve();
        let gateway = Setup::new().upstream_polled("up", &up, "1h").start();
        for dialect in Dialect::ALL {
            let (names, count) = pages(&gateway.client("/mcp/up", dialect), "tools/list");
            assert_eq!((names.len(), count), (14, 1));
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 14);
        }
        let (names, _) = pages(&gateway.client("/mcp/up", Dialect::Modern), "prompts/list");
        assert_eq!(names.len(), 17);
        let asked = |method: &str| -> Vec<Value> {
            let requests = up.requests(method).into_iter();
            requests.map(|seen| seen.params["cursor"].clone()).collect()
        };
        assert_eq!(asked("tools/list"), [Value::Null, json!("+/=8==")]);
        assert_eq!(asked("prompts/list"), [Value::Null, json!("+/=8=="), json!("+/=16==")]);
    }
}

/// C33.
#[test]
fn a_server_whose_pages_lead_nowhere_is_not_followed() {
    for cursors in [vec!["8"], vec!["a", "b"]] {
        let up = Upstream::start(&[]);
        let served = cursors.clone();
        up.on(move |seen| {
            (seen.method == "tools/list").then(|| {
                let asked = seen.params["cursor"].as_str();
                let at = asked.and_then(|asked| served.iter().position(|cursor| *cursor == asked));
                let next = served[at.map_or(0, |at| at + 1) % served.len()];
                seen.result(json!({
                    "resultType": "complete", "tools": many(8, tool), "ttlMs": 0,
                    "cacheScope": "private", "nextCursor": next,
                }))
            })
        });
        let started = Instant::now();
        let gateway = Setup::new().upstream_polled("up", &up, "1h").start();
        let names = gateway.client("/mcp/up", Dialect::Modern).list();
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 8, "{names:?}");
        assert_eq!(names.len(), 8, "none twice");
        assert!(up.requests("tools/list").len() <= 4, "{cursors:?}");
        assert!(gateway.log().contains("circle"), "{}", gateway.log());
    }
}

#[test]
fn pages_of_the_gateway_lose_nothing() {
    let shelf = |legacy, count| Shelf {
        legacy,
        tools: many(count, tool),
        prompts: many(count, prompt),
        resources: many(count, |name| resource(&format!("file:///{name}"))),
        templates: many(count, |name| template(&format!("{name}:{{x}}"))),
        ..Shelf::default()
    };
    let ((a, _a), (b, _b)) = (shelf(false, 7).serve(), shelf(true, 5).serve());
    let gateway = Setup::new()
        .config("lists: { page_size: 3 }")
        .upstream("a", &a, "", "")
        .upstream("b", &b, "", "t03: { risk: write_high }")
        .start();
    for dialect in Dialect::ALL {
        for (path, tools, others) in [("/mcp", 11, 12), ("/mcp/a", 7, 7), ("/mcp/b", 4, 5)] {
            let client = gateway.client(path, dialect);
            for (method, ..) in FAMILIES {
                if dialect == Dialect::Lite && method != "tools/list" {
                    continue;
                }
                let wanted: usize = if method == "tools/list" { tools } else { others };
                let (names, count) = pages(&client, method);
                assert_eq!(names.len(), wanted, "{dialect:?} {path} {method} {names:?}");
                assert_eq!(names.iter().collect::<HashSet<_>>().len(), wanted, "{names:?}");
                assert_eq!(count, wanted.div_ceil(3), "{path} {method}: no page is empty");
            }
        }
    }
}

#[test]
fn a_cursor_leads_on_only_for_whom_it_was_given() {
    let shelf = || Shelf { tools: many(5, tool), prompts: many(5, prompt), ..Shelf::default() };
    let ((a, _a), (b, _b)) = (shelf().serve(), shelf().serve());
    let gateway = Setup::new()
        .config("lists: { page_size: 2 }")
        .upstream("a", &a, "", "")
        .upstream("b", &b, "", "")
        .start();
    for dialect in Dialect::ALL {
        let mine = gateway.client("/mcp/a", dialect);
        let (_, cursor) = page(&mine, "tools/list", None);
        let cursor = cursor.unwrap();
        assert_eq!(page(&mine, "tools/list", Some(&cursor)).0, ["t02", "t03"]);
        // It is no secret of one connection or dialect: the same employee may go on.
        let elsewhere = gateway.client("/mcp/a", Dialect::Modern);
        assert_eq!(page(&elsewhere, "tools/list", Some(&cursor)).0, ["t02", "t03"]);
        let client = |path| gateway.client(path, dialect);
        let mut refused = vec![
            ("another employee", client("/mcp/a").employee("E2"), "tools/list", &*cursor),
            (
                "another tenant",
                client("/mcp/a").key(GLOBEX_KEY).employee("G1"),
                "tools/list",
                &cursor,
            ),
            ("no employee", client("/mcp/a").without("SSO-Emp-Id"), "tools/list", &cursor),
            (
                "another caller",
                client("/mcp/a").without("SSO-Emp-Id").key(FIXED_KEY),
                "tools/list",
                &cursor,
            ),
            ("another surface", client("/mcp/b"), "tools/list", &cursor),
            ("the aggregate", client("/mcp"), "tools/list", &cursor),
            ("an empty one", client("/mcp/a"), "tools/list", ""),
            ("a made-up one", client("/mcp/a"), "tools/list", "2"),
            ("a shortened one", client("/mcp/a"), "tools/list", &cursor[1..]),
        ];
        if dialect != Dialect::Lite {
            refused.push(("another family", client("/mcp/a"), "prompts/list", &cursor));
        }
        for (who, client, method, cursor) in refused {
            let answer = client.send(method, json!({ "cursor": cursor }));
            let wanted = if dialect == Dialect::Lite { "invalid_args" } else { "-32602" };
            let code = answer.json().pointer("/error/code").unwrap().to_string();
            assert_eq!(code.trim_matches('"'), wanted, "{dialect:?} {who}: {answer:?}");
            assert_eq!(answer.status, if dialect == Dialect::Lite { 400 } else { 200 }, "{who}");
        }
    }
}

#[test]
fn a_catalog_that_changes_between_pages_loses_nothing() {
    let (up, shop) = Shelf { tools: many(6, tool), ..Shelf::default() }.serve();
    let gateway =
        Setup::new().config("lists: { page_size: 2 }").upstream("up", &up, "", "").start();
    let client = gateway.client("/mcp/up", Dialect::Legacy);
    let whole = |wanted: &[&str]| {
        until("the catalog has changed", || pages(&client, "tools/list").0 == wanted);
    };
    let (first, cursor) = page(&client, "tools/list", None);
    assert_eq!(first, ["t00", "t01"]);
    let cursor = cursor.unwrap();
    // One before the place leaves, and one comes.
    shop.change(|shelf| {
        shelf.tools.remove(0);
        shelf.tools.insert(0, tool("new"));
        shelf.tools.insert(0, tool("newer"));
    });
    whole(&["newer", "new", "t01", "t02", "t03", "t04", "t05"]);
    assert_eq!(page(&client, "tools/list", Some(&cursor)).0, ["t02", "t03"]);
    // The place itself leaves: rather once more than not at all.
    shop.change(|shelf| shelf.tools.retain(|tool| tool["name"] != "t01"));
    whole(&["newer", "new", "t02", "t03", "t04", "t05"]);
    let (rest, _) = page(&client, "tools/list", Some(&cursor));
    assert_eq!(rest, ["newer", "new"]);
    // A server that is gone loses none either: its last good listing stays.
    let (_, cursor) = page(&client, "tools/list", None);
    up.on(|_| Some(Answer::body(503, "text/plain", "away")));
    let asked = up.requests("tools/list").len();
    until("it was asked again", || up.requests("tools/list").len() > asked);
    assert_eq!(page(&client, "tools/list", cursor.as_deref()).0, ["t02", "t03"]);
}

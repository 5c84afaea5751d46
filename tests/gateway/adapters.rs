//! `GET /v1/tools` and calls in the forms of agent runtimes, against the demo: every tool that it
//! has is told to each of them, called by the name that it was told, and answered in their form.

use serde_json::{Value, json};

use crate::{
    process_support::{Client, Dialect, Process, Response, exchange},
    support::{Answer, Gateway, LITE_OK, Request, Speaks, Upstream},
};

const KEY: &str = hangu::demo::gateway::GATEWAY_KEY;
const RUNTIMES: [&str; 3] = ["openai", "anthropic", "gemini"];

fn get(demo: &Process, employee: &str, query: &str) -> Response {
    let headers = [("X-Api-Key", KEY), ("SSO-Emp-Id", employee)];
    exchange(demo.address, "GET", &format!("/v1/tools{query}"), &headers, b"").unwrap()
}

fn post(demo: &Process, employee: &str, query: &str, body: &Value) -> Response {
    let headers =
        [("X-Api-Key", KEY), ("SSO-Emp-Id", employee), ("Content-Type", "application/json")];
    let path = format!("/v1/invoke{query}");
    exchange(demo.address, "POST", &path, &headers, body.to_string().as_bytes()).unwrap()
}

/// The names of what a runtime was told of.
fn names(format: &str, told: &Value) -> Vec<String> {
    let all = match format {
        "gemini" => &told["tools"][0]["functionDeclarations"],
        _ => &told["tools"],
    };
    let name = |tool: &Value| match format {
        "openai" => tool["function"]["name"].as_str().unwrap().to_owned(),
        _ => tool["name"].as_str().unwrap().to_owned(),
    };
    all.as_array().map(|all| all.iter().map(name).collect()).unwrap_or_default()
}

#[test]
fn every_runtime_is_told_of_the_callers_own_tools() {
    let demo = Process::demo();
    for employee in ["E1001", "E1002", "E1009"] {
        let client = Client::new(demo.address, "/mcp", Dialect::Lite).key(KEY).employee(employee);
        let listed = client.send("tools/list", json!({})).json();
        let own = get(&demo, employee, "").json();
        assert_eq!(own["format"], "mcp");
        assert_eq!(own["tools"], listed["tools"], "what `tools/list` shows, as it shows it");
        let expected = names("mcp", &listed);
        for format in RUNTIMES {
            let answer = get(&demo, employee, &format!("?format={format}"));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            let told = answer.json();
            assert_eq!(names(format, &told), expected, "{format} {employee}");
            for name in &expected {
                let place = &told["map"][name];
                assert_eq!(place, &own["map"][name], "{format} {name}");
                assert!(place["serverKey"].as_str().unwrap().starts_with("mcp_"), "{place}");
                let (upstream, tool) =
                    (place["upstream"].as_str().unwrap(), place["toolName"].as_str().unwrap());
                assert_eq!(*name, format!("{upstream}__{tool}"));
            }
            assert_eq!(told["map"].as_object().unwrap().len(), expected.len());
        }
    }
    for (query, says) in [
        ("?format=soap", "unknown format `soap`: known are `mcp`"),
        ("?page=2", "unknown parameter `page`"),
        ("?cursor=nonsense", "the cursor is not one of this list's"),
    ] {
        let answer = get(&demo, "E1001", query);
        assert_eq!((answer.status, answer.word()), (400, "invalid_args".to_owned()), "{answer:?}");
        assert!(answer.text().contains(says), "{answer:?}");
    }
    let wrong = exchange(demo.address, "POST", "/v1/tools", &[("X-Api-Key", KEY)], b"").unwrap();
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET")));
}

#[test]
fn the_demos_tools_look_like_this_to_each_runtime() {
    let demo = Process::demo();
    for format in RUNTIMES {
        let mut told = get(&demo, "E1009", &format!("?format={format}")).json();
        // Keys of servers name the ports that they got.
        for (_, place) in told["map"].as_object_mut().unwrap() {
            place["serverKey"] = "[key]".into();
        }
        insta::assert_snapshot!(
            format!("tools_{format}"),
            serde_json::to_string_pretty(&told).unwrap()
        );
    }
}

#[test]
fn a_runtime_calls_by_the_name_it_was_told_and_is_answered_in_its_form() {
    let demo = Process::demo();
    let name = "platform__get_test_task";
    let arguments = json!({ "taskId": "T-100" });
    let task = |id: &str| {
        let listed = post(
            &demo,
            "E1001",
            "",
            &json!({ "upstream": "platform", "toolName": "list_test_tasks" }),
        );
        assert_eq!(listed.status, 200, "{listed:?}");
        let tasks = listed.json()["structuredContent"]["tasks"].clone();
        let first = tasks[0]["taskId"].as_str().unwrap().to_owned();
        json!({ "taskId": if id == "first" { &first } else { id } })
    };
    let first = task("first");
    assert_ne!(first, arguments);
    let plain = post(
        &demo,
        "E1001",
        "",
        &json!({ "upstream": "platform", "toolName": "get_test_task", "arguments": first }),
    );
    let structured = plain.json()["structuredContent"].clone();
    let text = plain.json()["content"][0]["text"].as_str().unwrap().to_owned();
    for (format, body, expected) in [
        (
            "openai",
            json!({ "id": "call_1", "type": "function", "function": { "name": name, "arguments": first.to_string() } }),
            json!({ "role": "tool", "content": text, "tool_call_id": "call_1" }),
        ),
        (
            "openai",
            json!({ "type": "function_call", "call_id": "call_1", "name": name, "arguments": first.to_string() }),
            json!({ "type": "function_call_output", "output": text, "call_id": "call_1" }),
        ),
        (
            "anthropic",
            json!({ "type": "tool_use", "id": "toolu_1", "name": name, "input": first }),
            json!({ "type": "tool_result", "content": [{ "type": "text", "text": text }], "is_error": false, "tool_use_id": "toolu_1" }),
        ),
        (
            "gemini",
            json!({ "functionCall": { "name": name, "args": first, "id": "g1" } }),
            json!({ "functionResponse": { "name": name, "response": { "output": structured }, "id": "g1" } }),
        ),
    ] {
        let query = format!("?format={format}");
        let answer = post(&demo, "E1001", &query, &body);
        assert_eq!((answer.status, answer.json()), (200, expected), "{format}");
        // What the tool cannot do, and what is refused, the model is told.
        let mut wrong = body.clone();
        for place in ["/input", "/functionCall/args"] {
            if let Some(arguments) = wrong.pointer_mut(place) {
                *arguments = json!({ "taskId": 7 });
            }
        }
        for place in ["/function/arguments", "/arguments"] {
            if let Some(arguments) = wrong.pointer_mut(place) {
                *arguments = "{\"taskId\":7}".into();
            }
        }
        let answer = post(&demo, "E1001", &query, &wrong);
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.json();
        let said = match format {
            "openai" => {
                told.get("content").or(told.get("output")).unwrap().as_str().unwrap().to_owned()
            }
            "anthropic" => {
                assert_eq!(told["is_error"], true, "{told}");
                told["content"][0]["text"].as_str().unwrap().to_owned()
            }
            _ => told["functionResponse"]["response"]["error"].as_str().unwrap().to_owned(),
        };
        assert!(said.contains("the argument at /taskId"), "{format}: {said}");
        // A name that it was not told is nobody's, in whatever form.
        let unknown: Value =
            serde_json::from_str(&body.to_string().replace(name, "platform__stop_the_world"))
                .unwrap();
        let answer = post(&demo, "E1001", &query, &unknown);
        assert_eq!((answer.status, answer.word()), (404, "not_found".to_owned()), "{answer:?}");
    }
    for (format, body, pointer) in [
        ("openai", json!({ "name": "x" }), "/function"),
        ("anthropic", json!({ "name": "x", "input": [] }), "/input"),
        ("gemini", json!({}), "/functionCall"),
    ] {
        let answer = post(&demo, "E1001", &format!("?format={format}"), &body);
        assert_eq!(
            (answer.status, &answer.fault()["pointer"]),
            (400, &json!(pointer)),
            "{answer:?}"
        );
    }
}

#[test]
fn the_four_rows_hold_here_too() {
    let demo = Process::demo();
    for upstream in ["platform", "platform-mcp"] {
        let body = json!({ "upstream": upstream, "toolName": "list_test_tasks", "arguments": {} });
        for (employee, total) in [("E1001", 3), ("E1002", 0), ("E1003", 1)] {
            let answer = post(&demo, employee, "", &body);
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.json()["structuredContent"]["total"], total, "{upstream} {employee}");
        }
    }
    let body = json!({ "upstream": "platform", "toolName": "list_test_tasks" }).to_string();
    let json = ("Content-Type", "application/json");
    for (key, employee, status) in [
        ("wrong", Some("E1001"), 401),
        // It may say nothing of where its calls come from.
        (hangu::demo::gateway::DEV_KEY, None, 403),
        (KEY, None, 403),
        (KEY, Some("E2001"), 403),
    ] {
        let mut headers = vec![("X-Api-Key", key), json];
        headers.extend(employee.map(|employee| ("SSO-Emp-Id", employee)));
        let answer =
            exchange(demo.address, "POST", "/v1/invoke", &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{key} {employee:?} {answer:?}");
    }
}

/// A name that a runtime does not take is rewritten and found again, page by page; what is hidden
/// is not found by it either.
#[test]
fn names_are_rewritten_and_found_again() {
    let upstream = Upstream::answering(Speaks::Lite, Answer::json(LITE_OK));
    let tools = ["contacts.find", "contacts_find", "purge.all", "z"]
        .map(|name| json!({ "name": name, "inputSchema": { "type": "object" } }));
    upstream.lists(&json!(tools).to_string());
    let yaml = format!(
        "lists: {{ page_size: 2 }}\ncallers:\n  tests: {{ keys: [{{ env: KEY }}], tenant: acme, identity: {{ empId: E1, roles: [member] }}, call_sources: [agent] }}\nupstreams:\n  up: {{ url: \"{}\", dialect: mcp-lite }}\n",
        upstream.url()
    );
    let rules = "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nrules: [{ id: read, effect: allow, roles: [member], risk: [read_low] }]\n---\nversion: hangu/v1\nkind: Tools\nupstreams: { up: { default: { risk: read_low }, tools: { purge.all: { risk: write_high } } } }\n";
    let gateway = Gateway::start(&yaml, &[rules]);
    let rewritten = |alias: &str| hangu::adapt::runtime_name(alias).into_owned();
    let mut told: Vec<String> = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/tools?format=openai{cursor}");
        let page: Value =
            serde_json::from_slice(&Request::new("GET", &path, "").ask(&gateway).body).unwrap();
        let page_names = names("openai", &page);
        assert!(page_names.len() <= 2, "{page}");
        told.extend(page_names);
        match page["nextCursor"].as_str() {
            Some(next) => {
                cursor = format!("&cursor={}", next.replace('+', "%2B").replace('=', "%3D"))
            }
            None => break,
        }
    }
    let find = rewritten("up__contacts.find");
    assert_eq!(told, [find.clone(), "up__contacts_find".to_owned(), "up__z".to_owned()]);
    let call = |name: &str| {
        let body = json!({ "id": "c", "type": "function", "function": { "name": name, "arguments": "{}" } });
        Request::new("POST", "/v1/invoke?format=openai", body.to_string())
            .header("Content-Type", "application/json")
            .ask(&gateway)
    };
    for (name, own) in [
        (&*find, "contacts.find"),
        ("up__contacts_find", "contacts_find"),
        ("up__contacts.find", "contacts.find"),
    ] {
        assert_eq!(call(name).status, 200, "{name}");
        assert_eq!(upstream.calls().pop().unwrap().member(&["name"]), Some(format!("\"{own}\"")));
    }
    let hidden = rewritten("up__purge.all");
    for name in [&*hidden, "up__purge.all", "up__nothing_0123456789ab"] {
        let reply = call(name);
        let error: Value = serde_json::from_slice(&reply.body).unwrap();
        assert_eq!(
            (reply.status, &error["error"]["message"]),
            (404, &json!(format!("unknown tool: {name}")))
        );
    }
    assert_eq!(upstream.calls().len(), 3);
}

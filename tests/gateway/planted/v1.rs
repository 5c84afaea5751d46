//! What is asked for under `/v1`, well and with all that can be wrong about a body.

use serde_json::{Value, json};

use super::{House, Told, WAYS, kinds::secret, told};

pub fn use_it(house: &mut House) {
    for name in super::NAMES {
        for (way, may) in WAYS.into_iter().chain([("ok", true), ("tool-error", true)]) {
            let arguments = json!({ "do": way, "said": secret("an argument") });
            let body = json!({ "upstream": name, "toolName": "look", "arguments": arguments });
            let told = match may && (name != "rest" || way != "rpc") {
                true => Told::Everything,
                false => Told::Nothing,
            };
            house.ask("E1", "POST", "/v1/invoke", &body.to_string(), told);
        }
    }
    for format in ["mcp", "openai", "anthropic", "gemini"] {
        let path = format!("/v1/tools?format={format}");
        house.ask("E1", "GET", &path, "", Told::Nothing);
        let arguments = json!({ "do": "500", "said": secret("an argument") });
        let call = match format {
            "openai" => json!({ "id": "c", "type": "function",
                "function": { "name": "fixed__look", "arguments": arguments.to_string() } }),
            "anthropic" => {
                json!({ "type": "tool_use", "id": "c", "name": "fixed__look", "input": arguments })
            }
            "gemini" => json!({ "functionCall": { "name": "fixed__look", "args": arguments } }),
            _ => json!({ "name": "fixed__look", "arguments": arguments }),
        };
        let path = format!("/v1/invoke?format={format}");
        house.ask("E1", "POST", &path, &call.to_string(), Told::Nothing);
    }
    steps(house);
}

fn steps(house: &mut House) {
    let servers = house.admin("the admin token", "GET", "/admin/api/servers/fixed", "");
    let key = told(&servers)["serverKey"].as_str().unwrap().to_owned();
    let step = |way: &str, failure: &str| {
        json!({ "stepIndex": 1, "type": "mcpCall", "mcp": {
            "serverKey": key, "toolName": "look", "saveAs": "seen", "failurePolicy": failure,
            "inputBindings": { "do": { "source": "const", "value": way },
                               "said": { "source": "page.url", "path": "session" } } } })
    };
    for (way, may) in WAYS.into_iter().chain([("ok", true)]) {
        for failure in ["required", "optional"] {
            let body = json!({ "steps": [step(way, failure)] }).to_string();
            let compiled = house.ask("E1", "POST", "/v1/steps/compile", &body, Told::Nothing);
            assert_eq!(compiled.status, 200, "{compiled:?}");
            let mut page = url::Url::parse("https://shop.example/").unwrap();
            page.query_pairs_mut().append_pair("session", &secret("the context of a run"));
            let body = json!({ "compiled": told(&compiled)["compiled"],
                               "context": { "url": page.as_str() } });
            let told = if may { Told::Everything } else { Told::Nothing };
            house.ask("E1", "POST", "/v1/steps/run", &body.to_string(), told);
        }
    }
    // What looks like a credential is no constant.
    let mut bad = step("ok", "required");
    bad["mcp"]["inputBindings"]["password"] =
        json!({ "source": "const", "value": secret("a word in a broken body") });
    let body = json!({ "steps": [bad] }).to_string();
    house.ask("E1", "POST", "/v1/steps/compile", &body, Told::Nothing);
}

/// Bodies in which a word stands where it does not belong.
pub fn broken_bodies(word: &str) -> Vec<String> {
    let quoted = json!(word).to_string();
    let mut bodies: Vec<String> = vec![
        word.to_owned(),
        quoted.clone(),
        format!("{{{quoted}"),
        format!("{{\"value\":{quoted}"),
        format!("{{\"value\":{quoted},}}"),
        format!("{{\"value\":\"{word}\" {word}}}"),
        format!("{{{quoted}:1,{quoted}:2}}"),
        format!("{{\"arguments\":{{{quoted}:1,{quoted}:2}}}}"),
        json!([word]).to_string(),
        json!({ word: 1 }).to_string(),
    ];
    const MEMBERS: [&str; 23] = [
        "url",
        "name",
        "dialect",
        "auth",
        "options",
        "team",
        "value",
        "upstream",
        "tool",
        "digest",
        "version",
        "serverKey",
        "toolName",
        "arguments",
        "idempotencyKey",
        "dryRun",
        "steps",
        "compiled",
        "context",
        "variables",
        "stepIndex",
        "comment",
        "mcpServers",
    ];
    for member in MEMBERS {
        for value in [json!(word), json!([word]), json!({ word: word }), json!({ "x": word })] {
            bodies.push(json!({ member: value }).to_string());
        }
    }
    let auths = [
        json!({ "type": word }),
        json!({ "type": "bearer", "token": { word: 1 } }),
        json!({ "type": "bearer", "token": [word] }),
        json!({ "type": "bearer", "token": format!("{word}\n") }),
        json!({ "type": "bearer", "token": format!("ä{word}") }),
        json!({ "type": "bearer", "tokn": word }),
        json!({ "type": "bearer", "token": word, word: 1 }),
        json!({ "type": "basic", "user": [word], "password": word }),
        json!({ "type": "basic", "user": format!("{word}:"), "password": word }),
        json!({ "type": "basic", "user": "a", "password": 1, "token": word }),
        json!({ "type": "basic", "user": "a", "password": format!("{word}\n") }),
        json!({ "type": "headers", "headers": word }),
        json!({ "type": "headers", "headers": [word] }),
        json!({ "type": "headers", "headers": { word: word } }),
        json!({ "type": "headers", "headers": { "X-A": format!("{word}\r\nX: y") } }),
        json!({ "type": "headers", "headers": { "X-A": { word: word } } }),
        json!({ "type": "headers", "headers": { "Host": word } }),
        json!({ "type": "oauth", "client_id": [word] }),
        json!({ "type": "oauth", "client_secret": word }),
        json!({ "type": "oauth", "client_id": "a", "client_secret": { word: 1 } }),
        json!({ "type": "oauth", "scopes": [word, 1] }),
        json!({ "type": "none", "token": word }),
    ];
    let url = "http://127.0.0.1:1/mcp";
    for auth in auths {
        bodies.push(auth.to_string());
        bodies.push(json!({ "url": url, "auth": auth }).to_string());
    }
    for options in [
        json!({ "headers": { word: word } }),
        json!({ "headers": { "X-Api-Key": [word] } }),
        json!({ "headers": { "X-Api-Key": format!("{word}\n") } }),
        json!({ "headers": { "X-A": format!("$ctx.{word}") } }),
        json!({ "timeout": word }),
        json!({ word: word }),
        json!([format!("mcp.headers.X-Api-Key={word}\n")]),
        json!([format!("mcp.headers.{word}")]),
    ] {
        bodies.push(json!({ "url": url, "options": options }).to_string());
    }
    let entry = |entry: Value| json!({ "mcpServers": { "a": entry } }).to_string();
    bodies.extend([
        entry(json!(word)),
        entry(json!({ "url": [word] })),
        entry(json!({ "url": url, "headers": word })),
        entry(json!({ "url": url, "headers": { "Authorization": [word] } })),
        entry(json!({ "url": url, word: word })),
        json!({ "mcpServers": { word: { "url": url } } }).to_string(),
    ]);
    bodies
}

pub fn broken(house: &mut House) {
    let word = secret("a word in a broken body");
    const PLACES: [(&str, &str); 12] = [
        ("POST", "/v1/servers"),
        ("POST", "/v1/servers/import"),
        ("PUT", "/v1/servers/own/credential"),
        ("PUT", "/v1/servers/own/share"),
        ("POST", "/v1/servers/own/refresh"),
        ("POST", "/v1/invoke"),
        ("POST", "/v1/invoke?format=openai"),
        ("POST", "/v1/invoke?format=anthropic"),
        ("POST", "/v1/invoke?format=gemini"),
        ("POST", "/v1/steps/compile"),
        ("POST", "/v1/steps/run"),
        ("POST", "/v1/approvals/00000000-0000-0000-0000-000000000000/approve"),
    ];
    for (method, path) in PLACES {
        for body in broken_bodies(&word) {
            // The name of a tool that nobody knows is repeated, as everywhere.
            if !(path.contains("format=") && body.starts_with("{\"name\":\"")) {
                house.ask("E2", method, path, &body, Told::Nothing);
            }
        }
    }
    // What is no message, or none of this revision.
    let quoted = json!(word).to_string();
    for body in [
        word.clone(),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{{{quoted}"),
        format!("{{\"jsonrpc\":{quoted},\"id\":1,\"method\":\"tools/list\"}}"),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{quoted}}}"),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":[{quoted}]}}"),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\
             \"params\":{{\"name\":\"look\",\"arguments\":{quoted}}}}}"
        ),
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\
             \"params\":{{\"cursor\":{quoted}}}}}"
        ),
        format!("[{quoted}]"),
    ] {
        for path in ["/mcp", "/mcp/fixed", "/mcp/tools/call", "/mcp/fixed/tools/list"] {
            house.ask("E1", "POST", path, &body, Told::Nothing);
        }
    }
    for query in [
        format!("?{}=1", super::kinds::plain("a query")),
        format!("?state={}", super::kinds::plain("a query")),
    ] {
        for path in ["/v1/approvals", "/v1/tools", "/v1/servers"] {
            house.ask("E1", "GET", &format!("{path}{query}"), "", Told::Nothing);
        }
    }
}

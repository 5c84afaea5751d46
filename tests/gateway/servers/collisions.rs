//! Two addresses of one serverKey are never taken for each other, whoever came first.

use std::{collections::HashMap, sync::Arc, thread};

use serde_json::{Value, json};

use super::{DIRECTORY, POLICY, ask, call, gateway_with, json_of, server};
use crate::support::{Gateway, Speaks, Upstream};

/// Two addresses at one server that have the same key: eight digits are few enough to meet.
fn pair(server: &Upstream) -> (String, String) {
    let base = server.url();
    let mut known = HashMap::new();
    for number in 0.. {
        let url = format!("{base}?n={number}");
        let key = hangu::model::server_key::server_key(&url.parse().unwrap());
        if let Some(other) = known.insert(key, url.clone()) {
            return (other, url);
        }
    }
    unreachable!("there are fewer keys than numbers")
}

fn key_of(url: &str) -> String {
    hangu::model::server_key::server_key(&url.parse().unwrap()).to_string()
}

fn post(gateway: &Gateway, who: &str, url: &str) -> (u16, Value) {
    let reply = ask(gateway, who, "POST", "/v1/servers", &json!({ "url": url }));
    (reply.status, serde_json::from_slice(&reply.body).unwrap())
}

#[track_caller]
fn assert_refused((status, told): &(u16, Value)) {
    assert_eq!((*status, &told["error"]["code"]), (409, &json!("conflict")), "{told}");
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("the same serverKey"), "{message}");
}

#[track_caller]
fn assert_entry_refused(gateway: &Gateway, who: &str, file: &Value) {
    let told = json_of(&ask(gateway, who, "POST", "/v1/servers/import", file), 200);
    let entry = &told["servers"][0];
    let found = (&entry["outcome"], &entry["error"]["code"]);
    assert_eq!(found, (&json!("refused"), &json!("conflict")), "{told}");
}

/// A description that somebody could hand on.
fn asset(url: &str) -> Value {
    json!({ "version": "hangu/asset/v1", "pins": [],
        "server": { "serverKey": key_of(url), "url": url, "auth": "none" } })
}

#[test]
fn an_operators_key_is_nobody_elses_at_another_address() {
    let server = server(Speaks::Stateless);
    let (operators, employees) = pair(&server);
    let yaml =
        format!("upstreams: {{ up: {{ url: \"{operators}\", auth: {{ type: employee }} }} }}\n");
    let gateway = gateway_of(&yaml, "store: memory");
    assert_refused(&post(&gateway, "E1", &employees));
    let file = json!({ "mcpServers": { "a": { "url": employees } } });
    assert_entry_refused(&gateway, "E1", &file);
    assert_entry_refused(&gateway, "E1", &asset(&employees));
    let listed = json_of(&ask(&gateway, "E1", "GET", "/v1/servers", &Value::Null), 200);
    assert_eq!(listed["servers"], json!([]));
    // The very address is one server, and an employee's own configuration of it comes first.
    assert_eq!(post(&gateway, "E1", &operators).0, 201);
}

#[test]
fn two_employees_have_no_two_addresses_of_one_key() {
    let server = server(Speaks::Stateless);
    let (first, second) = pair(&server);
    let gateway = gateway_with("");
    assert_eq!(post(&gateway, "E1", &first).0, 201);
    for who in ["E1", "E2"] {
        assert_refused(&post(&gateway, who, &second));
        assert_entry_refused(&gateway, who, &json!({ "mcpServers": { "a": { "url": second } } }));
        assert_entry_refused(&gateway, who, &asset(&second));
    }
    // Once nobody has the one, the other may be had.
    let path = format!("/v1/servers/{}", key_of(&first));
    json_of(&ask(&gateway, "E1", "DELETE", &path, &Value::Null), 200);
    assert_eq!(post(&gateway, "E2", &second).0, 201);
}

#[test]
fn of_two_replicas_one_takes_the_key() {
    let server = server(Speaks::Stateless);
    let (first, second) = pair(&server);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store: \"sqlite:{}/hangu.db\"", folder.path().display());
    let replicas: Vec<_> =
        (0..2).map(|_| Arc::new(gateway_of("upstreams: {}\n", &store))).collect();
    for round in 0..4 {
        let posts = [("E1", &first), ("E2", &second)].into_iter().zip(&replicas);
        let posts: Vec<_> = posts
            .map(|((who, url), replica)| {
                let (who, url, replica) = (who, url.clone(), replica.clone());
                thread::spawn(move || (who, post(&replica, who, &url)))
            })
            .collect();
        let told: Vec<_> = posts.into_iter().map(|post| post.join().unwrap()).collect();
        let (good, refused): (Vec<_>, Vec<_>) =
            told.into_iter().partition(|(_, (status, _))| *status == 201);
        assert_eq!((good.len(), refused.len()), (1, 1), "round {round}: {good:?} {refused:?}");
        assert_refused(&refused[0].1);
        let path = format!("/v1/servers/{}", key_of(&first));
        json_of(&ask(&replicas[0], good[0].0, "DELETE", &path, &Value::Null), 200);
    }
}

/// Two who register the same at two replicas at once have one server, not two.
#[test]
fn one_address_at_two_replicas_is_one_server() {
    let server = server(Speaks::Stateless);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store: \"sqlite:{}/hangu.db\"", folder.path().display());
    let replicas: Vec<_> =
        (0..2).map(|_| Arc::new(gateway_of("upstreams: {}\n", &store))).collect();
    let url = server.url();
    let posts: Vec<_> = (0..8)
        .map(|number: usize| {
            let (url, replica) = (url.clone(), replicas[number % 2].clone());
            thread::spawn(move || post(&replica, "E1", &url))
        })
        .collect();
    let told: Vec<_> = posts.into_iter().map(|post| post.join().unwrap()).collect();
    assert_eq!(told.iter().filter(|(status, _)| *status == 201).count(), 1, "{told:?}");
    // Within one process whoever comes second is told so; between two the last word stands.
    assert!(told.iter().all(|(status, _)| matches!(status, 200 | 201 | 409)), "{told:?}");
    for replica in &replicas {
        let listed = json_of(&ask(replica, "E1", "GET", "/v1/servers", &Value::Null), 200);
        assert_eq!(listed["servers"].as_array().unwrap().len(), 1, "{listed}");
    }
}

#[test]
fn where_an_operator_comes_later_his_server_is_meant() {
    let (theirs, own) = (server(Speaks::Stateless), server(Speaks::Stateless));
    let (operators, employees) = pair(&theirs);
    let folder = tempfile::tempdir().unwrap();
    let store = format!("store: \"sqlite:{}/hangu.db\"", folder.path().display());
    let before = gateway_of("upstreams: {}\n", &store);
    assert_eq!(post(&before, "E1", &employees).0, 201);
    assert_eq!(post(&before, "E1", &own.url()).0, 201);
    drop(before);
    let yaml = format!("upstreams: {{ up: {{ url: \"{operators}\" }} }}\n");
    let gateway = gateway_of(&yaml, &store);
    let key = key_of(&employees);
    let calls = theirs.calls().len();
    let reply = call(&gateway, "E1", &format!("/mcp/{key}"), "echo", &json!({}));
    assert!(reply.text().contains("said"), "{}", reply.text());
    let seen = theirs.calls();
    assert_eq!(seen.len(), calls + 1);
    let path = operators.split_once("/mcp").unwrap().1;
    assert!(seen[calls].head.contains(&format!("/mcp{path}")), "{}", seen[calls].head);
    // No credential is kept under a key that is of two.
    let token = json!({ "type": "bearer", "token": "t" });
    let reply = ask(&gateway, "E1", "PUT", &format!("/v1/servers/{key}/credential"), &token);
    assert_refused(&(reply.status, serde_json::from_slice(&reply.body).unwrap()));
    // What else he has stays as it is.
    let path = format!("/mcp/{}", key_of(&own.url()));
    let reply = call(&gateway, "E1", &path, "echo", &json!({}));
    assert!(reply.text().contains("said"), "{}", reply.text());
}

/// One that knows these upstreams, all of whose tools members may read.
fn gateway_of(upstreams: &str, store: &str) -> Gateway {
    let yaml = format!(
        "{store}
egress: {{ allow: [127.0.0.1] }}
callers:
  gate: {{ keys: [{{ env: KEY }}], tenant: acme, identity: header, call_sources: [agent] }}
{upstreams}"
    );
    let tools =
        "version: hangu/v1\nkind: Tools\nupstreams: { up: { default: { risk: read_low } } }\n";
    Gateway::start(&yaml, &[POLICY, DIRECTORY, tools])
}

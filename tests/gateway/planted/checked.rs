//! A secret that stands in a configuration where none belongs is not repeated by `hangu check`,
//! which runs where everybody reads along.

use std::fs;

use super::{kinds, search::Search};
use crate::process_support::{Home, Setup};

/// Files, with a secret for `SECRET`.
const FILES: &[(&str, &str)] = &[
    ("a key", "callers: { a: { keys: [SECRET], tenant: acme } }\nupstreams: {}"),
    ("a key as a text", "callers: { a: { keys: SECRET, tenant: acme } }\nupstreams: {}"),
    (
        "a misspelled member",
        "callers: { a: { keys: [{ evn: SECRET }], tenant: acme } }\nupstreams: {}",
    ),
    ("a plain value", "callers: { a: { keys: [{ value: SECRET }], tenant: acme } }\nupstreams: {}"),
    (
        "no name of a variable",
        "callers: { a: { keys: [{ env: \"SECRET\" }], tenant: acme } }\nupstreams: {}",
    ),
    (
        "a name that holds it",
        "callers: { a: { keys: [{ SECRET: 1 }], tenant: acme } }\nupstreams: {}",
    ),
    ("a digest", "callers: { a: { keys: [{ sha256: SECRET }], tenant: acme } }\nupstreams: {}"),
    ("the admin token", "admin: { token: SECRET }\ncallers: {}\nupstreams: {}"),
    (
        "an admin token",
        "admin: { tokens: { a: { token: SECRET, role: viewer } } }\ncallers: {}\nupstreams: {}",
    ),
    ("an admin token by itself", "admin: { tokens: { a: SECRET } }\ncallers: {}\nupstreams: {}"),
    (
        "a header",
        "callers: {}\nupstreams: { up: { url: \"http://a.example\", headers: { X-Api-Key: SECRET } } }",
    ),
    (
        "a header on a line of its own",
        "callers: {}\nupstreams:\n  up:\n    url: http://a.example\n    headers:\n      Authorization: Bearer SECRET",
    ),
    (
        "a header of options",
        "callers: {}\nupstreams: { up: { url: \"http://a.example\", options: [\"mcp.headers.X-Api-Key=SECRET\"] } }",
    ),
    (
        "a password in an address",
        "callers: {}\nupstreams: { up: { url: \"http://ann:SECRET@a.example\" } }",
    ),
    (
        "a token in an address",
        "callers: {}\nupstreams: { up: { url: \"http://a.example?token=SECRET\" } }",
    ),
    (
        "one address of several",
        "callers: {}\nupstreams: { up: { urls: [\"http://a.example\", \"http://ann:SECRET@b.example\"] } }",
    ),
    (
        "a client's secret",
        "callers: {}\nupstreams: { up: { url: \"http://a.example\", auth: { type: client_credentials, client_id: a, client_secret: SECRET } } }",
    ),
    (
        "a client's key",
        "callers: {}\nupstreams: { up: { url: \"http://a.example\", auth: { type: client_credentials, client_id: a, key: SECRET } } }",
    ),
    (
        "an address of tokens",
        "callers: {}\nupstreams: { up: { url: \"http://a.example\", auth: { type: client_credentials, client_id: a, client_secret: { env: PATH }, token_url: \"http://ann:SECRET@a.example\" } } }",
    ),
    (
        "a webhook's secret",
        "approvals: { webhook: { url: \"http://a.example\", secret: SECRET } }\ncallers: {}\nupstreams: {}",
    ),
    (
        "a webhook's address",
        "approvals: { webhook: { url: \"http://ann:SECRET@a.example\", secret: { env: PATH } } }\ncallers: {}\nupstreams: {}",
    ),
    (
        "a webhook's secret that is none",
        "approvals: { webhook: { url: \"http://a.example\", secret: { env: SECRET_OF_IT } } }\ncallers: {}\nupstreams: {}",
    ),
    (
        "a database's password",
        "store: \"postgres://ann:SECRET@db.example/hangu\"\ncallers: {}\nupstreams: {}",
    ),
    (
        "a database's password in a query",
        "store: \"postgres://db.example/hangu?password=SECRET\"\ncallers: {}\nupstreams: {}",
    ),
    (
        "a database of no kind",
        "store: \"mysql://ann:SECRET@db.example/hangu\"\ncallers: {}\nupstreams: {}",
    ),
    (
        "an issuer's keys",
        "issuers: { a: { issuer: \"https://a.example\", jwks: \"https://ann:SECRET@a.example\", audience: a, tenant: a } }\ncallers: {}\nupstreams: {}",
    ),
    (
        "the public address",
        "public_url: \"https://ann:SECRET@a.example\"\ncallers: {}\nupstreams: {}",
    ),
    (
        "the variable of a process",
        "callers: {}\nupstreams: { up: { command: [sh], env: { API_TOKEN: SECRET } } }",
    ),
    (
        "a secret that is its name",
        "callers: {}\nupstreams: { up: { url: \"http://a.example\", headers: { X-Api-Key: { secret: \"SECRET /\" } } } }",
    ),
    (
        "after what is no YAML",
        "callers: {}\nupstreams: { up: { url: \"http://a.example\", headers: { X-Api-Key: SECRET } } } }",
    ),
    ("in a text that does not end", "callers: {}\nadmin: { token: \"SECRET }\nupstreams: {}"),
    (
        "filled in from a variable",
        "admin: { token: \"${SECRET_OF_IT}\" }\ncallers: {}\nupstreams: {}",
    ),
    ("filled in where a number is needed", "workers: ${SECRET_OF_IT}\ncallers: {}\nupstreams: {}"),
    (
        "filled in where an address is needed",
        "callers: {}\nupstreams: { up: { url: \"${SECRET_OF_IT}\" } }",
    ),
    (
        "a keyring's program",
        "keyring: { file: keyring.json, exec: [\"/bin/sh\", \"--token=SECRET\", 1, {}] }\ncallers: {}\nupstreams: {}",
    ),
];

fn home(text: &str, word: &str) -> Home {
    let home = Setup::new().env("SECRET_OF_IT", word).write();
    let text = format!(
        "version: hangu/v1\n{}\n",
        text.replace("SECRET_OF_IT", "\u{1}").replace("SECRET", word)
    );
    let text = text.replace('\u{1}', "SECRET_OF_IT");
    fs::write(home.path("hangu.yaml"), text).unwrap();
    home
}

#[test]
fn a_secret_at_a_wrong_place_is_not_repeated() {
    let word = kinds::plain("a configuration");
    let mut search = Search::default();
    search.add("the secret", word.as_bytes());
    let mut told = Vec::new();
    for (name, text) in FILES {
        let home = home(text, &word);
        for format in ["human", "plain", "json", "sarif"] {
            let said = home.run(&["check", "--format", format]);
            if search.found(said.as_bytes()).contains_key("the secret") {
                told.push(format!("{name} ({format}): {said}"));
            }
        }
        let said = home.run(&["serve"]);
        if search.found(said.as_bytes()).contains_key("the secret") {
            told.push(format!("{name} (serve): {said}"));
        }
    }
    assert!(told.is_empty(), "{} told\n{}", told.len(), told.join("\n"));
}

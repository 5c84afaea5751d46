//! Names of servers and tools: unique towards clients, unchanged towards servers.

use std::collections::HashSet;

use serde_json::json;

use crate::process_support::{Dialect, Setup, Upstream, tool};

/// Every listed tool, called: which upstream it reached, and as what.
#[track_caller]
fn call_all(upstreams: &[(&str, &Upstream, &[&str])], paths: &[&str]) {
    let mut setup = Setup::new();
    for (name, upstream, _) in upstreams {
        setup = setup.upstream(name, upstream, "", "");
    }
    let gateway = setup.start();
    for dialect in Dialect::ALL {
        for path in paths {
            let client = gateway.client(path, dialect);
            let listed = client.list();
            let unique: HashSet<&String> = listed.iter().collect();
            assert_eq!(unique.len(), listed.len(), "{listed:?}");
            let mut reached = HashSet::new();
            for name in &listed {
                let before = upstreams.iter().map(|(_, up, _)| up.calls().len());
                let before: Vec<usize> = before.collect();
                let answer = client.call(name, json!({ "x": 1 }));
                assert_eq!(answer.word(), "ok", "{dialect:?} {path} {name}: {answer:?}");
                let mut hits =
                    upstreams.iter().zip(&before).filter_map(|((upstream, up, _), n)| {
                        up.calls().get(*n).map(|seen| (*upstream, seen.tool().to_owned()))
                    });
                let hit = hits.next().unwrap();
                assert_eq!(hits.next(), None, "{name} reached two");
                if *path == "/mcp" {
                    let fits = name.len() <= 64
                        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
                    assert!(fits, "{name}");
                    assert!(name.starts_with(&format!("{}__", hit.0)), "{name} reached {hit:?}");
                } else {
                    assert_eq!(name, &hit.1, "{path}");
                }
                reached.insert(hit);
            }
            let wanted = upstreams.iter().flat_map(|(upstream, _, tools)| {
                tools.iter().map(move |tool| (*upstream, (*tool).to_owned()))
            });
            let wanted: HashSet<_> = wanted
                .filter(|(upstream, _)| *path == "/mcp" || path.ends_with(&format!("/{upstream}")))
                .collect();
            assert_eq!(reached, wanted, "{dialect:?} {path}");
        }
    }
}

/// C30.
#[test]
fn a_name_is_looked_up_and_never_split() {
    let first = ["get-catalog-entity", "x_y", "a__b", "db__x_y"];
    let second = ["x_y", "a__b", "_x_y"];
    let (db, my_db) = (Upstream::start(&first.map(tool)), Upstream::start(&second.map(tool)));
    let upstreams: [(&str, &Upstream, &[&str]); 2] =
        [("db", &db, &first), ("my-db", &my_db, &second)];
    call_all(&upstreams, &["/mcp", "/mcp/db", "/mcp/my-db"]);
}

/// C31.
#[test]
fn any_name_a_server_gives_reaches_it_unchanged() {
    let long = "n".repeat(128);
    let names = [
        "git/commit",
        "admin.tools.list",
        "a b",
        "\u{65e5}\u{5831}",
        "..",
        &long,
        // Not the same for a server, whatever a reader thinks.
        "Git/Commit",
        "git_commit",
        "=?base64?eA==?=",
        "a\"b\\c",
        "%2e%2e",
    ];
    let up = Upstream::start(&names.map(tool));
    call_all(&[("s", &up, &names)], &["/mcp", "/mcp/s"]);
}

#[test]
fn the_case_of_a_name_counts() {
    let up = Upstream::start(&[tool("echo")]);
    let gateway = Setup::new().upstream("up", &up, "", "").start();
    for dialect in Dialect::ALL {
        for (path, name) in [("/mcp/up", "Echo"), ("/mcp", "up__ECHO"), ("/mcp", "UP__echo")] {
            let answer = gateway.client(path, dialect).call(name, json!({}));
            assert_eq!(answer.word(), "not_found", "{dialect:?} {name}");
        }
    }
    assert_eq!(up.calls().len(), 0);
}

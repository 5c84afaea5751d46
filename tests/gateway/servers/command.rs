//! `hangu servers`: the real command against a gateway.

use std::process::Output;

use serde_json::Value;

use super::{SECRET, gateway};
use crate::support::{Gateway, Speaks, command, gateway::KEY};

/// Runs the command as an employee, with this on its standard input.
pub fn run(gateway: &Gateway, who: &str, args: &[&str], input: &str) -> Output {
    let url = format!("http://{}", gateway.address());
    let variables = [("HANGU_URL", &*url), ("HANGU_API_KEY", KEY), ("HANGU_EMP_ID", who)];
    command::hangu("servers", args, &variables, input)
}

#[track_caller]
pub fn ended(output: &Output, code: i32) -> String {
    let (out, error) = command::ended(output, code);
    assert!(!format!("{out}{error}").contains(SECRET), "the secret is told: {out}{error}");
    if code == 1 && out.is_empty() || code > 1 { error } else { out }
}

#[test]
fn an_employee_brings_shares_and_deletes_a_server() {
    let (gateway, server) = (gateway(), super::server(Speaks::Stateless));
    let url = server.url();
    let of = |who: &str, args: &[&str], input: &str| run(&gateway, who, args, input);
    let nothing = ended(&of("E1", &["ls"], ""), 0);
    assert_eq!(nothing, "You have no servers, and none is shared with your teams.\n");
    let add = ["add", &url, "--name", "Orders", "--auth", "bearer", "--secret-file", "-"];
    let added = ended(&of("E1", &add, &format!("{SECRET}\n")), 0);
    let key = added.split(':').next().unwrap().to_owned();
    assert!(added.contains("5 tools, modern (2026-07-28)"), "{added}");
    assert_eq!(
        server.received()[0].header("authorization"),
        Some(format!("Bearer {SECRET}").as_str()),
        "without the end of the line"
    );
    let listed = ended(&of("E1", &["ls"], ""), 0);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].starts_with("SERVERKEY  ") && lines.len() == 2, "{listed}");
    for word in [key.as_str(), "Orders", "you", "ok"] {
        assert!(lines[1].contains(word), "{word}: {listed}");
    }
    let said = ended(&of("E1", &["share", &key, "--team", "payments"], ""), 0);
    assert_eq!(said, format!("shared with payments: {key}\n"));
    let listed = ended(&of("E2", &["ls"], ""), 0);
    assert!(listed.contains("set your credential"), "{listed}");
    let set = ["credential", "set", &key, "--auth", "bearer", "--secret-file", "-"];
    let said = ended(&of("E2", &set, SECRET), 0);
    assert_eq!(said, format!("your credential is kept for {key}\n"));
    let shown = ended(&of("E2", &["show", &key], ""), 0);
    for word in ["yours is set", "E1", "tool       echo  sha256:"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let refused = ended(&of("E2", &["rm", &key], ""), 1);
    assert!(refused.contains("only E1, who shares the server"), "{refused}");
    ended(&of("E1", &["refresh", &key], ""), 0);
    let asset = ended(&of("E1", &["asset", &key], ""), 0);
    let said = ended(&of("E3", &["import", "-"], &asset), 0);
    assert_eq!(
        said,
        format!("Orders: registered as {key}, set your credential: it is asked then\n")
    );
    ended(&of("E2", &["credential", "rm", &key], ""), 0);
    ended(&of("E1", &["unshare", &key], ""), 0);
    let told = ended(&of("E1", &["show", &key, "--format", "json"], ""), 0);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["team"], Value::Null);
    assert_eq!(ended(&of("E1", &["rm", &key], ""), 0), format!("deleted {key}\n"));
}

#[test]
fn a_clients_file_is_imported_entry_by_entry() {
    let (gateway, server) = (gateway(), super::server(Speaks::Stateless));
    let file = format!(
        r#"{{"mcpServers": {{
            "orders": {{ "url": "{}", "headers": {{ "Authorization": "Bearer {SECRET}" }} }},
            "shell": {{ "command": "sh" }} }} }}"#,
        server.url()
    );
    let said = ended(&run(&gateway, "E1", &["import", "-"], &file), 1);
    assert!(said.contains("orders: registered as mcp_") && said.contains("5 tools"), "{said}");
    assert!(said.contains("shell: ") && said.contains("(invalid_args)"), "{said}");
    let said = ended(&run(&gateway, "E1", &["import", "-"], &format!("{{\"x\": {SECRET}")), 2);
    assert!(said.contains("no JSON stands there"), "{said}");
}

#[test]
fn a_secret_is_no_flag() {
    let (gateway, server) = (gateway(), super::server(Speaks::Stateless));
    let url = server.url();
    let secret = format!("X-Api-Key={SECRET}");
    for (args, why) in [
        (vec!["add", &url, "--header", &secret], "is a secret by its name"),
        (vec!["add", &url, "--auth", "bearer"], "HANGU_SERVER_SECRET"),
        (vec!["add", &url, "--auth", "basic"], "`--user` goes with"),
        (vec!["add", &url, "--auth", "bearer", "--secret-file", "-"], "the secret is empty"),
        (vec!["show", "../approvals"], "such a key is"),
    ] {
        let error = ended(&run(&gateway, "E1", &args, ""), 2);
        assert!(error.contains(why), "{args:?}: {error}");
    }
    assert!(server.received().is_empty());
}

//! `hangu approvals`: the real command against a gateway, and against what is none.

use std::{net::TcpListener, process::Output};

use serde_json::Value;

use super::{GLOBEX, gateway, waiting, webhook::Receiver};
use crate::support::{Gateway, command, gateway::KEY};

/// Runs the command as an employee.
fn run(url: &str, key: &str, employee: &str, args: &[&str]) -> Output {
    let who = [("HANGU_URL", url), ("HANGU_API_KEY", key), ("HANGU_EMP_ID", employee)];
    command::hangu("approvals", args, &who, "")
}

fn at(gateway: &Gateway) -> String {
    format!("http://{}", gateway.address())
}

#[track_caller]
fn ended(output: &Output, code: i32) -> String {
    let (out, error) = command::ended(output, code);
    if code == 0 { out } else { error }
}

#[test]
fn an_owner_finds_looks_at_and_decides_what_waits() {
    let gateway = gateway();
    let first = waiting(&gateway, Some("E1"), 1).id.to_string();
    let second = waiting(&gateway, Some("E1"), 2).id.to_string();
    let at = at(&gateway);
    let owner = |args: &[&str]| run(&at, KEY, "E2", args);

    let listed = ended(&owner(&["ls", "--state", "waiting"]), 0);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(lines[0].starts_with("ID  "), "{listed}");
    assert!(lines[1].starts_with(&second) && lines[2].starts_with(&first), "{listed}");
    for word in ["waiting", "write_high", "crm/contacts.purge", "E1", "in 14m", "you may decide"] {
        assert!(lines[1].contains(word), "{word}: {listed}");
    }
    let shown = ended(&owner(&["show", &first]), 0);
    for word in ["two-eyes: 1 of owner, 1 missing", "not kept", &format!("approve {first}")] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let said = ended(&owner(&["approve", &first, "--comment", "as agreed"]), 0);
    assert_eq!(said, "approved: crm/contacts.purge for E1\n");
    let said = ended(&owner(&["refuse", &second, "--format", "json"]), 0);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&told["id"], &told["state"]), (&second.into(), &"refused".into()));
    let shown = ended(&run(&at, KEY, "E1", &["show", &first]), 0);
    assert!(shown.contains("approve by E2") && shown.contains(": as agreed"), "{shown}");
    let listed = ended(&owner(&["ls", "--format", "json"]), 0);
    let told: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(told["approvals"].as_array().map(Vec::len), Some(2));
    let nothing = ended(&run(&at, KEY, "E4", &["ls"]), 0);
    assert_eq!(nothing, "Nothing here that you asked for or may decide on.\n");
}

#[test]
fn what_the_gateway_refuses_is_told_in_its_words() {
    let gateway = gateway();
    let own = waiting(&gateway, Some("E2"), 1).id.to_string();
    let at = at(&gateway);
    for (key, employee, args, says) in [
        ("wrong", "E2", vec!["ls"], "the API key is not valid (unauthenticated, trace "),
        (KEY, "", vec!["ls"], "SSO-Emp-Id"),
        (KEY, "G1", vec!["ls"], "another tenant"),
        (KEY, "E2", vec!["approve", &own], "nobody decides on what he asked for himself"),
        (KEY, "E4", vec!["approve", &own], "there is no such request for approval (not_found"),
        (GLOBEX, "G1", vec!["show", &own], "there is no such request for approval"),
    ] {
        let error = ended(&run(&at, key, employee, &args), 1);
        assert!(error.starts_with("hangu: ") && error.contains(says), "{error}");
    }
    ended(&run(&at, KEY, "E1", &["approve", &own]), 0);
    let error = ended(&run(&at, KEY, "E3", &["approve", &own]), 1);
    assert!(error.contains("it is approved already (conflict"), "{error}");
}

#[test]
fn what_makes_no_sense_is_said_before_anybody_is_asked() {
    let nobody = "http://127.0.0.1:1";
    let id = "0198f2b4-77c1-7a52-8d0e-3f5b0c6a9d10";
    for (url, key, args, says) in [
        (nobody, "", vec!["ls"], "set HANGU_API_KEY"),
        (nobody, "k\u{7f}", vec!["ls"], "HANGU_API_KEY holds what no header can carry"),
        ("127.0.0.1:8080", "k", vec!["ls"], "--url (or HANGU_URL) is not an address"),
        ("http://me:hunter2@gw", "k", vec!["ls"], "holds a user or a password"),
        (nobody, "k", vec!["show", "7"], "36 characters"),
        (nobody, "k", vec!["approve"], "<ID>"),
        (nobody, "k", vec!["aprove", id], "'approve'"),
        (nobody, "k", vec!["ls", "--state", "waitng"], "'waiting'"),
        (nobody, "k", vec!["ls", "--timeout", "0"], "--timeout"),
        (nobody, "k", vec!["ls", "--key", "k"], "--key"),
    ] {
        let error = ended(&run(url, key, "E2", &args), 2);
        assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
    }
}

#[test]
fn where_no_gateway_answers_that_is_said() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = Receiver::start(&[""]);
    let page = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi";
    let elsewhere = "HTTP/1.1 302 Found\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n";
    let noise = Receiver::start(&["hello\r\n\r\n"]);
    let (website, proxy) = (Receiver::start(&[page]), Receiver::start(&[elsewhere]));
    for (address, says) in [
        (closed, "refused the connection: is a gateway running there?"),
        (silent.address, "did not answer within 1s"),
        (website.address, "answered 200 OK, and not as a gateway does"),
        (proxy.address, "answered with a redirect"),
        (noise.address, "could not be asked"),
    ] {
        let error =
            ended(&run(&format!("http://{address}"), KEY, "E2", &["ls", "--timeout", "1"]), 4);
        assert!(error.contains(&address.to_string()) && error.contains(says), "{error}");
    }
    let error = ended(&run("http://no-such-host.invalid", KEY, "E2", &["ls"]), 4);
    assert!(error.contains("no-such-host.invalid:80 has no address"), "{error}");
}

#[test]
fn help_begins_with_examples() {
    for args in [&["--help"][..], &["ls", "--help"], &["approve", "-h"]] {
        let help = ended(&command::hangu("approvals", args, &[], ""), 0);
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text} in {help}"));
        assert!(at("Examples:") < at("Usage:"), "{help}");
    }
}

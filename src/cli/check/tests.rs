//! What `check` says about whole folders.

use super::*;
use crate::cli::tell::{parse_format, parse_report_format};

const CONFIG: &str = "
version: hangu/v1
callers:
  gate: { keys: [{ env: GATE_KEY }], tenant: acme, identity: header, catalog_roles: [member] }
upstreams:
  crm: { url: \"http://127.0.0.1:7001/mcp\" }
";
const TOOLS: &str = "
version: hangu/v1
kind: Tools
upstreams: { crm: { tools: { search: { risk: read_low } } } }
";
const RULES: &str = "
version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: read, effect: allow, roles: [member], risk: [read_low] }
";

fn env(name: &str) -> Option<String> {
    (name == "GATE_KEY").then(|| "gate-key".to_owned())
}

/// A folder with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn checked(config: &str, tools: &str, rules: &str) -> (Checked, Vec<String>) {
    let files = [("hangu.yaml", config), ("policies/t.yaml", tools), ("policies/r.yaml", rules)];
    let folder = folder(&files);
    let checked = check(&folder.path().join("hangu.yaml"), &env);
    let told = checked.report.faults.iter();
    let told = told.map(|f| format!("{} {}:{} {}", f.code, f.at.line, f.at.column, f.message));
    let told = told.collect();
    (checked, told)
}

#[test]
fn what_is_right_is_accepted_without_a_word() {
    let (checked, told) = checked(CONFIG, TOOLS, RULES);
    assert_eq!(told, Vec::<String>::new());
    assert_eq!(checked.report.summary(), "0 errors, 0 warnings in 3 files");
    let (config, policies) = checked.accepted.unwrap();
    assert_eq!((config.callers.len(), policies.rules().count()), (1, 1));
}

#[test]
fn faults_of_configuration_and_policies_are_told_together() {
    let (checked, told) = checked(
        &CONFIG.replace("tenant: acme", "tenant: acme, tennant: b"),
        &TOOLS.replace("read_low", "read_lo"),
        &RULES.replace("effect: allow", "effect: alow"),
    );
    assert!(checked.accepted.is_none());
    assert_eq!(
        told,
        [
            "Y004 4:52 unknown key `tennant`",
            "Y007 6:25 unknown effect `alow`",
            "P014 4:46 unknown risk level `read_lo`",
        ]
    );
}

#[test]
fn a_warning_is_told_and_accepted() {
    let (checked, told) = checked(CONFIG, &TOOLS.replace("crm", "crn"), RULES);
    assert_eq!(
        told,
        [
            "P110 6:3 nothing classifies the tools of `crm`: all are hidden",
            "P108 4:14 there is no upstream `crn`",
        ]
    );
    assert!(checked.accepted.is_some());
}

#[test]
fn an_employee_who_would_always_be_refused_is_not_accepted() {
    let config = CONFIG.replace("identity: header", "identity: { empId: E1, roles: [member] }");
    let elsewhere =
        "\n---\nversion: hangu/v1\nkind: Directory\nemployees: { E1: { tenant: globex } }\n";
    let (checked, told) = checked(&config, &format!("{TOOLS}{elsewhere}"), RULES);
    assert!(checked.accepted.is_none());
    assert!(told.iter().any(|told| told.starts_with("C010 4:3 ")), "{told:?}");
}

#[test]
fn the_command_writes_its_report_and_says_whether_all_is_well() {
    let good = folder(&[("tools.yaml", TOOLS), ("rules.yaml", RULES)]);
    let bad = folder(&[("tools.yaml", &TOOLS.replace("read_low", "read_lo"))]);
    for (folder, expected) in [(&good, Ending::Well), (&bad, Ending::Findings)] {
        for (format, sign) in
            [("human", "error"), ("plain", "error"), ("json", "\"errors\""), ("sarif", "\"2.1.0\"")]
        {
            let format = parse_report_format(format).unwrap();
            let mut out = Vec::new();
            let args = Args { target: folder.path().to_owned(), format, catalog: None };
            assert_eq!(run(&args, &mut out).unwrap(), expected);
            assert!(String::from_utf8(out).unwrap().contains(sign));
        }
    }
}

#[test]
fn formats_that_are_not_there_are_refused() {
    assert!(parse_report_format("xml").is_err());
    assert!(parse_format("sarif").is_err(), "only faults can be told so");
}

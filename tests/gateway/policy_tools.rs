//! What the commands about policies print, and how they end, by the real binary.

mod support;

use self::support::{Folder, ran};

#[test]
fn explain_shows_a_page_and_knows_the_nearest_code() {
    let page = ran(&["explain", "p014"]);
    insta::assert_snapshot!("explain_page", page.told());
    let near = ran(&["explain", "P16"]);
    insta::assert_snapshot!("explain_unknown", near.told());
    assert_eq!(near.code, 2);
}

#[test]
fn the_reverse_question_is_answered_rule_by_rule() {
    let folder = Folder::drafts();
    let ask = |more: &[&str]| {
        let mut args = vec!["policy", "explain", "--policies", "policies", "--tenant", "acme"];
        args.extend(more);
        folder.run(&args).told()
    };
    let purge = &["--roles", "member", "--tool", "crm/contacts.purge"];
    insta::assert_snapshot!("policy_explain_hidden", ask(purge));
    let admin =
        &["--roles", "admin", "--tool", "crm/contacts.purge", "--args", "{\"region\":\"us\"}"];
    insta::assert_snapshot!("policy_explain_arguments", ask(admin));
    let list = &["--roles", "admin", "--tool", "crm/contacts.purge"];
    insta::assert_snapshot!("policy_explain_list", ask(list));
    let plain = &["--roles", "member", "--tool", "crm/contacts.search", "--format", "plain"];
    insta::assert_snapshot!("policy_explain_plain", ask(plain));
    let near = &["--roles", "member", "--tool", "crm/contact.purge"];
    insta::assert_snapshot!("policy_explain_unknown", ask(near));
    let json = &["--roles", "member", "--tool", "crm/contacts.purge", "--format", "json"];
    let json: serde_json::Value =
        serde_json::from_str(ask(json).split_once('\n').unwrap().1).unwrap();
    assert_eq!(json["decision"], "hide");
    let rules = json["rules"].as_array().unwrap();
    assert_eq!(rules.len(), 6);
    let own = rules.iter().find(|rule| rule["id"] == "member-read").unwrap();
    assert_eq!(own["why"], "risk write_high is not in [read_low]");
    assert_eq!((&own["applies"], &own["line"]), (&false.into(), &10.into()));
}

#[test]
fn the_drafts_of_the_format_load_as_they_stand_and_their_tests_pass() {
    let folder = Folder::drafts();
    let tested = folder.run(&["policy", "test", "policies", "--coverage", "--junit", "out.xml"]);
    insta::assert_snapshot!("policy_test_drafts", tested.told());
    assert_eq!(tested.code, 0);
    let junit = folder.read("out.xml");
    assert!(junit.contains("tests=\"4\" failures=\"0\" skipped=\"0\""), "{junit}");
}

#[test]
fn a_case_that_fails_says_what_was_otherwise() {
    let folder = Folder::drafts();
    folder.edit("policies/tenants/acme.yaml", "risk: [read_low]", "risk: [read_low, read_high]");
    let tested = folder.run(&["policy", "test", "policies"]);
    insta::assert_snapshot!("policy_test_failed", tested.told());
    assert_eq!(tested.code, 1);
}

#[test]
fn the_policies_that_ship_pass_their_tests() {
    let root = env!("CARGO_MANIFEST_DIR");
    let tested = ran(&["policy", "test", &format!("{root}/policies"), "--coverage"]);
    assert_eq!(tested.code, 0, "{}", tested.told());
    assert!(!tested.stdout.contains("UNTESTED"), "{}", tested.told());
}

#[test]
fn a_fault_in_the_files_is_told_and_nothing_is_decided() {
    let folder = Folder::drafts();
    folder.edit("policies/tenants/acme.yaml", "risk: [read_low]", "risk: [read_lo]");
    let tested = folder.run(&["policy", "test", "policies"]);
    assert_eq!((tested.code, tested.stdout.as_str()), (1, ""));
    assert!(tested.stderr.contains("did you mean `read_low`?"), "{}", tested.told());
    let checked = folder.run(&["check", "policies", "--format", "sarif"]);
    assert_eq!(checked.code, 1);
    let log: serde_json::Value = serde_json::from_str(&checked.stdout).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert!(results.iter().any(|result| result["ruleId"] == "P014"), "{log}");
}

#[test]
fn a_widening_is_told_and_stops_a_merge() {
    let folder = Folder::drafts();
    folder.copy(&folder.path("policies"), "new");
    let acme = "new/tenants/acme.yaml";
    folder.edit(acme, "risk: [read_low]", "risk: [read_low, read_high]");
    folder.edit(acme, "not_in: [eu-west, eu-north]", "not_in: [eu-west]");
    folder.edit("new/platform.yaml", "count: 1", "count: 2");
    let found = folder.run(&["policy", "diff", "policies", "new"]);
    insta::assert_snapshot!("policy_diff_widened", found.told());
    assert_eq!(found.code, 3);
    let allowed = folder.run(&["policy", "diff", "policies", "new", "--allow-widening"]);
    assert_eq!(allowed.code, 0);
    let same = folder.run(&["policy", "diff", "new", "new"]);
    insta::assert_snapshot!("policy_diff_same", same.told());
    let json = folder.run(&["policy", "diff", "policies", "new", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["widened"], true);
    assert!(
        json["differences"].as_array().unwrap().iter().any(|group| {
            group["kind"] == "widened" && group["items"][0] == "crm/contacts.export"
        })
    );
}

#[test]
fn what_only_narrows_ends_well() {
    let folder = Folder::drafts();
    folder.copy(&folder.path("policies"), "new");
    folder.edit("new/tenants/acme.yaml", "roles: [admin]\n    risk", "roles: [owner]\n    risk");
    folder.edit("new/tenants/acme.yaml", "not_in: [eu-west, eu-north]", "not_in: []");
    let broken = folder.run(&["policy", "diff", "policies", "new"]);
    assert_eq!((broken.code, broken.stdout.as_str()), (1, ""), "{}", broken.told());
    folder.edit("new/tenants/acme.yaml", "when: { arg: /region, not_in: [] }", "say: Closed.");
    let found = folder.run(&["policy", "diff", "policies", "new"]);
    insta::assert_snapshot!("policy_diff_narrowed", found.told());
    assert_eq!(found.code, 0);
}

/// Where employees may register servers, and what becomes of those, is told like all else.
#[test]
fn what_employees_may_bring_is_compared() {
    let with = |service: &str| {
        format!(
            "version: hangu/v1\nkind: Policy\nscope: {{ tenant: acme }}\nself_service: {{ {service} }}\n\
             rules:\n  - {{ id: read, effect: allow, roles: [member], risk: [read_low] }}\n"
        )
    };
    let before =
        with("roles: [member], hosts: [\"*.partner.example\"], default: { risk: read_high }");
    let after = with(
        "roles: [member], hosts: [\"*.example\", \"tools.dev:8443\"], max_each: 50, \
         share: { roles: [lead] }, default: { risk: read_low, pin: first_use }",
    );
    let folder = Folder::new(&[("before/own.yaml", &before), ("after/own.yaml", &after)]);
    let found = folder.run(&["policy", "diff", "before", "after"]);
    insta::assert_snapshot!("policy_diff_self_service", found.told());
    assert_eq!(found.code, 3);
    let back = folder.run(&["policy", "diff", "after", "before", "--format", "json"]);
    let back: serde_json::Value = serde_json::from_str(&back.stdout).unwrap();
    assert_eq!(back["widened"], false, "{back}");
    let groups = back["differences"].as_array().unwrap();
    let hosts = groups.iter().find(|group| group["about"] == "self_service.hosts").unwrap();
    assert_eq!((&hosts["kind"], &hosts["family"]), (&"narrowed".into(), &serde_json::Value::Null));
    assert_eq!(hosts["items"], serde_json::json!(["*.example", "tools.dev:8443"]));
}

/// A record as the audit file has it.
fn record(
    tool: &str,
    employee: &str,
    roles: &str,
    decision: (&str, &str),
    trace: u32,
    more: &str,
) -> String {
    let (decision, reason) = decision;
    format!(
        "{{\"decision\":\"{decision}\",\"event\":\"call\",\"method\":\"tools/call\",\"principal\":\
         {{\"auth\":\"fixed\",\"caller\":\"gate\",\"empId\":\"{employee}\",\"roles\":[\"{roles}\"]}},\
         \"reason\":\"{reason}\",\"tenant\":\"acme\",\"tool\":\"{tool}\",\"traceId\":\"{trace:032x}\",\
         \"v\":1{more}}}\n"
    )
}

#[test]
fn recorded_traffic_is_decided_again_by_other_policies() {
    let folder = Folder::drafts();
    // A rule that is only looked at so far.
    folder.write(
        "policies/shadow.yaml",
        "version: hangu/v1\nkind: Policy\nscope: { tenant: acme }\nmode: shadow\nrules:\n  \
         - { id: no-export, effect: deny, tools: [crm/contacts.export] }\n",
    );
    let allow = ("allow", "rule_allow");
    let eu = ",\"argFacts\":{\"/region\":\"eu-west\"}";
    let records = [
        record("crm/contacts.export", "E1", "admin", allow, 1, eu),
        record("crm/contacts.export", "E2", "admin", allow, 2, eu),
        record("crm/contacts.search", "E1", "member", allow, 3, eu),
        record("crm/contacts.search", "E1", "member", allow, 4, ""),
        "not a record\n".to_owned(),
        "{\"event\":\"start\",\"v\":1}\n".to_owned(),
    ];
    folder.write("audit.jsonl", &records.concat());
    let found = folder.run(&["policy", "replay", "--records", "audit.jsonl", "policies"]);
    insta::assert_snapshot!("policy_replay", found.told());
    assert_eq!(found.code, 1);
    std::fs::remove_file(folder.path("policies/shadow.yaml")).unwrap();
    let same = folder.run(&["policy", "replay", "--records", "audit.jsonl", "policies"]);
    assert_eq!(same.code, 0, "{}", same.told());
}

#[test]
fn files_are_written_evenly_and_say_the_same() {
    let folder = Folder::drafts();
    let check = folder.run(&["policy", "fmt", "--check", "policies"]);
    insta::assert_snapshot!("policy_fmt_check", check.told());
    assert_eq!(check.code, 1);
    let test = || folder.run(&["policy", "test", "policies"]).stdout;
    let before = test();
    assert_eq!(folder.run(&["policy", "fmt", "policies"]).code, 0);
    assert_eq!(test(), before);
    insta::assert_snapshot!("policy_fmt_acme", folder.read("policies/tenants/acme.yaml"));
    let again = folder.run(&["policy", "fmt", "--check", "policies"]);
    assert_eq!(again.code, 0, "{}", again.told());
}

#[test]
fn what_fmt_does_not_understand_is_left_alone() {
    let folder = Folder::drafts();
    folder.write("policies/odd.yaml", "version: hangu/v1\nkind: Tools\nupstreams: {crm: {\n");
    let found = folder.run(&["policy", "fmt", "policies/odd.yaml"]);
    assert_eq!(found.code, 1, "{}", found.told());
    assert_eq!(folder.read("policies/odd.yaml").lines().count(), 3);
}

#[test]
fn the_policies_that_ship_are_formatted() {
    let root = env!("CARGO_MANIFEST_DIR");
    let found = ran(&["policy", "fmt", "--check", &format!("{root}/policies")]);
    assert_eq!(found.code, 0, "{}", found.told());
}

#[test]
fn a_tool_is_explained_by_either_of_its_names() {
    let folder = Folder::new(&[(
        "policies/all.yaml",
        "version: hangu/v1
kind: Tools
upstreams:
  crm:
    tools:
      contacts.update:
        risk: read_low
        inject: { tenantId: $ctx.tenant }
        override: { name: change, parameters: { raw: { hidden: true }, mode: { enum: [soft] } } }
---
version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: read, effect: allow, roles: [member], risk: [read_low] }
",
    )]);
    let ask = |tool: &str, more: &[&str]| {
        let mut args = vec!["policy", "explain", "--tenant", "acme", "--roles", "member"];
        args.extend(["--tool", tool]);
        args.extend(more);
        folder.run(&args).stdout
    };
    let told = ask("crm/change", &[]);
    assert!(told.starts_with("ALLOWED  crm/contacts.update "), "{told}");
    let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("Clients know it as `change`."), "{told}");
    assert!(words.contains("Callers neither see nor send `tenantId`, `raw`."), "{told}");
    assert_eq!(ask("crm/contacts.update", &[]), told);
    let json: serde_json::Value =
        serde_json::from_str(&ask("crm/change", &["--format", "json"])).unwrap();
    assert_eq!(
        (&json["item"], &json["published"]),
        (&"crm/contacts.update".into(), &"change".into())
    );
    assert_eq!(json["withheld"], serde_json::json!(["tenantId", "raw"]));
}

#[test]
fn what_does_not_fit_a_kept_list_of_tools_is_told_before_a_gateway_meets_them() {
    let folder = Folder::new(&[
        (
            "policies/tools.yaml",
            "version: hangu/v1
kind: Tools
upstreams:
  crm:
    default: { risk: read_low, inject: { tenantId: $ctx.tenant } }
    tools:
      find: { risk: read_low, hide: [regoin] }
      note: { risk: read_low, hide: [text] }
      gone: { risk: read_low, name: went }
",
        ),
        (
            "catalog.json",
            r#"{"crm": {"tools": [
                {"name": "find", "inputSchema": {"properties": {"region": {"type": "string"}}}},
                {"name": "note", "inputSchema": {"properties": {"text": {}}, "required": ["text"]}},
                {"name": "plain"}]}}"#,
        ),
    ]);
    let args = ["check", "policies", "--catalog", "catalog.json", "--format", "plain"];
    let found = folder.run(&args);
    assert_eq!(found.code, 1);
    for line in [
        "policies/tools.yaml:7:38: warning P114: `crm/find` has no argument `regoin`",
        "policies/tools.yaml:8:38: error P016: `crm/note` is not published: `text` is hidden and required",
        "policies/tools.yaml:9:7: warning P114: `crm` lists no tool `gone`",
    ] {
        assert!(found.stdout.contains(line), "{line}\n{}", found.told());
    }
    assert_eq!(found.stdout.matches(" P").count(), 3, "{}", found.told());
}

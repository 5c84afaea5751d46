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
    assert_eq!(json["rules"][0]["why"], "risk write_high is not in [read_low]");
    assert_eq!(json["rules"].as_array().unwrap().len(), 6);
}

#[test]
fn the_drafts_of_the_format_load_as_they_stand_and_their_tests_pass() {
    let folder = Folder::drafts();
    let tested = folder.run(&["policy", "test", "policies", "--coverage", "--junit", "out.xml"]);
    insta::assert_snapshot!("policy_test_drafts", tested.told());
    assert_eq!(tested.code, 0);
    let junit = folder.read("out.xml");
    assert!(junit.contains("tests=\"4\" failures=\"0\" skipped=\"1\""), "{junit}");
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

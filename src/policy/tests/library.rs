//! Reading again what changed, and nothing else.

use super::*;
use crate::{fault::FaultCode, model::argument_facts::ArgumentFacts};

fn tenant_file(number: usize, tool: &str) -> PolicyFile {
    let rules = [format!("{{ id: r, effect: allow, roles: [member], tools: [\"{tool}\"] }}")];
    let rules: Vec<&str> = rules.iter().map(String::as_str).collect();
    file(&format!("t{number}.yaml"), &policy(&format!("{{ tenant: t{number} }}"), &rules))
}

fn sees(policies: &Policies, number: usize) -> Vec<&'static str> {
    shown(&bind(policies).view(&tenant(&format!("t{number}")), &caller("g"), &roles(&["member"])))
}

#[test]
fn what_comes_out_never_depends_on_what_is_remembered() {
    let mut library = Library::default();
    let mut files =
        vec![file("tools.yaml", TOOLS), tenant_file(1, "wiki/*"), tenant_file(2, "crm/*")];
    type Step<'a> = &'a dyn Fn(&mut Vec<PolicyFile>);
    let steps: [Step<'_>; 7] = [
        &|_| {},
        &|files| files[1] = tenant_file(1, "crm/contacts.search"),
        &|files| {
            files.push(file(
                "p.yaml",
                &policy("platform", &["{ id: no, effect: deny, tools: [crm/contacts.export] }"]),
            ))
        },
        // An id that tenants have: refused, and then not.
        &|files| files[3] = file("p.yaml", &policy("platform", &["{ id: r, effect: deny }"])),
        &|files| {
            files[3] = file(
                "p.yaml",
                &policy("platform", &["{ id: s, effect: deny, tools: [\"wiki/*\"] }"]),
            )
        },
        &|files| {
            files.remove(2);
        },
        &|files| files[0] = file("tools.yaml", &TOOLS.replace("read_low", "read_high")),
    ];
    for (number, step) in steps.iter().enumerate() {
        step(&mut files);
        let (again, faults) = library.compile(files.clone());
        let (fresh, expected) = Policies::compile(files.clone());
        assert_eq!(told(&faults), told(&expected), "step {number}");
        assert_eq!(again.is_some(), fresh.is_some(), "step {number}");
        let (Some(again), Some(fresh)) = (again, fresh) else { continue };
        assert_eq!(again.revision(), fresh.revision());
        for tenant in [1, 2, 3] {
            assert_eq!(sees(&again, tenant), sees(&fresh, tenant), "step {number} tenant {tenant}");
        }
    }
}

#[test]
fn scopes_that_did_not_change_are_kept() {
    let mut library = Library::default();
    let files =
        |tool: &str| vec![file("tools.yaml", TOOLS), tenant_file(1, tool), tenant_file(2, "crm/*")];
    let (before, _) = library.compile(files("wiki/*"));
    let (after, _) = library.compile(files("crm/*"));
    let (before, after) = (before.unwrap(), after.unwrap());
    let scope = |policies: &Policies, name: &str| policies.enforced.tenants[&tenant(name)].clone();
    assert!(Arc::ptr_eq(&scope(&before, "t2"), &scope(&after, "t2")));
    assert!(!Arc::ptr_eq(&scope(&before, "t1"), &scope(&after, "t1")));
    assert!(Arc::ptr_eq(&before.enforced.upstreams, &after.enforced.upstreams));
    // What two files say alike is one and the same.
    let glob = |name: &str| {
        Arc::as_ptr(&scope(&after, name).rules[0].globs.tools.as_ref().unwrap()[0].glob)
    };
    assert_eq!(glob("t1"), glob("t2"));
}

#[test]
fn a_file_in_shadow_leaves_in_force_what_was_enforced_of_it() {
    let mut library = Library::default();
    let files = |first: PolicyFile| vec![file("tools.yaml", TOOLS), first];
    let shadow = |tool: &str| {
        let text = &tenant_file(1, tool).source.text.replace("rules:", "mode: shadow\nrules:");
        file("t1.yaml", text)
    };
    // Nothing was enforced yet: nothing is allowed.
    let (policies, _) = library.compile(files(shadow("wiki/*")));
    assert!(sees(&policies.unwrap(), 1).is_empty());
    let (policies, _) = library.compile(files(tenant_file(1, "wiki/*")));
    assert_eq!(sees(&policies.unwrap(), 1), ["page.read"]);
    for _ in 0..2 {
        let (policies, _) = library.compile(files(shadow("crm/contacts.search")));
        let policies = policies.unwrap();
        assert_eq!(sees(&policies, 1), ["page.read"]);
        let view = bind(&policies).view(&tenant("t1"), &caller("g"), &roles(&["member"]));
        let shadow = |index| {
            let looked = &mut ArgumentFacts::default();
            view.shadow_decision(ItemIndex::new(index), None, looked).unwrap().kind
        };
        assert_eq!((shadow(0), shadow(5)), (DecisionKind::Allow, DecisionKind::Hide));
    }
    // Once the file is gone, so is what it said.
    let (policies, _) = library.compile(vec![file("tools.yaml", TOOLS)]);
    assert!(sees(&policies.unwrap(), 1).is_empty());
    let (policies, _) = library.compile(files(shadow("wiki/*")));
    assert!(sees(&policies.unwrap(), 1).is_empty());
}

#[test]
fn what_another_library_enforced_decides_a_file_in_shadow() {
    let shadow = |tool: &str| {
        let text = tenant_file(1, tool).source.text.replace("rules:", "mode: shadow\nrules:");
        file("t1.yaml", &text)
    };
    let mut library = Library::default();
    library.remember(vec![tenant_file(1, "wiki/*"), file("t2.yaml", "no policy")]);
    let (policies, faults) =
        library.compile(vec![file("tools.yaml", TOOLS), shadow("crm/contacts.search")]);
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!(sees(&policies.unwrap(), 1), ["page.read"]);
    let kept: Vec<_> = library.enforced().files().map(|file| file.path.to_owned()).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    // What is in shadow was never enforced.
    let mut library = Library::default();
    library.remember(vec![shadow("wiki/*")]);
    let (policies, faults) = library.compile(vec![file("tools.yaml", TOOLS), shadow("wiki/*")]);
    let told: Vec<_> = faults.iter().map(|fault| (fault.code, fault.at.line)).collect();
    assert_eq!(told, [(FaultCode::ShadowOfNothing, 5)]);
    assert!(sees(&policies.unwrap(), 1).is_empty());
}

#[test]
fn what_was_compiled_and_not_put_in_force_was_not_enforced() {
    let mut library = Library::default();
    let files = |tenant: PolicyFile| vec![file("tools.yaml", TOOLS), tenant];
    library.compile(files(tenant_file(1, "wiki/*")));
    let before = library.enforced();
    library.compile(files(tenant_file(1, "crm/contacts.search")));
    library.back_to(before);
    let shadow = tenant_file(1, "crm/*").source.text.replace("rules:", "mode: shadow\nrules:");
    let (policies, _) = library.compile(files(file("t1.yaml", &shadow)));
    assert_eq!(sees(&policies.unwrap(), 1), ["page.read"]);
}

#[test]
fn a_glance_sees_changes_of_files_and_of_folders_apart() {
    let folder = tempfile::tempdir().unwrap();
    let within = folder.path().join("tenants");
    std::fs::create_dir(&within).unwrap();
    std::fs::write(within.join("t.yaml"), TOOLS).unwrap();
    let first = Glance::at(folder.path());
    assert_eq!(Glance::at(folder.path()), first);
    std::fs::write(within.join("t.yaml"), format!("{TOOLS}# longer\n")).unwrap();
    let second = Glance::at(folder.path());
    assert!(second.files != first.files && second.folders == first.folders);
    let aside = folder.path().join(".aside");
    std::fs::rename(&within, &aside).unwrap();
    std::fs::create_dir(&within).unwrap();
    std::fs::write(within.join("t.yaml"), TOOLS).unwrap();
    assert_ne!(Glance::at(folder.path()).folders, second.folders);
}

#[test]
fn a_changed_file_of_a_folder_is_seen_however_soon_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tools.yaml"), TOOLS).unwrap();
    let mut library = Library::default();
    for round in 0..20 {
        // Two texts of one length, as fast as they can be written.
        let tool = ["wiki/page.read", "wiki/page.rea*"][round % 2];
        std::fs::write(folder.path().join("t.yaml"), &tenant_file(1, tool).source.text).unwrap();
        let policies = library.look(folder.path()).policies.unwrap();
        let text = &policies.rules().next().unwrap().globs.tools.as_ref().unwrap()[0];
        assert_eq!(text.as_str(), tool, "round {round}");
    }
    std::fs::remove_file(folder.path().join("t.yaml")).unwrap();
    assert_eq!(library.look(folder.path()).policies.unwrap().rules().count(), 0);
}

//! Which limits a call meets.

use std::{sync::atomic::AtomicBool, thread};

use super::*;

/// The rates that are about a call.
fn met(limiter: &Limiter, subject: &Subject<'_>) -> Vec<String> {
    let mut ids = Vec::new();
    limiter.scopes.rates(subject, |limit, _| ids.push(limit.policy.id.to_string()));
    ids.sort();
    ids
}

fn filtered(id: &str, upstreams: &[&str], tools: &[&str], risks: &[Risk]) -> LimitSpec {
    LimitSpec {
        upstreams: upstreams.iter().map(|name| upstream(name)).collect(),
        tools: tools.iter().map(|glob| (*glob).into()).collect(),
        risks: risks.to_vec(),
        ..rate(id, &[Dimension::Tenant], 1, HOUR)
    }
}

fn specs() -> Vec<LimitSpec> {
    vec![
        rate("all", &[Dimension::Tenant], 1, HOUR),
        rate("tools", &[Dimension::Tool], 1, HOUR),
        filtered("crm", &["crm"], &[], &[]),
        filtered("writes", &[], &[], &[Risk::WriteLow, Risk::WriteHigh]),
        filtered("purge", &[], &["crm/contacts.purge"], &[]),
        filtered("contacts", &[], &["*/contacts.*"], &[]),
        filtered("two", &["crm", "erp"], &["*.purge", "erp/a/*"], &[Risk::WriteHigh]),
        of("acme", rate("acme", &[Dimension::Principal], 1, HOUR)),
        of("globex", rate("globex", &[Dimension::Principal], 1, HOUR)),
        of("globex", filtered("globex-crm", &["crm"], &[], &[])),
    ]
}

const TOOLS: [Tool<'static>; 5] = [
    Tool { name: "crm/contacts.purge", upstream: "crm", risk: Risk::WriteHigh },
    Tool { name: "crm/contacts.find", upstream: "crm", risk: Risk::ReadLow },
    Tool { name: "erp/a/b/c", upstream: "erp", risk: Risk::WriteHigh },
    Tool { name: "erp/a", upstream: "erp", risk: Risk::WriteLow },
    Tool { name: "crm2/find", upstream: "crm2", risk: Risk::ReadHigh },
];

#[test]
fn a_call_meets_the_limits_that_are_about_it() {
    let limiter = limiter(specs());
    let [purge, find, deep, shallow, other] = TOOLS.map(Some);
    for bound in [false, true] {
        if bound {
            limiter.bind(TOOLS);
        }
        let check = |tenant, tool, ids: &[&str]| {
            let subject = Subject { tenant, tool, ..employee("E1") };
            assert_eq!(met(&limiter, &subject), ids, "{tool:?} {bound}");
        };
        check("acme", None, &["acme", "all"]);
        check("nobody", None, &["all"]);
        let ids = ["acme", "all", "contacts", "crm", "purge", "tools", "two", "writes"];
        check("acme", purge, &ids);
        check("acme", find, &["acme", "all", "contacts", "crm", "tools"]);
        check("globex", find, &["all", "contacts", "crm", "globex", "globex-crm", "tools"]);
        check("nobody", deep, &["all", "tools", "two", "writes"]);
        check("nobody", shallow, &["all", "tools", "writes"]);
        check("nobody", other, &["all", "tools"]);
    }
}

#[test]
fn a_prompt_or_a_resource_meets_limits_that_name_no_tools() {
    let limiter = limiter(specs());
    let check = |upstream, risk, ids: &[&str]| {
        let subject = Subject { tool: None, ..employee("E1") };
        let subject = subject.about(Some(Other { upstream, risk }));
        assert_eq!(met(&limiter, &subject), ids, "{upstream} {risk:?}");
    };
    check("crm", Risk::ReadLow, &["acme", "all", "crm"]);
    check("crm", Risk::WriteHigh, &["acme", "all", "crm", "writes"]);
    check("hr", Risk::ReadLow, &["acme", "all"]);
}

#[test]
fn globs_mean_what_they_mean_in_rules() {
    for (glob, hits, misses) in [
        ("crm/contacts.get", &["crm/contacts.get"][..], &["crm/contacts.gets"][..]),
        ("crm/*", &["crm/a", "crm/a/b"], &["crm2/a"]),
        ("*/exec*", &["a/exec", "b/execute", "a/b/exec"], &["a/xexec"]),
        ("crm/**/run", &["crm/a/run"], &["crm/run", "crm/a"]),
        ("crm/**b", &["crm/b", "crm/ab"], &["crm/a"]),
        ("crm/a?c", &["crm/abc"], &["crm/ac"]),
        ("{crm,hr}/[ab]", &["crm/a", "hr/b"], &["ops/a", "crm/c"]),
        ("crm/\\*", &["crm/*"], &["crm/a"]),
        ("crm/A", &["crm/A"], &["crm/a"]),
    ] {
        let limiter = limiter([filtered("r", &[], &[glob], &[])]);
        for (name, hit) in
            hits.iter().map(|hit| (hit, 1)).chain(misses.iter().map(|miss| (miss, 0)))
        {
            let subject = Subject { tool: Some(tool(name, "u", Risk::ReadLow)), ..employee("E1") };
            assert_eq!(met(&limiter, &subject).len(), hit, "{glob} {name}");
        }
    }
}

#[test]
fn what_changed_since_the_last_bind_counts_as_it_is_now() {
    let limiter = limiter(specs());
    limiter.bind([Tool { risk: Risk::ReadLow, ..TOOLS[0] }]);
    let subject = Subject { tool: Some(TOOLS[0]), ..employee("E1") };
    assert!(met(&limiter, &subject).contains(&"writes".to_owned()));
    let subject = Subject { tool: Some(TOOLS[2]), ..employee("E1") };
    assert!(met(&limiter, &subject).contains(&"two".to_owned()));
}

#[test]
fn more_filters_than_a_word_has_bits_are_told_apart() {
    let names: Vec<String> = (0..200).map(|n| format!("crm/tool{n}")).collect();
    let specs: Vec<LimitSpec> = names
        .iter()
        .enumerate()
        .map(|(n, name)| filtered(&format!("limit{n}"), &[], &[name], &[]))
        .collect();
    let limiter = limiter(specs);
    limiter.bind(names.iter().map(|name| tool(name, "crm", Risk::ReadLow)));
    for (n, name) in names.iter().enumerate() {
        let subject = Subject { tool: Some(tool(name, "crm", Risk::ReadLow)), ..employee("E1") };
        assert_eq!(met(&limiter, &subject), [format!("limit{n}")]);
    }
}

#[test]
fn limits_that_cannot_be_told_apart_are_refused() {
    let tenant = |id| rate(id, &[Dimension::Tenant], 1, HOUR);
    let fault = |specs: Vec<LimitSpec>| Limiter::new(specs).err();
    let repeated = Some(LimitFault::RepeatedId("r".into()));
    assert_eq!(fault(vec![tenant("r"), tenant("r")]), repeated);
    assert_eq!(fault(vec![tenant("r"), of("acme", tenant("r"))]), repeated);
    assert_eq!(fault(vec![of("acme", tenant("r")), of("acme", tenant("r"))]), repeated);
    assert_eq!(fault(vec![of("acme", tenant("r")), of("globex", tenant("r"))]), None);
}

#[test]
fn faults_name_the_limit() {
    let fault = |spec| Limiter::new(vec![spec]).unwrap_err().to_string();
    assert!(fault(rate("r", &[], 1, HOUR)).contains("`r`"));
    for id in ["", "a b", "é", "a\n", &"x".repeat(65)] {
        let spec = rate(id, &[Dimension::Tenant], 1, HOUR);
        assert_eq!(Limiter::new(vec![spec]).err(), Some(LimitFault::Id(id.into())));
    }
    let bad = fault(filtered("r", &[], &["crm/ok", "crm/[a"], &[]));
    assert!(bad.contains("`r`") && bad.contains("`crm/[a`"), "{bad}");
}

#[test]
fn a_reload_is_no_way_to_a_fresh_burst() {
    let kept = rate("kept", &[Dimension::Principal], 2, HOUR);
    let changed = rate("changed", &[Dimension::Caller], 2, HOUR);
    let before = limiter([kept.clone(), of("acme", changed.clone())]);
    assert_eq!(admitted(&before, &employee("E1"), 9), 2);
    let after = before.replaced_by(vec![rate("new", &[Dimension::Tool], 9, HOUR), kept]).unwrap();
    assert_eq!(admitted(&after, &employee("E1"), 9), 0);
    assert_eq!(admitted(&after, &employee("E2"), 9), 2);
    // One that is no longer the same is another limit.
    let wider = rate("kept", &[Dimension::Principal], 3, HOUR);
    let after = after.replaced_by(vec![wider]).unwrap();
    assert_eq!(admitted(&after, &employee("E1"), 9), 3);
}

#[test]
fn calls_of_before_and_after_a_reload_do_not_wait_for_each_other() {
    let names = ["a", "b", "c", "d"];
    let spec = |id: &&str| rate(id, &[Dimension::Tenant], 1_000_000, HOUR / 60);
    let before = limiter(names.iter().map(spec));
    let after = before.replaced_by(names.iter().rev().map(spec).collect()).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let callers = [&before, &after, &before, &after]
            .map(|limiter| scope.spawn(|| admitted(limiter, &employee("E1"), 20_000)));
        let let_in: u32 = callers.map(|caller| caller.join().unwrap()).into_iter().sum();
        assert_eq!(let_in, 80_000);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(done.into_inner());
}

//! What is refused in a policy file, where, and with which advice. One case a row.

use super::*;

/// The faults of one file, each with its suggestion.
pub(super) fn faults(text: &str) -> Vec<String> {
    let (_, faults) = Policies::compile(vec![file("a.yaml", text)]);
    faults
        .iter()
        .zip(told(&faults))
        .map(|(fault, told)| match &fault.suggestion {
            Some(suggestion) => format!("{told}: {suggestion}"),
            None => told,
        })
        .collect()
}

/// Each text has exactly this one fault.
fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(faults(text), [*expected], "{text}");
    }
}

pub(super) fn in_rules(rule: &str) -> String {
    format!("version: hangu/v1\nkind: Policy\nscope: platform\nrules:\n  - {rule}\n")
}

fn in_limits(limit: &str) -> String {
    format!("version: hangu/v1\nkind: Policy\nscope: platform\nlimits:\n  - {limit}\n")
}

fn in_tools(tool: &str) -> String {
    format!("version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    tools:\n      x: {tool}\n")
}

#[test]
fn a_document_says_what_it_is() {
    check(&[
        ("kind: Tools\nupstreams: {}\n", "Y005 1:1 `version` is missing"),
        (
            "version: hangu/v2\nkind: Tools\nupstreams: {}\n",
            "Y007 1:10 unknown version `hangu/v2`: did you mean `hangu/v1`?",
        ),
        ("version: hangu/v1\n", "Y005 1:1 `kind` is missing"),
        (
            "version: hangu/v1\nkind: Polcy\n",
            "P001 2:7 unknown kind `Polcy`: did you mean `Policy`?",
        ),
        ("version: hangu/v1\nkind: PolicyTest\n", "Y005 1:1 `cases` is missing"),
        ("version: hangu/v1\nkind: Policy\n", "Y005 1:1 `scope` is missing"),
        (
            "version: hangu/v1\nkind: Policy\nscope: platfrom\n",
            "Y007 3:8 unknown scope `platfrom`: did you mean `platform`?",
        ),
        (
            "version: hangu/v1\nkind: Policy\nscope: acme\n",
            "Y007 3:8 unknown scope `acme`: `platform`, or `{ tenant: NAME }`",
        ),
        ("version: hangu/v1\nkind: Policy\nscope: {}\n", "Y005 3:8 `tenant` is missing"),
        (
            "version: hangu/v1\nkind: Policy\nscope: { tenant: a b }\n",
            "Y010 3:18 `a b` is not a name: 1 to 64 of `A-Z a-z 0-9 . _ -`",
        ),
        (
            "version: hangu/v1\nkind: Policy\nscope: platform\nmode: shadwo\n",
            "Y007 4:7 unknown mode `shadwo`: did you mean `shadow`?",
        ),
        (
            "version: hangu/v1\nkind: Policy\nscope: platform\nrule: []\n",
            "Y004 4:1 unknown key `rule`: did you mean `rules`?",
        ),
        ("- a\n", "Y006 1:1 expected a mapping, found a list"),
    ]);
}

#[test]
fn a_rule_says_who_what_and_whether() {
    for (rule, expected) in [
        ("{ effect: allow }", "Y005 5:5 `id` is missing"),
        ("{ id: a }", "Y005 5:5 `effect` is missing"),
        (
            "{ id: \"a b\", effect: allow }",
            "Y010 5:11 `a b` is not a name: 1 to 64 of `A-Z a-z 0-9 . _ -`",
        ),
        ("{ id: a, effect: alow }", "Y007 5:22 unknown effect `alow`: did you mean `allow`?"),
        (
            "{ id: a, effect: require_approval }",
            "Y005 5:5 `approval` is missing: such as `approval: { roles: [owner] }`, or `{ confirm: requester }`",
        ),
        (
            "{ id: a, effect: allow, risk: [read_lo] }",
            "P014 5:36 unknown risk level `read_lo`: did you mean `read_low`?",
        ),
        (
            "{ id: a, effect: allow, risk: read_low }",
            "Y006 5:35 expected a list, found a text: put it in [ ]",
        ),
        (
            "{ id: a, effect: allow, risk: [] }",
            "Y007 5:35 `risk` is empty: nothing matches: leave the key out to match everything",
        ),
        (
            "{ id: a, effect: allow, tools: [crm] }",
            "P002 5:37 `crm` names no upstream: a glob is `upstream/name`",
        ),
        (
            "{ id: a, effect: allow, roles: [1] }",
            "Y006 5:37 expected a text, found a number: write \"1\"",
        ),
        (
            "{ id: a, effect: allow, prompts: [] }",
            "Y007 5:38 `prompts` is empty: nothing matches: leave the key out to match everything",
        ),
        (
            "{ id: a, effect: allow, resources: [\"file:\"] }",
            "P002 5:41 `file:` names no upstream: a glob is `upstream/name`",
        ),
        (
            "{ id: a, effect: allow, tool: [] }",
            "Y004 5:29 unknown key `tool`: did you mean `tools`?",
        ),
        ("{ id: a, effect: allow, id: b }", "Y003 5:29 `id` stands here twice"),
    ] {
        assert_eq!(faults(&in_rules(rule)), [expected], "{rule}");
    }
    let long = format!("{{ id: a, effect: deny, say: {} }}", "x".repeat(501));
    assert_eq!(faults(&in_rules(&long)), ["Y007 5:33 longer than 500 bytes"]);
}

#[test]
fn a_limit_counts_something_by_something() {
    for (limit, expected) in [
        ("{ id: a, rate: 1/1s }", "Y005 5:5 `per` is missing"),
        (
            "{ id: a, per: [], rate: 1/1s }",
            "Y007 5:19 `per` is empty: there is nothing to count by",
        ),
        (
            "{ id: a, per: [user], rate: 1/1s }",
            "Y007 5:20 unknown thing to count by `user`: known are `tenant`, `caller`, `principal`, `tool`, `upstream`, `risk` and `address`",
        ),
        ("{ id: a, per: [tool, tool], rate: 1/1s }", "C008 5:26 `tool` is here twice"),
        ("{ id: a, per: [tool] }", "Y005 5:5 `rate` or `concurrency` is missing"),
        (
            "{ id: a, per: [tool], rate: 1/1s, concurrency: 1 }",
            "C009 5:39 `rate` and `concurrency` are two limits: write two",
        ),
        (
            "{ id: a, per: [tool], rate: 60 }",
            "Y006 5:33 expected a text, found a number: write \"60\"",
        ),
        ("{ id: a, per: [tool], rate: 60/m }", "Y007 5:33 `60/m` is not a rate such as `60/1m`"),
        ("{ id: a, per: [tool], rate: 1/400d }", "Y007 5:33 takes more than a year to come back"),
        (
            "{ id: a, per: [tool], rate: 1/300d, burst: 2 }",
            "Y007 5:33 takes more than a year to come back",
        ),
        (
            "{ id: a, per: [tool], rate: 1/1s, burst: 0 }",
            "Y007 5:46 `burst: 0` lets nothing through",
        ),
        (
            "{ id: a, per: [tool], rate: 1/1s, queue: 1 }",
            "C009 5:39 `queue` says nothing about a `rate`",
        ),
        (
            "{ id: a, per: [tool], concurrency: 0 }",
            "Y007 5:40 `concurrency: 0` lets nothing through",
        ),
        (
            "{ id: a, per: [tool], concurrency: 1, burst: 1 }",
            "C009 5:43 `burst` says nothing about a `concurrency`",
        ),
        (
            "{ id: a, per: [tool], concurrency: 1, wait: 1s }",
            "C009 5:49 `wait` without a `queue`: nobody waits",
        ),
        (
            "{ id: a, per: [tool], concurrency: 1, queue: 1 }",
            "Y005 5:43 `queue` without a `wait`: say how long a call may wait, such as `wait: 2s`",
        ),
        (
            "{ id: a, per: [tool], concurrency: 1, queue: 1, wait: 5m }",
            "Y007 5:59 a call waits for a minute at most",
        ),
        ("{ id: a, per: [tool], rate: 1/1s, cost: 1 }", "Y004 5:39 unknown key `cost`"),
    ] {
        assert_eq!(faults(&in_limits(limit)), [expected], "{limit}");
    }
    let own = in_limits("{ id: a, per: [tool], rate: 1/1s, tenants: [a] }")
        .replace("scope: platform", "scope: { tenant: b }");
    assert_eq!(
        faults(&own),
        ["C009 5:39 `tenants` in a tenant's own file: its limits are about that tenant alone"]
    );
}

#[test]
fn a_tool_says_what_it_may_do() {
    for (tool, expected) in [
        (
            "{ risk: high }",
            "P014 6:18 unknown risk level `high`: known are `read_low`, `read_high`, `write_low` and `write_high`",
        ),
        (
            "{ risk: read_low, pin: \"sha256:00\" }",
            "Y007 6:33 not a digest: `sha256:` is followed by 64 digits of 0-9 and a-f",
        ),
        (
            "{ risk: read_low, pin: frist_use }",
            "Y007 6:33 unknown pin `frist_use`: did you mean `first_use`?",
        ),
        (
            "{ risk: read_low, on_change: keeep }",
            "Y007 6:39 unknown answer to a change `keeep`: did you mean `keep`?",
        ),
        (
            "{ risk: read_low, on_change: { type_change: keep } }",
            "Y004 6:41 unknown key `type_change`: did you mean `type_changed`?",
        ),
        (
            "{ risk: read_low, on_change: { dangerous: keep } }",
            "C009 6:41 a tool that only looked and may now write is always held",
        ),
        (
            "{ risk: write_low, on_change: { enum_narrowed: keep } }",
            "C009 6:40 `on_change` lets a `write_low` tool go on after a change: only a `read_low` \
             one may, any other is held until somebody approves",
        ),
        (
            "{ risk: read_low, timeout: 15 }",
            "Y006 6:37 expected a duration, found a number: write `15s` or `15ms`",
        ),
        ("{ risk: read_low, timeout: 0s }", "Y007 6:37 `timeout` is no time at all"),
        (
            "{ risk: read_low, timeout: 2m, max_time: 1m }",
            "C009 6:37 `timeout` is longer than `max_time`, which ends every call",
        ),
        (
            "{ risk: read_low, idempotency: maybe }",
            "Y007 6:41 unknown idempotency `maybe`: known are `none`, `optional` and `required`",
        ),
        (
            "{ risk: read_low, idempotency: none, idempotency_argument: k }",
            "C009 6:41 `idempotency: none` with an `idempotency_argument`",
        ),
        ("{ risk: read_low, screen: mark }", "Y008 6:28 `screen` is not part of this version"),
        (
            "{ risk: read_low, quality: { min: 101 } }",
            "Y007 6:44 no definition scores more than 100",
        ),
        (
            "{ risk: read_low, quality: {} }",
            "Y007 6:28 `quality` asks for nothing: `min`, `block`, or both",
        ),
        (
            "{ risk: read_low, quality: { block: [poisned] } }",
            "Y007 6:47 unknown finding `poisned`: did you mean `poisoned`?",
        ),
        (
            "{ risk: read_low, quality: { block: poisoned } }",
            "Y006 6:46 expected a list, found a text: put it in [ ]",
        ),
        ("{ risk: read_low, quality: { most: 7, min: 6 } }", "Y004 6:39 unknown key `most`"),
        (
            "{ risk: write_low, retry_safe: true }",
            "C009 6:41 `retry_safe` is about reads, and this is a write: `upstream_idempotent: true`, if the server carries out one key once",
        ),
        (
            "{ risk: read_low, idempotency: none, upstream_idempotent: true }",
            "C009 6:68 `upstream_idempotent` with `idempotency: none`: there is no key to honour",
        ),
    ] {
        assert_eq!(faults(&in_tools(tool)), [expected], "{tool}");
    }
    check(&[
        (
            "version: hangu/v1\nkind: Tools\nupstreams:\n  CRM: { default: { risk: read_low } }\n",
            "Y010 4:3 `CRM` is no name here: an upstream's name is 1 to 31 of `a-z`, `0-9` and `-`, beginning with a letter",
        ),
        (
            "version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    default: { risk: read_low, max_time: 10s }\n    tools: { a: { timeout: 20s } }\n",
            "C009 6:28 `timeout` is longer than `max_time`, which ends every call",
        ),
        (
            "version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    default: { risk: write_low }\n    tools: { a: { retry_safe: true } }\n",
            "C009 6:31 `retry_safe` is about reads, and this is a write: `upstream_idempotent: true`, if the server carries out one key once",
        ),
    ]);
}

#[test]
fn what_the_default_says_of_reads_is_not_said_of_writes() {
    let text = "version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    default: { risk: read_low, retry_safe: true, upstream_idempotent: true }\n    tools: { pay: { risk: write_low }, x: { retry_safe: false } }\n";
    let (policies, faults) = Policies::compile(vec![file("a.yaml", text)]);
    assert_eq!(told(&faults), [""; 0]);
    let policies = policies.unwrap();
    for (name, safe) in [("other", true), ("pay", false), ("x", false)] {
        let item = policies.item(Subject::tool("crm", name));
        assert_eq!((item.retry_safe, item.upstream_idempotent), (safe, true), "{name}");
    }
}

#[test]
fn an_employee_belongs_somewhere() {
    let with = |entry: &str| format!("version: hangu/v1\nkind: Directory\nemployees:\n  {entry}\n");
    for (entry, expected) in [
        ("E1: { roles: [a] }", "Y005 4:7 `tenant` is missing"),
        (
            "\"a b\": { tenant: acme }",
            "Y010 4:3 `a b` is not an employee's id: 1 to 64 of `A-Z a-z 0-9 . _ @ -`",
        ),
        ("E1: { tenant: acme, role: [a] }", "Y004 4:23 unknown key `role`: did you mean `roles`?"),
        (
            "E1: { tenant: acme, teams: [\"x y\"] }",
            "Y010 4:31 `x y` is not a name: 1 to 64 of `A-Z a-z 0-9 . _ -`",
        ),
    ] {
        assert_eq!(faults(&with(entry)), [expected], "{entry}");
    }
}

#[test]
fn nothing_is_said_twice_in_any_files() {
    let both = |a: &str, b: &str| {
        let (_, faults) = Policies::compile(vec![file("a.yaml", a), file("b.yaml", b)]);
        let related = faults.iter().map(|fault| fault.related.len()).collect::<Vec<_>>();
        (told(&faults), related)
    };
    let rule = |scope: &str| policy(scope, &["{ id: same, effect: allow }"]);
    let limit = in_limits("{ id: same, per: [tool], rate: 1/1s }");
    let tool = in_tools("{ risk: read_low }");
    let again = tool.clone();
    let default =
        "version: hangu/v1\nkind: Tools\nupstreams: { crm: { default: { risk: read_low } } }";
    let employee = "version: hangu/v1\nkind: Directory\nemployees: { E1: { tenant: acme } }";
    for (a, b, expected) in [
        (rule("platform"), rule("platform"), "P003 6:11 rule `same` is here twice"),
        (rule("platform"), rule("{ tenant: a }"), "P003 6:11 rule `same` is here twice"),
        (rule("{ tenant: a }"), rule("{ tenant: a }"), "P003 6:11 rule `same` is here twice"),
        (limit.clone(), limit, "P003 5:11 limit `same` is here twice"),
        (tool.clone(), tool, "P004 6:7 `crm/x` is classified twice"),
        (default.into(), default.into(), "P004 3:21 the `default` of `crm` is given twice"),
        (employee.into(), employee.into(), "P005 3:14 employee `E1` is here twice"),
    ] {
        assert_eq!(both(&a, &b), (vec![expected.to_owned()], vec![1]), "{a}");
    }
    // Also within one file, and where the second says the same.
    let (_, faults) = Policies::compile(vec![file("a.yaml", &format!("{again}---\n{again}"))]);
    assert_eq!(told(&faults), ["P004 13:7 `crm/x` is classified twice"]);
    // Two tenants know nothing of each other.
    assert!(both(&rule("{ tenant: a }"), &rule("{ tenant: b }")).0.is_empty());
}

#[test]
fn what_is_commented_out_leaves_nothing_behind() {
    for text in [
        "version: hangu/v1\nkind: Policy\nscope: platform\nrules:\nlimits:\n",
        "version: hangu/v1\nkind: Tools\nupstreams:\n  crm:\n    tools:\n",
        "version: hangu/v1\nkind: Directory\nemployees:\n",
    ] {
        assert_eq!(faults(text), Vec::<String>::new(), "{text}");
    }
    // Where nothing would mean everything, it is refused.
    let told = faults(&in_rules("{ id: a, effect: allow, roles: }"));
    assert_eq!(told, ["Y006 5:34 expected a list, found nothing"]);
}

#[test]
fn every_fault_of_every_file_is_told_at_once() {
    let files = vec![
        file("a.yaml", &in_rules("{ id: a, effect: alow, risk: [low], tools: [x] }")),
        file("b.yaml", "a: {"),
        file("c.yaml", "version: hangu/v1\nkind: Policy\nscope: {}\nrules:\n  - { id: b }\n"),
    ];
    let (_, faults) = Policies::compile(files);
    let told: Vec<_> =
        faults.iter().map(|f| (f.at.source.name.as_str(), f.code.as_str())).collect();
    assert_eq!(
        told,
        [
            ("a.yaml", "Y007"),
            ("a.yaml", "P014"),
            ("a.yaml", "P002"),
            ("b.yaml", "Y002"),
            ("c.yaml", "Y005"),
            ("c.yaml", "Y005"),
        ]
    );
}

#[test]
fn a_folder_is_read_whatever_its_files_are_called() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("a/b/what-is-it.yaml", TOOLS);
    write("rules.yaml", &policy("platform", &["{ id: r, effect: allow }"]));
    write(".git/broken.yaml", "a: {");
    write("notes.txt", "a: {");
    write("old.yml", "a: {");
    let loaded = Policies::look(folder.path());
    assert_eq!((loaded.files, loaded.faults.len()), (2, 1), "{:?}", told(&loaded.faults));
    assert_eq!(loaded.faults[0].code.as_str(), "P111");
    let policies = Policies::load(folder.path()).unwrap();
    assert_eq!(shown(&bind(&policies).view(&tenant("a"), &caller("g"), &roles(&[]))).len(), 5);

    write("bad.yaml", "a: {");
    let faults = Policies::load(folder.path()).unwrap_err();
    assert_eq!(faults.len(), 1, "warnings stop nothing and are not told: {:?}", told(&faults));
    let missing = Policies::load(&folder.path().join("nowhere")).unwrap_err();
    assert_eq!(missing[0].code.as_str(), "Y001");
}

#[cfg(unix)]
#[test]
fn links_are_followed_as_kubernetes_sets_them_and_a_circle_ends() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("..2026");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("tools.yaml"), TOOLS).unwrap();
    std::os::unix::fs::symlink(data.join("tools.yaml"), folder.path().join("tools.yaml")).unwrap();
    assert_eq!(Policies::look(folder.path()).files, 1);
    std::os::unix::fs::symlink(folder.path(), folder.path().join("again")).unwrap();
    let loaded = Policies::look(folder.path());
    assert!(loaded.policies.is_none() && !loaded.faults.is_empty());
}

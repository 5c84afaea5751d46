//! What is refused of conditions, approvals, rollouts and roles. One case a row.

use super::{
    faults::{faults, in_rules},
    *,
};

#[test]
fn a_condition_is_one_test_of_one_argument() {
    let rule = |when: &str| in_rules(&format!("{{ id: a, effect: deny, when: {when} }}"));
    for (when, expected) in [
        ("{ eq: x }", "Y005 5:34 `arg` is missing"),
        (
            "{ arg: region, eq: x }",
            "P007 5:41 `region` is no JSON pointer: it begins with `/`, as in `/region`: write `/region`",
        ),
        ("{ arg: /a~2, eq: x }", "P007 5:41 `/a~2` is no JSON pointer: `~` is `~0`, `/` `~1`"),
        (
            "{ arg: /a }",
            "Y005 5:34 no test: one of `eq`, `in`, `not_in`, `prefix`, `glob`, `range`, `max_len`, `regex` is missing",
        ),
        (
            "{ arg: /a, eq: x, prefix: x }",
            "C009 5:34 `eq` and `prefix` are two conditions: write a list of two",
        ),
        ("{ arg: /a, equals: x }", "Y004 5:45 unknown key `equals`"),
        (
            "{ arg: /a, eq: [x] }",
            "Y006 5:49 expected a text, a number, `true`, `false` or `null`, found a list",
        ),
        ("{ arg: /a, eq: 0x10 }", "Y007 5:49 0x10 is not a decimal number"),
        ("{ arg: /a, in: x }", "Y006 5:49 expected a list, found a text: put it in [ ]"),
        ("{ arg: /a, in: [] }", "Y007 5:49 a list of 1 to 1000 values is expected"),
        ("{ arg: /a, prefix: \"\" }", "Y007 5:53 every text begins with nothing"),
        ("{ arg: /a, range: [5, 1] }", "Y007 5:52 no number is in this range"),
        ("{ arg: /a, range: [null, null] }", "Y007 5:52 every number is in this range"),
        (
            "{ arg: /a, range: [1] }",
            "Y007 5:52 a range has two ends: such as `[1, 100]`, or `[1, null]` without an upper one",
        ),
        ("{ arg: /a, regex: \"(a\" }", "P008 5:52 `(a` is no expression: unclosed group"),
        (
            "{ arg: /a, regex: \"\\\\w{999}{999}\" }",
            "P008 5:52 `\\w{999}{999}` needs too much memory",
        ),
        (
            "{ arg: /a, glob: \"[a\" }",
            "P002 5:51 `[a` is no glob: unclosed character class; missing ']'",
        ),
        ("[]", "Y007 5:34 `when` is empty: leave the key out where there is no condition"),
    ] {
        let told = faults(&rule(when));
        // An unknown key leaves the predicate without a test as well.
        assert!(told.contains(&expected.to_owned()), "{when}: {told:#?}");
    }
    let resources =
        in_rules("{ id: a, effect: deny, resources: [\"*/*\"], when: { arg: /a, eq: 1 } }");
    assert_eq!(
        faults(&resources),
        ["C009 5:48 `when` in a rule about `resources`: they are read without arguments"]
    );
}

#[test]
fn an_approval_says_who_is_asked() {
    let rule = |approval: &str| {
        in_rules(&format!("{{ id: a, effect: require_approval, approval: {approval} }}"))
    };
    for (approval, expected) in [
        ("{}", "Y005 5:50 neither `roles` nor `confirm`: nobody could approve"),
        (
            "{ roles: [] }",
            "Y007 5:59 `roles` is empty: nothing matches: leave the key out to match everything",
        ),
        ("{ roles: [a], count: 0 }", "Y007 5:71 a call is approved by 1 to 10 people"),
        (
            "{ roles: [a], not_requester: false }",
            "C009 5:79 `not_requester: false`: nobody approves his own call: `confirm: requester` asks him whether he means it",
        ),
        ("{ roles: [a], expires: 8d }", "Y007 5:73 a request waits for 7 days at most"),
        (
            "{ confirm: requester, roles: [a] }",
            "C009 5:61 `confirm` beside `roles` or `count`: either he is asked or others: write two rules where both are wanted",
        ),
        (
            "{ confirm: anybody }",
            "Y007 5:61 unknown one to confirm `anybody`: only `requester` is known",
        ),
    ] {
        assert_eq!(faults(&rule(approval)), [expected], "{approval}");
    }
    for (rule, expected) in [
        (
            "{ id: a, effect: deny, approval: { roles: [a] } }",
            "C009 5:28 `approval` in a rule that does not `require_approval`",
        ),
        (
            "{ id: a, effect: deny, rollout: { percent: 5 } }",
            "C009 5:28 `rollout` in a rule that does not `allow`",
        ),
        (
            "{ id: a, effect: allow, rollout: { percent: 101 } }",
            "Y007 5:49 a hundred percent are everybody",
        ),
        (
            "{ id: a, effect: allow, rollout: {} }",
            "Y005 5:38 neither `percent`, `employees` nor `teams`: it is open to nobody",
        ),
    ] {
        assert_eq!(faults(&in_rules(rule)), [expected], "{rule}");
    }
}

#[test]
fn a_role_is_given_by_a_claim_or_comes_with_another() {
    let with = |roles: &str| {
        format!("version: hangu/v1\nkind: Policy\nscope: platform\nroles:\n  {roles}\n")
    };
    for (roles, expected) in [
        (
            "a: {}",
            "Y005 5:6 nothing is said of `a`: such as `{ claim: groups, any: [acme-admins] }`",
        ),
        (
            "a: { claim: groups }",
            "Y005 5:8 `claim` without `any`: say which values give the role: `any: [VALUE, …]`",
        ),
        (
            "a: { any: [x] }",
            "Y005 5:8 `any` without a `claim`: say which claim has the values: `claim: groups`",
        ),
        ("a: { claim: \"\", any: [x] }", "Y007 5:15 a claim has a name"),
        (
            "a: { claim: groups, any: [] }",
            "Y007 5:28 `any` is empty: nothing matches: leave the key out to match everything",
        ),
        (
            "\"a b\": { includes: [x] }",
            "Y010 5:3 `a b` is not a name: 1 to 64 of `A-Z a-z 0-9 . _ -`",
        ),
        ("a: { includes: [a] }", "P006 5:19 roles include themselves: `a` includes `a`"),
        (
            "{ a: { includes: [b] }, b: { includes: [c] }, c: { includes: [a] } }",
            "P006 5:65 roles include themselves: `a` includes `b` includes `c` includes `a`",
        ),
    ] {
        assert_eq!(faults(&with(roles)), [expected], "{roles}");
    }
    // A circle may go through the platform's roles.
    let own =
        "version: hangu/v1\nkind: Policy\nscope: { tenant: t }\nroles: { b: { includes: [a] } }\n";
    let files = vec![file("a.yaml", &with("a: { includes: [b] }")), file("b.yaml", own)];
    let (_, found) = Policies::compile(files);
    assert_eq!(told(&found).len(), 1);
    assert_eq!(found[0].code, crate::fault::FaultCode::RoleCycle);
    let twice = format!("{}---\n{}", with("a: { includes: [b] }"), with("a: { includes: [c] }"));
    assert_eq!(faults(&twice), ["P003 11:3 role `a` is here twice"]);
}

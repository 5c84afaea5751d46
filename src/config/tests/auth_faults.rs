//! What is refused of `auth:`, kind by kind. One case a row.

use super::{
    auth::{keyring, whole, with},
    faults::{check_upstream, faults},
};

/// Each of these has exactly this one fault, at a column of the upstream's line.
fn check_whole(cases: &[(&str, &str)]) {
    let (_folder, keyring) = keyring();
    for (auth, expected) in cases {
        assert_eq!(but_unbound(faults(&whole(auth, &keyring))), [*expected], "{auth}");
    }
}

/// The same where there is neither a keyring nor a public name.
fn check_bare(cases: &[(&str, &[&str])]) {
    for (auth, expected) in cases {
        assert_eq!(but_unbound(faults(&with(auth))), *expected, "{auth}");
    }
}

/// Without the warning of a secret that is bound to no authorization server, which has a table of
/// its own.
fn but_unbound(mut faults: Vec<String>) -> Vec<String> {
    faults.retain(|fault| !fault.starts_with("C107 "));
    faults
}

#[test]
fn a_secret_that_is_bound_to_no_authorization_server_is_warned_of() {
    let (_folder, keyring) = keyring();
    let secret = "client_id: hangu, client_secret: { env: TOKEN }";
    for (auth, warned) in [
        (format!("type: client_credentials, {secret}"), true),
        (format!("type: token_exchange, {secret}"), true),
        (format!("type: oauth, {secret}"), true),
        (format!("type: client_credentials, {secret}, issuer: https://login.example"), false),
        (format!("type: token_exchange, {secret}, token_url: https://login.example/t"), false),
        (format!("type: oauth, {secret}, issuer: https://login.example"), false),
        // What is signed is signed for whoever is asked, and good with nobody else.
        ("type: client_credentials, client_id: hangu, key: gateway".to_owned(), false),
    ] {
        let faults = faults(&whole(&auth, &keyring));
        let found: Vec<_> = faults.iter().filter(|fault| fault.starts_with("C107 ")).collect();
        assert_eq!((found.len() == 1, faults.len()), (warned, found.len()), "{auth}: {faults:?}");
    }
}

#[test]
fn a_kind_is_a_known_word_with_keys_of_its_own() {
    check_whole(&[
        ("type: oath", "Y007 6:54 unknown way to authenticate `oath`: did you mean `oauth`?"),
        (
            "type: Signed_JWT",
            "Y007 6:54 unknown way to authenticate `Signed_JWT`: did you mean `signed_jwt`?",
        ),
        ("type: [none]", "Y006 6:54 expected a text, found a list"),
        ("scope: a", "Y005 6:46 `type` is missing"),
        ("type: none, scope: a", "Y004 6:60 unknown key `scope`"),
        ("type: employee, client_id: hangu", "Y004 6:64 unknown key `client_id`"),
    ]);
}

#[test]
fn client_credentials_have_a_client_that_proves_itself_at_one_place() {
    check_whole(&[
        (
            "type: client_credentials, client_id: hangu",
            "Y005 6:46 `client_credentials` needs a `client_secret` or a `key`",
        ),
        (
            "type: client_credentials, client_secret: { env: TOKEN }",
            "Y005 6:46 `client_id` is missing",
        ),
        (
            "type: client_credentials, client_id: \"\", client_secret: { env: TOKEN }",
            "Y007 6:85 a name is 1 to 512 visible ASCII characters without spaces",
        ),
        (
            "type: client_credentials, client_id: a b, client_secret: { env: TOKEN }",
            "Y007 6:85 a name is 1 to 512 visible ASCII characters without spaces",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: hunter2",
            "C003 6:107 a secret does not stand in the file: `{ env: NAME }` or `{ file: PATH }`",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: 7",
            "C003 6:107 a secret does not stand in the file: `{ env: NAME }` or `{ file: PATH }`",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: NOPE }",
            "C004 6:107 the variable `NOPE` is not set",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { secret: k }",
            "Y007 6:117 only a header of an upstream can have its value in the store: write `{ env: NAME }` or `{ file: PATH }`",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, key: gateway",
            "C008 6:128 either `client_secret` or `key`, not both",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, key: { env: TOKEN }",
            "C008 6:128 either `client_secret` or `key`, not both",
        ),
        (
            "type: client_credentials, client_id: hangu, key: { env: GATE_KEY }",
            "Y007 6:97 it is no private key in PEM: P-256, P-384, RSA or Ed25519",
        ),
        (
            "type: client_credentials, client_id: hangu, key: { file: none.pem }",
            "C004 6:97 the file `none.pem` cannot be read: No such file or directory (os error 2)",
        ),
        (
            "type: client_credentials, client_id: hangu, key: gatewya",
            "C003 6:97 a key does not stand in the file: `gateway`, `{ env: NAME }` or `{ file: PATH }`",
        ),
        (
            "type: client_credentials, client_id: hangu, key: gateway, secret_in: body",
            "C009 6:117 `secret_in` is about `client_secret`, which is not given",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, secret_in: boddy",
            "Y007 6:134 unknown place for a secret `boddy`: did you mean `body`?",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, issuer: \"https://as.example\", token_url: \"https://as.example/t\"",
            "C008 6:164 either `issuer` or `token_url`, not both",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, issuer: \"http://as.example\"",
            "C002 6:131 secrets are sent there: `https`, or `http` on this machine",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, issuer: as.example",
            "C002 6:131 secrets are sent there: `https`, or `http` on this machine",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, token_url: \"ftp://as.example\"",
            "C002 6:134 secrets are sent there: `https`, or `http` on this machine",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, token_url: \"https://as.example/#t\"",
            "C002 6:134 secrets are sent there: `https`, or `http` on this machine",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, resource: crm",
            "C002 6:133 a resource is named by its address",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, resource: \"https://b.example/#x\"",
            "C002 6:133 a resource is named by its address",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, scope: \"\"",
            "Y007 6:130 scopes are visible ASCII without quotes and backslashes, parted by spaces",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, scope: \"a\\\"b\"",
            "Y007 6:130 scopes are visible ASCII without quotes and backslashes, parted by spaces",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, scope: [a]",
            "Y006 6:130 expected a text, found a list",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, audience: crm",
            "Y004 6:123 unknown key `audience`",
        ),
        (
            "type: client_credentials, client_id: hangu, client_secret: { env: TOKEN }, scop: a",
            "Y004 6:123 unknown key `scop`: did you mean `scope`?",
        ),
    ]);
}

#[test]
fn what_employees_grant_is_asked_for_in_a_known_name() {
    check_whole(&[
        ("type: oauth, client_secret: { env: TOKEN }", "Y005 6:46 `client_id` is missing"),
        (
            "type: oauth, secret_in: body",
            "C009 6:72 `secret_in` is about `client_secret`, which is not given",
        ),
        (
            "type: oauth, client_id: hangu, issuer: \"http://as.example\"",
            "C002 6:87 secrets are sent there: `https`, or `http` on this machine",
        ),
        ("type: oauth, client_id: hangu, key: gateway", "Y004 6:79 unknown key `key`"),
        (
            "type: oauth, client_id: hangu, token_url: \"https://as.example/t\"",
            "Y004 6:79 unknown key `token_url`",
        ),
        ("type: oauth, listing: { tenant: acme }", "Y005 6:70 `empId` is missing"),
        ("type: oauth, listing: { empId: E1 }", "Y005 6:70 `tenant` is missing"),
        (
            "type: oauth, listing: { tenant: acme, empId: \"a b\" }",
            "Y010 6:93 `a b` is not an employee's id: 1 to 64 of `A-Z a-z 0-9 . _ @ -`",
        ),
        (
            "type: oauth, listing: { tenant: acme, empId: E1, team: x }",
            "Y004 6:97 unknown key `team`",
        ),
        ("type: oauth, listing: E1", "Y006 6:70 expected a mapping, found a text"),
        (
            "type: oauth, scope: \"\"",
            "Y007 6:68 scopes are visible ASCII without quotes and backslashes, parted by spaces",
        ),
        (
            "type: oauth, client_id: hangu, client_secret: hunter2, secret_in: body",
            "C003 6:94 a secret does not stand in the file: `{ env: NAME }` or `{ file: PATH }`",
        ),
    ]);
}

#[test]
fn what_is_signed_says_who_to_whom_and_for_how_long() {
    check_whole(&[
        (
            "type: signed_jwt, issuer: \"\"",
            "Y007 6:74 a name is 1 to 512 visible ASCII characters without spaces",
        ),
        (
            "type: signed_jwt, issuer: a b",
            "Y007 6:74 a name is 1 to 512 visible ASCII characters without spaces",
        ),
        (
            "type: signed_jwt, subject: \"\"",
            "Y007 6:75 a name is 1 to 512 visible ASCII characters without spaces",
        ),
        (
            "type: signed_jwt, audience: \"a b\"",
            "Y007 6:76 a name is 1 to 512 visible ASCII characters without spaces",
        ),
        ("type: signed_jwt, audience: 7", "Y006 6:76 expected a text, found a number: write \"7\""),
        (
            "type: signed_jwt, employee_as: actor",
            "Y007 6:79 unknown claim for an employee `actor`: known are `act` and `sub`",
        ),
        ("type: signed_jwt, lifetime: 5s", "Y007 6:76 not between 30s and 1h"),
        ("type: signed_jwt, lifetime: 2h", "Y007 6:76 not between 30s and 1h"),
        (
            "type: signed_jwt, lifetime: 60",
            "Y006 6:76 expected a duration, found a number: write `60s` or `60ms`",
        ),
        (
            "type: signed_jwt, scope: \"\\\\\"",
            "Y007 6:73 scopes are visible ASCII without quotes and backslashes, parted by spaces",
        ),
        ("type: signed_jwt, client_id: hangu", "Y004 6:66 unknown key `client_id`"),
        (
            "type: signed_jwt, token_url: \"https://as.example/t\"",
            "Y004 6:66 unknown key `token_url`",
        ),
        ("type: signed_jwt, key: gateway", "Y004 6:66 unknown key `key`"),
        (
            "type: signed_jwt, lifetme: 1m",
            "Y004 6:66 unknown key `lifetme`: did you mean `lifetime`?",
        ),
    ]);
}

#[test]
fn an_exchange_is_asked_for_as_a_client_and_what_it_asks_is_known() {
    check_whole(&[
        (
            "type: token_exchange, client_id: hangu",
            "Y005 6:46 `token_exchange` needs a `client_secret` or a `key`",
        ),
        ("type: token_exchange, key: gateway", "Y005 6:46 `client_id` is missing"),
        (
            "type: token_exchange, client_id: hangu, key: gateway, client_secret: { env: TOKEN }",
            "C008 6:93 either `client_secret` or `key`, not both",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, issuer: \"http://as.example\"",
            "C002 6:110 secrets are sent there: `https`, or `http` on this machine",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, issuer: \"https://as.example\", token_url: \"https://as.example/t\"",
            "C008 6:143 either `issuer` or `token_url`, not both",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, secret_in: header",
            "C009 6:113 `secret_in` is about `client_secret`, which is not given",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, requested_token_type: id_token",
            "Y007 6:124 unknown type of token `id_token`: known are `access_token` and `jwt`",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, requested_token_type: JWT",
            "Y007 6:124 unknown type of token `JWT`: did you mean `jwt`?",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, actor_token: yes please",
            "Y006 6:115 expected `true` or `false`, found a text",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, audience: \"\"",
            "Y007 6:112 a name is 1 to 512 visible ASCII characters without spaces",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, resource: crm",
            "C002 6:112 a resource is named by its address",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, scope: \" \"",
            "Y007 6:109 scopes are visible ASCII without quotes and backslashes, parted by spaces",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, listing: { tenant: acme }",
            "Y005 6:111 `empId` is missing",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, subject: x",
            "Y004 6:102 unknown key `subject`",
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway, audiense: x",
            "Y004 6:102 unknown key `audiense`: did you mean `audience`?",
        ),
        (
            "type: token_exchange, client_id: hangu, client_secret: { env: NOPE }, secret_in: body",
            "C004 6:103 the variable `NOPE` is not set",
        ),
    ]);
}

#[test]
fn what_needs_a_keyring_or_a_public_name_says_so() {
    check_bare(&[
        (
            "type: client_credentials, client_id: hangu, key: gateway",
            &[
                "C009 6:46 the gateway's own key comes from the keyring, and there is none: add `keyring: { file: … }`: `hangu keys new` makes one",
            ],
        ),
        (
            "type: oauth",
            &[
                "Y005 6:46 employees come back to the gateway's `public_url`, which is missing",
                "C009 6:46 grants are sealed under the keyring, and there is none: add `keyring: { file: … }`: `hangu keys new` makes one",
            ],
        ),
        (
            "type: signed_jwt",
            &[
                "Y005 6:46 whose word it is, is not said: the gateway's `public_url`, or `issuer`",
                "C009 6:46 the gateway's own key comes from the keyring, and there is none: add `keyring: { file: … }`: `hangu keys new` makes one",
            ],
        ),
        (
            "type: signed_jwt, issuer: \"https://i.example\"",
            &[
                "C009 6:46 the gateway's own key comes from the keyring, and there is none: add `keyring: { file: … }`: `hangu keys new` makes one",
            ],
        ),
        (
            "type: token_exchange, client_id: hangu, client_secret: { env: TOKEN }",
            &[
                "Y005 6:46 whose word it is that is exchanged, says `public_url`, which is missing",
                "C009 6:46 the gateway's own key comes from the keyring, and there is none: add `keyring: { file: … }`: `hangu keys new` makes one",
            ],
        ),
        (
            "type: token_exchange, client_id: hangu, key: gateway",
            &[
                "Y005 6:46 whose word it is that is exchanged, says `public_url`, which is missing",
                "C009 6:46 the gateway's own key comes from the keyring, and there is none: add `keyring: { file: … }`: `hangu keys new` makes one",
            ],
        ),
    ]);
}

#[test]
fn a_process_has_no_headers_to_be_authenticated_by() {
    check_upstream(&[
        (
            "{ command: x, auth: { type: employee } }",
            "C009 6:28 a process is given its secrets by `env`, and has no headers for others",
        ),
        (
            "{ command: x, auth: { type: client_credentials, client_id: hangu, client_secret: { env: TOKEN } } }",
            "C009 6:28 a process is given its secrets by `env`, and has no headers for others",
        ),
        (
            "{ command: x, auth: { type: oauth } }",
            "C009 6:28 a process is given its secrets by `env`, and has no headers for others",
        ),
        (
            "{ command: x, auth: { type: signed_jwt } }",
            "C009 6:28 a process is given its secrets by `env`, and has no headers for others",
        ),
        (
            "{ command: x, auth: { type: token_exchange, client_id: hangu, client_secret: { env: TOKEN } } }",
            "C009 6:28 a process is given its secrets by `env`, and has no headers for others",
        ),
        ("{ url: \"http://a/\", auth: employee }", "Y006 6:34 expected a mapping, found a text"),
        ("{ url: \"http://a/\", auth: {} }", "Y005 6:34 `type` is missing"),
        (
            "{ url: \"http://a/\", auth: { type: none, type: none } }",
            "Y003 6:48 `type` stands here twice",
        ),
    ]);
}

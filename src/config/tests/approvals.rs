//! `approvals:` whom a webhook tells, and what is no webhook.

use super::{LEAST, config, read, secs};

#[test]
fn a_webhook_has_an_address_and_a_key() {
    let text = |more: &str| {
        format!(
            "{LEAST}approvals: {{ webhook: {{ url: \"https://hook.example/a?b=c\", secret: {{ env: HOOK }}{more} }} }}\n"
        )
    };
    assert!(config(LEAST).approvals.webhook.is_none());
    let webhook = config(&text("")).approvals.webhook.unwrap();
    assert_eq!(webhook.url.as_str(), "https://hook.example/a?b=c");
    assert_eq!((webhook.timeout, webhook.give_up, webhook.queue), (secs(10), secs(900), 1_000));
    let webhook = config(&text(", timeout: 1s, give_up: 1h, queue: 7")).approvals.webhook.unwrap();
    assert_eq!((webhook.timeout, webhook.give_up, webhook.queue), (secs(1), secs(3_600), 7));
    assert!(!format!("{webhook:?}").contains("BwcH"));
}

#[test]
fn a_webhook_that_cannot_be_told_is_refused() {
    let key = ", secret: { env: HOOK }";
    for (url, rest, expected) in [
        ("ftp://h/", key, "C002 a webhook is reached by `http` or `https`"),
        ("nowhere", key, "C002 not an address"),
        ("http://u:hunter2@h/", key, "C002 the address holds a user's name or password"),
        (
            "https://h/?token=hunter2",
            key,
            "C002 the address holds a secret in its parameter `token`",
        ),
        ("https://h/#a", key, "C002 an address has no `#`"),
        ("https://h:0/", key, "C002 the address has no host and port"),
        ("https://h/", "", "Y005 `secret` is missing"),
        ("https://h/", ", secret: { env: TOKEN }", "Y007 the secret is no signing key: `whsec_`"),
        ("https://h/", ", secret: { env: NONE }", "C004 the variable `NONE` is not set"),
        ("https://h/", ", secret: { env: HOOK }, timeout: 0s", "Y007 not between 1s and 1m"),
        ("https://h/", ", secret: { env: HOOK }, queue: 0", "Y007 not between 1 and 100000"),
        ("https://h/", ", secret: { env: HOOK }, give_up: 2d", "Y007 not between 1s and "),
        ("https://h/", ", secret: { env: HOOK }, retries: 3", "Y004 unknown key `retries`"),
    ] {
        let text = format!("{LEAST}approvals: {{ webhook: {{ url: \"{url}\"{rest} }} }}\n");
        let found = read(&text).faults;
        let told: Vec<_> = found.iter().map(|f| format!("{} {}", f.code, f.message)).collect();
        assert!(told.len() == 1 && told[0].starts_with(expected), "{expected}: {told:?}");
        assert!(!told[0].contains("hunter2"), "{told:?}");
    }
}

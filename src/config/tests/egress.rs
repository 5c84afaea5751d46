//! `egress:` what may be dialled besides, and what says nothing of the kind.

use super::{LEAST, config, read, secs};

fn allowed(entries: &str) -> Vec<String> {
    let text = format!("{LEAST}egress: {{ allow: {entries} }}\n");
    config(&text).egress.allow.iter().map(ToString::to_string).collect()
}

fn ports(text: &str) -> String {
    let ports = config(text).egress.ports.0;
    ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn without_a_word_nothing_more_is_open() {
    let egress = config(LEAST).egress;
    assert!(egress.allow.is_empty());
    assert_eq!(egress.resolve, secs(30));
    assert_eq!(ports(LEAST), "80 443 1024-65535");
}

#[test]
fn hosts_networks_and_ports_are_entries() {
    assert_eq!(
        allowed(
            "[crm.example.com, \"*.corp.example:8443\", 10.20.0.0/16, 10.0.0.5:80, \"fd12::/48\", \"[fd00::1]:443\"]"
        ),
        [
            "crm.example.com",
            "*.corp.example:8443",
            "10.20.0.0/16",
            "10.0.0.5:80",
            "fd12::/48",
            "[fd00::1]:443"
        ]
    );
    assert_eq!(ports(&format!("{LEAST}egress: {{ ports: [443, 8000-8999] }}\n")), "443 8000-8999");
    assert_eq!(ports(&format!("{LEAST}egress: {{ ports: [] }}\n")), "");
    let resolve = config(&format!("{LEAST}egress: {{ resolve: 5s }}\n")).egress.resolve;
    assert_eq!(resolve, secs(5));
}

#[test]
fn what_is_no_entry_is_told_with_its_place() {
    for (body, expected) in [
        (
            "allow: [\"https://a.example/\"]",
            "Y007 7:19 `https://a.example/` is a URL: write its host, and its port if it has one",
        ),
        ("allow: [a.example:0]", "Y007 7:19 `a.example:0` has the port `0`, which is none"),
        (
            "allow: [10.0.0.5/8]",
            "Y007 7:19 `10.0.0.5/8` has bits behind its prefix; write `10.0.0.0/8`",
        ),
        ("allow: [\"0x7f.1\"]", "Y007 7:19 `0x7f.1` is an address; write `127.0.0.1`"),
        ("allow: [\"*\"]", "Y007 7:19 `*` may have `*` only as its first label: `*.example.com`"),
        ("allow: a.example", "Y006 7:18 expected a list, found a text"),
        ("allow: [7]", "Y006 7:19 expected a text, found a number"),
        ("allow: [a.example, A.example.]", "C008 7:30 `a.example` is here twice"),
        ("ports: [https]", "Y007 7:19 `https` is no port, and no range such as `8000-8999`"),
        ("ports: [0]", "Y007 7:19 `0` is no port, and no range such as `8000-8999`"),
        ("ports: [65536]", "Y007 7:19 `65536` is no port, and no range such as `8000-8999`"),
        ("ports: [9-8]", "Y007 7:19 `9-8` ends before it begins; write `8-9`"),
        ("ports: [443, 400-500]", "C008 7:24 `400-500` is in `443` already"),
        ("resolve: 10ms", "Y007 7:20 not between 1s and 24h"),
        ("alow: []", "Y004 7:11 unknown key `alow`"),
    ] {
        let loaded = read(&format!("{LEAST}egress: {{ {body} }}\n"));
        assert_eq!(super::told(&loaded.faults), [expected], "{body}");
    }
    let loaded = read(&format!("{LEAST}egress: {{ alow: [] }}\n"));
    assert!(format!("{:?}", loaded.faults).contains("allow"), "{:?}", loaded.faults);
}

#[test]
fn an_entry_for_nearly_everything_is_warned_of_and_taken() {
    for entry in ["0.0.0.0/0", "\"::/0\"", "0.0.0.0/0:443", "0.0.0.0/4"] {
        let loaded = read(&format!("{LEAST}egress: {{ allow: [{entry}] }}\n"));
        let told = super::told(&loaded.faults);
        assert!(told[0].starts_with("C106 7:19 "), "{told:?}");
        assert_eq!(told.len(), 1);
        assert_eq!(loaded.config.unwrap().egress.allow.len(), 1);
    }
}

#[test]
fn what_is_in_effect_is_shown_as_it_is_written() {
    let text =
        format!("{LEAST}egress: {{ allow: [A.example, 10.0.0.0/8], ports: [443], resolve: 1m }}\n");
    let shown = config(&text).shown();
    assert_eq!(
        shown["egress"],
        serde_json::json!({ "allow": ["a.example", "10.0.0.0/8"], "ports": ["443"], "resolve": "1m" })
    );
}

//! Ranges, entries and guards, by the table that later versions must hold.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Table {
    classes: BTreeMap<String, Vec<IpAddr>>,
    hosts: Vec<(String, Option<IpAddr>)>,
    guards: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    guard: String,
    #[serde(default)]
    allow: Vec<String>,
    ports: Option<Vec<String>>,
    url: String,
    at: IpAddr,
    pass: bool,
}

fn table() -> Table {
    serde_json::from_str(include_str!("../../../tests/fixtures/egress.json")).unwrap()
}

fn endpoint(url: &str) -> Endpoint {
    Endpoint::parse(url).unwrap()
}

fn public() -> Guard {
    Guard::public(&Egress::new(EgressConfig::default()))
}

#[test]
fn addresses_are_what_the_registries_say() {
    for (class, addresses) in table().classes {
        for address in addresses {
            assert_eq!(Class::of(address).as_str(), class, "{address}");
        }
    }
}

#[test]
fn a_host_is_the_address_that_it_is_whatever_its_notation() {
    for (url, address) in table().hosts {
        assert_eq!(endpoint(&url).address(), address, "{url}");
        if address.is_some() {
            assert!(public().admits(&endpoint(&url)).is_err(), "{url}");
        }
    }
}

#[test]
fn guards_pass_what_the_table_says() {
    for row in table().guards {
        let config = EgressConfig {
            allow: row.allow.iter().map(|entry| entry.parse().unwrap()).collect(),
            ports: row.ports.as_ref().map_or_else(Ports::default, |ports| {
                Ports(ports.iter().map(|range| range.parse().unwrap()).collect())
            }),
            ..EgressConfig::default()
        };
        let egress = Egress::new(config);
        let guard = match &*row.guard {
            "public" => Guard::public(&egress),
            _ => Guard::written(&egress),
        };
        let endpoint = endpoint(&row.url);
        let judged = guard.judge(&endpoint, row.at);
        assert_eq!(judged.is_ok(), row.pass, "{row:?} {judged:?}");
        if row.pass {
            assert_eq!(guard.admits(&endpoint), Ok(()), "{row:?}: no look-up without admission");
        }
    }
}

#[test]
fn names_of_this_machine_need_no_look_up_to_be_refused() {
    let refused = |allow: &[&str], url: &str| {
        let allow = allow.iter().map(|entry| entry.parse().unwrap()).collect();
        let egress = Egress::new(EgressConfig { allow, ..EgressConfig::default() });
        assert_eq!(Guard::written(&egress).admits(&endpoint(url)), Ok(()));
        Guard::public(&egress).admits(&endpoint(url)).is_err()
    };
    for url in ["http://localhost/", "http://LOCALHOST./", "http://a.localhost:8080/"] {
        assert!(refused(&[], url), "{url}");
        assert!(refused(&["10.0.0.0/8"], url), "{url}");
        assert!(!refused(&["127.0.0.0/8"], url), "{url}");
        assert!(!refused(&["::1"], url), "{url}");
    }
    assert!(!refused(&["localhost"], "http://localhost/"));
    assert!(refused(&["localhost"], "http://a.localhost/"));
    assert!(!refused(&[], "http://localhost.example/"));
    assert!(!refused(&[], "http://notlocalhost/"));
}

#[test]
fn a_refusal_tells_the_operator_what_and_why() {
    let says = |url: &str, at: &str| {
        public().judge(&endpoint(url), at.parse().unwrap()).unwrap_err().to_string()
    };
    let end = ", and no entry of `egress.allow` names it";
    assert_eq!(
        says("https://a.example/", "10.0.0.5"),
        format!("`a.example` (port 443) stands for 10.0.0.5, a private address{end}")
    );
    assert_eq!(
        says("http://127.1:8080/", "127.0.0.1"),
        format!("127.0.0.1 (port 8080) is a loopback address{end}")
    );
    assert_eq!(
        says("https://a.example:22/", "93.184.215.14"),
        format!("port 22 of `a.example` is none of `egress.ports`{end}")
    );
}

#[test]
fn an_entry_is_written_in_one_way() {
    for (text, shown) in [
        ("crm.example.com", "crm.example.com"),
        ("CRM.Example.com.", "crm.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("localhost:7001", "localhost:7001"),
        ("*.corp.example", "*.corp.example"),
        ("*.corp.example:8443", "*.corp.example:8443"),
        ("10.0.0.5", "10.0.0.5"),
        ("10.0.0.5:80", "10.0.0.5:80"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.0.0.0/8:443", "10.0.0.0/8:443"),
        ("fd00::1", "fd00::1"),
        ("[fd00::1]", "fd00::1"),
        ("[fd00::1]:443", "[fd00::1]:443"),
        ("fd00::/8", "fd00::/8"),
        ("[fd00::/8]:443", "[fd00::/8]:443"),
    ] {
        let entry = Allowed::from_str(text).unwrap();
        assert_eq!(entry.to_string(), shown);
        assert_eq!(shown.parse(), Ok(entry), "what is shown can be written");
    }
    for (text, why) in [
        ("", "names nothing"),
        (":443", "names nothing"),
        ("https://a.example/", "is a URL"),
        ("a.example/mcp", "is no network"),
        ("a b", "is no host"),
        ("*", "may have `*` only"),
        ("a.*.example", "may have `*` only"),
        ("*a.example", "may have `*` only"),
        ("*.", "is no host"),
        ("a.example:0", "the port `0`"),
        ("a.example:http", "the port `http`"),
        ("a.example:65536", "the port `65536`"),
        ("a.example:+80", "the port `+80`"),
        ("10.0.0.5/8", "write `10.0.0.0/8`"),
        ("10.0.0.0/33", "is no network"),
        ("10.0.0/8", "is no network"),
        ("[fd00::1", "is no network"),
        ("fd00::zz", "is no network"),
        ("2130706433", "write `127.0.0.1`"),
        ("0x7f.1", "write `127.0.0.1`"),
        ("127.1", "write `127.0.0.1`"),
    ] {
        let fault = Allowed::from_str(text).unwrap_err();
        assert!(fault.contains(why), "{text}: {fault}");
    }
}

#[test]
fn an_entry_that_opens_nearly_everything_is_known() {
    for (text, wide) in [
        ("0.0.0.0/0", true),
        ("::/0", true),
        ("0.0.0.0/1:443", true),
        ("2000::/3", true),
        ("10.0.0.0/8", false),
        ("fc00::/7", false),
        ("*.com", false),
    ] {
        assert_eq!(Allowed::from_str(text).unwrap().is_wide(), wide, "{text}");
    }
}

#[test]
fn ports_are_numbers_and_ranges() {
    let parse = |text: &str| PortRange::from_str(text).map(|range| range.to_string());
    assert_eq!(parse("443"), Ok("443".to_owned()));
    assert_eq!(parse("8000-8999"), Ok("8000-8999".to_owned()));
    assert_eq!(parse("8000 - 8999"), Ok("8000-8999".to_owned()));
    for bad in ["", "0", "-1", "70000", "1-", "a", "443/tcp", "9-8", "0-9"] {
        assert!(parse(bad).is_err(), "{bad}");
    }
    assert!(parse("9-8").unwrap_err().ends_with("write `8-9`"));
}

/// Every way in which an IPv6 address is known to carry an IPv4 address, with what else may stand
/// in it.
fn forms(v4: Ipv4Addr, noise: u128) -> Vec<Ipv6Addr> {
    let bits = u128::from(v4.to_bits());
    let noise = |mask: u128| noise & mask;
    let low = |count: u32| (1_u128 << count) - 1;
    let prefix = |text: &str| text.parse::<Ipv6Addr>().unwrap().to_bits();
    let local = prefix("64:ff9b:1::");
    [
        prefix("::ffff:0:0") | bits,
        prefix("::ffff:0:0:0") | bits,
        prefix("64:ff9b::") | bits,
        prefix("2002::") | (bits << 80) | noise(low(80)),
        // Teredo, as server and as client.
        prefix("2001::") | (bits << 64) | noise(low(64)),
        prefix("2001::") | noise(low(32) << 64 | low(32) << 32) | (!bits & low(32)),
        // NAT64 of a network's own, the prefix as long as RFC 6052 lets it be.
        local | ((bits >> 16) << 64) | ((bits & 0xffff) << 40),
        local | noise(0xff << 72) | ((bits >> 24) << 64) | ((bits & 0xff_ffff) << 32),
        local | noise(0xffff << 64) | (bits << 24),
        local | noise(low(48) << 32) | bits,
        // ISATAP, behind a prefix of the open Internet.
        prefix("2a00::") | noise(low(32) << 64) | (0x5efe << 32) | bits,
        prefix("2a00::") | noise(low(32) << 64) | (0x0200_5efe << 32) | bits,
    ]
    .map(Ipv6Addr::from_bits)
    .into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn no_form_of_a_forbidden_address_passes(bits: u32, noise: u128, range in 0_usize..16) {
        const RANGES: [(&str, u32); 16] = [
            ("0.0.0.0", 8), ("10.0.0.0", 8), ("100.64.0.0", 10), ("127.0.0.0", 8),
            ("169.254.0.0", 16), ("172.16.0.0", 12), ("192.0.0.0", 24), ("192.0.2.0", 24),
            ("192.88.99.0", 24), ("192.168.0.0", 16), ("198.18.0.0", 15), ("198.51.100.0", 24),
            ("203.0.113.0", 24), ("224.0.0.0", 4), ("240.0.0.0", 4), ("169.254.169.254", 32),
        ];
        let (first, prefix) = RANGES[range];
        let host = u32::MAX.checked_shr(prefix).unwrap_or(0);
        let first = first.parse::<Ipv4Addr>().unwrap().to_bits();
        let v4 = Ipv4Addr::from_bits(first | (bits & host));
        let at = endpoint("https://a.example/");
        prop_assert!(public().judge(&at, v4.into()).is_err(), "{v4}");
        for form in forms(v4, noise) {
            prop_assert!(public().judge(&at, form.into()).is_err(), "{form} of {v4}");
        }
        // An IPv4-compatible address passes never: nothing routes it.
        let compatible = Ipv6Addr::from_bits(u128::from(bits));
        prop_assert!(public().judge(&at, compatible.into()).is_err(), "{compatible}");
    }

    /// The ranges by other means than ours: what passes is what the standard library and this
    /// mask of 2000::/3 call global.
    #[test]
    fn what_passes_is_global_by_another_count(bits: u32, high: u128) {
        let v4 = Ipv4Addr::from_bits(bits);
        if Class::of(v4.into()) == Class::Global {
            prop_assert!(!v4.is_private() && !v4.is_loopback() && !v4.is_link_local());
            prop_assert!(!v4.is_multicast() && !v4.is_broadcast() && !v4.is_unspecified());
            prop_assert!(!v4.is_documentation());
        }
        let v6 = Ipv6Addr::from_bits(high);
        if Class::of(v6.into()) == Class::Global && v6.to_ipv4_mapped().is_none() {
            let is_nat64 = high >> 32 == 0x64_ff9b << 64;
            prop_assert!(is_nat64 || v6.segments()[0] >> 13 == 1, "{v6}");
            prop_assert!(!v6.is_unique_local() && !v6.is_unicast_link_local());
            prop_assert!(!v6.is_multicast() && !v6.is_loopback() && !v6.is_unspecified());
        }
    }

    /// Metadata of a network's own NAT64 is known for what it is, also where the operator wrote
    /// the name.
    #[test]
    fn no_form_of_metadata_passes_where_a_written_name_leads_to_it(noise: u128) {
        let guard = Guard::written(&Egress::new(EgressConfig::default()));
        let at = endpoint("http://a.corp/");
        for form in forms(Ipv4Addr::new(169, 254, 169, 254), noise) {
            prop_assert!(guard.judge(&at, form.into()).is_err(), "{form}");
        }
    }
}

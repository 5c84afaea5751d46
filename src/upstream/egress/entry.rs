//! What an operator allows beside what is allowed anyway, and the ports of public servers, as
//! they are written.

use std::{fmt, net::IpAddr, ops::RangeInclusive, str::FromStr};

use url::Host;

use super::class::Class;
use crate::model::network::Network;

/// One entry of `egress.allow`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Allowed {
    what: What,
    /// `None`: whichever ports may be dialled anyway.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum What {
    /// One name, wherever it leads.
    Host(Box<str>),
    /// Every name that ends in this, a dot before it.
    Below(Box<str>),
    Network(Network),
}

/// The ports at which public servers may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub Vec<PortRange>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRange(RangeInclusive<u16>);

// === impl Allowed ===

impl Allowed {
    /// Whether it names a host, or the address that the host stands for.
    pub(super) fn names(&self, host: &str, address: Option<IpAddr>) -> bool {
        match &self.what {
            What::Host(name) => **name == *host,
            What::Below(suffix) => {
                let before = host.strip_suffix(&**suffix).and_then(|host| host.strip_suffix('.'));
                let meant = |address| !Class::of(address).is_never_meant();
                before.is_some_and(|label| !label.is_empty()) && address.is_none_or(meant)
            }
            What::Network(network) => address.is_some_and(|address| network.contains(address)),
        }
    }

    pub(super) fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether it opens so much that somebody should look at it again.
    pub fn is_wide(&self) -> bool {
        match &self.what {
            What::Network(network) => network.prefix() < if network.is_ipv4() { 8 } else { 7 },
            What::Host(_) | What::Below(_) => false,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole =
            |network: &Network| network.prefix() == if network.is_ipv4() { 32 } else { 128 };
        let shown = match &self.what {
            What::Host(name) => name.to_string(),
            What::Below(suffix) => format!("*.{suffix}"),
            What::Network(network) => {
                let text = network.to_string();
                let text = match text.split_once('/') {
                    Some((address, _)) if whole(network) => address.to_owned(),
                    _ => text,
                };
                if self.port.is_some() && !network.is_ipv4() { format!("[{text}]") } else { text }
            }
        };
        match self.port {
            Some(port) => write!(f, "{shown}:{port}"),
            None => f.write_str(&shown),
        }
    }
}

impl FromStr for Allowed {
    type Err = String;

    /// The error goes on after "`text` ".
    fn from_str(text: &str) -> Result<Self, String> {
        let (what, port) = split_port(text)?;
        if what.is_empty() {
            return Err("names nothing".to_owned());
        }
        if what.contains("://") {
            return Err("is a URL: write its host, and its port if it has one".to_owned());
        }
        let bracketed = what.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let looks_numeric = bracketed.is_some() || what.contains(['/', ':']);
        if let Ok(network) = bracketed.unwrap_or(what).parse::<Network>() {
            let masked = network.masked();
            if masked != network {
                return Err(format!("has bits behind its prefix; write `{masked}`"));
            }
            return Ok(Self { what: What::Network(network), port });
        }
        if looks_numeric {
            return Err("is no network such as `10.20.0.0/16` or `fd12::/48`".to_owned());
        }
        let what = match what.strip_prefix("*.") {
            Some(suffix) => What::Below(domain(suffix)?),
            None => What::Host(domain(what)?),
        };
        Ok(Self { what, port })
    }
}

/// Takes a port off an entry. An IPv6 address has one only behind brackets.
fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let has_port = text.contains("]:") || text.matches(':').count() == 1 && !text.contains("://");
    let Some((what, port)) = text.rsplit_once(':').filter(|_| has_port) else {
        return Ok((text, None));
    };
    match port.parse::<u16>() {
        Ok(number) if number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok((what, Some(number)))
        }
        _ => Err(format!("has the port `{port}`, which is none")),
    }
}

/// A name as URLs have it: lower case, in ASCII, without a dot at its end.
fn domain(text: &str) -> Result<Box<str>, String> {
    if text.contains('*') {
        return Err("may have `*` only as its first label: `*.example.com`".to_owned());
    }
    match Host::parse(text.trim_end_matches('.')) {
        Ok(Host::Domain(name)) if !name.is_empty() && !name.starts_with('.') => Ok(name.into()),
        // `0x7f.1` and `2130706433` are addresses, too.
        Ok(Host::Ipv4(address)) => Err(format!("is an address; write `{address}`")),
        _ => {
            Err("is no host such as `crm.example.com`, `*.example.com` or `10.0.0.0/8`".to_owned())
        }
    }
}

// === impl Ports ===

impl Ports {
    pub fn contains(&self, port: u16) -> bool {
        self.0.iter().any(|range| range.0.contains(&port))
    }
}

/// Those of the web, and those that need no privilege to listen on: not SSH, mail, DNS, LDAP or
/// SMB.
impl Default for Ports {
    fn default() -> Self {
        Self([80..=80, 443..=443, 1024..=u16::MAX].map(PortRange).into())
    }
}

impl PortRange {
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.start() <= other.0.end() && other.0.start() <= self.0.end()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (one, other) if one == other => one.fmt(f),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is no port, and no range such as `8000-8999`".to_owned();
        let port = |text: &str| match text.parse::<u16>() {
            Ok(port) if port > 0 && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
            _ => Err(wrong()),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first.trim())?, port(last.trim())?);
        if first > last {
            return Err(format!("ends before it begins; write `{last}-{first}`"));
        }
        Ok(Self(first..=last))
    }
}

//! Who is really at the other end, where proxies stand between.
//!
//! Forwarding headers are believed only from listed peers, and read from the right: everything
//! left of the first hop that is not ours could have been written by anybody.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use http::{HeaderMap, HeaderName};

use crate::model::call::ClientAddr;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The peers whose `X-Forwarded-For` is believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Box<[Network]>);

#[derive(Debug, Clone, Copy)]
struct Network {
    address: IpAddr,
    bits: u8,
}

impl TrustedProxies {
    /// Reads addresses (`10.1.2.3`, `::1`) and networks (`10.0.0.0/8`); the first that is
    /// neither is the error.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let networks: Result<Vec<_>, _> = entries.into_iter().map(str::parse).collect();
        Ok(Self(networks?.into()))
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// The client of a request that came from `peer`, which is trusted.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> ClientAddr {
        let mut client = ClientAddr { ip: peer.ip().to_canonical(), port: peer.port() };
        for value in headers.get_all(FORWARDED_FOR).iter().rev() {
            for hop in value.as_bytes().rsplit(|byte| *byte == b',') {
                // A hop that cannot be read was not written by a proxy of ours; the one that
                // passed it on is the last that is known.
                let Some(hop) = std::str::from_utf8(hop).ok().and_then(parse_hop) else {
                    return client;
                };
                client = hop;
                if !self.contains(hop.ip) {
                    return client;
                }
            }
        }
        client
    }
}

/// An address, or an address with a port.
fn parse_hop(text: &str) -> Option<ClientAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(address) => Some(ClientAddr { ip: address.to_canonical(), port: 0 }),
        Err(_) => {
            let address: SocketAddr = text.parse().ok()?;
            Some(ClientAddr { ip: address.ip().to_canonical(), port: address.port() })
        }
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        fn same(own: u128, other: u128, width: u32, bits: u8) -> bool {
            let shift = width - u32::from(bits);
            own.checked_shr(shift) == other.checked_shr(shift)
        }
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                same(own.to_bits().into(), other.to_bits().into(), 32, self.bits)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                same(own.to_bits(), other.to_bits(), 128, self.bits)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither an address nor a network such as `10.0.0.0/8`");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?.to_canonical();
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        if bits > width { Err(wrong()) } else { Ok(Self { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn client(trusted: &[&str], forwarded: &[&'static str]) -> String {
        let proxies = TrustedProxies::parse(trusted.iter().copied()).unwrap();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_static(value));
        }
        let ClientAddr { ip: address, port } =
            proxies.client("10.0.0.1:5".parse().unwrap(), &headers);
        format!("{address} {port}")
    }

    #[test]
    fn the_client_is_the_first_untrusted_hop_from_the_right() {
        let ours = &["10.0.0.0/8"][..];
        for (forwarded, expected) in [
            (&[][..], "10.0.0.1 5"),
            (&["198.51.100.9, 203.0.113.7"], "203.0.113.7 0"),
            (&["198.51.100.9, 203.0.113.7, 10.2.2.2"], "203.0.113.7 0"),
            (&["198.51.100.9", "203.0.113.7"], "203.0.113.7 0"),
            (&["203.0.113.7:443"], "203.0.113.7 443"),
            (&["[2001:db8::1]:9"], "2001:db8::1 9"),
            (&["[2001:db8::1]"], "2001:db8::1 0"),
            (&["::ffff:203.0.113.7"], "203.0.113.7 0"),
            (&["10.3.3.3"], "10.3.3.3 0"),
            (&["198.51.100.9, unknown, 10.2.2.2"], "10.2.2.2 0"),
            (&[""], "10.0.0.1 5"),
        ] {
            assert_eq!(client(ours, forwarded), expected, "{forwarded:?}");
        }
    }

    #[test]
    fn networks_hold_their_own_and_no_others() {
        let proxies = TrustedProxies::parse(["10.0.0.0/8", "::1", "2001:db8::/32", "0.0.0.0/0"]);
        let proxies = proxies.unwrap();
        let holds = |address: &str| proxies.contains(address.parse().unwrap());
        assert!(holds("::1") && holds("2001:db8:1::9") && holds("::ffff:10.1.1.1"));
        assert!(holds("192.0.2.1"), "0.0.0.0/0 is every IPv4 address");
        assert!(!holds("::2") && !holds("2001:db9::1"));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0.0/x", "proxy.example", "10.0.0.0/8/8"] {
            assert!(TrustedProxies::parse([bad]).is_err(), "{bad}");
        }
    }
}

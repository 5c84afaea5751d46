//! Networks and origins, as files name them.

use std::{fmt, net::IpAddr, str::FromStr};

use url::Url;

use crate::{
    fault::{FaultCode, Faults},
    yaml::{FromNode, Node, parsed},
};

/// An address, or all addresses with the same beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    /// Whether an address is in it. An IPv4 address written as an IPv6 one is the former.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, true),
            IpAddr::V6(v6) => (v6.to_bits(), false),
        };
        let ((own, own_v4), (other, other_v4)) = (bits(self.address), bits(address));
        own_v4 == other_v4
            && (own ^ other).checked_shr(128 - u32::from(self.prefix)).unwrap_or(0) == 0
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is not an address or network such as `10.0.0.0/8`".to_owned();
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) if prefix.bytes().all(|b| b.is_ascii_digit()) => {
                prefix.parse().map_err(|_| wrong())?
            }
            Some(_) => return Err(wrong()),
            None => longest,
        };
        if prefix > longest {
            return Err(wrong());
        }
        Ok(Self { address, prefix })
    }
}

impl FromNode for Network {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadValue, faults, Network::from_str)
    }
}

/// A browser's origin, as it writes it: `https://app.example.com`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin(String);

impl Origin {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = "is not an origin such as `https://app.example.com`";
        let url = Url::parse(text).map_err(|_| wrong.to_owned())?;
        let origin = url.origin();
        let ascii = origin.ascii_serialization();
        if !origin.is_tuple() || ascii != text {
            // Compared byte by byte with what a browser sends, so it is written as it is sent.
            return Err(match origin.is_tuple() {
                true => format!("{wrong}; write `{ascii}`"),
                false => wrong.to_owned(),
            });
        }
        Ok(Self(ascii))
    }
}

impl FromNode for Origin {
    fn from_node(node: &Node, faults: &mut Faults) -> Option<Self> {
        parsed(node, FaultCode::BadValue, faults, Origin::from_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_addresses() {
        let holds = |network: &str, address: &str| {
            Network::from_str(network).unwrap().contains(address.parse().unwrap())
        };
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.2", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("::/0", "2001:db8::1", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("192.0.2.0/25", "192.0.2.127", true),
            ("192.0.2.0/25", "192.0.2.128", false),
        ] {
            assert_eq!(holds(network, address), expected, "{network} {address}");
        }
        for text in ["", "10", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "::/129", "a/8"] {
            assert!(Network::from_str(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        for good in ["https://app.example.com", "http://localhost:3000"] {
            assert_eq!(Origin::from_str(good).unwrap().as_str(), good);
        }
        for bad in [
            "*",
            "app.example.com",
            "https://a/",
            "https://a:443",
            "https://A",
            "null",
            "file:///a",
        ] {
            assert!(Origin::from_str(bad).is_err(), "{bad}");
        }
    }
}

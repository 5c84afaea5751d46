//! A network: an address, or all addresses with the same beginning.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// An address, or all addresses with the same beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

    /// How many bits its addresses have in common.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// The same, written with its first address.
    #[must_use]
    pub fn masked(self) -> Self {
        let host = |bits: u8| u32::from(bits.saturating_sub(self.prefix));
        let address = match self.address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(host(32)).unwrap_or(0);
                Ipv4Addr::from_bits(v4.to_bits() & mask).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(host(128)).unwrap_or(0);
                Ipv6Addr::from_bits(v6.to_bits() & mask).into()
            }
        };
        Self { address, ..self }
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
    fn a_network_knows_its_first_address() {
        for (text, first) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.0.0.1", "10.0.0.1/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::1/32", "2001:db8::/32"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(Network::from_str(text).unwrap().masked().to_string(), first);
        }
    }
}

//! What an address is for, by the registries of special addresses (IANA, RFC 6890 and later) and
//! by where clouds keep their instances' credentials.
//!
//! It says what an address is, not whether it may be dialled.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// In the order of how bad it is to be led there: of two classes the later counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Anybody's: the open Internet.
    Global,
    Documentation,
    Benchmarking,
    /// Set aside for something else, or for nothing yet.
    Reserved,
    /// Between a carrier and its customers (100.64.0.0/10); clouds and VPNs use it, too.
    Shared,
    /// RFC 1918 and unique local addresses.
    Private,
    Loopback,
    Multicast,
    Broadcast,
    /// `0.0.0.0` and `::`, by which Linux reaches itself.
    Unspecified,
    LinkLocal,
    /// Where a cloud tells a machine who it is, with credentials.
    Metadata,
}

impl Class {
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => of_v6(v6),
        }
    }

    /// Whether no server of anybody's can be there in good faith: where a name leads there, it
    /// is a mistake or an attack.
    pub fn is_never_meant(self) -> bool {
        self >= Class::Multicast
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Class::Global => "global",
            Class::Documentation => "documentation",
            Class::Benchmarking => "benchmarking",
            Class::Reserved => "reserved",
            Class::Shared => "shared",
            Class::Private => "private",
            Class::Loopback => "loopback",
            Class::Multicast => "multicast",
            Class::Broadcast => "broadcast",
            Class::Unspecified => "unspecified",
            Class::LinkLocal => "link-local",
            Class::Metadata => "cloud metadata",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn of_v4(address: Ipv4Addr) -> Class {
    match address.octets() {
        // AWS, Google Cloud, Azure, Oracle and others; tasks and pods of AWS; Alibaba Cloud;
        // Azure's platform; Oracle's older one.
        [169, 254, 169, 254]
        | [169, 254, 170, 2 | 23]
        | [100, 100, 100, 200]
        | [168, 63, 129, 16]
        | [192, 0, 0, 192] => Class::Metadata,
        [0, ..] => Class::Unspecified,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Class::Private,
        [100, 64..=127, ..] => Class::Shared,
        [127, ..] => Class::Loopback,
        [169, 254, ..] => Class::LinkLocal,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Class::Documentation,
        [198, 18 | 19, ..] => Class::Benchmarking,
        // Protocol assignments, and the relays of 6to4.
        [192, 0, 0, _] | [192, 88, 99, _] => Class::Reserved,
        [224..=239, ..] => Class::Multicast,
        [255, 255, 255, 255] => Class::Broadcast,
        [240..=255, ..] => Class::Reserved,
        _ => Class::Global,
    }
}

fn of_v6(address: Ipv6Addr) -> Class {
    let own = of_v6_itself(address);
    embedded(address).fold(own, Class::max)
}

/// What an IPv6 address is, whatever it may carry.
fn of_v6_itself(address: Ipv6Addr) -> Class {
    const METADATA: [Ipv6Addr; 4] = [
        // AWS and its pods, Google Cloud, Scaleway.
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
        Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
        Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    ];
    if METADATA.contains(&address) {
        return Class::Metadata;
    }
    if address == Ipv6Addr::UNSPECIFIED {
        return Class::Unspecified;
    }
    if address == Ipv6Addr::LOCALHOST {
        return Class::Loopback;
    }
    match address.segments() {
        // IPv4-mapped; NAT64 and 6to4 and Teredo: what they carry says what they are.
        [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0x2002, ..] => {
            Class::Global
        }
        [0x2001, 0, ..] => Class::Global,
        // NAT64 within one network (RFC 8215).
        [0x64, 0xff9b, 1, ..] => Class::Private,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Documentation,
        [0x2001, 2, 0, ..] => Class::Benchmarking,
        // What is left of the protocol assignments.
        [0x2001, 0..=0x1ff, ..] => Class::Reserved,
        [0x2000..=0x3fff, ..] => Class::Global,
        // Unique local, and site-local before them.
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Class::Private,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        [0xff00..=0xffff, ..] => Class::Multicast,
        _ => Class::Reserved,
    }
}

/// The classes of the IPv4 addresses that an IPv6 address carries, in whichever way.
fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Class> {
    let segments = address.segments();
    let v4 =
        |high: u16, low: u16| of_v4(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    let last = || v4(segments[6], segments[7]);
    let (first, second) = match segments {
        // IPv4-mapped, IPv4-translated and NAT64's well-known prefix.
        [0, 0, 0, 0, 0, 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => (Some(last()), None),
        // `::` and `::1` are no IPv4-compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => (None, None),
        [0, 0, 0, 0, 0, 0, ..] => (Some(last()), None),
        [0x2002, high, low, ..] => (Some(v4(high, low)), None),
        // Teredo: its server, and its client behind a mask.
        [0x2001, 0, high, low, ..] => (Some(v4(high, low)), Some(v4(!segments[6], !segments[7]))),
        [0x64, 0xff9b, 1, ..] => (local_nat64(address), None),
        _ => (None, None),
    };
    // ISATAP: behind any prefix.
    let isatap = matches!(segments[4..6], [0 | 0x200, 0x5efe]).then(last);
    [first, second, isatap].into_iter().flatten()
}

/// Where the prefix of a network's own NAT64 ends is not known, so all places are looked at for
/// what is worse than private (RFC 6052, 2.2).
fn local_nat64(address: Ipv6Addr) -> Option<Class> {
    let bytes = address.octets();
    let places = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    let classes = places.into_iter().map(|place| of_v4(Ipv4Addr::from(place.map(|at| bytes[at]))));
    classes.filter(|class| *class >= Class::LinkLocal).max()
}

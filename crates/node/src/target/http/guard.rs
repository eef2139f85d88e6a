//! Keeps events out of networks that the book does not allow: this machine, its neighbours, its cloud (SSRF).
//!
//! An attacker who controls a name's DNS could otherwise have our events sent, and our answers read, inside
//! our network. So each resolved address is judged, and exactly that address is called: there is no second
//! lookup.
//!
//! Invariants: an address that the book itself states is trusted; everything else is a name, even if it looks
//! like a number; what is not known to be public is refused. Connections are shared only by targets with the
//! same permission, which is part of [`HttpOrigin`].
//!
//! [`HttpOrigin`]: super::address::HttpOrigin

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use redrive_core::book::model::Network;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AddressPolicy {
    Anywhere,
    PublicOnly,
}

/// The first address of a name of which none is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedAddress {
    pub(super) address: IpAddr,
    pub(super) what: &'static str,
}

impl AddressPolicy {
    /// The host is a name or a literal without brackets.
    pub(super) fn of(host: &str, network: Network) -> Self {
        let is_literal = host.parse::<IpAddr>().is_ok();
        match network {
            Network::Public if !is_literal => Self::PublicOnly,
            Network::Public | Network::Private => Self::Anywhere,
        }
    }

    /// The allowed addresses; an error if there are some but none is allowed.
    pub(super) fn admit(
        self,
        addresses: impl Iterator<Item = SocketAddr>,
    ) -> Result<Vec<SocketAddr>, RefusedAddress> {
        let mut admitted = Vec::new();
        let mut refused = None;
        for address in addresses {
            match (self, why_not_public(address.ip())) {
                (Self::Anywhere, _) | (Self::PublicOnly, None) => admitted.push(address),
                (Self::PublicOnly, Some(what)) => {
                    refused.get_or_insert(RefusedAddress { address: address.ip(), what });
                }
            }
        }
        match refused {
            Some(refused) if admitted.is_empty() => Err(refused),
            Some(_) | None => Ok(admitted),
        }
    }
}

fn why_not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => of_v4(address),
        IpAddr::V6(address) => of_v6(address),
    }
}

const THIS_MACHINE: &str = "an address of this machine";
const PRIVATE: &str = "a private address";
const LINK_LOCAL: &str = "a link-local address";
const METADATA: &str = "the address of a cloud's metadata service";
const CARRIER: &str = "an address inside a carrier's network";
const MULTICAST: &str = "a multicast address";
const BROADCAST: &str = "the broadcast address";
const DOCUMENTATION: &str = "an address for documentation";
const BENCHMARKING: &str = "an address for benchmarks";
const RESERVED: &str = "a reserved address";

/// By the IANA registry of special addresses, plus cloud metadata services.
fn of_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        // AWS and most others, Alibaba, Oracle, and Azure, which uses a public one.
        [169, 254, 169, 254] | [100, 100, 100, 200] | [192, 0, 0, 192] | [168, 63, 129, 16] => Some(METADATA),
        // Most systems take `0.0.0.0/8` for this machine.
        [0 | 127, ..] => Some(THIS_MACHINE),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some(PRIVATE),
        [100, 64..=127, ..] => Some(CARRIER),
        [169, 254, ..] => Some(LINK_LOCAL),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some(DOCUMENTATION),
        [198, 18..=19, ..] => Some(BENCHMARKING),
        [224..=239, ..] => Some(MULTICAST),
        [255, 255, 255, 255] => Some(BROADCAST),
        // Protocol assignments, the 6to4 relay, and reserved space.
        [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => Some(RESERVED),
        _ => None,
    }
}

/// Only part of the space is allocated; the rest is refused.
fn of_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(inner) = embedded(address) {
        return of_v4(inner);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Some(THIS_MACHINE),
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] => Some(METADATA),
        // The second is the NAT64 prefix for local use.
        [0xfc00..=0xfdff, ..] | [0x0064, 0xff9b, 1, ..] => Some(PRIVATE),
        [0xfe80..=0xfebf, ..] => Some(LINK_LOCAL),
        [0xff00..=0xffff, ..] => Some(MULTICAST),
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Some(DOCUMENTATION),
        [0x2001, 2, 0, ..] => Some(BENCHMARKING),
        // Protocol assignments, among them Teredo, which embeds an obfuscated address.
        [0x2001, 0..=0x01ff, ..] => Some(RESERVED),
        [0x2000..=0x3fff, ..] => None,
        _ => Some(RESERVED),
    }
}

/// Mapped, translated by NAT64, or tunnelled by 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let of_segments = |high: u16, low: u16| {
        let [[a, b], [c, d]] = [high.to_be_bytes(), low.to_be_bytes()];
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x0064, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(of_segments(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cases: &[(&str, Option<&'static str>)]) {
        for (address, expected) in cases {
            let parsed = address.parse().expect("an address");
            assert_eq!(why_not_public(parsed), *expected, "{address}");
        }
    }

    #[test]
    fn every_kind_of_address_is_known() {
        #[rustfmt::skip]
        let cases = [
            ("1.1.1.1",                  None),
            ("8.8.8.8",                  None),
            ("93.184.216.34",            None),
            ("100.63.255.255",           None),
            ("100.128.0.0",              None),
            ("172.15.255.255",           None),
            ("172.32.0.0",               None),
            ("192.0.1.1",                None),
            ("192.169.0.1",              None),
            ("198.17.255.255",           None),
            ("198.20.0.0",               None),
            ("223.255.255.255",          None),
            ("0.0.0.0",                  Some(THIS_MACHINE)),
            ("0.1.2.3",                  Some(THIS_MACHINE)),
            ("127.0.0.1",                Some(THIS_MACHINE)),
            ("127.255.255.254",          Some(THIS_MACHINE)),
            ("10.0.0.5",                 Some(PRIVATE)),
            ("172.16.0.1",               Some(PRIVATE)),
            ("172.31.255.255",           Some(PRIVATE)),
            ("192.168.1.1",              Some(PRIVATE)),
            ("100.64.0.0",               Some(CARRIER)),
            ("100.127.255.255",          Some(CARRIER)),
            ("100.100.100.200",          Some(METADATA)),
            ("168.63.129.16",            Some(METADATA)),
            ("169.254.169.254",          Some(METADATA)),
            ("192.0.0.192",              Some(METADATA)),
            ("169.254.0.1",              Some(LINK_LOCAL)),
            ("192.0.0.8",                Some(RESERVED)),
            ("192.0.2.1",                Some(DOCUMENTATION)),
            ("198.51.100.1",             Some(DOCUMENTATION)),
            ("203.0.113.1",              Some(DOCUMENTATION)),
            ("192.88.99.1",              Some(RESERVED)),
            ("198.18.0.1",               Some(BENCHMARKING)),
            ("198.19.255.255",           Some(BENCHMARKING)),
            ("224.0.0.1",                Some(MULTICAST)),
            ("239.255.255.250",          Some(MULTICAST)),
            ("240.0.0.1",                Some(RESERVED)),
            ("255.255.255.255",          Some(BROADCAST)),
        ];
        check(&cases);
    }

    #[test]
    fn every_kind_of_newer_address_is_known() {
        #[rustfmt::skip]
        let cases = [
            ("2606:4700::1111",          None),
            ("2001:200::1",              None),
            ("2a00:1450::8a",            None),
            ("3ffe::1",                  None),
            ("::",                       Some(THIS_MACHINE)),
            ("::1",                      Some(THIS_MACHINE)),
            ("::2",                      Some(RESERVED)),
            ("::7f00:1",                 Some(RESERVED)),
            ("fc00::1",                  Some(PRIVATE)),
            ("fdff:ffff::1",             Some(PRIVATE)),
            ("fd00:ec2::254",            Some(METADATA)),
            ("fe80::1",                  Some(LINK_LOCAL)),
            ("febf::1",                  Some(LINK_LOCAL)),
            ("fec0::1",                  Some(RESERVED)),
            ("ff02::1",                  Some(MULTICAST)),
            ("100::1",                   Some(RESERVED)),
            ("2001:db8::1",              Some(DOCUMENTATION)),
            ("3fff:fff::1",              Some(DOCUMENTATION)),
            ("2001:2::1",                Some(BENCHMARKING)),
            ("2001::1",                  Some(RESERVED)),
            ("2001:10::1",               Some(RESERVED)),
            ("4000::1",                  Some(RESERVED)),
            ("5f00::1",                  Some(RESERVED)),
        ];
        check(&cases);
    }

    #[test]
    fn an_address_within_another_is_judged_as_itself() {
        #[rustfmt::skip]
        let cases = [
            ("::ffff:8.8.8.8",           None),
            ("::ffff:127.0.0.1",         Some(THIS_MACHINE)),
            ("::ffff:169.254.169.254",   Some(METADATA)),
            ("::ffff:0:10.0.0.1",        Some(RESERVED)),
            ("64:ff9b::8.8.8.8",         None),
            ("64:ff9b::10.0.0.5",        Some(PRIVATE)),
            ("64:ff9b:1::8.8.8.8",       Some(PRIVATE)),
            ("2002:808:808::1",          None),
            ("2002:7f00:1::1",           Some(THIS_MACHINE)),
            ("2002:c0a8:101::1",         Some(PRIVATE)),
        ];
        check(&cases);
    }

    #[test]
    fn only_literals_and_those_with_leave_are_trusted() {
        #[rustfmt::skip]
        let cases = [
            ("127.0.0.1",           Network::Public,  AddressPolicy::Anywhere),
            ("::1",                 Network::Public,  AddressPolicy::Anywhere),
            ("::ffff:10.0.0.1",     Network::Public,  AddressPolicy::Anywhere),
            ("localhost",           Network::Public,  AddressPolicy::PublicOnly),
            ("localhost",           Network::Private, AddressPolicy::Anywhere),
            // All of these are numbers to a resolver, and none of them says which to a reader.
            ("0x7f.1",              Network::Public,  AddressPolicy::PublicOnly),
            ("127.1",               Network::Public,  AddressPolicy::PublicOnly),
            ("2130706433",          Network::Public,  AddressPolicy::PublicOnly),
            ("0177.0.0.1",          Network::Public,  AddressPolicy::PublicOnly),
            ("0x7f000001",          Network::Public,  AddressPolicy::PublicOnly),
            ("127.0.0.1.",          Network::Public,  AddressPolicy::PublicOnly),
            ("fe80::1%eth0",        Network::Public,  AddressPolicy::PublicOnly),
        ];
        for (host, network, expected) in cases {
            assert_eq!(AddressPolicy::of(host, network), expected, "{host} {network:?}");
        }
    }

    #[test]
    fn of_several_addresses_the_public_ones_are_called() {
        let refused =
            |address: &str, what| Err(RefusedAddress { address: address.parse().expect("an address"), what });
        #[rustfmt::skip]
        let cases = [
            ("public",          AddressPolicy::PublicOnly, vec!["8.8.8.8:1", "1.1.1.1:1"],    Ok(vec!["8.8.8.8:1", "1.1.1.1:1"])),
            ("mixed",           AddressPolicy::PublicOnly, vec!["10.0.0.5:1", "8.8.8.8:1"],   Ok(vec!["8.8.8.8:1"])),
            ("private",         AddressPolicy::PublicOnly, vec!["10.0.0.5:1", "[::1]:1"],     refused("10.0.0.5", PRIVATE)),
            ("with leave",      AddressPolicy::Anywhere,   vec!["10.0.0.5:1", "8.8.8.8:1"],   Ok(vec!["10.0.0.5:1", "8.8.8.8:1"])),
            ("no address",      AddressPolicy::PublicOnly, vec![],                            Ok(vec![])),
        ];
        for (name, leave, addresses, expected) in cases {
            let addresses = addresses.into_iter().map(|one| one.parse().expect("an address"));
            let admitted = leave.admit(addresses);
            let admitted = admitted.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            let expected = expected.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(admitted, expected, "{name}");
        }
    }
}

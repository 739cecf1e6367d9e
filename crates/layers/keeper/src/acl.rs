//! Access lists: who a client is, and what it may do (ZooKeeper programmer's guide, "access control using ACLs").

use crate::wire::{Acl, Text};
use crate::wire::{Code, permission};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use std::rc::Rc;

/// Most entries of an access list, and bytes of their names: the node's row has them all. ZooKeeper has no bound but
/// that of the request.
const ENTRIES_MAX: usize = 1000;
const NAMES_BYTES_MAX: usize = 32 << 10;

/// One of the names by which a client is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub scheme: Text,
    pub id: Text,
}

impl Identity {
    pub fn new(scheme: &str, id: &str) -> Identity {
        Identity {
            scheme: scheme.into(),
            id: id.into(),
        }
    }

    /// Every client has its address.
    pub fn of_address(address: IpAddr) -> Identity {
        Identity::new("ip", &address.to_canonical().to_string())
    }
}

/// The id that `user:password` has in access lists: `user:base64(sha1(user:password))`.
pub fn digest(user_and_password: &str) -> String {
    let user = user_and_password.split(':').next().unwrap_or_default();
    let hash = sha1_smol::Sha1::from(user_and_password).digest().bytes();
    format!("{user}:{}", STANDARD.encode(hash))
}

/// What a client that offers `auth` under `scheme` is known as from now on. `super_digest` is the id of the user whom
/// no access list stops.
pub fn authenticate(
    scheme: &str,
    auth: &[u8],
    address: IpAddr,
    super_digest: Option<&str>,
) -> Result<Vec<Identity>, Code> {
    match scheme {
        "digest" => {
            let id = digest(&String::from_utf8_lossy(auth));
            let mut identities = Vec::new();
            if super_digest == Some(&id) {
                identities.push(Identity::new("super", ""));
            }
            identities.push(Identity::new("digest", &id));
            Ok(identities)
        }
        "ip" => Ok(vec![Identity::of_address(address)]),
        _ => Err(Code::AUTH_FAILED),
    }
}

/// The list that is stored for the list that a client sent: without repetitions, `auth` replaced by the client's own
/// identities.
pub fn fix_up(acl: &[Acl], caller: &[Identity]) -> Result<Rc<[Acl]>, Code> {
    if acl.is_empty() || acl.len() > ENTRIES_MAX {
        return Err(Code::INVALID_ACL);
    }
    let mut fixed: Vec<Acl> = Vec::with_capacity(acl.len());
    let mut seen = std::collections::BTreeSet::new();
    let mut add = |entry: Acl| {
        if seen.insert(entry.clone()) {
            fixed.push(entry);
        }
    };
    for entry in acl {
        match &*entry.scheme {
            "world" if entry.id == "anyone" => add(entry.clone()),
            "auth" => {
                let own = caller.iter().filter(|identity| identity.scheme == "digest");
                let mut is_anybody = false;
                for identity in own {
                    is_anybody = true;
                    add(Acl {
                        perms: entry.perms,
                        scheme: identity.scheme.detached(),
                        id: identity.id.detached(),
                    });
                }
                if !is_anybody {
                    return Err(Code::INVALID_ACL);
                }
            }
            "digest" if is_digest_id(&entry.id) => add(entry.clone()),
            "ip" if parse_network(&entry.id).is_some() => add(entry.clone()),
            "x509" if !entry.id.is_empty() => add(entry.clone()),
            _ => return Err(Code::INVALID_ACL),
        }
    }
    let names: usize = fixed
        .iter()
        .map(|entry| entry.scheme.len() + entry.id.len())
        .sum();
    if names > NAMES_BYTES_MAX {
        return Err(Code::INVALID_ACL);
    }
    let detach = |entry: Acl| Acl {
        perms: entry.perms,
        scheme: entry.scheme.detached(),
        id: entry.id.detached(),
    };
    Ok(fixed.into_iter().map(detach).collect())
}

fn is_digest_id(id: &str) -> bool {
    id.split(':').count() == 2
}

/// Fails with `NoAuth` unless the list gives one of `permissions` to one of the identities.
pub fn check(acl: &[Acl], permissions: i32, caller: &[Identity]) -> Result<(), Code> {
    let is_super = || caller.iter().any(|identity| identity.scheme == "super");
    let allows = |entry: &Acl| {
        entry.perms & permissions != 0
            && ((entry.scheme == "world" && entry.id == "anyone")
                || caller.iter().any(|identity| matches(entry, identity)))
    };
    match acl.is_empty() || acl.iter().any(allows) || is_super() {
        true => Ok(()),
        false => Err(Code::NO_AUTH),
    }
}

fn matches(entry: &Acl, identity: &Identity) -> bool {
    if entry.scheme != *identity.scheme {
        return false;
    }
    match &*entry.scheme {
        "ip" => match (parse_network(&entry.id), identity.id.parse()) {
            (Some((network, bits)), Ok(address)) => is_inside(address, network, bits),
            _ => false,
        },
        _ => entry.id == identity.id,
    }
}

/// `address` or `address/bits`.
fn parse_network(id: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match id.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (id, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let whole = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(whole), |bits| bits.parse().ok())?;
    (bits <= whole).then_some((address, bits))
}

fn is_inside(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let differ = number(address) ^ number(network);
    address.is_ipv4() == network.is_ipv4() && differ.leading_zeros() >= bits
}

/// The list as somebody without the permission to administrate sees it: hashes of passwords are replaced by `x`.
pub fn masked(acl: &[Acl], caller: &[Identity]) -> Vec<Acl> {
    let is_shown = check(acl, permission::ADMIN, caller).is_ok();
    let mask = |entry: &Acl| match (&*entry.scheme, entry.id.split_once(':')) {
        ("digest", Some((user, _))) if !is_shown => Acl {
            id: format!("{user}:x").into(),
            ..entry.clone()
        },
        _ => entry.clone(),
    };
    acl.iter().map(mask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(perms: i32, scheme: &str, id: &str) -> Acl {
        Acl {
            perms,
            scheme: scheme.into(),
            id: id.into(),
        }
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

    #[test]
    fn a_digest_is_what_zookeepers_own_tool_prints() {
        assert_eq!(digest("super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }

    #[test]
    fn a_client_is_known_by_what_it_can_prove() {
        let known = authenticate("digest", b"u:p", HERE, None).expect("any password will do");
        assert_eq!(known, [Identity::new("digest", &digest("u:p"))]);
        let of_super = digest("super:test");
        let known = authenticate("digest", b"super:test", HERE, Some(&of_super));
        assert_eq!(known.expect("it is super")[0], Identity::new("super", ""));
        assert_eq!(
            authenticate("kerberos", b"", HERE, None),
            Err(Code::AUTH_FAILED)
        );
    }

    #[test]
    fn lists_are_fixed_up_as_zookeeper_does() {
        let me = [
            Identity::of_address(HERE),
            Identity::new("digest", "me:hash"),
        ];
        let fixed = fix_up(
            &[entry(31, "auth", ""), entry(31, "digest", "me:hash")],
            &me,
        );
        assert_eq!(*fixed.expect("a list"), [entry(31, "digest", "me:hash")]);
        for bad in [
            vec![],
            vec![entry(31, "world", "everyone")],
            vec![entry(31, "digest", "nocolon")],
            vec![entry(31, "ip", "10.0.0.0/33")],
            vec![entry(31, "", "")],
            vec![entry(31, "unheard-of", "x")],
        ] {
            assert_eq!(fix_up(&bad, &me), Err(Code::INVALID_ACL), "{bad:?}");
        }
        assert_eq!(
            fix_up(&[entry(31, "auth", "")], &me[..1]),
            Err(Code::INVALID_ACL)
        );
    }

    #[test]
    fn a_list_lets_in_whom_it_names() {
        let me = [
            Identity::of_address(HERE),
            Identity::new("digest", "me:hash"),
        ];
        let read = permission::READ;
        for good in [
            entry(31, "world", "anyone"),
            entry(1, "digest", "me:hash"),
            entry(1, "ip", "10.1.2.3"),
            entry(1, "ip", "10.1.0.0/16"),
            entry(1, "ip", "99.0.0.0/0"),
        ] {
            assert_eq!(check(&[good], read, &me), Ok(()));
        }
        for bad in [
            entry(30, "world", "anyone"),
            entry(1, "digest", "me:other"),
            entry(1, "ip", "10.1.2.4"),
            entry(1, "ip", "10.2.0.0/16"),
            entry(1, "ip", "::/0"),
        ] {
            assert_eq!(check(&[bad], read, &me), Err(Code::NO_AUTH));
        }
        let god = [Identity::new("super", "")];
        assert_eq!(check(&[entry(0, "world", "anyone")], read, &god), Ok(()));
    }

    #[test]
    fn hashes_of_passwords_are_shown_to_administrators_only() {
        let acl = [entry(1, "world", "anyone"), entry(16, "digest", "me:hash")];
        assert_eq!(masked(&acl, &[])[1].id, "me:x");
        let me = [Identity::new("digest", "me:hash")];
        assert_eq!(masked(&acl, &me)[1].id, "me:hash");
    }
}

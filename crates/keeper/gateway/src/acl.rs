//! Access lists: who a client is, and what it may do (ZooKeeper programmer's guide, "access control using ACLs").

mod distinguished;

pub use distinguished::is_valid as is_distinguished_name;

use crate::doors::Origin;
use crate::wire::{Acl, Code, Text, permission};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use std::rc::Rc;

/// Most entries of an access list, and bytes of their names: the node's row has them all. ZooKeeper has no bound but
/// that of the request.
const ENTRIES_MAX: usize = 1000;
const NAMES_BYTES_MAX: usize = 32 << 10;
/// Of all names of a client, in memory.
const IDENTITIES_BYTES_MAX: usize = 64 << 10;

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

    /// Approximate size in memory.
    pub fn bytes(&self) -> usize {
        size_of::<Identity>() + self.scheme.len() + self.id.len()
    }
}

/// Whom no access list stops.
#[derive(Clone, Copy, Default)]
pub struct Supers<'a> {
    /// `user:` and the hash of the password.
    pub digest: Option<&'a str>,
    /// The subject of a certificate.
    pub x509: Option<&'a str>,
}

/// Who a client is before it says anything: what its connection proves.
pub fn of_connection(address: IpAddr, origin: &Origin, supers: Supers) -> Rc<[Identity]> {
    let mut all = vec![Identity::of_address(address)];
    let _ = add_identities(&mut all, of_certificate(origin, supers)); // a name of a certificate is short
    all.into()
}

/// Whom the client's certificate names, if it has shown one.
fn of_certificate(origin: &Origin, supers: Supers) -> Vec<Identity> {
    let Some(name) = &origin.certified else {
        return Vec::new();
    };
    let mut identities = vec![Identity::new("x509", name)];
    if supers.x509 == Some(name) {
        identities.insert(0, Identity::new("super", name));
    }
    identities
}

/// Adds what is not there yet. They stand in the order in which ZooKeeper's server would go through them, which
/// decides what `whoAmI` says and which entries stand for `auth` in an access list.
///
/// # Errors
/// The client would have more names than anybody needs.
pub fn add_identities(all: &mut Vec<Identity>, new: Vec<Identity>) -> Result<(), Code> {
    for identity in new {
        if !all.contains(&identity) {
            all.push(identity);
        }
    }
    if all.iter().map(Identity::bytes).sum::<usize>() > IDENTITIES_BYTES_MAX {
        return Err(Code::AUTH_FAILED);
    }
    // It has them in Java's hash set, which begins with 16 places and has no more than three for every four.
    let mut places = 16;
    while all.len() >= places / 4 * 3 {
        places *= 2;
    }
    all.sort_by_key(|identity| java_hash(identity) as usize % places);
    Ok(())
}

/// `hashCode` of ZooKeeper's `Id`, spread as Java's maps do it.
fn java_hash(identity: &Identity) -> u32 {
    let of_text = |text: &str| {
        let add = |hash: u32, unit: u16| hash.wrapping_mul(31).wrapping_add(unit.into());
        text.encode_utf16().fold(0, add)
    };
    let hash = [&identity.scheme, &identity.id]
        .into_iter()
        .fold(17_u32, |hash, text| {
            hash.wrapping_mul(37).wrapping_add(of_text(text))
        });
    (hash ^ (hash >> 16)) & 0x7fff_ffff
}

/// The id that `user:password` has in access lists: `user:base64(sha1(user:password))`.
pub fn digest(user_and_password: &str) -> String {
    let user = user_and_password.split(':').next().unwrap_or_default();
    let hash = sha1_smol::Sha1::from(user_and_password).digest().bytes();
    format!("{user}:{}", STANDARD.encode(hash))
}

/// What a client that offers `auth` under `scheme` is known as from now on.
pub fn authenticate(
    scheme: &str,
    auth: Option<&[u8]>,
    (address, origin): (IpAddr, &Origin),
    supers: Supers,
) -> Result<Vec<Identity>, Code> {
    match scheme {
        "digest" => {
            let auth = auth.ok_or(Code::AUTH_FAILED)?;
            let id = digest(&String::from_utf8_lossy(auth));
            let mut identities = Vec::new();
            if supers.digest == Some(&id) {
                identities.push(Identity::new("super", ""));
            }
            identities.push(Identity::new("digest", &id));
            Ok(identities)
        }
        "ip" => Ok(vec![Identity::of_address(address)]),
        "x509" if origin.certified.is_some() => Ok(of_certificate(origin, supers)),
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
    let mut add = |entry: Acl| fixed.push(entry);
    let mut seen = std::collections::BTreeSet::new();
    // What stands for `auth` may repeat another entry, as in ZooKeeper's server.
    for entry in acl.iter().filter(|entry| seen.insert(*entry)) {
        match &*entry.scheme {
            "world" if entry.id == "anyone" => add(entry.clone()),
            "auth" => {
                let own = caller.iter().filter(|identity| {
                    let scheme = &*identity.scheme;
                    scheme == "digest" || scheme == "x509"
                });
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
            // Also where there is no secure port: another gateway of the tree may have one.
            "x509" if distinguished::is_valid(&entry.id) => add(entry.clone()),
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
    // What is empty at the end is no part to Java.
    id.trim_end_matches(':').split(':').count() == 2
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

    #[test]
    fn a_client_has_no_more_names_than_a_batch_has_room_for() {
        let mut all = Vec::new();
        let long = |n: usize| vec![Identity::new("digest", &format!("{n}{}", "x".repeat(1000)))];
        let added = (0..100).take_while(|n| add_identities(&mut all, long(*n)).is_ok());
        assert!((50..65).contains(&added.count()));
    }

    /// What `whoAmI` of ZooKeeper 3.9.3 says after logins as super, one, two, user0, user1 and so on.
    #[test]
    fn the_names_of_a_client_stand_in_javas_order() {
        let mut all = vec![Identity::of_address([127, 0, 0, 1].into())];
        let mut log_in = |user: &str| {
            let mut new = vec![Identity::new("digest", &digest(user))];
            if user == "super:test" {
                new.insert(0, Identity::new("super", ""));
            }
            add_identities(&mut all, new.clone()).expect("they are few");
            add_identities(&mut all, new).expect("they are there already");
            let shown = |identity: &Identity| match &*identity.scheme {
                "digest" => identity.id.split(':').next().expect("a user").to_string(),
                scheme => scheme.to_string(),
            };
            all.iter().map(shown).collect::<Vec<String>>().join(" ")
        };
        assert_eq!(log_in("super:test"), "super ip super");
        assert_eq!(log_in("one:1"), "super ip super one");
        assert_eq!(log_in("two:2"), "super two ip super one");
        let after = |first, last, log_in: &mut dyn FnMut(&str) -> String| {
            let users = (first..=last).map(|user| log_in(&format!("user{user}:p")));
            users.last().expect("some log in")
        };
        assert_eq!(
            after(0, 5, &mut log_in),
            "user2 user0 user3 user5 user1 user4 super two ip super one"
        );
        assert_eq!(
            after(6, 11, &mut log_in),
            "user3 user5 user1 user7 user9 user6 ip user8 user2 user0 user10 user11 user4 super two super one"
        );
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

    #[test]
    fn a_digest_is_what_zookeepers_own_tool_prints() {
        assert_eq!(digest("super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }

    #[test]
    fn a_client_is_known_by_what_it_can_prove() {
        let plain = Origin::default();
        let authenticate = |scheme: &str, auth: Option<&[u8]>, supers: Supers| {
            authenticate(scheme, auth, (HERE, &plain), supers)
        };
        let none = Supers::default();
        let known = authenticate("digest", Some(b"u:p"), none).expect("any password will do");
        assert_eq!(known, [Identity::new("digest", &digest("u:p"))]);
        let of_super = digest("super:test");
        let of_super = Supers {
            digest: Some(&of_super),
            ..none
        };
        let known = authenticate("digest", Some(b"super:test"), of_super);
        assert_eq!(known.expect("it is super")[0], Identity::new("super", ""));
        assert_eq!(
            authenticate("kerberos", Some(b""), none),
            Err(Code::AUTH_FAILED)
        );
        assert_eq!(authenticate("digest", None, none), Err(Code::AUTH_FAILED));
        let known = authenticate("ip", None, none).expect("it has an address");
        assert_eq!(known, [Identity::of_address(HERE)]);
        let unknown = authenticate("x509", None, none);
        assert_eq!(
            unknown,
            Err(Code::AUTH_FAILED),
            "it has shown no certificate"
        );
    }

    fn certified(name: &str) -> Origin {
        Origin {
            is_secure: true,
            certified: Some(name.into()),
        }
    }

    #[test]
    fn a_client_with_a_certificate_is_known_by_its_subject_too() {
        let none = Supers::default();
        let own = Identity::new("x509", "CN=a,O=b");
        let known = of_connection(HERE, &certified("CN=a,O=b"), none);
        assert!(known.len() == 2 && known.contains(&own));
        assert!(known.contains(&Identity::of_address(HERE)));
        let again = authenticate("x509", None, (HERE, &certified("CN=a,O=b")), none);
        assert_eq!(again.expect("it has shown one"), std::slice::from_ref(&own));
        let of_super = Supers {
            x509: Some("CN=a,O=b"),
            ..none
        };
        let known = of_connection(HERE, &certified("CN=a,O=b"), of_super);
        let closed = [entry(0, "world", "anyone")];
        assert_eq!(check(&closed, permission::READ, &known), Ok(()));
        assert!(known.contains(&own) && known.contains(&Identity::new("super", "CN=a,O=b")));
        let known = of_connection(HERE, &certified("CN=a"), of_super);
        assert_eq!(check(&closed, permission::READ, &known), Err(Code::NO_AUTH));
    }

    #[test]
    fn the_subject_of_a_certificate_is_compared_as_it_is() {
        let me = of_connection(HERE, &certified("CN=a,O=b"), Supers::default());
        let read = |id: &str| check(&[entry(1, "x509", id)], permission::READ, &me);
        assert_eq!(read("CN=a,O=b"), Ok(()));
        for other in ["CN=a", "CN=a, O=b", "cn=a,O=b", "O=b,CN=a", "CN=a,O=b ", ""] {
            assert_eq!(read(other), Err(Code::NO_AUTH), "{other}");
        }
        let in_vain = [entry(1, "digest", "CN=a,O=b"), entry(1, "ip", "CN=a,O=b")];
        assert_eq!(check(&in_vain, permission::READ, &me), Err(Code::NO_AUTH));
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
        let own = entry(31, "digest", "me:hash");
        assert_eq!(*fixed.expect("a list"), [own.clone(), own.clone()]);
        let twice = [own.clone(), entry(1, "ip", "10.0.0.1"), own.clone()];
        assert_eq!(*fix_up(&twice, &me).expect("a list"), twice[..2]);
        let named = [
            entry(1, "x509", "CN=client, O=Ours"),
            entry(2, "x509", "CN=client"),
        ];
        assert_eq!(*fix_up(&named, &[]).expect("a list"), named);
        let certified = of_connection(HERE, &certified("CN=a"), Supers::default());
        let fixed = fix_up(&[entry(31, "auth", "")], &certified).expect("a list");
        assert_eq!(*fixed, [entry(31, "x509", "CN=a")]);
        let odd = [entry(1, "digest", ":b"), entry(1, "digest", "a:b::")];
        assert_eq!(*fix_up(&odd, &me).expect("a list"), odd);
        for bad in [
            vec![],
            vec![entry(31, "world", "everyone")],
            vec![entry(31, "digest", "nocolon")],
            vec![entry(31, "digest", "a:")],
            vec![entry(31, "digest", "a:b:c")],
            vec![entry(31, "ip", "10.0.0.0/33")],
            vec![entry(31, "", "")],
            vec![entry(31, "unheard-of", "x")],
            vec![entry(31, "x509", "client")],
            vec![entry(31, "x509", "")],
            vec![entry(31, "sasl", "client")],
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

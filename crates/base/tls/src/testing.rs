//! Makes certificates for tests.

use crate::{Material, Part};
use bytes::Bytes;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    RevokedCertParams, SanType, SerialNumber,
};
use std::cell::Cell;
use std::fmt;

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    pub certificate: String,
    pub key: String,
    /// Of the certificate.
    pub serial: u64,
}

/// Who signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    issued: Cell<u64>,
    pub pem: String,
}

/// What a certificate is to say.
#[derive(Clone)]
pub struct Wanted<'a> {
    pub name: &'a str,
    pub organization: &'a str,
    /// Years: the first of January of each.
    pub from: i32,
    pub to: i32,
    /// For use by both sides, or by these only.
    pub usages: &'a [ExtendedKeyUsagePurpose],
    /// Addresses and host names at which it is reached.
    pub places: &'a [&'a str],
}

impl Wanted<'_> {
    pub fn named(name: &str) -> Wanted<'_> {
        Wanted {
            name,
            organization: "Plinth",
            from: 2000,
            to: 2100,
            usages: &[],
            places: &[],
        }
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        let name = &mut params.distinguished_name;
        name.push(DnType::OrganizationName, self.organization);
        name.push(DnType::CommonName, self.name);
        params.not_before = rcgen::date_time_ymd(self.from, 1, 1);
        params.not_after = rcgen::date_time_ymd(self.to, 1, 1);
        params.extended_key_usages = self.usages.to_vec();
        let place = |place: &&str| match place.parse() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(made((*place).try_into())),
        };
        params.subject_alt_names = self.places.iter().map(place).collect();
        params
    }
}

fn made<T>(result: Result<T, impl fmt::Debug>) -> T {
    result.expect("it can be made")
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = Wanted::named(name).params();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = made(KeyPair::generate());
        let pem = made(params.self_signed(&key)).pem();
        let issuer = Issuer::new(params, key);
        Authority {
            issuer,
            issued: Cell::new(0),
            pem,
        }
    }

    pub fn issue(&self, wanted: &Wanted) -> Pair {
        let key = made(KeyPair::generate());
        let mut params = wanted.params();
        let serial = self.issued.get() + 1;
        self.issued.set(serial);
        params.serial_number = Some(SerialNumber::from(serial));
        let signed = made(params.signed_by(&key, &self.issuer));
        Pair {
            certificate: signed.pem(),
            key: key.serialize_pem(),
            serial,
        }
    }

    /// The list of those of its certificates that it has revoked, as PEM. A newer one was due in `next`.
    pub fn revoked(&self, pairs: &[&Pair], next: i32) -> String {
        let of = |pair: &&Pair| RevokedCertParams {
            serial_number: SerialNumber::from(pair.serial),
            revocation_time: rcgen::date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2001, 1, 1),
            next_update: rcgen::date_time_ymd(next, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: pairs.iter().map(of).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        made(made(list.signed_by(&self.issuer)).pem())
    }

    /// One that signs in the name of this one.
    pub fn intermediate(&self, wanted: &Wanted) -> Authority {
        let mut params = wanted.params();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let key = made(KeyPair::generate());
        let pem = made(params.signed_by(&key, &self.issuer)).pem();
        let issuer = Issuer::new(params, key);
        Authority {
            issuer,
            issued: Cell::new(0),
            pem,
        }
    }
}

/// A certificate that nobody but itself has signed.
pub fn self_signed(name: &str) -> Pair {
    let key = made(KeyPair::generate());
    let signed = made(Wanted::named(name).params().self_signed(&key));
    Pair {
        certificate: signed.pem(),
        key: key.serialize_pem(),
        serial: 0,
    }
}

/// What a process would read from files.
pub fn material(own: &Pair, ca: &str) -> Material {
    let part = |name: &str, text: &str| Part {
        name: name.to_owned(),
        bytes: Bytes::copy_from_slice(text.as_bytes()),
        mode: None,
    };
    Material {
        certificate: part("cert.pem", &own.certificate),
        key: part("key.pem", &own.key),
        ca: part("ca.pem", ca),
        password: None,
    }
}

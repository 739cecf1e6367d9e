//! Whether the certificate of a peer is taken, and what it stands for.

use crate::PROVIDER;
use crate::x509::{self, shown};
use plinth_identity::rules::{self, Name, Rules};
use plinth_identity::{Identity, Side};
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use std::time::Duration;
use webpki::{
    CertRevocationList, EndEntityCert, KeyUsage, RevocationOptionsBuilder, UnknownStatusPolicy,
};

/// A longer chain is refused before it is looked at.
const CHAIN_MAX: usize = 10;

/// What is asked of the certificates of others, and what they stand for.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Policy {
    pub rules: Rules,
    /// The first one that holds says what a peer is. Without any, whoever satisfies `rules` is a server.
    pub identities: Vec<(Identity, Rules)>,
}

impl Policy {
    /// Parses rules, and identities of the form `client:S.CN=…`. The error is a line for the user.
    pub fn parse<'a>(
        rules: impl IntoIterator<Item = &'a str>,
        identities: impl IntoIterator<Item = &'a str>,
    ) -> Result<Policy, String> {
        let rules = Rules::parse(rules).map_err(|error| error.to_string())?;
        let identities = identities.into_iter().map(|text| {
            let (name, rules) = text.split_once(':').unwrap_or((text, ""));
            let identity = Identity::from_name(name).filter(|one| *one != Identity::Nobody);
            let Some(identity) = identity else {
                return Err(format!(
                    "`{text}' does not begin with server:, operator:, client: or reader:"
                ));
            };
            match Rules::parse([rules]) {
                Ok(rules) => Ok((identity, rules)),
                Err(error) => Err(format!("`{text}': {error}")),
            }
        });
        let identities = identities.collect::<Result<_, _>>()?;
        Ok(Policy { rules, identities })
    }
}

/// A certificate that is trusted to sign others.
pub struct Root {
    pub der: CertificateDer<'static>,
    pub anchor: TrustAnchor<'static>,
    pub said: x509::Certificate,
}

/// What a CA file says.
#[derive(Default)]
pub struct Trust {
    pub roots: Vec<Root>,
    /// One for each that signs others, at most. One that is due for renewal still counts: to refuse everybody then
    /// would stop a cluster for a date.
    pub revoked: Vec<CertRevocationList<'static>>,
    /// Its name.
    pub file: String,
}

pub struct Judge {
    pub policy: Policy,
    trust: Trust,
    anchors: Vec<TrustAnchor<'static>>,
}

/// Why a certificate is not taken.
#[derive(Debug)]
pub struct Refused {
    /// A line for our user.
    pub line: String,
    /// What the other side is told.
    pub told: CertificateError,
}

/// How a chain leads to a root.
enum Path<'a> {
    Trusted { is_unexpired: bool, root: &'a Root },
    Broken(webpki::Error),
}

/// The certificate, as lines for the user name it.
fn of(certificate: &rules::Certificate) -> String {
    format!("subject {}", shown(&certificate.subject))
}

fn at(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(seconds))
}

impl Judge {
    pub fn new(policy: Policy, trust: Trust) -> Judge {
        let anchors = trust.roots.iter().map(|root| root.anchor.clone());
        Judge {
            policy,
            anchors: anchors.collect(),
            trust,
        }
    }

    /// What the peer is that has shown this chain, its own certificate first; an opener takes only servers. Whether it
    /// has the key is not looked at.
    pub fn judge(
        &self,
        side: Side,
        chain: &[CertificateDer],
        now: u64,
    ) -> Result<Identity, Refused> {
        let certificate = self.trusted(side, chain, now)?;
        self.stands_for(side, &certificate)
    }

    /// The same without asking what the peer stands for.
    pub fn trusted(
        &self,
        side: Side,
        chain: &[CertificateDer],
        now: u64,
    ) -> Result<rules::Certificate, Refused> {
        let malformed = || Refused {
            line: "the peer's certificate is malformed, or its chain is too long; make it anew"
                .into(),
            told: CertificateError::BadEncoding,
        };
        let [own, rest @ ..] = chain else {
            return self.check(rules::Certificate::default(), None);
        };
        if chain.len() > CHAIN_MAX {
            return Err(malformed());
        }
        let said = x509::certificate(own).ok_or_else(malformed)?;
        let path = self.path(side, own, rest, &said, now);
        let (is_valid, is_unexpired, root) = match &path {
            Path::Trusted { is_unexpired, root } => {
                (true, *is_unexpired, root.said.subject.clone())
            }
            Path::Broken(_) => (false, false, Name::default()),
        };
        let broken = match &path {
            Path::Broken(error) => Some(error),
            Path::Trusted { .. } => None,
        };
        let certificate = rules::Certificate {
            is_valid,
            is_unexpired,
            subject: said.subject,
            issuer: said.issuer,
            root,
        };
        self.check(certificate, broken)
    }

    fn check(
        &self,
        certificate: rules::Certificate,
        broken: Option<&webpki::Error>,
    ) -> Result<rules::Certificate, Refused> {
        let Err(mismatch) = self.policy.rules.check(&certificate) else {
            return Ok(certificate);
        };
        if broken == Some(&webpki::Error::CertRevoked) {
            let line = format!(
                "the peer's certificate was revoked; give it another one ({}, in a list in {})",
                of(&certificate),
                self.trust.file
            );
            let told = CertificateError::Revoked;
            return Err(Refused { line, told });
        }
        let told = match &mismatch {
            rules::Mismatch::NotValid => CertificateError::UnknownIssuer,
            rules::Mismatch::Expired => CertificateError::Expired,
            rules::Mismatch::Conditions(_) => CertificateError::ApplicationVerificationFailure,
        };
        let because = broken.map_or_else(String::new, |error| format!("; {}", self.explain(error)));
        let line = format!("{mismatch} ({}{because})", of(&certificate));
        Err(Refused { line, told })
    }

    fn stands_for(
        &self,
        side: Side,
        certificate: &rules::Certificate,
    ) -> Result<Identity, Refused> {
        let mut identities = self.policy.identities.iter();
        let fits = |(_, rules): &&(Identity, Rules)| rules.check(certificate).is_ok();
        let told = CertificateError::ApplicationVerificationFailure;
        let identity = match identities.find(fits) {
            Some((identity, _)) => *identity,
            None if self.policy.identities.is_empty() => Identity::Server,
            None => {
                let line = format!(
                    "no --tls-identity fits the peer's certificate ({}); add one, or give it another certificate",
                    of(certificate)
                );
                return Err(Refused { line, told });
            }
        };
        if side == Side::Opener && identity != Identity::Server {
            let line = format!(
                "by --tls-identity the other side's certificate stands for a {identity}, and not for a server ({})",
                of(certificate)
            );
            return Err(Refused { line, told });
        }
        Ok(identity)
    }

    fn path(
        &self,
        side: Side,
        own: &CertificateDer,
        rest: &[CertificateDer],
        said: &x509::Certificate,
        now: u64,
    ) -> Path<'_> {
        // One that is in the CA file needs nobody to sign it.
        if let Some(root) = self.trust.roots.iter().find(|root| root.der == *own) {
            let is_unexpired = said.dates.include(now);
            return Path::Trusted { is_unexpired, root };
        }
        let end = match EndEntityCert::try_from(own) {
            Ok(end) => end,
            Err(error) => return Path::Broken(error),
        };
        let root_at = |seconds| self.root_of(side, &end, rest, at(seconds));
        let error = match root_at(now) {
            Ok(root) => {
                let is_unexpired = root.said.dates.include(now);
                return Path::Trusted { is_unexpired, root };
            }
            Err(error) => error,
        };
        let is_late = matches!(
            error,
            webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. }
        );
        if !is_late {
            return Path::Broken(error);
        }
        // A chain that is good apart from its dates was good when the last of it began, if it ever was.
        let others = rest.iter().filter_map(|one| x509::certificate(one));
        let begins = others.map(|one| one.dates.from).chain([said.dates.from]);
        match begins.filter_map(|from| root_at(from).ok()).next() {
            Some(root) => Path::Trusted {
                is_unexpired: false,
                root,
            },
            None => Path::Broken(error),
        }
    }

    fn root_of(
        &self,
        side: Side,
        end: &EndEntityCert,
        rest: &[CertificateDer],
        time: UnixTime,
    ) -> Result<&Root, webpki::Error> {
        let usage = match side {
            Side::Opener => KeyUsage::server_auth(),
            Side::Acceptor => KeyUsage::client_auth(),
        };
        let algorithms = PROVIDER.signature_verification_algorithms.all;
        let revoked: Vec<_> = self.trust.revoked.iter().collect();
        let revoked = RevocationOptionsBuilder::new(&revoked).ok(); // without a list nothing is revoked
        let revoked = revoked.map(|of| of.with_status_policy(UnknownStatusPolicy::Allow).build());
        let path =
            end.verify_for_usage(algorithms, &self.anchors, rest, time, usage, revoked, None)?;
        let anchor = path.anchor();
        let is_it = |root: &&Root| {
            root.anchor.subject == anchor.subject
                && root.anchor.subject_public_key_info == anchor.subject_public_key_info
        };
        let root = self.trust.roots.iter().find(is_it);
        root.ok_or(webpki::Error::UnknownIssuer)
    }

    fn explain(&self, error: &webpki::Error) -> String {
        match error {
            // The second: somebody with the same name has signed it.
            webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                format!("nobody in {} has signed it", self.trust.file)
            }
            webpki::Error::CaUsedAsEndEntity => format!(
                "it is a certificate for signing others, and not in {}",
                self.trust.file
            ),
            webpki::Error::UnsupportedCertVersion => {
                "it is no X.509 certificate of version 3: make it with extensions".into()
            }
            webpki::Error::IssuerNotCrlSigner
            | webpki::Error::InvalidCrlSignatureForPublicKey
            | webpki::Error::UnsupportedCrlSignatureAlgorithmForPublicKeyContext(_) => format!(
                "{} has a list of revoked certificates that was not signed by who has signed this one, or who may not \
                 sign lists",
                self.trust.file
            ),
            error => format!("{error:?}"),
        }
    }
}

//! What is in the files of a process: its certificate, the key of that, and who may sign others.

use crate::judge::{Root, Trust};
use crate::{PROVIDER, x509};
use bytes::Bytes;
use pkcs8::{EncryptedPrivateKeyInfoRef, SecretDocument};
use plinth_identity::files::FileKind;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs8KeyDer,
};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use webpki::{CertRevocationList, OwnedCertRevocationList};
use zeroize::Zeroizing;

/// Bits of the mode that let others read or change the key.
const OTHERS: u32 = 0o077;
const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
/// How older programs say that a key has a password.
const ENCRYPTED_BEFORE: &str = "Proc-Type: 4,ENCRYPTED";

/// One of the files.
#[derive(Clone, PartialEq, Eq)]
pub struct Part {
    /// What lines for the user call it.
    pub name: String,
    pub bytes: Bytes,
    /// `None` if it is no file.
    pub mode: Option<u32>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    pub certificate: Part,
    pub key: Part,
    pub ca: Part,
    /// Of the key.
    pub password: Option<Zeroizing<String>>,
}

fn certificates(part: &Part) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&part.bytes).collect();
    match read {
        Ok(all) if all.is_empty() => Err(match FileKind::Certificate.instead(&part.bytes) {
            Some(other) => format!("{}: {other}", part.name),
            None => format!(
                "{}: there is no certificate in it; it must be a PEM file",
                part.name
            ),
        }),
        Ok(all) => Ok(all),
        Err(error) => Err(format!("{}: {error}", part.name)),
    }
}

/// Those in a CA file.
pub(crate) fn roots(ca: &Part) -> Result<Vec<Root>, String> {
    let roots = certificates(ca)?.into_iter().map(|der| {
        let wrong = |what: String| format!("{}: a certificate is wrong: {what}", ca.name);
        let said = x509::certificate(&der).ok_or_else(|| wrong("it is malformed".into()))?;
        let anchor = webpki::anchor_from_trusted_cert(&der);
        let anchor = anchor
            .map_err(|error| wrong(format!("{error:?}")))?
            .to_owned();
        Ok(Root { der, anchor, said })
    });
    roots.collect()
}

impl Material {
    /// Our certificate with its chain and its key.
    pub(crate) fn certified_key(&self) -> Result<CertifiedKey, String> {
        let chain = certificates(&self.certificate)?;
        let name = &self.certificate.name;
        if x509::certificate(&chain[0]).is_none() {
            return Err(format!("{name}: its first certificate is malformed"));
        }
        let made = CertifiedKey::from_der(chain, self.private_key()?, &PROVIDER);
        made.map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => format!(
                "{}: it is not the key of the first certificate in {name}; put files of one pair there",
                self.key.name
            ),
            Error::InvalidCertificate(error) => format!("{name}: its first certificate is wrong: {error}"),
            error => format!(
                "{}: the key cannot be used: {error}; make one of the kinds RSA, P-256, P-384 or Ed25519",
                self.key.name
            ),
        })
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, String> {
        let Part { name, bytes, mode } = &self.key;
        if let Some(other) = FileKind::PrivateKey.instead(bytes) {
            return Err(format!("{name}: {other}"));
        }
        if let Some(mode) = mode.filter(|mode| mode & OTHERS != 0) {
            return Err(format!(
                "{name}: others can read this private key (mode {:04o}); run chmod 600 on it, and make a new one if \
                 somebody may have",
                mode & 0o7777
            ));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| format!("{name}: it is not text"))?;
        if text.contains(ENCRYPTED_BEFORE) {
            return Err(format!(
                "{name}: its password is kept in an outdated way; run openssl pkcs8 -topk8 -v2 aes256 on it"
            ));
        }
        match text.find(ENCRYPTED) {
            Some(begin) => self.decrypted(&text[begin..]),
            None => PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
                rustls::pki_types::pem::Error::NoItemsFound => {
                    format!("{name}: there is no private key in it; it must be a PEM file")
                }
                error => format!("{name}: {error}"),
            }),
        }
    }

    /// The first key of `text`, which is encrypted.
    fn decrypted(&self, text: &str) -> Result<PrivateKeyDer<'static>, String> {
        let name = &self.key.name;
        let Some(password) = &self.password else {
            return Err(format!(
                "{name}: the private key has a password; give it with --tls-password"
            ));
        };
        const END: &str = "-----END ENCRYPTED PRIVATE KEY-----";
        let malformed = || format!("{name}: its private key is malformed");
        let end = text.find(END).ok_or_else(malformed)? + END.len();
        let (_, document) = SecretDocument::from_pem(&text[..end]).map_err(|_| malformed())?;
        let sealed = EncryptedPrivateKeyInfoRef::try_from(document.as_bytes());
        let opened = sealed
            .map_err(|_| malformed())?
            .decrypt(password.as_bytes());
        let opened = opened.map_err(|_| {
            format!("{name}: the password of the private key is wrong; see --tls-password")
        })?;
        Ok(PrivatePkcs8KeyDer::from(opened.as_bytes().to_vec()).into())
    }

    /// Who may sign the certificates of others, and what they have revoked.
    pub(crate) fn trust(&self) -> Result<Trust, String> {
        Ok(Trust {
            roots: roots(&self.ca)?,
            revoked: self.revoked()?,
            file: self.ca.name.clone(),
        })
    }

    fn revoked(&self) -> Result<Vec<CertRevocationList<'static>>, String> {
        let lists = CertificateRevocationListDer::pem_slice_iter(&self.ca.bytes);
        let name = &self.ca.name;
        let lists = lists.map(|der| {
            let der = der.map_err(|error| format!("{name}: {error}"))?;
            let list = OwnedCertRevocationList::from_der(&der).map_err(|error| {
                format!("{name}: a list of revoked certificates is wrong: {error:?}")
            });
            list.map(CertRevocationList::from)
        });
        lists.collect()
    }

    /// When the first of our certificate and its chain ends, in seconds since 1970.
    pub(crate) fn ends(&self) -> Option<u64> {
        let chain = certificates(&self.certificate).ok()?;
        let dates = chain.iter().map(|der| Some(x509::certificate(der)?.dates));
        dates.map(|dates| Some(dates?.to)).min()?
    }

    /// Our certificate, for people.
    pub(crate) fn shown(&self, certified: &CertifiedKey) -> String {
        let said = certified
            .cert
            .first()
            .and_then(|own| x509::certificate(own));
        let subject = said.map_or_else(String::new, |said| x509::shown(&said.subject));
        format!("{} (subject {subject})", self.certificate.name)
    }
}

//! What `rustls` asks about certificates during a handshake, and where the answers are kept.

use crate::judge::{Judge, Refused};
use plinth_identity::{Identity, Side};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Who looks at the certificates of a handshake, and what it makes of them.
pub(crate) trait Looker: Send + Sync + 'static {
    type Found: Clone + Send;

    /// Judges a chain, the other side's own certificate first; none if it has shown no certificate.
    fn judge(&self, chain: &[CertificateDer], now: u64) -> Result<Self::Found, Refused>;

    /// Whether an opener is asked for a certificate, and whether it must show one.
    fn asks_openers(&self) -> bool;
    fn needs_openers(&self) -> bool;
}

/// Looks at the certificates of processes.
pub(crate) struct Peers {
    pub judge: Arc<Judge>,
    pub side: Side,
}

impl Looker for Peers {
    type Found = Identity;

    fn judge(&self, chain: &[CertificateDer], now: u64) -> Result<Identity, Refused> {
        self.judge.judge(self.side, chain, now)
    }

    fn asks_openers(&self) -> bool {
        true
    }

    fn needs_openers(&self) -> bool {
        !self.judge.policy.rules.accept_anybody()
    }
}

/// What the certificates of one handshake have shown. The lock is there because `rustls` wants it; nobody waits.
pub(crate) struct Findings<L: Looker> {
    looker: L,
    found: Mutex<Option<Result<L::Found, String>>>,
}

impl<L: Looker> fmt::Debug for Findings<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Findings")
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    crate::PROVIDER.signature_verification_algorithms
}

impl<L: Looker> Findings<L> {
    pub fn new(looker: L) -> Findings<L> {
        Findings {
            looker,
            found: Mutex::new(None),
        }
    }

    fn found(&self) -> Option<Result<L::Found, String>> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.clone()
    }

    /// Why the certificate was refused, if it was.
    pub fn refusal(&self) -> Option<String> {
        self.found()?.err()
    }

    /// What the other side is, after the handshake. It may have shown no certificate, if it need not.
    pub fn peer(&self) -> Result<L::Found, String> {
        self.found().unwrap_or_else(|| {
            let judged = self.looker.judge(&[], 0);
            judged.map_err(|refused| refused.line)
        })
    }

    fn look(
        &self,
        own: &CertificateDer,
        rest: &[CertificateDer],
        now: UnixTime,
    ) -> Result<(), Error> {
        let chain: Vec<CertificateDer> = [own].into_iter().chain(rest).cloned().collect();
        let judged = self.looker.judge(&chain, now.as_secs());
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match judged {
            Ok(peer) => {
                *found = Some(Ok(peer));
                Ok(())
            }
            Err(Refused { line, told }) => {
                *found = Some(Err(line));
                Err(told.into())
            }
        }
    }
}

/// Proofs of keys are checked alike on both sides.
macro_rules! checks_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            own: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls12_signature(message, own, signed, &algorithms())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            own: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify_tls13_signature(message, own, signed, &algorithms())
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            algorithms().supported_schemes()
        }
    };
}

/// The side that was connected to, about the opener.
impl<L: Looker> ClientCertVerifier for Findings<L> {
    fn offer_client_auth(&self) -> bool {
        self.looker.asks_openers()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.looker.needs_openers()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[] // strangers learn nothing
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.look(own, rest, now)?;
        Ok(ClientCertVerified::assertion())
    }

    checks_signatures!();
}

/// The opener, about the other side.
impl<L: Looker> ServerCertVerifier for Findings<L> {
    /// The name is not compared: the greeting inside says which process is meant, and rules may ask for names.
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.look(own, rest, now)?;
        Ok(ServerCertVerified::assertion())
    }

    checks_signatures!();
}

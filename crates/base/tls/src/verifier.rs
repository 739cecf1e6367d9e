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

/// What the certificates of one handshake have shown. The lock is there because `rustls` wants it; nobody waits.
pub(crate) struct Findings {
    judge: Arc<Judge>,
    side: Side,
    peer: Mutex<Option<Result<Identity, String>>>,
}

impl fmt::Debug for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Findings")
            .field("side", &self.side)
            .finish()
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    crate::PROVIDER.signature_verification_algorithms
}

impl Findings {
    pub fn new(judge: Arc<Judge>, side: Side) -> Findings {
        Findings {
            judge,
            side,
            peer: Mutex::new(None),
        }
    }

    fn found(&self) -> Option<Result<Identity, String>> {
        let peer = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        peer.clone()
    }

    /// Why the certificate was refused, if it was.
    pub fn refusal(&self) -> Option<String> {
        self.found()?.err()
    }

    /// What the other side is, after the handshake. It may have shown no certificate, if none is asked for.
    pub fn peer(&self) -> Result<Identity, String> {
        self.found().unwrap_or_else(|| {
            let judged = self.judge.judge(self.side, &[], 0);
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
        let judged = self.judge.judge(self.side, &chain, now.as_secs());
        let mut peer = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        match judged {
            Ok(identity) => {
                *peer = Some(Ok(identity));
                Ok(())
            }
            Err(Refused { line, told }) => {
                *peer = Some(Err(line));
                Err(told.into())
            }
        }
    }
}

/// The side that was connected to, about the opener.
#[derive(Debug)]
pub(crate) struct OfOpeners(pub Arc<Findings>);

/// The opener, about the other side.
#[derive(Debug)]
pub(crate) struct OfAcceptors(pub Arc<Findings>);

impl ClientCertVerifier for OfOpeners {
    fn client_auth_mandatory(&self) -> bool {
        !self.0.judge.policy.rules.accept_anybody()
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
        self.0.look(own, rest, now)?;
        Ok(ClientCertVerified::assertion())
    }

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
}

impl ServerCertVerifier for OfAcceptors {
    /// The name is not compared: the greeting inside says which process is meant, and rules may ask for names.
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.0.look(own, rest, now)?;
        Ok(ServerCertVerified::assertion())
    }

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
}

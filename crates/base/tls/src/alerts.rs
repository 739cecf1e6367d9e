//! Why a handshake has failed, as a line for the user.

use plinth_identity::Side;
use rustls::{AlertDescription, Error, InvalidMessage, PeerIncompatible};

/// `own` names our certificate.
pub(crate) fn line(side: Side, error: &Error, own: &str) -> String {
    match error {
        Error::AlertReceived(alert) => alerted(*alert, own),
        Error::NoCertificatesPresented => {
            "the other side has shown no certificate; give it one with --tls-certificate-file".into()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) if side == Side::Opener => {
            "the other side does not speak TLS; start it with --tls-certificate-file, or remove :tls behind its \
             address"
                .into()
        }
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => "the other side does not speak TLS 1.3".into(),
        Error::InvalidCertificate(_) => {
            "the other side does not have the key of the certificate that it shows; somebody may be in between"
                .into()
        }
        Error::DecryptError => {
            "bytes were changed, left out or repeated on the way; the connection has ended".into()
        }
        error => format!("the TLS connection has failed: {error}"),
    }
}

/// What has become of a guest's handshake.
pub(crate) fn line_of_guest(error: &Error, own: &str) -> String {
    match error {
        Error::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::UnsupportedCertificate),
        ) => format!(
            "the client does not take our certificate {own} ({alert:?}): its trust store must have the root of it, \
             and the certificate the name or address that the client connects to"
        ),
        Error::AlertReceived(alert) => {
            format!("the client ends the TLS connection with the alert {alert:?}")
        }
        Error::NoCertificatesPresented => {
            "the client has shown no certificate; give it one, or start with --client-auth want"
                .into()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the client does not speak TLS; make it, or let it connect to the address of --listen"
                .into()
        }
        Error::PeerIncompatible(
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::SupportedVersionsExtensionRequired,
        ) => "the client speaks neither TLS 1.2 nor TLS 1.3".into(),
        Error::InvalidCertificate(_) => {
            "the client does not have the key of the certificate that it shows".into()
        }
        Error::DecryptError => {
            "bytes were changed, left out or repeated on the way; the connection has ended".into()
        }
        error => format!("the TLS connection of the client has failed: {error}"),
    }
}

/// What the other side says of us.
fn alerted(alert: AlertDescription, own: &str) -> String {
    match alert {
        AlertDescription::UnknownCA => format!(
            "the other side does not trust our certificate {own}: nobody in its CA file has signed it; compare the CA \
             files"
        ),
        AlertDescription::CertificateExpired => format!(
            "the other side says that our certificate {own} is not good at this time; renew it, or compare the clocks"
        ),
        AlertDescription::CertificateRevoked => {
            format!("the other side says that our certificate {own} was revoked; make another one")
        }
        AlertDescription::AccessDenied => format!(
            "the rules of the other side refuse our certificate {own}; compare --tls-verify-peers and --tls-identity \
             there with its subject"
        ),
        AlertDescription::CertificateRequired => {
            "the other side wants a certificate; give one with --tls-certificate-file".into()
        }
        AlertDescription::ProtocolVersion => "the other side does not speak TLS 1.3".into(),
        alert => format!(
            "the other side ends the TLS connection with the alert {alert:?}; its trace says why"
        ),
    }
}

//! The certificates of a process, which protect its connections beside the keys of [`key_file`](crate::key_file).

use plinth_rpc::Credentials;
use plinth_runtime::Boxed;
use plinth_tls::{Certificates, Material, Policy, Settings};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// Certificates that were read, for each thread of a process. A process without any has no `Tls`.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    settings: Settings,
    policy: Policy,
    material: Material,
    /// Who comes without a certificate and without a key is nobody.
    is_closed: bool,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls") // it holds secrets
    }
}

const OF_NO_USE: &str =
    "--tls-verify-peers, --tls-identity or --tls-password, or the variable of one of them,";

/// The error of a process that is to use TLS and has no certificate.
pub fn missing(asks: &str) -> String {
    format!(
        "{asks} asks for TLS; give --tls-certificate-file, --tls-key-file and --tls-ca-file, or the variables \
         FDB_TLS_CERTIFICATE_FILE, FDB_TLS_KEY_FILE and FDB_TLS_CA_FILE"
    )
}

/// Refuses settings without files that say something else: it would be of no use.
fn nothing_else(settings: &Settings) -> Result<(), String> {
    match settings.has_rules() || settings.password.is_some() {
        true => Err(missing(OF_NO_USE)),
        false => Ok(()),
    }
}

/// Refuses a cluster file that asks for TLS if there is no certificate.
fn enough(own: Option<Arc<Tls>>, asks: bool, path: &Path) -> Result<Option<Arc<Tls>>, String> {
    match asks && own.is_none() {
        true => Err(missing(&format!("cluster file {}", path.display()))),
        false => Ok(own),
    }
}

impl Tls {
    /// Reads what `settings` say; `None` if they say nothing. Rules without a certificate are refused: whoever gives
    /// them believes that others are checked. For a process that hears later whether its cluster asks
    /// for TLS. The error is a line for the user.
    pub fn read(settings: Settings) -> Boxed<'static, Result<Option<Arc<Tls>>, String>> {
        Box::pin(async move {
            if settings.is_empty() {
                return nothing_else(&settings).map(|()| None);
            }
            let material = settings.read().await?;
            Tls::new(settings, material).map(Some)
        })
    }

    /// The same for a process of the cluster file at `path`, which `asks` for TLS or does not.
    pub fn load(
        settings: Settings,
        asks: bool,
        path: &Path,
    ) -> Boxed<'_, Result<Option<Arc<Tls>>, String>> {
        Box::pin(async move { enough(Tls::read(settings).await?, asks, path) })
    }

    /// The same for who has read already: `material` is what `settings` say, if they say something.
    pub fn of(
        settings: Settings,
        material: Option<Material>,
        asks: bool,
        path: &Path,
    ) -> Result<Option<Arc<Tls>>, String> {
        if material.is_none() {
            nothing_else(&settings)?;
        }
        let own = material.map(|material| Tls::new(settings, material));
        enough(own.transpose()?, asks, path)
    }

    fn new(settings: Settings, material: Material) -> Result<Arc<Tls>, String> {
        let policy = settings.policy()?;
        Certificates::new(&material, policy.clone())?; // mistakes are told here
        Ok(Arc::new(Tls {
            settings,
            policy,
            material,
            is_closed: false,
        }))
    }

    /// For a server at which nobody gets in who has neither a certificate nor a key.
    pub fn closed(&self) -> Arc<Tls> {
        Arc::new(Tls {
            is_closed: true,
            ..self.clone()
        })
    }

    /// Gives the certificates to credentials of this thread. Files that change are taken while it runs.
    pub fn protect(&self, credentials: Credentials) -> Credentials {
        let certificates = Certificates::new(&self.material, self.policy.clone());
        let certificates = certificates.expect("they were tried when they were read");
        let protected = credentials.with_certificates(certificates.handshakes());
        let (settings, material) = (self.settings.clone(), self.material.clone());
        let following = async move { match certificates.follow(&settings, material).await {} };
        let following = plinth_runtime::spawn("certificates", following);
        let protected = protected.kept_current_by(following);
        match self.is_closed {
            true => protected.closed_without_certificate(),
            false => protected,
        }
    }
}

//! The options for certificates, with FoundationDB's names.

use crate::Outcome;
use plinth_coordination::certificates::{Tls, missing};
use plinth_coordination::cluster_file;
use plinth_tls::{Settings, Source};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

const HEADING: &str = "TLS";

#[derive(clap::Args, Clone, Default)]
pub struct TlsArguments {
    /// PEM file with the certificate of this process and those between it and the root; else
    /// $FDB_TLS_CERTIFICATE_FILE
    #[arg(long, value_name = "FILE", alias = "tls_certificate_file", help_heading = HEADING)]
    tls_certificate_file: Option<PathBuf>,
    /// PEM file with the key of the certificate, of mode 0600; else $FDB_TLS_KEY_FILE
    #[arg(long, value_name = "FILE", alias = "tls_key_file", help_heading = HEADING)]
    tls_key_file: Option<PathBuf>,
    /// PEM file with the certificates of those who sign; else $FDB_TLS_CA_FILE
    #[arg(long, value_name = "FILE", alias = "tls_ca_file", help_heading = HEADING)]
    tls_ca_file: Option<PathBuf>,
    /// Password of the key; others see it in the list of processes, so better $FDB_TLS_PASSWORD
    #[arg(long, value_name = "TEXT", alias = "tls_password", help_heading = HEADING)]
    tls_password: Option<String>,
    /// What certificates of others must say, for example S.CN=plinth|S.O=Ours; else $FDB_TLS_VERIFY_PEERS
    #[arg(long, value_name = "RULES", alias = "tls_verify_peers", help_heading = HEADING)]
    tls_verify_peers: Vec<String>,
    /// Whom a certificate stands for, for example client:S.CN>=app-; the first that fits counts. Without any:
    /// server. Else $PLINTH_TLS_IDENTITY, separated by semicolons
    #[arg(long, value_name = "WHO:RULES", alias = "tls_identity", help_heading = HEADING)]
    tls_identity: Vec<String>,
}

impl fmt::Debug for TlsArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsArguments") // they hold a password
    }
}

impl TlsArguments {
    /// True if an option is given, whatever variables say.
    pub fn is_given(&self) -> bool {
        let files = [
            &self.tls_certificate_file,
            &self.tls_key_file,
            &self.tls_ca_file,
        ];
        files.iter().any(|file| file.is_some()) || self.tls_password.is_some() || self.has_rules()
    }

    /// True if an option says what certificates of others must say, or what they stand for.
    pub fn has_rules(&self) -> bool {
        !self.tls_verify_peers.is_empty() || !self.tls_identity.is_empty()
    }

    /// What the options say, and the variables where they say nothing.
    pub fn settings(&self) -> Settings {
        let file = |path: &Option<PathBuf>| path.clone().map(Source::File);
        let said = Settings {
            certificate: file(&self.tls_certificate_file),
            key: file(&self.tls_key_file),
            ca: file(&self.tls_ca_file),
            password: self.tls_password.clone().map(Into::into),
            verify_peers: self.tls_verify_peers.clone(),
            identities: self.tls_identity.clone(),
        };
        said.or_variables(|name| std::env::var(name).ok())
    }
}

/// An address to listen at. With `:tls` behind it, strangers have no say there.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    pub address: SocketAddr,
    is_tls: bool,
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let parsed = cluster_file::parse_address(text);
        let (address, is_tls) = parsed.ok_or("expected IP:PORT or IP:PORT:tls")?;
        Ok(Listen { address, is_tls })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}{}",
            self.address,
            if self.is_tls { ":tls" } else { "" }
        )
    }
}

impl Listen {
    pub fn is_tls(self) -> bool {
        self.is_tls
    }

    /// Closes the address if that is wanted, to those who have neither a certificate nor a key.
    pub fn close(self, certificates: &mut Option<Arc<Tls>>) -> Outcome {
        if self.is_tls {
            let missing = || missing(&format!("--listen {}:tls", self.address));
            let open = certificates.as_ref().ok_or_else(missing)?;
            *certificates = Some(open.closed());
        }
        Ok(())
    }
}

//! The options for certificates, with FoundationDB's names.

use crate::Outcome;
use plinth_coordination::certificates::{Tls, missing};
use plinth_coordination::cluster_file;
use plinth_runtime::trace_warn;
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
        let has_rules = !self.tls_verify_peers.is_empty() || !self.tls_identity.is_empty();
        files.iter().any(|file| file.is_some()) || self.tls_password.is_some() || has_rules
    }

    /// Tells the user of a tool that its options are of no use: `addresses` have no `:tls`.
    pub fn tell_if_unused(&self, is_tls: bool, addresses: impl fmt::Display) {
        if self.is_given() && !is_tls {
            eprintln!(
                "plinth: options for TLS are given, and this speaks without TLS: no address of {addresses} has :tls \
                 behind it"
            );
        }
    }

    /// What the options say, and the variables where they say nothing.
    pub fn settings(&self) -> Settings {
        self.said().or_variables(|name| std::env::var(name).ok())
    }

    /// What the options say, whatever variables say.
    pub fn said(&self) -> Settings {
        let file = |path: &Option<PathBuf>| path.clone().map(Source::File);
        Settings {
            certificate: file(&self.tls_certificate_file),
            key: file(&self.tls_key_file),
            ca: file(&self.tls_ca_file),
            password: self.tls_password.clone().map(Into::into),
            verify_peers: self.tls_verify_peers.clone(),
            identities: self.tls_identity.clone(),
        }
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

    /// Tells at the start that certificates keep nobody out here. Without keys, who has none is trusted.
    pub fn tell_if_open(self, has_certificates: bool, has_keys: bool) {
        if self.is_tls || !has_certificates || has_keys {
            return;
        }
        let at = self.address;
        trace_warn!("StrangersTrusted", "listen" => at);
        eprintln!(
            "plinth: --listen {at}: there are certificates and no keys: whoever comes without a certificate may do \
             everything; write {at}:tls when nobody is left who must"
        );
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

//! The options for certificates, with FoundationDB's names.

use crate::ports::look_up;
use crate::{Outcome, sources};
use plinth_coordination::certificates::{Tls, missing};
use plinth_coordination::cluster_file;
use plinth_rpc::Place;
use plinth_runtime::trace_warn;
use plinth_tls::{Settings, Source};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Where the pages of commands have these options.
pub const HEADING: &str = "TLS";

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
            crate::say!(
                "plinth: options for TLS are given, and this speaks without TLS: no address of {addresses} has :tls \
                 behind it"
            );
        }
    }

    /// What the options say, and the variables where they say nothing.
    pub fn settings(&self) -> Settings {
        self.said().or_variables(|name| {
            let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
            let (_, option) = name.split_once('_')?;
            let flag = format!("--{}", option.replace('_', "-").to_ascii_lowercase());
            sources::note_variable(&flag, name);
            Some(value)
        })
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

/// An address to listen at. With `:tls` behind it, strangers have no say there. A host's name stands for the address
/// that it has when the process starts.
#[derive(Clone, Copy, Debug)]
pub struct Listen {
    pub address: SocketAddr,
    is_tls: bool,
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        if let Some((address, is_tls)) = cluster_file::parse_address(text) {
            return Ok(Listen { address, is_tls });
        }
        let bare = text.strip_suffix(":tls");
        let address = look_up(bare.unwrap_or(text), FORM)?;
        let is_tls = bare.is_some();
        Ok(Listen { address, is_tls })
    }
}

const FORM: &str = "expected IP:PORT or HOST:PORT, perhaps with :tls behind it";

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
        crate::say!(
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

/// An address or a name, perhaps with `:tls` behind it. A name is not looked up yet.
#[derive(Clone, Debug)]
pub struct Public {
    place: Place,
    is_tls: bool,
}

impl std::str::FromStr for Public {
    type Err = String;

    fn from_str(text: &str) -> Result<Public, String> {
        let (place, is_tls) = cluster_file::parse_place(text).ok_or(FORM)?;
        Ok(Public { place, is_tls })
    }
}

impl fmt::Display for Public {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.is_tls { ":tls" } else { "" };
        write!(f, "{}{tls}", self.place)
    }
}

/// Where others reach a process that listens at an address which they cannot use.
#[derive(clap::Args, Clone, Debug)]
pub struct PublicAddress {
    /// Where others reach this process, if it is not at the address of --listen; with :tls behind it if --listen has
    /// it. Needed if that is 0.0.0.0 or [::]. A cluster file names a coordinator by the HOST:PORT that is given here
    #[arg(long, value_name = "IP:PORT|HOST:PORT")]
    pub public_address: Option<Public>,
}

impl PublicAddress {
    /// The same as [`beside`](Self::beside), for processes that do not follow their name: the address that it has now.
    pub fn address_beside(&self, listen: Listen) -> Outcome<Option<SocketAddr>> {
        let address = |place: Place| match place {
            Place::At(address) => Ok(address),
            Place::Named(..) => look_up(&place.to_string(), FORM)
                .map_err(|line| format!("--public-address {place}: {line}")),
        };
        self.beside(listen)?.map(address).transpose()
    }

    /// The place for others of a process that listens at `listen`, if it is another one.
    pub fn beside(&self, listen: Listen) -> Outcome<Option<Place>> {
        let is_everywhere = |address: SocketAddr| address.ip().is_unspecified();
        let Some(public) = &self.public_address else {
            return match is_everywhere(listen.address) {
                true => Err(format!(
                    "--listen {listen} is every address of this machine, and others need one; \
                    add --public-address IP:PORT or HOST:PORT with the one at which they reach it"
                )),
                false => Ok(None),
            };
        };
        if public.place.address().is_some_and(is_everywhere) || public.place.port() == 0 {
            return Err(format!(
                "--public-address {public}: others cannot connect to it; give one IP or name of this machine, \
                and a port"
            ));
        }
        if public.is_tls != listen.is_tls {
            return Err(format!(
                "--listen {listen} and --public-address {public}: write :tls behind both or behind neither"
            ));
        }
        Ok(Some(public.place.clone()).filter(|place| *place != listen.address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(listen: &str, public: Option<&str>) -> Outcome<Option<Place>> {
        let listen = listen.parse().expect("an address");
        let public_address = public.map(|text| text.parse().expect("a place"));
        PublicAddress { public_address }.beside(listen)
    }

    #[test]
    fn an_address_of_all_interfaces_needs_one_that_others_can_use() {
        for (listen, public, words) in [
            ("0.0.0.0:4500", None, "add --public-address"),
            ("[::]:4500", None, "add --public-address"),
            ("0.0.0.0:4500", Some("0.0.0.0:4500"), "one IP"),
            ("0.0.0.0:4500", Some("db-0.db:0"), "a port"),
            ("0.0.0.0:4500:tls", Some("db-0.db:4500"), "both"),
            ("0.0.0.0:4500", Some("10.0.0.1:0"), "a port"),
            ("0.0.0.0:4500:tls", Some("10.0.0.1:4500"), "both"),
            ("10.0.0.1:4500", Some("10.0.0.1:4500:tls"), "both"),
        ] {
            let line = beside(listen, public).expect_err(listen);
            assert!(line.contains(words), "{line}");
            assert!(line.contains(public.unwrap_or(listen)), "{line}");
        }
    }

    #[test]
    fn a_host_has_the_address_that_its_name_has_at_the_start() {
        let listen: Listen = "localhost:4500:tls"
            .parse()
            .expect("every machine has this name");
        assert!(listen.address.ip().is_loopback() && listen.is_tls());
        assert_eq!(listen.address.port(), 4500);
        for (text, words) in [
            (
                "no-such-host.invalid:4500",
                "no-such-host.invalid is not found",
            ),
            ("10.0.0:4500", "expected"),
            ("10.0.0.1.2:4500", "expected"),
            ("localhost", "expected"),
            ("localhost:port", "expected"),
            ("local host:4500", "expected"),
            (":4500", "expected"),
            ("a..b:4500", "expected"),
        ] {
            let line = text.parse::<Listen>().expect_err(text);
            assert!(line.contains(words), "{text}: {line}");
        }
    }

    #[test]
    fn others_use_the_public_address_or_the_one_listened_at() {
        let public = Some("10.0.0.1:4600".parse().expect("an address"));
        assert_eq!(
            beside("0.0.0.0:4500", Some("10.0.0.1:4600")),
            Ok(public.clone())
        );
        assert_eq!(
            beside("10.9.9.9:4500:tls", Some("10.0.0.1:4600:tls")),
            Ok(public)
        );
        let named = Some("no-such-host.invalid:4600".parse().expect("a name"));
        assert_eq!(
            beside("0.0.0.0:4500", Some("no-such-host.invalid:4600")),
            Ok(named)
        );
        assert_eq!(beside("10.0.0.1:4600", None), Ok(None));
        assert_eq!(beside("10.0.0.1:4600", Some("10.0.0.1:4600")), Ok(None));
    }
}

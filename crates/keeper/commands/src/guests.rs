//! The options of the port by which ZooKeeper's clients come in by TLS, wherever there is one.

use plinth_keeper::acl::is_distinguished_name;
use plinth_runtime::spawn;
use plinth_terminal::Outcome;
use plinth_terminal::choices::among;
use plinth_terminal::tls::TlsArguments;
use plinth_tls::{ClientAuth, Guests, Settings, Source, overlap};
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug)]
pub struct ForGuests {
    /// Whether clients at the secure port show a certificate, as ZooKeeper's ssl.clientAuth: need, want, none
    #[arg(
        long,
        value_name = "WHETHER",
        default_value = "need",
        requires = "secure_listen",
        hide_possible_values = true,
        value_parser = among(["need", "want", "none"], str::parse::<ClientAuth>)
    )]
    client_auth: ClientAuth,
    /// PEM file with the certificates of those who sign those of ZooKeeper's clients; else that of --tls-ca-file
    #[arg(long, value_name = "FILE", requires = "secure_listen")]
    client_ca_file: Option<PathBuf>,
    /// Subject of the certificate whose owner no access list stops, as clients are shown it by whoAmI
    #[arg(long, value_name = "DN", value_parser = parse_subject, requires = "secure_listen")]
    x509_super_user: Option<String>,
}

fn parse_subject(text: &str) -> Result<String, String> {
    match is_distinguished_name(text) {
        true => Ok(text.into()),
        false => Err("expected a distinguished name, for example CN=admin,O=Ours".into()),
    }
}

impl ForGuests {
    pub fn super_user(&self) -> Option<String> {
        self.x509_super_user.clone()
    }

    /// What `tls` says of connections between processes. Without those of who signs others, a certificate is for
    /// clients only, if there is a secure port.
    ///
    /// # Errors
    /// There are rules, which are about processes.
    pub fn of_processes(tls: &TlsArguments, has_secure: bool) -> Outcome<Settings> {
        match tls.settings() {
            settings if settings.ca.is_some() || !has_secure => Ok(settings),
            settings if settings.has_rules() => Err(
                "--tls-verify-peers and --tls-identity are about processes of Plinth, not about ZooKeeper's clients, \
                 and nobody may sign certificates of processes: give --tls-ca-file, or leave them and their variables \
                 out"
                    .into(),
            ),
            _ => Ok(Settings::default()),
        }
    }

    /// True if somebody may sign certificates of clients who may sign those of `processes`, too.
    pub async fn mix_with(&self, processes: &Settings) -> Outcome<bool> {
        let Some(of_processes) = &processes.ca else {
            return Ok(false);
        };
        match &self.client_ca_file {
            _ if self.client_auth == ClientAuth::None => Ok(false),
            None => Ok(true),
            Some(file) => overlap(&Source::File(file.clone()), of_processes).await,
        }
    }

    /// Reads the certificates, and takes their files again when they change. The error begins with `flag`, which names
    /// the address.
    pub async fn guests(&self, flag: &str, tls: &TlsArguments) -> Outcome<Guests> {
        let mut settings = tls.settings();
        if let Some(file) = &self.client_ca_file {
            settings.ca = Some(Source::File(file.clone()));
        }
        if settings.ca.is_none() && self.client_auth != ClientAuth::None {
            return Err(format!(
                "{flag}: nobody may sign the certificates of clients; give --client-ca-file or --tls-ca-file, or \
                 --client-auth none"
            ));
        }
        let loaded = Guests::load(settings, self.client_auth).await;
        let (guests, settings, known) = loaded.map_err(|line| format!("{flag}: {line}"))?;
        let followed = guests.clone();
        let following = async move { match followed.follow(&settings, known).await {} };
        spawn("certificates for clients", following).detach();
        Ok(guests)
    }
}

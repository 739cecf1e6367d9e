//! Which certificates a process has, as its user says it.

use crate::{Certificates, Material, Part, Policy};
use bytes::Bytes;
use plinth_runtime::metric::{Labelled, Values};
use plinth_runtime::{Boxed, Duration, disk, metric, sleep, trace, trace_warn};
use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

metric! {
    ENDS: Gauge = "plinth_certificate_ends_seconds",
        "when the certificate of the process ends, or one between it and the root, in seconds since 1970";
}

/// A longer file holds no certificates.
const FILE_BYTES_MAX: usize = 1 << 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Where something is.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    Bytes(Bytes),
}

/// What the user says. What is not said is asked of the variables that FoundationDB has for it, where there is one.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Settings {
    pub certificate: Option<Source>,
    pub key: Option<Source>,
    pub ca: Option<Source>,
    pub password: Option<Zeroizing<String>>,
    /// Rules of which one must hold.
    pub verify_peers: Vec<String>,
    /// See [`Policy::parse`].
    pub identities: Vec<String>,
}

/// Several identities in one variable are separated by this, which rules escape.
const SEPARATOR: char = ';';

impl Settings {
    /// Fills what was not said with what variables say. Empty ones count as not set.
    pub fn or_variables(mut self, variable: impl Fn(&str) -> Option<String>) -> Settings {
        let value = |name| variable(name).filter(|value| !value.is_empty());
        let fill = |source: &mut Option<Source>, name| {
            if source.is_none() {
                *source = value(name).map(|path| Source::File(path.into()));
            }
        };
        fill(&mut self.certificate, "FDB_TLS_CERTIFICATE_FILE");
        fill(&mut self.key, "FDB_TLS_KEY_FILE");
        fill(&mut self.ca, "FDB_TLS_CA_FILE");
        if self.password.is_none() {
            self.password = value("FDB_TLS_PASSWORD").map(Zeroizing::new);
        }
        if self.verify_peers.is_empty() {
            self.verify_peers.extend(value("FDB_TLS_VERIFY_PEERS"));
        }
        if self.identities.is_empty() {
            let text = value("PLINTH_TLS_IDENTITY").unwrap_or_default();
            let all = text.split(SEPARATOR).filter(|one| !one.is_empty());
            self.identities.extend(all.map(str::to_owned));
        }
        self
    }

    /// True if there is nothing to read: this process has no certificate.
    pub fn is_empty(&self) -> bool {
        self.certificate.is_none() && self.key.is_none() && self.ca.is_none()
    }

    /// True if it is said what certificates of others must say, or what they stand for.
    pub fn has_rules(&self) -> bool {
        !self.verify_peers.is_empty() || !self.identities.is_empty()
    }

    pub fn policy(&self) -> Result<Policy, String> {
        let policy = Policy::parse(
            self.verify_peers.iter().map(String::as_str),
            self.identities.iter().map(String::as_str),
        );
        policy.map_err(|line| format!("--tls-verify-peers, --tls-identity: {line}"))
    }

    /// Each source, with what it is for and the option that names it.
    fn sources(&self) -> Result<[(&Source, &'static str); 3], String> {
        let of = |source: &'_ Option<Source>, option: &str| match source {
            Some(_) => Ok(()),
            None => Err(format!(
                "{option} is missing; TLS needs a certificate, its key and the certificates of who may sign others"
            )),
        };
        of(&self.certificate, "--tls-certificate-file")?;
        of(&self.key, "--tls-key-file")?;
        of(&self.ca, "--tls-ca-file")?;
        let all = [
            (&self.certificate, "TLS certificate"),
            (&self.key, "TLS key"),
            (&self.ca, "TLS CA"),
        ];
        Ok(all.map(|(source, what)| (source.as_ref().expect("it is there"), what)))
    }

    fn material(&self, parts: [Part; 3]) -> Material {
        let [certificate, key, ca] = parts;
        let password = self.password.clone();
        Material {
            certificate,
            key,
            ca,
            password,
        }
    }

    /// Reads the files. The error is a line for the user.
    pub fn read(&self) -> Boxed<'_, Result<Material, String>> {
        Box::pin(async move {
            let [certificate, key, ca] = self.sources()?;
            let parts = [read(certificate).await?, read(key).await?, read(ca).await?];
            Ok(self.material(parts))
        })
    }

    /// The same for who has no event loop: `file` reads the mode and the content of a file.
    pub fn read_by(
        &self,
        file: impl Fn(&Path) -> io::Result<(u32, Bytes)>,
    ) -> Result<Material, String> {
        let parts = self.sources()?.map(|(source, what)| match source {
            Source::File(path) => part(path, what, file(path)),
            Source::Bytes(bytes) => Ok(given(bytes, what)),
        });
        let [certificate, key, ca] = parts;
        Ok(self.material([certificate?, key?, ca?]))
    }

    /// Reads the files and parses what the user says; `None` if this process has no certificate. The error is a line
    /// for the user. The material is for [`Certificates::follow`].
    pub fn load(&self) -> Boxed<'_, Result<Option<(Certificates, Material)>, String>> {
        Box::pin(async move {
            if self.is_empty() {
                return Ok(None);
            }
            let (policy, material) = (self.policy()?, self.read().await?);
            let certificates = Certificates::new(&material, policy)?;
            Ok(Some((certificates, material)))
        })
    }

    /// Looks at the files again and again, and gives those that have changed to `exchange`, which takes them and names
    /// the certificate, or refuses them with a line for the user. `known`: what was read before. Two looks must agree:
    /// somebody may be writing a file, and one without its last part may be good by itself.
    pub(crate) async fn follow<C: Display>(
        &self,
        mut known: Material,
        exchange: impl Fn(&Material) -> Result<C, String>,
    ) -> Infallible {
        let (mut told, mut seen) = (String::new(), None);
        let numbers = Values::new();
        numbers.set(numbers_of(&known));
        loop {
            sleep(LOOK_INTERVAL).await;
            let read = self.read().await;
            let changed = read.and_then(|material| {
                let is_news = material != known;
                let is_settled = seen.as_ref() == Some(&material);
                seen = Some(material.clone());
                if !is_news || !is_settled {
                    return Ok(None);
                }
                let certificate = exchange(&material)?;
                known = material;
                Ok(Some(certificate))
            });
            match changed {
                Ok(new) => {
                    if let Some(certificate) = new {
                        numbers.set(numbers_of(&known));
                        trace!("CertificatesChanged", "certificate" => certificate);
                    }
                    told.clear();
                }
                Err(line) if line != told => {
                    trace_warn!("CertificatesNotRead", "why" => line);
                    told = line;
                }
                Err(_) => (),
            }
        }
    }
}

fn numbers_of(material: &Material) -> Vec<Labelled> {
    let ends = material.ends().map(|ends| Labelled {
        family: &ENDS,
        labels: vec![("file", material.certificate.name.clone())],
        value: ends as f64,
    });
    ends.into_iter().collect()
}

pub(crate) async fn read((source, what): (&Source, &str)) -> Result<Part, String> {
    let path = match source {
        Source::Bytes(bytes) => return Ok(given(bytes, what)),
        Source::File(path) => path,
    };
    let found = async {
        let mode = disk::mode(path).await?;
        Ok((mode, disk::read_file(path).await?))
    };
    part(path, what, found.await)
}

fn part(path: &Path, what: &str, found: io::Result<(u32, Bytes)>) -> Result<Part, String> {
    let name = format!("{what} file {}", path.display());
    match found {
        Ok((_, bytes)) if bytes.len() > FILE_BYTES_MAX => Err(format!("{name}: it is too large")),
        Ok((mode, bytes)) => Ok(Part {
            name,
            bytes,
            mode: Some(mode),
        }),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn given(bytes: &Bytes, what: &str) -> Part {
    Part {
        name: format!("{what} given as bytes"),
        bytes: bytes.clone(),
        mode: None,
    }
}

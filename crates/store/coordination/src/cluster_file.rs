//! The cluster file: `description:id@ip:port,ip:port…`, in FoundationDB's form. In a cluster whose connections are
//! protected by certificates, `:tls` follows each address.
//!
//! Coordinators may have names instead of addresses: `description:id@host:port,host:port…`. All of them or none: a
//! process that has both a name and an address must not count twice.
//!
//! Coordinators can be exchanged for others. Each set of them has a number: the id of the second set ends in `_2`,
//! that of the third in `_3`. The part before the number never changes.

use crate::certificates::Tls;
use crate::key_file;
use bytes::Bytes;
use plinth_core::Error;
use plinth_identity::Identity;
use plinth_identity::files::FileKind;
use plinth_identity::keys::Keyring;
use plinth_rpc::{Credentials, Place};
use plinth_runtime::Boxed;
use plinth_tls::Settings;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const DEFAULT_NAME: &str = "plinth.cluster";
pub const SYSTEM_WIDE_PATH: &str = "/etc/plinth/plinth.cluster";
pub const ENVIRONMENT_VARIABLE: &str = "PLINTH_CLUSTER_FILE";
/// A longer file is not a cluster file.
const FILE_BYTES_MAX: usize = 64 << 10;
const COORDINATORS_MAX: usize = 99;
const BYTE_ORDER_MARK: char = '\u{feff}';

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterFile {
    pub description: String,
    pub id: String,
    pub coordinators: Vec<Place>,
    /// Keys of this process for the cluster: not in the file, but [beside](key_file::beside) it.
    pub keys: Option<Keyring>,
    /// Whoever uses the file connects by TLS, to all processes of the cluster.
    pub is_tls: bool,
    /// Certificates of this process, which are not in the file either.
    pub certificates: Option<Arc<Tls>>,
}

/// What follows an address at which TLS is spoken.
const TLS: &str = ":tls";

/// Parses `ip:port` or `ip:port:tls`; the second value says whether TLS was said.
pub fn parse_address(text: &str) -> Option<(SocketAddr, bool)> {
    let bare = text.strip_suffix(TLS);
    let address = bare.unwrap_or(text).parse().ok()?;
    Some((address, bare.is_some()))
}

/// Parses `ip:port` or `host:port`, perhaps with `:tls` behind it; the second value says whether that was said.
pub fn parse_place(text: &str) -> Option<(Place, bool)> {
    let bare = text.strip_suffix(TLS);
    let place = bare.unwrap_or(text).parse().ok()?;
    Some((place, bare.is_some()))
}

/// Coordinators at these addresses.
pub fn places(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<Place> {
    addresses.into_iter().map(Place::At).collect()
}

/// What is wrong with a cluster file or with what belongs to it, in words for its author and as a code for programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterFileError(pub String, pub(crate) Error);

impl ClusterFileError {
    pub fn code(&self) -> Error {
        self.1
    }
}

impl fmt::Display for ClusterFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ClusterFileError {}

fn error<T>(text: impl Into<String>) -> Result<T, ClusterFileError> {
    Err(ClusterFileError(
        text.into(),
        Error::connection_string_invalid,
    ))
}

impl ClusterFile {
    /// Of a cluster without TLS, whose keys are not known here.
    pub fn new(description: &str, id: &str, coordinators: Vec<Place>) -> ClusterFile {
        ClusterFile {
            description: description.into(),
            id: id.into(),
            coordinators,
            keys: None,
            is_tls: false,
            certificates: None,
        }
    }

    /// Parses the text of a cluster file; lines that start with `#` are comments. Lines may end as Windows ends them,
    /// and a byte-order mark may begin the text: editors there write both.
    pub fn parse(text: &str) -> Result<Self, ClusterFileError> {
        let mut lines = text
            .trim_start_matches(BYTE_ORDER_MARK)
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let Some(line) = lines.next() else {
            return error("it is empty; expected description:id@ip:port,…");
        };
        if let Some(other) = FileKind::Cluster.instead(text.as_bytes()) {
            return error(other);
        }
        if lines.next().is_some() {
            return error(
                "it has more than one line, and a cluster file has description:id@ip:port,… alone",
            );
        }
        let Some((key, addresses)) = line.split_once('@') else {
            return error("there is no '@'; expected description:id@ip:port,…");
        };
        let Some((description, id)) = key.split_once(':') else {
            return error("there is no ':' before the '@'; expected description:id@ip:port,…");
        };
        let word =
            |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !word(description) || !word(id) {
            return error("description and id may hold letters, digits and `_' only");
        }
        let (mut coordinators, mut tls) = (Vec::new(), None);
        for address in addresses.split(',') {
            let Some((place, is_tls)) = parse_place(address.trim()) else {
                return error(format!(
                    "`{address}' is neither ip:port nor host:port, perhaps with :tls behind it"
                ));
            };
            if tls.replace(is_tls).is_some_and(|before| before != is_tls) {
                return error("some addresses have :tls behind them and others do not");
            }
            if place.port() == 0 {
                return error(format!("`{place}' has port 0"));
            }
            if coordinators.contains(&place) {
                return error(format!("{place} is there twice"));
            }
            coordinators.push(place);
        }
        if coordinators
            .iter()
            .any(|place| place.is_named() != coordinators[0].is_named())
        {
            return error(
                "some coordinators have a host's name and others an address; write all of them in one form, \
                or a server that has both would count twice",
            );
        }
        if coordinators.len() > COORDINATORS_MAX {
            return error(format!(
                "it names more than {COORDINATORS_MAX} coordinators"
            ));
        }
        Ok(ClusterFile {
            is_tls: tls == Some(true),
            ..ClusterFile::new(description, id, coordinators)
        })
    }

    /// Reads `path`, and the keys beside it if there are some, for those who do not speak TLS: a file that asks for it
    /// is refused. The error names the file.
    pub fn load(path: &Path) -> Boxed<'_, Result<Self, ClusterFileError>> {
        Box::pin(async move {
            let file = Self::load_with_keys(path).await?;
            if file.is_tls {
                return error(format!(
                    "cluster file {}: it asks for TLS, which is not spoken here; use a file without {TLS}",
                    path.display()
                ));
            }
            Ok(file)
        })
    }

    /// Reads `path`, the keys beside it, and the certificates that `settings` name. The error names the file.
    pub fn load_with(path: &Path, settings: Settings) -> Boxed<'_, Result<Self, ClusterFileError>> {
        Box::pin(async move {
            let mut file = Self::load_with_keys(path).await?;
            let certificates = Tls::load(settings, file.is_tls, path).await;
            file.certificates =
                certificates.map_err(|line| ClusterFileError(line, Error::tls_error))?;
            Ok(file)
        })
    }

    /// The addresses of the coordinators, for those who do not follow names. The error names the file at `path`.
    pub fn addresses_for(
        &self,
        who: &str,
        path: &Path,
    ) -> Result<Vec<SocketAddr>, ClusterFileError> {
        let named = self.coordinators.iter().find(|place| place.is_named());
        match named {
            None => Ok(self.addresses()),
            Some(name) => error(format!(
                "cluster file {}: {name} is a host's name, and {who} needs addresses; write ip:port",
                path.display()
            )),
        }
    }

    /// The coordinators that are known by their addresses: all of them, unless they have names.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.coordinators
            .iter()
            .filter_map(Place::address)
            .collect()
    }

    /// Reads `path`, and the keys beside it if there are some. It may ask for TLS. The error names the file.
    pub async fn load_with_keys(path: &Path) -> Result<Self, ClusterFileError> {
        let mut file = Self::read(path).await?;
        let keys = key_file::keyring(path).await;
        file.keys = keys.map_err(|line| ClusterFileError(line, Error::file_not_readable))?;
        Ok(file)
    }

    /// Reads `path` only. The error names it.
    pub fn read(path: &Path) -> Boxed<'_, Result<Self, ClusterFileError>> {
        Box::pin(async move {
            let at = |what: &str, code| {
                ClusterFileError(format!("cluster file {}: {what}", path.display()), code)
            };
            let unread = |e: std::io::Error| match e.kind() {
                std::io::ErrorKind::NotFound => at(&e.to_string(), Error::no_cluster_file_found),
                _ => at(&e.to_string(), Error::file_not_readable),
            };
            let bytes = plinth_runtime::disk::read_file(path).await;
            let bytes = bytes.map_err(unread)?;
            if bytes.len() > FILE_BYTES_MAX {
                return Err(at("it is too large", Error::file_too_large));
            }
            let text = std::str::from_utf8(&bytes).map_err(|_| {
                let other = FileKind::Cluster.instead(&bytes);
                let what = other.unwrap_or_else(|| "it is not text".into());
                at(&what, Error::connection_string_invalid)
            })?;
            Self::parse(text).map_err(|e| at(&e.0, e.1))
        })
    }

    /// What a process proves with its keys and certificates that wants to be `identity` to this cluster.
    pub fn credentials(&self, identity: Identity) -> Credentials {
        self.protected(Credentials::new(self.keys.clone(), identity))
    }

    /// The credentials, with the certificates of this process. With a file that asks for TLS they open no connection
    /// without.
    pub fn protected(&self, credentials: Credentials) -> Credentials {
        let credentials = match &self.certificates {
            Some(certificates) => certificates.protect(credentials),
            None => credentials,
        };
        match self.is_tls {
            true => credentials.opening_by_certificate(),
            false => credentials,
        }
    }

    /// Writes the file. Several processes may do so at once.
    pub fn save<'a>(&'a self, path: &'a Path) -> Boxed<'a, std::io::Result<()>> {
        Box::pin(async move {
            let own = format!("{:016x}.tmp", plinth_runtime::random::u64());
            let text = Bytes::from(format!("{self}\n"));
            let written = plinth_runtime::disk::write_file_durably_by(path, text, &own);
            written.await.map(drop)
        })
    }

    /// `description:id` without the number of the set of coordinators. It identifies the data, so that a stray
    /// cluster file cannot touch another cluster.
    pub fn key(&self) -> String {
        format!("{}:{}", self.description, split_id(&self.id).0)
    }

    /// `description:id`: the name under which the coordinators of this set keep the coordinated state.
    pub fn register(&self) -> String {
        format!("{}:{}", self.description, self.id)
    }

    /// The number of the set of coordinators; the first is 1.
    pub fn number(&self) -> u64 {
        split_id(&self.id).1
    }

    /// The file after the coordinators have moved to `coordinators`.
    pub fn succeeded_by(&self, coordinators: Vec<Place>) -> Self {
        let (id, number) = split_id(&self.id);
        let successor = ClusterFile {
            description: self.description.clone(),
            id: format!("{id}_{}", number + 1),
            coordinators,
            keys: self.keys.clone(),
            is_tls: self.is_tls,
            certificates: self.certificates.clone(),
        };
        assert!(
            successor.key() == self.key() && successor.number() > self.number(),
            "{successor} is no later set of the cluster of {self}"
        );
        successor
    }

    /// How many coordinators must answer.
    pub fn majority(&self) -> usize {
        self.coordinators.len() / 2 + 1
    }
}

impl fmt::Display for ClusterFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self
            .coordinators
            .iter()
            .map(|place| format!("{place}{}", if self.is_tls { TLS } else { "" }))
            .collect();
        write!(
            f,
            "{}:{}@{}",
            self.description,
            self.id,
            addresses.join(",")
        )
    }
}

/// The part of an id before its number, and the number.
fn split_id(id: &str) -> (&str, u64) {
    let whole = (id, 1);
    let Some((stem, number)) = id.rsplit_once('_') else {
        return whole;
    };
    match number.parse() {
        // The number counts only in the form written here: `_02` and `_+2` are part of the name.
        Ok(value) if value > 1 && format!("{value}") == number && !stem.is_empty() => (stem, value),
        _ => whole,
    }
}

/// The [`ClusterFile::key`] of a [`ClusterFile::register`].
pub fn key_of_register(register: &str) -> String {
    match register.split_once(':') {
        Some((description, id)) => format!("{description}:{}", split_id(id).0),
        None => register.to_string(),
    }
}

/// The [`ClusterFile::number`] of a [`ClusterFile::register`].
pub fn number_of_register(register: &str) -> u64 {
    let id = register.split_once(':').map_or(register, |(_, id)| id);
    split_id(id).1
}

/// Which file a server uses: the one given, else the environment's, else the one in the working directory. Never the
/// system-wide one: who forgets to say which cluster is meant must not put a server into that of the machine.
pub fn of_server(given: Option<&Path>, environment: Option<&str>) -> PathBuf {
    said(given, environment).unwrap_or_else(|| DEFAULT_NAME.into())
}

/// The file that somebody has chosen. An empty variable is one that is not set.
fn said(given: Option<&Path>, environment: Option<&str>) -> Option<PathBuf> {
    let environment = environment.filter(|path| !path.is_empty());
    given.or(environment.map(Path::new)).map(Path::to_path_buf)
}

/// Which file a tool uses: that of a [server](of_server), or else the system-wide one.
pub fn find<'a>(given: Option<&'a Path>, environment: Option<&'a str>) -> Boxed<'a, PathBuf> {
    Box::pin(async move {
        if let Some(path) = said(given, environment) {
            return path;
        }
        let here = PathBuf::from(DEFAULT_NAME);
        // One that cannot be looked at is named to who opens it.
        if plinth_runtime::disk::exists(&here).await.unwrap_or(true) {
            here
        } else {
            PathBuf::from(SYSTEM_WIDE_PATH)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{Locality, SimConfig, Simulation};

    #[test]
    fn a_server_takes_the_file_of_the_machine_only_if_it_is_told_to() {
        let own = Path::new("own");
        for (given, variable, file) in [
            (Some(own), Some("other"), "own"),
            (Some(own), None, "own"),
            (None, Some("other"), "other"),
            (None, Some(""), DEFAULT_NAME),
            (None, None, DEFAULT_NAME),
        ] {
            assert_eq!(of_server(given, variable), Path::new(file));
            let simulation = Simulation::new(1, SimConfig::default());
            let machine = simulation.add_machine(Locality::default());
            let (given, variable) = (given.map(Path::to_owned), variable.map(str::to_owned));
            let finding = async move { find(given.as_deref(), variable.as_deref()).await };
            let found = simulation.run_on(machine, finding);
            let tools = match file {
                // It is not there.
                DEFAULT_NAME => SYSTEM_WIDE_PATH,
                file => file,
            };
            assert_eq!(found.expect("it ends"), Path::new(tools));
        }
    }

    #[test]
    fn a_cluster_file_comes_back_as_it_was_written() {
        let text = "# made by hand\n\ntest:a1B2@127.0.0.1:4500,[::1]:4501\n";
        let file = ClusterFile::parse(text).expect("valid");
        assert_eq!(file.coordinators.len(), 2);
        assert_eq!(file.to_string(), "test:a1B2@127.0.0.1:4500,[::1]:4501");
        assert_eq!(ClusterFile::parse(&file.to_string()), Ok(file));
    }

    #[test]
    fn coordinators_may_have_names_which_those_who_need_addresses_refuse() {
        let text = "a:b@plinth-0.plinth.default.svc:4500:tls,localhost:4501:tls";
        let file = ClusterFile::parse(text).expect("valid");
        assert_eq!(file.to_string(), text);
        let refused = file
            .addresses_for("it", Path::new("/f"))
            .expect_err("names");
        let line = refused.to_string();
        assert!(
            line.starts_with("cluster file /f: plinth-0.plinth.default.svc:4500 is"),
            "{line}"
        );
        let file = ClusterFile::parse("a:b@[::1]:4500").expect("valid");
        let addresses = file.addresses_for("it", Path::new("/f"));
        assert_eq!(
            addresses,
            Ok(vec!["[::1]:4500".parse().expect("an address")])
        );
    }

    #[test]
    fn a_cluster_file_of_a_windows_editor_is_read() {
        let plain = "a:b@127.0.0.1:4500,127.0.0.1:4501";
        let file = ClusterFile::parse(plain).expect("valid");
        for written in [
            format!("{plain}\r\n"),
            format!("\u{feff}{plain}\n"),
            format!("\u{feff}# a comment\r\n\r\n{plain}\r\n"),
        ] {
            assert_eq!(
                ClusterFile::parse(&written),
                Ok(file.clone()),
                "{written:?}"
            );
        }
    }

    #[test]
    fn tls_is_asked_for_behind_every_address_or_behind_none() {
        let text = "a:b@127.0.0.1:4500:tls,[::1]:4501:tls";
        let file = ClusterFile::parse(text).expect("valid");
        assert!(file.is_tls && file.to_string() == text);
        let successor = file.succeeded_by(file.coordinators[..1].to_vec());
        assert_eq!(successor.to_string(), "a:b_2@127.0.0.1:4500:tls");
        assert!(
            !ClusterFile::parse("a:b@127.0.0.1:4500")
                .expect("valid")
                .is_tls
        );
        Simulation::new(1, SimConfig::default()).run(async move {
            let path = Path::new("/plinth.cluster");
            file.save(path).await.expect("saves");
            assert_eq!(ClusterFile::read(path).await, Ok(file));
            let refused = ClusterFile::load(path).await.expect_err("it asks for TLS");
            let line = refused.to_string();
            assert!(line.contains("/plinth.cluster: it asks for TLS"), "{line}");
            let refused = ClusterFile::load_with(path, Settings::default()).await;
            let line = refused.expect_err("there is no certificate").to_string();
            assert!(line.contains("--tls-certificate-file"), "{line}");
        });
    }

    #[test]
    fn the_id_counts_the_sets_of_coordinators_and_the_key_does_not() {
        let file = |text: &str| ClusterFile::parse(text).expect("valid");
        let mut at = file("a:b_c@1.2.3.4:5");
        for number in 1..12 {
            assert_eq!((at.number(), at.key()), (number, "a:b_c".to_string()));
            assert_eq!(key_of_register(&at.register()), at.key());
            at = at.succeeded_by(at.coordinators.clone());
        }
        assert_eq!(at.id, "b_c_12");
        for id in [
            "b",
            "b_",
            "b_x",
            "b_0",
            "b_1",
            "b_02",
            "_2",
            "b_99999999999999999999",
        ] {
            let file = file(&format!("a:{id}@1.2.3.4:5"));
            assert_eq!((file.number(), file.key()), (1, format!("a:{id}")));
        }
    }

    #[test]
    fn each_mistake_is_named() {
        for (text, word) in [
            ("", "empty"),
            ("abc", "'@'"),
            ("a@1.2.3.4:5", "':'"),
            ("a b:c@1.2.3.4:5", "letters"),
            ("a:b@1.2.3.4", "ip:port"),
            ("a:b@1.2.3.256:1", "ip:port"),
            ("a:b@db", "host:port"),
            ("a:b@db-:1", "host:port"),
            ("a:b@db:0", "port 0"),
            ("a:b@db:5,DB:5", "twice"),
            ("a:b@db:5,1.2.3.4:5", "in one form"),
            ("a:b@1.2.3.4:99999", "ip:port"),
            ("a:b@1.2.3.4:0", "port 0"),
            ("a:b@1.2.3.4:5,1.2.3.4:5", "twice"),
            ("a:b@1.2.3.4:5\nc:d@1.2.3.4:5", "more than one"),
            ("# a\nplinth-key-1 server a b c", "a key file"),
            ("a:b@1.2.3.4:5:tls,1.2.3.4:6", "others do not"),
            ("a:b@1.2.3.4:5:ssl", ":tls behind it"),
        ] {
            let error = ClusterFile::parse(text).expect_err(text);
            assert!(error.0.contains(word), "{text:?} gave {error}");
        }
    }

    /// Fuzz target.
    #[test]
    fn a_damaged_cluster_file_is_refused_with_a_line_or_means_what_it_says() {
        let corpus = [
            "plinth:abc@127.0.0.1:4500",
            "# a comment\na_b:1@10.0.0.1:4500,10.0.0.2:4500,[::1]:4501\n",
            "plinth:abc@127.0.0.1:4500:tls,[::1]:4501:tls",
            "plinth:abc@plinth-0.plinth.default.svc:4500,db_1:4501",
        ];
        let corpus = corpus.map(|text| text.as_bytes().to_vec());
        plinth_core::testing::fuzz("cluster file", 1, corpus, |input| {
            let Ok(text) = std::str::from_utf8(input) else {
                return false;
            };
            match ClusterFile::parse(text) {
                Ok(file) => {
                    assert!(!file.coordinators.is_empty());
                    assert_eq!(ClusterFile::parse(&file.to_string()), Ok(file));
                    true
                }
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    false
                }
            }
        });
    }
}

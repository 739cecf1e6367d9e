//! Files of certificates, for processes and their users.

use plinth_tls::testing::{Authority, Pair, Wanted};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Whom the certificates of tests stand for, for those processes that ask.
pub const IDENTITIES: &str = "server:S.CN=node;operator:S.CN=alice;client:S.CN>=app-";

/// One authority, and the files of those who have certificates of it.
pub struct Files {
    directory: PathBuf,
    pub authority: Authority,
}

impl Files {
    /// With the certificate `node` of servers, and the file `ca` of who signs.
    pub fn new(directory: &Path) -> Files {
        let files = Files {
            directory: directory.to_owned(),
            authority: Authority::new("Our root"),
        };
        files.user("node");
        files.put_ca("ca", &[&files.authority.pem]);
        files
    }

    pub fn file(&self, name: &str, ending: &str) -> PathBuf {
        self.directory.join(format!("{name}.{ending}"))
    }

    /// Writes the files of a certificate.
    pub fn put(&self, name: &str, pair: &Pair) {
        std::fs::write(self.file(name, "crt"), &pair.certificate).expect("written");
        let key = self.file(name, "key");
        std::fs::write(&key, &pair.key).expect("written");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("a mode");
    }

    pub fn put_ca(&self, name: &str, roots: &[&str]) {
        std::fs::write(self.file(name, "crt"), roots.concat()).expect("written");
    }

    /// The certificate `name` of our authority, for the user of that name.
    pub fn user(&self, name: &str) {
        self.put(name, &self.authority.issue(&Wanted::named(name)));
    }

    /// The variables of a process with the certificate `who` that trusts those in `ca`.
    pub fn variables(&self, who: &str, ca: &str) -> Vec<(&'static str, OsString)> {
        vec![
            ("FDB_TLS_CERTIFICATE_FILE", self.file(who, "crt").into()),
            ("FDB_TLS_KEY_FILE", self.file(who, "key").into()),
            ("FDB_TLS_CA_FILE", self.file(ca, "crt").into()),
        ]
    }

    /// The same, with [`IDENTITIES`].
    pub fn variables_of(&self, who: &str) -> Vec<(&'static str, OsString)> {
        let mut all = self.variables(who, "ca");
        all.push(("PLINTH_TLS_IDENTITY", IDENTITIES.into()));
        all
    }
}

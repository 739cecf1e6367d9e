//! Certificates, by FoundationDB's network options and variables.

use bytes::Bytes;
use plinth_coordination::ClusterFile;
use plinth_coordination::certificates::Tls;
use plinth_core::{Error, Result};
use plinth_runtime::trace_warn;
use plinth_tls::{Settings, Source};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct Said {
    settings: Settings,
    /// Connections without TLS are refused.
    wants_tls: bool,
}

/// What options have said so far, for the databases that are opened later.
static SAID: Mutex<Option<Said>> = Mutex::new(None);

fn said() -> MutexGuard<'static, Option<Said>> {
    SAID.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Applies a network option by its public number.
pub fn set_option(option: i32, value: &[u8]) -> Result<()> {
    let text = || {
        let text = std::str::from_utf8(value);
        text.map(str::to_owned)
            .map_err(|_| Error::invalid_option_value)
    };
    let file = || text().map(|path| Some(Source::File(path.into())));
    let bytes = || Some(Source::Bytes(Bytes::copy_from_slice(value)));
    let mut said = said();
    let Said {
        settings,
        wants_tls,
    } = said.get_or_insert_default();
    match option {
        42 => settings.certificate = bytes(),
        43 => settings.certificate = file()?,
        45 => settings.key = bytes(),
        46 => settings.key = file()?,
        47 => settings.verify_peers.push(text()?),
        52 => settings.ca = bytes(),
        53 => settings.ca = file()?,
        54 => settings.password = Some(text()?.into()),
        55 => *wants_tls = true,
        _ => return Err(Error::invalid_option),
    }
    // A rule that nobody can read is refused here, and not when a database is opened.
    settings.policy().map(drop).map_err(|line| {
        settings.verify_peers.pop();
        tell(line);
        Error::invalid_option_value
    })
}

fn tell(line: String) {
    trace_warn!("CertificatesNotRead", "why" => line);
}

/// Mode and content of a file.
pub(crate) fn read_with_mode(path: &Path) -> std::io::Result<(u32, Bytes)> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the caller's thread has no event loop"
    )]
    let (of, bytes) = (std::fs::metadata(path)?, std::fs::read(path)?);
    Ok((of.permissions().mode(), bytes.into()))
}

/// Reads the certificates for a database, if there are some.
pub fn read(cluster: &ClusterFile, path: Option<&Path>) -> Result<Option<Arc<Tls>>> {
    let (settings, wants_tls) = match &*said() {
        Some(said) => (said.settings.clone(), said.wants_tls),
        None => (Settings::default(), false),
    };
    if wants_tls && !cluster.is_tls {
        tell(
            "the option tls_disable_plaintext_connection is set, and the cluster file has no :tls"
                .into(),
        );
        return Err(Error::tls_error);
    }
    let settings = settings.or_variables(|name| std::env::var(name).ok());
    let material = match settings.is_empty() {
        true => Ok(None),
        false => settings.read_by(read_with_mode).map(Some),
    };
    let place = path.unwrap_or(Path::new("(a connection string)"));
    let read = material.and_then(|material| Tls::of(settings, material, cluster.is_tls, place));
    read.map_err(|line| {
        tell(line);
        Error::tls_error
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_without_certificates_are_refused_and_not_forgotten() {
        let cluster = ClusterFile::parse("test:a1@127.0.0.1:4500").expect("a cluster file");
        let read = || read(&cluster, None).map(|found| found.is_some());
        assert_eq!(read(), Ok(false));
        set_option(47, b"S.CN=plinth").expect("a rule");
        assert_eq!(
            read(),
            Err(Error::tls_error),
            "it believes that servers are checked"
        );
        *said() = None;
        set_option(54, b"secret").expect("a password");
        assert_eq!(read(), Err(Error::tls_error));
        *said() = None;
    }
}

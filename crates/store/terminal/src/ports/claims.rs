//! Ports that a command has claimed before its processes listen there: of two that begin in the same moment, one is
//! refused before it has made anything.

use super::check;
use crate::Outcome;
use plinth_core::hash::FixedHasher;
use plinth_runtime::net::Chosen;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::io::{ErrorKind, Result};
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as Name, UnixListener};
use std::path::{Path, PathBuf};

/// Such names lie in no directory: they belong to the machine, as its ports do, and end with the process.
const PREFIX: &str = "plinth-dev";

/// Nobody else claims the same while this lives.
#[derive(Default, Debug)]
pub struct Claims {
    held: BTreeMap<String, UnixListener>,
}

impl Claims {
    /// As [`Claims::take`], of nothing before.
    ///
    /// # Errors
    /// A line for the user.
    pub fn of(wanted: impl IntoIterator<Item = (SocketAddr, Chosen)>) -> Outcome<Claims> {
        let mut claims = Claims::default();
        claims.take(wanted)?;
        Ok(claims)
    }

    /// Claims addresses. Refuses the first that another command has claimed, at which somebody listens, or that is
    /// wanted twice. Nobody listens at them when this returns. What was claimed before stays claimed.
    ///
    /// # Errors
    /// A line for the user.
    pub fn take(&mut self, wanted: impl IntoIterator<Item = (SocketAddr, Chosen)>) -> Outcome {
        let wanted: Vec<_> = wanted.into_iter().collect();
        // All in one order: of two that want several of the same, one gets them all.
        let ordered: BTreeSet<SocketAddr> = wanted.iter().map(|(address, _)| *address).collect();
        let claimed = ordered
            .into_iter()
            .map(|at| (at, self.claim(&at.to_string())));
        let mut claimed: BTreeMap<SocketAddr, Result<()>> = claimed.collect();
        check(wanted, |address, chosen| {
            // What another one has claimed is not tried: it would find its own port taken.
            let is_ours = claimed.remove(&address).unwrap_or(Ok(()));
            let free = is_ours.and_then(|()| TcpListener::bind(address));
            free.map(drop)
                .map_err(|error| chosen.refused(address, &error))
        })
    }

    /// Claims a name in a directory, which need not be there. Tells whether nobody else has it.
    pub fn take_name(&mut self, directory: &Path, name: &str) -> bool {
        let mut hasher = FixedHasher::default();
        hasher.write(real(directory).as_os_str().as_bytes());
        let claimed = self.claim(&format!("{:016x}/{name}", hasher.finish()));
        !claimed.is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    }

    fn claim(&mut self, what: &str) -> Result<()> {
        if !self.held.contains_key(what) {
            let name = Name::from_abstract_name(format!("{PREFIX}/{what}"))?;
            let socket = UnixListener::bind_addr(&name)?;
            self.held.insert(what.to_owned(), socket);
        }
        Ok(())
    }
}

/// The one path of a directory. What is not there yet has no other name.
fn real(directory: &Path) -> PathBuf {
    let whole = std::path::absolute(directory).unwrap_or_else(|_| directory.into());
    let known = whole.ancestors().find_map(|above| {
        let rest = whole.strip_prefix(above).ok()?;
        // Not with a slash at its end.
        Some(above.canonicalize().ok()?.join(rest).components().collect())
    });
    known.unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At an address of its own: other tests listen at free ports of the usual one.
    fn free() -> SocketAddr {
        let found = TcpListener::bind("127.83.0.1:0").and_then(|listener| listener.local_addr());
        found.expect("a port")
    }

    #[test]
    fn what_one_command_has_claimed_another_is_refused_although_nobody_listens_yet() {
        let [first, second] = [free(), free()].map(|at| (at, Chosen::By("--port")));
        let (mut one, mut other) = (Claims::default(), Claims::default());
        assert_eq!(one.take([first]), Ok(()));
        assert_eq!(one.take([first, second]), Ok(()), "it has it");
        let line = other.take([second]).expect_err("it is claimed");
        let begin = format!("cannot listen at {} (--port): another process", second.0);
        assert!(line.starts_with(&begin), "{line}");
        let listener = TcpListener::bind(first.0).expect("a claim does not listen");
        drop(one);
        let line = other.take([second, first]).expect_err("somebody listens");
        assert!(line.contains(&first.0.to_string()), "{line}");
        drop(listener);
        assert_eq!(other.take([first, second]), Ok(()));
        drop(other);
        let line = Claims::default().take([first, first]).expect_err("twice");
        assert!(
            line.contains("this command listens there already"),
            "{line}"
        );
    }

    #[test]
    fn a_name_in_a_directory_is_one_command_s_however_it_writes_the_directory() {
        let directory = std::env::temp_dir().join(format!("plinth-claims-{}", std::process::id()));
        let (mut one, mut other) = (Claims::default(), Claims::default());
        assert!(one.take_name(&directory.join("a"), "locks"));
        assert!(one.take_name(&directory.join("a"), "locks"), "it has it");
        std::fs::create_dir_all(&directory).expect("it is made");
        assert!(!other.take_name(&directory.join("./a"), "locks"));
        std::os::unix::fs::symlink(&directory, directory.join("b")).expect("a link");
        assert!(!other.take_name(&directory.join("b/a"), "locks"));
        std::fs::create_dir_all(directory.join("a")).expect("it is made");
        assert!(!other.take_name(&directory.join("b/a"), "locks"));
        assert!(other.take_name(&directory.join("a"), "tables"));
        drop(one);
        assert!(other.take_name(&directory.join("a"), "locks"));
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}

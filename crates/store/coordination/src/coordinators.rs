//! Where the coordinators are, as far as this process knows: they may move.

use crate::ClusterFile;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Boxed, probe, trace, trace_warn};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A cluster file that is kept current. Clones share it.
#[derive(Clone)]
pub struct Coordinators {
    newest: Watch<ClusterFile>,
    /// True if a cluster file could not be updated and that was reported.
    is_stale_on_disk: Rc<Cell<bool>>,
    /// The cluster file that is kept current, if there is one.
    path: Rc<RefCell<Option<PathBuf>>>,
}

impl From<ClusterFile> for Coordinators {
    fn from(file: ClusterFile) -> Self {
        Coordinators {
            newest: Watch::new(file),
            is_stale_on_disk: Rc::default(),
            path: Rc::default(),
        }
    }
}

impl Coordinators {
    /// The newest set that is known.
    pub fn file(&self) -> ClusterFile {
        self.newest.get()
    }

    /// The key of the cluster, whatever coordinators it has.
    pub fn key(&self) -> String {
        self.newest.with(ClusterFile::key)
    }

    /// The cluster file, and whether it names the newest set; `None` if no file is kept.
    pub fn kept_file(&self) -> Option<(PathBuf, bool)> {
        let path = self.path.borrow().clone()?;
        Some((path, !self.is_stale_on_disk.get()))
    }

    /// Adopts the set in `successor`, if it is a later one of this cluster.
    pub fn follow(&self, successor: &str) {
        let Ok(mut file) = ClusterFile::parse(successor) else {
            return;
        };
        (file.keys, file.certificates) = self
            .newest
            .with(|now| (now.keys.clone(), now.certificates.clone()));
        // Nobody talks a process that was told to use TLS out of it.
        file.is_tls |= self.newest.with(|now| now.is_tls);
        if self
            .newest
            .with(|now| file.key() == now.key() && file.number() > now.number())
        {
            probe!("coordinators_followed");
            trace!("CoordinatorsFollowed", "to" => successor);
            self.newest.set(file);
        }
    }

    /// Keeps the file at `path` up to date without end. The file contains `written`.
    pub fn keep_file<'a>(
        &'a self,
        path: &'a Path,
        mut written: ClusterFile,
    ) -> Boxed<'a, Infallible> {
        Box::pin(async move {
            self.path.replace(Some(path.to_path_buf()));
            loop {
                self.newest.wait_until(|now| *now != written).await;
                written = self.write_file(path, written).await;
            }
        })
    }

    /// Updates the file at `path`, which contains `written`, and returns its wanted content. The file is opened for
    /// writing only if that differs. A file that cannot be written stays as it is, and one warning reports that: this
    /// process goes on with the addresses that it knows, and a process that starts with the file asks the former
    /// coordinators, which redirect it.
    pub fn write_file<'a>(
        &'a self,
        path: &'a Path,
        written: ClusterFile,
    ) -> Boxed<'a, ClusterFile> {
        Box::pin(async move {
            let now = self.file();
            if now != written
                && let Err(error) = now.save(path).await
                && !self.is_stale_on_disk.replace(true)
            {
                // Not named `file`, because the failure is no reason for an end of the process.
                trace_warn!("ClusterFileNotWritten", "cluster_file" => path.display(),
                "error" => error, "coordinators" => now);
            }
            now
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::Duration;
    use plinth_runtime::sim::{SimConfig, Simulation};

    #[test]
    fn only_a_later_set_of_the_same_cluster_is_followed() {
        let first = ClusterFile::parse("a:b@1.2.3.4:5").expect("valid");
        let coordinators = Coordinators::from(first.clone());
        for stray in [
            "",
            "nonsense",
            "a:c_2@1.2.3.4:6",
            "x:b_2@1.2.3.4:6",
            "a:b@1.2.3.4:6",
        ] {
            coordinators.follow(stray);
            assert_eq!(coordinators.file(), first, "{stray}");
        }
        coordinators.follow("a:b_3@1.2.3.4:7");
        coordinators.follow("a:b_2@1.2.3.4:6"); // from a coordinator that was away meanwhile
        assert_eq!(coordinators.file().to_string(), "a:b_3@1.2.3.4:7");
        assert_eq!(coordinators.key(), first.key());
    }

    #[test]
    fn a_later_set_does_not_lead_away_from_tls() {
        let first = ClusterFile::parse("a:b@1.2.3.4:5:tls").expect("valid");
        let coordinators = Coordinators::from(first);
        coordinators.follow("a:b_2@1.2.3.4:6");
        let followed = coordinators.file();
        assert_eq!(followed.to_string(), "a:b_2@1.2.3.4:6:tls");
    }

    #[test]
    fn a_set_that_was_followed_before_the_file_is_kept_is_written_too() {
        Simulation::new(1, SimConfig::default()).run(async {
            let path = Path::new("/plinth.cluster");
            let first = ClusterFile::parse("a:b@1.2.3.4:5").expect("valid");
            first.save(path).await.expect("saves");
            let coordinators = Coordinators::from(first.clone());
            coordinators.follow("a:b_2@1.2.3.4:6");
            let keeping = coordinators.keep_file(path, first);
            plinth_runtime::timeout(Duration::from_secs(1), keeping).await;
            let written = ClusterFile::load(path).await.expect("loads");
            assert_eq!(written, coordinators.file());
        });
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_and_that_is_said_once() {
        let simulation = Simulation::new(1, SimConfig::default());
        simulation.run(async {
            // There is no such directory to write to.
            let path = Path::new("/nowhere/plinth.cluster");
            let first = ClusterFile::parse("a:b@1.2.3.4:5").expect("valid");
            let coordinators = Coordinators::from(first.clone());
            coordinators.write_file(path, first.clone()).await;
            assert!(!coordinators.is_stale_on_disk.get(), "nothing to write");
            for (successor, is_known) in [("a:b_2@1.2.3.4:6", false), ("a:b_3@1.2.3.4:7", true)] {
                coordinators.follow(successor);
                assert_eq!(coordinators.is_stale_on_disk.get(), is_known);
                let now = coordinators.write_file(path, first.clone()).await;
                assert_eq!(now.to_string(), successor);
            }
        });
    }
}

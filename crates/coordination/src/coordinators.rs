//! Where the coordinators are, as far as this process knows: they may move.

use crate::ClusterFile;
use plinth_runtime::sync::Watch;
use plinth_runtime::{probe, trace, trace_warn};
use std::convert::Infallible;
use std::path::Path;

/// A cluster file that is kept current. Clones share it.
#[derive(Clone)]
pub struct Coordinators(Watch<ClusterFile>);

impl From<ClusterFile> for Coordinators {
    fn from(file: ClusterFile) -> Self {
        Coordinators(Watch::new(file))
    }
}

impl Coordinators {
    /// The newest set that is known.
    pub fn file(&self) -> ClusterFile {
        self.0.get()
    }

    /// Whose cluster it is, whatever coordinators it has.
    pub fn key(&self) -> String {
        self.0.with(ClusterFile::key)
    }

    /// Goes on with the set that the text names, if it is a later one of this cluster.
    pub fn follow(&self, successor: &str) {
        let Ok(file) = ClusterFile::parse(successor) else {
            return;
        };
        if self
            .0
            .with(|now| file.key() == now.key() && file.number() > now.number())
        {
            probe!("coordinators_followed");
            trace!("CoordinatorsFollowed", "to" => successor);
            self.0.set(file);
        }
    }

    /// Keeps the file at `path`, which has `written`, up to date, for ever.
    pub async fn keep_file(&self, path: &Path, mut written: ClusterFile) -> Infallible {
        loop {
            self.0.wait_until(|now| *now != written).await;
            written = self.write_file(path, written).await;
        }
    }

    /// Brings the file at `path`, which has `written`, up to date, and gives what it has then. One that cannot be written
    /// stays as it is: who starts with it asks the former coordinators, and is sent on.
    pub async fn write_file(&self, path: &Path, written: ClusterFile) -> ClusterFile {
        let now = self.file();
        if now != written
            && let Err(error) = now.save(path).await
        {
            trace_warn!("ClusterFileNotWritten", "file" => path.display(), "error" => error);
        }
        now
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
        coordinators.follow("a:b_2@1.2.3.4:6"); // from one that was away meanwhile
        assert_eq!(coordinators.file().to_string(), "a:b_3@1.2.3.4:7");
        assert_eq!(coordinators.key(), first.key());
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
}

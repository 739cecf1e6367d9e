//! Watches the disk of the data directory: reports when it is sick, tests it from then on, and reports when it works
//! again.
//!
//! ```text
//! well ─ an operation fails, or takes too long ─► broken ─ a probe comes back ─► works ─ for a while ─► well
//!                                                   ▲─────── trouble again ─────────┘
//! ```
//!
//! The next registration tells the controller. After each relapse it takes longer until the disk is trusted again.

use crate::knobs::{DISK_STALL_MS, DISK_TRUST_MS};
use plinth_protocol::control::SickDisk;
use plinth_runtime::disk::{self, Health, Trouble};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Duration, probe, trace, trace_warn};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// How often the disk's health is checked.
const LOOK: Duration = Duration::from_millis(250);
/// Pause between two tests of a disk that does not work.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// File for the test: it is written, made durable, read from the disk and removed.
const PROBE_FILE: &str = "probe";
/// The wait before a disk is trusted doubles at most this often.
const DOUBLINGS_MAX: u32 = 6;

pub struct DiskWatch {
    directory: PathBuf,
    health: Health,
    sick: Watch<Option<SickDisk>>,
}

impl DiskWatch {
    pub fn new(directory: &Path) -> Self {
        DiskWatch {
            directory: directory.to_path_buf(),
            health: disk::health(directory),
            sick: Watch::new(None),
        }
    }

    /// The problem of the disk, if it has one or had one a moment ago.
    pub fn sick(&self) -> Option<SickDisk> {
        self.sick.get()
    }

    /// Returns when the result of `sick` changes.
    pub async fn changed(&self) {
        self.sick.changed().await;
    }

    /// Waits until the disk works, as far as is known.
    pub async fn works(&self) {
        let works = |sick: &Option<SickDisk>| sick.as_ref().is_none_or(|sick| sick.works);
        self.sick.wait_until(works).await;
    }

    pub async fn watch(&self) -> Infallible {
        let (mut failures, mut relapses) = (0, 0);
        let mut trouble = self.trouble(&mut failures).await;
        loop {
            self.say_broken(&trouble);
            self.try_until_it_works(&mut failures).await;
            probe!("sick_disk_works_again");
            trace!("DiskWorksAgain", "directory" => self.directory.display());
            self.sick.update(|sick| {
                if let Some(sick) = sick {
                    sick.works = true;
                }
            });
            let trust = Duration::from_millis(DISK_TRUST_MS.get()) * (1 << relapses);
            let relapse = plinth_runtime::timeout(trust, self.trouble(&mut failures)).await;
            trouble = match relapse {
                Some(trouble) => {
                    relapses = DOUBLINGS_MAX.min(relapses + 1);
                    trouble
                }
                None => {
                    self.sick.set(None);
                    self.trouble(&mut failures).await
                }
            };
        }
    }

    /// Waits for the next trouble. A hang must be seen twice in a row: after a pause of the whole process all its
    /// operations look old, and return at once.
    async fn trouble(&self, failures: &mut u64) -> Trouble {
        let mut hung = false;
        loop {
            plinth_runtime::sleep(LOOK).await;
            match self.look(failures) {
                Some(Trouble::Hangs(_)) if !hung => hung = true,
                Some(trouble) => return trouble,
                None => hung = false,
            }
        }
    }

    fn look(&self, failures: &mut u64) -> Option<Trouble> {
        let limit = Duration::from_millis(DISK_STALL_MS.get());
        let trouble = self.health.trouble(limit, *failures);
        *failures = self.health.failures();
        trouble
    }

    fn say_broken(&self, trouble: &Trouble) {
        probe!("disk_is_sick");
        let directory = self.directory.display();
        trace_warn!("DiskSick", "directory" => directory, "what" => trouble);
        let known = self.sick.get();
        self.sick.set(Some(SickDisk {
            directory: directory.to_string(),
            what: trouble.to_string(),
            since_ms: known.map_or_else(plinth_runtime::unix_time_ms, |known| known.since_ms),
            works: false,
        }));
    }

    /// Tests the disk periodically, one test at a time: while one hangs there is no second.
    async fn try_until_it_works(&self, failures: &mut u64) {
        loop {
            plinth_runtime::sleep(PROBE_PAUSE).await;
            // Trouble from before this test does not count.
            self.look(failures);
            let tried = self.try_once().await;
            // A full disk has received the request and answered it.
            let answers = match tried {
                Ok(()) => true,
                Err(error) => error.kind() == std::io::ErrorKind::StorageFull,
            };
            if answers && self.look(failures).is_none() {
                return;
            }
        }
    }

    async fn try_once(&self) -> std::io::Result<()> {
        let file = self.directory.join(PROBE_FILE);
        disk::write_file_durably(&file, PROBE_FILE.into()).await?;
        disk::forget_cached(&file).await?;
        disk::read_file(&file).await?;
        disk::remove(&file).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::sim::{Hang, Locality, Sickness, SimConfig, Simulation, control};
    use std::rc::Rc;

    #[test]
    fn a_disk_is_sick_while_it_hangs_works_when_it_is_back_and_is_trusted_later_each_time() {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let run = sim.run_on(machine, async move {
            let directory = Path::new("/data");
            disk::create_dir_all(directory).await.expect("makes it");
            let watch = Rc::new(DiskWatch::new(directory));
            let watching = watch.clone();
            let _watching =
                plinth_runtime::spawn("watch", async move { match watching.watch().await {} });
            let seconds = |s| plinth_runtime::sleep(Duration::from_secs(s));
            let write = || async {
                let file = directory.join("file");
                plinth_runtime::spawn("write", async move {
                    disk::write_file_durably(&file, "x".into()).await
                })
                .detach();
            };
            seconds(60).await;
            assert_eq!(watch.sick(), None);

            control().set_disk_sickness(
                machine,
                Sickness {
                    hangs: Hang::Syncs,
                    ..Sickness::default()
                },
            );
            write().await;
            seconds(4).await;
            assert_eq!(watch.sick(), None, "it may be slow");
            seconds(2).await;
            let sick = watch.sick().expect("it hangs");
            assert!(!sick.works && sick.directory == "/data");
            assert!(sick.what.contains("sync"), "{}", sick.what);

            control().heal_all();
            seconds(3).await;
            assert!(watch.sick().is_some_and(|sick| sick.works));
            control().set_disk_sickness(machine, Sickness::errors(1.0));
            write().await;
            seconds(1).await;
            assert!(watch.sick().is_some_and(|sick| !sick.works));
            control().heal_all();
            seconds(45).await;
            assert!(watch.sick().is_some_and(|sick| sick.works), "it relapsed");
            seconds(30).await;
            assert_eq!(watch.sick(), None);
        });
        run.expect("it ends");
    }
}

//! What can be measured.

use crate::figure::Figure;
use crate::plan::Plan;
use crate::{append, apply, lease, rates, reconfigure};
use plinth_core::words;
use plinth_runtime::Boxed;
use std::path::{Path, PathBuf};

words! {
    /// See the module.
    pub enum Part {
        Figure7 = "figure-7",
        Figure9 = "figure-9",
        Figure10 = "figure-10",
        QuorumAppend = "quorum-append",
        Reconfigure = "reconfigure",
    }
}

impl Part {
    pub fn about(self) -> &'static str {
        match self {
            Part::Figure7 => {
                "share of each engine, and of the application, in the time of applying the log"
            }
            Part::Figure9 => {
                "latency of writes of 100 bytes at rising rates, with and without Batching"
            }
            Part::Figure10 => {
                "latency of reads at a replica whose peers are far away, with and without Lease"
            }
            Part::QuorumAppend => {
                "an append to a log on three log servers beside an fdatasync, and entries a second"
            }
            Part::Reconfigure => {
                "appends while the log is reconfigured: failures, and the longest pause"
            }
        }
    }
}

/// Measures one part.
///
/// # Errors
/// One line: what could not be measured, and why.
pub fn measure<'a>(
    part: Part,
    plan: &'a Plan,
    tell: &'a dyn Fn(&str),
) -> Boxed<'a, Result<Figure, String>> {
    Box::pin(async move {
        let directory = Directory::make(&plan.directory).await?;
        let at = &directory.0;
        match part {
            Part::Figure7 => apply::measure(plan, at, tell).await,
            Part::Figure9 => rates::measure(plan, at, tell).await,
            Part::Figure10 => lease::measure(plan, at, tell).await,
            Part::QuorumAppend => append::measure(plan, at, tell).await,
            Part::Reconfigure => reconfigure::measure(plan, at, tell).await,
        }
    })
}

/// A directory that goes when this is dropped.
struct Directory(PathBuf);

impl Directory {
    async fn make(under: &Path) -> Result<Directory, String> {
        let path = under.join(format!(".plinth-bench-delos-{}", std::process::id()));
        let made = plinth_runtime::disk::create_dir_all(&path).await;
        made.map_err(|error| {
            let path = path.display();
            format!("{path}: {error}; name a directory that can be written to with --directory")
        })?;
        Ok(Directory(path))
    }
}

impl Drop for Directory {
    #[allow(clippy::disallowed_methods)] // outside of any task
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // the user may have removed it
    }
}

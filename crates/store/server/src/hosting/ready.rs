//! Whether the process is ready, as it says itself.

use super::Hosting;
use crate::readiness;
use plinth_protocol::control::ClusterInfo;
use plinth_runtime::metric::page::Samples;
use plinth_runtime::now;
use plinth_runtime::readiness::Verdict;
use std::convert::Infallible;

impl Hosting {
    /// Whether a user who came to this process could work just now.
    pub fn verdict(&self) -> Verdict {
        let verdict = self.readiness.borrow().verdict(now());
        let serves = |info: &Option<ClusterInfo>| info.as_ref().map(|info| info.accepting);
        match self.info.with(serves) {
            _ if verdict.is_ready => verdict,
            None => Verdict::not("this process has not joined its cluster yet"),
            Some(false) if self.directory.epoch() == 0 => {
                Verdict::not("not created: there is no database, as far as this process knows")
            }
            Some(_) => verdict,
        }
    }

    /// Keeps up to date whether this process is ready.
    pub async fn probe(&self) -> Infallible {
        readiness::keep(self.snapshots.0.clone(), &self.readiness).await
    }

    pub fn add_readiness(&self, out: &mut Samples) {
        let verdict = self.verdict();
        self.readiness.borrow().add_to(out, &verdict);
    }
}

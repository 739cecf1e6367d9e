//! What an acknowledgement needs: the version is on the disk of every log server, and the sequencer knows it
//! (FDB §2.4.1, pitfall 2).

use plinth_core::{Error, Result, Version};
use plinth_protocol::log::Push;
use plinth_rpc::Call;

/// A version that every log server of the epoch has on disk. Only their answers make one.
#[derive(Clone, Copy, Debug)]
pub struct OnEveryLog(Version);

impl OnEveryLog {
    /// Waits for the answers to the pushes of `version`. Fails if one of the log servers has ended.
    pub async fn after(version: Version, pushes: Vec<Call<Push>>) -> Result<Self> {
        for reply in plinth_runtime::join_all(pushes).await {
            if reply?.durable.version() < version {
                return Err(Error::internal_error); // no log server of ours answers so
            }
        }
        Ok(OnEveryLog(version))
    }

    pub fn version(self) -> Version {
        self.0
    }
}

/// A version that every log server has on disk, and that later read versions include: clients may be told.
#[derive(Clone, Copy, Debug)]
pub struct Committed(Version);

impl Committed {
    /// `reported` is the sequencer's answer to the report of the version.
    pub fn new(durable: OnEveryLog, reported: Result<()>) -> Result<Self> {
        reported.map(|()| Committed(durable.0))
    }

    pub fn version(self) -> Version {
        self.0
    }
}

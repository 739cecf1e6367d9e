//! What an acknowledgement needs: the version is on the disk of every log server, and the sequencer knows it
//! (FDB §2.4.1, pitfall 2).

use plinth_core::{Error, Result, Version};
use plinth_protocol::log::{LogGeneration, Push};
use plinth_rpc::Call;
use plinth_runtime::never;

/// A version that every log server of the epoch has on disk. Only their answers make one.
#[derive(Clone, Copy, Debug)]
pub struct OnEveryLog(Version);

impl OnEveryLog {
    /// Waits for the answers to the pushes of `version`, one to each log server of the generation. Fails if one of the
    /// log servers has ended.
    pub async fn after(
        version: Version,
        generation: &LogGeneration,
        pushes: Vec<Call<Push>>,
    ) -> Result<Self> {
        // Of no log servers at all, none would lack it.
        assert!(
            pushes.len() == generation.logs.len() && !pushes.is_empty(),
            "version {version} was pushed to {} of {} log servers",
            pushes.len(),
            generation.logs.len()
        );
        for reply in plinth_runtime::join_all(pushes).await {
            let durable = reply?.durable.version();
            if never!(durable < version, "PushAnsweredEarly", "version" => version, "durable" => durable)
            {
                return Err(Error::internal_error);
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

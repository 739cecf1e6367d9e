//! Replaces a sequencer that is gone, and a loglet whose sealer has gone before it could add the next one.
//!
//! Every process watches the process of the log's sequencer. When it is gone, one after the other offers itself: it
//! seals the loglet and goes on in a new one, with the same log servers, unless somebody else was faster. A process
//! that starts does so at once if the sequencer was its own, because a sequencer does not outlive its process.

use super::messages::process;
use super::serves::ServiceLog;
use crate::quorum::messages::Config;
use bytes::Bytes;
use plinth_core::Uid;
use plinth_rpc::{Transport, wait_failure};
use plinth_runtime::{Duration, Either, probe, race, random, sleep, trace, trace_warn};
use std::convert::Infallible;
use std::net::SocketAddr;

/// How often the map is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// A process offers itself after up to so long, so that not all do at the same time.
const SPREAD_MS: u64 = 300;
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// The id of a loglet that nobody has used.
pub fn fresh_loglet() -> Uid {
    Uid(random::uid())
}

async fn changed(log: &ServiceLog, from: &Bytes) {
    while log.last_description() == *from {
        sleep(LOOK_INTERVAL).await;
    }
}

/// Resolves when the loglet takes no more entries, and nobody seems to add another one. Without a `sequencer`, that is
/// in this process.
async fn ends(transport: &Transport, sequencer: Option<SocketAddr>, log: &ServiceLog) {
    let gone = async {
        let Some(address) = sequencer else {
            return std::future::pending().await;
        };
        let gone = wait_failure(transport, process(address)).await;
        trace!("DelosSequencerGone", "address" => address, "reason" => gone);
    };
    let stays_sealed = async {
        log.stays_sealed().await;
        probe!("delos_stays_sealed");
    };
    race(gone, stays_sealed).await;
}

/// Watches the sequencer, for ever. `own` is this process; what was there when it started is `stale`.
pub async fn care(
    transport: &Transport,
    own: SocketAddr,
    log: &ServiceLog,
    stale: Option<Bytes>,
) -> Infallible {
    loop {
        let current = log.last_description();
        let Some(config) = Config::from_description(&current) else {
            trace_warn!("DelosLogletUnknown", "description" => String::from_utf8_lossy(&current));
            changed(log, &current).await;
            continue;
        };
        // A loglet that came while this process lived has its sequencer.
        let lives_here = config.sequencer == own && stale.as_ref() != Some(&current);
        if lives_here || config.sequencer != own {
            let sequencer = (!lives_here).then_some(config.sequencer);
            match race(ends(transport, sequencer, log), changed(log, &current)).await {
                Either::Left(()) => sleep(Duration::from_millis(random::below(SPREAD_MS))).await,
                Either::Right(()) => continue,
            }
        }
        offer(own, log, &current, config).await;
    }
}

async fn offer(own: SocketAddr, log: &ServiceLog, current: &Bytes, config: Config) {
    let next = Config {
        loglet: fresh_loglet(),
        sequencer: own,
        ..config
    };
    match log.replace(current, next.to_description()).await {
        Ok(is_own) => {
            probe!("delos_sequencer_replaced");
            trace!("DelosSequencerReplaced", "by_this_process" => is_own);
        }
        Err(error) => {
            trace_warn!("DelosSequencerStays", "error" => error);
            sleep(RETRY_PAUSE).await;
        }
    }
}

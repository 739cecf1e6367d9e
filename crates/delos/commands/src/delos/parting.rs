//! Before a replica goes: its log server may be one of too few that have entries of the log.

use super::service::{RETRY_PAUSE, Seen, Service};
use plinth_delos::log::LogPos;
use plinth_delos::quorum::messages::Config;
use plinth_delos::replica::messages::ReplicaStatus;
use plinth_rpc::Interface;
use plinth_runtime::sleep;
use plinth_terminal::Outcome;

/// Waits until all other replicas have on disk what too few log servers would have without this one. The log goes on
/// without it already.
pub async fn await_others(service: &Service, id: u64, name: &str) -> Outcome {
    loop {
        let seen = service.look().await?;
        let Some(why) = hindrance(&seen, id, name) else {
            return Ok(());
        };
        if !service.has_time() {
            return Err(format!(
                "service {}: {why}; the same may be tried again",
                service.name()
            ));
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Why the replica cannot go yet.
fn hindrance(seen: &[Seen], id: u64, name: &str) -> Option<String> {
    // Who has heard of the newest part.
    let statuses = seen.iter().filter_map(|seen| seen.status.as_ref());
    let best = statuses.max_by_key(|status| {
        let last = status.loglets.last().map(|(first, _)| *first);
        (last, status.loglets.len(), status.applied)
    })?;
    let own = seen.iter().find(|seen| seen.id == id).map(server)?;
    let newest = best.loglets.last();
    if newest.is_some_and(|(_, of)| servers(of).contains(&own)) {
        return Some(format!("the log goes on with the log server of {name}"));
    }
    let last = left_alone(seen, id, best)?;
    seen.iter().filter(|seen| seen.id != id).find_map(|other| {
        let who = &other.member.name;
        match &other.status {
            Some(status) if status.flushed >= last => None,
            Some(_) => Some(format!(
                "replica {who} has not on disk yet what the log has up to position {last}, and without {name} too few \
                 log servers would have it"
            )),
            // Who was silent for long has to be added anew.
            None if !best.in_view.contains(&other.id) => None,
            None => Some(format!(
                "replica {who} does not answer, and may need what the log has up to position {last}, which too few \
                 log servers would have without {name}: start {who}, or wait until it was away for a minute"
            )),
        }
    })
}

fn server(seen: &Seen) -> Interface {
    Interface::new(seen.member.address, seen.member.log_server)
}

/// The log servers of a part.
fn servers(description: &[u8]) -> Vec<Interface> {
    let config = Config::from_description(description);
    config.map(|config| config.servers).unwrap_or_default()
}

/// The last entry of the parts of which too few log servers would be left without this replica.
fn left_alone(seen: &[Seen], id: u64, best: &ReplicaStatus) -> Option<LogPos> {
    let own = seen.iter().find(|seen| seen.id == id).map(server)?;
    let others = seen
        .iter()
        .filter(|seen| seen.id != id && seen.status.is_some());
    let others: Vec<Interface> = others.map(server).collect();
    let parts = best.loglets.iter().zip(best.loglets.iter().skip(1)).rev();
    let mut alone = parts.filter(|((first, description), (next, _))| {
        let servers = servers(description);
        let left = servers.iter().filter(|server| others.contains(server));
        first < next && servers.contains(&own) && left.count() < servers.len() / 2 + 1
    });
    alone.next().map(|(_, (next, _))| next - 1)
}

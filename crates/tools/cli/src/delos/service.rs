//! A service as its clients and operators reach it.

use super::Common;
use crate::Outcome;
use plinth_coordination::ClusterFile;
use plinth_core::Error;
use plinth_delos::engines::roster::Member;
use plinth_delos::replica::messages::{AskStatus, ReplicaStatus, Told, process};
use plinth_rpc::{Request, Transport};
use plinth_runtime::{Duration, Instant, join_all, now, sleep, timeout};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;

/// A process that says nothing for so long is passed over.
const GLANCE: Duration = Duration::from_secs(2);
pub const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// See the module.
pub struct Service {
    pub file: ClusterFile,
    pub transport: Transport,
    end: Instant,
    seconds: u64,
}

/// A replica of the roster, with what its process says.
pub struct Seen {
    pub id: u64,
    pub member: Member,
    /// `None` if it does not answer, or is something else now.
    pub status: Option<ReplicaStatus>,
}

/// Sends a request to the process at an address.
pub async fn ask<R: Request>(
    transport: &Transport,
    address: SocketAddr,
    request: R,
    limit: Duration,
) -> Result<R::Reply, Error> {
    let endpoint = process(address).endpoint::<R>();
    let asked = timeout(limit, transport.call(&endpoint, request)).await;
    asked.unwrap_or(Err(Error::timed_out))
}

pub async fn load(path: &Path) -> Outcome<ClusterFile> {
    let file = ClusterFile::load(path).await;
    file.map_err(|error| {
        let line = error.0.replacen("cluster file", "service file", 1);
        format!("{line}; name the file that `plinth delos create` or `dev` wrote")
    })
}

impl Service {
    pub async fn open(common: &Common) -> Outcome<Service> {
        let file = load(&common.service).await?;
        Ok(Service::of(file, common.timeout))
    }

    pub fn of(file: ClusterFile, seconds: u64) -> Service {
        Service {
            file,
            transport: Transport::client(),
            end: now() + Duration::from_secs(seconds),
            seconds,
        }
    }

    /// Has all its time again.
    pub fn renew(&mut self) {
        self.end = now() + Duration::from_secs(self.seconds);
    }

    pub fn name(&self) -> &str {
        &self.file.description
    }

    pub fn left(&self) -> Duration {
        self.end.saturating_since(now())
    }

    pub fn has_time(&self) -> bool {
        self.left() > Duration::ZERO
    }

    /// What the processes at these addresses say, those of this service that answer.
    async fn statuses(&self, addresses: &[SocketAddr]) -> Vec<(SocketAddr, ReplicaStatus)> {
        let limit = GLANCE.min(self.left().max(Duration::from_millis(100)));
        let asked = addresses.iter().map(|address| async move {
            let status = ask(&self.transport, *address, AskStatus {}, limit).await;
            status.ok().map(|status| (*address, status))
        });
        let answered = join_all(asked.collect::<Vec<_>>()).await;
        let is_own = |status: &ReplicaStatus| {
            ClusterFile::parse(&status.service).is_ok_and(|file| file.key() == self.file.key())
        };
        let answered = answered.into_iter().flatten();
        answered.filter(|(_, status)| is_own(status)).collect()
    }

    /// The replicas, as the one that knows most of the log says, in the order of their names.
    pub async fn look(&self) -> Outcome<Vec<Seen>> {
        let mut last_word = String::new();
        loop {
            let first = self.statuses(&self.file.coordinators).await;
            let best = first.iter().max_by_key(|(_, status)| status.applied);
            if let Some((_, best)) = best.filter(|(_, best)| !best.members.is_empty()) {
                return Ok(self.complete(best.members.clone(), &first).await);
            }
            if let Some((_, status)) = first.first() {
                last_word = format!(": it waits for {}", status.waits_for);
            }
            if !self.has_time() {
                return Err(self.silent(&last_word));
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn complete(
        &self,
        members: Vec<(u64, Member)>,
        known: &[(SocketAddr, ReplicaStatus)],
    ) -> Vec<Seen> {
        let asked: BTreeSet<SocketAddr> = self.file.coordinators.iter().copied().collect();
        let others: Vec<SocketAddr> = members
            .iter()
            .map(|(_, member)| member.address)
            .filter(|address| !asked.contains(address))
            .collect();
        let mut all = self.statuses(&others).await;
        all.extend(known.iter().cloned());
        let mut seen: Vec<Seen> = members
            .into_iter()
            .map(|(id, member)| {
                let status = all.iter().find(|(_, status)| status.id == id);
                let status = status.map(|(_, status)| status.clone());
                Seen { id, member, status }
            })
            .collect();
        seen.sort_by(|a, b| a.member.name.cmp(&b.member.name));
        seen
    }

    /// The line when nobody answers.
    pub fn silent(&self, last_word: &str) -> String {
        let at: Vec<String> = self
            .file
            .coordinators
            .iter()
            .map(SocketAddr::to_string)
            .collect();
        format!(
            "service {} does not answer after {} s{last_word}; its processes are at {}",
            self.name(),
            self.seconds,
            at.join(", ")
        )
    }

    /// Asks a replica that serves, whichever is found first. `R` may be sent again if it certainly did not arrive.
    pub async fn operate<R: Request<Reply = Told> + Clone>(&self, request: R) -> Outcome<u64> {
        let mut last_word = String::new();
        loop {
            for seen in self.look().await? {
                if !seen.serves() {
                    continue;
                }
                let address = seen.member.address;
                let limit = self.left().max(GLANCE);
                match ask(&self.transport, address, request.clone(), limit).await {
                    Ok(told) if told.refused.is_empty() => return Ok(told.pos),
                    Ok(told) => return Err(format!("service {}: {}", self.name(), told.refused)),
                    Err(Error::connection_failed) => {
                        last_word = format!(": {address} is not reached");
                    }
                    Err(error) => {
                        return Err(format!(
                            "service {}: {address} gave no answer ({error}): it may be done, now or later",
                            self.name()
                        ));
                    }
                }
            }
            if !self.has_time() {
                return Err(self.silent(&last_word));
            }
            sleep(RETRY_PAUSE).await;
        }
    }
}

impl Seen {
    pub fn serves(&self) -> bool {
        self.status
            .as_ref()
            .is_some_and(|status| status.waits_for.is_empty())
    }
}

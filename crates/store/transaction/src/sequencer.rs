//! The sequencer (FDB §2.3.2, §2.4.1): hands out commit versions and keeps the newest committed version.
//!
//! ```text
//! commit proxy: GetCommitVersion ─► version, prev_version, partitions that the proxy does not know
//! commit proxy: ReportCommitted ──► committed ◄── GetCommittedVersion: GRV proxy
//! resolvers: their load ──────────► balance ────► another partition, from the next version on
//! ```
//!
//! It promises: versions grow by about 1,000,000 a second and never repeat; each comes with the one handed out
//! before, so that resolvers and log servers can follow the chain without a gap; a repeated request gets the answer
//! it got before (pitfall 4); a read version is at or above every commit that was acknowledged before it was
//! asked for (pitfall 2). It never runs more than `MAX_VERSIONS_IN_FLIGHT` ahead of what is committed, so a
//! recovery that jumps that far can never meet a version of its predecessor again.
//!
//! It also decides which keys each resolver judges from which version on, so that all have about the [same](balance)
//! load. The sequencer can decide this because it alone talks to every proxy between any two versions.
//!
//! The state machine is in this file, its shell in `sequencer/shell.rs`.

mod balance;
mod shell;

use bytes::Bytes;
use plinth_core::hash::HashMap;
use plinth_core::version::{MAX_VERSIONS_IN_FLIGHT, VERSION_MAX, VERSIONS_PER_SECOND};
use plinth_core::{Error, Uid, Version};
use plinth_protocol::transaction::{
    CommitVersion, CommittedVersion, GetCommitVersion, Partition, RecruitSequencer,
};
use plinth_runtime::{Instant, trace};
pub use shell::start;

/// The last request of a proxy and the answer to it.
struct LastGrant {
    request_number: u64,
    grant: CommitVersion,
}

/// The state machine.
pub struct Sequencer {
    /// Version that belongs to `origin`.
    base: Version,
    origin: Instant,
    last_handed_out: Version,
    /// Never above `last_handed_out`, and never far below it.
    committed: Version,
    /// Whether the database is locked as of the committed version.
    locked: bool,
    /// The commit proxies of this epoch, each with what it was given last.
    proxies: HashMap<Uid, Option<LastGrant>>,
    /// Partitions of the keys over the resolvers, in order. The last one applies to the next version.
    partitions: Vec<Partition>,
}

/// Why a version cannot be handed out now.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Too far ahead of the committed version: ask again when it has grown.
    TooFarAhead,
    /// An earlier request of this proxy has not come yet.
    OutOfOrder,
    /// An older request of this proxy. The proxy has had the answer to a later one.
    Obsolete,
    /// The proxy is not one of this epoch. It would never fill its version, and all later ones would wait for it.
    Unknown,
}

impl Sequencer {
    /// Starts after the recovery transaction, which has taken `recovery_version` already.
    pub fn new(
        now: Instant,
        recovered_to: Version,
        recovery_version: Version,
        begins: Vec<Bytes>,
        proxies: &[Uid],
    ) -> Self {
        assert!(
            recovered_to < recovery_version,
            "recovery goes forward: {recovered_to} {recovery_version}"
        );
        Sequencer {
            base: recovery_version,
            origin: now,
            last_handed_out: recovery_version,
            committed: recovered_to,
            locked: false,
            proxies: proxies.iter().map(|id| (*id, None)).collect(),
            partitions: vec![Partition { after: 0, begins }],
        }
    }

    fn partition(&self) -> &Partition {
        self.partitions.last().expect("it was made with one")
    }

    /// Assigns other keys to the resolvers from the next version on. Every proxy gets the change with its next
    /// version.
    pub fn repartition(&mut self, begins: Vec<Bytes>) {
        let (after, parts) = (self.last_handed_out, self.partition().begins.len());
        assert!(
            begins.len() == parts
                && begins[0].is_empty()
                && begins.is_sorted_by(|before, next| before < next),
            "{parts} resolvers cannot share the keys like this: {begins:?}"
        );
        if self.partition().after == after {
            return; // no version was handed out since the last one
        }
        trace!("ResolversRepartitioned", "after" => after, "begins" => format!("{begins:?}"));
        // A proxy that has not asked for that long has no batch under way.
        let oldest = after - 2 * MAX_VERSIONS_IN_FLIGHT;
        self.partitions
            .retain(|partition| partition.after >= oldest);
        self.partitions.push(Partition { after, begins });
    }

    pub fn commit_version(
        &mut self,
        now: Instant,
        request: &GetCommitVersion,
    ) -> Result<CommitVersion, Refusal> {
        let last = self.proxies.get(&request.proxy).ok_or(Refusal::Unknown)?;
        if let Some(last) = last {
            if request.request_number == last.request_number {
                return Ok(last.grant.clone());
            }
            if request.request_number < last.request_number {
                return Err(Refusal::Obsolete);
            }
            if request.request_number > last.request_number + 1 {
                return Err(Refusal::OutOfOrder);
            }
        } else if request.request_number != 1 {
            return Err(Refusal::OutOfOrder);
        }
        let elapsed_us = now.saturating_since(self.origin).as_micros() as i64;
        let by_clock = self.base + elapsed_us * (VERSIONS_PER_SECOND / 1_000_000);
        let limit = self.committed + MAX_VERSIONS_IN_FLIGHT - 1;
        let version = by_clock.max(self.last_handed_out + 1).min(limit);
        if version <= self.last_handed_out {
            return Err(Refusal::TooFarAhead);
        }
        let grant = CommitVersion {
            version,
            prev_version: self.last_handed_out,
            partitions: self.unknown_to(request.partition),
        };
        self.last_handed_out = version;
        let last = LastGrant {
            request_number: request.request_number,
            grant: grant.clone(),
        };
        let before = self.proxies.insert(request.proxy, Some(last));
        let before = before.flatten().map(|last| last.grant.version);
        assert!(
            before.is_none_or(|before| before <= grant.prev_version),
            "a proxy gets {version} after {before:?}, and the version before it is {}",
            grant.prev_version
        );
        Ok(grant)
    }

    fn unknown_to(&self, newest_known: Version) -> Vec<Partition> {
        let known = self.partitions.partition_point(|p| p.after <= newest_known);
        self.partitions[known..].to_vec()
    }

    /// [`Error::client_invalid_operation`] if `version` was never handed out. No proxy of this epoch reports such a
    /// version.
    pub fn report_committed(&mut self, version: Version, locked: bool) -> Result<(), Error> {
        if version > self.last_handed_out {
            return Err(Error::client_invalid_operation);
        }
        if version > self.committed {
            (self.committed, self.locked) = (version, locked);
        }
        Ok(())
    }

    /// The newest committed version, and whether the database is locked as of it.
    pub fn newest(&self) -> CommittedVersion {
        assert!(
            self.committed <= self.last_handed_out,
            "version {} is committed, and {} was the last to be handed out",
            self.committed,
            self.last_handed_out
        );
        CommittedVersion {
            version: self.committed,
            locked: self.locked,
        }
    }
}

/// Whether a sequencer can start with this request. The request may come from any sender.
pub fn is_possible(request: &RecruitSequencer) -> bool {
    let versions = 0..=VERSION_MAX;
    versions.contains(&request.recovered_to)
        && versions.contains(&request.recovery_version)
        && request.recovered_to < request.recovery_version
        && !request.resolvers.is_empty()
        && !request.proxies.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(s: &mut Sequencer, at_us: u64, proxy: u128, n: u64) -> Result<CommitVersion, Refusal> {
        s.commit_version(
            Instant(at_us * 1000),
            &GetCommitVersion {
                proxy: Uid(proxy),
                request_number: n,
                partition: 0,
            },
        )
    }

    #[test]
    fn a_version_that_was_never_handed_out_cannot_be_committed_whoever_says_so() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![], &[Uid(1), Uid(2)]);
        let refused = s.report_committed(Version::MAX, true);
        assert_eq!(refused, Err(Error::client_invalid_operation));
        assert_eq!(s.newest().version, 0);
    }

    #[test]
    fn a_proxy_of_another_epoch_gets_no_version() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![], &[Uid(1), Uid(2)]);
        s.report_committed(1000, false).expect("handed out");
        assert_eq!(ask(&mut s, 10, 3, 1), Err(Refusal::Unknown));
        let next = ask(&mut s, 10, 1, 1).expect("granted");
        assert_eq!(next.prev_version, 1000, "nobody waits for another version");
    }

    #[test]
    fn versions_follow_the_clock_and_chain_without_a_gap() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![], &[Uid(1), Uid(2)]);
        s.report_committed(1000, false).expect("handed out");
        let a = ask(&mut s, 10, 1, 1).expect("granted");
        let b = ask(&mut s, 10, 2, 1).expect("granted");
        let c = ask(&mut s, 500, 1, 2).expect("granted");
        assert_eq!((a.prev_version, a.version), (1000, 1010));
        assert_eq!((b.prev_version, b.version), (1010, 1011));
        assert_eq!((c.prev_version, c.version), (1011, 1500));
    }

    #[test]
    fn a_repeated_request_gets_the_same_version() {
        let mut s = Sequencer::new(Instant(0), 0, 1000, vec![], &[Uid(1), Uid(2)]);
        s.report_committed(1000, false).expect("handed out");
        let first = ask(&mut s, 10, 1, 1);
        assert_eq!(ask(&mut s, 99, 1, 1), first);
        assert_eq!(ask(&mut s, 99, 1, 3), Err(Refusal::OutOfOrder));
        assert!(ask(&mut s, 99, 1, 2).is_ok());
        assert_eq!(ask(&mut s, 99, 1, 1), Err(Refusal::Obsolete));
    }

    #[test]
    fn every_proxy_hears_of_a_partition_with_its_first_version_above_it() {
        let begins = vec![Bytes::new(), Bytes::from("a")];
        let mut s = Sequencer::new(Instant(0), 0, 1000, begins, &[Uid(1), Uid(2)]);
        s.report_committed(1000, false).expect("handed out");
        let before = ask(&mut s, 10, 1, 1).expect("granted");
        assert_eq!(before.partitions, []);
        s.repartition(vec![Bytes::new(), Bytes::from("m")]);
        s.repartition(vec![Bytes::new(), Bytes::from("n")]); // too soon
        for proxy in [1, 2] {
            let grant = ask(&mut s, 20, proxy, if proxy == 1 { 2 } else { 1 });
            let partitions = grant.expect("granted").partitions;
            assert_eq!(partitions.len(), 1);
            assert_eq!(partitions[0].after, before.version);
            assert_eq!(partitions[0].begins[1], "m");
        }
        let known = GetCommitVersion {
            proxy: Uid(1),
            request_number: 3,
            partition: before.version,
        };
        let grant = s.commit_version(Instant(30_000), &known).expect("granted");
        assert_eq!(grant.partitions, []);
    }

    #[test]
    fn nothing_is_handed_out_before_the_recovery_transaction_and_never_too_far_ahead_of_it() {
        let mut s = Sequencer::new(
            Instant(0),
            7,
            7 + MAX_VERSIONS_IN_FLIGHT,
            vec![],
            &[Uid(1), Uid(2)],
        );
        assert_eq!(ask(&mut s, 1, 1, 1), Err(Refusal::TooFarAhead));
        s.report_committed(7 + MAX_VERSIONS_IN_FLIGHT, false)
            .expect("handed out");
        let far = ask(&mut s, 1_000_000_000, 1, 1).expect("granted up to the limit");
        assert_eq!(far.version, 7 + 2 * MAX_VERSIONS_IN_FLIGHT - 1);
        assert_eq!(ask(&mut s, 1_000_000_001, 1, 2), Err(Refusal::TooFarAhead));
        s.report_committed(far.version, false).expect("handed out");
        assert!(ask(&mut s, 1_000_000_002, 1, 2).is_ok());
    }
}

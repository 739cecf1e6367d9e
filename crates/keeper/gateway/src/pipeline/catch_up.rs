//! The replica moves on: by the gateway's own batches, and by what the stream of changes has of others.

use super::flight::Flight;
use super::{Pipeline, RETRY_PAUSE};
use crate::queue::Queued;
use crate::trace::{self, Mark};
use crate::tree::change::{Change, parse_entry};
use crate::tree::execute::{Executed, Operation, Shape};
use crate::tree::plan::Known;
use crate::tree::quota::{Counted, QuotaChange};
use crate::writes::{Outcome, StepStat, Writes};
use crate::{READ_ENTRIES, REFRESHES, setup};
use plinth_client::{Position, StreamContent, StreamEntry, StreamLimit, Transaction};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, Result, Version};
use plinth_runtime::{
    Duration, Pace, Task, buggify, never, planted, probe, random, sleep, spawn, trace_warn,
};

/// A transaction of another gateway whose entries may not all have been read.
#[derive(Default)]
struct Held {
    of: Option<Versionstamp>,
    changes: Vec<(u16, Change)>,
    /// Behind its last entry.
    next: Position,
}

impl Pipeline {
    /// Applies the changes of an own batch and completes its operations, one after the other.
    ///
    /// A batch that changes nothing leaves no trace in the stream. So the replica may have moved on before it is known
    /// to have committed, and may have shown later changes. Reads among its operations would see them before an
    /// operation behind them that has happened earlier: what is not answered yet is executed again.
    pub(super) async fn apply_own(&self, flight: Flight, stamp: Versionstamp) {
        self.follows_the_last(&flight, stamp);
        let mut pace = Pace::new();
        let zxids = self.replica.zxids;
        let zxid_of = |piece: u16| zxids.of(stamp.version(), stamp.order(), piece);
        let mut changes = flight.changes.into_iter().peekable();
        let pieces = u16::try_from(flight.operations.len()).expect("each has a place");
        let last = changes
            .peek()
            .is_none()
            .then(|| zxid_of(pieces.saturating_sub(1)));
        let mut outcomes = (0..).zip(flight.operations.into_iter().zip(flight.executed));
        while let Some((piece, (queued, executed))) = outcomes.next() {
            if last.is_some_and(|last| last < self.replica.zxid()) {
                probe!("keeper_unchanged_batch_is_late");
                let left = outcomes.map(|(_, (queued, _))| queued);
                return self
                    .queue
                    .put_back([queued].into_iter().chain(left).collect());
            }
            let zxid = zxid_of(piece);
            let mut stats = Vec::new();
            while let Some((_, mut change)) = changes.next_if(|(of, _)| *of == piece) {
                change.settle(zxid_of);
                self.apply(stamp.version(), &change, zxid);
                if !matches!(change, Change::Guarded(..) | Change::Quota(..)) {
                    stats.push(self.stat_after(&change));
                }
                self.count_if_new(change);
            }
            // Also of an operation that failed: what its client reads next must not look older.
            if !queued.is_look() {
                self.replica.saw(zxid);
            }
            if executed == Executed::One(Ok(Shape::Unfinished)) {
                probe!("keeper_session_ends_in_pieces");
                self.queue.push_front(queued);
                continue;
            }
            trace::note(queued.trace.as_ref(), Mark::Shown);
            let outcome = Outcome::Done { zxid, executed };
            (queued.complete)(&self.replica, outcome, stats);
            if pace.is_over() {
                // Others may read between two operations of a batch: each is whole.
                pace.rest().await;
            }
        }
    }

    /// Asserts that own batches that change something come in the order in which they began, which is that of their
    /// commits. One that changes nothing leaves no trace in the stream: it may land after a later one was found there.
    fn follows_the_last(&self, flight: &Flight, stamp: Versionstamp) {
        if flight.changes.is_empty() {
            return;
        }
        let last = self.applied.replace(Some((flight.number, stamp)));
        assert!(
            last.is_none_or(|(number, before)| number < flight.number && before < stamp),
            "batch {} with {stamp:?} follows {last:?}",
            flight.number
        );
    }

    /// Where to read the stream on.
    fn go_on_at(&self, next: Position) {
        let before = self.next.get();
        assert!(
            before <= next,
            "the stream was read to {before:?}, and is to be read on at {next:?}"
        );
        self.next.set(next);
    }

    /// A new quota is counted before this gateway executes anything else.
    fn count_if_new(&self, change: Change) {
        if let Change::Quota(path, QuotaChange::Made(quota)) = change
            && quota.counted == Counted::Nothing
        {
            let operation = Operation::CountQuota { path, found: None };
            self.queue.push_front(Queued::of_the_gateway(operation));
        }
    }

    fn stat_after(&self, change: &Change) -> StepStat {
        let (path, node) = match change {
            Change::Created(_, node) => return Some(node.stat()),
            Change::DataSet(path, node) | Change::AclSet(path, node) => (path, node),
            _ => return None,
        };
        match self.replica.node_if_known(path) {
            Known::Here(node) => Some(node.stat()),
            // Its batch has pinned it.
            Known::Absent | Known::Damaged | Known::Unknown => {
                never!("KeeperWrittenNodeUnknown", "path" => path);
                Some(node.stat())
            }
        }
    }

    fn apply(&self, version: Version, change: &Change, zxid: i64) {
        let has = self.replica.version();
        assert!(
            version > has,
            "a change of {version} is missing in a replica that has {has}"
        );
        self.listener.before(&self.replica, change, zxid);
        self.replica.apply(version, change, zxid);
        if matches!(change, Change::Quota(..)) {
            self.quotas_changed.set(version);
        }
        if *change
            == (Change::GatewayRemoved {
                gateway: self.gateway,
            })
        {
            self.lose("others have ended its lease");
        }
    }

    /// Nobody has changed anything before the own commit. Others may have in the same version, behind it: so the
    /// replica has all of the version before, and its next transaction reads at that one. The own commit is no
    /// conflict for it ([`Mode::Alone`]).
    pub(super) fn advance_alone(&self, stamp: Versionstamp) {
        self.replica.advance(stamp.version() - 1);
        self.is_behind_own.set(true);
        let own = Position {
            version: stamp.version(),
            order: stamp.order(),
            piece: u16::MAX,
        };
        self.go_on_at(own.next());
    }

    fn advance(&self, version: Version) {
        self.replica.advance(version);
        self.is_behind_own.set(false);
        self.go_on_at(Position::of_version(version + 1));
    }

    /// Reads what was committed. Own batches that are found there are answered.
    pub(super) async fn refresh(&self) {
        self.refresh_to(None).await;
    }

    /// As [`refresh`](Self::refresh), through the commit of the own batch `number`, which may have changed nothing.
    pub(super) async fn refresh_through(&self, number: u64, stamp: Versionstamp) {
        self.refresh_to(Some((number, stamp))).await;
        if let Some(flight) = self.take_flight(number) {
            // The stream, read further than that, has nothing of it: it is executed again.
            self.queue.put_back(flight.operations);
        }
    }

    async fn refresh_to(&self, mut own: Option<(u64, Versionstamp)>) {
        REFRESHES.add(1);
        while !self.is_lost() {
            match self.read_on(own).await {
                Ok(()) => return,
                // The process was stopped since it was told of its commit, or the store was slow.
                Err(Error::transaction_too_old) if own.is_some() => {
                    probe!("keeper_own_commit_too_old");
                    own = None;
                }
                Err(error @ (Error::stream_too_old | Error::stream_not_found)) => {
                    trace_warn!("KeeperMissedChanges", "error" => error);
                    self.lose("changes that it has not seen are gone");
                }
                // What it cannot read it would miss for good. The next life begins with the rows, behind it.
                Err(Error::file_corrupt) => self.lose("changes of others cannot be read"),
                Err(error) => {
                    if !error.is_retryable() {
                        trace_warn!("KeeperStoreError", "error" => error);
                    }
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    async fn read_on(&self, own: Option<(u64, Versionstamp)>) -> Result<()> {
        let transaction = self.database.create_transaction();
        if let Some((_, stamp)) = own {
            transaction.set_read_version(stamp.version());
        }
        let through = transaction.get_read_version().await?;
        if buggify!() {
            sleep(Duration::from_millis(random::below(30))).await;
        }
        let limit = StreamLimit {
            entries: READ_ENTRIES.get(),
            ..StreamLimit::default()
        };
        let mut held = Held::default();
        let mut at = self.next.get();
        // An own commit has relied on the tree's record. (Who removes it in the same version, behind the commit, is
        // seen by the next look at the stream without one.)
        let mut looking = own.is_none().then(|| self.looks_for_record(&transaction));
        loop {
            let batch = self.stream.read(&transaction, at, limit).await?;
            if let Some(looking) = looking.take()
                && !looking.await?
            {
                self.lose("somebody who is no gateway has changed its tree");
                return Ok(());
            }
            for entry in batch.entries {
                self.take_entry(entry, &mut held).await?;
                if planted!(
                    "keeper_multi_shown_in_part",
                    "a gateway shows what an entry has of a transaction before it looks at the next"
                ) {
                    self.show(&mut held).await;
                    sleep(RETRY_PAUSE).await;
                }
            }
            if !batch.more {
                break;
            }
            at = batch.next;
        }
        self.show(&mut held).await;
        if let Some((number, stamp)) = own
            && let Some(flight) = self.take_flight(number)
        {
            // It changed nothing, so it has no entry.
            self.apply_own(flight, stamp).await;
        }
        if through > self.replica.version() {
            self.advance(through);
        }
        Ok(())
    }

    /// True if the tree is still the one that was opened, at the transaction's version.
    fn looks_for_record(&self, transaction: &Transaction) -> Task<Result<bool>> {
        let (transaction, replica) = (transaction.clone(), self.replica.clone());
        let is_overlooked = planted!(
            "keeper_tree_cleared_unseen",
            "a gateway whose tree somebody clears goes on from what it remembers"
        );
        // Beside the read of the stream, so that nothing waits for it.
        spawn("keeper record", async move {
            let is_there = setup::is_there(&transaction, &replica.rows, replica.zxids).await?;
            Ok(is_there || is_overlooked)
        })
    }

    async fn take_entry(&self, entry: StreamEntry, held: &mut Held) -> Result<()> {
        let position = entry.position;
        let stamp = Versionstamp::new(position.version, position.order);
        let parsed = match &entry.content {
            StreamContent::Appended(content) => parse_entry(content, stamp, self.replica.zxids),
            _ => None,
        };
        let Some((origin, changes)) = parsed else {
            never!(
                "KeeperEntryDamaged",
                "stream" => String::from_utf8_lossy(self.stream.name()),
                "version" => position.version
            );
            return Err(Error::file_corrupt);
        };
        if held.of.is_some_and(|of| of != stamp) {
            self.show(held).await;
        }
        if origin.gateway == self.gateway {
            // Later entries of the batch find nothing to take: all of it was applied with the first.
            if let Some(flight) = self.take_flight(origin.batch) {
                self.apply_own(flight, stamp).await;
            }
            self.go_on_at(position.next());
        } else {
            self.company.saw_a_change();
            held.of = Some(stamp);
            held.changes.extend(changes);
            held.next = position.next();
        }
        Ok(())
    }

    /// Shows what another gateway's transaction has changed. All of it is there: nobody sees half of an operation,
    /// which may have more changes than an entry takes.
    async fn show(&self, held: &mut Held) {
        let Held { of, changes, next } = std::mem::take(held);
        let Some(stamp) = of else { return };
        let (mut pace, mut shown) = (Pace::new(), None);
        for (piece, change) in changes {
            if shown.is_some_and(|shown| shown != piece) {
                // Others may read between two operations of a batch: each is whole.
                pace.rest_if_over().await;
            }
            shown = Some(piece);
            let zxid = self.replica.zxids.of(stamp.version(), stamp.order(), piece);
            self.apply(stamp.version(), &change, zxid);
        }
        self.go_on_at(next);
    }
}

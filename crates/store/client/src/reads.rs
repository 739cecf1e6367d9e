//! The reading side of a transaction: values, keys that selectors denote, and chunks of ranges. Each read sees the
//! transaction's own writes over its snapshot, and adds what it depends on to the read conflicts.

use crate::attempt::Attempt;
use crate::bytes_argument::IntoKey;
use crate::range::{RangeOptions, RangeResult};
use crate::read_future::{ReadFuture, ValueFuture};
use crate::reader::{Anchor, Reader};
use crate::shared::Shared;
use crate::source::{Cluster, ClusterFuture, PointResult, PointResults};
use crate::special;
use crate::state::{ReadVersion, State, key_bytes_max, shorten};
use crate::transaction::{Inner, Transaction};
use crate::write_map::{Lookup, PendingOperations, WriteMap, fold};
use plinth_core::system_keys::METADATA_VERSION;
use plinth_core::{Error, Key, KeyRange, KeySelector, Result, Value, Version};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

impl State {
    /// Answers a point read as far as that is possible without the database. Adds its conflict.
    fn start_get(&mut self, key: &Key, snapshot: bool) -> Result<PointRead> {
        self.check_usable()?;
        if key[..] >= *self.read_end() && key[..] != *METADATA_VERSION {
            return Err(Error::key_outside_legal_range);
        }
        if key.len() > key_bytes_max(key) {
            return Ok(PointRead::Known(None));
        }
        self.has_read = true;
        let mut operations = Vec::new();
        if let Some(writes) = self.own_writes(snapshot) {
            let found = if self.options.bypass_unreadable {
                writes.lookup_bypassed(key)
            } else {
                writes.lookup(key)
            };
            match found {
                Lookup::Unmodified => {}
                Lookup::Known(value) => return Ok(PointRead::Known(value)),
                Lookup::Pending(pending) => operations = pending.clone(),
                Lookup::Unreadable => {
                    self.attempt.note_read_error(Error::accessed_unreadable);
                    return Err(Error::accessed_unreadable);
                }
            }
        }
        if !snapshot {
            self.attempt.add_read_key(key.clone());
        }
        if self.options.ryw_disabled {
            return Ok(PointRead::Ask(operations));
        }
        match self.attempt.known().get(key) {
            Some(value) => Ok(PointRead::Known(fold(&operations, value))),
            None => Ok(PointRead::Ask(operations)),
        }
    }

    fn asked_point(
        &mut self,
        cluster: &Rc<dyn Cluster>,
        key: Key,
        operations: PendingOperations,
    ) -> AskedPoint {
        let stage = match self.read_version.known() {
            Some(version) => Stage::Value(cluster.get(key.clone(), version)),
            None => Stage::Version(self.ask_read_version(cluster, true), cluster.clone()),
        };
        AskedPoint {
            stage,
            key,
            operations,
            remembers: !self.options.ryw_disabled,
            attempt: self.attempt.clone(),
        }
    }

    fn begin<T: 'static>(
        &mut self,
        read: impl Future<Output = Result<T>> + Unpin + 'static,
    ) -> ReadFuture<T> {
        let shared = Shared::new(read);
        self.keep_outstanding(&shared);
        ReadFuture::under_way(&self.attempt, shared)
    }
}

enum PointRead {
    Known(Option<Value>),
    Ask(PendingOperations),
}

/// A point read that asks the database. It is a future written by hand, because there are more of these than of all
/// others: it is small, and lies where its result will be.
struct AskedPoint {
    stage: Stage,
    key: Key,
    /// Own atomic operations to be applied to the database's value.
    operations: PendingOperations,
    remembers: bool,
    attempt: Rc<Attempt>,
}

enum Stage {
    Version(Shared<Result<Version>>, Rc<dyn Cluster>),
    Value(ClusterFuture<Option<Value>>),
}

impl AskedPoint {
    fn poll_value(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Value>>> {
        if let Stage::Version(answer, cluster) = &self.stage {
            let version = ready!(answer.poll_clone(context))?;
            self.stage = Stage::Value(cluster.get(self.key.clone(), version));
        }
        match &mut self.stage {
            Stage::Value(value) => value.as_mut().poll(context),
            Stage::Version(..) => unreachable!("the version has arrived"),
        }
    }
}

impl Future for AskedPoint {
    type Output = Result<Option<Value>>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let result = ready!(this.poll_value(context));
        let key = std::mem::take(&mut this.key);
        let remembered = this.remembers.then_some(key);
        Poll::Ready(settle(&this.attempt, remembered, &this.operations, result))
    }
}

/// What the transaction sees of a value that the database answered. Remembers it for that key, if one is given.
fn settle(
    attempt: &Attempt,
    remembered: Option<Key>,
    operations: &PendingOperations,
    result: Result<Option<Value>>,
) -> Result<Option<Value>> {
    match result {
        Ok(value) => {
            if let Some(key) = remembered {
                attempt.remember(|known| known.add_point(key, value.clone()));
            }
            Ok(fold(operations, value))
        }
        Err(error) => {
            attempt.note_read_error(error);
            Err(error)
        }
    }
}

/// Point reads that were started together: one future for all, and one request for those that one server answers,
/// where [`Transaction::get`] has one for each.
struct AskedPoints<D> {
    asked: Vec<PointAsked>,
    /// The requests wait for the read version.
    unsent: Option<(Shared<Result<Version>>, Rc<dyn Cluster>)>,
    under_way: Vec<PointResults>,
    /// Special keys: their failure does not fail the commit.
    apart: Vec<(usize, ClusterFuture<Option<Value>>)>,
    come: Vec<PointResult>,
    deliver: D,
    remembers: bool,
    attempt: Rc<Attempt>,
}

struct PointAsked {
    number: usize,
    key: Key,
    operations: PendingOperations,
}

impl<D> AskedPoints<D> {
    /// Sends the requests, once the read version is known.
    fn send(&mut self, context: &mut Context<'_>) {
        let Some((version, cluster)) = &self.unsent else {
            return;
        };
        let Poll::Ready(version) = version.poll_clone(context) else {
            return;
        };
        match version {
            Ok(version) => {
                let keys = self.asked.iter().map(|point| point.key.clone());
                let reads = keys.enumerate().collect();
                self.under_way = cluster.get_together(reads, version);
            }
            Err(error) => (0..self.asked.len()).for_each(|i| self.arrived(i, Err(error))),
        }
        self.unsent = None;
    }

    fn arrived(&mut self, i: usize, result: Result<Option<Value>>) {
        let PointAsked {
            number,
            key,
            operations,
        } = &mut self.asked[i];
        let remembered = self.remembers.then(|| std::mem::take(key));
        let result = settle(&self.attempt, remembered, operations, result);
        self.come.push((*number, result));
    }
}

impl<D: FnMut(&mut Vec<PointResult>) + Unpin> Future for AskedPoints<D> {
    type Output = Result<()>;
    /// Polls every request whenever one of them can go on, because answers arrive many at a time.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let this = &mut *self;
        this.send(context);
        let mut under_way = std::mem::take(&mut this.under_way);
        under_way.retain_mut(|results| match results.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(results) => {
                let arrived = results.into_iter();
                arrived.for_each(|(i, result)| this.arrived(i, result));
                false
            }
        });
        this.under_way = under_way;
        this.apart
            .retain_mut(|(number, value)| match value.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    this.come.push((*number, result));
                    false
                }
            });
        if !this.come.is_empty() {
            (this.deliver)(&mut this.come);
            this.come.clear();
        }
        match this.unsent.is_none() && this.under_way.is_empty() && this.apart.is_empty() {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }
}

/// State that a range read or a selector needs once its version is known.
#[derive(Clone)]
pub(crate) struct Prepared {
    attempt: Rc<Attempt>,
    version: Shared<Result<Version>>,
    cluster: Rc<dyn Cluster>,
    pub writes: Option<Rc<WriteMap>>,
    pub keys_end: Key,
    snapshot: bool,
    bypass_unreadable: bool,
    /// Neither writes nor results of reads are remembered.
    ryw_disabled: bool,
}

impl Prepared {
    async fn reader(&self) -> Result<Reader> {
        Ok(Reader {
            cluster: self.cluster.clone(),
            version: self.version.get().await?,
            writes: self.writes.clone(),
            bypass_unreadable: self.bypass_unreadable,
            attempt: (!self.ryw_disabled).then(|| self.attempt.clone()),
            keys_end: self.keys_end.clone(),
        })
    }

    fn add_conflict(&self, (begin, end): &(Key, Key)) {
        if !self.snapshot {
            self.attempt
                .add_read_range(begin, end, self.writes.as_deref());
        }
    }

    async fn get_key(self, anchor: Anchor) -> Result<Key> {
        let reader = self.reader().await?;
        let key = reader.resolve(&anchor).await?;
        self.add_conflict(&anchor.conflict(&key, &self.keys_end));
        Ok(key)
    }

    pub async fn get_range(
        self,
        begin: Anchor,
        end: Anchor,
        options: RangeOptions,
    ) -> Result<RangeResult> {
        let budget = options.budget()?;
        let reader = self.reader().await?;
        let from = bound(&reader, &begin).await?;
        let to = bound(&reader, &end).await?;
        let mut result = RangeResult::default();
        if from < to {
            let keep = |key, value| result.rows.push((key, value));
            let range = KeyRange::new(from.clone(), to.clone());
            let more = reader.scan(range, options.reverse, budget, keep);
            result.more = more.await?;
        }
        self.add_range_conflicts((&begin, &from), (&end, &to), options.reverse, &result);
        Ok(result)
    }

    /// Adds the conflicts of a range read: the scanned part, up to the last row if the scan ended there, and the
    /// ranges that determined the bounds. A bound that lies beyond the last row in any case determines nothing.
    fn add_range_conflicts(
        &self,
        (begin, from): (&Anchor, &Key),
        (end, to): (&Anchor, &Key),
        reverse: bool,
        result: &RangeResult,
    ) {
        let mut scanned = (from.clone(), to.clone());
        let mut beyond = (false, false);
        if let (true, Some((last, _))) = (result.more, result.rows.last()) {
            if reverse {
                scanned.0 = last.clone();
                beyond.0 = begin.offset <= 0 && *last >= begin.key;
            } else {
                scanned.1 = plinth_core::key::key_after(last);
                beyond.1 = end.offset >= 1 && *last < end.key;
            }
        }
        self.add_conflict(&scanned);
        if begin.offset != 1 && !beyond.0 {
            self.add_conflict(&begin.conflict(from, &self.keys_end));
        }
        if end.offset != 1 && !beyond.1 {
            self.add_conflict(&end.conflict(to, &self.keys_end));
        }
    }
}

fn shortened(selector: KeySelector) -> KeySelector {
    let key = shorten(selector.key);
    KeySelector { key, ..selector }
}

/// The key where a range begins or ends. The first key at or after `key` bounds it no better than `key` itself.
async fn bound(reader: &Reader, anchor: &Anchor) -> Result<Key> {
    if anchor.offset == 1 {
        Ok(anchor.key.clone())
    } else {
        reader.resolve(anchor).await
    }
}

impl Inner {
    /// Checks and gathers what a read needs. The selectors' keys must not lie above the readable keys.
    pub(crate) fn prepare(&self, selectors: &[&KeySelector], snapshot: bool) -> Result<Prepared> {
        let mut state = self.state.borrow_mut();
        state.check_usable()?;
        let keys_end = state.read_end();
        if selectors
            .iter()
            .any(|selector| selector.key[..] > *keys_end)
        {
            return Err(Error::key_outside_legal_range);
        }
        state.has_read = true;
        let cluster = self.cluster();
        let version = state.ask_read_version(&cluster, true);
        Ok(Prepared {
            attempt: state.attempt.clone(),
            version,
            cluster,
            writes: state.own_writes(snapshot),
            keys_end: Key::from_static(keys_end),
            snapshot,
            bypass_unreadable: state.options.bypass_unreadable,
            ryw_disabled: state.options.ryw_disabled,
        })
    }

    /// Starts a read whose failure fails the commit.
    pub(crate) fn start<T: 'static>(
        &self,
        read: impl Future<Output = Result<T>> + 'static,
    ) -> ReadFuture<T> {
        let attempt = self.state.borrow().attempt.clone();
        self.start_apart(async move {
            let result = read.await;
            if let Err(error) = result {
                attempt.note_read_error(error);
            }
            result
        })
    }

    /// Starts a read that the commit waits for, but whose failure does not fail the commit.
    pub(crate) fn start_apart<T: 'static>(
        &self,
        read: impl Future<Output = Result<T>> + 'static,
    ) -> ReadFuture<T> {
        self.state.borrow_mut().begin(Box::pin(read))
    }

    pub(crate) fn refuse<T: 'static>(&self, result: Result<T>) -> ReadFuture<T> {
        ReadFuture::early(&self.state.borrow().attempt, result)
    }
}

impl Transaction {
    /// The version of the snapshot that this transaction reads.
    pub fn get_read_version(&self) -> ReadFuture<Version> {
        let mut state = self.inner.state.borrow_mut();
        if let Err(error) = state.check_usable() {
            return ReadFuture::early(&state.attempt, Err(error));
        }
        let answer = state.ask_read_version(&self.inner.cluster(), true);
        drop(state);
        // Taken from a handle of its own: the answer itself stays for the reads.
        self.inner.start(async move { answer.get().await })
    }

    /// Reads at `version` instead of the newest. Only before a read version has been requested.
    pub fn set_read_version(&self, version: Version) {
        let mut state = self.inner.state.borrow_mut();
        let result = match state.read_version {
            _ if version <= 0 => Err(Error::version_invalid),
            ReadVersion::Unset => {
                state.read_version = ReadVersion::Known(version);
                Ok(())
            }
            _ => Err(Error::read_version_already_set),
        };
        state.defer(result);
    }

    /// The value of `key`; `None` if it is absent. A snapshot read conflicts with nothing.
    pub fn get(&self, key: impl IntoKey, snapshot: bool) -> ValueFuture {
        let key = key.into_key();
        if special::is_special(&key) {
            return self.inner.start_apart(special::get(self.clone(), key));
        }
        let cluster = self.inner.cluster();
        let mut state = self.inner.state.borrow_mut();
        match state.start_get(&key, snapshot) {
            Err(error) => ReadFuture::early(&state.attempt, Err(error)),
            Ok(PointRead::Known(value)) => ReadFuture::early(&state.attempt, Ok(value)),
            Ok(PointRead::Ask(operations)) => {
                let read = state.asked_point(&cluster, key, operations);
                state.begin(read)
            }
        }
    }

    /// The values of several keys: for each its number, the key, and whether it is a snapshot read. The same as
    /// [`get`](Self::get) for each of them, but cheaper. `deliver` takes the results in whatever order they come, some
    /// at a time, while the future is polled or a commit drives it. It must not use the transaction. If the future
    /// fails, the reads that were not delivered have failed with its error.
    pub fn get_together(
        &self,
        reads: impl IntoIterator<Item = (usize, Key, bool)>,
        deliver: impl FnMut(&mut Vec<PointResult>) + Unpin + 'static,
    ) -> ReadFuture<()> {
        let cluster = self.inner.cluster();
        let mut state = self.inner.state.borrow_mut();
        let (mut asked, mut apart, mut come) = (Vec::new(), Vec::new(), Vec::new());
        for (number, key, snapshot) in reads {
            if special::is_special(&key) {
                let value: ClusterFuture<_> = Box::pin(special::get(self.clone(), key));
                apart.push((number, value));
                continue;
            }
            match state.start_get(&key, snapshot) {
                Err(error) => come.push((number, Err(error))),
                Ok(PointRead::Known(value)) => come.push((number, Ok(value))),
                Ok(PointRead::Ask(operations)) => asked.push(PointAsked {
                    number,
                    key,
                    operations,
                }),
            }
        }
        let version = (!asked.is_empty()).then(|| state.ask_read_version(&cluster, true));
        let points = AskedPoints {
            asked,
            unsent: version.map(|version| (version, cluster)),
            under_way: Vec::new(),
            apart,
            come,
            deliver,
            remembers: !state.options.ryw_disabled,
            attempt: state.attempt.clone(),
        };
        state.begin(points)
    }

    /// The key that `selector` denotes among the keys that the transaction sees; the empty key or the end of the
    /// legal range if there is none.
    pub fn get_key(&self, selector: KeySelector, snapshot: bool) -> ReadFuture<Key> {
        let selector = shortened(selector);
        match self.inner.prepare(&[&selector], snapshot) {
            Err(error) => self.inner.refuse(Err(error)),
            Ok(prepared) => {
                let anchor = Anchor::new(selector, &prepared.keys_end);
                self.inner.start(prepared.get_key(anchor))
            }
        }
    }

    /// One chunk of the range from `begin` to `end`, which ends where the options say.
    pub fn get_range(
        &self,
        begin: KeySelector,
        end: KeySelector,
        options: RangeOptions,
        snapshot: bool,
    ) -> ReadFuture<RangeResult> {
        if special::is_special(&begin.key) && special::is_special(&end.key) {
            let read = special::get_range(self.clone(), begin, end, options);
            return self.inner.start_apart(read);
        }
        let (begin, end) = (shortened(begin), shortened(end));
        let prepared = match options
            .budget()
            .and_then(|_| self.inner.prepare(&[&begin, &end], snapshot))
        {
            Err(error) => return self.inner.refuse(Err(error)),
            Ok(prepared) => prepared,
        };
        let begin = Anchor::new(begin, &prepared.keys_end);
        let end = Anchor::new(end, &prepared.keys_end);
        if begin.offset >= end.offset && begin.key >= end.key {
            return self.inner.refuse(Ok(RangeResult::default()));
        }
        self.inner.start(prepared.get_range(begin, end, options))
    }
}

//! Reads: answered at once if the version has been applied, otherwise as soon as it is.

use super::damage::TRIES_MAX;
use super::rights::Touches;
use super::tallies::Amount;
use super::{Server, Waiting};
use crate::knobs::{
    FUTURE_VERSION_WAIT_MS, RANGE_BYTES_MAX, STORAGE_READS_WAITING_MAX, WATCHES_MAX,
};
use crate::versioned::{RangeEnd, RangeLimits, RangeRead};
use bytes::Bytes;
use plinth_access::Right;
use plinth_core::key::key_after;
use plinth_core::{Error, KeySelector, Result, Version, varint};
use plinth_engine::{LocalBoxFuture, Wanted};
use plinth_protocol::storage::{
    Get, GetKey, GetKeyReply, GetRange, GetRangeReply, GetRangeSummary, GetReply, GetValues,
    RangeSummary, Watch as WatchRequest, WatchReply,
};
use plinth_protocol::token::Token;
use plinth_rpc::{Registration, Request, Responder};
use plinth_runtime::{Duration, buggify, planted, probe};
use std::rc::Rc;

/// Approximate number of bytes that are read to find a key.
const PIVOT_BYTES: u32 = 4096;
/// Rows, and keys without one, that a read examines in one turn of the loop: about two milliseconds' work.
const VISITS_A_TURN: usize = 20_000;
/// Initial capacity for rows, in bytes.
const FIRST_ROWS_BYTES: usize = 64 << 10;

pub(super) type Warming = LocalBoxFuture<'static, ()>;

/// A read in progress. A large one is answered in several turns of the loop.
pub(super) trait Reading: Sized + 'static {
    type Request: Touches;

    fn begin(request: Self::Request) -> Self;
    /// How many reads the request stands for.
    fn reads(&self) -> u64 {
        1
    }
    fn version(&self) -> Version;
    /// Reads from disk that must come first.
    fn warm(&self, server: &Server) -> Vec<Warming>;
    /// True if nothing has been read yet: after damage, it can begin again.
    fn can_begin_again(&self) -> bool {
        false
    }
    /// `None` if there is more to do, in another turn.
    fn go_on(&mut self, server: &Server) -> Result<Option<<Self::Request as Request>::Reply>>;
    fn amount(reply: &<Self::Request as Request>::Reply) -> Amount;
}

impl Reading for Get {
    type Request = Get;

    fn begin(request: Get) -> Self {
        request
    }
    fn version(&self) -> Version {
        self.version
    }
    fn warm(&self, server: &Server) -> Vec<Warming> {
        if !server.is_cold() {
            return Vec::new(); // in the hot path
        }
        server.warm_key(&self.key).into_iter().collect()
    }
    fn can_begin_again(&self) -> bool {
        true
    }
    fn go_on(&mut self, server: &Server) -> Result<Option<GetReply>> {
        let value = server.value(&self.key, self.version)?;
        Ok(Some(GetReply { value }))
    }
    fn amount(reply: &GetReply) -> Amount {
        Amount {
            rows: u64::from(reply.value.is_some()),
            bytes: reply.value.as_ref().map_or(0, Bytes::len) as u64,
        }
    }
}

/// The rest of a range to be read.
struct Left {
    begin: Bytes,
    end: Bytes,
    version: Version,
    rows: usize,
    bytes: usize,
    reverse: bool,
}

impl Left {
    /// Shows rows. Returns how the read ended if it reached a limit or the end of the range; `None` if it goes on.
    fn scan(
        &mut self,
        server: &Server,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<RangeEnd>> {
        let ended = server.scan(self, visit)?;
        let Some(at) = ended.stopped_at else {
            return Ok(Some(ended));
        };
        probe!("storage_read_takes_turns");
        assert!(
            ended.rows <= self.rows && ended.bytes <= self.bytes,
            "{} rows and {} bytes are read of {} and {}",
            ended.rows,
            ended.bytes,
            self.rows,
            self.bytes
        );
        self.rows -= ended.rows;
        self.bytes -= ended.bytes;
        match self.reverse {
            true => self.end = at,
            false => self.begin = at,
        }
        Ok(None)
    }
}

struct ReadingRange {
    left: Left,
    rows: Vec<u8>,
    row_count: u32,
    /// What comes before damage is an answer.
    may_end_early: bool,
}

impl Reading for ReadingRange {
    type Request = GetRange;

    fn begin(request: GetRange) -> Self {
        let bytes = (request.limit_bytes as usize)
            .min(RANGE_BYTES_MAX.get())
            .max(1);
        ReadingRange {
            left: Left {
                begin: request.begin,
                end: request.end,
                version: request.version,
                rows: request.limit_rows as usize,
                bytes,
                reverse: request.reverse,
            },
            rows: Vec::new(),
            row_count: 0,
            may_end_early: true,
        }
    }
    fn version(&self) -> Version {
        self.left.version
    }
    fn warm(&self, server: &Server) -> Vec<Warming> {
        let left = &self.left;
        let warming = server.warm(&left.begin, &left.end, left.bytes as u32, left.reverse);
        warming.into_iter().collect()
    }
    fn can_begin_again(&self) -> bool {
        self.row_count == 0
    }
    fn go_on(&mut self, server: &Server) -> Result<Option<GetRangeReply>> {
        let ReadingRange {
            left,
            rows,
            row_count,
            may_end_early,
        } = self;
        if left.begin > left.end {
            return Err(Error::inverted_range);
        }
        if rows.capacity() == 0 {
            rows.reserve(left.bytes.min(FIRST_ROWS_BYTES));
        }
        let scanned = left.scan(server, &mut |key, value| {
            put_row(rows, key, value);
            *row_count += 1;
        });
        let ended = match scanned {
            // What comes before the damage is intact. Another replica may have what comes next.
            Err(error) if error.is_damage() && *may_end_early && *row_count > 0 => {
                probe!("storage_read_ends_before_damage");
                server.note_failure(error);
                return Ok(Some(GetRangeReply {
                    rows: std::mem::take(rows).into(),
                    row_count: *row_count,
                    more: true,
                }));
            }
            scanned => scanned?,
        };
        Ok(ended.map(|ended| GetRangeReply {
            rows: std::mem::take(rows).into(),
            row_count: *row_count,
            more: ended.more,
        }))
    }
    fn amount(reply: &GetRangeReply) -> Amount {
        Amount {
            rows: u64::from(reply.row_count),
            bytes: reply.rows.len() as u64,
        }
    }
}

fn put_row(rows: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    rows.reserve(key.len() + value.len() + 2 * varint::len_u32(u32::MAX));
    varint::put_u32(rows, key.len() as u32);
    rows.extend_from_slice(key);
    varint::put_u32(rows, value.len() as u32);
    rows.extend_from_slice(value);
}

struct Summing(ReadingRange);

impl Reading for Summing {
    type Request = GetRangeSummary;

    fn begin(request: GetRangeSummary) -> Self {
        // Sums are compared: all replicas read the same rows, or none.
        let mut reading = ReadingRange::begin(GetRange {
            begin: request.begin,
            end: request.end,
            version: request.version,
            limit_rows: u32::MAX,
            limit_bytes: request.limit_bytes,
            reverse: false,
            token: Token::NONE,
        });
        reading.may_end_early = false;
        Summing(reading)
    }
    fn version(&self) -> Version {
        self.0.version()
    }
    fn warm(&self, server: &Server) -> Vec<Warming> {
        self.0.warm(server)
    }
    fn can_begin_again(&self) -> bool {
        self.0.can_begin_again()
    }
    fn go_on(&mut self, server: &Server) -> Result<Option<RangeSummary>> {
        let Some(page) = self.0.go_on(server)? else {
            return Ok(None);
        };
        let checksum = crc32c::crc32c(&page.rows);
        let rows = page.decode_rows().ok_or(Error::internal_error)?;
        let bytes = rows.iter().map(|(k, v)| (k.len() + v.len()) as u64);
        Ok(Some(RangeSummary {
            row_count: page.row_count,
            bytes: bytes.sum(),
            checksum,
            last_key: rows.last().map_or(Bytes::new(), |(key, _)| key.clone()),
            more: page.more,
        }))
    }
    fn amount(reply: &RangeSummary) -> Amount {
        Amount {
            rows: u64::from(reply.row_count),
            bytes: reply.bytes,
        }
    }
}

struct FindingKey {
    left: Left,
    /// Number of keys to find. The last of them is the result.
    wanted: usize,
    found: usize,
    last: Option<Bytes>,
}

impl Reading for FindingKey {
    type Request = GetKey;

    fn begin(request: GetKey) -> Self {
        let KeySelector {
            key,
            or_equal,
            offset,
        } = &request.selector;
        // Forwards: the offset-th key at or after `pivot`. Backwards: the (1 - offset)-th key before it.
        let pivot = if *or_equal {
            key_after(key)
        } else {
            key.clone()
        };
        let forward = *offset > 0;
        let (begin, end) = if forward {
            (pivot.max(request.begin), request.end)
        } else {
            (request.begin, pivot.min(request.end))
        };
        let wanted = match forward {
            true => i64::from(*offset),
            false => 1 - i64::from(*offset),
        } as usize;
        FindingKey {
            left: Left {
                begin,
                end,
                version: request.version,
                rows: wanted,
                bytes: usize::MAX,
                reverse: !forward,
            },
            wanted,
            found: 0,
            last: None,
        }
    }
    fn version(&self) -> Version {
        self.left.version
    }
    fn warm(&self, server: &Server) -> Vec<Warming> {
        let left = &self.left;
        let warming = server.warm(&left.begin, &left.end, PIVOT_BYTES, left.reverse);
        warming.into_iter().collect()
    }
    fn can_begin_again(&self) -> bool {
        self.found == 0
    }
    fn go_on(&mut self, server: &Server) -> Result<Option<GetKeyReply>> {
        let FindingKey {
            left,
            wanted,
            found,
            last,
        } = self;
        if left.begin < left.end {
            let ended = left.scan(server, &mut |key, _| {
                *found += 1;
                if *found == *wanted {
                    *last = Some(Bytes::copy_from_slice(key));
                }
            })?;
            if ended.is_none() {
                return Ok(None);
            }
        }
        let missing = *wanted as i64 - *found as i64;
        let offset = match last {
            Some(_) => 0,
            None if left.reverse => (1 - missing) as i32,
            None => missing as i32,
        };
        let key = last.take();
        Ok(Some(GetKeyReply { key, offset }))
    }
    fn amount(reply: &GetKeyReply) -> Amount {
        Amount {
            rows: u64::from(reply.key.is_some()),
            bytes: reply.key.as_ref().map_or(0, Bytes::len) as u64,
        }
    }
}

impl Server {
    pub(super) fn serve(self: Rc<Self>) -> Vec<Registration> {
        vec![
            self.serve_reads::<Get>(),
            self.serve_reads::<GetValues>(),
            self.serve_reads::<ReadingRange>(),
            self.serve_reads::<Summing>(),
            self.serve_reads::<FindingKey>(),
            self.serve_watches(),
            self.clone().serve_shard_state(),
            self.clone().serve_range_metrics(),
            self.clone().serve_split_points(),
            self.clone().serve_status(),
        ]
    }

    fn serve_reads<R: Reading>(self: &Rc<Self>) -> Registration {
        let server = self.clone();
        self.transport
            .serve::<R::Request>(self.role.id, move |request, responder| {
                let Some((responder, _)) = server.allowed(&request, responder) else {
                    return;
                };
                let mut reading = R::begin(request);
                server.tallies.asked.add(reading.reads());
                let mut warming = Vec::new();
                if reading.version() <= server.latest() && !server.is_opening() {
                    warming = reading.warm(&server);
                    if warming.is_empty() {
                        let result = server.check(reading.version());
                        match result.and_then(|()| reading.go_on(&server)) {
                            Ok(None) => {}
                            Ok(Some(reply)) => {
                                server.tallies.answer(reading.reads(), R::amount(&reply));
                                return responder.ok(reply);
                            }
                            Err(error) if server.begins_again(&reading, error) => {}
                            Err(error) => return server.reply(responder, Err(error)),
                        }
                    }
                }
                let reads = reading.reads();
                if !server.may_wait(reads) {
                    return responder.fail(Error::server_request_queue_full);
                }
                let server = server.clone();
                plinth_runtime::spawn("waiting read", async move {
                    let result = server.finish(reading, warming).await;
                    server.waits_no_more(reads);
                    server.reply(responder, result);
                })
                .detach();
            })
    }

    /// Counts so many more waiting reads, if there is room. Their request uncounts them when it is done.
    fn may_wait(&self, reads: u64) -> bool {
        let waiting = self.reads_waiting.get() + reads as usize;
        if waiting > STORAGE_READS_WAITING_MAX.get() {
            probe!("storage_reads_waiting_full");
            return false;
        }
        self.reads_waiting.set(waiting);
        true
    }

    fn waits_no_more(&self, reads: u64) {
        let waiting = self.reads_waiting.get();
        let over = waiting.checked_sub(reads as usize);
        let left = over.unwrap_or_else(|| panic!("{reads} of {waiting} reads wait no more"));
        self.reads_waiting.set(left);
    }

    /// Answers a read that could not be answered at once.
    async fn finish<R: Reading>(
        &self,
        mut reading: R,
        mut warming: Vec<Warming>,
    ) -> Result<<R::Request as Request>::Reply> {
        let version = reading.version();
        let mut tries = 0;
        loop {
            self.wait_for(version).await?;
            self.opened().await;
            if warming.is_empty() {
                warming = reading.warm(self);
            }
            if !warming.is_empty() {
                self.wait_for_disk(std::mem::take(&mut warming)).await;
                if version > self.latest() {
                    continue; // a recovery has undone it meanwhile
                }
            }
            self.check(version)?;
            match reading.go_on(self) {
                Ok(None) => {}
                Ok(Some(reply)) => {
                    self.tallies.answer(reading.reads(), R::amount(&reply));
                    return Ok(reply);
                }
                Err(error) if tries < TRIES_MAX && self.begins_again(&reading, error) => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
            plinth_runtime::yield_now().await;
        }
    }

    /// True if a read has met damage that was not known. It begins again when the files have been opened again: the
    /// damage may not have been its own.
    fn begins_again<R: Reading>(&self, reading: &R, error: Error) -> bool {
        error.is_damage() && reading.can_begin_again() && self.note_failure(error)
    }

    /// Sends a reply. After damage or a disk error there is no reply, so that the client asks another replica. After
    /// an error of the disk this server ends.
    fn reply<R: Request>(&self, responder: Responder<R>, result: Result<R::Reply>) {
        match result {
            Err(error @ (Error::checksum_failed | Error::file_corrupt | Error::io_error)) => {
                probe!("storage_read_meets_damage");
                self.note_failure(error);
            }
            result => responder.send(result),
        }
    }

    async fn wait_for_disk(&self, warming: Vec<Warming>) {
        probe!("storage_read_waits_for_disk");
        self.tallies.cold.add(warming.len() as u64);
        let warm = async |warming: Warming| {
            let _permit = self.cold_reads.take().await;
            warming.await;
        };
        plinth_runtime::join_all(warming.into_iter().map(warm)).await;
    }

    async fn wait_for(&self, version: Version) -> Result<()> {
        if version <= self.latest() {
            return Ok(());
        }
        probe!("storage_read_waits_for_version");
        let limit = Duration::from_millis(FUTURE_VERSION_WAIT_MS.get());
        let reached = self.gate.borrow().at_least(version);
        match plinth_runtime::timeout(limit, reached).await {
            Some(()) => Ok(()),
            None => {
                probe!("storage_future_version");
                Err(Error::future_version)
            }
        }
    }

    /// Refuses a version that cannot be read. Below the window nothing is known (pitfall 5). A version above what is
    /// applied may be one that a recovery has undone while the read waited for the disk.
    fn check(&self, version: Version) -> Result<()> {
        if version > self.latest() {
            probe!("storage_read_above_rollback");
            return Err(Error::future_version);
        }
        if version < self.store.oldest_version() {
            probe!("storage_transaction_too_old");
            return Err(Error::transaction_too_old);
        }
        Ok(())
    }

    /// The value of a key at a version that has been checked.
    pub(super) fn value(&self, key: &[u8], version: Version) -> Result<Option<Bytes>> {
        let ownership = self.ownership.borrow();
        if !ownership.is_key_readable(key, version) {
            probe!("storage_wrong_shard");
            return Err(Error::wrong_shard_server);
        }
        let past = planted!(
            "read_past_version",
            "a storage server answers from its newest version instead of the one asked for"
        );
        let version = if past { self.latest() } else { version };
        if self.left_out.has(key) {
            return Err(Error::checksum_failed);
        }
        self.store.get(key, version)
    }

    /// Whether a read may need the disk.
    pub(super) fn is_cold(&self) -> bool {
        self.store.is_cold()
    }

    pub(super) fn warm_key(&self, key: &[u8]) -> Option<Warming> {
        self.warm(key, &key_after(key), 1, false)
    }

    /// Reads from disk that must come first, if there are any.
    fn warm(&self, begin: &[u8], end: &[u8], bytes: u32, reverse: bool) -> Option<Warming> {
        if begin >= end {
            return None; // the range is empty, or the request is wrong
        }
        if self.role.damaged.with(Option::is_some) {
            return None; // it might meet damage that the read itself stays away from
        }
        self.store.warm(&Wanted {
            begin,
            end,
            reverse,
            bytes: (bytes as usize).min(RANGE_BYTES_MAX.get()),
        })
    }

    /// The newest value of a key; for watches.
    pub(super) fn read_latest(&self, key: &[u8]) -> Option<Bytes> {
        self.value(key, self.latest()).ok().flatten()
    }

    /// Shows rows of a range, as many as one turn allows.
    fn scan(&self, left: &Left, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<RangeEnd> {
        let ownership = self.ownership.borrow();
        if !ownership.is_readable(&left.begin, &left.end, left.version) {
            probe!("storage_wrong_shard");
            return Err(Error::wrong_shard_server);
        }
        let limits = RangeLimits {
            rows: left.rows,
            bytes: left.bytes,
            visits: match buggify!() {
                true => 1,
                false => VISITS_A_TURN,
            },
        };
        let (mut begin, mut end) = (&left.begin[..], &left.end[..]);
        let left_out = self.left_out.next_in(begin, end, left.reverse);
        let behind = left_out.as_ref().map(|key| key_after(key));
        match (&left_out, &behind) {
            (Some(_), Some(behind)) if left.reverse => begin = behind,
            (Some(key), _) => end = key,
            _ => {}
        }
        let read = RangeRead {
            begin,
            end,
            version: left.version,
            limits,
            reverse: left.reverse,
        };
        let ended = self.store.range(&read, visit)?;
        let is_at_left_out = left_out.is_some() && !ended.more && ended.stopped_at.is_none();
        match is_at_left_out {
            true => Err(Error::checksum_failed),
            false => Ok(ended),
        }
    }

    fn serve_watches(self: &Rc<Self>) -> Registration {
        let server = self.clone();
        self.transport
            .serve::<WatchRequest>(self.role.id, move |request, responder| {
                let Some((responder, right)) = server.allowed(&request, responder) else {
                    return;
                };
                if request.version <= server.latest() {
                    return server.watch(request, responder, right);
                }
                if !server.may_wait(1) {
                    return responder.fail(Error::server_request_queue_full);
                }
                let server = server.clone();
                plinth_runtime::spawn("waiting watch", async move {
                    let reached = server.wait_for(request.version).await;
                    server.waits_no_more(1);
                    match reached {
                        Ok(()) => server.watch(request, responder, right),
                        Err(error) => responder.fail(error),
                    }
                })
                .detach();
            })
    }

    /// Fires at once if the value differs already, whatever changed it.
    fn watch(
        self: &Rc<Self>,
        request: WatchRequest,
        mut responder: Responder<WatchRequest>,
        right: Right,
    ) {
        let ownership = self.ownership.borrow();
        if !ownership.is_key_readable(&request.key, self.latest()) {
            return responder.fail(Error::wrong_shard_server);
        }
        if self.read_latest(&request.key) != request.value {
            return responder.ok(WatchReply {
                version: self.latest(),
            });
        }
        if self.watches.borrow().len() >= WATCHES_MAX.get() {
            probe!("storage_too_many_watches");
            return responder.fail(Error::watch_cancelled);
        }
        let (number, key) = (self.watches_begun.get(), request.key.clone());
        self.watches_begun.set(number + 1);
        let server = Rc::downgrade(self);
        let is_wanted = responder.on_gone(move || {
            let server = server.upgrade();
            let gone = server.and_then(|server| server.end_watch(&key, number));
            if let Some(waiting) = gone {
                waiting.responder.abandon();
            }
        });
        if !is_wanted {
            return responder.abandon();
        }
        let waiting = Waiting {
            since: plinth_runtime::now(),
            number,
            responder,
            right,
        };
        let mut watches = self.watches.borrow_mut();
        watches.add(&request.key, request.value, waiting);
        if self.applying.get() > self.latest() {
            // The version under way may have changed it already.
            watches.touch_key(&request.key);
        }
    }

    fn end_watch(&self, key: &[u8], number: u64) -> Option<Waiting> {
        let mut watches = self.watches.borrow_mut();
        watches.remove(key, |waiting| waiting.number == number)
    }
}

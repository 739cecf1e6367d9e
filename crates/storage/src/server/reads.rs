//! Reads: answered at once when the version is there, otherwise as soon as it is.

use super::{Server, Waiting};
use crate::window::{Lookup, RangeLimits, read_range};
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::key::key_after;
use plinth_core::{Error, KeySelector, Result, Version, varint};
use plinth_engine::{LocalBoxFuture, Wanted};
use plinth_protocol::storage::{
    Get, GetKey, GetKeyReply, GetRange, GetRangeReply, GetRangeSummary, GetReply, RangeSummary,
    Watch as WatchRequest, WatchReply,
};
use plinth_rpc::{Registration, Request, Responder};
use plinth_runtime::knobs::knobs;
use plinth_runtime::{Duration, fault, probe};
use std::rc::Rc;

/// About what is read to find a key.
const PIVOT_BYTES: u32 = 4096;

fn warm_row(server: &Server, request: &Get) -> Option<LocalBoxFuture<'static, ()>> {
    if !server.engine.is_cold() {
        return None; // in the hot path
    }
    let end = key_after(&request.key);
    server.warm(&request.key, &end, 1, false)
}

fn warm_pivot(server: &Server, request: &GetKey) -> Option<LocalBoxFuture<'static, ()>> {
    let KeySelector { key, offset, .. } = &request.selector;
    match *offset > 0 {
        true => server.warm(key, &request.end, PIVOT_BYTES, false),
        false => server.warm(&request.begin, key, PIVOT_BYTES, true),
    }
}

impl Server {
    pub(super) fn serve(self: Rc<Self>) -> Vec<Registration> {
        vec![
            self.serve_reads::<Get>(|r| r.version, warm_row, |server, r| server.get(&r)),
            self.serve_reads::<GetRange>(
                |r| r.version,
                |server, r| server.warm(&r.begin, &r.end, r.limit_bytes, r.reverse),
                |server, r| server.get_range(&r),
            ),
            self.serve_reads::<GetRangeSummary>(
                |r| r.version,
                |server, r| server.warm(&r.begin, &r.end, r.limit_bytes, false),
                |server, r| server.summarise(&r),
            ),
            self.serve_reads::<GetKey>(|r| r.version, warm_pivot, |server, r| server.get_key(&r)),
            self.serve_watches(),
            self.clone().serve_shard_state(),
            self.clone().serve_range_metrics(),
            self.clone().serve_split_points(),
            self.clone().serve_status(),
        ]
    }

    fn serve_reads<R: Request>(
        self: &Rc<Self>,
        version_of: impl Fn(&R) -> Version + 'static,
        warm: impl Fn(&Server, &R) -> Option<LocalBoxFuture<'static, ()>> + Copy + 'static,
        answer: impl Fn(&Server, R) -> Result<R::Reply> + Copy + 'static,
    ) -> Registration {
        let server = self.clone();
        self.transport
            .serve::<R>(self.role.id, move |request, responder: Responder<R>| {
                let version = version_of(&request);
                let mut warming = None;
                if version <= server.latest() {
                    warming = warm(&server, &request);
                    if warming.is_none() {
                        let result = server.check(version);
                        let result = result.and_then(|()| answer(&server, request));
                        return server.reply(responder, result);
                    }
                }
                if !server.may_wait() {
                    return responder.fail(Error::server_request_queue_full);
                }
                let server = server.clone();
                plinth_runtime::spawn("waiting read", async move {
                    let reached = server.wait_for(version).await;
                    if let Some(warming) = warming.or_else(|| warm(&server, &request)) {
                        server.wait_for_disk(warming).await;
                    }
                    server.reads_waiting.set(server.reads_waiting.get() - 1);
                    let result = reached
                        .and_then(|()| server.check(version))
                        .and_then(|()| answer(&server, request));
                    server.reply(responder, result);
                })
                .detach();
            })
    }

    /// One more that waits, if there is room; it takes itself off.
    fn may_wait(&self) -> bool {
        let waiting = self.reads_waiting.get();
        if waiting >= knobs().storage_reads_waiting_max {
            probe!("storage_reads_waiting_full");
            return false;
        }
        self.reads_waiting.set(waiting + 1);
        true
    }

    /// Whoever meets damage, or a disk that fails, gets no answer, and asks another replica; this server ends.
    fn reply<R: Request>(&self, responder: Responder<R>, result: Result<R::Reply>) {
        match result {
            Err(error @ (Error::checksum_failed | Error::file_corrupt | Error::io_error)) => {
                probe!("storage_read_meets_damage");
                self.damaged.set(Some(error));
            }
            result => responder.send(result),
        }
    }

    async fn wait_for_disk(&self, warming: LocalBoxFuture<'static, ()>) {
        probe!("storage_read_waits_for_disk");
        let _permit = self.cold_reads.take().await;
        warming.await;
    }

    async fn wait_for(&self, version: Version) -> Result<()> {
        if version <= self.latest() {
            return Ok(());
        }
        probe!("storage_read_waits_for_version");
        let limit = Duration::from_millis(knobs().future_version_wait_ms);
        let reached = self.gate.borrow().at_least(version);
        match plinth_runtime::timeout(limit, reached).await {
            Some(()) => Ok(()),
            None => {
                probe!("storage_future_version");
                Err(Error::future_version)
            }
        }
    }

    /// Below the window nothing can be said (pitfall 5), nor above what is applied: a recovery may have taken back, while the
    /// read waited for the disk, what was there when it came.
    fn check(&self, version: Version) -> Result<()> {
        if version > self.latest() {
            probe!("storage_read_above_rollback");
            return Err(Error::future_version);
        }
        if version < self.window.borrow().oldest_version() {
            probe!("storage_transaction_too_old");
            return Err(Error::transaction_too_old);
        }
        Ok(())
    }

    fn get(&self, request: &Get) -> Result<GetReply> {
        let ownership = self.ownership.borrow();
        if !ownership.is_key_readable(&request.key, request.version) {
            probe!("storage_wrong_shard");
            return Err(Error::wrong_shard_server);
        }
        let window = self.window.borrow();
        let past = fault::is_planted("read_past_version");
        let version = if past { self.latest() } else { request.version };
        let value = match window.get(&request.key, version) {
            Lookup::Value(value) => Some(Bytes::copy_from_slice(value)),
            Lookup::Cleared => None,
            Lookup::Engine => self.engine.get(&request.key)?,
        };
        Ok(GetReply { value })
    }

    /// What must be read from disk first, if anything must.
    fn warm(
        &self,
        begin: &[u8],
        end: &[u8],
        bytes: u32,
        reverse: bool,
    ) -> Option<LocalBoxFuture<'static, ()>> {
        self.engine.warm(&Wanted {
            begin,
            end,
            reverse,
            bytes: (bytes as usize).min(knobs().range_bytes_max as usize),
        })
    }

    /// The newest value of a key; for watches.
    pub(super) fn read_latest(&self, key: &[u8]) -> Option<Bytes> {
        let version = self.latest();
        self.get(&Get {
            key: Bytes::copy_from_slice(key),
            version,
        })
        .ok()
        .and_then(|reply| reply.value)
    }

    fn get_range(&self, request: &GetRange) -> Result<GetRangeReply> {
        if request.begin > request.end {
            return Err(Error::inverted_range);
        }
        let limits = RangeLimits {
            rows: request.limit_rows as usize,
            bytes: (request.limit_bytes as usize)
                .min(knobs().range_bytes_max as usize)
                .max(1),
        };
        let mut rows = BytesMut::with_capacity(limits.bytes.min(64 << 10));
        let mut row_count = 0;
        let more = self.scan(
            &request.begin,
            &request.end,
            request.version,
            limits,
            request.reverse,
            &mut |key, value| {
                varint::put_u32(&mut rows, key.len() as u32);
                rows.put_slice(key);
                varint::put_u32(&mut rows, value.len() as u32);
                rows.put_slice(value);
                row_count += 1;
            },
        )?;
        Ok(GetRangeReply {
            rows: rows.freeze(),
            row_count,
            more,
        })
    }

    fn summarise(&self, request: &GetRangeSummary) -> Result<RangeSummary> {
        let page = self.get_range(&GetRange {
            begin: request.begin.clone(),
            end: request.end.clone(),
            version: request.version,
            limit_rows: u32::MAX,
            limit_bytes: request.limit_bytes,
            reverse: false,
        })?;
        let checksum = crc32c::crc32c(&page.rows);
        let rows = page.decode_rows().ok_or(Error::internal_error)?;
        let bytes = rows.iter().map(|(k, v)| (k.len() + v.len()) as u64);
        Ok(RangeSummary {
            row_count: page.row_count,
            bytes: bytes.sum(),
            checksum,
            last_key: rows.last().map_or(Bytes::new(), |(key, _)| key.clone()),
            more: page.more,
        })
    }

    /// Shows rows; true if a limit ended the scan.
    fn scan(
        &self,
        begin: &[u8],
        end: &[u8],
        version: Version,
        limits: RangeLimits,
        reverse: bool,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<bool> {
        let ownership = self.ownership.borrow();
        if !ownership.is_readable(begin, end, version) {
            probe!("storage_wrong_shard");
            return Err(Error::wrong_shard_server);
        }
        let window = self.window.borrow();
        Ok(read_range(
            &window,
            &*self.engine,
            begin,
            end,
            version,
            limits,
            reverse,
            visit,
        )?
        .more)
    }

    fn get_key(&self, request: &GetKey) -> Result<GetKeyReply> {
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
        let wanted = if forward {
            i64::from(*offset)
        } else {
            1 - i64::from(*offset)
        };
        let (begin, end) = if forward {
            (pivot.max(request.begin.clone()), request.end.clone())
        } else {
            (request.begin.clone(), pivot.min(request.end.clone()))
        };
        let mut last = None;
        let mut found = 0i64;
        if begin < end {
            let limits = RangeLimits {
                rows: wanted as usize,
                bytes: usize::MAX,
            };
            self.scan(
                &begin,
                &end,
                request.version,
                limits,
                !forward,
                &mut |key, _| {
                    found += 1;
                    if found == wanted {
                        last = Some(Bytes::copy_from_slice(key));
                    }
                },
            )?;
        }
        let missing = (wanted - found) as i32;
        let offset = if last.is_some() {
            0
        } else if forward {
            missing
        } else {
            1 - missing
        };
        Ok(GetKeyReply { key: last, offset })
    }

    fn serve_watches(self: &Rc<Self>) -> Registration {
        let server = self.clone();
        self.transport
            .serve::<WatchRequest>(self.role.id, move |request, responder| {
                if request.version <= server.latest() {
                    return server.watch(request, responder);
                }
                if !server.may_wait() {
                    return responder.fail(Error::server_request_queue_full);
                }
                let server = server.clone();
                plinth_runtime::spawn("waiting watch", async move {
                    let reached = server.wait_for(request.version).await;
                    server.reads_waiting.set(server.reads_waiting.get() - 1);
                    match reached {
                        Ok(()) => server.watch(request, responder),
                        Err(error) => responder.fail(error),
                    }
                })
                .detach();
            })
    }

    /// Fires at once if the value differs already, whenever that came about.
    fn watch(self: &Rc<Self>, request: WatchRequest, mut responder: Responder<WatchRequest>) {
        let ownership = self.ownership.borrow();
        if !ownership.is_key_readable(&request.key, self.latest()) {
            return responder.fail(Error::wrong_shard_server);
        }
        if self.read_latest(&request.key) != request.value {
            return responder.ok(WatchReply {
                version: self.latest(),
            });
        }
        if self.watches.borrow().len() >= knobs().watches_max as usize {
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
        };
        let mut watches = self.watches.borrow_mut();
        watches.add(&request.key, request.value, waiting);
    }

    fn end_watch(&self, key: &[u8], number: u64) -> Option<Waiting> {
        let mut watches = self.watches.borrow_mut();
        watches.remove(key, |waiting| waiting.number == number)
    }
}

//! The reading half of a connection.

use super::{KEPT_FOR, LARGE_BYTES};
use crate::net::Reader;
use crate::{Duration, Instant, now, probe, timeout};
use bytes::BytesMut;

/// Initial read buffer: room for a greeting and a small request. An idle connection costs this much; the buffer grows
/// when more is read.
const FIRST_READ_BYTES: usize = (4 << 10) + 256;

/// When a buffer last held more than [`LARGE_BYTES`].
#[derive(Default)]
pub(super) struct LastLarge(Option<Instant>);

impl LastLarge {
    pub fn note(&mut self, bytes: usize) {
        if bytes > LARGE_BYTES {
            self.0 = Some(now());
        }
    }
    /// How much longer the buffer is kept while it is empty; `None` if it is small. Small messages, such as pings, do
    /// not extend the time, because some always come.
    pub fn kept_for(&self) -> Option<Duration> {
        self.0.map(|at| KEPT_FOR.saturating_sub(at.elapsed()))
    }
}

/// Bytes that have arrived and were not taken yet. The caller takes whole messages from the front of `buffer`, and
/// refuses a message that is longer than its protocol allows: the inbox itself has no limit.
pub struct Inbox {
    reader: Reader,
    pub buffer: BytesMut,
    last_large: LastLarge,
}

impl Inbox {
    pub fn new(reader: Reader) -> Self {
        Inbox {
            reader,
            buffer: BytesMut::with_capacity(FIRST_READ_BYTES),
            last_large: LastLarge::default(),
        }
    }

    /// Says that a message of so many bytes was taken.
    pub fn note(&mut self, bytes: usize) {
        self.last_large.note(bytes);
    }

    /// Gives back at once what a long message took: the bytes behind it are copied.
    pub fn give_back(&mut self) {
        let mut kept = BytesMut::with_capacity(self.buffer.len().max(FIRST_READ_BYTES));
        kept.extend_from_slice(&self.buffer);
        self.buffer = kept;
        self.last_large = LastLarge::default();
    }

    /// Waits for more bytes and appends them. Returns their number, or `None` when the stream has ended or broken.
    pub async fn read(&mut self) -> Option<usize> {
        loop {
            let kept_for = self
                .last_large
                .kept_for()
                .filter(|_| self.buffer.is_empty());
            let reading = self.reader.read(&mut self.buffer);
            let read = match kept_for {
                None => reading.await,
                Some(kept_for) => match timeout(kept_for, reading).await {
                    Some(read) => read,
                    None => {
                        self.buffer = BytesMut::with_capacity(FIRST_READ_BYTES);
                        self.last_large = LastLarge::default();
                        probe!("gives_back_large_buffer");
                        continue;
                    }
                },
            };
            return read.ok().filter(|bytes| *bytes > 0);
        }
    }

    /// As [`Inbox::read`], but also `None` if nothing arrives within `limit`.
    pub async fn read_within(&mut self, limit: Duration) -> Option<usize> {
        timeout(limit, self.read()).await.flatten()
    }
}

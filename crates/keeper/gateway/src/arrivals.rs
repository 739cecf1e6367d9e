//! What a client has sent: bytes that have arrived and were not taken yet, and when they came.
//!
//! Requests are answered one after the other, and one may take long. What arrives meanwhile is read, so that the
//! client is heard when it speaks, and not when its turn has come. No more is read ahead than a number of pings;
//! whatever is longer waits in the network.

use crate::contact::{Moment, tick};
use crate::frames::short_bytes;
use crate::wire::packed::{self, BLOCK_BYTES_MAX, Damaged};
use crate::wire::{FrameError, Skip, XidWidth, frame_bytes, take_frame};
use bytes::{Bytes, BytesMut};
use plinth_runtime::serve::Inbox;
use plinth_runtime::{Duration, Either, race, timeout};
use std::collections::VecDeque;
use std::pin::Pin;

/// Bytes that are read while a request is answered. A ping has twelve, and the room of a read comes on top.
const AHEAD_BYTES: usize = 16 << 10;
/// A read that has less room makes more.
const READ_ROOM_BYTES: usize = 4 << 10;
/// Moments that are told apart.
const MOMENTS_MAX: usize = 1000;

/// Bytes that were read at nearly the same time.
struct Mark {
    /// So many bytes were read with them in all.
    end: u64,
    first: Moment,
    last: Moment,
}

/// See the module. Of one connection.
pub struct Arrivals {
    pub inbox: Inbox,
    /// Bytes that were read so far.
    read: u64,
    /// The oldest first; never empty.
    marks: VecDeque<Mark>,
    has_ended: bool,
    /// What was in compressed blocks, if the client sends such.
    plain: Option<BytesMut>,
}

/// Why there is no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    Frame(FrameError),
    Block(Damaged),
}

impl From<FrameError> for Broken {
    fn from(error: FrameError) -> Broken {
        Broken::Frame(error)
    }
}

impl From<Damaged> for Broken {
    fn from(error: Damaged) -> Broken {
        Broken::Block(error)
    }
}

impl Arrivals {
    /// What is in the inbox already has come just now.
    pub fn new(inbox: Inbox) -> Arrivals {
        let (read, at) = (inbox.buffer.len() as u64, Moment::now());
        let mark = Mark {
            end: read,
            first: at,
            last: at,
        };
        Arrivals {
            inbox,
            read,
            marks: [mark].into(),
            has_ended: false,
            plain: None,
        }
    }

    /// What comes from here on is in compressed blocks.
    pub fn in_blocks(mut self, is_packed: bool) -> Arrivals {
        self.plain = is_packed.then(BytesMut::new);
        self
    }

    /// Memory that the frame at the front takes, as far as that is known, if it is long. Nothing is unpacked for it.
    pub fn long_frame_bytes(&self, frame_bytes_max: usize) -> Result<Option<usize>, Broken> {
        let is_long = |bytes: &usize| *bytes > short_bytes();
        let Some(plain) = &self.plain else {
            let bytes = frame_bytes(&self.inbox.buffer);
            let is_taken = |bytes: &usize| is_long(bytes) && *bytes <= 4 + frame_bytes_max;
            // Who says that a long one will come has sent nothing of it yet.
            let has_come = self.inbox.buffer.len() >= short_bytes();
            return Ok(bytes.filter(|bytes| is_taken(bytes) && has_come));
        };
        if let Some(bytes) = frame_bytes(plain).filter(|bytes| *bytes <= 4 + frame_bytes_max)
            && bytes <= plain.len()
        {
            return Ok(Some(plain.len()).filter(is_long));
        }
        let Some(next) = self.next_block_bytes()? else {
            return Ok(None);
        };
        let bytes = frame_bytes(plain).unwrap_or(0);
        let is_long = is_long(&(plain.len() + next)) || is_long(&bytes);
        // How long the frame is may be seen only when the block is unpacked.
        Ok(is_long.then_some(4 + frame_bytes_max + BLOCK_BYTES_MAX))
    }

    /// Memory that the block at the front takes, packed or not, if it is long.
    pub fn long_block_bytes(&self) -> Result<Option<usize>, Broken> {
        if self.plain.is_none() {
            return Ok(None);
        }
        let bytes = self.next_block_bytes()?;
        let is_long = |bytes: &usize| *bytes > short_bytes();
        Ok(bytes.filter(is_long).map(|_| 2 * BLOCK_BYTES_MAX))
    }

    /// The larger of both lengths of the block at the front; `None` until so much has come that it counts.
    fn next_block_bytes(&self) -> Result<Option<usize>, Broken> {
        let here = self.inbox.buffer.len();
        let Some(block) = packed::front(&self.inbox.buffer)? else {
            return Ok(Some(0));
        };
        let has_come = here >= block.block.min(short_bytes());
        Ok(has_come.then_some(block.block.max(block.plain)))
    }

    /// Makes room for a long frame at once, and for no more than it takes.
    pub fn expect(&mut self, bytes: usize) {
        if self.plain.is_none() {
            let buffer = &mut self.inbox.buffer;
            buffer.reserve(bytes.saturating_sub(buffer.len()) + READ_ROOM_BYTES);
        }
    }

    /// Bytes that were not taken yet.
    pub fn bytes(&self) -> usize {
        self.inbox.buffer.len() + self.plain.as_ref().map_or(0, BytesMut::len)
    }

    /// True if the next frames have been unpacked with the last one, and are long together.
    pub fn has_more(&self) -> bool {
        let plain = self.plain.as_ref();
        plain.is_some_and(|plain| plain.len() > short_bytes())
    }

    /// Where the frames are.
    fn front(&mut self) -> &mut BytesMut {
        self.plain.as_mut().unwrap_or(&mut self.inbox.buffer)
    }

    /// Takes the frame at the front; `None` until it is whole.
    pub fn take_frame(&mut self, bytes_max: usize) -> Result<Option<Bytes>, Broken> {
        loop {
            let buffer = self.front();
            match take_frame(buffer, bytes_max)? {
                None if self.unpack_next()? => {}
                taken => return Ok(taken),
            }
        }
    }

    /// Begins to pass over the request at the front; `None` until its header is there.
    pub fn begin_to_skip(&mut self, width: XidWidth) -> Result<Option<Skip>, Broken> {
        loop {
            let buffer = self.front();
            let skip = Skip::begin(buffer, width).map_err(|_| FrameError::Negative)?;
            match skip {
                None if self.unpack_next()? => {}
                skip => return Ok(skip),
            }
        }
    }

    /// Throws away what has arrived of the request; true when all of it has.
    pub fn skip(&mut self, skip: &mut Skip) -> Result<bool, Broken> {
        loop {
            let buffer = self.front();
            match skip.is_over(buffer) {
                false if self.unpack_next()? => {}
                false => {
                    if let Some(plain) = &mut self.plain {
                        *plain = BytesMut::new(); // all of it was of this request
                    }
                    return Ok(false);
                }
                true => {
                    self.forget_long();
                    return Ok(true);
                }
            }
        }
    }

    /// False if there is no whole block.
    fn unpack_next(&mut self) -> Result<bool, Damaged> {
        match &mut self.plain {
            Some(plain) => {
                let is_unpacked = packed::unpack(&mut self.inbox.buffer, plain)?;
                self.inbox.note(plain.len());
                Ok(is_unpacked)
            }
            None => Ok(false),
        }
    }

    /// Gives back the memory of a long request that was taken. What has come behind it is copied: it would keep all of
    /// that.
    pub fn forget_long(&mut self) {
        self.inbox.give_back();
        if let Some(plain) = &mut self.plain {
            *plain = BytesMut::from(&plain[..]);
        }
    }

    /// True if nothing will come any more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// When the last byte was read of those that were taken from the front.
    pub fn heard(&mut self) -> Moment {
        let taken = self.read - self.inbox.buffer.len() as u64;
        while self.marks.len() > 1 && self.marks[0].end < taken {
            self.marks.pop_front();
        }
        self.marks[0].last
    }

    /// No more is read ahead: something newer may wait in the network.
    pub fn are_full(&self) -> bool {
        self.inbox.buffer.len() >= AHEAD_BYTES
    }

    /// Waits for more, at most so long. `None` if nothing comes, or nothing will come any more.
    pub async fn read_within(&mut self, limit: Option<Duration>) -> Option<()> {
        if self.has_ended {
            return None;
        }
        let reading = self.inbox.read();
        let read = match limit {
            Some(limit) => timeout(limit, reading).await?,
            None => reading.await,
        };
        match read {
            Some(bytes) => self.note(bytes),
            None => self.has_ended = true,
        }
        read.map(drop)
    }

    pub async fn read(&mut self) -> Option<()> {
        self.read_within(None).await
    }

    fn note(&mut self, bytes: usize) {
        let at = Moment::now();
        self.read += bytes as u64;
        let is_full = self.marks.len() >= MOMENTS_MAX;
        // The later moment is the safe one for all.
        match self.marks.back_mut() {
            Some(mark) if is_full || at.since(&mark.first) <= tick() => {
                mark.end = self.read;
                mark.last = at;
            }
            _ => self.marks.push_back(Mark {
                end: self.read,
                first: at,
                last: at,
            }),
        }
    }

    /// Ends when `work` does. Reads ahead meanwhile, and calls `heard` each time.
    pub async fn read_beside<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = T>>,
        heard: impl Fn(),
    ) -> T {
        while !self.has_ended && !self.are_full() {
            match race(work.as_mut(), self.read()).await {
                Either::Left(done) => return done,
                Either::Right(Some(())) => heard(),
                Either::Right(None) => {}
            }
        }
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use plinth_runtime::net::{self, Writer};
    use plinth_runtime::real::block_on;
    use plinth_runtime::sleep;
    use std::cell::Cell;
    use std::net::SocketAddr;
    use std::pin::pin;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    async fn connected() -> (Arrivals, Writer) {
        let anywhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        let mut listener = net::listen(anywhere).await.expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let (_, writer) = net::connect(address).await.expect("it listens");
        let (reader, ..) = listener.accept().await.expect("it has come");
        (Arrivals::new(Inbox::new(reader)), writer)
    }

    async fn send(writer: &mut Writer, bytes: usize) {
        let sent = writer.write_all(Bytes::from(vec![7; bytes])).await;
        sent.expect("sent");
    }

    #[test]
    fn each_request_was_heard_when_its_last_byte_came() {
        block_on(async {
            let (mut arrivals, mut writer) = connected().await;
            let mut came = Vec::new();
            for _ in 0..3 {
                send(&mut writer, 10).await;
                arrivals.read().await.expect("it comes");
                came.push(Moment::now());
                sleep(3 * tick()).await;
            }
            for (taken, nth) in [(10, 0), (5, 1), (5, 1), (1, 2), (9, 2)] {
                let _ = arrivals.inbox.buffer.split_to(taken);
                let heard = arrivals.heard();
                assert!(came[nth].since(&heard) < tick(), "not earlier");
                assert!(heard.at <= came[nth].at, "not later");
            }
            drop(writer);
            assert!(arrivals.read().await.is_none() && arrivals.read().await.is_none());
        });
    }

    #[test]
    fn what_comes_beside_work_is_heard_and_no_more_is_kept_than_may_be() {
        block_on(async {
            let (mut arrivals, mut writer) = connected().await;
            let heard = Cell::new(0);
            let hear = || heard.set(heard.get() + 1);
            {
                let mut work = pin!(async {
                    sleep(ms(20)).await;
                    send(&mut writer, 10).await;
                    sleep(ms(200)).await;
                    7
                });
                assert_eq!(arrivals.read_beside(work.as_mut(), hear).await, 7);
                assert_eq!((heard.get(), arrivals.inbox.buffer.len()), (1, 10));
            }
            let mut work = pin!(race(send(&mut writer, 8 << 20), sleep(ms(200))));
            arrivals.read_beside(work.as_mut(), hear).await;
            let kept = arrivals.inbox.buffer.len();
            assert!((AHEAD_BYTES..1 << 20).contains(&kept), "{kept} bytes");
            assert!(arrivals.are_full() && arrivals.heard().at <= Moment::now().at);
        });
    }

    #[test]
    fn what_has_come_behind_a_long_request_does_not_keep_its_memory() {
        const LONG: usize = 1 << 20;
        for is_packed in [false, true] {
            block_on(async {
                let (arrivals, _writer) = connected().await;
                let mut arrivals = arrivals.in_blocks(is_packed);
                let buffer = arrivals.front();
                buffer.extend_from_slice(&vec![7; LONG + 1]);
                drop(buffer.split_to(LONG));
                let within = buffer.as_ptr();
                arrivals.forget_long();
                let buffer = arrivals.front();
                assert_eq!(buffer[..], [7]);
                assert_ne!(buffer.as_ptr(), within, "packed: {is_packed}");
            });
        }
    }

    #[test]
    fn a_long_request_takes_memory_when_its_beginning_has_come() {
        block_on(async {
            let (mut arrivals, _writer) = connected().await;
            let (most, said) = (8 << 20, 1_u32 << 20);
            let buffer = arrivals.front();
            buffer.extend_from_slice(&said.to_be_bytes());
            buffer.extend_from_slice(&[7; 100]);
            assert_eq!(arrivals.long_frame_bytes(most), Ok(None), "it says so");
            arrivals.front().resize(short_bytes(), 7);
            let bytes = Some(4 + said as usize);
            assert_eq!(arrivals.long_frame_bytes(most), Ok(bytes));
        });
    }
}

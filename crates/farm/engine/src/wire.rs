//! What machines say to each other: bundles of messages, as one message of the fabric.
//!
//! The first byte of each message of the fabric tells whom it is for ([`Room`]). A bundle of the engine goes on with
//! what there is to say about truncation, which has no messages of its own (§4.2), and then its messages in order.

use bytes::Bytes;
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;
use plinth_core::{record, variants};
use plinth_farm_memory::{Abort, Pointer};

/// Whom a message of the fabric is for: its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    Engine,
    Member,
    Recovery,
    Application,
}

const ROOMS: [Room; 4] = [
    Room::Engine,
    Room::Member,
    Room::Recovery,
    Room::Application,
];

impl Room {
    pub fn tag(self) -> u8 {
        1 + ROOMS.iter().position(|room| *room == self).unwrap_or(0) as u8
    }

    /// Of a message's first byte, which may be any.
    pub fn of(tag: u8) -> Option<Room> {
        let at = usize::from(tag).checked_sub(1)?;
        ROOMS.get(at).copied()
    }
}

/// Number of a transaction of its coordinator; 1 for the first.
pub type Number = u64;

variants! {
    /// What happens to an object when the transaction commits.
    #[derive(Copy, Eq)]
    pub enum Change {
        /// The cell is reserved; there is an object from now on.
        Allocate = 0,
        Update = 1,
        /// The object ends. The payload is empty.
        Free = 2,
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub at: Pointer,
    pub change: Change,
    /// What is missing at the end is zeros.
    pub payload: Bytes,
}

record! {
    #[derive(Eq, Default)]
    pub struct Truncation {
        /// All transactions of the sender below this are truncated everywhere.
        pub below: Number,
        /// Transactions of the sender, which the receiver shall truncate.
        pub truncate: Vec<Number>,
        /// Transactions of the receiver, which the sender has truncated.
        pub truncated: Vec<Number>,
    }

    /// What a machine says about the oldest active transaction, or what the collector answers (§4.5, 4.6).
    #[derive(Copy, Eq, Default)]
    pub struct Horizon {
        /// No transaction that is active has an older read timestamp.
        pub oldest: u64,
        /// The same of the second round: no transaction that is active, or may begin, has an older one.
        pub safe: u64,
    }

    /// What a primary shall lock.
    #[derive(Eq)]
    pub struct Lock {
        pub number: Number,
        /// The transaction's snapshot.
        pub read_at: u64,
        /// All regions that the transaction writes to, here or elsewhere.
        pub regions: Vec<u16>,
        pub writes: Vec<Write>,
    }
}

/// Locked, with the newest timestamp of the objects; or why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Locked(pub Result<u64, Abort>);

variants! {
    #[derive(Eq)]
    pub enum Message {
        /// Coordinator to primary. Refused if an object is locked, or newer than `read_at` and not new.
        Lock(lock: Lock) = 0,
        /// Primary to coordinator.
        LockReply { number: Number, reply: Locked } = 1,
        /// Coordinator to primary: the transaction has no effect.
        Unlock { number: Number } = 2,
        /// Coordinator to backup. In a durable cluster also to primaries, which have their writes already.
        CommitBackup {
            number: Number,
            written_at: u64,
            regions: Vec<u16>,
            writes: Vec<Write>,
        } = 3,
        /// Coordinator to primary.
        CommitPrimary { number: Number, written_at: u64 } = 4,
        /// Asks a primary for a free cell.
        Reserve { ask: u64, region: u16, class: u8 } = 5,
        /// Null if there is none.
        ReserveReply { ask: u64, at: Pointer } = 6,
        /// The cell is not needed.
        Unreserve { at: Pointer } = 7,
        /// Primary to backup: the slab has no objects any more (§4.8), and no version in it is newer than `at`. A
        /// backup learns of a slab's class from the objects.
        FreeSlab { region: u16, slab: u32, at: u64 } = 8,
        /// It is free at this backup.
        SlabIsFree { region: u16, slab: u32 } = 9,
        /// To the collector.
        Oat(horizon: Horizon) = 10,
        /// The collector's answer.
        Safe(horizon: Horizon) = 11,
        /// Replica to coordinator, in a durable cluster: what CommitBackup has brought is on disk.
        Kept { numbers: Vec<Number> } = 12,
        /// To a primary: somebody waits for an object that is not in its memory yet.
        Fetch { at: Pointer } = 13,
        /// The answer: it is there.
        Fetched { at: Pointer } = 14,
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bundle {
    pub truncation: Truncation,
    pub messages: Vec<Message>,
}

impl Truncation {
    /// Numbers of transactions in it.
    pub fn count(&self) -> usize {
        self.truncate.len() + self.truncated.len()
    }
}

/// Most bytes of a write beside its payload.
const WRITE_BYTES: usize = 14;
/// Most bytes of a message beside its writes and regions.
const MESSAGE_BYTES: usize = 32;

impl Write {
    /// At least as many as its encoding has.
    pub fn bytes(&self) -> usize {
        Write::bytes_with(self.payload.len())
    }

    /// The same of a write with a payload of so many bytes.
    pub fn bytes_with(payload: usize) -> usize {
        WRITE_BYTES + payload
    }
}

impl Message {
    /// At least as many as its encoding has.
    pub fn bytes(&self) -> usize {
        let rest = match self {
            Message::Lock(Lock {
                regions, writes, ..
            })
            | Message::CommitBackup {
                regions, writes, ..
            } => 2 * regions.len() + writes.iter().map(Write::bytes).sum::<usize>(),
            Message::Kept { numbers } => size_of::<Number>() * numbers.len(),
            _ => 0,
        };
        MESSAGE_BYTES + rest
    }

    /// The smallest `bytes` of a lock or a commit of these writes.
    pub fn bytes_of(regions: usize, writes: usize) -> usize {
        MESSAGE_BYTES + 2 * regions + writes
    }
}

impl Codec for Write {
    const LEAST: usize = Pointer::LEAST + Change::LEAST + Bytes::LEAST;

    fn put(&self, out: &mut Output) {
        self.at.put(out);
        self.change.put(out);
        self.payload.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Write> {
        let write = Write {
            at: Codec::take(input)?,
            change: Codec::take(input)?,
            payload: Codec::take(input)?,
        };
        let fits = !write.at.is_null() && write.payload.len() <= write.at.class().payload_bytes();
        fits.then_some(write)
    }

    fn draw(source: &mut dyn Source) -> Write {
        let drawn = Pointer::draw(source);
        let at = match drawn.is_null() {
            true => Pointer::new(drawn.region(), drawn.class(), 1),
            false => drawn,
        };
        let mut payload = source.bytes();
        payload.truncate(at.class().payload_bytes());
        Write {
            at,
            change: Codec::draw(source),
            payload,
        }
    }
}

/// In one byte: 0 before the timestamp, or 1 and the number of the reason.
impl Codec for Locked {
    fn put(&self, out: &mut Output) {
        match self.0 {
            Ok(newest) => (0u8, newest).put(out),
            Err(abort) => {
                let at = Abort::ALL.iter().position(|other| *other == abort);
                (1 + at.unwrap_or_default() as u8).put(out);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<Locked> {
        Some(Locked(match u8::take(input)? {
            0 => Ok(u64::take(input)?),
            at => Err(*Abort::ALL.get(usize::from(at) - 1)?),
        }))
    }

    fn draw(source: &mut dyn Source) -> Locked {
        Locked(match source.below(10) {
            0 => Ok(u64::draw(source)),
            at => Err(Abort::ALL[at as usize - 1]),
        })
    }
}

impl Codec for Bundle {
    fn put(&self, out: &mut Output) {
        Room::Engine.tag().put(out);
        self.truncation.put(out);
        self.messages.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Bundle> {
        if Room::of(u8::take(input)?) != Some(Room::Engine) {
            return None;
        }
        Some(Bundle {
            truncation: Codec::take(input)?,
            messages: Codec::take(input)?,
        })
    }

    fn draw(source: &mut dyn Source) -> Bundle {
        Bundle {
            truncation: Codec::draw(source),
            messages: Codec::draw(source),
        }
    }
}

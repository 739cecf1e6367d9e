//! What machines say to each other: bundles of messages, as one message of the fabric.
//!
//! The first byte of each message of the fabric tells whom it is for ([`Room`]). A bundle of the engine goes on with
//! what there is to say about truncation, which has no messages of its own (§4.2), and then its messages in order.

use bytes::{BufMut, Bytes};
use plinth_core::codec::{Codec, Source};
use plinth_core::codec_for;
use plinth_core::output::Output;
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

/// What happens to an object when the transaction commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The cell is reserved; there is an object from now on.
    Allocate,
    Update,
    /// The object ends. The payload is empty.
    Free,
}

const CHANGES: [Change; 3] = [Change::Allocate, Change::Update, Change::Free];

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub at: Pointer,
    pub change: Change,
    /// What is missing at the end is zeros.
    pub payload: Bytes,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Truncation {
    /// All transactions of the sender below this are truncated everywhere.
    pub below: Number,
    /// Transactions of the sender, which the receiver shall truncate.
    pub truncate: Vec<Number>,
    /// Transactions of the receiver, which the sender has truncated.
    pub truncated: Vec<Number>,
}

/// What a machine says about the oldest active transaction, or what the collector answers (§4.5, 4.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Horizon {
    /// No transaction that is active has an older read timestamp.
    pub oldest: u64,
    /// The same of the second round: no transaction that is active, or may begin, has an older one.
    pub safe: u64,
}

/// What a primary shall lock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    pub number: Number,
    /// The transaction's snapshot.
    pub read_at: u64,
    /// All regions that the transaction writes to, here or elsewhere.
    pub regions: Vec<u16>,
    pub writes: Vec<Write>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Coordinator to primary. Refused if an object is locked, or newer than `read_at` and not new.
    Lock(Lock),
    /// Locked, with the newest timestamp of the objects; or why not.
    LockReply {
        number: Number,
        reply: Result<u64, Abort>,
    },
    /// Coordinator to primary: the transaction has no effect.
    Unlock { number: Number },
    /// Coordinator to backup. In a durable cluster also to primaries, which have their writes already.
    CommitBackup {
        number: Number,
        written_at: u64,
        regions: Vec<u16>,
        writes: Vec<Write>,
    },
    /// Coordinator to primary.
    CommitPrimary { number: Number, written_at: u64 },
    /// Asks a primary for a free cell.
    Reserve { ask: u64, region: u16, class: u8 },
    /// Null if there is none.
    ReserveReply { ask: u64, at: Pointer },
    /// The cell is not needed.
    Unreserve { at: Pointer },
    /// Primary to backup: the slab has no objects any more (§4.8), and no version in it is newer than `at`. A backup
    /// learns of a slab's class from the objects.
    FreeSlab { region: u16, slab: u32, at: u64 },
    /// It is free at this backup.
    SlabIsFree { region: u16, slab: u32 },
    /// To the collector.
    Oat(Horizon),
    /// The collector's answer.
    Safe(Horizon),
    /// Replica to coordinator, in a durable cluster: what CommitBackup has brought is on disk.
    Kept { numbers: Vec<Number> },
    /// To a primary: somebody waits for an object that is not in its memory yet.
    Fetch { at: Pointer },
    /// The answer: it is there.
    Fetched { at: Pointer },
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bundle {
    pub truncation: Truncation,
    pub messages: Vec<Message>,
}

codec_for!(Truncation {
    below: Number,
    truncate: Vec<Number>,
    truncated: Vec<Number>,
});

codec_for!(Horizon {
    oldest: u64,
    safe: u64,
});

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

fn put_pointer(at: Pointer, out: &mut Output) {
    at.bits().put(out);
}

fn take_pointer(input: &mut Bytes) -> Option<Pointer> {
    match u64::take(input)? {
        0 => Some(Pointer::NULL),
        bits => Pointer::from_bits(bits),
    }
}

fn draw_pointer(source: &mut dyn Source) -> Pointer {
    Pointer::from_bits(u64::draw(source)).unwrap_or(Pointer::NULL)
}

impl Codec for Write {
    const LEAST: usize = 8 + 1 + Bytes::LEAST;

    fn put(&self, out: &mut Output) {
        put_pointer(self.at, out);
        let change = CHANGES.iter().position(|change| *change == self.change);
        out.buffer().put_u8(change.unwrap_or_default() as u8);
        self.payload.put(out);
    }

    fn take(input: &mut Bytes) -> Option<Write> {
        let write = Write {
            at: take_pointer(input)?,
            change: *CHANGES.get(usize::from(u8::take(input)?))?,
            payload: Codec::take(input)?,
        };
        let fits = !write.at.is_null() && write.payload.len() <= write.at.class().payload_bytes();
        fits.then_some(write)
    }

    fn draw(source: &mut dyn Source) -> Write {
        let drawn = draw_pointer(source);
        let at = match drawn.is_null() {
            true => Pointer::new(drawn.region(), drawn.class(), 1),
            false => drawn,
        };
        let mut payload = source.bytes();
        payload.truncate(at.class().payload_bytes());
        Write {
            at,
            change: CHANGES[source.below(3) as usize],
            payload,
        }
    }
}

fn put_reply(reply: Result<u64, Abort>, out: &mut Output) {
    match reply {
        Ok(newest) => (0u8, newest).put(out),
        Err(abort) => {
            let at = Abort::ALL.iter().position(|other| *other == abort);
            (1 + at.unwrap_or_default() as u8).put(out);
        }
    }
}

fn take_reply(input: &mut Bytes) -> Option<Result<u64, Abort>> {
    Some(match u8::take(input)? {
        0 => Ok(u64::take(input)?),
        at => Err(*Abort::ALL.get(usize::from(at) - 1)?),
    })
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Message::Lock(_) => 0,
            Message::LockReply { .. } => 1,
            Message::Unlock { .. } => 2,
            Message::CommitBackup { .. } => 3,
            Message::CommitPrimary { .. } => 4,
            Message::Reserve { .. } => 5,
            Message::ReserveReply { .. } => 6,
            Message::Unreserve { .. } => 7,
            Message::FreeSlab { .. } => 8,
            Message::SlabIsFree { .. } => 9,
            Message::Oat(_) => 10,
            Message::Safe(_) => 11,
            Message::Kept { .. } => 12,
            Message::Fetch { .. } => 13,
            Message::Fetched { .. } => 14,
        }
    }
}

impl Codec for Message {
    /// Of [`Message::Kept`].
    const LEAST: usize = 2;

    fn put(&self, out: &mut Output) {
        self.kind().put(out);
        match self {
            Message::Lock(Lock {
                number,
                read_at: time,
                regions,
                writes,
            })
            | Message::CommitBackup {
                number,
                written_at: time,
                regions,
                writes,
            } => {
                (*number, *time).put(out);
                regions.put(out);
                writes.put(out);
            }
            Message::LockReply { number, reply } => {
                number.put(out);
                put_reply(*reply, out);
            }
            Message::Unlock { number } => number.put(out),
            Message::CommitPrimary { number, written_at } => (*number, *written_at).put(out),
            Message::Reserve { ask, region, class } => (*ask, (*region, *class)).put(out),
            Message::ReserveReply { ask, at } => {
                ask.put(out);
                put_pointer(*at, out);
            }
            Message::Unreserve { at } | Message::Fetch { at } | Message::Fetched { at } => {
                put_pointer(*at, out);
            }
            Message::FreeSlab { region, slab, at } => (*region, (*slab, *at)).put(out),
            Message::SlabIsFree { region, slab } => (*region, *slab).put(out),
            Message::Oat(horizon) | Message::Safe(horizon) => horizon.put(out),
            Message::Kept { numbers } => numbers.put(out),
        }
    }

    fn take(input: &mut Bytes) -> Option<Message> {
        Some(match u8::take(input)? {
            0 => Message::Lock(Lock {
                number: u64::take(input)?,
                read_at: u64::take(input)?,
                regions: Codec::take(input)?,
                writes: Codec::take(input)?,
            }),
            1 => Message::LockReply {
                number: u64::take(input)?,
                reply: take_reply(input)?,
            },
            2 => Message::Unlock {
                number: u64::take(input)?,
            },
            3 => Message::CommitBackup {
                number: u64::take(input)?,
                written_at: u64::take(input)?,
                regions: Codec::take(input)?,
                writes: Codec::take(input)?,
            },
            4 => Message::CommitPrimary {
                number: u64::take(input)?,
                written_at: u64::take(input)?,
            },
            5 => Message::Reserve {
                ask: u64::take(input)?,
                region: u16::take(input)?,
                class: u8::take(input)?,
            },
            6 => Message::ReserveReply {
                ask: u64::take(input)?,
                at: take_pointer(input)?,
            },
            7 => Message::Unreserve {
                at: take_pointer(input)?,
            },
            8 => Message::FreeSlab {
                region: u16::take(input)?,
                slab: u32::take(input)?,
                at: u64::take(input)?,
            },
            9 => Message::SlabIsFree {
                region: u16::take(input)?,
                slab: u32::take(input)?,
            },
            10 => Message::Oat(Codec::take(input)?),
            11 => Message::Safe(Codec::take(input)?),
            12 => Message::Kept {
                numbers: Codec::take(input)?,
            },
            13 => Message::Fetch {
                at: take_pointer(input)?,
            },
            14 => Message::Fetched {
                at: take_pointer(input)?,
            },
            _ => return None,
        })
    }

    fn draw(source: &mut dyn Source) -> Message {
        let (number, time) = (Codec::draw(source), Codec::draw(source));
        let (regions, writes) = (Codec::draw(source), Codec::draw(source));
        match source.below(15) {
            0 => Message::Lock(Lock {
                number,
                read_at: time,
                regions,
                writes,
            }),
            1 => Message::LockReply {
                number,
                reply: match source.below(10) {
                    0 => Ok(time),
                    at => Err(Abort::ALL[at as usize - 1]),
                },
            },
            2 => Message::Unlock { number },
            3 => Message::CommitBackup {
                number,
                written_at: time,
                regions,
                writes,
            },
            4 => Message::CommitPrimary {
                number,
                written_at: time,
            },
            5 => Message::Reserve {
                ask: number,
                region: Codec::draw(source),
                class: Codec::draw(source),
            },
            6 => Message::ReserveReply {
                ask: number,
                at: draw_pointer(source),
            },
            7 => Message::Unreserve {
                at: draw_pointer(source),
            },
            8 => Message::FreeSlab {
                region: Codec::draw(source),
                slab: Codec::draw(source),
                at: Codec::draw(source),
            },
            9 => Message::SlabIsFree {
                region: Codec::draw(source),
                slab: Codec::draw(source),
            },
            10 => Message::Oat(Codec::draw(source)),
            11 => Message::Kept {
                numbers: Codec::draw(source),
            },
            12 => Message::Fetch {
                at: draw_pointer(source),
            },
            13 => Message::Fetched {
                at: draw_pointer(source),
            },
            _ => Message::Safe(Codec::draw(source)),
        }
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

//! What members say to each other, as messages of the fabric: `tag u8 | from | to | what`. They share the rings with
//! the engine's messages, whose first byte is another.
//!
//! Rings outlive processes. So a message names the lives that it is from and for, and another life ignores it.

use crate::record::Record;
use bytes::{Buf, Bytes};
use plinth_core::codec::{Codec, Source};
use plinth_core::codec_for;
use plinth_core::output::Output;
use plinth_farm_time::{MemberId, Message};

/// The first byte of each message.
pub const TAG: u8 = 2;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub from: MemberId,
    pub to: MemberId,
    pub what: What,
}

codec_for!(Frame {
    from: MemberId,
    to: MemberId,
    what: What,
});

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Time(Message),
    /// The sender's replicas of these regions are whole, in the configuration with this number. To the master.
    Whole {
        number: u64,
        regions: Vec<u16>,
    },
    /// The register has a record with this revision.
    News(u64),
    /// The sender's engine cannot go on in the configuration with this number. To the master.
    Anew(u64),
    /// The register has taken this record.
    Taken(Record),
}

impl Codec for What {
    fn put(&self, out: &mut Output) {
        match self {
            What::Time(message) => {
                0u8.put(out);
                message.put(out);
            }
            What::Whole { number, regions } => {
                1u8.put(out);
                number.put(out);
                regions.put(out);
            }
            What::News(revision) => {
                2u8.put(out);
                revision.put(out);
            }
            What::Anew(number) => {
                3u8.put(out);
                number.put(out);
            }
            What::Taken(record) => {
                4u8.put(out);
                record.put(out);
            }
        }
    }

    fn take(input: &mut Bytes) -> Option<What> {
        Some(match u8::take(input)? {
            0 => What::Time(Codec::take(input)?),
            1 => What::Whole {
                number: Codec::take(input)?,
                regions: Codec::take(input)?,
            },
            2 => What::News(Codec::take(input)?),
            3 => What::Anew(Codec::take(input)?),
            4 => What::Taken(Codec::take(input)?),
            _ => return None,
        })
    }

    fn draw(source: &mut dyn Source) -> What {
        match source.below(5) {
            0 => What::Time(Codec::draw(source)),
            1 => What::News(Codec::draw(source)),
            2 => What::Anew(Codec::draw(source)),
            3 => What::Taken(Codec::draw(source)),
            _ => What::Whole {
                number: Codec::draw(source),
                regions: Codec::draw(source),
            },
        }
    }
}

pub fn to_bytes(frame: &Frame) -> Bytes {
    let mut out = Output::copying();
    TAG.put(&mut out);
    frame.put(&mut out);
    out.into_bytes()
}

pub fn from_bytes(mut bytes: Bytes) -> Option<Frame> {
    if bytes.first() != Some(&TAG) {
        return None;
    }
    bytes.advance(1);
    Frame::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Cluster;
    use plinth_core::id::Uid;
    use plinth_core::testing::fuzz;
    use plinth_farm_time::Body;

    #[test]
    fn a_frame_comes_back_and_no_damaged_one_does_harm() {
        let (sent, is_committed) = (7, true);
        let body = Body::TimeRequest { sent, is_committed };
        let time = What::Time(Message { number: 3, body });
        let (number, regions) = (4, vec![1, 2, 3]);
        let whole = What::Whole { number, regions };
        let cluster = Cluster::new(Uid(3), 5, 2, 2);
        let taken = What::Taken(Record::of_new(cluster));
        let frames = [time, whole, What::News(9), What::Anew(4), taken].map(|what| Frame {
            from: Uid(1),
            to: Uid(2),
            what,
        });
        for frame in &frames {
            assert_eq!(from_bytes(to_bytes(frame)).as_ref(), Some(frame));
        }
        let corpus = frames.iter().map(|frame| to_bytes(frame).to_vec());
        fuzz("farm member frame", 1, corpus, |input| {
            from_bytes(Bytes::copy_from_slice(input)).is_some()
        });
    }
}

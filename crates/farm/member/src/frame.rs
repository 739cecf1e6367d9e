//! What members say to each other, as messages of the fabric: `tag u8 | from | to | what`. They share the rings with
//! the engine's messages, whose first byte is another.
//!
//! Rings outlive processes. So a message names the lives that it is from and for, and another life ignores it.

use crate::record::Record;
use bytes::{Buf, Bytes};
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_core::{record, variants};
use plinth_farm_time::{MemberId, Message};

/// The first byte of each message.
pub const TAG: u8 = 2;

record! {
    #[derive(Eq)]
    pub struct Frame {
        pub from: MemberId,
        pub to: MemberId,
        pub what: What,
    }
}

variants! {
    #[derive(Eq)]
    pub enum What {
        Time(message: Message) = 0,
        /// The sender's replicas of these regions are whole, in the configuration with this number. To the master.
        Whole {
            number: u64,
            regions: Vec<u16>,
        } = 1,
        /// The register has a record with this revision.
        News(revision: u64) = 2,
        /// The sender's engine cannot go on in the configuration with this number. To the master.
        Anew(number: u64) = 3,
        /// The register has taken this record.
        Taken(record: Record) = 4,
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

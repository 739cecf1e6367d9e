//! What is known to be damaged, in a file beside the engine's: a server that was started again refuses what it has
//! refused, also if its bytes read well the next time. The file goes when the engine's files are set aside.
//!
//! ```text
//! file   image | zeros up to the next multiple of 4096 | the image again
//! image  magic u64 | format u32 | length of the rest u32 | crc u32 of all this
//!        | ranges u32, of each: begin | end | flags u8 | blocks u32, of each: offset u64
//!        | blocks without keys u32, of each: offset u64
//! ```

use super::{DamagedRanges, Range};
use crate::failure::{damage, disk_failure};
use crate::key_bytes::{get_key, put_key};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::{Error, Result};
use plinth_runtime::{disk, probe};
use std::collections::BTreeSet;
use std::path::Path;

const MAGIC: u64 = u64::from_le_bytes(*b"plinthLO");
const FORMAT: u32 = 1;
const HEAD: usize = 20;
const SECTOR: usize = 4096;
const BEGINS_BEHIND_ROW: u8 = 1;
const ENDS_AT_ROW: u8 = 2;

fn put_blocks(out: &mut BytesMut, blocks: &BTreeSet<u64>) {
    out.put_u32_le(u32::try_from(blocks.len()).expect("they are bounded"));
    blocks.iter().for_each(|at| out.put_u64_le(*at));
}

fn get_blocks(from: &mut Bytes) -> Option<BTreeSet<u64>> {
    let count = from.try_get_u32_le().ok()?;
    (0..count).map(|_| from.try_get_u64_le().ok()).collect()
}

fn crc_of(format: u32, rest: &[u8]) -> u32 {
    let head = [
        u64::from(format).to_le_bytes(),
        (rest.len() as u64).to_le_bytes(),
    ];
    crc32c::crc32c_append(crc32c::crc32c(&head.concat()), rest)
}

fn encode(damaged: &DamagedRanges) -> Bytes {
    let mut rest = BytesMut::new();
    rest.put_u32_le(u32::try_from(damaged.ranges.len()).expect("they are bounded"));
    for range in &damaged.ranges {
        put_key(&mut rest, &range.begin);
        put_key(&mut rest, &range.end);
        let behind = if range.begins_behind_row {
            BEGINS_BEHIND_ROW
        } else {
            0
        };
        let at = if range.ends_at_row { ENDS_AT_ROW } else { 0 };
        rest.put_u8(behind | at);
        put_blocks(&mut rest, &range.at);
    }
    put_blocks(&mut rest, &damaged.blocks);
    let mut image = BytesMut::with_capacity(2 * (HEAD + rest.len()) + SECTOR);
    image.put_u64_le(MAGIC);
    image.put_u32_le(FORMAT);
    image.put_u32_le(u32::try_from(rest.len()).expect("they are bounded"));
    image.put_u32_le(crc_of(FORMAT, &rest));
    image.put_slice(&rest);
    let again = image.clone();
    image.put_bytes(0, again.len().next_multiple_of(SECTOR) - again.len());
    image.put_slice(&again);
    image.freeze()
}

fn decode_rest(mut rest: Bytes) -> Option<DamagedRanges> {
    let from = &mut rest;
    let count = from.try_get_u32_le().ok()?;
    let range = |_| {
        let (begin, end) = (get_key(from)?, get_key(from)?);
        let flags = from.try_get_u8().ok()?;
        Some(Range {
            begin,
            end,
            at: get_blocks(from)?,
            begins_behind_row: flags & BEGINS_BEHIND_ROW != 0,
            ends_at_row: flags & ENDS_AT_ROW != 0,
        })
    };
    let ranges: Vec<Range> = (0..count).map(range).collect::<Option<_>>()?;
    let blocks = get_blocks(from)?;
    let is_ordered = ranges.is_sorted_by(|a, b| a.begin < b.begin && a.end < b.begin);
    (is_ordered && rest.is_empty()).then_some(DamagedRanges { ranges, blocks })
}

/// What begins at an image: its format, or what it says.
fn decode(bytes: &Bytes, at: usize) -> Option<std::result::Result<DamagedRanges, u32>> {
    let mut head = bytes.get(at..at + HEAD)?;
    let (magic, format) = (head.get_u64_le(), head.get_u32_le());
    let (len, crc) = (head.get_u32_le() as usize, head.get_u32_le());
    let rest = at + HEAD;
    let is_whole =
        magic == MAGIC && crc_of(format, bytes.get(rest..rest.checked_add(len)?)?) == crc;
    if !is_whole {
        return None;
    }
    match format {
        FORMAT => decode_rest(bytes.slice(rest..rest + len)).map(Ok),
        newer => Some(Err(newer)),
    }
}

/// Writes it down, durably.
pub(crate) async fn write(path: &Path, damaged: &DamagedRanges) -> Result<()> {
    let written = disk::write_file_durably(path, encode(damaged)).await;
    written
        .map(drop)
        .map_err(|error| disk_failure(path, "write what is damaged", &error))
}

/// Reads it; nothing is known if there is no file.
pub(crate) async fn read(path: &Path) -> Result<DamagedRanges> {
    let failure = |error| disk_failure(path, "read what is damaged", &error);
    if !disk::exists(path).await.map_err(failure)? {
        return Ok(DamagedRanges::default());
    }
    let bytes = disk::read_file(path).await.map_err(failure)?;
    let places = (0..bytes.len()).step_by(SECTOR);
    match places.filter_map(|at| decode(&bytes, at)).next() {
        Some(Ok(damaged)) => {
            probe!("ssd_engine_knows_what_it_has_refused");
            Ok(damaged)
        }
        Some(Err(format)) => {
            let what = format!("format {format} is of a newer version");
            Err(damage(path, 0, Error::file_corrupt, &what))
        }
        // What was refused is not known, and must not be served.
        None => Err(damage(path, 0, Error::checksum_failed, "what is damaged")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::Met;
    use proptest::prelude::*;

    fn some() -> DamagedRanges {
        let mut damaged = DamagedRanges::default();
        let met = |key: &'static str| Met::From {
            key: Bytes::from(key),
            shown: true,
        };
        damaged.note(8192, Some(met("b")));
        damaged.note(4096, Some(met("m")));
        damaged.note(99, None);
        damaged
    }

    #[test]
    fn it_is_read_as_it_was_written_also_where_one_of_its_images_is_damaged() {
        let bytes = encode(&some());
        for at in [0, 4096] {
            let read = decode(&bytes, at)
                .expect("there is an image")
                .expect("of this format");
            assert_eq!(read.parts(), some().parts());
        }
        let mut newer = bytes.to_vec();
        let len = u32::from_le_bytes(newer[12..16].try_into().expect("four")) as usize;
        newer[8] = 2;
        let crc = crc_of(2, &newer[HEAD..HEAD + len]);
        newer[16..20].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(
            decode(&Bytes::from(newer), 0).expect("it is whole").err(),
            Some(2)
        );
    }

    proptest! {
        #[test]
        fn changed_bytes_are_refused_or_mean_the_same(at in 0usize..5000, bit in 0u8..8, cut in 0usize..5000) {
            let mut bytes = encode(&some()).to_vec();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            bytes.truncate(cut.max(1));
            let bytes = Bytes::from(bytes);
            for at in [0, 4096] {
                if let Some(Ok(read)) = decode(&bytes, at) {
                    prop_assert_eq!(read.parts(), some().parts());
                }
            }
        }

        #[test]
        fn bytes_that_nobody_has_written_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_rest(Bytes::from(bytes.clone()));
            prop_assert!(decode(&Bytes::from(bytes), 0).is_none());
        }
    }
}

//! What futures of change data capture hold: streams and changes, with the structures of the C header that point into
//! them.

use crate::entries::{KeyEntry, RangeEntry};
use plinth_client::StreamInfo;
use plinth_core::{Mutation, Version};
use std::ffi::c_int;

/// `FDBCdcStreamInfo`.
#[repr(C, packed(4))]
pub struct StreamEntry {
    name: KeyEntry,
    id: u64,
    ranges: *const RangeEntry,
    range_count: c_int,
    min_version: i64,
}

/// `FDBCdcMutation`.
#[repr(C, packed(4))]
pub struct MutationEntry {
    kind: u8,
    first: KeyEntry,
    second: KeyEntry,
}

/// `FDBCdcVersionedMutations`.
#[repr(C, packed(4))]
pub struct VersionEntry {
    version: i64,
    mutations: *const MutationEntry,
    count: c_int,
}

/// A list of streams, and what keeps its entries valid.
pub struct Streams {
    #[allow(dead_code)] // keeps what the entries point to
    streams: Vec<(StreamInfo, Version)>,
    #[allow(dead_code)]
    ranges: Vec<Vec<RangeEntry>>,
    pub entries: Vec<StreamEntry>,
}

/// Changes of whole versions, and what keeps the entries valid.
pub struct Changes {
    #[allow(dead_code)] // keeps what the entries point to
    versions: Vec<(Version, Vec<Mutation>)>,
    #[allow(dead_code)]
    mutations: Vec<Vec<MutationEntry>>,
    pub entries: Vec<VersionEntry>,
    pub through: Version,
}

impl Streams {
    pub fn of(streams: Vec<(StreamInfo, Version)>) -> Self {
        let of = |(info, _): &(StreamInfo, Version)| {
            info.record.ranges.iter().map(RangeEntry::of).collect()
        };
        let ranges: Vec<Vec<RangeEntry>> = streams.iter().map(of).collect();
        let entries = streams.iter().zip(&ranges);
        let entries = entries.map(|((info, min_version), ranges)| StreamEntry {
            name: KeyEntry::of(&info.name),
            id: info.record.id,
            ranges: ranges.as_ptr(),
            range_count: ranges.len() as c_int,
            min_version: *min_version,
        });
        Streams {
            entries: entries.collect(),
            ranges,
            streams,
        }
    }
}

impl Changes {
    pub fn of((versions, through): (Vec<(Version, Vec<Mutation>)>, Version)) -> Self {
        let entry = |mutation: &Mutation| MutationEntry {
            kind: mutation.kind as u8,
            first: KeyEntry::of(&mutation.first),
            second: KeyEntry::of(&mutation.second),
        };
        let all = versions.iter();
        let mutations: Vec<Vec<MutationEntry>> = all
            .map(|(_, all)| all.iter().map(entry).collect())
            .collect();
        let entries = versions.iter().zip(&mutations);
        let entries = entries.map(|((version, _), all)| VersionEntry {
            version: *version,
            mutations: all.as_ptr(),
            count: all.len() as c_int,
        });
        Changes {
            entries: entries.collect(),
            mutations,
            versions,
            through,
        }
    }
}

const _: () = assert!(size_of::<StreamEntry>() == 40 && size_of::<MutationEntry>() == 28);

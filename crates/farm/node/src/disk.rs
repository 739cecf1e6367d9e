//! The disk of a machine of a durable cluster: whose it is, and what it has.

use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::codec_for;
use plinth_core::id::Uid;
use plinth_farm_engine::Disk;
use plinth_farm_fabric::Local;
use plinth_farm_member::{self as member, Record};
use plinth_farm_memory::Sizes;
use plinth_runtime::{Boxed, disk, planted, random};
use std::io;
use std::path::Path;

/// "PLNFDISK"
const MAGIC: u64 = 0x504c_4e46_4449_534b;
const FORMAT: u32 = 1;
const NAME: &str = "identity";
const CRC_BYTES: usize = 4;

/// What a directory says of itself, followed by a checksum. Only the machine may change, while no member has the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    magic: u64,
    format: u32,
    pub cluster: Uid,
    pub disk: Uid,
    /// The number of the machine that has the disk.
    pub machine: u16,
}

codec_for!(Identity {
    magic: u64,
    format: u32,
    cluster: Uid,
    disk: Uid,
    machine: u16,
});

fn refused(path: &Path, what: impl std::fmt::Display) -> io::Error {
    let text = format!("{}: {what}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl Identity {
    fn parse(bytes: &Bytes) -> Option<Identity> {
        let (body, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
        let is_whole = crc32c::crc32c(body) == u32::from_le_bytes(*crc);
        let identity = Identity::from_bytes(bytes.slice(..body.len()))?;
        (is_whole && identity.magic == MAGIC && identity.format == FORMAT).then_some(identity)
    }

    fn bytes(&self) -> Bytes {
        let body = self.to_bytes();
        let crc = crc32c::crc32c(&body).to_le_bytes();
        [&body[..], &crc].concat().into()
    }

    /// What the directory says; `None` if no machine has used it.
    ///
    /// # Errors
    /// `InvalidData` if it is damaged, and those of the system.
    pub fn read(directory: &Path) -> Boxed<'_, io::Result<Option<Identity>>> {
        Box::pin(async move {
            let path = directory.join(NAME);
            if !disk::exists(&path).await? {
                return Ok(None);
            }
            let parsed = Identity::parse(&disk::read_file(&path).await?);
            let damaged = "it is damaged, or of another version; restore it, or start with an empty directory";
            parsed.map(Some).ok_or_else(|| refused(&path, damaged))
        })
    }

    /// The same for a machine of a cluster, which makes it if there is none. A disk that no member has may be any
    /// machine's: nothing on it counts.
    async fn of(directory: &Path, record: &Record, machine: u16) -> io::Result<Identity> {
        disk::create_dir_all(directory).await?;
        let cluster = record.cluster.id;
        let found = Identity::read(directory).await?;
        if let Some(identity) = found {
            // The record says whose the disk is. What the disk itself says may be of a number that it never got.
            let seat = record.seat_on(identity.disk);
            let other = match seat {
                _ if identity.cluster != cluster => Some("another cluster's".to_owned()),
                Some(seat) if seat.machine != machine => {
                    Some(format!("machine {}'s", seat.machine))
                }
                _ => None,
            };
            if let Some(other) = other {
                let what =
                    format!("the directory is {other}: start it as that, or name another one");
                return Err(refused(directory, what));
            }
            if identity.machine == machine {
                return Ok(identity);
            }
        }
        let disk = found.map(|identity| identity.disk);
        let disk = disk.unwrap_or_else(|| Uid(random::uid()));
        let identity = Identity {
            magic: MAGIC,
            format: FORMAT,
            cluster,
            disk,
            machine,
        };
        disk::write_file_durably(&directory.join(NAME), identity.bytes()).await?;
        Ok(identity)
    }
}

/// Opens the disk in the directory, or makes one. Reads the replicas that the record has on it into the machine's
/// memory, which nobody else may use yet; if backups are on disk, only what is to be known of them. Also those that
/// are not whole: the record may say later that they are, because the former life of the machine had reported it.
///
/// # Errors
/// `InvalidData` if it is damaged, or another machine's; those of the system.
pub fn open<'a>(
    directory: &'a Path,
    record: &'a Record,
    local: &'a Local,
    sizes: &'a Sizes,
) -> Boxed<'a, io::Result<(Disk, member::Disk)>> {
    Box::pin(async move {
        let machine = local.machine().0;
        let identity = Identity::of(directory, record, machine).await?;
        let failed = |error: plinth_farm_disk::Error| {
            let kind = match &error {
                full if full.is_full() => io::ErrorKind::StorageFull,
                _ => io::ErrorKind::InvalidData,
            };
            let text = match &error {
                plinth_farm_disk::Error::Damaged { .. } => format!(
                    "{error}; if the other machines have everything, remove {} and start again: it is copied from \
                    them",
                    directory.display()
                ),
                _ => error.to_string(),
            };
            io::Error::new(kind, text)
        };
        let (id, is_on_disk) = (identity.disk.0 as u64, record.cluster.has_backups_on_disk);
        let opened = Disk::open(directory, id, sizes, is_on_disk).await;
        let mut disk = opened.map_err(failed)?;
        let replicas = replicas_on(record, identity.disk);
        // Others may still read what the former life of this machine has left.
        if !planted!(
            "farm_disk_is_loaded_under_readers",
            "members of a former configuration read a memory that is loaded anew"
        ) {
            local.close().await;
        }
        let loaded = disk.load(local.host(), &replicas).await;
        loaded.map_err(failed)?;
        let of_member = member::Disk {
            id: identity.disk,
            newest: disk.newest(),
        };
        Ok((disk, of_member))
    })
}

/// Region and slot of each replica of the member that has the disk.
fn replicas_on(record: &Record, disk: Uid) -> Vec<(u16, u16)> {
    let Some(seat) = record.seat_on(disk) else {
        return Vec::new();
    };
    let numbered = record.regions.iter().zip(0u16..);
    let here = numbered.filter_map(|(replicas, region)| {
        let mut mine = replicas.iter().filter(|r| r.machine == seat.machine);
        Some((region, mine.next()?.slot))
    });
    here.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_farm_member::{Cluster, Place, Seat};
    use plinth_runtime::sim::{SimConfig, Simulation};

    #[test]
    fn a_damaged_identity_is_none() {
        let identity = Identity {
            magic: MAGIC,
            format: FORMAT,
            cluster: Uid(3),
            disk: Uid(4),
            machine: 5,
        };
        let bytes = identity.bytes();
        assert_eq!(Identity::parse(&bytes), Some(identity));
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Identity::parse(&damaged.into()), None);
        }
        for length in 0..bytes.len() {
            assert_eq!(Identity::parse(&bytes.slice(..length)), None);
        }
    }

    #[test]
    fn the_record_says_whose_a_disk_is() {
        let config = SimConfig {
            knob_randomise_probability: 0.0,
            ..SimConfig::default()
        };
        Simulation::new(1, config).run(async {
            let directory = Path::new("/disk");
            let mut record = Record::of_new(Cluster::new(Uid(9), 8, 1, 1));
            // Nobody's yet: a number that the process asks for, and does not get.
            let asked = Identity::of(directory, &record, 3).await.expect("new");
            record.machines.push(Seat {
                machine: 5,
                id: Uid(1),
                place: Place {
                    host: 1,
                    socket: None,
                    zone: String::new(),
                },
                slots: 1,
                disk: Some(member::Disk {
                    id: asked.disk,
                    newest: 0,
                }),
            });
            let refused = Identity::of(directory, &record, 3).await;
            let text = refused
                .map_err(|error| error.to_string())
                .expect_err("machine 5's");
            assert!(text.contains("the directory is machine 5's"), "{text}");
            let own = Identity::of(directory, &record, 5).await.expect("its own");
            assert_eq!((own.machine, own.disk), (5, asked.disk));
            record.cluster.id = Uid(10);
            let foreign = Identity::of(directory, &record, 5).await;
            assert!(foreign.is_err());
        });
    }
}

//! The files of a journal: found at its opening, written one block at a time, and removed.

use super::format::{self, BLOCK_HEAD_BYTES, Block, FORMAT, HEAD_BYTES, Head, Segment};
use crate::{Error, JOURNAL_SEGMENT_BYTES};
use bytes::Bytes;
use plinth_core::output::Output;
use plinth_runtime::disk::{self, File, OpenOptions, Synced};
use plinth_runtime::{Pace, Task, probe, spawn, trace};
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

/// A longer file is not read.
const FILE_BYTES_MAX: u64 = 2 << 30;
const SPARE: &str = "spare";
/// A journal that was dropped may still be writing. Who opens its files waits for the end of that.
const OWNED: OpenOptions = OpenOptions {
    create: true,
    truncate: false,
    create_new: false,
    read_only: false,
    exclusive: true,
    private: false,
};

/// A file that takes no more blocks.
struct Full {
    first: u64,
    end: u64,
    bytes: u64,
}

/// The file that blocks go to.
struct Current {
    file: File,
    path: PathBuf,
    segment: Segment,
    /// Where the next block goes.
    offset: u64,
    /// A block that ends behind this goes to another file, unless it is the first one.
    capacity: u64,
}

pub struct Files {
    prefix: PathBuf,
    id: u64,
    full: VecDeque<Full>,
    current: Option<Current>,
    /// A file of zeros, or of old blocks, that becomes the next one: made in the background.
    spare: Option<Task<io::Result<File>>>,
    /// What has failed beside a block that is durable: nothing more is written.
    failed: Option<Error>,
}

/// What was found at the opening.
pub struct Found {
    /// The number of the next record.
    pub next: u64,
    pub needed: u64,
    pub synced: Synced,
}

fn named(prefix: &Path, ending: &str) -> PathBuf {
    let mut name = prefix.file_name().unwrap_or_default().to_os_string();
    name.push(".");
    name.push(ending);
    prefix.with_file_name(name)
}

fn segment_path(prefix: &Path, first: u64) -> PathBuf {
    named(prefix, &format!("{first:016x}"))
}

fn directory(prefix: &Path) -> &Path {
    let parent = prefix.parent().filter(|dir| !dir.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The first records of the segments that are there, in order.
async fn existing(prefix: &Path) -> Result<Vec<u64>, Error> {
    let directory = directory(prefix);
    let names = disk::list_dir(directory).await;
    let names = names.map_err(|e| Error::of(directory, &e))?;
    let own = prefix
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let number = |name: String| {
        let ending = name.strip_prefix(&own)?.strip_prefix('.')?;
        let is_number = ending.len() == 16 && ending.bytes().all(|b| b.is_ascii_hexdigit());
        u64::from_str_radix(ending, 16).ok().filter(|_| is_number)
    };
    let mut numbers: Vec<u64> = names.into_iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes, or makes whole, the file that becomes the next segment.
async fn make_spare(prefix: PathBuf) -> io::Result<File> {
    let file = disk::open(&named(&prefix, SPARE), OWNED).await?;
    file.allocate(JOURNAL_SEGMENT_BYTES.get() as u64).await?;
    file.sync().await?;
    Ok(file)
}

/// A search through the segments, in order.
struct Search<V> {
    id: u64,
    /// The number that the next record must have.
    next: Option<u64>,
    needed: u64,
    /// Where the blocks of the segment before end.
    ended: (PathBuf, u64),
    visit: V,
}

impl<V: FnMut(u64, Bytes) -> Result<(), Error>> Search<V> {
    /// Shows the records of a segment; returns where its blocks end.
    async fn read(&mut self, path: &Path, segment: Segment, bytes: &Bytes) -> Result<u64, Error> {
        let mut offset = HEAD_BYTES;
        let mut next = segment.first;
        let mut pace = Pace::new();
        while let Some((block, length)) = format::parse_block(bytes, segment, offset) {
            if block.first != next || block.needed > next {
                let what = "the number of a record";
                return Err(Error::damaged(path, offset as u64, what));
            }
            next = block.end();
            self.needed = self.needed.max(block.needed);
            for (number, record) in (block.first..).zip(block.records) {
                if number >= self.needed {
                    (self.visit)(number, record)?;
                }
            }
            offset += length;
            pace.rest_if_over().await;
        }
        self.next = Some(next);
        self.ended = (path.to_owned(), offset as u64);
        Ok(offset as u64)
    }

    /// Fails if this segment does not follow on the one before. Its name alone says that all before it was durable.
    fn check_follows(&self, path: &Path, first: u64) -> Result<(), Error> {
        match self.next {
            Some(next) if next != first => {
                let (before, end) = &self.ended;
                Err(Error::damaged(before, *end, "records are missing"))
            }
            _ if first < self.needed => Err(Error::damaged(path, 0, "the name of the file")),
            _ => Ok(()),
        }
    }
}

impl Files {
    pub async fn open(
        prefix: &Path,
        id: u64,
        visit: impl FnMut(u64, Bytes) -> Result<(), Error>,
    ) -> Result<(Files, Found), Error> {
        let mut files = Files {
            prefix: prefix.to_owned(),
            id,
            full: VecDeque::new(),
            current: None,
            spare: None,
            failed: None,
        };
        let mut search = Search {
            id,
            next: None,
            needed: 0,
            ended: (prefix.to_owned(), 0),
            visit,
        };
        let numbers = existing(prefix).await?;
        for (i, &first) in numbers.iter().enumerate() {
            let is_last = i + 1 == numbers.len();
            files.open_segment(first, is_last, &mut search).await?;
        }
        if files.full.is_empty() && files.current.is_none() {
            files.begin(0).await?;
        }
        let oldest = files.full.front().map(|full| full.first);
        let oldest = oldest.or(files.current.as_ref().map(|c| c.segment.first));
        let oldest = oldest.unwrap_or(0);
        if search.needed < oldest {
            let path = segment_path(prefix, oldest);
            return Err(Error::damaged(&path, 0, "the file before it is missing"));
        }
        let next = search.next.unwrap_or(0);
        if files.current.is_none() {
            files.begin(next).await?;
        }
        let synced = files.settle().await?;
        let needed = search.needed;
        let found = Found {
            next,
            needed,
            synced,
        };
        Ok((files, found))
    }

    /// Makes durable what was found. A killed process may have left it in the system's cache only.
    async fn settle(&self) -> Result<Synced, Error> {
        let current = self.current.as_ref().expect("it was found or made");
        let synced = current.file.sync().await;
        synced.map_err(|e| Error::of(&current.path, &e))?;
        let directory = directory(&self.prefix);
        let synced = disk::sync_dir(directory).await;
        synced.map_err(|e| Error::of(directory, &e))
    }

    async fn open_segment<V: FnMut(u64, Bytes) -> Result<(), Error>>(
        &mut self,
        first: u64,
        is_last: bool,
        search: &mut Search<V>,
    ) -> Result<(), Error> {
        let path = segment_path(&self.prefix, first);
        let failed = |e| Error::of(&path, &e);
        let file = disk::open(&path, OWNED).await.map_err(failed)?;
        let size = file.size().await.map_err(failed)?;
        if size > FILE_BYTES_MAX {
            return Err(Error::damaged(&path, FILE_BYTES_MAX, "it is too long"));
        }
        search.check_follows(&path, first)?;
        let bytes = file.read_at(0, size as usize).await.map_err(failed)?;
        let segment = Segment {
            id: search.id,
            first,
        };
        match format::parse_head(&bytes) {
            Head::Whole(head, bytes) if head == segment && bytes > size => {
                return Err(Error::damaged(&path, size, "the file was cut short"));
            }
            Head::Whole(head, _) if head == segment => {}
            Head::Whole(head, _) if head.id != segment.id => {
                let what = "it belongs to another journal".into();
                return Err(Error::Unlike { path, what });
            }
            Head::Other(format) => {
                let what = format!("its format is {format}, and this program knows {FORMAT}");
                return Err(Error::Unlike { path, what });
            }
            _ if is_last && !format::has_later_block(&bytes, segment, HEAD_BYTES - 1) => {
                if first > 0 && search.next.is_none() {
                    return Err(Error::damaged(&path, 0, "the file before it is missing"));
                }
                return self.leave_out(&path).await;
            }
            _ => return Err(Error::damaged(&path, 0, "the head of the file")),
        }
        let offset = search.read(&path, segment, &bytes).await?;
        if is_last {
            if format::has_later_block(&bytes, segment, offset as usize) {
                return Err(Error::damaged(&path, offset, "a block"));
            }
            self.current = Some(Current {
                file,
                path,
                segment,
                offset,
                capacity: size.max(JOURNAL_SEGMENT_BYTES.get() as u64),
            });
        } else {
            let end = search.next.expect("it was read");
            let bytes = size;
            self.full.push_back(Full { first, end, bytes });
        }
        Ok(())
    }

    /// A file that got its name, and no block, before its process ended.
    async fn leave_out(&self, path: &Path) -> Result<(), Error> {
        probe!("farm_journal_unused_segment");
        trace!("FarmJournalUnused", "file" => path.display());
        let spare = named(&self.prefix, SPARE);
        let moved = disk::rename(path, &spare).await;
        moved.map_err(|e| Error::of(path, &e))
    }

    /// Begins a new file, with this record as its first. What the former one had is durable.
    async fn begin(&mut self, first: u64) -> Result<(), Error> {
        let spare = named(&self.prefix, SPARE);
        let made = match self.spare.take() {
            Some(task) => task.await,
            None => make_spare(self.prefix.clone()).await,
        };
        let file = made.map_err(|e| Error::of(&spare, &e))?;
        let path = segment_path(&self.prefix, first);
        let renamed = async {
            disk::rename(&spare, &path).await?;
            disk::sync_dir(directory(&self.prefix)).await?;
            file.size().await
        };
        let capacity = renamed.await.map_err(|e| match e.kind() {
            // The names are in an unknown state.
            io::ErrorKind::StorageFull => Error::Failed {
                path: path.clone(),
                why: e.to_string(),
            },
            _ => Error::of(&path, &e),
        })?;
        if let Some(former) = self.current.take() {
            assert!(
                former.segment.first < first,
                "the file of record {first} follows that of {}",
                former.segment.first
            );
            self.full.push_back(Full {
                first: former.segment.first,
                end: first,
                bytes: former.offset.max(former.capacity),
            });
        }
        let id = self.id;
        self.current = Some(Current {
            file,
            path,
            segment: Segment { id, first },
            offset: HEAD_BYTES as u64,
            capacity,
        });
        Ok(())
    }

    /// Writes a block and syncs it. After `Full` the same block may be written again, and nothing else.
    pub async fn write(&mut self, block: &Block) -> Result<Synced, Error> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let bytes: usize = block.records.iter().map(format::record_bytes).sum();
        let length = (BLOCK_HEAD_BYTES + bytes) as u64;
        let current = self.current.as_ref().expect("there is always one");
        // A file without records has the name that the next one would get.
        let has_records = current.segment.first < block.first;
        if has_records && current.offset + length > current.capacity {
            self.begin(block.first).await?;
        }
        let current = self.current.as_mut().expect("there is always one");
        let mut out = Output::new();
        let mut offset = current.offset;
        if offset == HEAD_BYTES as u64 {
            // In one piece with the block's own head: they lie in one sector of the disk, and are torn together.
            format::put_head(&mut out, current.segment, current.capacity);
            offset = 0;
        }
        block.encode(&mut out, current.segment, current.offset);
        let pieces = out.take();
        let written = current.file.write_and_sync(offset, pieces).await;
        let synced = written.map_err(|e| Error::of(&current.path, &e))?;
        current.offset += length;
        if let Err((path, error)) = self.remove_below(block.needed).await {
            let why = error.to_string();
            self.failed = Some(Error::Failed { path, why });
        }
        self.prepare();
        Ok(synced)
    }

    /// Prepares another file when half of this one is full.
    fn prepare(&mut self) {
        let current = self.current.as_ref().expect("there is always one");
        if self.spare.is_none() && current.offset > current.capacity / 2 {
            let making = make_spare(self.prefix.clone());
            self.spare = Some(spawn("farm journal spare", making));
        }
    }

    /// Removes the files whose records are all below `needed`, which a durable block has said.
    async fn remove_below(&mut self, needed: u64) -> Result<(), (PathBuf, io::Error)> {
        while self.full.front().is_some_and(|full| full.end <= needed) {
            let full = self.full.pop_front().expect("just seen");
            let next = self.full.front().map(|next| next.first);
            assert!(
                next.is_none_or(|next| next == full.end),
                "records {} to {} are removed, and {next:?} is the first of the next file",
                full.first,
                full.end
            );
            let path = segment_path(&self.prefix, full.first);
            let removed = async {
                match self.spare {
                    Some(_) => disk::remove(&path).await?,
                    None => {
                        probe!("farm_journal_reuses_segment");
                        disk::rename(&path, &named(&self.prefix, SPARE)).await?;
                    }
                }
                disk::sync_dir(directory(&self.prefix)).await
            };
            removed.await.map_err(|error| (path, error))?;
            if self.spare.is_none() {
                let making = make_spare(self.prefix.clone());
                self.spare = Some(spawn("farm journal spare", making));
            }
        }
        Ok(())
    }

    /// The end of the oldest file that could go.
    pub fn oldest_end(&self) -> Option<u64> {
        self.full.front().map(|full| full.end)
    }

    pub fn bytes(&self) -> u64 {
        let full: u64 = self.full.iter().map(|full| full.bytes).sum();
        let current = self.current.as_ref();
        full + current.map_or(0, |c| c.capacity.max(c.offset))
    }
}

//! Creates a log server of a new generation: copies what it takes over in pieces, makes it durable, then serves
//! (FDB §2.4.4).
//!
//! Besides the memory of any log server it holds only the piece that is under way. Between two pieces it answers
//! requests for its progress, so that a server with much to copy does not count as dead.

use crate::cursor;
use crate::disk_queue::{Block, DiskQueue};
use crate::entries::{BLOCK_BYTES_WANTED, put};
use crate::knobs::LOG_MEMORY_BYTES_MAX;
use crate::log_server::{Begin, Entry, LogServer, VersionEntry};
use crate::serve::{self, Life};
use bytes::Bytes;
use plinth_core::log_body::{self, LogBodyBuilder};
use plinth_core::version::VERSION_MAX;
use plinth_core::{Error, Result, Tag, Uid, Version};
use plinth_protocol::control::ClusterInfo;
use plinth_protocol::log::{CopyProgress, CopyTail, CopyTailReply, GetCopyProgress, RecruitLog};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Boxed, Duration, never, planted, probe, trace};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::rc::Rc;

/// Bytes asked for at a time.
const PIECE_BYTES: u32 = 2 << 20;
/// An old log server may be away for this long: its process may be starting again meanwhile.
const SOURCE_PATIENCE: Duration = Duration::from_secs(8);
const RETRY: Duration = Duration::from_millis(100);

/// Creates the log server of a new generation: copies what it takes over, makes it durable, then serves.
pub fn create<'a>(
    transport: &'a Transport,
    prefix: &'a Path,
    request: RecruitLog,
    info: Watch<Option<ClusterInfo>>,
) -> Boxed<'a, Result<Life>> {
    Box::pin(async move {
        let place = request.place as usize;
        let generation = &request.generation;
        let is_there = |log: &Interface| log.id == request.id;
        // The request may come from any sender.
        let is_possible = (1..=VERSION_MAX).contains(&generation.start)
            && (generation.start - 1..=VERSION_MAX).contains(&generation.recovered_to);
        if !is_possible || !generation.logs.get(place).is_some_and(is_there) {
            return Err(Error::client_invalid_operation);
        }
        let mine = |tag: &Tag| generation.log_set(*tag).any(|p| p == place);
        let mine: Vec<Tag> = request.tags.iter().copied().filter(mine).collect();
        let mut maker = Maker::new(prefix, &request).await?;
        let progress = Rc::new(Cell::new(CopyProgress { pieces: 0, to: 0 }));
        let shown = progress.clone();
        let telling = transport.serve::<GetCopyProgress>(request.id, move |_, responder| {
            responder.ok(shown.get());
        });
        let mut tail = Tail::new(transport, &request, &mine);
        while let Some(versions) = tail.next().await? {
            for (version, body) in versions {
                probe!("log_copies_tail_at_recovery");
                maker.take(version, body).await?;
            }
            let CopyProgress { pieces, .. } = progress.get();
            progress.set(CopyProgress {
                pieces: pieces + 1,
                to: tail.covered() - 1,
            });
        }
        if generation.recovered_to > maker.server.version() {
            // The chain goes on from RV, even if no version there has anything for this server's tags.
            maker.take(generation.recovered_to, Bytes::new()).await?;
        }
        // Everything that may have been acknowledged is here: the next epoch begins behind it.
        assert!(
            tail.covered() > generation.recovered_to
                && maker.server.version() == generation.recovered_to,
            "copied to {} below {}, of {}",
            maker.server.version(),
            tail.covered(),
            generation.recovered_to
        );
        let bytes = maker.bytes;
        let (server, queue) = maker.finish().await?;
        let durable = server.durable().version();
        assert_eq!(durable, server.version(), "what was copied is on disk");
        drop(telling);
        trace!("LogCreated", "id" => request.id, "epoch" => request.epoch, "copied_to" => server.version(),
        "bytes" => bytes, "pieces" => progress.get().pieces);
        Ok(serve::start(transport, request.id, server, queue, info))
    })
}

/// Puts versions on disk, block by block.
struct Maker {
    queue: DiskQueue,
    server: LogServer,
    known_committed: Version,
    block: Block,
    /// First and last version in the block.
    versions: Option<(Version, Version)>,
    /// True if a block is on disk and it is not the last one.
    is_copying: bool,
    bytes: usize,
}

impl Maker {
    async fn new(prefix: &Path, request: &RecruitLog) -> Result<Self> {
        let start = request.generation.start;
        let begin = Begin {
            epoch: request.epoch,
            prev_version: start - 1,
            start,
        };
        let mut block = Block::default();
        let server = LogServer::new(&begin);
        put(&mut block, &Entry::Begin(begin));
        put(&mut block, &Entry::Oldest(0));
        Ok(Maker {
            queue: DiskQueue::create(prefix, request.id).await?,
            server,
            known_committed: start - 1,
            block,
            versions: None,
            is_copying: false,
            bytes: 0,
        })
    }

    async fn take(&mut self, version: Version, body: Bytes) -> Result<()> {
        if self.block.bytes() >= BLOCK_BYTES_WANTED {
            if !self.is_copying {
                // If the process ends before the last block is on disk, this log server was never made.
                probe!("log_copies_in_several_blocks");
                put(&mut self.block, &Entry::Copying);
                self.is_copying = true;
            }
            self.write().await?;
            let begin = self.server.begin_entry(self.server.version());
            put(&mut self.block, &Entry::Begin(begin));
            put(&mut self.block, &Entry::Oldest(0));
        }
        let entry = VersionEntry {
            version,
            known_committed: self.known_committed,
            body,
        };
        self.server.take(&entry)?;
        put(&mut self.block, &Entry::Version(entry));
        self.versions = Some((self.versions.map_or(version, |v| v.0), version));
        Ok(())
    }

    async fn write(&mut self) -> Result<()> {
        let block = std::mem::take(&mut self.block).finish();
        let persisted = self.queue.commit(&block).await?;
        let version = self.server.version();
        let (first, last) = self.versions.take().unwrap_or((version, version));
        self.server
            .became_durable(&persisted, first, last, block.bytes());
        self.server.spill(LOG_MEMORY_BYTES_MAX.get());
        self.bytes += block.bytes();
        Ok(())
    }

    async fn finish(mut self) -> Result<(LogServer, DiskQueue)> {
        if self.is_copying {
            put(&mut self.block, &Entry::Copied);
        }
        self.write().await?;
        Ok((self.server, self.queue))
    }
}

/// Tags that had the same log set in the generation before.
struct Source {
    tags: Vec<Tag>,
    /// The server that answered last comes first.
    servers: Vec<Interface>,
    /// The first version that was not asked for yet.
    next: Version,
    /// Versions that wait for the other sources.
    ready: VecDeque<(Version, Bytes)>,
}

/// The versions `[start, recovered_to]` of this server's tags, from the generation before, in order.
struct Tail {
    transport: Transport,
    sources: Vec<Source>,
    to: Version,
}

impl Tail {
    fn new(transport: &Transport, request: &RecruitLog, mine: &[Tag]) -> Self {
        let mut sets: BTreeMap<Vec<usize>, Source> = BTreeMap::new();
        let skipped = usize::from(planted!(
            "drop_tag_at_recovery",
            "a new log server does not copy one of its tags"
        ));
        if let Some(old) = request.old.current() {
            for tag in mine.iter().skip(skipped) {
                let set: Vec<usize> = old.log_set(*tag).collect();
                let servers = set.iter().map(|place| old.logs[*place]).collect();
                let source = sets.entry(set).or_insert_with(|| Source {
                    tags: Vec::new(),
                    servers,
                    next: request.generation.start,
                    ready: VecDeque::new(),
                });
                source.tags.push(*tag);
            }
        }
        Tail {
            transport: transport.clone(),
            sources: sets.into_values().collect(),
            to: request.generation.recovered_to,
        }
    }

    /// Every version below this one has been returned, or is about to be.
    fn covered(&self) -> Version {
        let next = self.sources.iter().map(|source| source.next);
        next.min().unwrap_or(self.to + 1)
    }

    /// The next versions; `None` if there are no more.
    async fn next(&mut self) -> Result<Option<Vec<(Version, Bytes)>>> {
        let behind = self.sources.iter_mut().min_by_key(|source| source.next);
        let Some(source) = behind.filter(|source| source.next <= self.to) else {
            return Ok(None);
        };
        source.ask(&self.transport, self.to).await?;
        let covered = self.covered();
        let mut versions: BTreeMap<Version, Vec<Bytes>> = BTreeMap::new();
        for source in &mut self.sources {
            while let Some((version, body)) =
                source.ready.pop_front_if(|(version, _)| *version < covered)
            {
                versions.entry(version).or_default().push(body);
            }
        }
        let whole = versions
            .into_iter()
            .map(|(version, parts)| Ok((version, join(parts)?)));
        whole.collect::<Result<Vec<_>>>().map(Some)
    }
}

impl Source {
    async fn ask(&mut self, transport: &Transport, to: Version) -> Result<()> {
        let begin = self.next;
        let since = plinth_runtime::now();
        let (server, reply) = loop {
            let request = CopyTail {
                tags: self.tags.clone(),
                begin,
                to,
                bytes_max: PIECE_BYTES,
            };
            let advances = move |reply: &CopyTailReply| reply.end > begin;
            let asked = cursor::ask(transport, &self.servers, request, advances).await;
            if let Some(answer) = asked {
                break answer;
            }
            if since.elapsed() > SOURCE_PATIENCE {
                return Err(Error::cluster_recovery_failed);
            }
            // What was copied so far is kept.
            probe!("log_copy_waits_for_its_source");
            plinth_runtime::sleep(RETRY).await;
        };
        self.prefer(server.id);
        let is_sorted = reply.versions.is_sorted_by(|a, b| a.version < b.version);
        if never!(!is_sorted, "CopyOutOfOrder", "from" => server.id, "begin" => begin) {
            return Err(Error::cluster_recovery_failed);
        }
        self.next = reply.end.min(to + 1);
        let end = self.next;
        let wanted = move |version: Version| (begin..end).contains(&version);
        let versions = reply.versions.into_iter().map(|v| (v.version, v.body));
        self.ready.extend(versions.filter(|(v, _)| wanted(*v)));
        Ok(())
    }

    fn prefer(&mut self, id: Uid) {
        self.servers.sort_by_key(|server| server.id != id);
    }
}

/// Joins bodies that have no tag in common into one body.
fn join(mut parts: Vec<Bytes>) -> Result<Bytes> {
    if parts.len() == 1 {
        return Ok(parts.remove(0));
    }
    let mut whole = LogBodyBuilder::new();
    for part in parts {
        for run in log_body::parse(&part).ok_or(Error::file_corrupt)? {
            whole.push(&run.tags, &run.packed);
        }
    }
    Ok(whole.finish())
}

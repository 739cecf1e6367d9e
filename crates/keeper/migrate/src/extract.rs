//! Reads a tree of the keeper: all of it as it was at one version, while gateways serve.
//!
//! A version can be read for five seconds. What takes longer is read in pieces, each at the version of its time. The
//! stream of changes then says which nodes have changed since, and these are read again, until one version is new
//! enough for all that is left. So the result is exact, however large the tree is; it must fit into memory.
//!
//! A node whose rows cannot be decoded is noted as damaged, and is not among the nodes. Rows that are of no node are
//! passed over, as gateways do.

use crate::image::Image;
use crate::kept::{Kept, Piece};
use crate::{Outcome, Tell, of_database};
use bytes::BytesMut;
use plinth_client::{
    Database, Position, RangeOptions, StreamContent, StreamLimit, StreamingMode, Transaction,
};
use plinth_core::version::Versionstamp;
use plinth_core::{Error, Key, KeySelector, Result, Value, Version};
use plinth_keeper::left;
use plinth_keeper::paths;
use plinth_keeper::setup::{self, Opened};
use plinth_keeper::tree::change::{Change, parse_entry};
use plinth_keeper::tree::node::{Data, Node};
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::Text;
use plinth_keeper::zxid::Zxids;
use plinth_runtime::Boxed;
use std::collections::BTreeSet;
use std::path::Path;

/// Bytes of a read.
const CHUNK_BYTES: i32 = 500_000;

/// A tree at one version. Its damaged nodes, and what is below them, are not in the image.
pub struct Extracted {
    pub image: Image,
    /// Ephemeral nodes that were left out.
    pub ephemerals: usize,
    /// Nodes that an export before had read, which was interrupted.
    pub before: u64,
}

/// Reads the tree without its ephemeral nodes; with `only`, what is below that path and on the way to it.
///
/// # Errors
/// There is no such tree, or more changes while it is read than the stream keeps.
pub fn extract<'a>(
    database: &'a Database,
    tree: &'a str,
    only: &'a str,
    tell: Tell<'a>,
) -> Boxed<'a, Outcome<Extracted>> {
    read_tree(database, tree, only, None, tell)
}

/// As [`extract`], and keeps what it reads in a file: if that has pieces of the same tree, from an export that was
/// interrupted, it goes on behind them. What has changed in them since is read again, as it is for pieces of its own.
///
/// # Errors
/// As [`extract`]. The file cannot be read or written, or another export has it.
pub fn extract_keeping<'a>(
    database: &'a Database,
    tree: &'a str,
    only: &'a str,
    file: &'a Path,
    tell: Tell<'a>,
) -> Boxed<'a, Outcome<Extracted>> {
    read_tree(database, tree, only, Some(file), tell)
}

fn read_tree<'a>(
    database: &'a Database,
    tree: &'a str,
    only: &'a str,
    file: Option<&'a Path>,
    tell: Tell<'a>,
) -> Boxed<'a, Outcome<Extracted>> {
    Box::pin(async move {
        let rows = Rows::new(tree);
        let opening =
            database.run(async |transaction| setup::open_existing(&transaction, &rows, tree).await);
        let opened = match opening.await {
            Ok(Some(opened)) => opened,
            Ok(None) => return Err(left::none_such(database, tree).await),
            Err(Error::unsupported_format_version) => {
                return Err(format!("tree `{tree}': its import has not ended"));
            }
            Err(error) => return Err(of_database(error)),
        };
        let of = format!("tree {tree} of {}", opened.zxids.base);
        let (mut image, version, before) = loop {
            let (mut image, mut reader) =
                (Image::default(), Reader::new(database, &rows, opened.zxids));
            let open = |file| Kept::open(file, &of, |piece| reader.go_on(piece, &mut image));
            let mut kept = file.map(open).transpose()?;
            let before = image.nodes.len() as u64;
            let reading = at_one_version(&mut reader, &opened, &mut image, &mut kept, tell);
            match (reading.await, kept) {
                (Ok(version), _) => break (image, version, before),
                // Nobody knows any more what has changed in the pieces from before.
                (Err(Failed::TooOld), Some(mut kept)) if before > 0 => kept.clear()?,
                (Err(failed), _) => return Err(failed.line()),
            }
        };
        image.last_zxid = opened.zxids.last_of(version);
        let ephemerals = image.settle(only)?;
        if !image.nodes.contains_key(only) && image.damaged.is_empty() {
            return Err(format!("{only}: tree `{tree}' has no such node"));
        }
        Ok(Extracted {
            image,
            ephemerals,
            before,
        })
    })
}

/// Why a tree was not read.
enum Failed {
    /// It has changed by more than the stream keeps.
    TooOld,
    Other(String),
}

impl Failed {
    fn of(error: Error) -> Failed {
        match error {
            Error::stream_too_old => Failed::TooOld,
            error => Failed::Other(of_database(error)),
        }
    }

    fn line(self) -> String {
        match self {
            Failed::TooOld => {
                "the tree changes faster than it can be read; try again with fewer writers".into()
            }
            Failed::Other(line) => line,
        }
    }
}

/// Reads what is left of the tree, and brings all of it to the version that it gives.
async fn at_one_version(
    reader: &mut Reader<'_>,
    opened: &Opened,
    image: &mut Image,
    kept: &mut Option<Kept>,
    tell: Tell<'_>,
) -> std::result::Result<Version, Failed> {
    let database = reader.database.clone();
    let goes_on = reader.versions;
    if let Some((oldest, _)) = goes_on {
        let from = Position::of_version(oldest + 1);
        let looking = database.run(async |transaction| {
            let reading = opened
                .stream
                .read(&transaction, from, StreamLimit::default());
            reading.await.map(drop)
        });
        looking.await.map_err(Failed::of)?;
    }
    while let Some(piece) = reader.next_piece().await.map_err(Failed::of)? {
        if let Some(kept) = kept {
            kept.add(&piece).map_err(Failed::Other)?;
        }
        image.nodes.extend(piece.nodes);
        tell("reading the tree", image.nodes.len() as u64);
    }
    image.damaged = std::mem::take(&mut reader.damaged);
    match reader.versions.unwrap_or((opened.version, opened.version)) {
        (oldest, newest) if oldest == newest && goes_on.is_none() => Ok(newest),
        (oldest, _) => {
            let catching_up = catch_up(&database, reader.rows, opened, oldest, image, tell);
            catching_up.await.map_err(Failed::of)
        }
    }
}

/// Brings the image, no part of which is older than `oldest`, to one version, which it gives.
pub fn catch_up<'a>(
    database: &'a Database,
    rows: &'a Rows,
    opened: &'a Opened,
    oldest: Version,
    image: &'a mut Image,
    tell: Tell<'a>,
) -> Boxed<'a, Result<Version>> {
    Box::pin(async move {
        let mut from = Position::of_version(oldest + 1);
        let mut changed: BTreeSet<Text> = BTreeSet::new();
        let transaction = database.create_transaction();
        loop {
            let attempt = async {
                let version = transaction.get_read_version().await?;
                loop {
                    let batch = opened
                        .stream
                        .read(&transaction, from, StreamLimit::default());
                    let batch = batch.await?;
                    for entry in batch.entries {
                        note(&entry.content, entry.position, opened.zxids, &mut changed)?;
                    }
                    from = batch.next;
                    if !batch.more {
                        break;
                    }
                }
                tell("reading what changed meanwhile", changed.len() as u64);
                while let Some(path) = changed.first().cloned() {
                    let read = read_node(&transaction, rows, opened.zxids, &path).await?;
                    image.nodes.remove(&path);
                    image.damaged.remove(&path);
                    match read {
                        Read::Nothing => {}
                        Read::Damaged => drop(image.damaged.insert(path.clone())),
                        Read::Node(node) => drop(image.nodes.insert(path.clone(), node)),
                    }
                    changed.remove(&path);
                }
                Ok(version)
            };
            match attempt.await {
                Ok(version) => return Ok(version),
                Err(error) => transaction.on_error(error).await?,
            }
        }
    })
}

/// Notes the paths of an entry's nodes, and of their parents, whose counts change with them.
fn note(
    content: &StreamContent,
    position: Position,
    zxids: Zxids,
    changed: &mut BTreeSet<Text>,
) -> Result<()> {
    let StreamContent::Appended(entry) = content else {
        return Err(Error::file_corrupt);
    };
    let stamp = Versionstamp::new(position.version, position.order);
    let (_, changes) = parse_entry(entry, stamp, zxids).ok_or(Error::file_corrupt)?;
    for (_, change) in changes {
        let (Change::Created(path, _)
        | Change::DataSet(path, _)
        | Change::AclSet(path, _)
        | Change::Deleted(path)) = change
        else {
            continue;
        };
        changed.extend(paths::parent(&path).map(Text::from));
        changed.insert(path.detached());
    }
    Ok(())
}

/// Reads all nodes of a tree, chunk by chunk, each chunk at one version.
pub struct Reader<'a> {
    database: Database,
    rows: &'a Rows,
    zxids: Zxids,
    transaction: Transaction,
    begin: Option<Key>,
    /// Paths of nodes that cannot be read.
    pub damaged: BTreeSet<Text>,
    /// The oldest and the newest version that was read.
    pub versions: Option<(Version, Version)>,
}

impl Extracted {
    /// # Errors
    /// There are damaged nodes: how many, and what to do.
    pub fn refuse_damaged(&self) -> Outcome {
        match self.image.damaged.first() {
            Some(first) => Err(format!(
                "{} nodes are damaged, the first is {first}: delete them and create them anew, or leave them and what \
                 is below them out with --skip-damaged; nothing was exported",
                self.image.damaged.len()
            )),
            None => Ok(()),
        }
    }
}

impl<'a> Reader<'a> {
    pub fn new(database: &Database, rows: &'a Rows, zxids: Zxids) -> Self {
        Reader {
            database: database.clone(),
            rows,
            zxids,
            transaction: database.create_transaction(),
            begin: Some(rows.all_nodes().begin),
            damaged: BTreeSet::new(),
            versions: None,
        }
    }

    /// Some more nodes, with their data; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Vec<(Text, Node)>>> {
        Ok(self.next_piece().await?.map(|piece| piece.nodes))
    }

    /// Begins behind a piece that was read before.
    fn go_on(&mut self, piece: Piece, image: &mut Image) {
        self.note(&piece);
        for (path, mut node) in piece.nodes {
            node.acl = image.list(node.acl.to_vec());
            image.nodes.insert(path, node);
        }
    }

    fn note(&mut self, piece: &Piece) {
        self.begin = piece.next.clone();
        self.damaged.extend(piece.damaged.iter().cloned());
        let (oldest, newest) = self.versions.unwrap_or((piece.version, piece.version));
        self.versions = Some((oldest.min(piece.version), newest.max(piece.version)));
    }

    async fn next_piece(&mut self) -> Result<Option<Piece>> {
        let Some(begin) = self.begin.clone() else {
            return Ok(None);
        };
        loop {
            match self.chunk(begin.clone()).await {
                Ok((version, chunk, next)) => {
                    let mut piece = Piece {
                        version,
                        next,
                        ..Piece::default()
                    };
                    for (path, read) in chunk {
                        match read {
                            Read::Nothing => {}
                            Read::Damaged => piece.damaged.push(path),
                            Read::Node(node) => piece.nodes.push((path, node)),
                        }
                    }
                    self.note(&piece);
                    return Ok(Some(piece));
                }
                Err(error) => self.transaction.on_error(error).await?,
            }
        }
    }

    async fn chunk(&self, begin: Key) -> Result<(Version, Vec<(Text, Read)>, Option<Key>)> {
        let version = self.transaction.get_read_version().await?;
        let all = self.rows.all_nodes();
        let options = RangeOptions {
            mode: StreamingMode::WantAll,
            target_bytes: CHUNK_BYTES,
            ..RangeOptions::default()
        };
        let from = KeySelector::first_greater_or_equal(begin);
        let to = KeySelector::first_greater_or_equal(all.end);
        let chunk = self.transaction.get_range(from, to, options, true).await?;
        let (mut found, mut next) = (chunk.rows, None);
        if chunk.more
            && let Some((last, _)) = found.last()
        {
            // Rows of the last node may be missing.
            let own = Key::copy_from_slice(own_key(last));
            let end = Key::from([&own[..], b"\x01"].concat());
            if own_key(&found[0].0) == own {
                found = all_rows(&self.transaction, own, end.clone()).await?;
                next = Some(end);
            } else {
                found.retain(|(key, _)| own_key(key) != own);
                next = Some(own);
            }
        }
        let mut nodes = Vec::new();
        for rows in found.chunk_by(|(one, _), (two, _)| own_key(one) == own_key(two)) {
            let own = own_key(&rows[0].0);
            let path = self
                .rows
                .node_path(own)
                .filter(|path| paths::is_valid(path));
            match path {
                Some(path) => {
                    let read = decode(&self.transaction, self.rows, self.zxids, path, rows);
                    nodes.push((path.into(), read.await?));
                }
                // The counts of such a node are of no node.
                None if own == rows[0].0 => {
                    nodes.push((Text::from(&*self.rows.shown_path(own)), Read::Damaged))
                }
                None => {}
            }
        }
        Ok((version, nodes, next))
    }
}

/// The key of the node's own row, of that of one of its rows.
fn own_key(key: &[u8]) -> &[u8] {
    match Rows::is_node(key) {
        true => key,
        false => &key[..key.len() - 2],
    }
}

/// What the rows of a node say.
enum Read {
    Nothing,
    Node(Node),
    Damaged,
}

/// Reads a node with everything about it.
async fn read_node(
    transaction: &Transaction,
    rows: &Rows,
    zxids: Zxids,
    path: &str,
) -> Result<Read> {
    let around = rows.around_node(path);
    let found = all_rows(transaction, around.begin, around.end).await?;
    decode(transaction, rows, zxids, path, &found).await
}

/// The node of these rows. Its data is read, if it has rows of its own.
async fn decode(
    transaction: &Transaction,
    rows: &Rows,
    zxids: Zxids,
    path: &str,
    found: &[(Key, Value)],
) -> Result<Read> {
    let mut node = match Node::from_rows(&rows.node(path), found, zxids) {
        Ok(Some(node)) => node,
        Ok(None) => return Ok(Read::Nothing),
        Err(_) => return Ok(Read::Damaged),
    };
    let Data::Unread(len) = node.data else {
        return Ok(Read::Node(node));
    };
    let range = rows.data(path);
    let mut data = BytesMut::new();
    for (_, piece) in all_rows(transaction, range.begin, range.end).await? {
        data.extend_from_slice(&piece);
    }
    if data.len() != len {
        return Ok(Read::Damaged);
    }
    node.data = Data::Here(data.freeze());
    Ok(Read::Node(node))
}

async fn all_rows(
    transaction: &Transaction,
    begin: impl Into<Key>,
    end: impl Into<Key>,
) -> Result<Vec<(Key, Value)>> {
    let mut from = KeySelector::first_greater_or_equal(begin.into());
    let to = KeySelector::first_greater_or_equal(end.into());
    let options = RangeOptions {
        mode: StreamingMode::WantAll,
        ..RangeOptions::default()
    };
    let mut all = Vec::new();
    loop {
        let reading = transaction.get_range(from, to.clone(), options, true);
        let chunk = reading.await?;
        all.extend(chunk.rows);
        match all.last() {
            Some((last, _)) if chunk.more => {
                let last: &Key = last;
                from = KeySelector::first_greater_than(last.clone());
            }
            _ => return Ok(all),
        }
    }
}

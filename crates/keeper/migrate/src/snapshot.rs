//! ZooKeeper's snapshots (its `FileSnap`).
//!
//! ```text
//!   "ZKSN" | version: 4 | database: 8
//!   | sessions: 4 | (session: 8 | timeout: 4)*
//!   | lists: 4 | (id: 8 | access list)*
//!   | (path | data | list's id: 8 | czxid, mzxid, ctime, mtime: 8 each | version, cversion, aversion: 4 each
//!      | owner: 8 | pzxid: 8)* | "/"
//!   | sum: 8 | "/"                        Adler-32 of everything before
//!   | (a digest, or the last zxid | sum: 8 | "/")*
//! ```
//! The root's path is empty. A parent comes before its children. `cversion` counts creations only. List -1 lets
//! everyone do everything.

use crate::image::Image;
use crate::jute::{Damage, Fault, Input, Output, Taken};
use plinth_keeper::paths;
use plinth_keeper::tree::node::{Counts, Data, Lifetime, Node, is_open, open_acl};
use plinth_keeper::wire::{Acl, Text};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::rc::Rc;

const MAGIC: i32 = i32::from_be_bytes(*b"ZKSN");
const VERSION: i32 = 2;
const DATABASE: i64 = -1;
const OPEN_LIST: i64 = -1;
/// Bytes of a sum and the slash behind it.
const SEAL_BYTES: usize = 13;
/// What may follow the tree: a digest, the last zxid, and their sums.
const TRAILER_BYTES_MAX: usize = 4096;

/// Reads a snapshot. `zxid` is in the file's name.
///
/// # Errors
/// The file is not whole, or no snapshot.
pub fn read(input: impl Read, zxid: i64) -> Result<Image, Damage> {
    let mut input = Input::new(input);
    let (mut begin, mut node) = (0, None);
    let reading = read_all(&mut input, zxid, &mut |offset, path| {
        (begin, node) = (offset, path);
    });
    reading.map_err(|fault| Damage {
        fault,
        offset: begin,
        node,
    })
}

/// Tells `at` where each part begins, and of which node it is.
fn read_all<R: Read>(
    input: &mut Input<R>,
    zxid: i64,
    at: &mut dyn FnMut(u64, Option<Text>),
) -> Taken<Image> {
    if input.int()? != MAGIC {
        return Err(Fault::Damaged("it does not begin as a snapshot"));
    }
    input.int()?;
    input.long()?;
    for _ in 0..input.int()? {
        input.long()?;
        input.int()?;
    }
    let mut image = Image::default();
    image.last_zxid = zxid;
    let mut lists: BTreeMap<i64, Rc<[Acl]>> = BTreeMap::from([(OPEN_LIST, open_acl())]);
    for _ in 0..input.int()? {
        at(input.offset, None);
        let id = input.long()?;
        let list = input.acl()?;
        lists.insert(id, image.list(list));
    }
    loop {
        let begin = input.offset;
        at(begin, None);
        let path = input.text()?;
        if path != "/" {
            at(
                begin,
                Some(if path.is_empty() {
                    "/".into()
                } else {
                    path.clone()
                }),
            );
        }
        match path.as_str() {
            "/" => break,
            "" => take_node(input, "/".into(), &lists, &mut image)?,
            _ if !paths::is_valid(&path) => {
                return Err(Fault::Damaged("a path that the keeper cannot have"));
            }
            _ => take_node(input, path, &lists, &mut image)?,
        }
    }
    if !image.nodes.contains_key("/") {
        return Err(Fault::Damaged("there is no root"));
    }
    at(input.offset, None);
    check_end(input)?;
    Ok(image)
}

fn take_node<R: Read>(
    input: &mut Input<R>,
    path: Text,
    lists: &BTreeMap<i64, Rc<[Acl]>>,
    image: &mut Image,
) -> Taken<()> {
    let data = input.data()?;
    let list = lists.get(&input.long()?);
    let node = Node {
        czxid: input.long()?,
        mzxid: input.long()?,
        ctime: input.long()?,
        mtime: input.long()?,
        version: input.int()?,
        counts: Counts {
            created: input.int()?,
            present: 0,
        },
        aversion: input.int()?,
        lifetime: Lifetime::of_owner(input.long()?),
        pzxid: input.long()?,
        acl: list.cloned().unwrap_or_else(open_acl),
        data: Data::of(data),
    };
    if [node.czxid, node.mzxid, node.pzxid]
        .iter()
        .any(|zxid| *zxid < 0)
    {
        return Err(Fault::Damaged("a zxid is negative"));
    }
    let added = image.add(path, node, list.is_some());
    added.map_err(Fault::Damaged)
}

fn check_end<R: Read>(input: &mut Input<R>) -> Taken<()> {
    let sum = input.adler.sum();
    if input.long()? != sum {
        return Err(Fault::Damaged("its checksum is wrong"));
    }
    if input.text()? != "/" {
        return Err(Fault::Damaged("it does not end as a snapshot"));
    }
    // Each part of the trailer has a sum of everything before, so the last one says it all.
    let mut sum = input.adler;
    let rest = input.rest(TRAILER_BYTES_MAX)?;
    if rest.is_empty() {
        return Ok(());
    }
    let Some((before, seal)) = rest
        .len()
        .checked_sub(SEAL_BYTES)
        .and_then(|at| rest.split_at_checked(at))
    else {
        return Err(Fault::End);
    };
    sum.add(before);
    let expected = [&sum.sum().to_be_bytes()[..], &[0, 0, 0, 1, b'/']].concat();
    match seal == expected {
        true => Ok(()),
        false => Err(Fault::Damaged("the checksum of its end is wrong")),
    }
}

/// Writes a snapshot of a tree without sessions, as every release since 3.4 reads it.
///
/// # Errors
/// As of the file. Data that has not been read is a mistake of the caller.
pub fn write(image: &Image, out: impl Write) -> std::io::Result<()> {
    let mut out = Output::new(out);
    out.int(MAGIC)?;
    out.int(VERSION)?;
    out.long(DATABASE)?;
    out.int(0)?;
    let mut lists: BTreeMap<&[Acl], i64> = BTreeMap::new();
    for node in image.nodes.values().filter(|node| !is_open(&node.acl)) {
        let next = lists.len() as i64 + 1;
        lists.entry(&node.acl).or_insert(next);
    }
    out.int(i32::try_from(lists.len()).expect("fewer lists than nodes"))?;
    for (list, id) in &lists {
        out.long(*id)?;
        out.acl(list)?;
    }
    for (path, node) in &image.nodes {
        out.text(if path == "/" { "" } else { path })?;
        match &node.data {
            Data::None => out.buffer(None)?,
            Data::Here(data) => out.buffer(Some(data))?,
            Data::Unread(_) | Data::Damaged(_) => unreachable!("an image has its data"),
        }
        out.long(lists.get(&*node.acl).copied().unwrap_or(OPEN_LIST))?;
        for number in [node.czxid, node.mzxid, node.ctime, node.mtime] {
            out.long(number)?;
        }
        for number in [node.version, node.counts.created, node.aversion] {
            out.int(number)?;
        }
        out.long(node.lifetime.owner())?;
        out.long(node.pzxid)?;
    }
    out.text("/")?;
    let sum = out.adler.sum();
    out.long(sum)?;
    out.text("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Change, Moment};
    use plinth_keeper::setup::first_node;

    /// Of ZooKeeper 3.9.3, with nodes of all kinds.
    const REAL: &[u8] = include_bytes!("../tests/data/snapshot.15");

    fn image() -> Image {
        let mut image = Image::default();
        image
            .add("/".into(), first_node("/", 0), true)
            .expect("a root");
        let closed = vec![Acl {
            perms: 3,
            scheme: "digest".into(),
            id: "u:x".into(),
        }];
        for (zxid, path, lifetime) in [
            (1, "/a", Lifetime::Persistent),
            (2, "/a/container", Lifetime::Container),
            (3, "/a/ttl", Lifetime::Ttl(5000)),
            (4, "/a!", Lifetime::Persistent),
        ] {
            let change = Change::Create {
                path: path.into(),
                data: Data::Here("data".into()),
                acl: if zxid == 4 {
                    closed.clone()
                } else {
                    Acl::open()
                },
                lifetime,
                parent_created: -1,
                is_plain: false,
            };
            let moment = Moment { zxid, time: 77 };
            image.apply(moment, vec![change]);
        }
        image
    }

    fn bytes_of(image: &Image) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(image, &mut bytes).expect("memory");
        bytes
    }

    #[test]
    fn a_snapshot_gives_back_the_tree() {
        let image = image();
        let read = read(&bytes_of(&image)[..], 9).expect("a snapshot");
        assert_eq!(read.nodes, image.nodes);
        assert_eq!(read.last_zxid, 9);
    }

    #[test]
    fn a_trailer_is_checked_too() {
        let mut bytes = bytes_of(&image());
        let seal = |bytes: &mut Vec<u8>| {
            let mut adler = crate::jute::Adler::new();
            adler.add(bytes);
            bytes.extend(adler.sum().to_be_bytes());
            bytes.extend([0, 0, 0, 1, b'/']);
        };
        bytes.extend([7; 20]);
        assert!(read(&bytes[..], 1).is_err());
        seal(&mut bytes);
        assert!(read(&bytes[..], 1).is_ok());
        bytes.extend([8; 8]);
        seal(&mut bytes);
        assert!(read(&bytes[..], 1).is_ok());
        *bytes.last_mut().expect("bytes") = b'x';
        assert!(read(&bytes[..], 1).is_err());
    }

    #[test]
    fn a_snapshot_of_the_real_thing_is_read() {
        let image = read(REAL, 1).expect("a snapshot");
        assert_eq!(
            image.nodes["/kinds/container"].lifetime,
            Lifetime::Container
        );
        assert_eq!(image.nodes["/kinds/ttl"].lifetime, Lifetime::Ttl(123_456));
        assert!(matches!(
            image.nodes["/kinds/ephemeral"].lifetime,
            Lifetime::Ephemeral(_)
        ));
    }

    #[test]
    fn damaged_snapshots_are_refused_or_read() {
        let corpus = [bytes_of(&image()), REAL.to_vec()];
        plinth_core::testing::fuzz("snapshots", 1, corpus, |input| read(input, 1).is_ok());
        // Behind the checksum, so that damage reaches the records.
        let unsealed = |bytes: Vec<u8>| bytes[..bytes.len() - SEAL_BYTES].to_vec();
        plinth_core::testing::fuzz("trees", 2, [unsealed(bytes_of(&image()))], |input| {
            let mut adler = crate::jute::Adler::new();
            adler.add(input);
            let seal = [&adler.sum().to_be_bytes()[..], &[0, 0, 0, 1, b'/']].concat();
            let Ok(mut image) = read(&[input, &seal].concat()[..], 1) else {
                return false;
            };
            let _ = image.settle("/");
            true
        });
    }
}

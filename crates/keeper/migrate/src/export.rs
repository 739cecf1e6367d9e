//! Exporting to ZooKeeper's files, and to a live ZooKeeper.

#![allow(clippy::disallowed_types)] // the user's files, written by the user's side

use crate::files::VERSION_DIRECTORY;
use crate::image::Image;
use crate::source::{Link, Servers};
use crate::{Outcome, Tell, snapshot};
use plinth_keeper::paths;
use plinth_keeper::setup::ALWAYS_THERE;
use plinth_keeper::tree::node::{Data, Lifetime, Node, is_open};
use plinth_keeper::wire::{Answer, Code, CreateKind, Request, Text, create_flags};
use plinth_runtime::Boxed;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

const WRITE_BYTES: usize = 1 << 20;
/// Requests under way.
const WINDOW: usize = 400;
const LINKS: usize = 4;

/// What an export has done.
#[derive(Clone, Default, Debug)]
pub struct Exported {
    pub nodes: u64,
    pub bytes: u64,
    /// The zxid of the tree's version.
    pub zxid: i64,
    /// The file that was written.
    pub file: Option<PathBuf>,
}

impl Exported {
    fn count(&mut self, node: &Node) {
        self.nodes += 1;
        self.bytes += node.data.len() as u64;
    }
}

/// Writes a snapshot into the data directory of a server of ZooKeeper, which then starts from it.
///
/// # Errors
/// The directory has snapshots or logs: a server would mix them with the new one.
pub fn to_files(image: &Image, directory: &Path) -> Outcome<Exported> {
    let inner = directory.join(VERSION_DIRECTORY);
    let at = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    std::fs::create_dir_all(&inner).map_err(at(&inner))?;
    for entry in std::fs::read_dir(&inner).map_err(at(&inner))? {
        let name = entry.map_err(at(&inner))?.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snapshot.") || name.starts_with("log.") {
            return Err(format!(
                "{}: {name} is there already; choose an empty directory",
                inner.display()
            ));
        }
    }
    let file = inner.join(format!("snapshot.{:x}", image.last_zxid));
    // A server takes what is called a snapshot for one, so the name comes last.
    let unfinished = inner.join("unfinished-export");
    let write = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .open(&unfinished)?;
        let mut out = BufWriter::with_capacity(WRITE_BYTES, opened);
        snapshot::write(image, &mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        std::fs::rename(&unfinished, &file)?;
        File::open(&inner)?.sync_all()
    };
    write().map_err(|error| {
        let _ = std::fs::remove_file(&unfinished); // the first error is the one to tell
        at(&file)(error)
    })?;
    let mut exported = Exported {
        zxid: image.last_zxid,
        file: Some(file),
        ..Exported::default()
    };
    image.nodes.values().for_each(|node| exported.count(node));
    Ok(exported)
}

/// Creates the nodes at a live ZooKeeper, which gives them Stats of its own, and compares their data.
///
/// # Errors
/// It has one of the nodes already, or refuses one.
pub fn to_live<'a>(
    image: &'a Image,
    servers: Servers,
    tell: Tell<'a>,
) -> Boxed<'a, Outcome<Exported>> {
    Box::pin(async move {
        let servers = Rc::new(servers);
        let links: Vec<Link> = (0..LINKS)
            .map(|number| Link::new(servers.clone(), number, None))
            .collect();
        for link in &links {
            link.client().await?;
        }
        refuse_mixing(image, &links[0]).await?;
        let mut by_depth: Vec<Vec<(&Text, &Node)>> = Vec::new();
        for (path, node) in &image.nodes {
            let depth = paths::depth(path);
            by_depth.resize_with(by_depth.len().max(depth + 1), Vec::new);
            by_depth[depth].push((path, node));
        }
        let mut exported = Exported {
            zxid: image.last_zxid,
            ..Exported::default()
        };
        for level in &by_depth {
            for some in level.chunks(WINDOW) {
                create(some, &links).await?;
                some.iter().for_each(|(_, node)| exported.count(node));
                tell("creating", exported.nodes);
            }
        }
        let all: Vec<_> = image.nodes.iter().collect();
        let mut compared = 0;
        for some in all.chunks(WINDOW) {
            check(some, &links).await?;
            compared += some.len() as u64;
            tell("verifying", compared);
        }
        for link in &links {
            link.close().await;
        }
        Ok(exported)
    })
}

fn is_always_there(path: &str) -> bool {
    ALWAYS_THERE.iter().any(|(there, _)| *there == path)
}

/// Fails if the server has one of the nodes of the first level.
async fn refuse_mixing(image: &Image, link: &Link) -> Outcome {
    let request = Request::GetChildren {
        path: "/".into(),
        watch: false,
    };
    let names = match link.ask(request).await? {
        Ok(Answer::Children(names)) => names,
        other => return Err(format!("/: its children cannot be listed: {other:?}")),
    };
    for name in names {
        let path = paths::join("/", &name);
        if image.nodes.contains_key(path.as_str()) && !is_always_there(&path) {
            return Err(format!(
                "{path}: the server has it already; nothing was created"
            ));
        }
    }
    Ok(())
}

async fn create(some: &[(&Text, &Node)], links: &[Link]) -> Outcome {
    // Several sessions may be with several servers: a parent must be known to all of them.
    for link in links {
        link.sync().await?;
    }
    let new = some.iter().filter(|(path, _)| !is_always_there(path));
    let mut asked = Vec::new();
    for (number, (path, node)) in new.enumerate() {
        let link = &links[number % links.len()];
        asked.push((path, node, link.send(creation(path, node)), link));
    }
    for (path, node, sent, link) in asked {
        match link.finish(sent).await? {
            Ok(_) => {}
            // After a connection broke, the node may be ours: its data is compared later.
            Err(Code::NODE_EXISTS) => {}
            Err(code) => {
                return Err(format!(
                    "{path}: it cannot be created: {code}{}",
                    hint(code, node)
                ));
            }
        }
    }
    if let Some((path, node)) = some.iter().find(|(path, _)| *path == "/") {
        set_root(path, node, &links[0]).await?;
    }
    Ok(())
}

fn hint(code: Code, node: &Node) -> &'static str {
    match code {
        Code::NO_AUTH => "; name the super user with --auth",
        Code::UNIMPLEMENTED if matches!(node.lifetime, Lifetime::Ttl(_)) => {
            "; the server needs zookeeper.extendedTypesEnabled for times to live"
        }
        _ => "",
    }
}

fn creation(path: &Text, node: &Node) -> Request {
    let (kind, flags, ttl) = match node.lifetime {
        Lifetime::Container => (CreateKind::Container, create_flags::CONTAINER, -1),
        Lifetime::Ttl(ms) => (CreateKind::Ttl, create_flags::PERSISTENT_WITH_TTL, ms),
        Lifetime::Persistent | Lifetime::Ephemeral(_) => {
            (CreateKind::Plain, create_flags::PERSISTENT, -1)
        }
    };
    Request::Create {
        kind,
        path: path.clone(),
        data: data_of(node),
        acl: node.acl.to_vec(),
        flags,
        ttl,
    }
}

fn data_of(node: &Node) -> Option<bytes::Bytes> {
    match &node.data {
        Data::Here(data) => Some(data.clone()),
        Data::None | Data::Unread(_) | Data::Damaged(_) => None,
    }
}

/// The root is there already; its data and its access list may be others'.
async fn set_root(path: &Text, node: &Node, link: &Link) -> Outcome {
    let mut requests = Vec::new();
    if !node.data.is_empty() {
        requests.push(Request::SetData {
            path: path.clone(),
            data: data_of(node),
            version: -1,
        });
    }
    if !is_open(&node.acl) {
        requests.push(Request::SetAcl {
            path: path.clone(),
            acl: node.acl.to_vec(),
            version: -1,
        });
    }
    for request in requests {
        if let Err(code) = link.ask(request).await? {
            return Err(format!("{path}: it cannot be changed: {code}"));
        }
    }
    Ok(())
}

async fn check(some: &[(&Text, &Node)], links: &[Link]) -> Outcome {
    let mut asked = Vec::new();
    for (number, (path, node)) in some.iter().enumerate() {
        let link = &links[number % links.len()];
        let request = Request::GetData {
            path: (*path).clone(),
            watch: false,
        };
        asked.push((path, node, link.send(request), link));
    }
    for (path, node, sent, link) in asked {
        let is_system = path.starts_with("/zookeeper");
        match link.finish(sent).await? {
            Ok(Answer::Data(data, _)) if is_system || is_same(data.as_deref(), node) => {}
            // Who may write a node need not be one who may read it.
            Err(Code::NO_AUTH) => {}
            Ok(_) => {
                return Err(format!(
                    "{path}: the server has other data than was written"
                ));
            }
            Err(code) => return Err(format!("{path}: it was created and cannot be read: {code}")),
        }
    }
    Ok(())
}

/// ZooKeeper tells no data from empty data, and some releases do not keep the difference.
fn is_same(data: Option<&[u8]>, node: &Node) -> bool {
    data.unwrap_or_default() == data_of(node).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_keeper::setup::first_node;

    #[test]
    fn a_snapshot_is_whole_or_not_there_and_never_beside_another() {
        let directory = std::env::temp_dir().join(format!("plinth-export-{}", std::process::id()));
        let mut image = Image::default();
        image
            .add("/".into(), first_node("/", 0), true)
            .expect("a root");
        image.last_zxid = 0xabc;
        let exported = to_files(&image, &directory).expect("written");
        let file = exported.file.expect("a file");
        assert!(file.ends_with("version-2/snapshot.abc"));
        let again = to_files(&image, &directory).expect_err("not twice");
        assert!(again.contains("is there already"), "{again}");
        let read = snapshot::read(File::open(&file).expect("there"), 1).expect("a snapshot");
        assert_eq!(read.nodes, image.nodes);
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}

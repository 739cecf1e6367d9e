//! Exporting to a live ZooKeeper.
//!
//! ```text
//!   check    may the nodes be created there at all? the server has none of them
//!   mark     a node says what is being exported, until the end: one that was interrupted goes on
//!   create   level by level; what an export before has created is brought to what the tree is now
//!   verify   all data is read back
//! ```

use crate::export::Exported;
use crate::image::Image;
use crate::source::{Link, Servers};
use crate::{Outcome, Tell};
use plinth_keeper::acl::{self, Identity};
use plinth_keeper::paths;
use plinth_keeper::setup::ALWAYS_THERE;
use plinth_keeper::tree::node::{Data, Lifetime, Node, is_open};
use plinth_keeper::wire::{Acl, Answer, Code, CreateKind, Request, Text, create_flags, permission};
use plinth_runtime::Boxed;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Requests under way.
const WINDOW: usize = 400;
const LINKS: usize = 4;
/// What says that an export has begun and not ended.
const MARK: Text = Text::from_static("/plinth-export-unfinished");
/// Longest mark. ZooKeeper takes no longer data unless it is told to.
const MARK_BYTES_MAX: usize = 900_000;

/// An export to a live ZooKeeper, which gives the nodes Stats of its own.
pub struct Live {
    links: Vec<Link>,
    auth: Vec<(String, String)>,
    tree: String,
}

/// What an export that was interrupted has left: its mark's version, and the names at the root that are its own.
struct Mark {
    version: i32,
    names: BTreeSet<String>,
}

impl Live {
    pub fn new(servers: Servers, tree: &str) -> Live {
        let auth = servers.auth.clone();
        let servers = Rc::new(servers);
        let links = (0..LINKS).map(|number| Link::new(servers.clone(), number, None));
        Live {
            links: links.collect(),
            auth,
            tree: tree.into(),
        }
    }

    /// Fails soon if nothing could ever be created there.
    ///
    /// # Errors
    /// Nobody answers, or the user may not create nodes below the root.
    pub fn check(&self) -> Boxed<'_, Outcome> {
        Box::pin(async {
            for link in &self.links {
                link.client().await?;
            }
            let (root, who) = (self.list_of("/").await?, self.identities().await?);
            acl::check(&root, permission::CREATE, &who).map_err(|_| nothing_created("/", 0))
        })
    }

    /// Creates the nodes, and compares their data.
    ///
    /// # Errors
    /// It has one of the nodes already, or may not have one: then nothing was created. Or it refuses one.
    pub fn export<'a>(&'a self, image: &'a Image, tell: Tell<'a>) -> Boxed<'a, Outcome<Exported>> {
        Box::pin(async move {
            self.check_rights(image).await?;
            let before = self.mark(image).await?;
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
            if let Some(mark) = &before {
                self.remove_what_has_gone(image, mark).await?;
            }
            for level in &by_depth {
                for some in level.chunks(WINDOW) {
                    let there = create(some, &self.links).await?;
                    if before.is_some() {
                        renew(&there, &self.links).await?;
                        exported.before += there.len() as u64;
                    }
                    some.iter().for_each(|(_, node)| exported.count(node));
                    tell("creating", exported.nodes);
                }
            }
            let all: Vec<_> = image.nodes.iter().collect();
            let mut compared = 0;
            for some in all.chunks(WINDOW) {
                check(some, &self.links).await?;
                compared += some.len() as u64;
                tell("verifying", compared);
            }
            self.unmark().await?;
            for link in &self.links {
                link.close().await;
            }
            Ok(exported)
        })
    }

    /// Whom the server takes this for.
    async fn identities(&self) -> Outcome<Vec<Identity>> {
        let digests = self.auth.iter().filter(|(scheme, _)| scheme == "digest");
        let mut all: Vec<Identity> = digests
            .map(|(scheme, auth)| Identity::new(scheme, &acl::digest(auth)))
            .collect();
        let client = self.links[0].client().await?;
        match client.submit(Request::WhoAmI).await {
            Ok((_, Answer::WhoAmI(infos))) => {
                let others = infos.iter().filter(|info| &*info.scheme != "digest");
                all.extend(others.map(|info| Identity::new(&info.scheme, &info.user)));
            }
            // A server before 3.7 does not say it, and hangs up: it may be the super user.
            _ => all.push(Identity::new("super", "")),
        }
        Ok(all)
    }

    async fn list_of(&self, path: &'static str) -> Outcome<Vec<Acl>> {
        let path = Text::from_static(path);
        match self.links[0]
            .ask(Request::GetAcl { path: path.clone() })
            .await?
        {
            Ok(Answer::Acl(list, _)) => Ok(list),
            Err(Code::NO_AUTH) => Err(nothing_created(&path, 0)),
            Err(Code::NO_NODE) => Ok(Acl::open()),
            other => Err(format!("{path}: its access list cannot be read: {other:?}")),
        }
    }

    /// Fails if a node could not be created, because of the list of the one above it.
    async fn check_rights(&self, image: &Image) -> Outcome {
        let who = self.identities().await?;
        let mut lists: BTreeMap<&str, Vec<Acl>> = BTreeMap::new();
        for (path, _) in ALWAYS_THERE {
            lists.insert(path, self.list_of(path).await?);
        }
        let (mut first, mut count) = (None, 0);
        if let (Some(list), Some(root)) = (lists.get("/"), image.nodes.get("/")) {
            let needed = [
                (permission::WRITE, !root.data.is_empty()),
                (permission::ADMIN, !is_open(&root.acl)),
            ];
            for (right, _) in needed.into_iter().filter(|(_, is_needed)| *is_needed) {
                acl::check(list, right, &who).map_err(|_| nothing_created("/", 0))?;
            }
        }
        for path in image.nodes.keys().filter(|path| !is_always_there(path)) {
            let above = paths::parent(path).unwrap_or("/");
            let list = match (lists.get(above), image.nodes.get(above)) {
                (Some(list), _) => &list[..],
                (None, Some(node)) => &node.acl,
                (None, None) => continue,
            };
            if acl::check(list, permission::CREATE, &who).is_err() {
                first.get_or_insert(path);
                count += 1;
            }
        }
        first.map_or(Ok(()), |path| Err(nothing_created(path, count)))
    }

    /// What the server has at the root, without what is always there.
    async fn names(&self) -> Outcome<BTreeSet<String>> {
        let request = Request::GetChildren {
            path: "/".into(),
            watch: false,
        };
        match self.links[0].ask(request).await? {
            Ok(Answer::Children(names)) => Ok(names.iter().map(|name| name.to_string()).collect()),
            other => Err(format!("/: its children cannot be listed: {other:?}")),
        }
    }

    /// Says at the server what is being exported. What an export before has left, if it was interrupted.
    async fn mark(&self, image: &Image) -> Outcome<Option<Mark>> {
        let before = self.find_mark().await?;
        let own = |name: &String| {
            before
                .as_ref()
                .is_some_and(|mark| mark.names.contains(name))
        };
        let is_at_root = |path: &&Text| paths::depth(path) == 1 && !is_always_there(path);
        let wanted = image.nodes.keys().filter(is_at_root);
        let wanted: BTreeSet<String> = wanted.map(|path| path[1..].to_string()).collect();
        let there = self.names().await?;
        if let Some(name) = wanted
            .iter()
            .find(|name| there.contains(*name) && !own(name))
        {
            return Err(format!(
                "/{name}: the server has it already; nothing was created"
            ));
        }
        let all = before.iter().flat_map(|mark| &mark.names).chain(&wanted);
        let all: BTreeSet<&str> = all.map(|name| &name[..]).collect();
        let lines: Vec<&str> = all.into_iter().collect();
        let text = format!("{}\n{}", self.tree, lines.join("\n"));
        if text.len() > MARK_BYTES_MAX {
            // It cannot be said which names are its own: an export that is interrupted begins anew elsewhere.
            return Ok(None);
        }
        let data = Some(text.into());
        let (path, marking) = (MARK, before.as_ref().map(|mark| mark.version));
        let request = match marking {
            Some(version) => Request::SetData {
                path,
                data,
                version,
            },
            None => Request::Create {
                kind: CreateKind::Plain,
                path,
                data,
                acl: Acl::open(),
                flags: create_flags::PERSISTENT,
                ttl: -1,
            },
        };
        match self.links[0].ask(request).await? {
            Ok(_) => Ok(before),
            Err(Code::BAD_VERSION | Code::NODE_EXISTS | Code::NO_NODE) => {
                Err(format!("{MARK}: another export is creating nodes there"))
            }
            Err(code) => Err(format!("{MARK}: it cannot be written: {code}")),
        }
    }

    async fn find_mark(&self) -> Outcome<Option<Mark>> {
        let request = Request::GetData {
            path: MARK,
            watch: false,
        };
        let (text, version) = match self.links[0].ask(request).await? {
            Ok(Answer::Data(data, stat)) => (data.unwrap_or_default(), stat.version),
            Err(Code::NO_NODE) => return Ok(None),
            other => return Err(format!("{MARK}: it cannot be read: {other:?}")),
        };
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.split('\n');
        match lines.next() {
            Some(tree) if tree == self.tree => Ok(Some(Mark {
                version,
                names: lines.map(String::from).collect(),
            })),
            tree => Err(format!(
                "{MARK}: an export of tree `{}' has begun there and not ended; end it first, or remove this node and \
                 what that has created",
                tree.unwrap_or_default()
            )),
        }
    }

    async fn unmark(&self) -> Outcome {
        let request = Request::Delete {
            path: MARK,
            version: -1,
        };
        match self.links[0].ask(request).await? {
            Ok(_) | Err(Code::NO_NODE) => Ok(()),
            Err(code) => Err(format!("{MARK}: it cannot be removed: {code}")),
        }
    }

    /// Deletes what an export before has created and the tree does not have any more.
    async fn remove_what_has_gone(&self, image: &Image, mark: &Mark) -> Outcome {
        let link = &self.links[0];
        let at_root = mark.names.iter().map(|name| Text::from(format!("/{name}")));
        let (mut left, mut gone) = (at_root.collect::<Vec<Text>>(), Vec::new());
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(WINDOW));
            let ask = |path: Text| {
                let request = Request::GetChildren {
                    path: path.clone(),
                    watch: false,
                };
                (path, link.send(request))
            };
            let asked: Vec<_> = some.into_iter().map(ask).collect();
            for (path, sent) in asked {
                let names = match link.finish(sent).await? {
                    Ok(Answer::Children(names)) => names,
                    Err(Code::NO_NODE) => continue,
                    Err(Code::NO_AUTH) => return Err(not_allowed(&path, 0)),
                    other => {
                        return Err(format!("{path}: its children cannot be listed: {other:?}"));
                    }
                };
                left.extend(names.iter().map(|name| paths::join(&path, name).into()));
                if !image.nodes.contains_key(&path) {
                    gone.push(path);
                }
            }
        }
        // Those that are less deep were found first.
        for path in gone.into_iter().rev() {
            let request = Request::Delete {
                path: path.clone(),
                version: -1,
            };
            match link.ask(request).await? {
                Ok(_) | Err(Code::NO_NODE) => {}
                Err(Code::NO_AUTH) => return Err(not_allowed(&path, 0)),
                Err(code) => return Err(format!("{path}: it cannot be deleted: {code}")),
            }
        }
        Ok(())
    }
}

/// `count`: of how many nodes it is the first.
fn not_allowed(path: &str, count: usize) -> String {
    let others = match count {
        0 | 1 => String::new(),
        count => format!(", the first of {count} nodes,"),
    };
    format!(
        "{path}{others} may not be created or changed by this user: name one who may with --auth, as in \
         --auth digest:super:PASSWORD"
    )
}

fn nothing_created(path: &str, count: usize) -> String {
    format!("{}; nothing was created", not_allowed(path, count))
}

/// Brings nodes that are there to what they must be.
async fn renew(there: &[(&Text, &Node)], links: &[Link]) -> Outcome {
    let mut asked = Vec::new();
    for (number, (path, node)) in there.iter().enumerate() {
        let link = &links[number % links.len()];
        let data = link.send(Request::GetData {
            path: (*path).clone(),
            watch: false,
        });
        let list = link.send(Request::GetAcl {
            path: (*path).clone(),
        });
        asked.push((*path, *node, data, list, link));
    }
    for (path, node, data, list, link) in asked {
        let has_data = match link.finish(data).await? {
            Ok(Answer::Data(data, _)) => is_same(data.as_deref(), node),
            _ => false,
        };
        let has_list = match link.finish(list).await? {
            Ok(Answer::Acl(list, _)) => list[..] == node.acl[..],
            _ => false,
        };
        let mut requests = Vec::new();
        if !has_data {
            requests.push(set_data(path, node));
        }
        if !has_list {
            requests.push(set_list(path, node));
        }
        for request in requests {
            match link.ask(request).await? {
                Ok(_) => {}
                Err(Code::NO_AUTH) => return Err(not_allowed(path, 0)),
                Err(code) => return Err(format!("{path}: it cannot be changed: {code}")),
            }
        }
    }
    Ok(())
}

fn set_data(path: &Text, node: &Node) -> Request {
    Request::SetData {
        path: path.clone(),
        data: data_of(node),
        version: -1,
    }
}

fn set_list(path: &Text, node: &Node) -> Request {
    Request::SetAcl {
        path: path.clone(),
        acl: node.acl.to_vec(),
        version: -1,
    }
}

fn is_always_there(path: &str) -> bool {
    ALWAYS_THERE.iter().any(|(there, _)| *there == path)
}

/// Creates nodes of one level. Those that were there already.
async fn create<'a>(
    some: &[(&'a Text, &'a Node)],
    links: &[Link],
) -> Outcome<Vec<(&'a Text, &'a Node)>> {
    // Several sessions may be with several servers: a parent must be known to all of them.
    for link in links {
        link.sync().await?;
    }
    let new = some.iter().filter(|(path, _)| !is_always_there(path));
    let (mut asked, mut there) = (Vec::new(), Vec::new());
    for (number, (path, node)) in new.enumerate() {
        let link = &links[number % links.len()];
        asked.push((*path, *node, link.send(creation(path, node)), link));
    }
    for (path, node, sent, link) in asked {
        match link.finish(sent).await? {
            Ok(_) => {}
            // After a connection broke, the node may be ours: its data is compared later.
            Err(Code::NODE_EXISTS) if path.starts_with("/zookeeper") => {}
            Err(Code::NODE_EXISTS) => there.push((path, node)),
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
    Ok(there)
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
        requests.push(set_data(path, node));
    }
    if !is_open(&node.acl) {
        requests.push(set_list(path, node));
    }
    for request in requests {
        if let Err(code) = link.ask(request).await? {
            return Err(format!("{path}: it cannot be changed: {code}"));
        }
    }
    Ok(())
}

/// ZooKeeper tells no data from empty data, and some releases do not keep the difference.
fn is_same(data: Option<&[u8]>, node: &Node) -> bool {
    data.unwrap_or_default() == data_of(node).unwrap_or_default()
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

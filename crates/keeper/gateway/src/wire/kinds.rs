//! The kinds of requests.

use super::listed::{Details, Filter};
use super::record::{Acl, Stat};
use super::text::Text;
use bytes::Bytes;

/// Which of the requests that create a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateKind {
    /// `create`: the answer is the path only.
    Plain,
    /// `create2`: as of the others, the answer has a [`Stat`](super::record::Stat).
    WithStat,
    Container,
    Ttl,
    /// ClickHouse's: the answer is the path, also if the node was there before.
    IfNotExists,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Create {
        kind: CreateKind,
        path: Text,
        data: Option<Bytes>,
        acl: Vec<Acl>,
        /// See [`create_flags`].
        flags: i32,
        /// In milliseconds; -1 if the request has none.
        ttl: i64,
    },
    Delete {
        path: Text,
        version: i32,
    },
    Exists {
        path: Text,
        watch: bool,
    },
    GetData {
        path: Text,
        watch: bool,
    },
    SetData {
        path: Text,
        data: Option<Bytes>,
        version: i32,
    },
    GetAcl {
        path: Text,
    },
    SetAcl {
        path: Text,
        acl: Vec<Acl>,
        version: i32,
    },
    GetChildren {
        path: Text,
        watch: bool,
    },
    GetChildren2 {
        path: Text,
        watch: bool,
    },
    /// The path is nothing but repeated in the answer, and may be null.
    Sync {
        path: Option<Text>,
    },
    Ping,
    /// Only in a multi. To ZooKeeper's server since 3.9.3, one that stands alone is of an unknown kind.
    Check {
        path: Text,
        version: i32,
    },
    /// A create or a deletion by itself that has null as its path; here it has an empty one.
    NoPath(Box<Request>),
    /// ZooKeeper's own servers send it to their leader. From a client it deletes any node without children, too.
    DeleteContainer {
        path: Text,
    },
    /// Creates, deletes, changes of data and checks.
    Multi {
        operations: Vec<Request>,
    },
    /// Reads of data and of children without watches; ClickHouse's keeper takes others too, with watches.
    MultiRead {
        operations: Vec<Request>,
        /// A read of null follows. ZooKeeper's server answers those before it, and fails.
        breaks_off: bool,
    },
    Reconfig {
        joining: Option<Text>,
        leaving: Option<Text>,
        new_members: Option<Text>,
        config_id: i64,
    },
    CheckWatches {
        path: Text,
        kind: i32,
    },
    RemoveWatches {
        path: Text,
        kind: i32,
    },
    /// Both requests of this name: the older one has no persistent watches.
    SetWatches {
        relative_zxid: i64,
        data: Vec<Text>,
        exist: Vec<Text>,
        child: Vec<Text>,
        persistent: Vec<Text>,
        recursive: Vec<Text>,
        /// Something null follows what the lists have. ZooKeeper's server sets watches up to there, and then fails.
        breaks_off: bool,
    },
    AddWatch {
        path: Text,
        mode: i32,
    },
    Auth {
        kind: i32,
        /// Empty if there is none: no such scheme exists.
        scheme: Text,
        /// ZooKeeper's digest scheme refuses `None`, and takes nothing for an empty name.
        auth: Option<Bytes>,
    },
    Sasl {
        token: Bytes,
    },
    GetEphemerals {
        /// Empty if there is none: both mean all.
        prefix: Text,
    },
    GetAllChildrenNumber {
        path: Text,
    },
    WhoAmI,
    CloseSession,
    /// The requests from here on are ClickHouse's. A list of some children, or with more than their names.
    List {
        path: Text,
        watch: bool,
        filter: Filter,
        details: Option<Details>,
    },
    /// Paths of the nodes below a node, as many as `most`, those that are less deep first.
    ListRecursive {
        path: Text,
        most: u32,
    },
    /// Fails if there is such a node, of this version.
    CheckNotExists {
        path: Text,
        version: i32,
    },
    /// A number of the `Stat` that is -1 may be any.
    CheckStat {
        path: Text,
        version: i32,
        stat: Stat,
    },
    /// Does not fail if there is no such node, or it may not go.
    TryDelete {
        path: Text,
        version: i32,
    },
    /// Deletes a node with all below it, at most so many.
    DeleteRecursive {
        path: Text,
        most: u32,
    },
    /// Of a kind that is not served. ZooKeeper's server answers `Unimplemented`, and closes the connection.
    Unknown {
        opcode: i32,
    },
}

//! Imports into a database in memory, and exports out of it.

mod interrupted;

use crate::extract::{catch_up, extract};
use crate::import::from_files;
use crate::live::{LiveOptions, from_live};
use crate::source::Servers;
use crate::target::Target;
use crate::{BEGINS, files, image::Image};
use plinth_client::Database;
use plinth_client::testing::MemoryCluster;
use plinth_core::Error;
use plinth_keeper::setup::{self, Opened};
use plinth_keeper::tree::change::{Change, Origin, put_change};
use plinth_keeper::tree::node::{Counts, Data, Lifetime, Node, open_acl, own_zxid};
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::Text;
use plinth_runtime::real::block_on;
use std::cell::Cell;
use std::path::Path;

const QUIET: crate::Tell<'static> = &|_, _| {};

fn loaded() -> files::Loaded {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/server");
    files::load(&[directory], QUIET).expect("a tree")
}

async fn open(database: &Database, tree: &str) -> plinth_core::Result<Option<Opened>> {
    let rows = Rows::new(tree);
    let opening =
        database.run(async |transaction| setup::open_existing(&transaction, &rows, tree).await);
    opening.await
}

/// As [`loaded`], with a node that has long data, and with many nodes.
fn large() -> files::Loaded {
    let mut loaded = loaded();
    let mut node = loaded.image.nodes["/kinds"].clone();
    node.data = Data::Here(vec![7; 300_000].into());
    loaded.image.nodes.insert("/long".into(), node.clone());
    node.data = Data::None;
    node.counts = Counts::default();
    for number in 0..3000 {
        let path = format!("/kinds/number-{number}");
        loaded.image.nodes.insert(path.into(), node.clone());
    }
    loaded
}

#[test]
fn what_is_imported_is_exported_with_everything() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let imported = from_files(&database, "t", large(), "/", QUIET).await;
        let imported = imported.expect("imported");
        assert_eq!((imported.ephemerals, imported.timed), (1, 2));
        // A chunk may end anywhere, also within a node.
        for rows in [1, 2, 3, 1000] {
            cluster.set_chunk_rows_max(rows);
            let extracted = extract(&database, "t", "/", QUIET).await.expect("a tree");
            let mut expected = large().image;
            expected.settle("/").expect("a tree");
            assert_eq!(extracted.image.nodes.len() as u64, imported.nodes);
            assert_eq!(extracted.image.nodes, expected.nodes, "{rows}");
            assert!(extracted.image.last_zxid > imported.last_zxid);
        }
        let opened = open(&database, "t").await.expect("opens").expect("a tree");
        assert!(opened.zxids.last_of(opened.version) > imported.last_zxid);
        assert_eq!(opened.zxids.version_of(opened.zxids.last_of(7)), 7);
    });
}

#[test]
fn a_tree_that_is_there_is_left_alone_and_one_that_is_not_whole_is_not_opened() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let first = Target::begin(&database, "t").await.expect("begun");
        assert_eq!(
            open(&database, "t").await.map(|_| ()),
            Err(Error::unsupported_format_version)
        );
        let second = Target::begin(&database, "t").await.expect("begun again");
        let node = || loaded().image.nodes["/kinds"].clone();
        let late = first.put(vec![("/kinds".into(), Some(node()))]).await;
        assert!(
            late.expect_err("it has lost its place")
                .contains("another import")
        );
        second
            .put(vec![("/kinds".into(), Some(node()))])
            .await
            .expect("written");
        // An import that is begun again finds nothing of the one before.
        from_files(&database, "t", loaded(), "/", QUIET)
            .await
            .expect("imported");
        let again = from_files(&database, "t", loaded(), "/", QUIET).await;
        assert!(again.expect_err("it is there").contains("is there already"));
        let late = second.put(vec![("/kinds".into(), None)]).await;
        assert!(late.is_err());
        assert!(extract(&database, "other", "/", QUIET).await.is_err());
    });
}

#[test]
fn a_tree_that_is_there_is_told_before_the_source_is_asked_and_nothing_begins() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let begun = Cell::new(0);
        let tell = |what: &str, _| begun.set(begun.get() + u32::from(what == BEGINS));
        let import = from_files(&database, "t", loaded(), "/", &tell).await;
        import.expect("imported");
        assert_eq!(begun.get(), 1);
        let servers = Servers {
            addresses: Vec::new(), // it would have nobody to ask
            auth: Vec::new(),
            waits: |_, _| {},
        };
        let options = LiveOptions {
            tree: "t".into(),
            path: "/".into(),
            skip_unreadable: false,
            kinds: None,
        };
        let again = from_live(&database, servers, options, std::future::ready(()), &tell).await;
        let line = again.expect_err("it is there");
        assert!(line.contains("is there already"), "{line}");
        assert_eq!(begun.get(), 1);
    });
}

#[test]
fn nodes_that_do_not_fit_are_named() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let mut loaded = loaded();
        let node = loaded.image.nodes.get_mut("/kinds").expect("it is there");
        node.data = Data::Here(vec![0; 9 << 20].into());
        let refused = from_files(&database, "t", loaded, "/", QUIET).await;
        let line = refused.expect_err("too long");
        assert!(line.starts_with("/kinds: it has 9437184 bytes"), "{line}");
        assert!(open(&database, "t").await.is_err());
    });
}

/// What a gateway does in one transaction: a new node, another one's data, and a removal.
async fn change(database: &Database, opened: &Opened) -> plinth_core::Result<()> {
    let rows = Rows::new("t");
    let origin = Origin {
        gateway: 1,
        batch: 1,
    };
    let node = |zxid| Node {
        czxid: zxid,
        mzxid: zxid,
        pzxid: zxid,
        ctime: 1,
        mtime: 1,
        version: 0,
        aversion: 0,
        counts: Counts::default(),
        lifetime: Lifetime::Persistent,
        acl: open_acl(),
        data: Data::Here("changed".into()),
    };
    let changing = database.run(async |transaction| {
        let mut entry = origin.begin_entry();
        let made = Change::Created("/kinds/new".into(), node(own_zxid(0)));
        put_change(&mut entry, 0, &made);
        put_change(&mut entry, 1, &Change::DataSet("/long".into(), node(5)));
        put_change(&mut entry, 2, &Change::Deleted("/kinds/m".into()));
        opened.stream.append_followed(&transaction, entry)?;
        transaction.set(rows.node("/kinds/new"), node(77).to_row().0);
        transaction.set(rows.node("/long"), node(5).to_row().0);
        let parent = Counts {
            created: 3010,
            present: 3009,
        };
        transaction.set(rows.counts("/kinds"), parent.to_bytes());
        transaction.clear(rows.node("/kinds/m"));
        Ok(())
    });
    changing.await
}

#[test]
fn a_tree_that_changes_while_it_is_read_is_what_it_was_at_one_version() {
    block_on(async {
        let database = MemoryCluster::new().database();
        from_files(&database, "t", large(), "/", QUIET)
            .await
            .expect("imported");
        let opened = open(&database, "t").await.expect("opens").expect("a tree");
        let mut image: Image = extract(&database, "t", "/", QUIET)
            .await
            .expect("a tree")
            .image;
        change(&database, &opened).await.expect("changed");
        let (rows, oldest) = (Rows::new("t"), opened.version);
        let version = catch_up(&database, &rows, &opened, oldest, &mut image, QUIET).await;
        assert!(version.expect("caught up") > oldest);
        assert!(image.nodes.contains_key("/kinds/new") && !image.nodes.contains_key("/kinds/m"));
        assert_eq!(image.nodes["/long"].data, Data::Here("changed".into()));
        assert_eq!(image.nodes["/kinds"].counts.created, 3010);
        let whole = extract(&database, "t", "/", QUIET)
            .await
            .expect("a tree")
            .image;
        image.count_children();
        let paths = |image: &Image| image.nodes.keys().cloned().collect::<Vec<Text>>();
        assert_eq!(paths(&image), paths(&whole));
        assert_eq!(image.nodes, whole.nodes);
    });
}

fn damaged(image: &Image) -> Vec<&str> {
    image.damaged.iter().map(|path| &**path).collect()
}

#[test]
fn damaged_nodes_are_named_and_the_rest_is_exported() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let importing = from_files(&database, "t", large(), "/", QUIET);
        importing.await.expect("imported");
        let whole = extract(&database, "t", "/", QUIET).await.expect("a tree");
        assert_eq!(whole.refuse_damaged(), Ok(()));
        let rows = Rows::new("t");
        cluster.spoil(&rows.node("/kinds/m"), Some(b"?"));
        cluster.spoil(&rows.counts("/kinds/number-7"), Some(b"?"));
        cluster.spoil(&rows.data_piece("/long", 1), None);
        let no_path = [&rows.node("/kinds/none")[..], b"\xff"].concat();
        cluster.spoil(&no_path, Some(b"?"));
        // These are of no node.
        cluster.spoil(&rows.counts("/kinds/number-8/none"), Some(b"?"));
        cluster.spoil(&rows.counts("/kinds/"), Some(b"?"));
        for chunk in [2, 1000] {
            cluster.set_chunk_rows_max(chunk);
            let found = extract(&database, "t", "/", QUIET).await.expect("a tree");
            let named = damaged(&found.image);
            let lossy = "/kinds/none\u{fffd}";
            assert_eq!(named, ["/kinds/m", lossy, "/kinds/number-7", "/long"]);
            let line = found.refuse_damaged().expect_err("they are damaged");
            let begin = "4 nodes are damaged, the first is /kinds/m";
            assert!(line.starts_with(begin), "{line}");
            assert_eq!(found.image.nodes.len(), whole.image.nodes.len() - 3);
            for (path, node) in &found.image.nodes {
                let mut expected = whole.image.nodes[path].clone();
                if matches!(path.as_str(), "/" | "/kinds") {
                    expected.counts = node.counts; // they have lost children
                }
                assert_eq!(*node, expected, "{path}");
            }
        }
    });
}

#[test]
fn what_is_below_a_damaged_node_is_left_out_with_it_and_what_is_elsewhere_is_not_looked_at() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let importing = from_files(&database, "t", large(), "/", QUIET);
        importing.await.expect("imported");
        cluster.spoil(&Rows::new("t").node("/kinds"), Some(b"?"));
        let found = extract(&database, "t", "/", QUIET).await.expect("a tree");
        let mut paths = found.image.nodes.keys();
        assert!(!paths.any(|path| path.starts_with("/kinds")));
        assert_eq!(damaged(&found.image), ["/kinds"]);
        let found = extract(&database, "t", "/long", QUIET).await;
        let found = found.expect("a tree");
        assert_eq!(damaged(&found.image), [""; 0]);
        assert!(found.image.nodes.contains_key("/long"));
    });
}

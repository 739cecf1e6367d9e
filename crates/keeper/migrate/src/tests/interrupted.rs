//! Exports that are interrupted, and begin again.

use super::*;
use crate::creating::Live;
use crate::extract::extract_keeping;
use crate::source::Servers;
use plinth_keeper::acl;
use plinth_keeper::client::Client;
use plinth_keeper::wire::{Acl, Answer, Request};
use plinth_keeper::{Keeper, Options};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Either, race, spawn};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

const SUPER: (&str, &str) = ("digest", "super:test");

fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("plinth-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Runs the export until it tells of so many nodes: then it is as if it was killed.
async fn break_off<T>(export: impl AsyncFn(crate::Tell<'_>) -> T, nodes: u64) {
    let told = Watch::new(0);
    let tell = |_: &str, count: u64| told.set(count);
    let reached = told.wait_until(|count| *count >= nodes);
    let ended = race(export(&tell), reached).await;
    assert!(matches!(ended, Either::Right(_)), "it was quicker");
}

#[test]
fn an_export_to_files_goes_on_where_it_was_and_has_what_has_changed_since() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let importing = from_files(&database, "t", large(), "/", QUIET);
        importing.await.expect("imported");
        let file = scratch("interrupted").join("kept");
        cluster.set_chunk_rows_max(100);
        cluster.set_delay_turns(1);
        let keeping =
            async |tell: crate::Tell<'_>| extract_keeping(&database, "t", "/", &file, tell).await;
        break_off(&keeping, 500).await;
        break_off(&keeping, 1500).await;
        let opened = open(&database, "t").await.expect("opens").expect("a tree");
        change(&database, &opened).await.expect("changed");
        let again = keeping(QUIET).await.expect("a tree");
        assert!(again.before >= 1400, "{}", again.before);
        let whole = extract(&database, "t", "/", QUIET).await.expect("a tree");
        assert!(again.image.nodes == whole.image.nodes, "as if in one go");
        assert!(again.image.nodes.contains_key("/kinds/new"));
        // All of it was read, and the snapshot was not written.
        let third = keeping(QUIET).await.expect("a tree");
        assert!(third.before > 3000 && third.image.nodes == whole.image.nodes);
        // Another tree has nothing of it.
        let importing = from_files(&database, "u", loaded(), "/", QUIET);
        importing.await.expect("imported");
        let other = extract_keeping(&database, "u", "/", &file, QUIET).await;
        assert_eq!(other.expect("a tree").before, 0);
    });
}

/// A gateway of a tree of its own.
async fn gateway() -> (Rc<Keeper>, plinth_runtime::Task<()>) {
    let options = Options {
        super_digest: Some(acl::digest(SUPER.1)),
        ..Options::default()
    };
    let address: SocketAddr = ([127, 0, 0, 1], 0).into();
    let keeper = Keeper::listen(MemoryCluster::new().database(), address, options).await;
    let keeper = Rc::new(keeper.expect("a free port"));
    let serving = keeper.clone();
    let task = spawn("gateway", async move { serving.serve().await });
    (keeper, task)
}

fn live(keeper: &Keeper, auth: &[(&str, &str)]) -> Live {
    let of = |(scheme, auth): &(&str, &str)| (scheme.to_string(), auth.to_string());
    let servers = Servers {
        addresses: vec![keeper.address()],
        auth: auth.iter().map(of).collect(),
        waits: |_, _| {},
    };
    Live::new(servers, "t")
}

/// What the server has: data and access list of each node that is not its own.
async fn all(keeper: &Keeper) -> BTreeMap<Text, (Vec<u8>, Vec<Acl>)> {
    let client = Client::connect(keeper.address(), 30_000, None).await;
    let client = client.expect("it serves");
    let auth = Request::Auth {
        kind: 0,
        scheme: SUPER.0.into(),
        auth: Some(SUPER.1.into()),
    };
    client.submit(auth).await.expect("the super user");
    let (mut left, mut all) = (vec![Text::from("/")], BTreeMap::new());
    while let Some(path) = left.pop() {
        let watch = false;
        let names = Request::GetChildren {
            path: path.clone(),
            watch,
        };
        let data = Request::GetData {
            path: path.clone(),
            watch,
        };
        let list = Request::GetAcl { path: path.clone() };
        let mut answers = Vec::new();
        for request in [names, data, list] {
            answers.push(client.submit(request).await.expect("it is there").1);
        }
        let [
            Answer::Children(names),
            Answer::Data(data, _),
            Answer::Acl(list, _),
        ] = &answers[..]
        else {
            panic!("{answers:?}");
        };
        let below = names.iter().filter(|name| &***name != "zookeeper");
        left.extend(below.map(|name| plinth_keeper::paths::join(&path, name).into()));
        let data = data.clone().unwrap_or_default().to_vec();
        all.insert(path, (data, list.clone()));
    }
    all
}

fn expected(image: &Image) -> BTreeMap<Text, (Vec<u8>, Vec<Acl>)> {
    let nodes = image.nodes.iter();
    let own = nodes.filter(|(path, _)| !path.starts_with("/zookeeper"));
    own.map(|(path, node)| {
        let data = match &node.data {
            Data::Here(data) => data.to_vec(),
            _ => Vec::new(),
        };
        (path.clone(), (data, node.acl.to_vec()))
    })
    .collect()
}

/// A tree whose node `/closed` lets only its owner create something in it.
fn image() -> Image {
    let mut image = large().image;
    image.settle("/").expect("a tree");
    image.nodes.remove("/long");
    let open = image.nodes["/kinds/number-1"].clone();
    let mut closed = open.clone();
    closed.acl = [Acl {
        perms: 31,
        scheme: "digest".into(),
        id: acl::digest("owner:secret").as_str().into(),
    }]
    .into();
    image.nodes.insert("/closed".into(), closed);
    for name in ["a", "b"] {
        let path = format!("/closed/{name}");
        image.nodes.insert(path.into(), open.clone());
    }
    image
}

#[test]
fn nothing_is_created_by_who_may_not_create_all() {
    block_on(async {
        let (keeper, _serving) = gateway().await;
        let image = image();
        let refused = live(&keeper, &[]).export(&image, QUIET).await;
        let line = refused.expect_err("it may not");
        let begin = "/closed/a, the first of 2 nodes, may not be created";
        assert!(line.starts_with(begin) && line.contains("--auth"), "{line}");
        assert_eq!(all(&keeper).await.len(), 1, "only the root is there");
        for user in [("digest", "owner:secret"), SUPER] {
            let (keeper, _serving) = gateway().await;
            let live = live(&keeper, &[user]);
            live.check().await.expect("it may");
            live.export(&image, QUIET).await.expect("it may");
            assert!(all(&keeper).await == expected(&image));
        }
    });
}

#[test]
fn an_export_to_a_server_goes_on_where_it_was_and_has_what_has_changed_since() {
    block_on(async {
        let (keeper, _serving) = gateway().await;
        let mut image = image();
        let exporting =
            async |tell: crate::Tell<'_>| live(&keeper, &[SUPER]).export(&image, tell).await;
        break_off(&exporting, 1500).await;
        let other = Live::new(
            Servers {
                addresses: vec![keeper.address()],
                auth: vec![(SUPER.0.into(), SUPER.1.into())],
                waits: |_, _| {},
            },
            "other",
        );
        let line = other.export(&image, QUIET).await.expect_err("not mixed");
        assert!(line.contains("an export of tree `t' has begun"), "{line}");
        // The tree goes on meanwhile.
        for gone in ["/closed", "/closed/a", "/closed/b", "/kinds/number-1"] {
            image.nodes.remove(gone);
        }
        let changed = image.nodes.get_mut("/kinds/number-2").expect("there");
        changed.data = Data::Here("changed".into());
        let listed = image.nodes.get_mut("/kinds/number-3").expect("there");
        listed.acl = [Acl {
            perms: 1,
            ..Acl::open().remove(0)
        }]
        .into();
        let new = image.nodes["/kinds/number-4"].clone();
        image.nodes.insert("/new".into(), new);
        let exporting = live(&keeper, &[SUPER]);
        let exported = exporting.export(&image, QUIET).await.expect("exported");
        assert!(exported.before > 1000, "{}", exported.before);
        assert!(
            all(&keeper).await == expected(&image),
            "and no mark is left"
        );
        let again = live(&keeper, &[SUPER]).export(&image, QUIET).await;
        let line = again.expect_err("it has ended");
        assert!(line.contains("the server has it already"), "{line}");
    });
}

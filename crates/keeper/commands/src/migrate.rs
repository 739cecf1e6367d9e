//! `plinth keeper import` and `plinth keeper export`: trees of nodes from and to ZooKeeper.

use crate::name::parse_tree;
use indicatif::ProgressBar;
use plinth_coordination::refuse_occupied;
use plinth_measure::grouped;
use plinth_migrate::{BEGINS, Exported, Extracted, Imported, Live, LiveOptions, Place, Servers};
use plinth_runtime::knobs::set_knobs;
use plinth_runtime::now;
use plinth_runtime::real::interrupted;
use plinth_runtime::sync::{OneshotReceiver, oneshot};
use plinth_terminal::connect::{self, ClusterArguments};
use plinth_terminal::knobs::{parse_knob, parse_knobs};
use plinth_terminal::{Outcome, commands, interrupts, progress};
use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const NOT_WHOLE: &str = "it was interrupted; what it had begun to import is not whole, and no gateway opens that: \
    `plinth keeper list' shows it, and the same command begins it again";
const NOT_BEGUN: &str = "it was interrupted before it began; no tree has changed";
/// An import has begun to change its tree.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// Most paths of nodes that could not be read that a report has.
const UNREADABLE_SHOWN: usize = 1000;

/// A ZooKeeper that runs.
#[derive(Clone, Debug)]
struct Addresses(Vec<SocketAddr>);

fn parse_addresses(text: &str) -> Result<Addresses, String> {
    let mut all = Vec::new();
    for one in text.split(',') {
        let found = one.to_socket_addrs();
        let found = found.map_err(|error| format!("{one}: {error}; expected HOST:PORT"))?;
        all.extend(found);
    }
    Ok(Addresses(all))
}

fn parse_auth(text: &str) -> Result<(String, String), String> {
    let (scheme, auth) = text
        .split_once(':')
        .ok_or("expected a scheme and what it takes, as in digest:user:password")?;
    Ok((scheme.into(), auth.into()))
}

fn parse_path(text: &str) -> Result<String, String> {
    match plinth_keeper::paths::is_valid(text) {
        true => Ok(text.into()),
        false => Err("expected a node's path, as in /app".into()),
    }
}

#[derive(clap::Args, Debug)]
pub struct TreeArguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Name of the tree
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = parse_tree)]
    tree: String,
    /// Only this node, what is below it, and the nodes on the way to it
    #[arg(long, value_name = "PATH", default_value = "/", value_parser = parse_path)]
    path: String,
    /// A user of ZooKeeper to be, as in digest:super:password; may be repeated
    #[arg(long, value_name = "SCHEME:ID", value_parser = parse_auth)]
    auth: Vec<(String, String)>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
#[group(id = "source", required = true, multiple = true)]
pub struct Source {
    /// Copy from this ZooKeeper, while it serves
    #[arg(long, value_name = "HOST:PORT,…", value_parser = parse_addresses)]
    from: Option<Addresses>,
    /// Copy from the data directory of a server; repeat it if the logs lie elsewhere. With --from, the files only say
    /// which nodes are containers or have a time to live, which a server tells no client
    #[arg(long, value_name = "DIRECTORY")]
    from_files: Vec<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub struct ImportArguments {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    tree: TreeArguments,
    /// Go on copying what changes, until interrupted; then verify, and end
    #[arg(long, requires = "from")]
    follow: bool,
    /// Leave out nodes that may not be read, with all below them
    #[arg(long, requires = "from")]
    skip_unreadable: bool,
    /// Set a limit; `plinth server --knob list` shows all knobs
    #[arg(long = "knob", value_name = "NAME=VALUE", value_parser = parse_knob)]
    knobs: Vec<String>,
}

#[derive(clap::Args, Debug)]
#[group(id = "goal", required = true, multiple = false)]
pub struct Goal {
    /// Create the nodes at this ZooKeeper, which gives them new Stats
    #[arg(long, value_name = "HOST:PORT,…", value_parser = parse_addresses)]
    to: Option<Addresses>,
    /// Write a snapshot, with all Stats, into this data directory; a server of ZooKeeper starts from it
    #[arg(long, value_name = "DIRECTORY")]
    to_files: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub struct ExportArguments {
    #[command(flatten)]
    goal: Goal,
    #[command(flatten)]
    tree: TreeArguments,
    /// Leave out nodes whose rows are damaged, with all below them
    #[arg(long)]
    skip_damaged: bool,
}

/// What an import that is interrupted leaves.
fn left_by_import() -> String {
    match HAS_BEGUN.load(Ordering::Relaxed) {
        true => NOT_WHOLE.into(),
        false => NOT_BEGUN.into(),
    }
}

fn servers(addresses: &Addresses, tree: &TreeArguments) -> Servers {
    Servers {
        addresses: addresses.0.clone(),
        auth: tree.auth.clone(),
        waits: |seconds, line| {
            plinth_terminal::say!("plinth: waiting for up to {seconds} s: {line}");
        },
    }
}

fn tell(bar: &ProgressBar) -> impl Fn(&str, u64) + '_ {
    |what, count| bar.set_message(format!("{what}: {}", grouped(count as f64)))
}

pub fn import(arguments: ImportArguments) -> Outcome {
    set_knobs(parse_knobs(&arguments.knobs)?);
    let ImportArguments { source, tree, .. } = arguments;
    let began = now_in_runtime();
    let bar = progress::bar(0, "importing");
    let loaded = match source.from_files.is_empty() {
        true => None,
        false => Some(plinth_migrate::load(&source.from_files, &tell(&bar))?),
    };
    let files = loaded.as_ref().filter(|_| source.from.is_none());
    let files =
        files.map(|loaded| [std::slice::from_ref(&loaded.snapshot), &loaded.logs[..]].concat());
    let imported = connect::block_on(async {
        let connection = tree.cluster.connect().await?;
        let database = &connection.database;
        let shown = tell(&bar);
        let tell = |what: &str, count| {
            HAS_BEGUN.fetch_or(what == BEGINS, Ordering::Relaxed);
            shown(what, count);
        };
        match (source.from, loaded) {
            (Some(addresses), kinds) => {
                let servers = servers(&addresses, &tree);
                let options = LiveOptions {
                    tree: tree.tree.clone(),
                    path: tree.path.clone(),
                    skip_unreadable: arguments.skip_unreadable,
                    kinds,
                };
                let stop = told_to_stop(arguments.follow);
                plinth_migrate::from_live(database, servers, options, stop, &tell).await
            }
            (None, Some(loaded)) => {
                interrupts::end_with(left_by_import);
                plinth_migrate::from_files(database, &tree.tree, loaded, &tree.path, &tell).await
            }
            (None, None) => Err("name a source: --from or --from-files".into()),
        }
    })?;
    bar.finish_and_clear();
    report_import(&imported, files, tree.json, began());
    Ok(())
}

/// Ready at once, or with the first interrupt, however early that comes. The second one ends the process.
fn told_to_stop(follows: bool) -> OneshotReceiver<()> {
    let (stop, told) = oneshot();
    if !follows {
        interrupts::end_with(left_by_import);
        let _ = stop.send(()); // the receiver is here
        return told;
    }
    let waiting = async move {
        if interrupted().await.is_ok() {
            let _ = stop.send(()); // the import may have failed
            if interrupted().await.is_ok() {
                commands::print_error(&left_by_import());
                std::process::exit(interrupts::CODE.into());
            }
        }
    };
    plinth_runtime::spawn("interrupts", waiting).detach();
    told
}

/// Seconds since now.
fn now_in_runtime() -> impl FnOnce() -> f64 {
    let began = now();
    move || began.elapsed().as_secs_f64()
}

fn row(name: &str, value: String) {
    println!("  {name:<22} {value}");
}

fn report_import(imported: &Imported, files: Option<Vec<String>>, json: bool, seconds: f64) {
    let unreadable = &imported.unreadable;
    let shown = &unreadable[..unreadable.len().min(UNREADABLE_SHOWN)];
    if json {
        let document = serde_json::json!({
            "nodes": imported.nodes, "bytes": imported.bytes, "ephemerals_left_out": imported.ephemerals,
            "copied_again": imported.again, "containers_and_ttl_nodes": imported.timed,
            "unreadable": unreadable.len(), "unreadable_paths": shown, "nodes_with_sasl": imported.sasl,
            "last_zxid": format!("{:#x}", imported.last_zxid), "files": files, "seconds": seconds,
        });
        return println!("{document}");
    }
    row("nodes", grouped(imported.nodes as f64));
    row("bytes of data", grouped(imported.bytes as f64));
    row("containers, TTL nodes", grouped(imported.timed as f64));
    row("ephemeral, left out", grouped(imported.ephemerals as f64));
    if imported.again > 0 {
        row("copied again", grouped(imported.again as f64));
    }
    if let Some(files) = files {
        row("files", files.join(" "));
    }
    row("last zxid", format!("{:#x}", imported.last_zxid));
    row("seconds", format!("{seconds:.1}"));
    if imported.sasl > 0 {
        plinth_terminal::say!(
            "{} nodes name SASL users in their access lists; the keeper has no such users",
            imported.sasl
        );
    }
    if !unreadable.is_empty() {
        let many = unreadable.len();
        show_paths(
            &format!("{many} nodes were left out, with all below them:"),
            shown,
        );
    }
}

pub fn export(arguments: ExportArguments) -> Outcome {
    let ExportArguments { goal, tree, .. } = arguments;
    let began = now_in_runtime();
    let bar = progress::bar(0, "exporting");
    if let Some(directory) = &goal.to_files {
        connect::block_on(refuse_occupied(directory, "--to-files"))?;
    }
    let place = goal.to_files.as_deref().map(Place::prepare).transpose()?;
    let done = connect::block_on(async {
        let live = goal.to.as_ref();
        let live = live.map(|addresses| Live::new(servers(addresses, &tree), &tree.tree));
        if let Some(live) = &live {
            live.check().await?;
        }
        let connection = tree.cluster.connect().await?;
        interrupts::end_with(|| {
            "it was interrupted; the same command goes on, or begins anew".into()
        });
        let tell = tell(&bar);
        let (database, tree, path) = (&connection.database, &tree.tree, &tree.path);
        let extracted = match &place {
            Some(place) => {
                let kept = place.kept();
                plinth_migrate::extract_keeping(database, tree, path, &kept, &tell).await?
            }
            None => plinth_migrate::extract(database, tree, path, &tell).await?,
        };
        if !arguments.skip_damaged
            && let Err(line) = extracted.refuse_damaged()
        {
            bar.finish_and_clear();
            show_paths("damaged:", &extracted.image.damaged);
            return Err(line);
        }
        let image = &extracted.image;
        let exported = match (live, &place) {
            (Some(live), _) => live.export(image, &tell).await?,
            (None, Some(place)) => plinth_migrate::to_files(image, place)?,
            (None, None) => return Err("name a goal: --to or --to-files".into()),
        };
        Ok((exported, extracted))
    });
    if done.is_err()
        && let Some(place) = place
    {
        place.abandon();
    }
    let (exported, extracted) = done?;
    bar.finish_and_clear();
    report_export(&exported, &extracted, tree.json, began());
    Ok(())
}

/// Says on standard error what a list of nodes is, and the first of them.
fn show_paths(what: &str, paths: impl IntoIterator<Item = impl Display>) {
    plinth_terminal::say!("{what}");
    let shown = paths.into_iter().take(UNREADABLE_SHOWN);
    shown.for_each(|path| plinth_terminal::say!("  {path}"));
}

fn report_export(exported: &Exported, extracted: &Extracted, json: bool, seconds: f64) {
    let (ephemerals, damaged) = (extracted.ephemerals, &extracted.image.damaged);
    let before = exported.before + extracted.before;
    let file = exported
        .file
        .as_ref()
        .map(|file| file.display().to_string());
    let shown = damaged
        .iter()
        .take(UNREADABLE_SHOWN)
        .map(|path| path.as_str());
    if json {
        let shown: Vec<&str> = shown.collect();
        let document = serde_json::json!({
            "nodes": exported.nodes, "bytes": exported.bytes, "ephemerals_left_out": ephemerals,
            "damaged": damaged.len(), "damaged_paths": shown,
            "zxid": format!("{:#x}", exported.zxid), "file": file, "seconds": seconds,
            "nodes_from_before": before,
        });
        return println!("{document}");
    }
    row("nodes", grouped(exported.nodes as f64));
    if before > 0 {
        row("of an earlier export", grouped(before as f64));
    }
    row("bytes of data", grouped(exported.bytes as f64));
    row("ephemeral, left out", grouped(ephemerals as f64));
    row("zxid", format!("{:#x}", exported.zxid));
    if let Some(file) = file {
        row("file", file);
    }
    row("seconds", format!("{seconds:.1}"));
    if !damaged.is_empty() {
        let many = damaged.len();
        show_paths(
            &format!("{many} damaged nodes were left out, with all below them:"),
            damaged,
        );
    }
}

//! `plinth keeper server`: a gateway that serves ZooKeeper's clients from a cluster.

use crate::admin;
use crate::guests::ForGuests;
use crate::name::parse_tree;
use crate::zookeeper::ForClients;
use plinth_coordination::Family;
use plinth_identity::Identity;
use plinth_keeper::left::{self, State};
use plinth_keeper::{Doors, Keeper, Options};
use plinth_runtime::net::Chosen;
use plinth_runtime::{Duration, now, race, sleep, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::connect::{
    Connection, check_for_server, find_for_server, telling, with_remedy,
};
use plinth_terminal::numbers::within;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::serving::ServingArguments;
use plinth_terminal::tls::TlsArguments;
use plinth_terminal::{notify, pages, ports};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Address for ZooKeeper's clients [default: 127.0.0.1:2181, or none with --secure-listen]
    #[arg(long, value_name = "IP:PORT", value_parser = ports::parse_address)]
    listen: Option<SocketAddr>,
    /// Address for ZooKeeper's clients by TLS, ZooKeeper's secureClientPort; needs --tls-certificate-file and so on
    #[arg(id = "secure_listen", long = "secure-listen", value_name = "IP:PORT", value_parser = ports::parse_address)]
    secure_listen: Option<SocketAddr>,
    #[command(flatten)]
    guests: ForGuests,
    /// Cluster file of the cluster that keeps the nodes; without it $PLINTH_CLUSTER_FILE, else ./plinth.cluster
    #[arg(short = 'C', long, value_name = "FILE")]
    cluster_file: Option<PathBuf>,
    /// Name of the tree of nodes; a cluster can keep several, which know nothing of each other
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = parse_tree)]
    tree: String,
    #[command(flatten)]
    clients: ForClients,
    /// Address of a page for browsers (/), of ZooKeeper's AdminServer (/commands) and of a metrics page (/metrics).
    /// Beyond loopback it asks for a token if the cluster has keys: see plinth keys page-token
    #[arg(long, alias = "admin", value_name = "IP:PORT", value_parser = ports::parse_address)]
    pages: Option<SocketAddr>,
    /// Memory for nodes, in MiB
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within::<u64>(1..=1 << 20))]
    cache_mib: u64,
    #[command(flatten)]
    tls: TlsArguments,
    #[command(flatten)]
    serving: ServingArguments,
}

/// Whose database does not answer for so long is told.
const SILENCE: Duration = Duration::from_secs(5);
/// A database that answers says within this time what there is of a tree.
const STATE_LIMIT: Duration = Duration::from_secs(2);
/// A gateway waits for its log of operations no longer.
const OPENS_S: u64 = 30;
const LOOK: Duration = Duration::from_millis(500);
const REFUSALS_TOLD_EVERY: Duration = Duration::from_secs(60);

const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2181);

pub fn run(arguments: &Arguments) -> Outcome {
    let clients = &arguments.clients;
    let options = clients.options(arguments.tree.clone());
    let mut options = options.map_err(|line| format!("keeper server: {line}"))?;
    options.x509_super_user = arguments.guests.super_user();
    let cache = format!("keeper_cache_bytes_max={}", arguments.cache_mib << 20);
    arguments
        .serving
        .run(None, &[cache], serve(arguments, options))
}

/// Why a gateway does not listen yet.
async fn held_by(operations_log: Option<PathBuf>) -> Option<String> {
    let log = operations_log?;
    Some(format!(
        "operations log {}: another process writes it, or its disk is slow",
        log.display()
    ))
}

async fn serve(arguments: &Arguments, options: Options) -> Outcome {
    let first = arguments.listen.or(arguments.secure_listen);
    let first = first.unwrap_or(DEFAULT_LISTEN);
    let at = |line: String| format!("keeper server {first}: {line}");
    let mut doors = Doors {
        plain: arguments.listen.or(match arguments.secure_listen {
            Some(_) => None,
            None => Some(first),
        }),
        plain_by: Chosen::flag("--listen", arguments.listen.is_none()),
        secure: None,
        secure_by: Chosen::By("--secure-listen"),
    };
    let wanted = [
        (doors.plain, doors.plain_by),
        (arguments.secure_listen, doors.secure_by),
        (arguments.pages, Chosen::By(pages::flag())),
    ];
    let wanted = wanted.into_iter();
    let wanted = wanted.filter_map(|(address, chosen)| Some((address?, chosen)));
    ports::check_distinct(wanted).map_err(at)?;
    if let Some(address) = arguments.secure_listen {
        let read = arguments.guests.guests("--secure-listen", &arguments.tls);
        doors.secure = Some((address, read.await.map_err(at)?));
    }
    let settings = ForGuests::of_processes(&arguments.tls, doors.secure.is_some()).map_err(at)?;
    let given = arguments.cluster_file.as_deref();
    let file = find_for_server(given);
    check_for_server(&file, given).map_err(at)?;
    let loaded = Family::Store.load(&file, settings).await;
    let cluster = loaded.map_err(|error| at(with_remedy(error)))?;
    let (are_needed, key) = (cluster.is_tls, cluster.key());
    // A gateway needs no more, whatever its file gives.
    let credentials = cluster.credentials(Identity::Client);
    let connection = Connection::over(file.clone(), cluster, credentials, SILENCE);
    let in_common = options.in_common();
    let log = options.operations_log.clone();
    let listening = Keeper::listen(connection.database.clone(), doors, options);
    let keeper = telling(listening, OPENS_S, held_by(log)).await;
    let keeper = keeper.map_err(at)?;
    let listen = |address| {
        let keys = pages::Keys {
            cluster_file: &file,
            are_needed,
        };
        admin::listen(pages::flag(), address, keys)
    };
    let questions = arguments.pages.map(listen).transpose().map_err(at)?;
    notify::ready(&format!("keeper {first}: listens"));
    if arguments.serving.tells_of_itself() {
        tell_doors(&keeper, &file);
    }
    let store = Store {
        key,
        connection: &connection,
    };
    let answering = admin::answer(&keeper, store, questions);
    let serving = race(keeper.serve(), answering);
    let serving = race(serving, tell_when_stopped(&keeper, &at));
    let telling = tell(arguments, &keeper, &connection, &in_common);
    let serving = race(serving, telling);
    let ended = unless_interrupted(serving).await.map_err(&at)?;
    keeper.log_stop().await;
    match ended {
        None => Ok(()),
        Some(_) => keeper.stopped().map_or(Ok(()), |why| Err(at(why))),
    }
}

/// The database behind a gateway.
struct Store<'a> {
    key: String,
    connection: &'a Connection,
}

impl admin::Behind for Store<'_> {
    fn cluster(&self) -> String {
        self.key.clone()
    }

    async fn status(&self) -> Option<Value> {
        self.connection.status().await
    }
}

/// Says where it listens.
fn tell_doors(keeper: &Keeper, file: &Path) {
    let doors = [Some(keeper.address()), keeper.secure_address()];
    let mut doors: Vec<String> = doors.iter().flatten().map(ToString::to_string).collect();
    doors.dedup();
    plinth_terminal::say!(
        "plinth: keeper server: listens for ZooKeeper's clients at {}; its cluster is that of {}",
        doors.join(" and "),
        file.display()
    );
}

/// Tells of what operators should know, for ever, unless somebody else does.
async fn tell(arguments: &Arguments, keeper: &Keeper, connection: &Connection, in_common: &str) {
    if arguments.serving.tells_of_itself() {
        let most = arguments.clients.max_connections_per_address();
        let refusing = tell_of_refusals(keeper, most);
        let differing = tell_of_others(arguments, keeper, connection, in_common);
        let both = race(refusing, differing);
        race(tell_of_silence(arguments, keeper, connection), both).await;
    }
    std::future::pending().await
}

/// Says which other gateways of the tree have not what all should have in common, once this one serves.
async fn tell_of_others(
    arguments: &Arguments,
    keeper: &Keeper,
    connection: &Connection,
    in_common: &str,
) {
    while !keeper.is_in_touch() {
        sleep(LOOK).await;
    }
    let tree = &arguments.tree;
    let others = left::alive(&connection.database, tree).await;
    let own = keeper.address().to_string();
    for (address, theirs) in others.unwrap_or_default() {
        if address != own
            && let Some(line) = differing(&address, &theirs, in_common)
        {
            plinth_terminal::say!("plinth: keeper server: {line}");
        }
    }
    std::future::pending().await
}

/// The line about another gateway of the tree.
fn differing(address: &str, theirs: &str, own: &str) -> Option<String> {
    let differ = !theirs.is_empty() && theirs != own;
    differ.then(|| {
        format!(
            "the gateway at {address} serves the same tree with other flags: there are {theirs}, and here {own}; give \
             all the same --tick-ms, --min-session-timeout-ms, --max-session-timeout-ms and --enforce-quota"
        )
    })
}

/// Says which coordinators do not answer when the database has been silent for a while, and when it is there again.
async fn tell_of_silence(arguments: &Arguments, keeper: &Keeper, connection: &Connection) {
    let (mut heard, mut is_told) = (now(), false);
    // Nobody can open such a tree: that is known before the database has been silent for a while.
    let tree = &arguments.tree;
    let state = timeout(STATE_LIMIT, left::state_of(&connection.database, tree)).await;
    if let Some(Ok(state)) = state
        && let Some(why) = of_tree(tree, state).filter(|_| keeper.stopped().is_none())
    {
        plinth_terminal::say!("plinth: keeper server: its clients wait: {why}");
        is_told = true;
    }
    loop {
        sleep(LOOK).await;
        if keeper.is_in_touch() {
            heard = now();
            if is_told {
                plinth_terminal::say!("plinth: keeper server: its database answers again");
                is_told = false;
            }
        } else if !is_told && heard.elapsed() >= SILENCE && keeper.stopped().is_none() {
            let why = why_it_waits(arguments, connection).await;
            if !keeper.is_in_touch() {
                plinth_terminal::say!("plinth: keeper server: its clients wait: {why}");
                is_told = true;
            }
        }
    }
}

/// A tree that no gateway can open is the cause where the database answers.
async fn why_it_waits(arguments: &Arguments, connection: &Connection) -> String {
    let tree = &arguments.tree;
    let state = timeout(STATE_LIMIT, left::state_of(&connection.database, tree)).await;
    match state {
        Some(Ok(state)) => match of_tree(tree, state) {
            Some(line) => line,
            None => connection.explain_silence().await,
        },
        _ => connection.explain_silence().await,
    }
}

/// What is wrong with the tree; `None` if gateways can open it.
fn of_tree(tree: &str, state: State) -> Option<String> {
    let remedy = match state {
        State::Whole | State::Absent => return None,
        State::Importing => "let the import end, or begin it again".into(),
        _ => format!("`plinth keeper status --tree {tree}' says what to do"),
    };
    Some(format!("tree `{tree}': {state}; {remedy}"))
}

/// Says whose connections are refused because there are too many of them, and by which flag there may be more.
async fn tell_of_refusals(keeper: &Keeper, most: usize) {
    let mut told = 0;
    loop {
        sleep(LOOK).await;
        let (refused, address) = keeper.refused();
        if let Some(address) = address.filter(|_| refused > told) {
            let new = refused - told;
            plinth_terminal::say!(
                "plinth: keeper server: {address} has {most} connections, as many as an address may have: {new} more \
                 were refused (--max-connections-per-address)"
            );
            told = refused;
            sleep(REFUSALS_TOLD_EVERY).await;
        }
    }
}

/// A gateway whose tree is gone stays, for who asks its pages. Its log says why. (One that never had a tree ends with
/// that line, before this comes to its turn.)
async fn tell_when_stopped(keeper: &Keeper, at: impl Fn(String) -> String) {
    let why = keeper.until_stopped().await;
    plinth_terminal::say!("plinth: {}; it serves nobody", at(why));
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_with_other_flags_is_named_with_both() {
        let (a, b) = ("time-outs from 1 to 2 ms", "time-outs from 1 to 3 ms");
        assert_eq!(differing("10.0.0.1:2181", a, a), None);
        assert_eq!(
            differing("10.0.0.1:2181", "", a),
            None,
            "it is an older one"
        );
        let line = differing("10.0.0.1:2181", a, b).expect("they differ");
        for words in ["10.0.0.1:2181", a, b, "--tick-ms"] {
            assert!(line.contains(words), "{line}");
        }
    }

    #[test]
    fn a_tree_that_cannot_be_opened_is_told_as_the_cause() {
        assert_eq!(of_tree("a", State::Whole), None);
        assert_eq!(of_tree("a", State::Absent), None);
        let importing = of_tree("a", State::Importing).expect("nobody can open it");
        assert!(
            importing.contains("its import has not ended; let"),
            "{importing}"
        );
        let damaged = of_tree("a", State::Unreadable).expect("nobody can open it");
        assert!(
            damaged.contains("plinth keeper status --tree a"),
            "{damaged}"
        );
    }
}

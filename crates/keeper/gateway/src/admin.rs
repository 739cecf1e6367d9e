//! Administrators' four-letter words, in ZooKeeper's formats.

use crate::counters::Spread;
use crate::life::{Gateway, Life};
use crate::reads::system;
use crate::words::Word;
use crate::{dump, monitor};
use bytes::BufMut;
use plinth_core::output::Output;
use plinth_runtime::serve::Outbox;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::rc::Rc;

/// What the gateway calls itself where ZooKeeper names its version.
/// The form is the one that every client's parser reads.
pub const VERSION: &str = concat!(
    "3.9.3-plinth-",
    env!("CARGO_PKG_VERSION"),
    ", built on 10/17/2024 23:21 GMT"
);

/// Answers a word. The connection ends when the answer is written.
pub async fn answer_word(gateway: &Rc<Gateway>, word: Word, outbox: &Outbox) {
    if word.is_of_clickhouse() && !gateway.options.clickhouse {
        return; // as every word that is not known
    }
    let text = match gateway.options.words.has(word) {
        true => text_of(gateway, word).await,
        false => format!(
            "{} is not executed because it is not in the whitelist.\n",
            word.text()
        ),
    };
    let append = |out: &mut Output| {
        out.buffer().put_slice(text.as_bytes());
        Ok::<(), ()>(())
    };
    let _ = outbox.push(append); // nothing was pushed before
}

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

async fn text_of(gateway: &Gateway, word: Word) -> String {
    if word == Word::Ruok {
        return "imok".into();
    }
    let Some(life) = gateway.life.get() else {
        return match word {
            Word::Isro => "null".into(),
            _ => NOT_SERVING.into(),
        };
    };
    match word {
        Word::Ruok => "imok".into(),
        Word::Isro => if life.is_isolated() { "ro" } else { "rw" }.into(),
        Word::Stat => {
            format!(
                "Zookeeper version: {VERSION}\nClients:\n{}\n{}",
                connections(&life, true),
                server(gateway, &life)
            )
        }
        Word::Srvr => format!("Zookeeper version: {VERSION}\n{}", server(gateway, &life)),
        Word::Mntr => monitored(gateway, &life),
        Word::Cons => format!("{}\n", connections(&life, false)),
        Word::Dump => format!("{}{}", sessions(&life), ephemerals(&life).await),
        Word::Wchs => {
            let (watches, paths, clients) = life.clients.watches.borrow().counts();
            format!("{clients} connections watching {paths} paths\nTotal watches:{watches}\n")
        }
        Word::Wchc => watches_by(
            &life,
            |session, _| format!("{session:#x}"),
            |_, path| path.to_string(),
        ),
        Word::Wchp => watches_by(
            &life,
            |_, path| path.to_string(),
            |session, _| format!("{session:#x}"),
        ),
        Word::Conf => configuration(gateway),
        Word::Envi => format!(
            "Environment:\nzookeeper.version={VERSION}\nhost.name={}\n",
            gateway.address.ip()
        ),
        Word::Crst => {
            reset_connections(&life);
            "Connection stats reset.\n".into()
        }
        Word::Srst => {
            reset_statistics(gateway);
            "Server stats reset.\n".into()
        }
        Word::Dirs => "datadir_size: 0\nlogdir_size: 0\n".into(),
        Word::Gtmk | Word::Stmk | Word::Hash => String::new(), // on no list
        Word::Apiv => system::API_VERSION.into(),
        Word::Ftfl => system::FLAGS
            .iter()
            .map(|flag| format!("{flag}\t1\n"))
            .collect(),
        // There is no quorum that could be lost, nothing is counted anew, and memory is bounded.
        Word::Rcvr | Word::Rclc | Word::Clrs => "ok".into(),
        // The words of a keeper that cannot: here is neither a snapshot nor a leader.
        Word::Csnp => "Failed to schedule snapshot creation task.".into(),
        Word::Rqld | Word::Ydld => "Failed to send leadership request to leader.".into(),
        Word::Lgif => log_info(&life),
    }
}

/// There is one log for all, that of the database: a gateway knows how far it has followed.
fn log_info(life: &Life) -> String {
    let zxid = life.replica.zxid();
    format!(
        "first_log_idx\t0\nfirst_log_term\t0\nlast_log_idx\t{zxid}\nlast_log_term\t0\n\
         last_committed_log_idx\t{zxid}\nleader_committed_log_idx\t{zxid}\n\
         target_committed_log_idx\t{zxid}\nlast_snapshot_idx\t0\n"
    )
}

pub fn reset_statistics(gateway: &Gateway) {
    *gateway.counters.latency.borrow_mut() = Spread::default();
    gateway.counters.received.set(0);
    gateway.counters.sent.set(0);
}

pub fn reset_connections(life: &Life) {
    for connection in life.clients.connections.borrow().values() {
        connection.received.set(0);
        connection.sent.set(0);
    }
}

fn server(gateway: &Gateway, life: &Life) -> String {
    let counters = &gateway.counters;
    let latency = *counters.latency.borrow();
    let nodes = life.totals.get().nodes;
    format!(
        "Latency min/avg/max: {}/{:.1}/{}\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: {}\n\
         Zxid: {:#x}\nMode: {}\nNode count: {nodes}\n",
        latency.min_ms,
        latency.average_ms(),
        latency.max_ms,
        counters.received.get(),
        counters.sent.get(),
        life.clients.connections.borrow().len(),
        life.pipeline.queued(),
        life.replica.zxid(),
        mode(life),
    )
}

/// What ZooKeeper calls its role.
pub fn mode(life: &Life) -> &'static str {
    match life.is_isolated() {
        true => "read-only",
        false => "standalone",
    }
}

fn connections(life: &Life, is_brief: bool) -> String {
    let mut text = String::new();
    for connection in life.clients.connections.borrow().values() {
        let (session, timeout_ms) = (connection.session, connection.timeout_ms);
        let since_ms = connection.since.elapsed().as_millis();
        let more = match is_brief {
            true => String::new(),
            false => format!(",sid={session:#x},to={timeout_ms},est={since_ms}"),
        };
        let (received, sent) = (connection.received.get(), connection.sent.get());
        let counts = (connection.pending.get(), received, sent);
        text.push_str(&connection_line(connection.peer, counts, &more));
    }
    text
}

/// With the numbers of requests that wait, that have come, and of answers.
fn connection_line(peer: SocketAddr, counts: (usize, u64, u64), more: &str) -> String {
    let (queued, received, sent) = counts;
    format!(" /{peer}[1](queued={queued},recved={received},sent={sent}{more})\n")
}

fn monitored(gateway: &Gateway, life: &Life) -> String {
    let state = mode(life);
    let mut text = format!("zk_version\t{VERSION}\nzk_server_state\t{state}\n");
    let mut add = |name: &str, value: f64| {
        let _ = match value.fract() == 0.0 {
            true => writeln!(text, "zk_{name}\t{value}"),
            false => writeln!(text, "zk_{name}\t{value:.4}"),
        };
    };
    for (family, value) in monitor::numbers(gateway, life) {
        add(family.name, value);
    }
    for (family, name, value) in monitor::quotas(gateway, life) {
        add(&format!("{name}_{}", family.name), value);
    }
    for (name, is_write) in [("readlatency", false), ("updatelatency", true)] {
        for (name, value) in monitor::latencies(gateway, name, is_write) {
            add(&name, value);
        }
    }
    text
}

fn sessions(life: &Life) -> String {
    let sessions = life.clients.sessions.borrow();
    let mut text = format!("SessionTracker dump:\nSession Sets ({}):\n", sessions.len());
    for (session, owned) in sessions.iter() {
        let _ = writeln!(text, "\t{session:#x}\t{}ms", owned.timeout.as_millis());
    }
    text
}

/// The ephemeral nodes of this gateway's sessions.
async fn ephemerals(life: &Life) -> String {
    let mut text = "ephemeral nodes dump:\n".to_string();
    let Some(found) = dump::ephemerals(life).await else {
        text.push_str("The database cannot be reached\n");
        return text;
    };
    let _ = writeln!(text, "Sessions with Ephemerals ({}):", found.len());
    for (session, paths) in found {
        let _ = writeln!(text, "{session:#x}:");
        for path in paths {
            let _ = writeln!(text, "\t{path}");
        }
    }
    text
}

/// Every watch: its session and its path.
pub fn watches(life: &Life) -> Vec<(i64, Rc<str>)> {
    let connections = life.clients.connections.borrow();
    let watches = life.clients.watches.borrow().list().into_iter();
    watches
        .filter_map(|(client, path)| Some((connections.get(&client)?.session, path)))
        .collect()
}

/// Watches in groups: each group's name, then its members.
fn watches_by(
    life: &Life,
    group: impl Fn(i64, &str) -> String,
    member: impl Fn(i64, &str) -> String,
) -> String {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (session, path) in watches(life) {
        let members = groups.entry(group(session, &path)).or_default();
        members.push(member(session, &path));
    }
    let mut text = String::new();
    for (group, members) in groups {
        let _ = writeln!(text, "{group}");
        for member in members {
            let _ = writeln!(text, "\t{member}");
        }
    }
    text
}

/// As ZooKeeper shows a port that there may be.
pub fn port(address: Option<SocketAddr>) -> i32 {
    address.map_or(-1, |address| address.port().into())
}

fn configuration(gateway: &Gateway) -> String {
    let options = &gateway.options;
    let (shortest, longest) = options.session_timeouts_ms();
    format!(
        "clientPort={}\nsecureClientPort={}\ndataDir=\ndataLogDir=\ntickTime={}\nmaxClientCnxns={}\n\
         minSessionTimeout={shortest}\nmaxSessionTimeout={longest}\nserverId=0\n",
        port(gateway.plain),
        port(gateway.secure.as_ref().map(|secure| secure.address)),
        options.tick_ms,
        options.max_connections_per_address,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_told_of_in_the_form_that_parsers_expect() {
        let peer = SocketAddr::from(([10, 0, 0, 1], 4711));
        let brief = " /10.0.0.1:4711[1](queued=1,recved=2,sent=3)\n";
        assert_eq!(connection_line(peer, (1, 2, 3), ""), brief);
        let more = " /10.0.0.1:4711[1](queued=1,recved=2,sent=3,sid=0x7)\n";
        assert_eq!(connection_line(peer, (1, 2, 3), ",sid=0x7"), more);
    }
}

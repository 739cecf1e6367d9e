//! Administrators' four-letter words, in ZooKeeper's formats.

use crate::counters::Latency;
use crate::life::{Gateway, Life};
use bytes::BufMut;
use plinth_core::output::Output;
use plinth_runtime::serve::Outbox;
use std::fmt::Write;
use std::net::SocketAddr;
use std::rc::Rc;

/// What the gateway calls itself where ZooKeeper names its version.
/// The form is the one that every client's parser reads.
const VERSION: &str = concat!(
    "3.9.3-plinth-",
    env!("CARGO_PKG_VERSION"),
    ", built on 10/17/2024 23:21 GMT"
);

macro_rules! words {
    ($($name:ident = $text:literal;)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Word { $($name),* }
        impl Word {
            pub fn parse(bytes: &[u8; 4]) -> Option<Word> {
                match bytes {
                    $($text => Some(Word::$name),)*
                    _ => None,
                }
            }
        }
    };
}

words! {
    Ruok = b"ruok";
    Stat = b"stat";
    Srvr = b"srvr";
    Mntr = b"mntr";
    Cons = b"cons";
    Dump = b"dump";
    Wchs = b"wchs";
    Wchc = b"wchc";
    Wchp = b"wchp";
    Conf = b"conf";
    Envi = b"envi";
    Isro = b"isro";
    Crst = b"crst";
    Srst = b"srst";
    Dirs = b"dirs";
}

/// Answers a word. The connection ends when the answer is written.
pub fn answer_word(gateway: &Rc<Gateway>, word: Word, outbox: &Outbox) {
    let text = text_of(gateway, word);
    let append = |out: &mut Output| {
        out.buffer().put_slice(text.as_bytes());
        Ok::<(), ()>(())
    };
    let _ = outbox.push(append); // nothing was pushed before
}

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

fn text_of(gateway: &Gateway, word: Word) -> String {
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
        Word::Mntr => monitor(gateway, &life),
        Word::Cons => format!("{}\n", connections(&life, false)),
        Word::Dump => sessions(&life),
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
            for connection in life.clients.connections.borrow().values() {
                connection.received.set(0);
                connection.sent.set(0);
            }
            "Connection stats reset.\n".into()
        }
        Word::Srst => {
            *gateway.counters.latency.borrow_mut() = Latency::default();
            gateway.counters.received.set(0);
            gateway.counters.sent.set(0);
            "Server stats reset.\n".into()
        }
        Word::Dirs => "datadir_size: 0\nlogdir_size: 0\n".into(),
    }
}

fn average(latency: &Latency) -> f64 {
    match latency.count {
        0 => 0.0,
        count => latency.total_ms as f64 / count as f64,
    }
}

fn server(gateway: &Gateway, life: &Life) -> String {
    let counters = &gateway.counters;
    let latency = *counters.latency.borrow();
    let (nodes, _) = life.replica.cached();
    format!(
        "Latency min/avg/max: {}/{:.1}/{}\nReceived: {}\nSent: {}\nConnections: {}\nOutstanding: {}\n\
         Zxid: {:#x}\nMode: standalone\nNode count: {nodes}\n",
        latency.min_ms,
        average(&latency),
        latency.max_ms,
        counters.received.get(),
        counters.sent.get(),
        life.clients.connections.borrow().len(),
        life.pipeline.queued(),
        life.replica.zxid(),
    )
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
        text.push_str(&connection_line(connection.peer, received, sent, &more));
    }
    text
}

fn connection_line(peer: SocketAddr, received: u64, sent: u64, more: &str) -> String {
    format!(" /{peer}[1](queued=0,recved={received},sent={sent}{more})\n")
}

fn monitor(gateway: &Gateway, life: &Life) -> String {
    let counters = &gateway.counters;
    let latency = *counters.latency.borrow();
    let (watches, _, _) = life.clients.watches.borrow().counts();
    let (nodes, bytes) = life.replica.cached();
    let rows: [(&str, String); 14] = [
        ("version", VERSION.into()),
        ("server_state", "standalone".into()),
        ("avg_latency", format!("{:.4}", average(&latency))),
        ("max_latency", latency.max_ms.to_string()),
        ("min_latency", latency.min_ms.to_string()),
        ("packets_received", counters.received.get().to_string()),
        ("packets_sent", counters.sent.get().to_string()),
        (
            "num_alive_connections",
            life.clients.connections.borrow().len().to_string(),
        ),
        ("outstanding_requests", life.pipeline.queued().to_string()),
        ("watch_count", watches.to_string()),
        (
            "global_sessions",
            life.clients.sessions.borrow().len().to_string(),
        ),
        ("uptime", gateway.started.elapsed().as_millis().to_string()),
        ("plinth_cached_nodes", nodes.to_string()),
        ("plinth_cached_bytes", bytes.to_string()),
    ];
    rows.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "zk_{name}\t{value}");
        text
    })
}

fn sessions(life: &Life) -> String {
    let sessions = life.clients.sessions.borrow();
    let mut text = format!("SessionTracker dump:\nSession Sets ({}):\n", sessions.len());
    for (session, owned) in sessions.iter() {
        let _ = writeln!(text, "\t{session:#x}\t{}ms", owned.timeout.as_millis());
    }
    text
}

/// Watches in groups: each group's name, then its members.
fn watches_by(
    life: &Life,
    group: impl Fn(i64, &str) -> String,
    member: impl Fn(i64, &str) -> String,
) -> String {
    let connections = life.clients.connections.borrow();
    let mut groups: std::collections::BTreeMap<String, Vec<String>> = Default::default();
    for (client, path) in life.clients.watches.borrow().list() {
        if let Some(connection) = connections.get(&client) {
            let session = connection.session;
            groups
                .entry(group(session, &path))
                .or_default()
                .push(member(session, &path));
        }
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

fn configuration(gateway: &Gateway) -> String {
    let tick = gateway.options.tick_ms;
    format!(
        "clientPort={}\nsecureClientPort=-1\ndataDir=\ndataLogDir=\ntickTime={tick}\nmaxClientCnxns=0\n\
         minSessionTimeout={}\nmaxSessionTimeout={}\nserverId=0\n",
        gateway.address.port(),
        2 * tick,
        20 * tick,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_told_of_in_the_form_that_parsers_expect() {
        let peer = SocketAddr::from(([10, 0, 0, 1], 4711));
        let brief = " /10.0.0.1:4711[1](queued=0,recved=2,sent=3)\n";
        assert_eq!(connection_line(peer, 2, 3, ""), brief);
        let more = " /10.0.0.1:4711[1](queued=0,recved=2,sent=3,sid=0x7)\n";
        assert_eq!(connection_line(peer, 2, 3, ",sid=0x7"), more);
    }
}

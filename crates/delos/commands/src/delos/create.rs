//! `plinth delos create`: makes a service of processes that wait for one.

use super::kinds::names;
use super::names::{At, file_name, parse_at, parse_service_name};
use super::service::{RETRY_PAUSE, Service, ask};
use plinth_coordination::certificates::{Tls, missing};
use plinth_coordination::{ClusterFile, Coordinators, key_file, places};
use plinth_core::Error;
use plinth_core::similar::{most_similar, question};
use plinth_delos::coordinated_register::CoordinatedRegister;
use plinth_delos::quorum::client::QuorumLoglets;
use plinth_delos::quorum::messages::{Config, SERVERS_MAX};
use plinth_delos::replica::identity::is_name;
use plinth_delos::replica::messages::{Adopt, Greet, Greeting, SwitchEngine};
use plinth_delos::virtual_log::VirtualLog;
use plinth_identity::Identity;
use plinth_rpc::Transport;
use plinth_runtime::{Duration, join_all, now, random, sleep, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::choices::{among, expected};
use plinth_terminal::connect::telling;
use plinth_terminal::numbers::seconds_within;
use plinth_terminal::tls::TlsArguments;
use plinth_terminal::wording::counted;
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// On from the beginning. Lease, Time and BrainDoctor are for those who want them.
const ENGINES: [&str; 3] = ["view_tracking", "session_order", "batching"];
/// Two of five may be gone. More would only make each change of the log's map slower.
pub const COORDINATORS_MAX: usize = 5;
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// What does not know the question after this time is another system's process.
const START_LIMIT: Duration = Duration::from_secs(3);

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Name of the service
    #[arg(value_name = "NAME", value_parser = parse_service_name)]
    pub name: String,
    /// Kind of service: lock, queue, table, zelos, or one that the processes have of their own
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    #[arg(value_parser = among(names(), parse_any_kind))]
    pub kind: String,
    /// A replica: its name, and where its process listens; once for each. With :tls behind every address, all that
    /// use the service speak TLS with it
    #[arg(long = "replica", value_name = "NAME=IP:PORT", required = true, value_parser = parse_at)]
    pub replicas: Vec<At>,
    /// File of the service, for all other commands; without it NAME.delos in the current directory
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Seconds to wait for the processes before giving up; the same may be tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = seconds_within(1..=86_400))]
    pub timeout: u64,
    #[command(flatten)]
    pub tls: TlsArguments,
}

/// Programs of users have kinds that this one does not know.
fn parse_any_kind(name: &str) -> Result<String, String> {
    match is_name(name) {
        true => Ok(name.into()),
        false => Err("expected a word of letters, digits, '-', '_' and '.'".into()),
    }
}

/// One of the kinds of `plinth delos server`.
pub fn parse_kind(name: &str) -> Result<String, String> {
    let kinds: Vec<&str> = names().collect();
    match kinds.contains(&name) {
        true => Ok(name.into()),
        false => Err(expected(name, kinds)),
    }
}

/// How many of so many replicas are coordinators, and how many log servers keep the log: an odd number, because one
/// more process that may fail must not be one more that is needed.
pub fn seats(replicas: usize, most: usize) -> usize {
    let most = replicas.min(most);
    most.saturating_sub((most + 1) % 2)
}

pub async fn run(arguments: &Arguments) -> Outcome {
    let path = arguments.file.clone();
    let path = path.unwrap_or_else(|| file_name(&arguments.name).into());
    check_file(&path).await?;
    // The processes have the last word, and may not answer.
    if !names().any(|name| name == arguments.kind)
        && let Some(near) = most_similar(&arguments.kind, names())
    {
        plinth_terminal::say!(
            "plinth: --kind {}: this program has no such kind; did you mean `{near}'?",
            arguments.kind
        );
    }
    let file = create(arguments, &path).await?;
    if arguments.json {
        println!(
            "{}",
            json!({ "service": file.to_string(), "file": path.display().to_string() })
        );
        return Ok(());
    }
    println!(
        "service {} of kind {}, with {}",
        arguments.name,
        arguments.kind,
        counted(arguments.replicas.len(), "replica", "replicas")
    );
    println!("its file: {}", path.display());
    tell_alone(&arguments.replicas);
    Ok(())
}

/// Says which replicas of a new service must stay up.
pub fn tell_alone(replicas: &[At]) {
    let names: Vec<&str> = replicas.iter().map(|at| &at.name[..]).collect();
    let log = &names[..seats(names.len(), SERVERS_MAX)];
    if let Some(line) = alone(log, names.len()) {
        println!("{line}");
    }
}

/// The line about log servers that are few although there are other replicas, or would be if there were more.
pub fn alone(log_servers: &[&str], replicas: usize) -> Option<String> {
    let remedy = match replicas {
        0 | 1 => return None,
        2 => "add a third replica",
        _ => "`plinth delos reconfigure-log' lets others take part",
    };
    match log_servers {
        [one] => Some(format!("all entries are on {one} alone: {remedy}")),
        [one, other] => Some(format!("the log needs both {one} and {other}: {remedy}")),
        _ => None,
    }
}

/// Refuses a file that is there.
pub async fn check_file(path: &Path) -> Outcome {
    match plinth_runtime::disk::exists(path).await {
        Ok(true) => Err(format!(
            "service file {} is there already: choose another name, or another --file",
            path.display()
        )),
        Ok(false) => Ok(()),
        Err(error) => Err(format!(
            "service file {}: {error}: choose another --file",
            path.display()
        )),
    }
}

pub async fn save(file: &ClusterFile, path: &Path) -> Outcome {
    let saved = file.save(path).await;
    saved.map_err(|error| {
        format!(
            "service file {}: {error}; choose another --file",
            path.display()
        )
    })
}

/// Refuses replicas that nobody can tell apart, or of which only some speak TLS.
pub fn check(replicas: &[At]) -> Outcome {
    for (i, one) in replicas.iter().enumerate() {
        for other in &replicas[i + 1..] {
            if one.name == other.name || one.address == other.address {
                return Err(format!(
                    "replicas {}={} and {}={}: each needs a name and an address of its own",
                    one.name, one.address, other.name, other.address
                ));
            }
        }
    }
    if replicas
        .windows(2)
        .any(|two| two[0].is_tls != two[1].is_tls)
    {
        return Err("some replicas have :tls behind their addresses and others do not".into());
    }
    match replicas.len() > SERVERS_MAX {
        true => Err(format!("a service has at most {SERVERS_MAX} replicas")),
        false => Ok(()),
    }
}

/// Makes the service and writes its file. After a failure the same may be tried again.
pub async fn create(arguments: &Arguments, path: &Path) -> Outcome<ClusterFile> {
    let replicas = &arguments.replicas;
    check(replicas)?;
    let new = new_file(&arguments.name, replicas, path, &arguments.tls).await?;
    let transport = Transport::client_with(new.credentials(Identity::Server));
    let (begun, limit) = (now(), Duration::from_secs(arguments.timeout));
    let greetings = greet_all(&transport, replicas, arguments.timeout).await?;
    let left = limit.saturating_sub(begun.elapsed());
    let file = timeout(left, make(&transport, arguments, new, greetings)).await;
    let file = file.unwrap_or_else(|| {
        Err(format!(
            "service {} is not ready after {} s; when the processes of its replicas run, try the same again",
            arguments.name, arguments.timeout
        ))
    })?;
    save(&file, path).await?;
    Ok(file)
}

async fn make(
    transport: &Transport,
    arguments: &Arguments,
    new: ClusterFile,
    greetings: Vec<Greeting>,
) -> Outcome<ClusterFile> {
    let replicas = &arguments.replicas;
    let file = choose_file(arguments, &greetings, new)?;
    adopt_others(transport, replicas, &file, &arguments.kind).await?;
    make_log(transport, &file, &greetings, replicas, 1).await?;
    let service = Service::of(file.clone(), arguments.timeout);
    await_all(&service, replicas.len()).await?;
    for engine in ENGINES {
        let (engine, on) = (engine.to_string(), true);
        service.operate(SwitchEngine { engine, on }).await?;
    }
    Ok(file)
}

/// Waits until all processes answer, for so many seconds.
pub async fn greet_all(
    transport: &Transport,
    replicas: &[At],
    seconds: u64,
) -> Outcome<Vec<Greeting>> {
    let limit = Duration::from_secs(seconds);
    let greet = |at: &At| timeout(limit, greet(transport.clone(), at.clone()));
    let greeting = join_all(replicas.iter().map(greet).collect::<Vec<_>>());
    let all: Vec<String> = replicas.iter().map(|at| at.address.to_string()).collect();
    let why = async { Some(format!("not all processes answer at {}", all.join(", "))) };
    let heard = telling(greeting, seconds, why).await;
    if let Some(Err(line)) = heard.iter().flatten().find(|heard| heard.is_err()) {
        return Err(line.clone());
    }
    let all = replicas.iter().zip(&heard);
    let silent = all.filter(|(_, heard)| heard.is_none());
    let silent: Vec<String> = silent.map(|(at, _)| at.address.to_string()).collect();
    match silent.is_empty() {
        true => heard.into_iter().flatten().collect(),
        false => Err(format!(
            "no process answers at {} within {seconds} s: start `plinth delos server' there, and try the same again",
            silent.join(", ")
        )),
    }
}

/// Makes these processes replicas of the service.
pub async fn adopt_others(
    transport: &Transport,
    replicas: &[At],
    file: &ClusterFile,
    kind: &str,
) -> Outcome {
    for at in replicas {
        adopt(transport, at, file, kind).await?;
    }
    Ok(())
}

/// Makes the log of the service, which begins at this position, unless there is one.
pub async fn make_log(
    transport: &Transport,
    file: &ClusterFile,
    greetings: &[Greeting],
    replicas: &[At],
    begin: u64,
) -> Outcome {
    let servers = greetings.iter().map(|greeting| greeting.log_server);
    let servers: Vec<_> = servers.collect();
    let config = Config {
        loglet: plinth_core::Uid(random::uid()),
        sequencer: replicas[0].address,
        servers: servers[..seats(servers.len(), SERVERS_MAX)].to_vec(),
    };
    let coordinators = Coordinators::from(file.clone());
    let register = CoordinatedRegister::new(transport, &coordinators);
    let loglets = QuorumLoglets {
        transport: transport.clone(),
    };
    let log = VirtualLog::open_from(register, loglets, begin, config.to_description()).await;
    log.map(drop)
        .map_err(|error| format!("the map of the log: {error}"))
}

/// A service's file that nobody has used, with the keys beside `path`, where it is to lie, and the certificates of
/// this process.
pub async fn new_file(
    name: &str,
    replicas: &[At],
    path: &Path,
    tls: &TlsArguments,
) -> Outcome<ClusterFile> {
    let is_tls = replicas.iter().any(|at| at.is_tls);
    let certificates = Tls::read(tls.settings()).await?;
    tls.tell_if_unused(is_tls, "--replica");
    if is_tls && certificates.is_none() {
        return Err(missing("--replica NAME=IP:PORT:tls"));
    }
    Ok(ClusterFile {
        description: name.into(),
        id: format!("{:016x}", random::u64()),
        coordinators: places(coordinators(replicas)),
        keys: key_file::keyring(path).await?,
        is_tls,
        certificates,
    })
}

fn coordinators(replicas: &[At]) -> Vec<SocketAddr> {
    let addresses = replicas.iter().map(|at| at.address);
    addresses
        .take(seats(replicas.len(), COORDINATORS_MAX))
        .collect()
}

/// The service's file: that of an attempt before this one, which may have stopped on the way, or the new one.
fn choose_file(
    arguments: &Arguments,
    greetings: &[Greeting],
    new: ClusterFile,
) -> Outcome<ClusterFile> {
    let mut former: Option<ClusterFile> = None;
    for (at, greeting) in arguments.replicas.iter().zip(greetings) {
        if !greeting.kinds.contains(&arguments.kind) {
            return Err(format!(
                "the process at {} has no kind {:?}; {}it has {}",
                at.address,
                arguments.kind,
                question(&arguments.kind, greeting.kinds.iter().map(String::as_str)),
                greeting.kinds.join(", ")
            ));
        }
        if greeting.service.is_empty() {
            continue;
        }
        let of = ClusterFile::parse(&greeting.service).ok();
        let is_same = |of: &ClusterFile| {
            of.description == new.description
                && of.coordinators == new.coordinators
                && former.as_ref().is_none_or(|former| former == of)
        };
        match of.filter(is_same) {
            Some(of) if of.is_tls != new.is_tls => {
                return Err(format!(
                    "the process at {} is replica {:?} of it already, {} :tls: say all addresses so",
                    at.address,
                    greeting.name,
                    if of.is_tls { "with" } else { "without" }
                ));
            }
            Some(of) => former = Some(of),
            None => {
                return Err(format!(
                    "the process at {} is replica {:?} of another service, {}",
                    at.address, greeting.name, greeting.service
                ));
            }
        }
    }
    Ok(match former {
        Some(former) => ClusterFile {
            id: former.id,
            ..new
        },
        None => new,
    })
}

/// Waits until the process answers.
pub async fn greet(transport: Transport, at: At) -> Outcome<Greeting> {
    let begun = now();
    loop {
        match ask(&transport, at.address, Greet {}, ASK_LIMIT).await {
            Ok(greeting) => return Ok(greeting),
            Err(Error::permission_denied) => {
                return Err(format!(
                    "the process at {} answers servers only; put its key file beside the service's file, as \
                     NAME.keys, or show a server's certificate, with :tls behind each address",
                    at.address
                ));
            }
            // It may be starting.
            Err(Error::broken_promise) if begun.elapsed() > START_LIMIT => {
                return Err(format!(
                    "the process at {} is no `plinth delos server': start one there at another port, or end that \
                     process",
                    at.address
                ));
            }
            Err(_) => {
                let refusal = transport.ungreeted(&at.address.into());
                if let Some(refusal) = refusal.filter(|_| transport.is_denied(&at.address.into())) {
                    return Err(format!("the process at {}: {refusal}", at.address));
                }
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

pub async fn adopt(transport: &Transport, at: &At, file: &ClusterFile, kind: &str) -> Outcome {
    let adopt = Adopt {
        service: file.to_string(),
        kind: kind.into(),
        name: at.name.clone(),
    };
    let told = ask(transport, at.address, adopt, ASK_LIMIT).await;
    let told = told.map_err(|error| format!("the process at {}: {error}", at.address))?;
    match told.refused.is_empty() {
        true => Ok(()),
        false => Err(format!("the process at {}: {}", at.address, told.refused)),
    }
}

/// Waits until so many replicas are in the roster and serve.
pub async fn await_all(service: &Service, count: usize) -> Outcome {
    loop {
        let seen = service.look().await?;
        if seen.iter().filter(|seen| seen.serves()).count() == count {
            return Ok(());
        }
        sleep(RETRY_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_process_is_not_one_more_that_is_needed() {
        let of = [1, 2, 3, 4, 5, 6, 7].map(|replicas| seats(replicas, 5));
        assert_eq!(of, [1, 1, 3, 3, 5, 5, 5]);
    }

    #[test]
    fn who_has_all_entries_alone_is_named_with_the_remedy() {
        assert_eq!(alone(&["a"], 1), None);
        assert_eq!(alone(&["a", "b", "c"], 3), None);
        for (log_servers, replicas, line) in [
            (
                &["a"][..],
                2,
                "all entries are on a alone: add a third replica",
            ),
            (
                &["a", "b"],
                2,
                "the log needs both a and b: add a third replica",
            ),
            (
                &["b"],
                3,
                "all entries are on b alone: `plinth delos reconfigure-log' lets others take part",
            ),
        ] {
            assert_eq!(alone(log_servers, replicas).as_deref(), Some(line));
        }
    }
}

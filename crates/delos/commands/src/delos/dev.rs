//! `plinth delos dev`: a service on this machine, whose replicas are child processes.
//!
//! ```text
//! DIR/NAME.delos     the service's file
//! DIR/NAME.keys      its keys
//! DIR/NAME.dev.json  the ports beside those of the replicas, as they were said last
//! DIR/<replica>/     data directory of a replica, with trace.jsonl; its service.keys leads to NAME.keys
//! ```
//! Whoever has no key uses the service, and changes nothing about it.
//!
//! A process that dies is started again. When this process ends, for any reason, the others end too.

use super::create::{self, parse_kind};
use super::kinds::{ZELOS, names};
use super::names::{At, file_name, meant, parse_service_name};
use super::server::ZOOKEEPER_PORT;
use super::service::load;
use plinth_coordination::{Tenant, cannot_use, key_file};
use plinth_delos::replica::identity::{self, service_file};
use plinth_keeper_commands::zookeeper::ForClients;
use plinth_runtime::net::Chosen;
use plinth_runtime::{Either, race};
use plinth_terminal::children::{self, Supervised, first_end, keep_alive, stop};
use plinth_terminal::choices::among;
use plinth_terminal::commands::wrong_usage;
use plinth_terminal::knobs::parse_knob;
use plinth_terminal::numbers::within;
use plinth_terminal::ports::Claims;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::remembered::{Remembered, chosen};
use plinth_terminal::tls::TlsArguments;
use plinth_terminal::wording::{counted, pasted};
use plinth_terminal::{Outcome, connect, keys};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const REPLICAS: u16 = 3;
const REPLICAS_MAX: u16 = 15;
/// Of the first replica.
const PORT: u16 = 4700;
/// Flags whose ports are remembered.
const PAGES: &str = "--pages-port";
const ZOOKEEPER: &str = "--zookeeper-port";
const ZOOKEEPER_ADMIN: &str = "--zookeeper-admin-port";

#[derive(clap::Args, Clone, Debug)]
pub struct Arguments {
    /// Name of the service
    #[arg(value_name = "NAME", value_parser = parse_service_name)]
    name: String,
    /// Kind of service: lock, queue, table, zelos. One that is resumed has its own
    #[arg(long, value_name = "KIND", hide_possible_values = true)]
    #[arg(value_parser = among(names(), parse_kind))]
    kind: Option<String>,
    /// Replicas, each a process [default: 3, or those of the service that is resumed]
    #[arg(long, value_name = "N", value_parser = within::<u16>(1..=i64::from(REPLICAS_MAX)))]
    replicas: Option<u16>,
    /// Directory for all files; if it holds this service already, it is resumed
    #[arg(long, value_name = "DIR", default_value = "plinth-delos")]
    data_dir: PathBuf,
    /// Port of the first replica; the others take the ports after it [default: 4700, or that of the service that is
    /// resumed]
    #[arg(long, value_name = "PORT", value_parser = within::<u16>(1..))]
    port: Option<u16>,
    /// Port for ZooKeeper's clients of the first replica of kind zelos; the others take the ports after it
    /// [default: 2181, or that of the service that is resumed]
    #[arg(long, value_name = "PORT", value_parser = within::<u16>(1..))]
    zookeeper_port: Option<u16>,
    /// Port of the AdminServer (/commands) of the first replica of kind zelos; the others take the ports after it; 0:
    /// none any more [default: none, or that of the service that is resumed]
    #[arg(long, value_name = "PORT", value_parser = within::<u16>(0..))]
    zookeeper_admin_port: Option<u16>,
    #[command(flatten)]
    clients: ForClients,
    /// Set a limit or an interval of the replicas; `plinth server --knob list` shows all knobs
    #[arg(long = "knob", value_name = "NAME=VALUE", value_parser = parse_knob)]
    knobs: Vec<String>,
    /// Port of the first replica's metrics page (/metrics, for Prometheus); the others take the ports after it; 0:
    /// none any more [default: none, or that of the service that is resumed]
    #[arg(long, alias = "metrics-port", value_name = "PORT", value_parser = within::<u16>(0..))]
    pages_port: Option<u16>,
}

impl Arguments {
    fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or_default()
    }

    fn replicas(&self) -> u16 {
        self.replicas.unwrap_or(REPLICAS)
    }

    fn port(&self) -> u16 {
        self.port.unwrap_or(PORT)
    }

    /// With what the service in the directory has, if there is one, where nothing else was said; and the ports that
    /// the next call is to find there.
    async fn resumed(&self) -> Outcome<(Arguments, Remembered)> {
        let mut resumed = self.clone();
        let path = self.data_dir.join(file_name(&self.name));
        let beside = self.data_dir.join(format!("{}.dev.json", self.name));
        let mut ports = Remembered::none(beside.clone());
        if path.exists() {
            ports = Remembered::load(beside).await?;
            let file = load(&path, &TlsArguments::default()).await?;
            resumed.port = self
                .port
                .or_else(|| file.addresses().first().map(SocketAddr::port));
            let directory = |i| self.data_dir.join(self.replica(i).name);
            let there = (0..REPLICAS_MAX).take_while(|i| directory(*i).join("replica").exists());
            let there = u16::try_from(there.count()).expect("it is below the limit");
            resumed.replicas = self.replicas.or(Some(there).filter(|there| *there > 0));
            // What cannot be read says so when it is opened.
            let first = identity::Identity::load(&directory(0)).await.ok().flatten();
            resumed.kind = self.kind.clone().or(first.map(|first| first.kind));
        }
        resumed.pages_port = ports.port(PAGES, self.pages_port);
        resumed.zookeeper_port = ports.port(ZOOKEEPER, self.zookeeper_port);
        resumed.zookeeper_admin_port = ports.port(ZOOKEEPER_ADMIN, self.zookeeper_admin_port);
        Ok((resumed, ports))
    }

    /// The line about a service that is not there, and has no kind.
    fn without_kind(&self) -> String {
        let kinds = names().collect::<Vec<_>>().join(", ");
        match meant(&self.data_dir.join(file_name(&self.name))) {
            Some(question) => format!(
                "there is no service `{}' in {}; {question} A new one has a kind: --kind says which of {kinds}",
                self.name,
                pasted(&self.data_dir)
            ),
            None => format!("--kind: a new service has one: {kinds}"),
        }
    }

    fn is_zelos(&self) -> bool {
        self.kind() == ZELOS
    }

    /// Where ZooKeeper's clients find the replica with the number `i`.
    fn zookeeper(&self, i: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.first_zookeeper() + i)
    }

    fn first_zookeeper(&self) -> u16 {
        self.zookeeper_port.unwrap_or(ZOOKEEPER_PORT)
    }

    /// Refuses what is said about ZooKeeper's clients of a service that has none.
    fn check_kind(&self) -> Outcome {
        let own = [
            (ZOOKEEPER, self.zookeeper_port.is_some()),
            (ZOOKEEPER_ADMIN, self.zookeeper_admin_port.is_some()),
        ];
        let own = own.iter().find(|(_, is_said)| *is_said);
        let said = own
            .map(|(flag, _)| *flag)
            .or_else(|| self.clients.first_said());
        match said.filter(|_| !self.is_zelos()) {
            None => Ok(()),
            Some(flag) => Err(format!(
                "{flag}: a service of kind {} has no clients of ZooKeeper; leave the flag out, or make one of kind \
                 {ZELOS} with --kind {ZELOS}",
                self.kind()
            )),
        }
    }

    fn replica(&self, i: u16) -> At {
        At {
            name: format!("{}-{}", self.name, i + 1),
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port() + i),
            is_tls: false,
        }
    }
}

pub fn run(arguments: &Arguments) -> Outcome {
    let said = arguments;
    let (arguments, ports) = &connect::block_on(said.resumed())?;
    if arguments.kind.is_none() {
        wrong_usage(&arguments.without_kind());
    }
    if let Err(line) = arguments.check_kind() {
        wrong_usage(&line);
    }
    let zookeeper = arguments.is_zelos().then(|| arguments.first_zookeeper());
    for (flag, first) in [
        ("--port", Some(arguments.port())),
        (PAGES, arguments.pages_port),
        (ZOOKEEPER, zookeeper),
        (ZOOKEEPER_ADMIN, arguments.zookeeper_admin_port),
    ] {
        let first = first.unwrap_or(1);
        if u32::from(first) + u32::from(arguments.replicas()) > 1 << 16 {
            return Err(format!(
                "ports from {first} on do not suffice for {} replicas; choose a lower {flag}",
                arguments.replicas()
            ));
        }
    }
    let name = format!("delos dev {}", arguments.name);
    let options = arguments.clients.options(String::new());
    options.map_err(|line| format!("{name}: {line}"))?;
    connect::block_on(async {
        let replicas: Vec<At> = (0..arguments.replicas())
            .map(|i| arguments.replica(i))
            .collect();
        Tenant::Delos.check(&arguments.data_dir).await?;
        let path = arguments.data_dir.join(file_name(&arguments.name));
        let mut claims = Claims::default();
        if !claims.take_name(&arguments.data_dir, &arguments.name) {
            return Err(runs_already(arguments, &path));
        }
        let is_old = check(arguments, &replicas, &path).await?;
        check_idle(arguments, &path).await?;
        claims.take(listeners(said, arguments, is_old))?;
        let made = plinth_runtime::disk::create_dir_all(&arguments.data_dir).await;
        made.map_err(cannot_use(&arguments.data_dir))?;
        ports.save().await?;
        give_keys(arguments, &replicas, &path).await?;
        let processes = (0..arguments.replicas()).map(|i| start(arguments, i));
        let mut processes: Vec<Supervised> = processes.collect::<Outcome<_>>()?;
        let serving = serve(arguments, &replicas, &path, &mut processes);
        let ended = unless_interrupted(serving).await;
        if matches!(ended, Ok(None)) {
            let count = counted(arguments.replicas(), "replica", "replicas");
            plinth_terminal::say!("plinth: stopping {count}; their data stays");
        }
        stop(processes).await;
        ended?.unwrap_or(Ok(()))
    })
}

/// Where the processes will listen, of a service that is resumed with more than was said.
fn listeners(said: &Arguments, arguments: &Arguments, is_old: bool) -> Vec<(SocketAddr, Chosen)> {
    let port = match is_old {
        true => Chosen::Kept("--data-dir"),
        false => Chosen::flag("--port", said.port.is_none()),
    };
    let zookeeper = arguments.first_zookeeper();
    let of_zelos = |first: Option<u16>| first.filter(|_| arguments.is_zelos());
    let zookeeper_by = match arguments.zookeeper_port {
        Some(_) => chosen(ZOOKEEPER, said.zookeeper_port),
        None => Chosen::Default(ZOOKEEPER),
    };
    let firsts = [
        (Some(arguments.port()), port),
        (arguments.pages_port, chosen(PAGES, said.pages_port)),
        (of_zelos(Some(zookeeper)), zookeeper_by),
        (
            of_zelos(arguments.zookeeper_admin_port),
            chosen(ZOOKEEPER_ADMIN, said.zookeeper_admin_port),
        ),
    ];
    let local = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
    let all = firsts
        .into_iter()
        .filter_map(|(first, by)| Some((first?, by)));
    all.flat_map(|(first, by)| (0..arguments.replicas()).map(move |i| (local(first + i), by)))
        .collect()
}

/// An existing service is resumed with what it has. Tells whether there is one.
async fn check(arguments: &Arguments, replicas: &[At], path: &Path) -> Outcome<bool> {
    let directory = arguments.data_dir.display();
    let cannot = cannot_use(&arguments.data_dir);
    if !plinth_runtime::disk::exists(path).await.map_err(cannot)? {
        return Ok(false);
    }
    let file = load(path, &TlsArguments::default()).await?;
    if file.addresses().first() != Some(&replicas[0].address) {
        return Err(format!(
            "{} names replicas from {} on: resume it with that --port, or choose another --data-dir",
            path.display(),
            file.coordinators[0]
        ));
    }
    // What cannot be read says so when it is opened.
    let first = identity::Identity::load(&arguments.data_dir.join(&replicas[0].name)).await;
    if let Some(kind) = first.ok().flatten().map(|first| first.kind)
        && kind != arguments.kind()
    {
        return Err(format!(
            "data directory {directory} has the service {} of kind {kind}: resume it with --kind {kind}, or choose \
             another name",
            arguments.name
        ));
    }
    for (i, at) in (1..).zip(replicas) {
        let is_there = arguments.data_dir.join(&at.name).join("replica");
        let looked = plinth_runtime::disk::exists(&is_there).await;
        if !looked.map_err(cannot)? {
            return Err(format!(
                "data directory {directory} has a service without replica {:?}: resume it with --replicas {}",
                at.name,
                i - 1
            ));
        }
    }
    Ok(true)
}

/// Refuses a service whose replicas have processes: their ports are taken, which says less.
async fn check_idle(arguments: &Arguments, path: &Path) -> Outcome {
    for i in 0..arguments.replicas() {
        let directory = arguments.data_dir.join(arguments.replica(i).name);
        let locked = plinth_runtime::disk::lock_dir(&directory).await;
        // What else is wrong with it is said when it is opened.
        if locked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
            return Err(runs_already(arguments, path));
        }
    }
    Ok(())
}

fn runs_already(arguments: &Arguments, path: &Path) -> String {
    format!(
        "data directory {}: its service {} runs already; use it with plinth delos status -C {}, or choose another \
         with --data-dir",
        arguments.data_dir.display(),
        arguments.name,
        pasted(path)
    )
}

/// Makes keys for a new service. All replicas have the same file, so that a change of it reaches them at once. A
/// service that was made without keys goes on so.
async fn give_keys(arguments: &Arguments, replicas: &[At], path: &Path) -> Outcome {
    // What cannot be read is there, and says so when it is opened.
    let is_old = plinth_runtime::disk::exists(path).await.unwrap_or(true);
    if !is_old {
        keys::make_for_new_cluster(path)?;
    }
    let keys = key_file::beside(path);
    let (Some(name), true) = (keys.file_name(), keys.exists()) else {
        return Ok(());
    };
    for at in replicas {
        let directory = arguments.data_dir.join(&at.name);
        let own = key_file::beside(&service_file(&directory));
        if own.symlink_metadata().is_ok() {
            continue;
        }
        let made = std::fs::create_dir_all(&directory);
        let linked = made.and_then(|()| symlink(Path::new("..").join(name), &own));
        linked.map_err(|error| format!("key file {}: {error}", own.display()))?;
    }
    Ok(())
}

async fn serve(
    arguments: &Arguments,
    replicas: &[At],
    path: &Path,
    processes: &mut [Supervised],
) -> Outcome {
    let created = async {
        // What cannot be read is there, and says so when it is opened.
        if plinth_runtime::disk::exists(path).await.unwrap_or(true) {
            return Ok(());
        }
        let create = create::Arguments {
            name: arguments.name.clone(),
            kind: arguments.kind().to_owned(),
            replicas: replicas.to_vec(),
            file: None,
            json: false,
            timeout: 60,
            tls: TlsArguments::default(),
        };
        create::create(&create, path).await.map(drop)
    };
    match race(created, first_end(processes)).await {
        Either::Left(outcome) => outcome?,
        Either::Right(line) => return Err(line),
    }
    println!(
        "{} of {}, kind {}, from port {} on",
        counted(replicas.len(), "replica", "replicas"),
        arguments.name,
        arguments.kind(),
        arguments.port()
    );
    println!("use it with: plinth delos status -C {}", pasted(path));
    if arguments.is_zelos() {
        let all = (0..arguments.replicas()).map(|i| arguments.zookeeper(i).to_string());
        let all: Vec<String> = all.collect();
        println!("ZooKeeper's clients connect to {}", all.join(","));
    }
    println!("ready");
    keep_alive(processes, true, |i| start(arguments, i)).await
}

fn start(arguments: &Arguments, i: u16) -> Outcome<Supervised> {
    let at = arguments.replica(i);
    let directory = arguments.data_dir.join(&at.name);
    let made = std::fs::create_dir_all(&directory);
    made.map_err(|error| {
        format!(
            "{}: {error}; choose another --data-dir",
            directory.display()
        )
    })?;
    let page = arguments
        .pages_port
        .map(|port| SocketAddr::new(at.address.ip(), port + i).to_string());
    let mut command = children::itself();
    command
        .args(["delos", "server", "--service", &arguments.name])
        .args(["--listen", &at.address.to_string()])
        .arg("--data-dir")
        .arg(&directory)
        .arg("--trace")
        .arg(directory.join("trace.jsonl"))
        .args(page.iter().flat_map(|page| ["--pages", page]));
    for knob in &arguments.knobs {
        command.args(["--knob", knob]);
    }
    if arguments.is_zelos() {
        let address = arguments.zookeeper(i).to_string();
        command.args(["--zookeeper-listen", &address]);
        if let Some(first) = arguments.zookeeper_admin_port {
            let address = SocketAddr::new(at.address.ip(), first + i);
            command.args(["--zookeeper-admin", &address.to_string()]);
        }
        arguments.clients.hand_on(&mut command, &at.name);
    }
    Supervised::start(
        format!("replica {} at {}", at.name, at.address),
        &mut command,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Whole {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn asked(words: &str) -> Arguments {
        let words = std::iter::once("x").chain(words.split(' '));
        <Whole as clap::Parser>::parse_from(words).arguments
    }

    #[test]
    fn a_service_that_runs_is_said_to_run() {
        let above = std::env::temp_dir().join(format!("plinth-idle-{}", std::process::id()));
        let own = asked(&format!("locks --kind lock --data-dir {}", above.display()));
        let path = above.join("locks.delos");
        connect::block_on(async {
            check_idle(&own, &path).await?;
            let replica = above.join("locks-2");
            std::fs::create_dir_all(&replica).expect("it is made");
            let lock = plinth_runtime::disk::lock_dir(&replica).await;
            let lock = lock.map_err(cannot_use(&above))?;
            let line = check_idle(&own, &path).await.expect_err("it runs");
            assert!(line.contains("its service locks runs already"), "{line}");
            drop(lock);
            check_idle(&own, &path).await
        })
        .expect("it has ended");
        std::fs::remove_dir_all(&above).expect("it is there");
    }

    #[test]
    fn a_slip_in_the_name_of_a_service_is_answered_with_the_one_that_is_there() {
        let above = std::env::temp_dir().join(format!("plinth-slip-{}", std::process::id()));
        std::fs::create_dir_all(&above).expect("it is made");
        std::fs::write(above.join("locks.delos"), "").expect("it is written");
        let line = |name: &str| {
            let arguments = asked(&format!("{name} --data-dir {}", above.display()));
            arguments.without_kind()
        };
        let slip = line("lokcs");
        let question = format!("did you mean `{}/locks.delos'?", above.display());
        assert!(
            slip.contains(&question) && slip.contains("--kind"),
            "{slip}"
        );
        let other = line("queues");
        assert!(
            other.starts_with("--kind: a new service has one"),
            "{other}"
        );
        std::fs::remove_dir_all(&above).expect("it is there");
    }

    #[test]
    fn flags_for_the_clients_of_zookeeper_are_refused_where_there_are_none() {
        for (flag, value) in [
            ("--zookeeper-port", " 2181"),
            ("--zookeeper-admin-port", " 8080"),
            ("--tick-ms", " 3000"),
            ("--zone", " a"),
            ("--enforce-quota", ""),
        ] {
            let line = asked(&format!("locks --kind lock {flag}{value}")).check_kind();
            let line = line.expect_err(flag);
            assert!(
                line.starts_with(&format!("{flag}: ")) && line.contains("kind lock"),
                "{line}"
            );
            assert_eq!(
                asked(&format!("tree --kind zelos {flag}{value}")).check_kind(),
                Ok(())
            );
        }
        assert_eq!(asked("locks --kind lock").check_kind(), Ok(()));
    }
}

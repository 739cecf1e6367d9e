//! `plinth delos server`: the process of one replica.

use super::kinds::KINDS;
use super::names::parse_service_name;
use super::{page, places};
use plinth_coordination::certificates::Tls;
use plinth_coordination::{ClusterFile, Tenant, key_file};
use plinth_core::EngineKind;
use plinth_delos::engines::roster::GONE;
use plinth_delos::replica::identity::{FILE as IDENTITY, Identity as Replica, service_file};
use plinth_delos::replica::{Config, Settings, Tell, serve_with_page};
use plinth_identity::Identity;
use plinth_keeper::{Doors, Options};
use plinth_keeper_commands::admin;
use plinth_keeper_commands::guests::ForGuests;
use plinth_keeper_commands::zookeeper::ForClients;
use plinth_rpc::Credentials;
use plinth_runtime::metric::page::Page;
use plinth_runtime::net::Chosen;
use plinth_runtime::{Either, Task, race, spawn};
use plinth_terminal::children::OVER;
use plinth_terminal::choices::{among, expected};
use plinth_terminal::numbers::within;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::serving::ServingArguments;
use plinth_terminal::tls::{Listen, PublicAddress, TlsArguments};
use plinth_terminal::{Outcome, pages, ports};
use plinth_zelos::{Beside, Door};
use serde_json::Value;
use std::cell::Cell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Where ZooKeeper's clients look for it.
pub const ZOOKEEPER_PORT: u16 = 2181;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Address for clients, operators and the other replicas; it stays the same for the life of the replica. With :tls
    /// behind it, nobody gets in without a certificate or a key
    #[arg(long, value_name = "IP:PORT")]
    listen: Listen,
    #[command(flatten)]
    public: PublicAddress,
    /// Directory of the replica
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Be a replica of the service with this name only
    #[arg(long, value_name = "NAME", value_parser = parse_service_name)]
    service: Option<String>,
    /// Engine of the local store, when it is made: ssd, memory
    #[arg(
        long,
        value_name = "ENGINE",
        default_value = "ssd",
        hide_possible_values = true
    )]
    #[arg(value_parser = among(["ssd", "memory"], parse_engine))]
    engine: EngineKind,
    /// Cache of the local store, in MiB
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within::<u64>(1..=1 << 20))]
    cache_mib: u64,
    /// Address for ZooKeeper's clients, for a replica of kind zelos [default: port 2181 of the IP of --listen, or none
    /// with --zookeeper-secure-listen]
    #[arg(long, value_name = "IP:PORT", value_parser = ports::parse_address)]
    zookeeper_listen: Option<SocketAddr>,
    /// Address for ZooKeeper's clients by TLS, for kind zelos; needs --tls-certificate-file and --tls-key-file
    #[arg(
        id = "secure_listen",
        long = "zookeeper-secure-listen",
        value_name = "IP:PORT",
        value_parser = ports::parse_address
    )]
    secure_listen: Option<SocketAddr>,
    #[command(flatten)]
    guests: ForGuests,
    #[command(flatten)]
    tls: TlsArguments,
    /// Address of a page for browsers (/), of ZooKeeper's AdminServer (/commands) and of a page of its metrics
    /// (/metrics), for kind zelos. Beyond loopback it asks for a token if the replica has keys
    #[arg(long, value_name = "IP:PORT", value_parser = ports::parse_address)]
    zookeeper_admin: Option<SocketAddr>,
    #[command(flatten)]
    clients: ForClients,
    /// Address of a page for browsers (/), and of a metrics page (/metrics) for Prometheus
    #[arg(long, alias = "metrics", value_name = "IP:PORT", value_parser = ports::parse_address)]
    pages: Option<SocketAddr>,
    #[command(flatten)]
    serving: ServingArguments,
}

fn parse_engine(name: &str) -> Result<EngineKind, String> {
    EngineKind::parse(name).ok_or_else(|| expected(name, ["ssd", "memory"]))
}

/// Pages about the gateway of a Zelos. Until there is one, and if the replica is of another kind, questions wait.
fn admin_pages(address: SocketAddr, arguments: &Arguments) -> Outcome<Beside> {
    let file = service_file(&arguments.data_dir);
    let keys = pages::Keys {
        cluster_file: &file,
        are_needed: arguments.listen.is_tls(),
    };
    let questions = admin::listen("--zookeeper-admin", address, keys)?;
    let questions = Cell::new(Some(questions));
    Ok(Rc::new(move |keeper| {
        let (questions, file) = (questions.take(), file.clone());
        Box::pin(async move {
            let service = ClusterFile::load_with_keys(&file).await;
            let key = service.map_or_else(|_| String::new(), |service| service.key());
            admin::answer(&keeper, Alone(key), questions).await;
        })
    }))
}

/// There is no database behind the gateway of a Zelos: it is one of the service with this key.
struct Alone(String);

impl admin::Behind for Alone {
    fn cluster(&self) -> String {
        self.0.clone()
    }

    async fn status(&self) -> Option<Value> {
        None
    }
}

/// The certificates for connections with clients, operators and the other replicas.
async fn certificates(arguments: &Arguments) -> Outcome<Option<Arc<Tls>>> {
    let (tls, has_secure) = (&arguments.tls, arguments.secure_listen.is_some());
    let settings = ForGuests::of_processes(tls, has_secure)?;
    let all_are_servers = settings.identities.is_empty();
    if has_secure && all_are_servers && arguments.guests.mix_with(&settings).await? {
        return Err(
            "--zookeeper-secure-listen: whoever has a certificate that --tls-ca-file signs would be a server at \
             --listen, ZooKeeper's clients, too; let somebody else sign theirs, whom --client-ca-file names, or say \
             with --tls-identity who is a server"
                .into(),
        );
    }
    let mut certificates = Tls::read(settings).await?;
    arguments.listen.close(&mut certificates)?;
    Ok(certificates)
}

/// What the process proves at --listen and to the other replicas. Its files are read again when they change.
async fn credentials(arguments: &Arguments) -> Outcome<(Credentials, Task<()>)> {
    let bare = Credentials::new(None, Identity::Server);
    let credentials = match certificates(arguments).await? {
        Some(certificates) => certificates.protect(bare),
        None => bare,
    };
    let following = keys(&arguments.data_dir, credentials.clone()).await?;
    let has_keys = credentials.stranger() < Identity::Server;
    arguments
        .listen
        .tell_if_open(credentials.has_certificates(), has_keys);
    Ok((credentials, following))
}

/// Where others reach the replica, if not at --listen.
fn public(arguments: &Arguments) -> Outcome<Option<SocketAddr>> {
    let public = arguments.public.address_beside(arguments.listen)?;
    match public.is_none() && arguments.listen.address.port() == 0 {
        true => Err("others must find it: give --listen a port".into()),
        false => Ok(public),
    }
}

/// Where ZooKeeper's clients come in.
async fn door(arguments: &Arguments, mut options: Options) -> Outcome<Door> {
    options.x509_super_user = arguments.guests.super_user();
    let secure = match arguments.secure_listen {
        Some(address) => {
            let read = arguments
                .guests
                .guests("--zookeeper-secure-listen", &arguments.tls);
            Some((address, read.await?))
        }
        None => None,
    };
    let usual = SocketAddr::new(arguments.listen.address.ip(), ZOOKEEPER_PORT);
    let plain = match &secure {
        Some(_) => arguments.zookeeper_listen,
        None => arguments.zookeeper_listen.or(Some(usual)),
    };
    let beside = match arguments.zookeeper_admin {
        Some(address) => Some(admin_pages(address, arguments)?),
        None => None,
    };
    Ok(Door {
        listen: Doors {
            plain,
            plain_by: Chosen::flag("--zookeeper-listen", arguments.zookeeper_listen.is_none()),
            secure,
            secure_by: Chosen::By("--zookeeper-secure-listen"),
        },
        options,
        beside,
    })
}

/// Reads the keys beside the service's file in the data directory, and follows changes of them.
async fn keys(directory: &Path, credentials: Credentials) -> Outcome<Task<()>> {
    let file = service_file(directory);
    // The mark of keys may be another system's, whose directory it is.
    Tenant::Delos.check_of_server(directory).await?;
    let keys = key_file::keyring(&file).await?;
    key_file::check_still_keyed(directory, &file, keys.is_some()).await?;
    credentials.set_keys(keys);
    let directory = directory.to_path_buf();
    Ok(spawn("keys", async move {
        match key_file::follow(&file, &directory, &credentials).await {}
    }))
}

pub fn run(arguments: &Arguments) -> Outcome {
    let directory = Some(arguments.data_dir.as_path());
    let at = format!("delos server {}", arguments.listen.address);
    let outcome = arguments.serving.run(directory, &[], serve(arguments));
    let outcome = outcome.map_err(|line| format!("{at}: {line}"));
    match &outcome {
        // Whoever has started it, as `dev` does, starts no other in its place.
        Err(line) if line.contains(GONE) && !arguments.serving.tells_of_itself() => {
            plinth_terminal::say!("plinth: {line}");
            std::process::exit(OVER)
        }
        _ => outcome,
    }
}

/// Serves the pages that are asked for.
fn serve_pages(arguments: &Arguments) -> Outcome<Option<Page>> {
    let Some(address) = arguments.pages else {
        return Ok(None);
    };
    let page = Page::default();
    let keys = pages::Keys {
        cluster_file: &service_file(&arguments.data_dir),
        are_needed: arguments.listen.is_tls(),
    };
    let own = std::slice::from_ref(&page);
    pages::serve_all(address, own, page::show, keys)?;
    Ok(Some(page))
}

/// Refuses addresses for ZooKeeper's clients that cannot be had, before it becomes a replica that nobody can use.
fn try_doors(arguments: &Arguments) -> Outcome {
    let asked = [
        (arguments.zookeeper_listen, "--zookeeper-listen"),
        (arguments.secure_listen, "--zookeeper-secure-listen"),
    ];
    let asked = asked.into_iter();
    let doors = asked.filter_map(|(address, flag)| Some((address?, Chosen::By(flag))));
    let listen = (arguments.listen.address, Chosen::By("--listen"));
    let pages = arguments.pages.map(|at| (at, Chosen::By(pages::flag())));
    ports::check_distinct([listen].into_iter().chain(pages).chain(doors.clone()))?;
    ports::check_free(doors)
}

/// Refuses addresses for ZooKeeper's clients if the replica in the directory is of another kind.
async fn check_kind(arguments: &Arguments) -> Outcome {
    let flag = match (
        arguments.zookeeper_listen,
        arguments.secure_listen,
        arguments.zookeeper_admin,
    ) {
        (Some(_), ..) => "--zookeeper-listen",
        (_, Some(_), _) => "--zookeeper-secure-listen",
        (.., Some(_)) => "--zookeeper-admin",
        _ => return Ok(()),
    };
    // What is wrong with the directory is said by who takes it.
    match Replica::load(&arguments.data_dir).await {
        Ok(Some(replica)) if replica.kind != "zelos" => Err(format!(
            "{flag}: the replica in {} is of kind {}, and ZooKeeper's clients use one of kind zelos; leave it out",
            arguments.data_dir.display(),
            replica.kind
        )),
        _ => Ok(()),
    }
}

async fn serve(arguments: &Arguments) -> Outcome {
    check_kind(arguments).await?;
    let public = public(arguments)?;
    ports::check_pages(arguments.listen.address, arguments.pages)?; // before the pages are there
    let listen = (arguments.listen.address, Chosen::By("--listen"));
    ports::check_new(&arguments.data_dir, IDENTITY, [listen])?;
    try_doors(arguments)?;
    let page = serve_pages(arguments)?;
    let options = arguments.clients.options("default".into())?;
    let door = door(arguments, options).await?;
    let (credentials, _following) = credentials(arguments).await?;
    let looking = keep_status(arguments, page.clone(), credentials.clone());
    let settings = Settings::default().with(door).with(credentials);
    let mut settings = settings.with(Chosen::By("--listen"));
    if arguments.serving.tells_of_itself() {
        settings = settings.with(Tell(|line| {
            plinth_terminal::say!("plinth: delos server: {line}")
        }));
    }
    let config = Config {
        directory: arguments.data_dir.clone(),
        listen: arguments.listen.address,
        public,
        kinds: &KINDS,
        engine: arguments.engine,
        cache_bytes: (arguments.cache_mib as usize) << 20,
        service: arguments.service.clone(),
        settings,
        places: places::open,
    };
    let serving = race(serve_with_page(config, page), looking);
    match unless_interrupted(serving).await? {
        Some(Either::Left(Err(line))) => Err(line),
        Some(Either::Right(never)) => match never {},
        None => Ok(()),
    }
}

async fn keep_status(
    arguments: &Arguments,
    page: Option<Page>,
    credentials: Credentials,
) -> Infallible {
    let Some(page) = page else {
        return std::future::pending().await;
    };
    let file = service_file(&arguments.data_dir);
    page::keep_status(&page, &file, credentials).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::connect::block_on;

    #[test]
    fn the_mark_of_another_system_s_keys_is_not_advised_to_be_removed() {
        let directory = std::env::temp_dir().join(format!("plinth-mark-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("it is made");
        let said = || {
            let credentials = Credentials::new(None, Identity::Server);
            block_on(async { keys(&directory, credentials).await.map(drop) })
        };
        std::fs::write(directory.join(key_file::MARK), "").expect("it is written");
        let line = said().expect_err("it has had keys");
        assert!(line.contains("put it back, or remove"), "{line}");
        std::fs::write(directory.join("process"), "").expect("it is written");
        let line = said().expect_err("it is the store's");
        assert!(
            line.contains("it belongs to a cluster of the store"),
            "{line}"
        );
        assert!(!line.contains("remove"), "{line}");
        std::fs::remove_dir_all(&directory).expect("it is there");
        std::fs::write(&directory, "").expect("it is written");
        let line = said().expect_err("it is a file");
        assert!(line.contains("there is a file of that name"), "{line}");
        std::fs::remove_file(&directory).expect("it is there");
    }
}

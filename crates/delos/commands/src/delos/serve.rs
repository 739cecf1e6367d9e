//! `plinth delos serve`: the process of one replica.

use super::kinds::KINDS;
use super::names::parse_service_name;
use super::places;
use plinth_coordination::certificates::Tls;
use plinth_coordination::key_file;
use plinth_core::EngineKind;
use plinth_delos::replica::identity::service_file;
use plinth_delos::replica::{Config, Settings, Tell, serve_with_page};
use plinth_identity::Identity;
use plinth_keeper::{Doors, Options};
use plinth_keeper_commands::admin;
use plinth_keeper_commands::guests::ForGuests;
use plinth_keeper_commands::zookeeper::ForClients;
use plinth_rpc::Credentials;
use plinth_runtime::knobs::set_knobs;
use plinth_runtime::metric::page::Page;
use plinth_runtime::net::listen;
use plinth_runtime::real::{block_on, interrupted};
use plinth_runtime::{Either, Task, race, spawn};
use plinth_terminal::Outcome;
use plinth_terminal::knobs::parse_knobs;
use plinth_terminal::process::{follow_parent, raise_file_limit};
use plinth_terminal::tls::{Listen, PublicAddress, TlsArguments};
use plinth_terminal::{allocator, pages, trace_file};
use plinth_zelos::{Beside, Door};
use std::cell::Cell;
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
    #[arg(long, value_name = "ENGINE", default_value = "ssd", value_parser = parse_engine)]
    engine: EngineKind,
    /// Cache of the local store, in MiB
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    cache_mib: u64,
    /// Address for ZooKeeper's clients, for a replica of kind zelos [default: port 2181 of the IP of --listen, or none
    /// with --zookeeper-secure-listen]
    #[arg(long, value_name = "IP:PORT")]
    zookeeper_listen: Option<SocketAddr>,
    /// Address for ZooKeeper's clients by TLS, for kind zelos; needs --tls-certificate-file and --tls-key-file
    #[arg(
        id = "secure_listen",
        long = "zookeeper-secure-listen",
        value_name = "IP:PORT"
    )]
    secure_listen: Option<SocketAddr>,
    #[command(flatten)]
    guests: ForGuests,
    #[command(flatten)]
    tls: TlsArguments,
    /// Address of ZooKeeper's AdminServer (/commands) and of a page of its metrics (/metrics), for kind zelos. Beyond
    /// loopback it asks for a token if the replica has keys
    #[arg(long, value_name = "IP:PORT")]
    zookeeper_admin: Option<SocketAddr>,
    #[command(flatten)]
    clients: ForClients,
    /// Address of a metrics page (/metrics) for Prometheus
    #[arg(long, value_name = "IP:PORT")]
    metrics: Option<SocketAddr>,
    /// Set a limit or an interval; `plinth server --knob list` shows all knobs
    #[arg(long = "knob", value_name = "NAME=VALUE")]
    knobs: Vec<String>,
    /// File for trace events, one JSON object per line
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// File for who connected, was refused and changed what, one JSON object per line; without it audit.jsonl in the
    /// data directory
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// End when the process with this number, the parent, ends
    #[arg(long, hide = true)]
    parent: Option<u32>,
}

fn parse_engine(name: &str) -> Result<EngineKind, String> {
    EngineKind::parse(name).ok_or_else(|| "expected ssd or memory".into())
}

/// Pages about the gateway of a Zelos. Until there is one, and if the replica is of another kind, questions wait.
fn admin_pages(address: SocketAddr, arguments: &Arguments) -> Outcome<Beside> {
    let keys = pages::Keys {
        cluster_file: &service_file(&arguments.data_dir),
        are_needed: arguments.listen.is_tls(),
    };
    let questions = admin::listen("--zookeeper-admin", address, keys)?;
    let questions = Cell::new(Some(questions));
    Ok(Rc::new(move |keeper| {
        let questions = questions.take();
        Box::pin(async move { admin::answer(&keeper, questions).await })
    }))
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
        listen: Doors { plain, secure },
        options,
        beside,
    })
}

/// Reads the keys beside the service's file in the data directory, and follows changes of them.
async fn keys(directory: &Path, credentials: Credentials) -> Outcome<Task<()>> {
    let file = service_file(directory);
    let keys = key_file::keyring(&file).await?;
    key_file::check_still_keyed(directory, &file, keys.is_some()).await?;
    credentials.set_keys(keys);
    let directory = directory.to_path_buf();
    Ok(spawn("keys", async move {
        match key_file::follow(&file, &directory, &credentials).await {}
    }))
}

pub fn run(arguments: Arguments) -> Outcome {
    set_knobs(parse_knobs(&arguments.knobs)?);
    if let Some(parent) = arguments.parent {
        follow_parent(parent)?;
    }
    trace_file::start(arguments.trace.as_deref())?;
    let audit = arguments.audit.clone();
    trace_file::audit_to(&audit.unwrap_or_else(|| arguments.data_dir.join("audit.jsonl")))?;
    allocator::return_free_memory_when_idle()?;
    raise_file_limit();
    let at = format!("delos serve {}", arguments.listen.address);
    let public = public(&arguments).map_err(|line| format!("{at}: {line}"))?;
    let page = arguments.metrics.map(|address| (address, Page::default()));
    if let Some((address, page)) = &page {
        let keys = pages::Keys {
            cluster_file: &service_file(&arguments.data_dir),
            are_needed: arguments.listen.is_tls(),
        };
        let router = pages::router(vec![page.clone()]);
        let router = pages::guarded("--metrics", *address, router, keys);
        let served = router.and_then(|router| pages::serve("--metrics", *address, router));
        served.map_err(|line| format!("{at}: {line}"))?;
    }
    let page = page.map(|(_, page)| page);
    let options = arguments.clients.options(&at, "default".into())?;
    let outcome = block_on(async {
        let door = door(&arguments, options).await;
        let door = door.map_err(|line| format!("{at}: {line}"))?;
        let credentials = credentials(&arguments).await;
        let (credentials, _following) = credentials.map_err(|line| format!("{at}: {line}"))?;
        let asked = [
            (arguments.zookeeper_listen, "--zookeeper-listen"),
            (arguments.secure_listen, "--zookeeper-secure-listen"),
        ];
        for (address, flag) in asked {
            let Some(address) = address else { continue };
            // Before it becomes a replica that nobody can use.
            let found = listen(address).await;
            found.map(drop).map_err(|error| {
                format!("{at}: cannot listen at {address}: {error}; choose another {flag}")
            })?;
        }
        let mut settings = Settings::default().with(door).with(credentials);
        // Who starts several, as plinth delos dev does, tells of them itself.
        if arguments.parent.is_none() {
            settings = settings.with(Tell(|line| eprintln!("plinth: delos serve: {line}")));
        }
        let config = Config {
            directory: arguments.data_dir,
            listen: arguments.listen.address,
            public,
            kinds: &KINDS,
            engine: arguments.engine,
            cache_bytes: (arguments.cache_mib as usize) << 20,
            service: arguments.service,
            settings,
            places: places::open,
        };
        match race(interrupted(), serve_with_page(config, page)).await {
            Either::Left(Ok(())) => Ok(()),
            Either::Left(Err(error)) => Err(format!("{at}: cannot wait for signals: {error}")),
            Either::Right(Err(line)) => Err(format!("{at}: {line}")),
        }
    });
    trace_file::flush();
    outcome
}

//! `plinth farm server`: one machine.

use super::create::PlanArguments;
use super::{ClusterArgument, status, work};
use plinth_coordination::ClusterFile;
use plinth_farm_server::{Config, Held, OWNER, Work, caller, memory_socket, serve};
use plinth_runtime::metric::page::Page;
use plinth_runtime::net::Chosen;
use plinth_runtime::{Either, race};
use plinth_terminal::commands::wrong_usage;
use plinth_terminal::numbers::within;
use plinth_terminal::process::unless_interrupted;
use plinth_terminal::serving::ServingArguments;
use plinth_terminal::tls::{Listen, PublicAddress};
use plinth_terminal::{Outcome, pages, ports};
use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArgument,
    /// Address for operators, and for the coordinator if the cluster file names it; the memory is served to other
    /// hosts at the next port. With :tls behind it, nobody gets in at both without a certificate or a key
    #[arg(long, value_name = "IP:PORT")]
    listen: Listen,
    #[command(flatten)]
    public: PublicAddress,
    /// Directory of this process, for the coordinator's state and, in a durable cluster, for its data
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// Directory of the memories, the same for all machines of this host [default: one below /dev/shm]
    #[arg(long, value_name = "DIR")]
    memory_dir: Option<PathBuf>,
    /// Number of the machine [default: the lowest that nobody has]
    #[arg(long, alias = "machine", value_name = "N", value_parser = within::<u16>(..))]
    number: Option<u16>,
    /// Name of the zone, for example a rack: no two replicas are in one zone if there are others [default: the host]
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    zone: String,
    /// Memory for old versions, which transactions with older snapshots read
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = within::<u64>(2..=1 << 20))]
    old_mib: u64,
    /// Make the cluster if there is none, with the numbers below
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    plan: PlanArguments,
    /// Address of a page for browsers (/), and of a metrics page (/metrics) for Prometheus
    #[arg(long, alias = "metrics", value_name = "IP:PORT", value_parser = ports::parse_address)]
    pages: Option<SocketAddr>,
    #[command(flatten)]
    serving: ServingArguments,
    /// Run TPC-C, as standard input says
    #[arg(long, hide = true)]
    work: bool,
}

pub fn run(arguments: &Arguments) -> Outcome {
    if !arguments.new
        && let Err(line) = arguments.plan.asked().check_without_new()
    {
        wrong_usage(&line);
    }
    let directory = Some(arguments.data_dir.as_path());
    let at = format!("farm server {}", arguments.listen.address);
    let outcome = arguments.serving.run(directory, &[], start(arguments, &at));
    outcome.map_err(|line| format!("{at}: {line}"))
}

/// In one write: several machines may share a terminal.
fn tell(name: &str, line: &str) {
    let line = format!("plinth: {name}: {line}\n");
    let _ = std::io::stderr().write_all(line.as_bytes()); // nobody may be listening
}

async fn start(arguments: &Arguments, at: &str) -> Outcome {
    let asked = arguments.plan.asked();
    let listen = arguments.listen.address;
    let memory = memory_socket(listen).map(|at| (at, Chosen::Behind("--listen")));
    let wanted = [(listen, Chosen::By("--listen"))].into_iter().chain(memory);
    ports::check_pages_beside(wanted.clone(), arguments.pages)?;
    ports::check_new(&arguments.data_dir, OWNER, wanted)?;
    let cluster_file = arguments.cluster.of_server()?;
    let mut cluster = arguments.cluster.load(&cluster_file).await?;
    arguments.listen.close(&mut cluster.certificates)?;
    arguments
        .listen
        .tell_if_open(cluster.certificates.is_some(), cluster.keys.is_some());
    let public = arguments.public.address_beside(arguments.listen)?;
    let page = arguments.pages.map(|address| (address, Page::default()));
    if let Some((address, page)) = &page {
        let keys = pages::Keys {
            cluster_file: &cluster_file,
            are_needed: arguments.listen.is_tls(),
        };
        pages::serve_all(*address, std::slice::from_ref(page), status::show, keys)?;
    }
    let page = page.map(|(_, page)| page);
    let looking = keep_status(page.clone(), cluster.clone());
    let (name, machines) = (at.to_owned(), u32::from(asked.plan().machines));
    let held = Held::default();
    let config = Config {
        listen: arguments.listen.address,
        public,
        data_directory: arguments.data_dir.clone(),
        memory_directory: arguments.memory_dir.clone(),
        cluster,
        cluster_file,
        machine: arguments.number,
        zone: arguments.zone.clone(),
        new: arguments.new.then_some(asked),
        old_mib: arguments.old_mib,
        page,
        tell: Rc::new(move |line| tell(&name, line)),
        work: arguments.work.then(|| -> Work {
            Box::new(move |joined, sizes| Box::pin(work::run(joined, sizes, machines)))
        }),
        held: held.clone(),
    };
    let mut serving = serve(config);
    let ended = unless_interrupted(race(&mut serving, looking)).await?;
    if ended.is_none() {
        // While it lives still: afterwards the memory may be another process's.
        held.remove().await;
    }
    match ended {
        None => Ok(()),
        Some(Either::Left(outcome)) => outcome,
        Some(Either::Right(never)) => match never {},
    }
}

/// Keeps the status of the cluster on the page while somebody looks, for ever.
async fn keep_status(page: Option<Page>, cluster: ClusterFile) -> Infallible {
    let Some(page) = page else {
        return std::future::pending().await;
    };
    let transport = caller(&cluster);
    let ask = async || Some(status::for_page(&transport, &cluster).await);
    page.keep_status(ask).await
}

//! A process with a memory becomes a member, with an engine.

use crate::access::Access;
use crate::plan;
use plinth_farm_engine::{Keeps, Options as TransactionOptions, Policy, Settings};
use plinth_farm_fabric::{Fabric, Local, Machine, Mixed, Place, serve_as};
use plinth_farm_member::{CoordinatedRegister, Options, Record, Seat, View, host_of};
use plinth_farm_memory::Sizes;
use plinth_farm_node::{self as node, Node};
use plinth_rpc::Credentials;
use plinth_runtime::net::Listener;
use plinth_runtime::sync::Watch;
use plinth_runtime::{Boxed, Duration, TaskGroup};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

/// Between two rounds of the safe point: an idle machine shall cost little.
const ROUND: Duration = Duration::from_millis(10);

/// What a process brings with it.
pub struct Joining {
    pub local: Local,
    /// Where it serves its memory to other hosts.
    pub listener: Listener,
    /// Where they reach that, if it is not where it listens.
    pub public: Option<SocketAddr>,
    pub register: CoordinatedRegister,
    /// What it proves to other hosts, and wants them to prove.
    pub credentials: Credentials,
    pub record: Record,
    pub zone: String,
    /// Of its memory; without data, only old versions are missing.
    pub sizes: Sizes,
    /// False: it only runs transactions.
    pub has_data: bool,
    /// Where its disk is, in a durable cluster.
    pub disk: PathBuf,
    /// It may come under any number.
    pub may_renumber: bool,
}

/// A process that waits to be a member, or is one. When it is dropped, it is none any more.
pub struct Joined {
    fabric: Rc<Mixed>,
    pub node: Node<Mixed, CoordinatedRegister>,
    /// Transactions of this machine, which are counted.
    pub access: Access,
    /// It may come again under another number.
    pub may_renumber: bool,
    /// So many regions of its memory take room only while something is in them.
    pub sparse: usize,
    _tasks: TaskGroup,
}

/// Says where a machine is: on this host if it has the same directory.
fn meet(fabric: &Mixed, host: u128, seat: &Seat) {
    let machine = Machine(seat.machine);
    let is_here = seat.place.host == host;
    match seat.place.socket {
        _ if is_here => fabric.set_place(machine, Place::Here),
        Some(socket) => fabric.set_place(machine, Place::At(socket)),
        None => (),
    }
}

/// To other hosts, that prove a key if there are keys.
fn serve_memory(
    tasks: &TaskGroup,
    (listener, public): (Listener, Option<SocketAddr>),
    local: &Local,
    credentials: Credentials,
) {
    let (machine, memory) = (local.machine(), local.host().clone());
    tasks.spawn("farm memory", async move {
        serve_as(listener, public, machine, memory, &credentials).await;
    });
}

impl Joined {
    /// Begins a life of the machine. Errors: a line for the user.
    pub fn start(joining: Joining) -> Boxed<'static, Result<Joined, String>> {
        Box::pin(Self::begin(joining))
    }

    async fn begin(joining: Joining) -> Result<Joined, String> {
        let Joining {
            local,
            listener,
            public,
            register,
            credentials,
            record,
            zone,
            sizes,
            has_data,
            disk,
            may_renumber,
        } = joining;
        let cluster = record.cluster.clone();
        let directory = local.directory().to_owned();
        let host = host_of(&directory).await;
        let host = host.map_err(|error| format!("{}: {error}", directory.display()))?;
        let socket = public.map_or_else(|| listener.local_addr(), Ok);
        let socket = socket.map_err(|error| format!("the memory's socket: {error}"))?;
        let machine = local.machine();
        let (keeps, of_member) = match (cluster.is_durable, has_data) {
            (false, _) => (Keeps::Nothing, None),
            (true, false) => (Keeps::Others, None),
            (true, true) => {
                let opened = node::disk::open(&disk, &record, &local, &sizes).await;
                let (disk, of_member) = opened.map_err(|error| error.to_string())?;
                (Keeps::Disk(Box::new(disk)), Some(of_member))
            }
        };
        let tasks = TaskGroup::new();
        serve_memory(&tasks, (listener, public), &local, credentials.clone());
        // Whoever is silent for so long may be removed soon.
        let limit = Duration::from_nanos(cluster.lease_ns / 2);
        let fabric = Rc::new(Mixed::new(local, limit).with(&credentials));
        let met = fabric.clone();
        let member = Options {
            slots: match has_data {
                true => plan::slots(&cluster),
                false => 0,
            },
            disk: of_member,
            socket: Some(socket),
            zone,
            meet: Box::new(move |seat| meet(&met, host, seat)),
            closing: None,
            may_renumber,
        };
        let options = node::Options {
            member,
            sizes,
            policy: Policy::default(),
            settings: Settings {
                round: ROUND,
                ..Settings::default()
            },
            keeps,
        };
        let node = Node::start(fabric.clone(), register, record, options).await;
        let node = node.map_err(|error| format!("machine {}: {error}", machine.0))?;
        let access = Access::new(node.engine().clone(), TransactionOptions::default());
        Ok(Joined {
            fabric,
            node,
            access,
            may_renumber,
            sparse: plan::sparse(&cluster, &sizes, has_data),
            _tasks: tasks,
        })
    }

    pub fn local(&self) -> &Local {
        self.fabric.local()
    }

    /// The membership; `None` before the process is a member.
    pub fn view(&self) -> &Watch<Option<View>> {
        self.node.member().view()
    }
}

//! The control plane: workers and clients talk to the cluster controller, which recruits roles on workers.

use crate::log::LogSystem;
use plinth_core::config::FaultDomain;
use plinth_core::{DatabaseConfig, Epoch, Tag, Uid, Version, record};
use plinth_rpc::{Interface, requests};
use std::net::SocketAddr;

/// The role id at which a worker is told to end a role, whatever its process: by who knows its address only. Roles are asked for
/// at the id that it registers under, which is another in each life of the process.
pub const WORKER: Uid = Uid(0x776f_726b_6572_0000_0000_0000_0000_0001);

/// What a process is good for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ProcessClass {
    Unset = 0,
    Storage = 1,
    Log = 2,
    Stateless = 3,
    /// Never recruited for anything: a tester, a client.
    Tester = 4,
}

impl ProcessClass {
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "unset" => ProcessClass::Unset,
            "storage" => ProcessClass::Storage,
            "log" | "transaction" => ProcessClass::Log,
            "stateless" => ProcessClass::Stateless,
            "tester" => ProcessClass::Tester,
            _ => return None,
        })
    }
    pub fn name(self) -> &'static str {
        match self {
            ProcessClass::Unset => "unset",
            ProcessClass::Storage => "storage",
            ProcessClass::Log => "log",
            ProcessClass::Stateless => "stateless",
            ProcessClass::Tester => "tester",
        }
    }
}

impl RegisterWorker {
    pub fn class(&self) -> ProcessClass {
        self.given.unwrap_or(self.declared)
    }
    /// Its disk does not do what it is told.
    pub fn has_broken_disk(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| !disk.works)
    }
}

impl plinth_core::codec::Codec for ProcessClass {
    fn put(&self, out: &mut bytes::BytesMut) {
        (*self as u8).put(out);
    }
    fn take(input: &mut bytes::Bytes) -> Option<Self> {
        Some(match u8::take(input)? {
            0 => ProcessClass::Unset,
            1 => ProcessClass::Storage,
            2 => ProcessClass::Log,
            3 => ProcessClass::Stateless,
            4 => ProcessClass::Tester,
            _ => return None,
        })
    }
}

record! {
    /// Where a process is, for placement: replicas never share a zone.
    pub struct Locality {
        pub process: Uid,
        pub machine: String,
        pub zone: String,
        pub data_hall: String,
        pub data_center: String,
    }

    /// What is wrong with a disk.
    pub struct SickDisk {
        pub directory: String,
        /// In words.
        pub what: String,
        /// Milliseconds since 1970.
        pub since_ms: u64,
        /// It works again, but not for long enough yet to be trusted.
        pub works: bool,
    }

    /// A worker tells the controller that it lives and what it hosts; again whenever that changes or the
    /// controller does.
    pub struct RegisterWorker {
        pub worker: Interface,
        /// What the process is for, as it says itself.
        pub declared: ProcessClass,
        /// And as an operator says, who knows better; the controller fills this in.
        pub given: Option<ProcessClass>,
        pub locality: Locality,
        /// Log servers on its disk, of whatever generation.
        pub logs: Vec<(Uid, Epoch)>,
        /// Storage servers on its disk.
        pub storage: Vec<(Uid, Tag)>,
        /// Processes that it has lately tried to reach in vain.
        pub unreachable: Vec<SocketAddr>,
        /// Of its data directory, if it is not to be trusted.
        pub disk: Option<SickDisk>,
        /// The newest epoch that its data directory has served in; 0: none.
        pub epoch: Epoch,
        /// Its registers are gone: it is no coordinator, whoever names it as one.
        pub lost_registers: bool,
    }

    pub struct RegisterWorkerReply {
        /// Where the process with this id lives already: a data directory serves once.
        pub taken_by: Option<SocketAddr>,
    }

    /// Waits until the description differs from `known`.
    pub struct GetClusterInfo {
        pub known: u64,
    }

    /// What every worker needs to know.
    pub struct ClusterInfo {
        /// Changes with every change of the rest.
        pub id: u64,
        pub controller: Interface,
        pub epoch: Epoch,
        /// Clients are served.
        pub accepting: bool,
        pub log_system: LogSystem,
        /// All storage servers. One that is not listed does not belong to the database: it neither pulls nor pops.
        pub servers: Vec<(Uid, Tag)>,
        /// The list knows every server with a tag below this: one that is not in it is no more.
        pub next_tag: u32,
        /// Who limits what GRV proxies let in, if there is one.
        pub ratekeeper: Option<Interface>,
        pub distributor: Option<Interface>,
        /// Processes that are for something else than they say.
        pub classes: Vec<(Uid, ProcessClass)>,
        /// Names and values that hold for all processes which were not given others.
        pub knobs: Vec<(String, String)>,
        pub client: ClientInfo,
    }

    /// What a client needs to know.
    pub struct ClientInfo {
        pub id: u64,
        pub grv_proxies: Vec<Interface>,
        pub commit_proxies: Vec<Interface>,
    }

    /// Waits until the description differs from `known`.
    pub struct GetClientInfo {
        pub known: u64,
    }

    /// Creates the database. Fails with `invalid_option` if there is one.
    pub struct CreateDatabase {
        pub config: DatabaseConfig,
    }

    pub struct CreateDatabaseReply {
        /// Why there is no new database, in one line; empty if there is.
        pub refusal: String,
    }

    /// A storage server has durably applied everything up to `version`; log generations wholly below the
    /// minimum over all of them are removed.
    pub struct ReportDurable {
        pub server: Uid,
        pub tag: Tag,
        pub version: Version,
    }

    /// The list of storage servers has changed: the controller reads it anew.
    pub struct ServersChanged {}

    /// All workers that live.
    pub struct GetWorkers {}

    pub struct Workers {
        pub workers: Vec<RegisterWorker>,
    }

    /// Asks a worker how its process and machine are.
    pub struct GetWorkerStatus {}

    pub struct WorkerStatus {
        /// Bytes of the disk that holds the data directory, and how many of them are free.
        pub disk_total: u64,
        pub disk_free: u64,
        /// By how much timers were late at worst in the last second or two: the event loop had too much to do, or the process
        /// did not get the CPU.
        pub loop_lag_ms: f64,
    }

    /// Asks a worker to be the data distributor of an epoch.
    pub struct RecruitDistributor {
        pub id: Uid,
        pub epoch: Epoch,
        pub controller: Interface,
        pub cluster: String,
    }

    /// Asks the data distributor how its comparison of replicas goes.
    pub struct GetDistributorStatus {}

    #[derive(Default)]
    pub struct DistributorStatus {
        /// Copies of the shard that has the fewest, on servers that answer; 0 until the distributor has looked.
        pub least_copies: u32,
        /// Whole rounds through the database since it began, and when the last one ended: seconds since 1970.
        pub rounds: u64,
        pub round_ended_s: u64,
        /// Bytes compared, of one replica.
        pub bytes: u64,
        /// Pages in which replicas differed, and the first of them in words.
        pub found: u64,
        pub differences: Vec<String>,
    }

    /// Asks a worker to end: its role's process, as `kill` in the shell.
    pub struct KillRole {
        pub id: Uid,
    }
}

record! {
    /// The coordinated state: what a recovery must know before it knows anything else. Kept on the coordinators.
    pub struct DatabaseState {
        /// 2: the form of this record.
        pub format: u32,
        pub epoch: Epoch,
        pub config: DatabaseConfig,
        pub log_system: LogSystem,
    }

    /// Asks for other coordinators. Answered when they are, or if they cannot be.
    pub struct ChangeCoordinators {
        pub coordinators: Vec<SocketAddr>,
    }

    pub struct ChangeCoordinatorsReply {
        /// Why nothing has changed, in one line; empty if it has.
        pub refusal: String,
    }
}

impl Locality {
    /// Of those that fail together, the one where the process is.
    pub fn domain(&self, kind: FaultDomain) -> &String {
        match kind {
            FaultDomain::Zone => &self.zone,
            FaultDomain::DataHall => &self.data_hall,
        }
    }
}

requests! {
    RegisterWorker = 60 => RegisterWorkerReply;
    GetClusterInfo = 61 => ClusterInfo;
    GetClientInfo = 62 => ClientInfo;
    CreateDatabase = 63 => CreateDatabaseReply;
    ReportDurable = 64 => ();
    KillRole = 65 => ();
    ServersChanged = 66 => ();
    GetWorkers = 67 => Workers;
    RecruitDistributor = 68 => ();
    GetDistributorStatus = 84 => DistributorStatus;
    GetWorkerStatus = 69 => WorkerStatus;
    ChangeCoordinators = 85 => ChangeCoordinatorsReply;
}

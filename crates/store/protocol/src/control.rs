//! The control plane: workers and clients talk to the cluster controller, which recruits roles on workers.

use crate::DurableVersion;
use crate::database::DatabaseId;
use crate::log::LogSystem;
use bytes::Bytes;
use plinth_core::config::FaultDomain;
use plinth_core::{DatabaseConfig, Epoch, Tag, Uid, Version, record, variants};
use plinth_rpc::{Interface, Place, requests};
use std::net::SocketAddr;

/// Role id at which every worker accepts [`KillRole`], for callers that know only the worker's address. All other
/// requests go to the id under which the worker registers; that id differs in each life of the process.
pub const WORKER: Uid = Uid(0x776f_726b_6572_0000_0000_0000_0000_0001);

variants! {
    /// The kind of roles for which a process is meant.
    #[derive(Copy, Eq, PartialOrd, Ord, Hash)]
    pub enum ProcessClass {
        Unset = 0,
        Storage = 1,
        Log = 2,
        Stateless = 3,
        /// Never recruited for any role: a tester or a client.
        Tester = 4,
    }
}

impl ProcessClass {
    pub const NAMES: [&'static str; 5] = ["unset", "storage", "log", "stateless", "tester"];

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

impl ClusterInfo {
    /// True if this storage server or log server is of the database.
    pub fn names(&self, id: Uid) -> bool {
        let generations = self.log_system.generations.iter();
        let mut logs = generations.flat_map(|generation| &generation.logs);
        logs.any(|log| log.id == id) || self.servers.iter().any(|(server, _)| *server == id)
    }
}

/// Damaged parts of a storage server's file that are told; so many bytes of a key.
pub const DAMAGED_PARTS_MAX: usize = 16;
pub const DAMAGED_KEY_MAX: usize = 100;

impl DamagedPart {
    /// Longer keys are cut, so that all between them stays between them.
    pub fn new(offset: u64, begin: &[u8], end: &[u8]) -> Self {
        let begin = &begin[..begin.len().min(DAMAGED_KEY_MAX)];
        let (is_cut, end) = (
            end.len() > DAMAGED_KEY_MAX,
            &end[..end.len().min(DAMAGED_KEY_MAX)],
        );
        let mut end = end.to_vec();
        if is_cut {
            end.push(0xff);
        }
        DamagedPart {
            offset,
            begin: Bytes::copy_from_slice(begin),
            end: end.into(),
        }
    }
}

impl RegisterWorker {
    /// True if a cluster file that names this place means this process.
    pub fn is_at(&self, place: &Place) -> bool {
        match place {
            Place::At(address) => *address == self.worker.address,
            Place::Named(..) => self.name.as_ref() == Some(place),
        }
    }
    pub fn class(&self) -> ProcessClass {
        self.given.unwrap_or(self.declared)
    }
    /// True if the files of this storage server on its disk are damaged.
    pub fn is_damaged(&self, storage: &Uid) -> bool {
        self.damaged.iter().any(|damaged| damaged.id == *storage)
    }
    /// True if the disk of its data directory does not work at present.
    pub fn has_broken_disk(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| !disk.works)
    }
}

record! {
    /// Where a process runs, for placement: replicas never share a zone.
    pub struct Locality {
        pub process: Uid,
        pub machine: String,
        pub zone: String,
        pub data_hall: String,
        pub data_center: String,
    }

    /// A fault of a disk.
    pub struct SickDisk {
        pub directory: String,
        /// Description for people.
        pub what: String,
        /// Milliseconds since 1970.
        pub since_ms: u64,
        /// The disk works again, but not yet for long enough to be trusted.
        pub works: bool,
    }

    /// A storage server whose files end before the log begins.
    #[derive(Copy)]
    pub struct OlderCopy {
        pub id: Uid,
        /// They have everything up to here.
        pub version: Version,
        /// The log has everything from here on.
        pub log_begins: Version,
    }

    /// A storage server whose files are damaged, as far as that is known.
    pub struct DamagedStorage {
        pub id: Uid,
        pub file: String,
        /// The first ones, [`DAMAGED_PARTS_MAX`] at most.
        pub parts: Vec<DamagedPart>,
        /// How many more there are.
        pub more: u32,
    }

    /// A part of a file that is damaged.
    pub struct DamagedPart {
        /// Offset of the damaged block.
        pub offset: u64,
        /// The keys in it that reads have met, up to `end`; both are empty if none are known. Long ones are cut.
        pub begin: Bytes,
        pub end: Bytes,
    }

    /// A worker reports to the controller that it lives and what it hosts. Sent again whenever either the content or
    /// the controller changes.
    pub struct RegisterWorker {
        pub worker: Interface,
        /// Its own name, if it has one.
        pub name: Option<Place>,
        /// Class that the process declares itself.
        pub declared: ProcessClass,
        /// Class that an operator has set, which takes precedence. The controller fills this in.
        pub given: Option<ProcessClass>,
        pub locality: Locality,
        /// Log servers on its disk, of all generations. The epoch of one whose files are damaged is given as 0.
        pub logs: Vec<(Uid, Epoch)>,
        /// Storage servers on its disk.
        pub storage: Vec<(Uid, Tag)>,
        /// Storage servers on its disk whose files are damaged. Those that are also among `storage` serve what can be
        /// read.
        pub damaged: Vec<DamagedStorage>,
        /// Storage servers that do not run, because their files are of the past.
        pub older: Vec<OlderCopy>,
        /// Addresses that this worker recently failed to reach.
        pub unreachable: Vec<SocketAddr>,
        /// State of the disk under its data directory, if that disk is not to be trusted.
        pub disk: Option<SickDisk>,
        /// The newest epoch in which its data directory has served; 0 if none.
        pub epoch: Epoch,
        /// The database that its data directory has served in that epoch; zero if none, or if it was a version that
        /// knew no ids.
        pub database: Uid,
        /// Files of log or storage servers were in its data directory when it started.
        pub holds_data: bool,
        /// The process has lost its coordinator registers: it must not serve as a coordinator, even if a cluster file
        /// lists it.
        pub lost_registers: bool,
    }

    pub struct RegisterWorkerReply {
        /// Address of another live process with this id or this name, if there is one. Only one process may serve a
        /// data directory, and only one may have a name.
        pub taken_by: Option<SocketAddr>,
        /// It is not the id that another live process has, but the name.
        pub name_is_taken: bool,
        /// The database of the cluster, if the worker holds data of another one: then it is not let in.
        pub other_database: Option<Uid>,
    }

    /// Waits until the description differs from `known`.
    pub struct GetClusterInfo {
        pub known: u64,
    }

    /// The state of the cluster that every worker needs.
    pub struct ClusterInfo {
        /// Changes whenever another field changes.
        pub id: u64,
        pub controller: Interface,
        pub epoch: Epoch,
        /// The database serves clients.
        pub accepting: bool,
        /// Counts only once it serves clients.
        pub database: DatabaseId,
        pub log_system: LogSystem,
        /// All storage servers. A server that is not listed does not belong to the database: it neither pulls nor
        /// pops.
        pub servers: Vec<(Uid, Tag)>,
        /// `servers` is complete for tags below this one: a server with a lower tag that is not listed has been
        /// removed.
        pub next_tag: u32,
        /// The ratekeeper, which limits the GRV proxies, if there is one.
        pub ratekeeper: Option<Interface>,
        pub distributor: Option<Interface>,
        /// Processes whose class an operator has set, with that class.
        pub classes: Vec<(Uid, ProcessClass)>,
        /// Names and values of knobs that the cluster sets. A value that a process was given itself takes precedence.
        pub knobs: Vec<(String, String)>,
        pub client: ClientInfo,
    }

    /// The addresses that a client needs.
    pub struct ClientInfo {
        pub id: u64,
        pub grv_proxies: Vec<Interface>,
        pub commit_proxies: Vec<Interface>,
    }

    /// Waits until the description differs from `known`.
    pub struct GetClientInfo {
        pub known: u64,
    }

    /// Creates the database. Fails with `invalid_option` if there is one, and with `invalid_option_value` if a number
    /// in the configuration is out of bounds.
    pub struct CreateDatabase {
        pub config: DatabaseConfig,
        /// Although coordinators do not answer that may hold the data of a former database.
        pub force: bool,
    }

    pub struct CreateDatabaseReply {
        /// Why no database was created, in one line; empty on success.
        pub refusal: String,
    }

    /// A storage server has durably applied everything up to `version`; log generations wholly below the
    /// minimum over all of them are removed.
    pub struct ReportDurable {
        pub server: Uid,
        pub tag: Tag,
        pub version: DurableVersion,
    }

    /// Notifies the controller that the list of storage servers has changed; it reads the list again.
    pub struct ServersChanged {}

    /// Asks for all live workers.
    pub struct GetWorkers {}

    pub struct Workers {
        pub workers: Vec<RegisterWorker>,
    }

    /// Asks a worker for the state of its process and machine.
    pub struct GetWorkerStatus {}

    pub struct WorkerStatus {
        /// Bytes of the disk that holds the data directory, and how many of them are free.
        pub disk_total: u64,
        pub disk_free: u64,
        /// Greatest delay of a timer in the last second or two, in milliseconds. Timers are late when the event loop
        /// is overloaded or the process does not get the CPU.
        pub loop_lag_ms: f64,
    }

    /// Asks a worker for what its process, its machine and its roles have done, for the status document.
    pub struct GetProcessStatus {}

    pub struct ProcessStatus {
        pub uptime_s: f64,
        /// Arguments of the process, without passwords.
        pub command_line: String,
        /// Present sizes. Zero is not known.
        pub resident_bytes: u64,
        pub virtual_bytes: u64,
        pub memory_limit_bytes: u64,
        pub machine_memory_bytes: u64,
        pub machine_memory_available_bytes: u64,
        /// What the process and its machine have done; names are in [`crate::tally`].
        pub counts: Vec<Count>,
        /// What each role has done.
        pub roles: Vec<RoleCounts>,
        /// How long answers took in the last minute, for some kinds of request.
        pub latencies: Vec<RequestLatency>,
    }

    /// A number that only grows.
    pub struct Count {
        pub name: String,
        /// Since the start of what is counted.
        pub total: u64,
        /// How much more each second, over the last few seconds.
        pub hz: f64,
    }

    pub struct RoleCounts {
        pub role: Uid,
        pub counts: Vec<Count>,
    }

    /// One request in sixteen is measured.
    pub struct RequestLatency {
        pub request: String,
        pub count: u64,
        pub sum_s: f64,
        /// Number of answers that took at most 1 µs · 2ⁱ and longer than the bucket before. The last has all longer
        /// ones.
        pub buckets: Vec<u64>,
    }

    /// Asks a worker to be the data distributor of an epoch.
    pub struct RecruitDistributor {
        pub id: Uid,
        pub epoch: Epoch,
        pub controller: Interface,
        pub cluster: String,
    }

    /// Asks the data distributor for the state of replication and of its comparison of replicas.
    pub struct GetDistributorStatus {}

    #[derive(Default)]
    pub struct DistributorStatus {
        /// Number of copies of the shard that has the fewest, counted on servers that answer; 0 before the first
        /// check.
        pub least_copies: u32,
        /// Complete rounds through the database since the distributor started, and the end of the last one in seconds
        /// since 1970.
        pub rounds: u64,
        pub round_ended_s: u64,
        /// Bytes compared, counted for one replica.
        pub bytes: u64,
        /// Number of differences found between replicas, and descriptions of the first ones.
        pub found: u64,
        pub differences: Vec<String>,
        /// Bytes of shards that are on their way to other servers, and bytes that have arrived since the distributor
        /// started.
        pub moving_bytes: u64,
        pub moved_bytes: u64,
    }

    /// Asks a worker which of these processes answer it, at most [`PLACES_MAX`].
    pub struct GetReach {
        pub places: Vec<SocketAddr>,
    }

    pub struct Reach {
        /// One for each place.
        pub answered: Vec<bool>,
    }

    /// Asks a worker to end the role with this id, as `kill` in the shell does. With the id [`WORKER`] it ends its
    /// process.
    pub struct KillRole {
        pub id: Uid,
    }

    /// Gives a worker that has no keys those of its cluster. It writes its key file, and closes its port to others.
    pub struct AdoptKeys {
        /// Content of a key file with a server key.
        pub keys: Bytes,
    }

    /// The coordinated state: what a recovery must read first. Kept on the coordinators.
    pub struct DatabaseState {
        /// Format of this record: 3.
        pub format: u32,
        pub epoch: Epoch,
        pub database: DatabaseId,
        /// A majority of the coordinators is known to have had this database. Before, nobody serves it.
        pub is_confirmed: bool,
        pub config: DatabaseConfig,
        pub log_system: LogSystem,
    }

    /// The coordinated state in format 2.
    pub struct FormerDatabaseState {
        pub format: u32,
        pub epoch: Epoch,
        pub config: DatabaseConfig,
        pub log_system: LogSystem,
    }

    /// Asks for a move to other coordinators. Answered when the move is complete, or with the reason if it is refused.
    pub struct ChangeCoordinators {
        pub coordinators: Vec<Place>,
    }

    pub struct ChangeCoordinatorsReply {
        /// Why the coordinators have not changed, in one line; empty on success.
        pub refusal: String,
    }
}

impl Locality {
    /// Name of the fault domain of this kind in which the process runs.
    pub fn domain(&self, kind: FaultDomain) -> &String {
        match kind {
            FaultDomain::Zone => &self.zone,
            FaultDomain::DataHall => &self.data_hall,
        }
    }
}

/// Processes that one [`GetReach`] may name.
pub const PLACES_MAX: usize = 64;

requests! {
    RegisterWorker = 60 for Servers => RegisterWorkerReply;
    GetClusterInfo = 61 for Operators => ClusterInfo;
    GetClientInfo = 62 for Readers => ClientInfo;
    CreateDatabase = 63 for Operators => CreateDatabaseReply;
    ReportDurable = 64 for Servers => ();
    KillRole = 65 for Operators => ();
    ServersChanged = 66 for Operators => ();
    AdoptKeys = 86 for Servers => ();
    GetWorkers = 67 for Operators => Workers;
    RecruitDistributor = 68 for Servers => ();
    GetDistributorStatus = 84 for Operators => DistributorStatus;
    GetWorkerStatus = 69 for Operators => WorkerStatus;
    GetProcessStatus = 87 for Operators => ProcessStatus;
    GetReach = 89 for Servers => Reach;
    ChangeCoordinators = 85 for Operators => ChangeCoordinatorsReply;
}

//! Names of what roles count. Those that FoundationDB's status document has are its names.

// ---- process and machine: see `plinth_runtime::machine` ----

/// Microseconds of processor time: of the process; of its machine, busy and in all.
pub const CPU_US: &str = "cpu_us";
pub const MACHINE_BUSY_US: &str = "machine_busy_us";
pub const MACHINE_US: &str = "machine_us";
pub const CONNECTIONS_ESTABLISHED: &str = "connections_established";
pub const CONNECTIONS_CLOSED: &str = "connections_closed";
pub const CONNECTION_ERRORS: &str = "connection_errors";
pub const SENT_BYTES: &str = "sent_bytes";
pub const RECEIVED_BYTES: &str = "received_bytes";
pub const MACHINE_SENT_BYTES: &str = "machine_sent_bytes";
pub const MACHINE_RECEIVED_BYTES: &str = "machine_received_bytes";
pub const RETRANSMITTED_SEGMENTS: &str = "retransmitted_segments";
pub const DISK_READS: &str = "disk_reads";
pub const DISK_SECTORS_READ: &str = "disk_sectors_read";
pub const DISK_WRITES: &str = "disk_writes";
pub const DISK_SECTORS_WRITTEN: &str = "disk_sectors_written";
/// Microseconds in which the disk had something to do.
pub const DISK_BUSY_US: &str = "disk_busy_us";
/// Connections that were refused because of their certificate or key.
pub const REFUSED_CONNECTIONS: &str = "refused_connections";

/// The turns of the event loop, among the latencies of a process.
pub const LOOP_TURN: &str = "LoopTurn";

// ---- storage server ----

/// Reads that came, and reads that were answered.
pub const TOTAL_QUERIES: &str = "total_queries";
pub const FINISHED_QUERIES: &str = "finished_queries";
/// Reads that had to wait for the disk.
pub const COLD_QUERIES: &str = "cold_queries";
/// Bytes and rows of the answers. A read of one key counts its value only.
pub const BYTES_QUERIED: &str = "bytes_queried";
pub const KEYS_QUERIED: &str = "keys_queried";
/// Mutations applied, and the bytes of their keys and values.
pub const MUTATIONS: &str = "mutations";
pub const MUTATION_BYTES: &str = "mutation_bytes";
/// Versions taken from the log, and answers of the log that brought some.
pub const FETCHED_VERSIONS: &str = "fetched_versions";
pub const FETCHES_FROM_LOGS: &str = "fetches_from_logs";

// ---- storage server and log server ----

/// Bytes taken in, and bytes of these that are on disk.
pub const INPUT_BYTES: &str = "input_bytes";
pub const DURABLE_BYTES: &str = "durable_bytes";

/// Questions of storage servers that were answered, and those for which the disk had to be read.
pub const PEEKS: &str = "peeks";
pub const COLD_PEEKS: &str = "cold_peeks";

// ---- commit proxy: also mutations and their bytes, of committed transactions ----

pub const COMMITTED: &str = "transactions_committed";
pub const CONFLICTED: &str = "transactions_conflicted";
/// Questions where keys are.
pub const LOCATION_REQUESTS: &str = "location_requests";
/// Transactions refused because too many bytes wait.
pub const MEMORY_ERRORS: &str = "memory_errors";

// ---- GRV proxy ----

/// Transactions that began, by priority.
pub const STARTED_IMMEDIATE: &str = "started_immediate_priority";
pub const STARTED_DEFAULT: &str = "started_default_priority";
pub const STARTED_BATCH: &str = "started_batch_priority";
/// Requests refused because too many wait.
pub const REJECTED: &str = "rejected_for_queued_too_long";

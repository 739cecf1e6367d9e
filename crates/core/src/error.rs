//! Error codes.
//!
//! Numbers, names, messages and predicates are FoundationDB's (release 7.3), because applications and bindings
//! depend on them. The list holds what a client can be shown and what roles tell each other; codes of features
//! that do not exist here (tenants, blob granules, backup containers …) are left out. `docs/errors.md` says
//! what to do about each.
//!
//! A retry loop asks two questions, and only the predicates answer them:
//!
//! ```text
//! is_retryable_not_committed   certainly not committed, another attempt may succeed
//! is_maybe_committed           may have committed; retry only what may happen twice
//! is_retryable                 either
//! ```
//!
//! What may never happen: a code that says "not committed" for a transaction that committed.

use std::fmt;

/// An error as it crosses the wire and reaches the application: just its code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Error(pub u16);

pub type Result<T> = std::result::Result<T, Error>;

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        #[allow(non_upper_case_globals)]
        impl Error {
            $(#[doc = $text] pub const $name: Error = Error($code);)*
        }
        /// (code, name, message), by ascending code.
        const TABLE: &[(u16, &str, &str)] = &[$(($code, stringify!($name), $text)),*];
    };
}

codes! {
    // Ordinary failures: the way of a distributed system, most of them handled by the retry loop.
    success = 0, "Success";
    operation_failed = 1000, "Operation failed";
    wrong_shard_server = 1001, "Shard is not available from this server";
    operation_obsolete = 1002, "Operation result no longer necessary";
    timed_out = 1004, "Operation timed out";
    coordinated_state_conflict = 1005, "Conflict occurred while changing coordination information";
    all_alternatives_failed = 1006, "All alternatives failed";
    transaction_too_old = 1007, "Transaction is too old to perform reads or be committed";
    no_more_servers = 1008, "Not enough physical servers available";
    future_version = 1009, "Request for future version";
    movekeys_conflict = 1010, "Conflicting attempts to change data distribution";
    tlog_stopped = 1011, "TLog stopped";
    server_request_queue_full = 1012, "Server request queue is full";
    not_committed = 1020, "Transaction not committed due to conflict with another transaction";
    commit_unknown_result = 1021, "Transaction may or may not have committed";
    commit_unknown_result_fatal = 1022, "Idempotency id for transaction may have expired, so the commit status of the transaction cannot be determined";
    transaction_cancelled = 1025, "Operation aborted because the transaction was cancelled";
    connection_failed = 1026, "Network connection failed";
    coordinators_changed = 1027, "Coordination servers have changed";
    new_coordinators_timed_out = 1028, "New coordination servers did not respond in a timely way";
    watch_cancelled = 1029, "Watch cancelled because storage server watch limit exceeded";
    request_maybe_delivered = 1030, "Request may or may not have been delivered";
    transaction_timed_out = 1031, "Operation aborted because the transaction timed out";
    too_many_watches = 1032, "Too many watches currently set";
    locality_information_unavailable = 1033, "Locality information not available";
    watches_disabled = 1034, "Watches cannot be set if read your writes is disabled";
    accessed_unreadable = 1036, "Read or wrote an unreadable key";
    process_behind = 1037, "Storage process does not have recent mutations";
    database_locked = 1038, "Database is locked";
    cluster_version_changed = 1039, "The protocol version of the cluster has changed";
    external_client_already_loaded = 1040, "External client has already been loaded";
    lookup_failed = 1041, "DNS lookup failed";
    commit_proxy_memory_limit_exceeded = 1042, "CommitProxy commit memory limit exceeded";
    shutdown_in_progress = 1043, "Operation no longer supported due to shutdown";
    serialization_failed = 1044, "Failed to deserialize an object";
    batch_transaction_throttled = 1051, "Batch GRV request rate limit exceeded";
    wrong_connection_file = 1054, "Connection file mismatch";
    unsupported_format_version = 1058, "Format version not supported";
    grv_proxy_memory_limit_exceeded = 1078, "GetReadVersion proxy memory limit exceeded";
    broken_promise = 1100, "Broken promise";
    operation_cancelled = 1101, "Asynchronous operation cancelled";
    future_released = 1102, "Future has been released";
    never_reply = 1104, "Never reply to the request";
    // Failures of roles; they end an epoch and are not for applications.
    recruitment_failed = 1200, "Recruitment of a server failed";
    worker_removed = 1202, "Normal worker shut down";
    cluster_recovery_failed = 1203, "Cluster recovery failed";
    tlog_failed = 1205, "Cluster recovery terminating because a TLog failed";
    worker_recovery_failed = 1206, "Recovery of a worker process failed";
    commit_proxy_failed = 1209, "Master terminating because a CommitProxy failed";
    resolver_failed = 1210, "Cluster recovery terminating because a Resolver failed";
    server_overloaded = 1211, "Server is under too much load and cannot respond";
    tag_throttled = 1213, "Transaction tag is being throttled";
    grv_proxy_failed = 1214, "Cluster recovery terminating because a GRVProxy failed";
    invalid_cluster_id = 1217, "Attempted to join cluster with a different cluster ID";
    incompatible_software_version = 1220, "Current software does not support database format";
    proxy_tag_throttled = 1223, "Exceeded maximum proxy tag throttling duration";
    master_failed = 1227, "Cluster recovery terminating because master has failed";
    // The machine underneath.
    platform_error = 1500, "Platform error";
    large_alloc_failed = 1501, "Large block allocation failed";
    io_error = 1510, "Disk i/o operation failed";
    file_not_found = 1511, "File not found";
    bind_failed = 1512, "Unable to bind to network";
    file_not_readable = 1513, "File could not be read";
    file_not_writable = 1514, "File could not be written";
    no_cluster_file_found = 1515, "No cluster file found in current directory or default location";
    file_too_large = 1516, "File too large to be read";
    checksum_failed = 1520, "A data checksum failed";
    io_timeout = 1521, "A disk IO operation failed to complete in a timely manner";
    file_corrupt = 1522, "A structurally corrupt data file was detected";
    lock_file_failure = 1529, "Unable to lock the file";
    // Plinth's own: FoundationDB has no code for it and leaves this number free.
    disk_full = 1542, "The disk is full";
    // Mistakes of the caller: retrying will not help.
    client_invalid_operation = 2000, "Invalid API call";
    commit_read_incomplete = 2002, "Commit with incomplete read";
    test_specification_invalid = 2003, "Invalid test specification";
    key_outside_legal_range = 2004, "Key outside legal range";
    inverted_range = 2005, "Range begin key larger than end key";
    invalid_option_value = 2006, "Option set with an invalid value";
    invalid_option = 2007, "Option not valid in this context";
    network_not_setup = 2008, "Action not possible before the network is configured";
    network_already_setup = 2009, "Network can be configured only once";
    read_version_already_set = 2010, "Transaction already has a read version set";
    version_invalid = 2011, "Version not valid";
    range_limits_invalid = 2012, "Range limits not valid";
    invalid_database_name = 2013, "Database name must be 'DB'";
    attribute_not_found = 2014, "Attribute not found";
    future_not_set = 2015, "Future not ready";
    future_not_error = 2016, "Future not an error";
    used_during_commit = 2017, "Operation issued while a commit was outstanding";
    invalid_mutation_type = 2018, "Unrecognized atomic mutation type";
    attribute_too_large = 2019, "Attribute too large for type int";
    transaction_invalid_version = 2020, "Transaction does not have a valid commit version";
    no_commit_version = 2021, "Transaction is read-only and therefore does not have a commit version";
    environment_variable_network_option_failed = 2022, "Environment variable network option could not be set";
    transaction_read_only = 2023, "Attempted to commit a transaction specified as read-only";
    invalid_cache_eviction_policy = 2024, "Invalid cache eviction policy, only random and lru are supported";
    network_cannot_be_restarted = 2025, "Network can only be started once";
    blocked_from_network_thread = 2026, "Detected a deadlock in a callback called from the network thread";
    incompatible_protocol_version = 2100, "Incompatible protocol version";
    transaction_too_large = 2101, "Transaction exceeds byte limit";
    key_too_large = 2102, "Key length exceeds limit";
    value_too_large = 2103, "Value length exceeds limit";
    connection_string_invalid = 2104, "Connection string invalid";
    address_in_use = 2105, "Local address in use";
    invalid_local_address = 2106, "Invalid local address";
    tls_error = 2107, "TLS error";
    unsupported_operation = 2108, "Operation is not supported";
    too_many_tags = 2109, "Too many tags set on transaction";
    tag_too_long = 2110, "Tag set on transaction is too long";
    special_keys_cross_module_read = 2112, "Special key space range read crosses modules. Refer to the `special_key_space_relaxed' transaction option for more details.";
    special_keys_no_module_found = 2113, "Special key space range read does not intersect a module. Refer to the `special_key_space_relaxed' transaction option for more details.";
    special_keys_write_disabled = 2114, "Special Key space is not allowed to write by default. Refer to the `special_key_space_enable_writes` transaction option for more details.";
    special_keys_no_write_module_found = 2115, "Special key space key or keyrange in set or clear does not intersect a module";
    special_keys_cross_module_clear = 2116, "Special key space clear crosses modules";
    special_keys_api_failure = 2117, "Api call through special keys failed. For more information, call get on special key 0xff0xff/error_message to get a json string of the error message.";
    no_external_client_provided = 2123, "No external client library provided.";
    all_external_clients_failed = 2124, "All external clients have failed.";
    incompatible_client = 2125, "None of the available clients match the protocol version of the cluster.";
    tenant_name_required = 2130, "Tenant name must be specified to access data in the cluster";
    tenant_not_found = 2131, "Tenant does not exist";
    tenants_disabled = 2136, "Tenants have been disabled in the cluster";
    // Bindings and layers.
    api_version_unset = 2200, "API version is not set";
    api_version_already_set = 2201, "API version may be set only once";
    api_version_invalid = 2202, "API version not valid";
    api_version_not_supported = 2203, "API version not supported";
    api_function_missing = 2204, "Failed to load a required FDB API function.";
    exact_mode_without_limits = 2210, "EXACT streaming mode requires limits, but none were given";
    invalid_tuple_data_type = 2250, "Unrecognized data type in packed tuple";
    invalid_tuple_index = 2251, "Tuple does not have element at specified index";
    key_not_in_subspace = 2252, "Cannot unpack key that is not in subspace";
    manual_prefixes_not_enabled = 2253, "Cannot specify a prefix unless manual prefixes are enabled";
    prefix_in_partition = 2254, "Cannot specify a prefix in a partition";
    cannot_open_root_directory = 2255, "Root directory cannot be opened";
    directory_already_exists = 2256, "Directory already exists";
    directory_does_not_exist = 2257, "Directory does not exist";
    parent_directory_does_not_exist = 2258, "Directory's parent does not exist";
    mismatched_layer = 2259, "Directory has already been created with a different layer string";
    invalid_directory_layer_metadata = 2260, "Invalid directory layer metadata";
    cannot_move_directory_between_partitions = 2261, "Directory cannot be moved between partitions";
    cannot_use_partition_as_subspace = 2262, "Directory partition cannot be used as subspace";
    incompatible_directory_version = 2263, "Directory layer was created with an incompatible version";
    directory_prefix_not_empty = 2264, "Database has keys stored at the prefix chosen by the automatic prefix allocator";
    directory_prefix_in_use = 2265, "Directory layer already has a conflicting prefix";
    invalid_destination_directory = 2266, "Target directory is invalid";
    cannot_modify_root_directory = 2267, "Root directory cannot be modified";
    invalid_uuid_size = 2268, "UUID is not sixteen bytes";
    invalid_versionstamp_size = 2269, "Versionstamp is not exactly twelve bytes";
    // Bugs, and what is refused.
    unknown_error = 4000, "An unknown error occurred";
    internal_error = 4100, "An internal error occurred";
    not_implemented = 4200, "Not implemented yet";
    permission_denied = 6000, "Client tried to access unauthorized data";
}

impl Error {
    /// The name that FoundationDB's public error page has for 1042; the code itself says which proxy it was.
    #[allow(non_upper_case_globals)]
    pub const proxy_memory_limit_exceeded: Error = Error::commit_proxy_memory_limit_exceeded;

    pub fn code(self) -> u16 {
        self.0
    }
    fn row(self) -> Option<&'static (u16, &'static str, &'static str)> {
        TABLE
            .binary_search_by_key(&self.0, |row| row.0)
            .ok()
            .map(|at| &TABLE[at])
    }
    /// FoundationDB's name of the code, e.g. `not_committed`.
    pub fn name(self) -> &'static str {
        self.row().map_or("unknown_error", |row| row.1)
    }
    pub fn message(self) -> &'static str {
        self.row().map_or("An unknown error occurred", |row| row.2)
    }
    /// Every known code in ascending order.
    pub fn all() -> impl Iterator<Item = Error> {
        TABLE.iter().map(|row| Error(row.0))
    }
    /// The transaction may have committed although the client saw this error.
    pub fn is_maybe_committed(self) -> bool {
        matches!(
            self,
            Error::commit_unknown_result | Error::cluster_version_changed
        )
    }
    /// Retrying may help, and the transaction has certainly not committed.
    pub fn is_retryable_not_committed(self) -> bool {
        matches!(
            self,
            Error::not_committed
                | Error::transaction_too_old
                | Error::future_version
                | Error::database_locked
                | Error::grv_proxy_memory_limit_exceeded
                | Error::commit_proxy_memory_limit_exceeded
                | Error::batch_transaction_throttled
                | Error::process_behind
                | Error::tag_throttled
                | Error::proxy_tag_throttled
        )
    }
    /// The standard retry loop tries again after this error.
    pub fn is_retryable(self) -> bool {
        self.is_retryable_not_committed() || self.is_maybe_committed()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message(), self.0)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_names_are_unique() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].0 < pair[1].0, "{} before {}", pair[0].1, pair[1].1);
        }
        let mut names: Vec<_> = TABLE.iter().map(|row| row.1).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn the_predicates_hold_for_exactly_the_codes_that_bindings_expect() {
        let with = |holds: fn(Error) -> bool| {
            Error::all()
                .filter(|e| holds(*e))
                .map(Error::code)
                .collect::<Vec<_>>()
        };
        assert_eq!(with(Error::is_maybe_committed), [1021, 1039]);
        let not_committed = [1007, 1009, 1020, 1037, 1038, 1042, 1051, 1078, 1213, 1223];
        assert_eq!(with(Error::is_retryable_not_committed), not_committed);
        assert_eq!(with(Error::is_retryable).len(), not_committed.len() + 2);
        assert!(
            !Error::transaction_timed_out.is_retryable()
                && !Error::accessed_unreadable.is_retryable()
        );
    }

    #[test]
    fn an_unknown_code_has_a_name_and_keeps_its_number() {
        assert_eq!(
            format!("{:?} {}", Error(1020), Error(1020).message().len() > 10),
            "not_committed(1020) true"
        );
        assert_eq!(
            Error(31_000).to_string(),
            "An unknown error occurred (31000)"
        );
        assert_eq!(format!("{:?}", Error(31_000)), "unknown_error(31000)");
    }

    #[test]
    fn every_code_is_explained_in_the_documentation() {
        let page = include_str!("../../../docs/errors.md");
        for error in Error::all() {
            let cell = format!("| {} | `{}` |", error.code(), error.name());
            assert!(
                page.contains(&cell),
                "docs/errors.md lacks a row that starts with {cell}"
            );
        }
    }
}

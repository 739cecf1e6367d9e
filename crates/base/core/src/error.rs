//! Error codes.
//!
//! Numbers, names and predicates are FoundationDB's (release 7.3), because applications and bindings depend on them.
//! The list holds errors that a client can receive and errors between roles; codes of features that do not exist here
//! (blob granules, backup containers …) are left out. `docs/errors.md` says how to handle each.
//!
//! A retry loop must use the predicates, and nothing else, to decide what to do:
//!
//! ```text
//! is_retryable_not_committed   certainly not committed, another attempt may succeed
//! is_maybe_committed           may have committed; retry only what may happen twice
//! is_retryable                 either
//! ```
//!
//! What may never happen: a code that says "not committed" for a transaction that committed.

use std::fmt;

/// An error as it is sent between processes and returned to the application: its code.
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
    // Ordinary failures of a distributed system, most of them handled by the retry loop.
    success = 0, "Not an error";
    operation_failed = 1000, "The operation failed for a reason that has no code of its own";
    wrong_shard_server = 1001, "The server does not hold the shard that was asked for; \
        the client's location cache is out of date";
    operation_obsolete = 1002, "Something newer has replaced the operation, for example a later epoch";
    timed_out = 1004, "No answer in the time allowed for this operation";
    coordinated_state_conflict = 1005, "Someone else changed the coordinated state; the loser must stop";
    all_alternatives_failed = 1006, "No replica of the shard could be reached";
    transaction_too_old = 1007, "The read version has left the window of about five seconds";
    no_more_servers = 1008, "Fewer servers than the configured replication needs";
    future_version = 1009, "A storage server has not reached the read version in the time that it waits";
    movekeys_conflict = 1010, "Two data distributors tried to move data at once";
    tlog_stopped = 1011, "The log server belongs to an epoch that is sealed";
    server_request_queue_full = 1012, "A server's queue is at its bound";
    // Tests of the bindings compare this text.
    not_committed = 1020, "Transaction not committed due to conflict with another transaction";
    commit_unknown_result = 1021, "The commit was sent and its answer lost";
    commit_unknown_result_fatal = 1022, "As 1021, and there is no longer a way to find out";
    transaction_cancelled = 1025, "'cancel' was called, or the transaction was destroyed with operations outstanding";
    connection_failed = 1026, "The connection could not be made or broke";
    coordinators_changed = 1027, "The cluster has moved to other coordinators";
    new_coordinators_timed_out = 1028, "The coordinators that were proposed did not answer";
    watch_cancelled = 1029, "A storage server has too many watches and dropped this one";
    request_maybe_delivered = 1030, "The connection broke after the request was sent";
    transaction_timed_out = 1031, "The transaction's own timeout option ran out";
    too_many_watches = 1032, "This database handle has as many watches as its limit allows";
    locality_information_unavailable = 1033, "The cluster cannot say where keys live";
    watches_disabled = 1034, "A watch on a transaction with read-your-writes disabled";
    accessed_unreadable = 1036, "The transaction read a key or value that it has itself written with a versionstamp, \
        which is not known before the commit";
    process_behind = 1037, "A storage server is too far behind the log to answer";
    database_locked = 1038, "An operator has locked the database";
    cluster_version_changed = 1039, "The cluster now speaks another protocol version";
    external_client_already_loaded = 1040, "A client library was loaded twice";
    lookup_failed = 1041, "A host name has no address";
    commit_proxy_memory_limit_exceeded = 1042, "The commit proxies hold as many commit bytes as they may. \
        Public documentation also calls it 'proxy_memory_limit_exceeded'";
    shutdown_in_progress = 1043, "The process or client is stopping";
    serialization_failed = 1044, "A message could not be decoded, or is too large to be sent";
    batch_transaction_throttled = 1051, "Batch-priority work gets no read versions at present";
    wrong_connection_file = 1054, "The cluster file names another cluster";
    unsupported_format_version = 1058, "A file or record has a format that this release does not know";
    grv_proxy_memory_limit_exceeded = 1078, "The GRV proxies have as many requests waiting as they may";
    broken_promise = 1100, "The peer dropped the request without an answer, because its role died";
    operation_cancelled = 1101, "The operation was cancelled on this side";
    future_released = 1102, "The result was read after its memory was given back";
    never_reply = 1104, "The role chose not to answer";
    // Failures of roles. Most of them end an epoch and do not reach applications; the codes for throttling do.
    recruitment_failed = 1200, "A process refused the role it was offered";
    worker_removed = 1202, "The role was told to stop: it is not needed any more";
    cluster_recovery_failed = 1203, "The recovery was given up; the next one starts";
    tlog_failed = 1205, "A log server of the epoch has died";
    worker_recovery_failed = 1206, "A worker could not bring back what it has on disk";
    commit_proxy_failed = 1209, "A commit proxy of the epoch has died";
    resolver_failed = 1210, "A resolver of the epoch has died";
    server_overloaded = 1211, "The server has no room for the request";
    tag_throttled = 1213, "Transactions with this tag are being throttled";
    grv_proxy_failed = 1214, "A GRV proxy of the epoch has died";
    invalid_cluster_id = 1217, "A process of another cluster tried to join";
    incompatible_software_version = 1220, "The data was written by a release that this one cannot follow";
    proxy_tag_throttled = 1223, "A request waited for its tag's budget longer than it may";
    master_failed = 1227, "The sequencer of the epoch has died";
    // Failures of the machine.
    platform_error = 1500, "The operating system refused something";
    large_alloc_failed = 1501, "There was no memory for a large block";
    io_error = 1510, "A disk operation failed. The role that met it ends, and comes back when the disk works again";
    file_not_found = 1511, "A file that must be there is not";
    bind_failed = 1512, "The listening address cannot be used";
    file_not_readable = 1513, "A file cannot be read";
    file_not_writable = 1514, "A file cannot be written";
    no_cluster_file_found = 1515, "There is no cluster file in the places where one is looked for";
    file_too_large = 1516, "A file that is read whole is too large to be one";
    checksum_failed = 1520, "Bytes on disk or from the network are not those that were written";
    io_timeout = 1521, "A disk operation did not end in the time allowed";
    file_corrupt = 1522, "A data file's structure is broken";
    lock_file_failure = 1529, "Another process has the data directory";
    // Plinth's own code: FoundationDB has none for this and leaves the number free.
    disk_full = 1542, "No room is left on the disk. Plinth's own code: FoundationDB has none, \
        and leaves the number free";
    // Mistakes of the caller: retrying will not help.
    client_invalid_operation = 2000, "A call that makes no sense in this state, \
        or a versionstamp offset beyond its key or value";
    commit_read_incomplete = 2002, "'commit' was called while a read was outstanding";
    test_specification_invalid = 2003, "A workload description does not parse";
    key_outside_legal_range = 2004, "A system key without the option for it, or a key beyond '\\xff\\xff'";
    inverted_range = 2005, "The range's begin is above its end";
    invalid_option_value = 2006, "The option's value has the wrong form";
    invalid_option = 2007, "The option is unknown, or may not be set here";
    network_not_setup = 2008, "The client's network has not been set up";
    network_already_setup = 2009, "The client's network was set up before";
    read_version_already_set = 2010, "'set_read_version' after a read version was taken";
    version_invalid = 2011, "Not a version: zero, negative or impossibly large";
    range_limits_invalid = 2012, "A negative limit";
    invalid_database_name = 2013, "The database's name is not 'DB'";
    attribute_not_found = 2014, "A required attribute is missing from a text";
    future_not_set = 2015, "A result was asked for before it was ready";
    future_not_error = 2016, "The error of a result that has none";
    used_during_commit = 2017, "The transaction was used while its commit was outstanding";
    invalid_mutation_type = 2018, "Not an atomic operation";
    attribute_too_large = 2019, "A number in a text is too large";
    transaction_invalid_version = 2020, "The transaction has no valid commit version";
    no_commit_version = 2021, "The transaction wrote nothing and so has no commit version or versionstamp";
    environment_variable_network_option_failed = 2022, "An option given in the environment is not valid";
    transaction_read_only = 2023, "A write in a transaction that was declared read-only";
    invalid_cache_eviction_policy = 2024, "Neither 'random' nor 'lru'";
    network_cannot_be_restarted = 2025, "The client's network was stopped; it starts once";
    blocked_from_network_thread = 2026, "A callback waited for something that only its own thread can bring";
    mapper_bad_index = 2030, "The mapper of a mapped range names an element that the row does not have, \
        or has stray braces";
    mapper_bad_range_decriptor = 2032, "'{...}' stands elsewhere than at the end of a mapper. \
        FoundationDB spells the name so";
    get_mapped_range_reads_your_writes = 2039, "A mapped range meets what the transaction itself has written";
    key_not_tuple = 2041, "A mapped range needs elements of a key that is no tuple";
    value_not_tuple = 2042, "A mapped range needs elements of a value that is no tuple";
    mapper_not_tuple = 2043, "The mapper of a mapped range is no tuple";
    incompatible_protocol_version = 2100, "Client and server speak different protocol versions";
    transaction_too_large = 2101, "More than 10,000,000 bytes of mutations and conflict ranges";
    key_too_large = 2102, "A key above 10,000 bytes (30,000 for system keys)";
    value_too_large = 2103, "A value above 100,000 bytes";
    connection_string_invalid = 2104, "Not 'description:id@address:port,…'";
    address_in_use = 2105, "Another process listens there";
    invalid_local_address = 2106, "Not an address of this machine";
    tls_error = 2107, "The TLS handshake or its certificates failed";
    unsupported_operation = 2108, "This release does not do it";
    too_many_tags = 2109, "Too many tags on one transaction";
    tag_too_long = 2110, "A tag is too long";
    special_keys_cross_module_read = 2112, "One range read over two modules of the special key space";
    special_keys_no_module_found = 2113, "No module of the special key space there";
    special_keys_write_disabled = 2114, "A write to the special key space without the option for it";
    special_keys_no_write_module_found = 2115, "Nothing there can be written";
    special_keys_cross_module_clear = 2116, "One clear over two modules";
    special_keys_api_failure = 2117, "The management call failed; '\\xff\\xff/error_message' says why, in JSON";
    no_external_client_provided = 2123, "An external client library is required and none was given";
    all_external_clients_failed = 2124, "None of the external client libraries works";
    incompatible_client = 2125, "No client at hand speaks the cluster's protocol version";
    tenant_name_required = 2130, "The cluster wants a tenant";
    tenant_not_found = 2131, "There is no such tenant";
    tenant_already_exists = 2132, "There is a tenant of that name";
    tenant_not_empty = 2133, "The tenant still holds data";
    invalid_tenant_name = 2134, "A tenant's name is neither empty nor starts with \\xff";
    tenant_prefix_allocator_conflict = 2135, "There are keys where the new tenant's would be";
    tenants_disabled = 2136, "A tenant was asked for";
    illegal_tenant_access = 2138, "A system key inside a tenant";
    // Of Plinth alone: FoundationDB has no code in the 2180s.
    stream_not_found = 2180, "There is no such stream";
    stream_already_exists = 2181, "There is a stream of that name";
    stream_too_old = 2182, "Entries from this position on have been cut from the stream";
    invalid_stream = 2183, "Not a legal stream: its name, ranges, limits, position or kind";
    too_many_streams = 2184, "No more streams in this database, or on these keys";
    // Bindings and layers.
    api_version_unset = 2200, "No API version was selected";
    api_version_already_set = 2201, "Another API version was selected before";
    api_version_invalid = 2202, "Not an API version";
    api_version_not_supported = 2203, "An API version that this library does not offer";
    api_function_missing = 2204, "The library lacks a function of that API version";
    exact_mode_without_limits = 2210, "Streaming mode *exact* without a limit";
    invalid_tuple_data_type = 2250, "The bytes are not a packed tuple";
    invalid_tuple_index = 2251, "The tuple has fewer elements";
    key_not_in_subspace = 2252, "The key does not start with the subspace's prefix";
    manual_prefixes_not_enabled = 2253, "A prefix was given to a directory layer that does not allow it";
    prefix_in_partition = 2254, "A prefix was given inside a partition";
    cannot_open_root_directory = 2255, "The root is not opened as a directory";
    directory_already_exists = 2256, "There is a directory of that path";
    directory_does_not_exist = 2257, "There is no directory of that path";
    parent_directory_does_not_exist = 2258, "There is no directory to put it in";
    mismatched_layer = 2259, "The directory belongs to another layer";
    invalid_directory_layer_metadata = 2260, "What the directory layer keeps is broken";
    cannot_move_directory_between_partitions = 2261, "A move would cross a partition's border";
    cannot_use_partition_as_subspace = 2262, "A partition has no keys of its own";
    incompatible_directory_version = 2263, "Written by a newer directory layer";
    directory_prefix_not_empty = 2264, "The chosen prefix has keys already";
    directory_prefix_in_use = 2265, "Another directory has the prefix, or one that overlaps it";
    invalid_destination_directory = 2266, "The target is inside what is moved";
    cannot_modify_root_directory = 2267, "The root can be neither moved nor removed";
    invalid_uuid_size = 2268, "A UUID has 16 bytes";
    invalid_versionstamp_size = 2269, "A versionstamp in a tuple has 12 bytes";
    // Bugs, and refused operations.
    unknown_error = 4000, "An error that has no code";
    internal_error = 4100, "Something that cannot happen has happened";
    not_implemented = 4200, "The API has it and Plinth does not";
    permission_denied = 6000, "The client may not touch this data";
}

impl Error {
    /// The name that FoundationDB's public error page gives 1042; the code itself names the proxy.
    #[allow(non_upper_case_globals)]
    pub const proxy_memory_limit_exceeded: Error = Error::commit_proxy_memory_limit_exceeded;

    pub fn code(self) -> u16 {
        self.0
    }

    /// True if it says that a file is damaged. What is intact in it can still be read.
    pub fn is_damage(self) -> bool {
        matches!(self, Error::checksum_failed | Error::file_corrupt)
    }
    fn row(self) -> Option<&'static (u16, &'static str, &'static str)> {
        TABLE
            .binary_search_by_key(&self.0, |row| row.0)
            .ok()
            .map(|at| &TABLE[at])
    }
    /// FoundationDB's name of the code, for example `not_committed`.
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
    /// The transaction may have committed although the client received this error.
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
        let page = include_str!("../../../../docs/errors.md");
        for error in Error::all() {
            let cell = format!("| {} | `{}` |", error.code(), error.name());
            assert!(
                page.contains(&cell),
                "docs/errors.md lacks a row that starts with {cell}"
            );
        }
    }
}
